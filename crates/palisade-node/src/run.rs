//! One pod on the local runtime, without an API server: what `palisade run` does.
//!
//! The pod goes through what an API server would do to it (annotations and fields are brought together), runs under the
//! same worker as in a cluster, and is then compared with what the kernel enforces.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::Engine as _;
use futures::StreamExt as _;
use palisade_base::field_error::FieldError;
use palisade_model::{
    guard::{self, GuardObjectError},
    prepare::{Prepared, Subject},
    validation::validate_create,
};
use serde_json::Value;
use thiserror::Error;
use tracing::debug;

use crate::{
    api::{ConfigMap, PodSource, Secret, local::LocalSource},
    cri::client::{EndpointError, RuntimeError},
    events::EventRecord,
    node::{Node, NodeConfig},
    pod::{PodError, RunPod},
    recording::Recorder,
    runner::worker::Worker,
    verify::{PodReport, verify_pod},
};

/// Why a pod could not be run at all.
#[derive(Debug, Error)]
pub enum RunError {
    /// The object is not a pod.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// An API server would reject it: what it declares has no meaning that a node could enforce.
    #[error("the pod is invalid: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Invalid(Vec<FieldError>),
    /// A guard beside the pod cannot be applied.
    #[error("SyscallGuard {name:?} {source}")]
    Guard {
        /// Its name.
        name: String,
        /// Why.
        source: GuardObjectError,
    },
    /// The runtime's address is no address.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The runtime does not answer.
    #[error("the container runtime does not answer: {0}")]
    Runtime(#[from] RuntimeError),
}

/// How far a pod came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// Every container runs.
    Running,
    /// Every container is done.
    Succeeded,
    /// A container failed for good, or the node refused the pod.
    Failed,
    /// Something keeps it from running; the status has the reason, and it is retried.
    Waiting,
}

/// A pod that runs until it is stopped.
#[derive(Debug)]
pub struct RunningPod {
    /// The pod, after what an API server does to it.
    pub pod: RunPod,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    source: LocalSource,
    node: Node,
    worker: Worker,
    waking: tokio::task::JoinHandle<()>,
}

/// A pod's last word.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// How far it came.
    pub outcome: RunOutcome,
    /// `status`, as an API server would have it.
    pub status: Value,
    /// Its events, oldest first.
    pub events: Vec<EventRecord>,
    /// Declared against kernel.
    pub verified: PodReport,
}

impl RunningPod {
    /// Starts a pod. `objects` are the ConfigMaps and Secrets it refers to, and guards; others are skipped.
    pub async fn start(config: NodeConfig, pod: Value, objects: &[Value]) -> Result<Self, RunError> {
        Self::begin(config, pod, objects, None).await
    }

    /// Starts a pod whose calls are recorded.
    pub async fn start_recorded(
        config: NodeConfig,
        pod: Value,
        objects: &[Value],
        recorder: Arc<Recorder>,
    ) -> Result<Self, RunError> {
        Self::begin(config, pod, objects, Some(recorder)).await
    }

    async fn begin(
        mut config: NodeConfig,
        pod: Value,
        objects: &[Value],
        recorder: Option<Arc<Recorder>>,
    ) -> Result<Self, RunError> {
        "palisade-run".clone_into(&mut config.manager);
        // An agent with the same folder clears away what is not its own; its profiles serve here as well.
        config.seccomp_profile_root.get_or_insert_with(|| config.root_dir.join("seccomp"));
        config.root_dir = config.root_dir.join("run");
        let source = LocalSource::default();
        for object in objects {
            put_object(&source, object);
            if object.get("kind").and_then(Value::as_str) == Some(guard::KIND) {
                let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                let failed = |source| RunError::Guard { name: name.to_owned(), source };
                source.put_guard(object).map_err(failed)?;
            }
        }
        let (pod, warnings) = prepared(pod, &config)?;
        let shared: Arc<dyn PodSource> = Arc::new(source.clone());
        let node = Node::new(config, shared)?;
        node.runtime.version().await?;
        node.refresh_features().await;
        if let Some(recorder) = recorder {
            node.recordings.record_all(recorder);
        }
        if let Some(guards) = source.guards().next().await {
            node.guards.take(guards);
        }
        source.apply(&pod);
        let worker = Worker::spawn(node.clone(), pod.clone());
        let waking = tokio::spawn(wake_on_changes(node.clone(), pod.key.uid.clone(), worker.waker()));
        Ok(Self { pod, warnings, source, node, worker, waking })
    }

    /// Waits until every container runs, the pod is done, something is reported to keep it from running, or `patience` is
    /// over.
    pub async fn settled(&self, patience: Duration) -> RunOutcome {
        let mut changes = self.source.changes();
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            match self.outcome() {
                RunOutcome::Waiting if !self.is_stuck() => {}
                outcome => return outcome,
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return self.outcome();
            }
        }
    }

    /// Waits until the pod is done.
    pub async fn finished(&self) -> RunOutcome {
        let mut changes = self.source.changes();
        loop {
            if let outcome @ (RunOutcome::Succeeded | RunOutcome::Failed) = self.outcome() {
                return outcome;
            }
            if changes.changed().await.is_err() {
                return self.outcome();
            }
        }
    }

    /// How far it came so far.
    #[must_use]
    pub fn outcome(&self) -> RunOutcome {
        let status = self.status();
        match status.get("phase").and_then(Value::as_str) {
            Some("Succeeded") => RunOutcome::Succeeded,
            Some("Failed") => RunOutcome::Failed,
            Some("Running") => {
                let containers = status.get("containerStatuses").and_then(Value::as_array);
                let all = containers.is_some_and(|containers| {
                    containers.iter().all(|state| state.pointer("/state/running").is_some())
                });
                if all { RunOutcome::Running } else { RunOutcome::Waiting }
            }
            _ => RunOutcome::Waiting,
        }
    }

    /// Whether a container has a reason for not starting; it is retried, but the wait is over.
    fn is_stuck(&self) -> bool {
        let status = self.status();
        ["initContainerStatuses", "containerStatuses"]
            .iter()
            .filter_map(|list| status.get(*list)?.as_array())
            .flatten()
            .filter_map(|container| container.pointer("/state/waiting/reason")?.as_str())
            .any(|reason| !matches!(reason, "ContainerCreating" | "PodInitializing"))
    }

    /// `status`, as an API server would have it.
    #[must_use]
    pub fn status(&self) -> Value {
        self.source.status(&self.pod.key.uid).unwrap_or(Value::Null)
    }

    /// The objects around the pod; a ConfigMap put here takes effect when a container restarts.
    #[must_use]
    pub const fn source(&self) -> &LocalSource {
        &self.source
    }

    /// The node it runs on.
    #[must_use]
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// What became of it, and what the kernel enforces.
    pub async fn report(&self) -> Result<RunReport, RunError> {
        let verified = loop {
            let (config, runtime) = (&self.node.config, &self.node.runtime);
            let mut changes = self.source.changes();
            let verified = verify_pod(config, runtime, Some(&self.source), &self.pod).await?;
            // A container that ends while it is looked at: its status follows.
            let gone = verified.containers.iter().any(|container| !container.is_compared());
            let late = gone && self.outcome() == RunOutcome::Running;
            if !late || tokio::time::timeout(self.node.config.relist * 3, changes.changed()).await.is_err() {
                break verified;
            }
        };
        Ok(RunReport {
            outcome: self.outcome(),
            status: self.status(),
            events: self.source.events(&self.pod.key.uid),
            verified,
        })
    }

    /// Stops the pod and removes everything it left.
    pub async fn stop(self, grace_seconds: Option<i64>) {
        let uid = self.pod.key.uid.clone();
        self.source.delete(&uid, grace_seconds);
        let mut deleted = self.worker.pod().as_ref().clone();
        deleted.metadata.deletion_timestamp = Some(jiff::Timestamp::now().to_string());
        deleted.metadata.deletion_grace_period_seconds =
            grace_seconds.or(deleted.spec.termination_grace_period_seconds);
        self.worker.update(deleted);
        let mut changes = self.source.changes();
        while self.source.has_pod(&uid) {
            if changes.changed().await.is_err() {
                break;
            }
        }
        self.waking.abort();
    }
}

impl Drop for RunningPod {
    fn drop(&mut self) {
        self.waking.abort();
    }
}

/// What an API server does to a new pod.
fn prepared(mut object: Value, config: &NodeConfig) -> Result<(RunPod, Vec<String>), RunError> {
    let first = RunPod::from_object(object.clone())?;
    let prepared = Prepared::new(first.security().clone(), Subject::Pod, &config.compat);
    let problems = validate_create(&prepared);
    if !problems.is_empty() {
        return Err(RunError::Invalid(problems));
    }
    for change in prepared.changes() {
        change.apply(&mut object);
    }
    Ok((RunPod::from_object(object)?, prepared.warnings().to_vec()))
}

/// Puts a ConfigMap or Secret into an in-memory API; other objects are skipped.
pub fn put_object(source: &LocalSource, object: &Value) {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let namespace = match text("/metadata/namespace") {
        "" => "default",
        namespace => namespace,
    };
    let name = text("/metadata/name");
    let entries = |field: &str| {
        let map = object.get(field).and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
    };
    let decoded = |field: &str| -> BTreeMap<String, Vec<u8>> {
        let decode = |text: String| base64::engine::general_purpose::STANDARD.decode(text).ok();
        entries(field).filter_map(|(key, text)| Some((key, decode(text)?))).collect()
    };
    match text("/kind") {
        "ConfigMap" => {
            let map = ConfigMap { data: entries("data").collect(), binary_data: decoded("binaryData") };
            source.put_config_map(namespace, name, map);
        }
        "Secret" => {
            let mut data = decoded("data");
            data.extend(entries("stringData").map(|(key, text)| (key, text.into_bytes())));
            source.put_secret(namespace, name, Secret { data });
        }
        kind => debug!(kind, name, "not needed by a pod"),
    }
}

/// The kubelet looks once a second; a user waits for a single pod.
async fn wake_on_changes(node: Node, uid: String, wake: Arc<tokio::sync::Notify>) {
    use crate::runner::observed::labels;
    let selector = [(labels::POD_UID, uid.as_str())];
    let mut before = Vec::new();
    loop {
        tokio::time::sleep(node.config.relist.min(Duration::from_millis(200))).await;
        let Ok(list) = node.runtime.list_containers(&selector).await else { continue };
        let now: Vec<_> = list.into_iter().map(|container| (container.id, container.state)).collect();
        if now != before {
            before = now;
            wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::compat::Compat;
    use serde_json::json;

    use super::*;

    #[test]
    fn rejects_what_an_api_server_rejects() {
        for (context, named) in [
            (json!({"seccompProfile": {"type": "runtimeDefault"}}), "seccompProfile.type"),
            (json!({"seccompProfile": {"type": "Localhost"}}), "seccompProfile.localhostProfile"),
            (
                json!({"privileged": true, "allowPrivilegeEscalation": false}),
                "cannot set `allowPrivilegeEscalation` to false",
            ),
            (json!({"runAsUser": -1}), "runAsUser"),
        ] {
            let pod = json!({"metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "image": "i", "securityContext": context}]}});
            for compat in [Compat::designs(), Compat::kubernetes(24), Compat::kubernetes(37)] {
                let config = NodeConfig { compat, ..NodeConfig::default() };
                let error = prepared(pod.clone(), &config).map(|_| ()).unwrap_err().to_string();
                assert!(
                    error.contains("spec.containers[0].securityContext") && error.contains(named),
                    "{error}"
                );
            }
        }
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i",
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}]}});
        assert!(prepared(pod, &NodeConfig::default()).is_ok());
    }
}
