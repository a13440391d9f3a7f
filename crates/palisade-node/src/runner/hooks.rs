//! Lifecycle hooks: after containers start and before they stop.
//!
//! Implements: the kubelet's lifecycle handlers (`pkg/kubelet/lifecycle/handlers.go`) and the stopping of a container
//! (`killContainer`): the hook takes part of the grace period, and at least two seconds are left for the signal.

use std::time::{Duration, Instant};

use palisade_model::profile::recording::Phase;
use tracing::warn;

use super::{
    handlers::{ConnectError, ExecError, Target},
    observed::Instance,
    start::field_path,
    worker::Life,
};
use crate::{
    api::PodKey,
    cri::client::RuntimeError,
    events::EventType,
    lifecycle::Handler,
    node::Node,
    pod::{Container, RunPod},
};

/// What is left for the signal, however long the hook took.
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// A hook has no deadline of its own after the start; the runtime gets one nevertheless.
const LONGEST: Duration = Duration::from_hours(1);

/// Why a hook failed, in the kubelet's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum HookError {
    /// A command.
    #[error(
        "Exec lifecycle hook ([{command}]) for Container {container:?} in Pod \"{pod}\" failed - error: {}, message: {:?}",
        .source.described(.command, *.timeout), .source.output()
    )]
    Exec { command: String, container: String, pod: PodKey, timeout: Duration, source: ExecError },
    /// A request.
    #[error(
        "HTTP lifecycle hook ({path}) for Container {container:?} in Pod \"{pod}\" failed - error: {source}"
    )]
    Http { path: String, container: String, pod: PodKey, source: ConnectError },
    /// The hook names neither.
    #[error("invalid handler in Container {container:?} in Pod \"{pod}\"")]
    Invalid { container: String, pod: PodKey },
}

/// Runs a hook.
pub(super) async fn run(
    handler: &Handler,
    target: &Target,
    pod: &PodKey,
    container: &Container,
    timeout: Duration,
) -> Result<(), HookError> {
    let (container_name, pod_key) = (|| container.name.clone(), || pod.clone());
    if let Some(exec) = &handler.exec {
        return target.exec(&exec.command, timeout).await.map_err(|source| HookError::Exec {
            command: exec.command.join(" "),
            container: container_name(),
            pod: pod_key(),
            timeout,
            source,
        });
    }
    if let Some(get) = &handler.http_get {
        // Whatever the server answers is fine, as long as it answers.
        return target.http_get(container, get, timeout).await.map(drop).map_err(|source| HookError::Http {
            path: get.path.clone(),
            container: container_name(),
            pod: pod_key(),
            source,
        });
    }
    if let Some(sleep) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(sleep.seconds.unsigned_abs()).min(timeout)).await;
        return Ok(());
    }
    Err(HookError::Invalid { container: container_name(), pod: pod_key() })
}

/// After the start; the error is what the container then waits for.
pub(super) async fn post_start(
    node: &Node,
    pod: &RunPod,
    container: &Container,
    target: &Target,
) -> Result<(), HookError> {
    let Some(handler) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref())
    else {
        return Ok(());
    };
    let result = run(handler, target, &pod.key, container, LONGEST).await;
    if result.is_err()
        && let Err(error) = node.runtime.stop_container(&target.id, pod.grace_period()).await
    {
        warn!(%error, container = container.name, "container whose hook failed not stopped");
    }
    result
}

impl Life {
    /// Stops a container: its hook first, then the signal, within the grace period.
    pub(super) async fn stop_container(
        &self,
        pod: &RunPod,
        run: &Instance,
        ips: &[String],
        grace: Duration,
    ) -> Result<(), RuntimeError> {
        let begun = Instant::now();
        self.node.recordings.stopping(&run.id);
        let mut left = grace;
        if let Some((kind, container)) = pod.container(&run.name)
            && let Some(handler) =
                container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref())
            && run.state == crate::cri::proto::ContainerState::Running
            && !grace.is_zero()
        {
            let target = Target {
                runtime: self.node.runtime.clone(),
                id: run.id.clone(),
                ip: ips.first().cloned().unwrap_or_default(),
                minor: self.node.config.compat.kubelet.minor(),
                recordings: self.node.recordings.clone(),
                phase: Phase::Shutdown,
            };
            let hook = super::hooks::run(handler, &target, &pod.key, container, grace);
            let failed = match tokio::time::timeout(grace, hook).await {
                Ok(result) => result.err(),
                Err(_) => None,
            };
            if let Some(why) = failed {
                warn!(%why, container = container.name, "preStop hook failed");
                // Its output may hold secrets, and events are widely readable.
                let path = field_path(kind, &container.name);
                self.node.recorder.record(
                    &pod.key,
                    &path,
                    EventType::Warning,
                    "FailedPreStopHook",
                    "PreStopHook failed",
                );
            }
            left = grace.saturating_sub(begun.elapsed()).max(LEAST_GRACE);
        }
        self.node.runtime.stop_container(&run.id, left).await
    }
}
