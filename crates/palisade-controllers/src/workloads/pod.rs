//! A pod as controllers of workloads need it, and no more of it: a cluster has many.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{
    meta::{Meta, nullable, time},
    mirror::Mirrored,
};

/// The annotations that controllers use begin so.
const USED: [&str; 2] = ["controller.kubernetes.io/", "batch.kubernetes.io/"];

/// The phase of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not known.
    Unknown,
    /// Not all containers have started.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended well.
    Succeeded,
    /// A container failed, or the pod was stopped.
    Failed,
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// Metadata; of the annotations only those that controllers use.
    pub meta: Meta,
    /// The phase.
    pub phase: Phase,
    /// The node it is assigned to.
    pub node: Box<str>,
    /// The only node that its affinity allows, if it names one: where a pod of a DaemonSet is to run.
    pub wanted_node: Box<str>,
    /// Its addresses.
    pub ips: Box<[Box<str>]>,
    /// The name that it has in its subdomain.
    pub hostname: Box<str>,
    /// Its subdomain.
    pub subdomain: Box<str>,
    /// The ports of its containers that have names.
    pub ports: Box<[Port]>,
    /// Whether the condition Ready is true.
    pub is_ready: bool,
    /// Since when it is ready, if it is.
    pub ready_since: Option<Timestamp>,
    /// How often its containers were restarted; the most of them.
    pub restarts: i64,
    /// How often its containers and init containers were restarted, all together.
    pub all_restarts: i64,
    /// Its conditions, as type and status.
    pub conditions: Box<[(Box<str>, Box<str>)]>,
    /// The containers that have ended, with their exit codes, init containers last.
    pub exits: Box<[Exit]>,
    /// When its last container ended, if all have.
    pub ended: Option<Timestamp>,
    /// Since when it is not ready, if it is not.
    pub unready_since: Option<Timestamp>,
}

/// A port of a container that has a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// The name.
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    /// The number.
    #[serde(deserialize_with = "nullable")]
    pub container_port: i64,
    /// The protocol; empty for TCP.
    #[serde(deserialize_with = "nullable")]
    pub protocol: Box<str>,
}

/// How a container ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exit {
    /// The container.
    pub container: Box<str>,
    /// Its exit code.
    pub code: i64,
}

impl Pod {
    /// Whether it counts as a replica: not finished, not being deleted.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.is_finished() && !self.meta.is_deleting()
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it has been ready for so long.
    #[must_use]
    pub fn is_available(&self, min_ready: i64, now: Timestamp) -> bool {
        let is_over = |since| now.duration_since(since) >= SignedDuration::from_secs(min_ready);
        self.is_ready && (min_ready == 0 || self.ready_since.is_some_and(is_over))
    }

    /// How long until it is available, if it is ready and only time is missing.
    #[must_use]
    pub fn available_in(&self, min_ready: i64, now: Timestamp) -> Option<SignedDuration> {
        if !self.is_ready || min_ready == 0 {
            return None;
        }
        let left = SignedDuration::from_secs(min_ready) - now.duration_since(self.ready_since?);
        left.is_positive().then_some(left)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Json {
    #[serde(deserialize_with = "nullable")]
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: Spec,
    #[serde(deserialize_with = "nullable")]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "nullable")]
    node_name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    affinity: Affinity,
    #[serde(deserialize_with = "nullable")]
    hostname: Box<str>,
    #[serde(deserialize_with = "nullable")]
    subdomain: Box<str>,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    init_containers: Vec<Container>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    #[serde(deserialize_with = "nullable")]
    restart_policy: Box<str>,
    #[serde(deserialize_with = "nullable")]
    ports: Vec<Port>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ip {
    #[serde(deserialize_with = "nullable")]
    ip: Box<str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    #[serde(deserialize_with = "nullable")]
    node_affinity: NodeAffinity,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinity {
    #[serde(deserialize_with = "nullable")]
    required_during_scheduling_ignored_during_execution: NodeSelector,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelector {
    #[serde(deserialize_with = "nullable")]
    node_selector_terms: Vec<Term>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    #[serde(deserialize_with = "nullable")]
    match_fields: Vec<Requirement>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Requirement {
    #[serde(deserialize_with = "nullable")]
    key: Box<str>,
    #[serde(deserialize_with = "nullable")]
    operator: Box<str>,
    #[serde(deserialize_with = "nullable")]
    values: Vec<Box<str>>,
}

/// The node that the affinity names.
fn wanted_node(affinity: &Affinity) -> Option<&str> {
    let terms =
        &affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms;
    terms.iter().flat_map(|term| &term.match_fields).find_map(|field| match field.values.as_slice() {
        [node] if &*field.key == "metadata.name" && &*field.operator == "In" => Some(&**node),
        _ => None,
    })
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "nullable")]
    phase: Box<str>,
    #[serde(deserialize_with = "nullable")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "nullable")]
    init_container_statuses: Vec<ContainerStatus>,
    #[serde(rename = "podIP", deserialize_with = "nullable")]
    pod_ip: Box<str>,
    #[serde(rename = "podIPs", deserialize_with = "nullable")]
    pod_ips: Vec<Ip>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type", deserialize_with = "nullable")]
    kind: Box<str>,
    #[serde(deserialize_with = "nullable")]
    status: Box<str>,
    #[serde(deserialize_with = "time")]
    last_transition_time: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    #[serde(deserialize_with = "nullable")]
    name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    restart_count: i64,
    #[serde(deserialize_with = "nullable")]
    state: State,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct State {
    terminated: Option<Terminated>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    #[serde(deserialize_with = "nullable")]
    exit_code: i64,
    #[serde(deserialize_with = "time")]
    finished_at: Option<Timestamp>,
}

/// When the last container ended, if all have.
fn ended(containers: &[ContainerStatus]) -> Option<Timestamp> {
    let ends = containers.iter().map(|one| one.state.terminated.as_ref()?.finished_at);
    ends.collect::<Option<Vec<Timestamp>>>()?.into_iter().max()
}

impl Mirrored for Pod {
    fn read(json: &str) -> Result<Self, serde_json::Error> {
        let Json { metadata: mut meta, spec, status } = serde_json::from_str(json)?;
        meta.annotations.retain(|key, _| USED.iter().any(|prefix| key.starts_with(prefix)));
        let known = status.conditions.iter().find(|one| &*one.kind == "Ready");
        let ready = known.filter(|one| &*one.status == "True");
        let unready = known.filter(|one| &*one.status == "False");
        let all = status.container_statuses.iter().chain(&status.init_container_statuses);
        let exits = all.clone().filter_map(|one| {
            let code = one.state.terminated.as_ref()?.exit_code;
            Some(Exit { container: one.name.clone(), code })
        });
        // Sidecars are init containers that go on.
        let sidecars = spec.init_containers.into_iter().filter(|one| &*one.restart_policy == "Always");
        let ports = spec.containers.into_iter().chain(sidecars).flat_map(|container| container.ports);
        let mut ips: Vec<Box<str>> = status.pod_ips.into_iter().map(|one| one.ip).collect();
        if ips.is_empty() {
            ips.push(status.pod_ip);
        }
        ips.retain(|ip| !ip.is_empty());
        Ok(Self {
            ips: ips.into(),
            hostname: spec.hostname,
            subdomain: spec.subdomain,
            ports: ports.filter(|port| !port.name.is_empty()).collect(),
            phase: match &*status.phase {
                "Pending" | "" => Phase::Pending,
                "Running" => Phase::Running,
                "Succeeded" => Phase::Succeeded,
                "Failed" => Phase::Failed,
                _ => Phase::Unknown,
            },
            is_ready: ready.is_some(),
            ready_since: ready.and_then(|ready| ready.last_transition_time),
            restarts: status.container_statuses.iter().map(|one| one.restart_count).max().unwrap_or_default(),
            all_restarts: all.clone().map(|one| one.restart_count).sum(),
            exits: exits.collect(),
            ended: ended(&status.container_statuses),
            unready_since: unready.and_then(|unready| unready.last_transition_time),
            conditions: status.conditions.into_iter().map(|one| (one.kind, one.status)).collect(),
            wanted_node: wanted_node(&spec.affinity).unwrap_or_default().into(),
            node: spec.node_name,
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
