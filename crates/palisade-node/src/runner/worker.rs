//! One pod's life: a task that looks, decides and acts until the pod is gone.
//!
//! Implements: the kubelet's pod worker (`pkg/kubelet/pod_workers.go`, `syncPod`). What to do is decided by
//! [`super::plan`], the status by [`super::status`]; here it is carried out. A pod's worker waits for nothing that
//! concerns other pods.

use std::{collections::BTreeMap, fs, sync::Arc, time::Duration};

use jiff::Timestamp;
use palisade_model::{effective::effective_contexts, pod_view::ContainerKind};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tracing::{Instrument as _, debug, warn};

use super::{
    admission::with_dots,
    allocations::Reservation,
    config::{PodPaths, is_host_network, sandbox_config},
    environment::Surroundings,
    id_ranges::{IdRange, IdRangeError},
    images::Images,
    observed::{Instance, Observed},
    plan::{
        FLAT_RETRY, Memory, PodPlan, PodStep, Reason, Retry, back_off_key, plan, superfluous, waiting_message,
    },
    probes::Probes,
    resize::Resizing,
    start::{Place, StartOutcome, field_path, start},
    status::{self, Phase, Rejection, StatusFacts, rejected},
};
use crate::{
    cri::{
        client::RuntimeError,
        proto::{ContainerState, PodSandboxConfig},
        translate::{PodSettings, TranslateError, sandbox_context},
    },
    events::EventType,
    node::Node,
    pod::{Resources, RestartPolicy, RunPod},
    volumes::{self, HostVolume, PodCertificates, VolumeProblem},
};

/// Why a sandbox cannot be described to the runtime.
#[derive(Debug, thiserror::Error)]
enum SandboxError {
    /// The pod needs a user namespace.
    #[error("can't set `hostUsers: false`, runtime does not support user namespaces")]
    UserNamespaces,
    /// It has no ids of its own.
    #[error("failed to allocate user namespace: {0}")]
    Ids(#[source] IdRangeError),
    /// The security of the pod cannot be expressed.
    #[error(transparent)]
    Translate(#[from] TranslateError),
}

/// How often a pod is looked at although nothing seems to have changed.
const RESYNC: Duration = Duration::from_mins(1);

/// A pod's worker, as its owner holds it.
#[derive(Debug)]
pub struct Worker {
    updates: watch::Sender<Arc<RunPod>>,
    wake: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

impl Worker {
    /// Starts a worker for a pod.
    #[must_use]
    pub fn spawn(node: Node, pod: RunPod) -> Self {
        let span = tracing::info_span!("pod", namespace = %pod.key.namespace, pod = %pod.key.name);
        let (updates, receiver) = watch::channel(Arc::new(pod));
        let wake = Arc::new(Notify::new());
        let life = Life::new(node, receiver, Arc::clone(&wake));
        let task = tokio::spawn(life.run().instrument(span));
        Self { updates, wake, task }
    }

    /// Hands the worker a new version of its pod.
    pub fn update(&self, pod: RunPod) {
        self.updates.send_replace(Arc::new(pod));
    }

    /// The version of the pod the worker works on.
    #[must_use]
    pub fn pod(&self) -> Arc<RunPod> {
        self.updates.borrow().clone()
    }

    /// Wakes the worker after a change in the runtime.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Wakes the worker.
    #[must_use]
    pub fn waker(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    /// Whether the pod is gone.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Ends the pod although it was not deleted: its object is gone.
    pub fn end(&self) {
        let mut pod = self.pod().as_ref().clone();
        if !pod.is_deleted() {
            pod.metadata.deletion_timestamp = Some(Timestamp::now().to_string());
            self.update(pod);
        }
    }
}

/// An agent that ends leaves the containers as they are, to be adopted by the next one.
impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) struct Life {
    pub(super) node: Node,
    pub(super) updates: watch::Receiver<Arc<RunPod>>,
    wake: Arc<Notify>,
    pub(super) paths: PodPaths,
    pub(super) memory: Memory,
    images: Images,
    probes: Probes,
    pub(super) waiting: BTreeMap<String, Reason>,
    messages: BTreeMap<String, String>,
    start_time: Timestamp,
    runtime_name: String,
    reported: Value,
    admitted: bool,
    /// What the pod has of the node, until it ends.
    pub(super) reservation: Option<Reservation>,
    /// What the node gave to each container.
    pub(super) allocated: BTreeMap<String, Resources>,
    pub(super) resizing: Resizing,
    certificates: PodCertificates,
}

impl Life {
    fn new(node: Node, updates: watch::Receiver<Arc<RunPod>>, wake: Arc<Notify>) -> Self {
        let pod = updates.borrow().clone();
        let recorded = pod.object.pointer("/status/startTime").and_then(Value::as_str);
        let start_time = recorded.and_then(|text| text.parse().ok()).unwrap_or_else(Timestamp::now);
        Self {
            paths: PodPaths::of(&pod.key, &node.config.root_dir, &node.config.logs()),
            reported: pod.object.get("status").cloned().unwrap_or(Value::Null),
            node,
            updates,
            wake,
            memory: Memory::default(),
            images: Images::default(),
            probes: Probes::default(),
            waiting: BTreeMap::new(),
            messages: BTreeMap::new(),
            start_time,
            runtime_name: String::new(),
            admitted: false,
            reservation: None,
            allocated: BTreeMap::new(),
            resizing: Resizing::default(),
            certificates: PodCertificates::default(),
        }
    }

    async fn run(mut self) {
        loop {
            let pod = self.updates.borrow_and_update().clone();
            if pod.is_deleted() {
                self.end(&pod).await;
                return;
            }
            let mut stop = self.updates.clone();
            let stopped = async move {
                // A pull may take minutes; who deletes the pod meanwhile need not wait for it.
                while stop.changed().await.is_ok() {
                    if stop.borrow().is_deleted() {
                        return;
                    }
                }
            };
            let again = tokio::select! {
                again = self.sync(&pod) => again,
                () = stopped => continue,
            };
            tokio::select! {
                _ = self.updates.changed() => {}
                () = self.wake.notified() => {}
                () = tokio::time::sleep(again) => {}
            }
        }
    }

    /// One look and what follows from it; how long to wait for the next at most.
    async fn sync(&mut self, pod: &RunPod) -> Duration {
        let final_phase = matches!(pod.recorded_phase(), "Succeeded" | "Failed")
            || matches!(self.reported.get("phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
        let own_network = !is_host_network(pod);
        let mut observed = match Observed::look(&self.node.runtime, &pod.key.uid, own_network).await {
            Ok(observed) => observed,
            Err(error) => return self.runtime_is_away(pod, &error).await,
        };
        if self.runtime_name.is_empty() {
            // Queried at the start of the agent, unless the runtime was away then.
            if self.node.features().runtime_name.is_empty() {
                self.node.refresh_features().await;
            }
            self.runtime_name = self.node.features().runtime_name;
        }
        if final_phase {
            self.finish(&observed).await;
            return RESYNC;
        }
        if !self.admitted {
            if let Some(rejection) = self.rejection(pod, &observed).await {
                return self.reject(pod, &observed, &rejection).await;
            }
            self.admitted = true;
        }
        let resized = self.allocate(pod).await;
        let pod = resized.as_ref().unwrap_or(pod);
        if let Some(limit) = pod.spec.active_deadline_seconds
            && Timestamp::now().duration_since(self.start_time).as_secs() >= limit
        {
            return self.deadline_exceeded(pod, &observed).await;
        }
        let volumes = match self.volumes(pod, &observed).await {
            Ok(volumes) => volumes,
            Err(again) => {
                self.report_status(pod, &observed).await;
                return again;
            }
        };
        let mut next = PodPlan::default();
        let mut retry = RESYNC;
        // A new sandbox, an init container that is done at once: each look may allow the next step.
        for _ in 0..8 {
            self.update_probes(pod, &observed);
            next = plan(pod, &observed, &self.memory, Timestamp::now());
            self.note_waits(pod, &next);
            let acts = next.steps.iter().any(|step| !matches!(step, PodStep::Wait { .. }));
            if !acts {
                break;
            }
            let finished = next.steps.contains(&PodStep::Finish);
            let carried_out = self.carry_out(pod, &mut observed, &volumes, &next).await;
            // What was made is known; what was stopped has to be looked at.
            let made_only = next.steps.iter().all(|step| {
                matches!(
                    step,
                    PodStep::Start { .. }
                        | PodStep::Wait { .. }
                        | PodStep::NewSandbox { replaces: false, .. }
                )
            });
            if !made_only || !carried_out {
                match Observed::look(&self.node.runtime, &pod.key.uid, own_network).await {
                    Ok(fresh) => observed = fresh,
                    Err(error) => return self.runtime_is_away(pod, &error).await,
                }
            }
            if !carried_out {
                retry = FLAT_RETRY;
            }
            if finished || !carried_out {
                break;
            }
            self.update_probes(pod, &observed);
            self.report_status(pod, &observed).await;
        }
        self.update_probes(pod, &observed);
        self.read_messages(pod, &observed);
        self.report_status(pod, &observed).await;
        for run in superfluous(pod, &observed) {
            if let Err(error) = self.node.runtime.remove_container(&run.id).await {
                debug!(%error, container = run.name, "old run not removed");
            }
            fs::remove_file(self.paths.termination_message(&run.name, run.restart_count)).ok();
        }
        let deadline = pod.spec.active_deadline_seconds.and_then(|limit| u64::try_from(limit).ok());
        let deadline =
            deadline.and_then(|limit| self.start_time.checked_add(Duration::from_secs(limit)).ok());
        let again_at = [next.again_at, deadline].into_iter().flatten().min();
        let latest = again_at.map(|at| at.duration_since(Timestamp::now()));
        let wait = latest.map_or(RESYNC, |wait| Duration::try_from(wait).unwrap_or_default());
        let wait = if self.memory.failures.is_empty() { wait } else { wait.min(FLAT_RETRY) };
        wait.clamp(Duration::from_millis(50), retry)
    }

    /// Keeps the probes of running containers going, and takes in what they found.
    fn update_probes(&mut self, pod: &RunPod, observed: &Observed) {
        let ips = pod_ips(pod, observed, &self.node.config.host_ip);
        self.memory.health = self.probes.keep(&self.node, pod, observed, &ips, &self.wake);
        self.note_resources(pod, observed);
    }

    async fn reject(&mut self, pod: &RunPod, observed: &Observed, rejection: &Rejection) -> Duration {
        if !rejection.soft {
            let text = rejection.message.strip_prefix("Pod was rejected: ").unwrap_or(&rejection.message);
            self.node.recorder.record(&pod.key, "", EventType::Warning, &rejection.reason, text);
        }
        if !observed.sandboxes.is_empty() {
            self.stop_everything(pod, observed, pod.grace_period()).await;
        }
        let failed = BTreeMap::new();
        let facts = self.facts(observed, &failed);
        let status = rejected(pod, rejection, &self.reported, &facts);
        self.write(pod, status).await;
        FLAT_RETRY
    }

    /// The pod had its time: what runs is stopped, and the status has the reason.
    async fn deadline_exceeded(&mut self, pod: &RunPod, observed: &Observed) -> Duration {
        const REASON: &str = "DeadlineExceeded";
        const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";
        self.node.recorder.record(&pod.key, "", EventType::Normal, REASON, MESSAGE);
        self.record_killing(pod, observed);
        if !self.stop_everything(pod, observed, pod.grace_period()).await {
            return FLAT_RETRY / 10;
        }
        let stopped = match Observed::look(&self.node.runtime, &pod.key.uid, false).await {
            Ok(stopped) => stopped,
            Err(error) => return self.runtime_is_away(pod, &error).await,
        };
        self.update_probes(pod, &stopped);
        self.waiting.clear();
        self.read_messages(pod, &stopped);
        let failed = self.failed_for_good(pod);
        let status = status::ended(pod, &self.reported, &self.facts(&stopped, &failed), REASON, MESSAGE);
        self.write(pod, status).await;
        RESYNC
    }

    async fn runtime_is_away(&mut self, pod: &RunPod, error: &RuntimeError) -> Duration {
        warn!(%error, "the runtime does not answer");
        let message = format!("error determining status: {error}");
        self.node.recorder.record(&pod.key, "", EventType::Warning, "FailedSync", &message);
        // What is known of running containers stands; only waiting ones get the reason.
        if self.reported.get("containerStatuses").is_none() {
            for (_, container) in pod.containers() {
                let reason = Reason { reason: "ContainerCreating".to_owned(), message: message.clone() };
                self.waiting.entry(container.name.clone()).or_insert(reason);
            }
            self.report_status(pod, &Observed::default()).await;
            self.waiting.clear();
        }
        FLAT_RETRY / 2
    }

    async fn volumes(
        &mut self,
        pod: &RunPod,
        observed: &Observed,
    ) -> Result<BTreeMap<String, HostVolume>, Duration> {
        let ips = pod_ips(pod, observed, &self.node.config.host_ip);
        let around = Surroundings {
            node_name: &self.node.config.node_name,
            host_ip: &self.node.config.host_ip,
            pod_ips: &ips,
            allocatable: self.node.allocatable(),
        };
        // What containers have written since is theirs.
        let fresh = observed.containers.is_empty();
        let folder = &self.paths.folder;
        let source = self.node.source.as_ref();
        let made = volumes::set_up(pod, folder, source, &around, &mut self.certificates, fresh).await;
        made.map_err(|error| {
            self.node.recorder.record(&pod.key, "", EventType::Warning, "FailedMount", &error.to_string());
            // A signer is usually quick.
            let pending = matches!(error.reason, VolumeProblem::CertificatePending);
            if pending { FLAT_RETRY / 10 } else { FLAT_RETRY }
        })
    }

    /// The back-off of each container is recorded at every look.
    fn note_waits(&mut self, pod: &RunPod, plan: &PodPlan) {
        for step in &plan.steps {
            let PodStep::Wait { name, wait } = step else { continue };
            let Some((kind, _)) = pod.container(name) else { continue };
            let minor = self.node.config.compat.kubelet.minor();
            let text = if minor <= 25 {
                "Back-off restarting failed container".to_owned()
            } else {
                format!("Back-off restarting failed container {name} in pod {}", pod.key)
            };
            self.node.recorder.record(
                &pod.key,
                &field_path(kind, name),
                EventType::Warning,
                "BackOff",
                &text,
            );
            // What never started keeps its reason; what ran and failed is in a loop.
            if !self.memory.failures.contains_key(name) {
                let message = waiting_message(*wait, name, &pod.key);
                self.waiting.insert(name.clone(), Reason { reason: "CrashLoopBackOff".to_owned(), message });
            }
        }
    }

    /// Carries a plan out; whether another look is worth it at once.
    async fn carry_out(
        &mut self,
        pod: &RunPod,
        observed: &mut Observed,
        volumes: &BTreeMap<String, HostVolume>,
        plan: &PodPlan,
    ) -> bool {
        let mut changed = true;
        for step in &plan.steps {
            match step {
                PodStep::Wait { .. } => {}
                PodStep::Finish => self.finish(observed).await,
                PodStep::NewSandbox { attempt, replaces } => {
                    if *replaces {
                        let text = "Pod sandbox changed, it will be killed and re-created.";
                        self.node.recorder.record(&pod.key, "", EventType::Normal, "SandboxChanged", text);
                        self.stop_everything(pod, observed, pod.grace_period()).await;
                    }
                    match self.new_sandbox(pod, *attempt).await {
                        Some(id) => {
                            let own_network = !is_host_network(pod);
                            observed.add_sandbox(&self.node.runtime, id, *attempt, own_network).await;
                        }
                        None => changed = false,
                    }
                }
                PodStep::Remove { id } => {
                    if let Err(error) = self.node.runtime.remove_container(id).await {
                        warn!(%error, "container that was never started not removed");
                    }
                }
                PodStep::Stop { id } => {
                    self.stop_one(pod, observed, id, pod.grace_period()).await;
                }
                PodStep::Resize { id, name } => changed &= self.resize(pod, id, name).await,
                PodStep::Kill { id, failed } => self.kill(pod, observed, id, *failed).await,
                PodStep::Start { name, kind, restart_count } => {
                    changed &= self.start(pod, observed, volumes, name, *kind, *restart_count).await;
                }
            }
        }
        changed
    }

    async fn start(
        &mut self,
        pod: &RunPod,
        observed: &mut Observed,
        volumes: &BTreeMap<String, HostVolume>,
        name: &str,
        kind: ContainerKind,
        restart_count: u32,
    ) -> bool {
        let (Some((_, container)), Some(sandbox)) = (pod.container(name), observed.ready_sandbox().cloned())
        else {
            return false;
        };
        // What cannot be described now was reported when the sandbox was made, and is tried again.
        let Ok(ids) = self.ids(pod) else { return false };
        let Ok(config) = self.sandbox_config(pod, sandbox.attempt, ids) else { return false };
        let now = Timestamp::now();
        let key = back_off_key(pod, kind, name);
        let last_exit = observed.latest(name).filter(|run| run.state == ContainerState::Exited);
        let last_exit = last_exit.map(|run| super::plan::time(run.finished_at));
        if let Some(at) = last_exit {
            self.memory.back_off.tried(&key, at, now);
        }
        let ips = pod_ips(pod, observed, &self.node.config.host_ip);
        let place = Place {
            sandbox: &sandbox.id,
            sandbox_config: &config,
            volumes,
            paths: &self.paths,
            observed,
            pod_ips: &ips,
            ids,
        };
        match start(&self.node, pod, kind, container, restart_count, &place, &mut self.images).await {
            StartOutcome::Started(id) => {
                self.memory.failures.remove(name);
                self.waiting.remove(name);
                observed.add_container(&self.node.runtime, &sandbox.id, &id).await.is_ok()
            }
            StartOutcome::NotCreated(failure) => {
                if failure.retry == Retry::ByRestartPolicy && last_exit.is_none() {
                    self.memory.back_off.tried(&key, failure.at, failure.at);
                }
                self.waiting.insert(name.to_owned(), failure.reason.clone());
                self.memory.failures.insert(name.to_owned(), failure);
                false
            }
            StartOutcome::NotStarted(reason) => {
                self.memory.failures.remove(name);
                self.waiting.insert(name.to_owned(), reason);
                false
            }
        }
    }

    /// The ids of a pod that has a user namespace of its own.
    fn ids(&self, pod: &RunPod) -> Result<Option<IdRange>, SandboxError> {
        let compat = &self.node.config.compat;
        let prepared = pod.prepared(compat);
        // Off by default before v1.33, and then not checked.
        let wants = compat.kubelet.minor() >= 33
            && effective_contexts(&prepared).first().is_some_and(|context| !context.host_users.value);
        let range = wants.then(|| self.node.id_ranges.of_pod(&self.paths.folder)).transpose();
        range.map_err(SandboxError::Ids)
    }

    fn sandbox_config(
        &self,
        pod: &RunPod,
        attempt: u32,
        ids: Option<IdRange>,
    ) -> Result<PodSandboxConfig, SandboxError> {
        let compat = &self.node.config.compat;
        let prepared = pod.prepared(compat);
        let contexts = effective_contexts(&prepared);
        let settings = PodSettings { ids, ..PodSettings::of(&prepared) };
        let security = sandbox_context(&contexts, &settings, compat.kubelet)?;
        let sysctls = contexts.first().map(|context| context.sysctls.value).unwrap_or_default();
        let sysctls =
            sysctls.iter().map(|sysctl| (with_dots(&sysctl.name), sysctl.value.to_string())).collect();
        Ok(sandbox_config(pod, attempt, &self.paths, security, sysctls, &self.node.config))
    }

    /// Makes a sandbox; its id.
    async fn new_sandbox(&self, pod: &RunPod, attempt: u32) -> Option<String> {
        let failed = |text: String| {
            let text = format!("Failed to create pod sandbox: {text}");
            self.node.recorder.record(&pod.key, "", EventType::Warning, "FailedCreatePodSandBox", &text);
            None
        };
        for folder in [&self.paths.folder, &self.paths.logs] {
            if let Err(error) = fs::create_dir_all(folder) {
                return failed(format!("make pod data directories: {error}"));
            }
        }
        let handler = match pod.spec.runtime_class_name.as_deref().unwrap_or_default() {
            "" => String::new(),
            class => match self.node.source.runtime_handler(class).await {
                Ok(Some(handler)) => handler,
                Ok(None) => return failed(format!("RuntimeClass {class:?} not found")),
                Err(error) => return failed(format!("cannot read RuntimeClass {class:?}: {error}")),
            },
        };
        let config = self.ids(pod).and_then(|ids| {
            // What the runtime does not report, it does not support.
            if ids.is_some() && !self.node.features().has_user_namespaces(&handler) {
                return Err(SandboxError::UserNamespaces);
            }
            self.sandbox_config(pod, attempt, ids)
        });
        let config = match config {
            Ok(config) => config,
            Err(error) => return failed(error.to_string()),
        };
        match self.node.runtime.run_pod_sandbox(config, &handler).await {
            Ok(id) => Some(id),
            Err(error) => failed(error.to_string()),
        }
    }

    /// What a container left as its last message, read once it exited.
    pub(super) fn read_messages(&mut self, pod: &RunPod, observed: &Observed) {
        for run in observed.containers.iter().filter(|run| run.state == ContainerState::Exited) {
            if self.messages.contains_key(&run.id) {
                continue;
            }
            if let Some(text) = self.last_message(pod, run) {
                self.messages.insert(run.id.clone(), text);
            }
        }
        self.messages.retain(|id, _| observed.containers.iter().any(|run| run.id == *id));
    }

    fn last_message(&self, pod: &RunPod, run: &Instance) -> Option<String> {
        const LONGEST: usize = 4096;
        let file = self.paths.termination_message(&run.name, run.restart_count);
        // The container could write to it; a link put in its place must not be followed to the node's files.
        let metadata = fs::symlink_metadata(&file).ok()?;
        let left = if metadata.is_file() { crate::logs::head(&file, LONGEST) } else { Vec::new() };
        let mut text = String::from_utf8_lossy(&left).into_owned();
        let (_, container) = pod.container(&run.name)?;
        if text.is_empty()
            && run.exit_code != 0
            && container.termination_message_policy == "FallbackToLogsOnError"
        {
            text = crate::logs::tail_text(std::path::Path::new(&run.log_path), 80, 2048);
        }
        (!text.is_empty()).then_some(text)
    }

    fn failed_for_good(&self, pod: &RunPod) -> BTreeMap<String, (Reason, Timestamp)> {
        if pod.spec.restart_policy != RestartPolicy::Never {
            return BTreeMap::new();
        }
        self.memory
            .failures
            .iter()
            .filter(|(_, failure)| failure.retry == Retry::ByRestartPolicy)
            .map(|(name, failure)| (name.clone(), (failure.reason.clone(), failure.at)))
            .collect()
    }

    fn facts<'a>(
        &'a self,
        observed: &'a Observed,
        failed: &'a BTreeMap<String, (Reason, Timestamp)>,
    ) -> StatusFacts<'a> {
        StatusFacts {
            observed,
            waiting: &self.waiting,
            failed,
            health: &self.memory.health,
            resizing: &self.resizing,
            messages: &self.messages,
            host_ip: &self.node.config.host_ip,
            start_time: self.start_time,
            runtime_name: &self.runtime_name,
            minor: self.node.config.compat.kubelet.minor(),
            now: Timestamp::now(),
        }
    }

    pub(super) async fn report_status(&mut self, pod: &RunPod, observed: &Observed) -> Phase {
        let failed = self.failed_for_good(pod);
        let (status, phase) = status::status(pod, &self.reported, &self.facts(observed, &failed));
        self.write(pod, status).await;
        phase
    }

    async fn write(&mut self, pod: &RunPod, status: Value) {
        if status == self.reported {
            return;
        }
        // Before the status is written: the scheduler may use the resources at once.
        if matches!(status.get("phase").and_then(Value::as_str), Some("Succeeded" | "Failed")) {
            self.reservation = None;
        }
        match self.node.source.write_status(&pod.key, status.clone()).await {
            Ok(()) => self.reported = status,
            Err(error) => debug!(%error, "failed to update the status of a pod"),
        }
    }
}

pub(super) fn pod_ips(pod: &RunPod, observed: &Observed, host_ip: &str) -> Vec<String> {
    if is_host_network(pod) {
        return vec![host_ip.to_owned()];
    }
    observed.ready_sandbox().map(|sandbox| sandbox.ips.clone()).unwrap_or_default()
}
