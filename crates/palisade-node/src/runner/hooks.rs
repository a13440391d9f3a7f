//! Lifecycle hooks: after containers start and before they stop.
//!
//! Implements: the kubelet's lifecycle handlers (`pkg/kubelet/lifecycle/handlers.go`) and the stopping of a container
//! (`killContainer`): the hook takes part of the grace period, and at least two seconds are left for the signal.

use std::time::{Duration, Instant};

use tracing::warn;

use super::{
    handlers::{ExecError, Target},
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

/// Runs a hook; the error is the kubelet's sentence.
pub(super) async fn run(
    handler: &Handler,
    target: &Target,
    pod: &PodKey,
    container: &Container,
    timeout: Duration,
) -> Result<(), String> {
    let name = &container.name;
    if let Some(exec) = &handler.exec {
        let words = exec.command.join(" ");
        let (error, output) = match target.exec(&exec.command, timeout).await {
            Ok(()) => return Ok(()),
            Err(ExecError::Exit { code, stderr, output }) => {
                (format!("command '{words}' exited with {code}: {stderr}"), output)
            }
            Err(ExecError::TimedOut) => {
                (format!("command {words:?} timed out after {}s", timeout.as_secs()), String::new())
            }
            Err(ExecError::Runtime(error)) => (error.to_string(), String::new()),
        };
        return Err(format!(
            "Exec lifecycle hook ([{words}]) for Container {name:?} in Pod \"{pod}\" failed - error: {error}, message: {output:?}"
        ));
    }
    if let Some(get) = &handler.http_get {
        // Whatever the server answers is fine, as long as it answers.
        return target.http_get(container, get, timeout).await.map(drop).map_err(|error| {
            format!(
                "HTTP lifecycle hook ({}) for Container {name:?} in Pod \"{pod}\" failed - error: {error}",
                get.path
            )
        });
    }
    if let Some(sleep) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(sleep.seconds.unsigned_abs()).min(timeout)).await;
        return Ok(());
    }
    Err(format!("invalid handler in Container {name:?} in Pod \"{pod}\""))
}

/// After the start; the error is what the container then waits for.
pub(super) async fn post_start(
    node: &Node,
    pod: &RunPod,
    container: &Container,
    target: &Target,
) -> Result<(), String> {
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
            };
            let hook = super::hooks::run(handler, &target, &pod.key, container, grace);
            let failed = match tokio::time::timeout(grace, hook).await {
                Ok(result) => result.err(),
                Err(_) => None,
            };
            if let Some(why) = failed {
                warn!(why, container = container.name, "preStop hook failed");
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
