//! How a pod ends: its containers stop, its sandbox goes, and nothing is left on the node.
//!
//! Implements: the kubelet's `SyncTerminatingPod` and `SyncTerminatedPod`. Every step may be repeated: an agent that is
//! killed in between begins again.

use std::{
    fs,
    time::{Duration, Instant},
};

use tracing::warn;

use super::{
    observed::{Instance, Observed},
    probes::Kind,
    start::field_path,
    worker::{Life, pod_ips},
};
use crate::{
    api::ApiError,
    cri::proto::ContainerState,
    events::EventType,
    pod::{RestartPolicy, RunPod},
    volumes,
};

impl Life {
    /// Nothing is left to run: sidecars stop, last started first, and the sandbox with them. What exited stays, for its
    /// logs, until the pod is deleted.
    pub(super) async fn finish(&self, observed: &Observed) {
        for run in observed.containers.iter().filter(|run| run.state == ContainerState::Running) {
            if let Err(error) = self.node.runtime.stop_container(&run.id, Duration::from_secs(30)).await {
                warn!(%error, container = run.name, "sidecar not stopped");
            }
        }
        for sandbox in observed.sandboxes.iter().filter(|sandbox| sandbox.ready) {
            if let Err(error) = self.node.runtime.stop_pod_sandbox(&sandbox.id).await {
                warn!(%error, "sandbox not stopped");
            }
        }
    }

    /// Stops the containers of a pod, all at once, then its sidecars, last started first, then its sandboxes; whether
    /// everything stopped. The grace period is that of the whole.
    pub(super) async fn stop_everything(&self, pod: &RunPod, observed: &Observed, grace: Duration) -> bool {
        let begun = Instant::now();
        let ips = pod_ips(pod, observed, &self.node.config.host_ip);
        let is_sidecar = |run: &&Instance| pod.container(&run.name).is_some_and(|(_, one)| one.is_sidecar());
        let left = observed.containers.iter().filter(|run| run.state != ContainerState::Exited);
        let (sidecars, others): (Vec<&Instance>, Vec<&Instance>) = left.partition(is_sidecar);
        let stops = others.into_iter().map(|run| self.stop_container(pod, run, &ips, grace));
        let mut results = futures::future::join_all(stops).await;
        // The newest comes first in what was observed.
        for run in sidecars {
            let rest = grace.saturating_sub(begun.elapsed());
            results.push(self.stop_container(pod, run, &ips, rest).await);
        }
        for sandbox in &observed.sandboxes {
            results.push(self.node.runtime.stop_pod_sandbox(&sandbox.id).await);
        }
        let all = results.iter().all(Result::is_ok);
        for error in results.into_iter().filter_map(Result::err) {
            warn!(%error, "not stopped");
        }
        all
    }

    /// Stops one container.
    pub(super) async fn stop_one(&self, pod: &RunPod, observed: &Observed, id: &str, grace: Duration) {
        let Some(run) = observed.containers.iter().find(|run| run.id == id) else { return };
        let ips = pod_ips(pod, observed, &self.node.config.host_ip);
        if let Err(error) = self.stop_container(pod, run, &ips, grace).await {
            warn!(%error, container = run.name, "container not stopped");
        }
    }

    /// Stops a container that a probe has given up.
    pub(super) async fn kill(&self, pod: &RunPod, observed: &Observed, id: &str, failed: Kind) {
        let Some(run) = observed.containers.iter().find(|run| run.id == id) else { return };
        let Some((kind, container)) = pod.container(&run.name) else { return };
        let restarts = container.is_sidecar() || pod.spec.restart_policy != RestartPolicy::Never;
        let end = if restarts { ", will be restarted" } else { "" };
        let which = failed.as_str().to_lowercase();
        let text = format!("Container {} failed {which} probe{end}", run.name);
        let path = field_path(kind, &run.name);
        self.node.recorder.record(&pod.key, &path, EventType::Normal, "Killing", &text);
        let probe = match failed {
            Kind::Startup => &container.startup_probe,
            Kind::Liveness | Kind::Readiness => &container.liveness_probe,
        };
        let own = probe.as_ref().and_then(|probe| probe.termination_grace_period_seconds);
        let grace = own.map_or_else(|| pod.grace_period(), |seconds| Duration::from_secs(seconds.into()));
        self.stop_one(pod, observed, id, grace).await;
    }

    /// Records for every running container that it is being stopped.
    pub(super) fn record_killing(&self, pod: &RunPod, observed: &Observed) {
        for run in observed.containers.iter().filter(|run| run.state == ContainerState::Running) {
            let Some((kind, _)) = pod.container(&run.name) else { continue };
            let text = format!("Stopping container {}", run.name);
            let path = field_path(kind, &run.name);
            self.node.recorder.record(&pod.key, &path, EventType::Normal, "Killing", &text);
        }
    }

    /// Ends the pod: stop, report, remove, and release the object.
    pub(super) async fn end(&mut self, pod: &RunPod) {
        loop {
            let pod = self.updates.borrow_and_update().clone();
            let mut shorter = self.updates.clone();
            let ended = tokio::select! {
                ended = self.try_end(&pod) => ended,
                // The grace period can be made shorter while it runs.
                _ = shorter.changed() => continue,
            };
            if ended {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.node.recorder.forget(&pod.key.uid);
    }

    async fn try_end(&mut self, pod: &RunPod) -> bool {
        let grace = pod.grace_period();
        let runtime = self.node.runtime.clone();
        let observed = match Observed::of_pod(&runtime, &pod.key.uid).await {
            Ok(observed) => observed,
            Err(error) => {
                warn!(%error, "the runtime does not answer");
                return false;
            }
        };
        self.record_killing(pod, &observed);
        if !self.stop_everything(pod, &observed, grace).await {
            return false;
        }
        if let Ok(stopped) = Observed::of_pod(&runtime, &pod.key.uid).await {
            self.waiting.clear();
            self.read_messages(pod, &stopped);
            self.report_status(pod, &stopped).await;
        }
        for run in &observed.containers {
            if let Err(error) = runtime.remove_container(&run.id).await
                && !error.is_not_found()
            {
                warn!(%error, "container not removed");
                return false;
            }
        }
        for sandbox in &observed.sandboxes {
            if let Err(error) = runtime.remove_pod_sandbox(&sandbox.id).await
                && !error.is_not_found()
            {
                warn!(%error, "sandbox not removed");
                return false;
            }
        }
        if let Err(error) = volumes::tear_down(&self.paths.folder) {
            warn!(%error, "volumes not removed");
            return false;
        }
        fs::remove_dir_all(&self.paths.logs).ok();
        // When the object is gone, its resources are free.
        self.reservation = None;
        match self.node.source.finish_deletion(&pod.key).await {
            Ok(()) | Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => true,
            Err(error) => {
                warn!(%error, "deletion not finished");
                false
            }
        }
    }
}
