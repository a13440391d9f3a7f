//! The status of a pod: phase, conditions and the state of every container. Pure.
//!
//! Implements: the kubelet's `convertToAPIContainerStatuses`, `getPhase` and the status conditions
//! (`pkg/kubelet/kubelet_pods.go`, `pkg/kubelet/status/generate.go`); `securityContext.seccompProfileHash` of the
//! ConfigMap profile design; the Blocked state of the AppArmor design.

use std::collections::BTreeMap;

use jiff::Timestamp;
use palisade_base::time::rfc3339;
use palisade_model::pod_view::ContainerKind;
use serde_json::{Map, Value, json};

use super::{
    observed::{Instance, Observed},
    plan::{Reason, restarts, time},
    probes::Health,
    resize::{self, Resizing},
};
use crate::{
    cri::proto::ContainerState,
    pod::{Container, RestartPolicy, RunPod, VolumeMount},
};

/// Why a pod is not run at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// CamelCase word for machines.
    pub reason: String,
    /// Sentence for people.
    pub message: String,
    /// Whether it may be run later: the pod is blocked rather than failed.
    pub soft: bool,
}

/// What a status is made of besides the pod itself.
#[derive(Debug, Clone, Copy)]
pub struct StatusFacts<'a> {
    /// What the runtime has.
    pub observed: &'a Observed,
    /// Why containers wait.
    pub waiting: &'a BTreeMap<String, Reason>,
    /// Containers that failed without ever having been created, for good.
    pub failed: &'a BTreeMap<String, (Reason, Timestamp)>,
    /// What probes found about running containers, by the runtime's id.
    pub health: &'a BTreeMap<String, Health>,
    /// Last messages of containers, by the runtime's id.
    pub messages: &'a BTreeMap<String, String>,
    /// The node's address.
    pub host_ip: &'a str,
    /// How far a resize has come.
    pub resizing: &'a Resizing,
    /// When the agent first saw the pod.
    pub start_time: Timestamp,
    /// The runtime's name, the first part of container ids.
    pub runtime_name: &'a str,
    /// The kubelet's release.
    pub minor: u16,
    /// Now.
    pub now: Timestamp,
}

/// The phases of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the API's own")]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    /// The API's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// The status of a pod that is not run.
#[must_use]
pub fn rejected(pod: &RunPod, rejection: &Rejection, previous: &Value, facts: &StatusFacts<'_>) -> Value {
    if !rejection.soft {
        let mut status = json!({"phase": "Failed", "reason": rejection.reason, "message": rejection.message,
            "startTime": seconds(facts.start_time)});
        if let (Some(generation), Value::Object(fields)) = (observed_generation(pod, facts), &mut status) {
            fields.insert("observedGeneration".to_owned(), generation);
        }
        return status;
    }
    let (mut status, _) = status(pod, previous, facts);
    if let Value::Object(fields) = &mut status {
        fields.insert("phase".to_owned(), "Pending".into());
        fields.insert("reason".to_owned(), rejection.reason.clone().into());
        fields.insert("message".to_owned(), rejection.message.clone().into());
        for list in ["initContainerStatuses", "containerStatuses"] {
            for container in fields.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(Value::Object(waiting)) = container.pointer_mut("/state/waiting") {
                    waiting.insert("reason".to_owned(), "Blocked".into());
                }
            }
        }
    }
    status
}

/// The status of a pod whose containers were stopped for a reason that concerns all of it.
#[must_use]
pub fn ended(pod: &RunPod, previous: &Value, facts: &StatusFacts<'_>, reason: &str, message: &str) -> Value {
    let (mut status, _) = status(pod, previous, facts);
    if let Value::Object(fields) = &mut status {
        fields.insert("phase".to_owned(), "Failed".into());
        fields.insert("reason".to_owned(), reason.into());
        fields.insert("message".to_owned(), message.into());
        fail_waiting_containers(pod, fields);
    }
    status
}

/// Nothing of a pod that ended waits any longer: what never came to be has failed, as far as the pod came.
fn fail_waiting_containers(pod: &RunPod, status: &mut Map<String, Value>) {
    let list = |status: &Map<String, Value>, name: &str| {
        status.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let has_waited_only = |container: &Value| {
        container.pointer("/state/waiting").is_some() && container.pointer("/lastState/terminated").is_none()
    };
    let (mut init, mut app) = (list(status, "initContainerStatuses"), list(status, "containerStatuses"));
    let went_well = |container: &Value| {
        ["/state/terminated/exitCode", "/lastState/terminated/exitCode"]
            .iter()
            .any(|path| container.pointer(path).and_then(Value::as_i64) == Some(0))
    };
    let is_initialised = pod.spec.init_containers.is_empty()
        || !app.iter().all(has_waited_only)
        || init.last().is_some_and(went_well);
    // The init containers that were tried; the first always was.
    let tried = init.iter().rposition(|container| !has_waited_only(container)).unwrap_or_default();
    let app_ended = app.iter_mut().filter(|_| is_initialised);
    for container in init.iter_mut().take(tried.saturating_add(1)).chain(app_ended) {
        if container.pointer("/state/terminated").is_none()
            && let Value::Object(fields) = container
        {
            let unknown = json!({"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": null, "finishedAt": null,
                "message": "The container could not be located when the pod was terminated"});
            fields.insert("state".to_owned(), json!({"terminated": unknown}));
        }
    }
    for (name, list) in [("initContainerStatuses", init), ("containerStatuses", app)] {
        if !list.is_empty() {
            status.insert(name.to_owned(), list.into());
        }
    }
}

/// The status of a pod, and its phase.
#[must_use]
pub fn status(pod: &RunPod, previous: &Value, facts: &StatusFacts<'_>) -> (Value, Phase) {
    let of_list = |kind: ContainerKind| -> Vec<State<'_>> {
        pod.list(kind).iter().map(|container| container_state(pod, kind, container, facts)).collect()
    };
    let init = of_list(ContainerKind::Init);
    let app = of_list(ContainerKind::App);
    let ephemeral = of_list(ContainerKind::Ephemeral);
    let phase = phase(pod, &init, &app);

    let mut fields = Map::new();
    if let Some(generation) = observed_generation(pod, facts) {
        fields.insert("observedGeneration".to_owned(), generation);
    }
    fields.insert("phase".to_owned(), phase.as_str().into());
    fields.insert("conditions".to_owned(), conditions(pod, &init, &app, phase, previous, facts));
    fields.insert("hostIP".to_owned(), facts.host_ip.into());
    fields.insert("hostIPs".to_owned(), json!([{"ip": facts.host_ip}]));
    fields.insert("startTime".to_owned(), seconds(facts.start_time).into());
    let own: Vec<&str> =
        facts.observed.ready_sandbox().into_iter().flat_map(|s| &s.ips).map(String::as_str).collect();
    let host_network = super::config::is_host_network(pod);
    let ips: Vec<&str> =
        if host_network && !facts.observed.sandboxes.is_empty() { vec![facts.host_ip] } else { own };
    if let Some(first) = ips.first() {
        fields.insert("podIP".to_owned(), (*first).into());
        fields.insert("podIPs".to_owned(), ips.iter().map(|ip| json!({"ip": ip})).collect());
    }
    for (name, mut list) in [
        ("initContainerStatuses", init),
        ("containerStatuses", app),
        ("ephemeralContainerStatuses", ephemeral),
    ] {
        // Init containers in the order in which they run, all others by name: so upstream's clients expect it.
        if name != "initContainerStatuses" {
            list.sort_by(|a, b| a.container.name.cmp(&b.container.name));
        }
        if !list.is_empty() {
            let before = |name: &str| {
                let lists = ["initContainerStatuses", "containerStatuses"].into_iter();
                let mut known = lists.filter_map(|list| previous.get(list)?.as_array()).flatten();
                known.find(|status| status.get("name").and_then(Value::as_str) == Some(name))
            };
            let object = |state: &State<'_>| state.object(facts, before(&state.container.name));
            fields.insert(name.to_owned(), list.iter().map(object).collect());
        }
    }
    (Value::Object(fields), phase)
}

#[derive(Debug)]
enum Now<'a> {
    Waiting(Reason),
    Running(&'a Instance),
    Terminated(&'a Instance),
    /// Failed without ever having been created.
    Failed(&'a Reason, Timestamp),
}

#[derive(Debug)]
struct State<'a> {
    container: &'a Container,
    kind: ContainerKind,
    now: Now<'a>,
    last: Option<&'a Instance>,
    newest: Option<&'a Instance>,
    health: Health,
}

fn container_state<'a>(
    pod: &'a RunPod,
    kind: ContainerKind,
    container: &'a Container,
    facts: &'a StatusFacts<'a>,
) -> State<'a> {
    let mut runs = facts.observed.runs(&container.name);
    let newest = runs.next();
    let mut last = runs.next().filter(|run| run.state == ContainerState::Exited);
    let default_reason =
        if pod.spec.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let creating = || Now::Waiting(Reason { reason: default_reason.to_owned(), message: String::new() });
    let mut now = match newest {
        None => creating(),
        Some(run) => match run.state {
            ContainerState::Running => Now::Running(run),
            ContainerState::Exited => Now::Terminated(run),
            ContainerState::Created | ContainerState::Unknown => creating(),
        },
    };
    let unasked = Health::before_first_probe(container);
    let health = newest.and_then(|run| facts.health.get(&run.id)).copied().unwrap_or(unasked);
    if let Some((reason, at)) = facts.failed.get(&container.name) {
        return State { container, kind, now: Now::Failed(reason, *at), last: newest, newest, health };
    }
    // A container that will be started again is waiting for that, with the reason.
    let policy = match (kind, container.is_sidecar()) {
        (ContainerKind::Init, true) => RestartPolicy::Always,
        (ContainerKind::Init, false) if pod.spec.restart_policy == RestartPolicy::Always => {
            RestartPolicy::OnFailure
        }
        (ContainerKind::Ephemeral, _) => RestartPolicy::Never,
        _ => pod.spec.restart_policy,
    };
    let will_start = match &now {
        Now::Running(_) => false,
        Now::Terminated(run) => restarts(policy, run.exit_code),
        Now::Waiting(_) | Now::Failed(..) => true,
    };
    if will_start && let Some(reason) = facts.waiting.get(&container.name) {
        if let Now::Terminated(run) = now {
            last = Some(run);
        }
        now = Now::Waiting(reason.clone());
    }
    State { container, kind, now, last, newest, health }
}

/// Kubelets report users since the gate `SupplementalGroupsPolicy` is on by default.
const REPORTS_USERS: u16 = 33;

impl State<'_> {
    const fn is_running(&self) -> bool {
        matches!(self.now, Now::Running(_))
    }

    const fn exit_code(&self) -> Option<i32> {
        match self.now {
            Now::Terminated(run) => Some(run.exit_code),
            Now::Failed(..) => Some(128),
            Now::Waiting(_) | Now::Running(_) => None,
        }
    }

    fn object(&self, facts: &StatusFacts<'_>, previous: Option<&Value>) -> Value {
        let id = |run: &Instance| format!("{}://{}", facts.runtime_name, run.id);
        let terminated = |run: &Instance| {
            let mut fields = json!({"exitCode": run.exit_code, "reason": run.reason,
                "startedAt": cri_time(run.started_at), "finishedAt": cri_time(run.finished_at), "containerID": id(run)});
            let message = match (facts.messages.get(&run.id), run.message.as_str()) {
                (Some(left), "") => left.clone(),
                (Some(left), reason) => format!("{reason}: {left}"),
                (None, reason) => reason.to_owned(),
            };
            if let (false, Value::Object(fields)) = (message.is_empty(), &mut fields) {
                fields.insert("message".to_owned(), message.into());
            }
            json!({"terminated": fields})
        };
        let state = match &self.now {
            Now::Waiting(reason) if reason.message.is_empty() => {
                json!({"waiting": {"reason": reason.reason}})
            }
            Now::Waiting(reason) => json!({"waiting": {"reason": reason.reason, "message": reason.message}}),
            Now::Running(run) => json!({"running": {"startedAt": cri_time(run.started_at)}}),
            Now::Terminated(run) => terminated(run),
            Now::Failed(reason, at) => json!({"terminated": {"exitCode": 128, "reason": reason.reason,
                "message": reason.message, "startedAt": seconds(*at), "finishedAt": seconds(*at)}}),
        };
        let last = self.last.map_or_else(|| json!({}), terminated);
        let mut fields = json!({"name": self.container.name, "state": state, "lastState": last,
            "ready": self.is_ready(), "image": self.container.image, "imageID": "",
            "restartCount": self.newest.map_or(0, |run| run.restart_count)});
        // An ephemeral container has no readiness: its status has neither started nor ready.
        if let (true, Value::Object(fields)) = (self.kind != ContainerKind::Ephemeral, &mut fields) {
            fields.insert("started".to_owned(), (self.is_running() && self.health.started).into());
        }
        let reports_mounts = facts.minor >= 31 && !self.container.volume_mounts.is_empty();
        if let (true, Value::Object(fields)) = (reports_mounts, &mut fields) {
            fields.insert("volumeMounts".to_owned(), mounts(self.container));
        }
        if let (Some(_), true, Value::Object(fields)) =
            (self.newest, facts.minor >= resize::SINCE && self.kind != ContainerKind::Ephemeral, &mut fields)
        {
            resize::report(fields, self.container, facts.resizing, previous);
        }
        if let (Some(run), Value::Object(fields)) = (self.newest, &mut fields) {
            fields.insert("containerID".to_owned(), id(run).into());
            fields.insert("imageID".to_owned(), run.image_ref.clone().into());
            if !run.image.is_empty() {
                fields.insert("image".to_owned(), run.image.clone().into());
            }
            if let Some(user) = run.user.as_ref().filter(|_| facts.minor >= REPORTS_USERS) {
                let mut linux = json!({"uid": user.uid, "gid": user.gid});
                if let (false, Value::Object(linux)) = (user.supplemental_groups.is_empty(), &mut linux) {
                    linux.insert("supplementalGroups".to_owned(), user.supplemental_groups.clone().into());
                }
                fields.insert("user".to_owned(), json!({"linux": linux}));
            }
            if let Some(hash) = &run.seccomp_profile_hash {
                let mut context = json!({"seccompProfileHash": hash});
                if let (Some(source), Value::Object(context)) = (&run.seccomp_source_hash, &mut context) {
                    context.insert("seccompProfileSourceHash".to_owned(), source.clone().into());
                }
                fields.insert("securityContext".to_owned(), context);
            }
        }
        fields
    }

    /// An init container is ready when it is done; any other when it runs.
    fn is_ready(&self) -> bool {
        match self.now {
            Now::Running(_) => {
                let serves = self.kind == ContainerKind::App || self.container.is_sidecar();
                serves && self.health.started && self.health.ready
            }
            Now::Terminated(run) => run.exit_code == 0 && self.kind == ContainerKind::Init,
            Now::Waiting(_) | Now::Failed(..) => false,
        }
    }
}

/// What is mounted, as kubelets report since v1.31; no mount below a read-only one is made read-only with it.
fn mounts(container: &Container) -> Value {
    let mount = |mount: &VolumeMount| {
        let mut fields = json!({"name": mount.name, "mountPath": mount.mount_path});
        if let (true, Value::Object(fields)) = (mount.read_only, &mut fields) {
            fields.insert("readOnly".to_owned(), true.into());
            fields.insert("recursiveReadOnly".to_owned(), "Disabled".into());
        }
        fields
    };
    container.volume_mounts.iter().map(mount).collect()
}

/// The kubelet's `getPhase`.
fn phase(pod: &RunPod, init: &[State<'_>], app: &[State<'_>]) -> Phase {
    let policy = pod.spec.restart_policy;
    let (mut pending_init, mut failed_init) = (0, 0);
    let (mut running, mut waiting, mut stopped, mut succeeded) = (0, 0, 0, 0);
    for state in init.iter().filter(|state| !state.container.is_sidecar()) {
        match (&state.now, state.exit_code().or(state.last.map(|run| run.exit_code))) {
            (Now::Running(_), _) | (Now::Waiting(_), None) => pending_init += 1,
            (_, Some(0) | None) => {}
            (_, Some(_)) => failed_init += 1,
        }
    }
    for state in init.iter().filter(|state| state.container.is_sidecar()) {
        match &state.now {
            Now::Running(_) => {
                pending_init += usize::from(!state.health.started);
                running += 1;
            }
            Now::Waiting(_) if state.last.is_none() => {
                pending_init += 1;
                waiting += 1;
            }
            // How a sidecar ended does not count for the pod.
            Now::Waiting(_) | Now::Terminated(_) | Now::Failed(..) => {}
        }
    }
    let mut started = false;
    for state in app {
        started |= state.is_running() || state.exit_code().is_some() || state.last.is_some();
        match (&state.now, state.exit_code()) {
            (Now::Running(_), _) => running += 1,
            (_, Some(code)) => {
                stopped += 1;
                succeeded += usize::from(code == 0);
            }
            (_, None) if state.last.is_some() => stopped += 1,
            (_, None) => waiting += 1,
        }
    }
    if failed_init > 0 && policy == RestartPolicy::Never {
        return Phase::Failed;
    }
    // A sidecar that restarts does not put a pod back that has begun.
    if pending_init > 0 && !started || waiting > 0 || running == 0 && stopped == 0 {
        return Phase::Pending;
    }
    if running > 0 {
        return Phase::Running;
    }
    match policy {
        RestartPolicy::Always => Phase::Running,
        _ if stopped == succeeded => Phase::Succeeded,
        RestartPolicy::Never => Phase::Failed,
        RestartPolicy::OnFailure => Phase::Running,
    }
}

/// The generation that the status is about; kubelets report it since v1.34.
fn observed_generation(pod: &RunPod, facts: &StatusFacts<'_>) -> Option<Value> {
    let generation = pod.object.pointer("/metadata/generation").filter(|generation| generation.is_i64());
    generation.filter(|_| facts.minor >= 34).cloned()
}

fn conditions(
    pod: &RunPod,
    init: &[State<'_>],
    app: &[State<'_>],
    phase: Phase,
    previous: &Value,
    facts: &StatusFacts<'_>,
) -> Value {
    let sidecars = init.iter().filter(|state| state.container.is_sidecar());
    let unready: Vec<&str> = sidecars
        .chain(app)
        .filter(|state| !state.is_ready())
        .map(|state| state.container.name.as_str())
        .collect();
    let uninitialised: Vec<&str> = init
        .iter()
        .filter(|state| {
            if state.container.is_sidecar() {
                !(state.is_running() && state.health.started)
            } else {
                state.exit_code() != Some(0)
            }
        })
        .map(|state| state.container.name.as_str())
        .collect();
    let started = app.iter().any(|state| state.newest.is_some());
    let containers_ready = match phase {
        Phase::Succeeded => Some(("PodCompleted", String::new())),
        Phase::Failed => Some(("PodFailed", String::new())),
        _ if unready.is_empty() => None,
        _ => Some(("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))),
    };
    let initialised = if uninitialised.is_empty() || started || phase == Phase::Succeeded {
        None
    } else {
        let text = format!("containers with incomplete status: [{}]", uninitialised.join(" "));
        Some(("ContainersNotInitialized", text))
    };
    let sandbox = facts.observed.ready_sandbox().is_some();
    let ready = containers_ready.clone().or_else(|| {
        let text = closed_gates(pod);
        (!text.is_empty()).then_some(("ReadinessGatesNotReady", text))
    });
    let mut rows = vec![
        ("PodReadyToStartContainers", sandbox, None),
        ("Initialized", initialised.is_none(), initialised),
        ("Ready", ready.is_none(), ready),
        ("ContainersReady", containers_ready.is_none(), containers_ready),
        ("PodScheduled", true, None),
    ];
    let resizing = facts.resizing;
    if let Some(refused) = &resizing.refused {
        let known = ["Infeasible", "Deferred"].into_iter().find(|known| *known == refused.reason);
        rows.push(("PodResizePending", true, Some((known.unwrap_or("Deferred"), refused.message.clone()))));
    }
    if !resizing.pending.is_empty() {
        let error = resizing.error.clone().map(|message| ("Error", message));
        rows.push(("PodResizeInProgress", true, error));
    }
    let own: Vec<Value> = rows
        .into_iter()
        .map(|(kind, holds, reason)| {
            let word = if holds { "True" } else { "False" };
            let before = condition(previous, kind);
            let since = before
                .filter(|condition| condition.get("status").and_then(Value::as_str) == Some(word))
                .and_then(|condition| condition.get("lastTransitionTime").cloned())
                .unwrap_or_else(|| seconds(facts.now).into());
            let mut condition =
                json!({"type": kind, "status": word, "lastProbeTime": null, "lastTransitionTime": since});
            if let (Some(generation), Value::Object(fields)) =
                (observed_generation(pod, facts), &mut condition)
            {
                fields.insert("observedGeneration".to_owned(), generation);
            }
            if let (Some((reason, message)), Value::Object(fields)) = (reason, &mut condition) {
                fields.insert("reason".to_owned(), reason.into());
                if !message.is_empty() {
                    fields.insert("message".to_owned(), message.into());
                }
            }
            condition
        })
        .collect();
    own.into_iter().chain(conditions_of_others(pod).cloned()).collect()
}

/// The conditions that a node writes.
const OWN_CONDITIONS: [&str; 7] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "PodResizePending",
    "PodResizeInProgress",
];

/// Those of readiness gates, evictions and other clients stay as they are.
pub(crate) fn conditions_of_others(pod: &RunPod) -> impl Iterator<Item = &Value> {
    let list = pod.object.pointer("/status/conditions").and_then(Value::as_array);
    let is_own = |condition: &&Value| {
        condition.get("type").and_then(Value::as_str).is_some_and(|kind| OWN_CONDITIONS.contains(&kind))
    };
    list.into_iter().flatten().filter(move |condition| !is_own(condition))
}

fn condition<'v>(status: &'v Value, kind: &str) -> Option<&'v Value> {
    let list = status.get("conditions")?.as_array()?;
    list.iter().find(|condition| condition.get("type").and_then(Value::as_str) == Some(kind))
}

/// The readiness gates whose conditions are not true, in the kubelet's words.
fn closed_gates(pod: &RunPod) -> String {
    let gates = pod.object.pointer("/spec/readinessGates").and_then(Value::as_array);
    let status = pod.object.get("status").unwrap_or(&Value::Null);
    let texts: Vec<String> = gates
        .into_iter()
        .flatten()
        .filter_map(|gate| gate.get("conditionType")?.as_str())
        .filter_map(|kind| {
            let Some(found) = condition(status, kind) else {
                return Some(format!(
                    "corresponding condition of pod readiness gate {kind:?} does not exist."
                ));
            };
            let word = found.get("status").and_then(Value::as_str).unwrap_or_default();
            (word != "True")
                .then(|| format!("the status of pod readiness gate {kind:?} is not \"True\", but {word}"))
        })
        .collect();
    texts.join(", ")
}

/// A time as the API writes it.
#[must_use]
pub fn seconds(at: Timestamp) -> String {
    rfc3339(at.as_second())
}

fn cri_time(nanoseconds: i64) -> String {
    seconds(time(nanoseconds))
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
