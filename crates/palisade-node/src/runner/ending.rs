//! How a pod ends: its containers stop, its sandbox goes, and nothing is left on the node.
//!
//! Implements: the kubelet's `SyncTerminatingPod` and `SyncTerminatedPod`. Every step may be repeated: an agent that is
//! killed in between begins again.

use std::{fs, time::Duration};

use tracing::warn;

use super::{observed::Observed, start::field_path, worker::Life};
use crate::{api::ApiError, cri::proto::ContainerState, events::EventType, pod::RunPod, volumes};

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

    /// Stops the containers of a pod, all at once, then its sandboxes; whether everything stopped.
    pub(super) async fn stop_everything(&self, observed: &Observed, grace: Duration) -> bool {
        let runtime = &self.node.runtime;
        let running = observed.containers.iter().filter(|run| run.state != ContainerState::Exited);
        let stops = running.map(|run| async move { runtime.stop_container(&run.id, grace).await });
        let mut all = true;
        for result in futures::future::join_all(stops).await {
            all &= result.inspect_err(|error| warn!(%error, "container not stopped")).is_ok();
        }
        for sandbox in &observed.sandboxes {
            all &= runtime
                .stop_pod_sandbox(&sandbox.id)
                .await
                .inspect_err(|error| warn!(%error, "sandbox not stopped"))
                .is_ok();
        }
        all
    }

    /// Ends the pod: stop, tell, remove, and let the object go.
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
        for run in observed.containers.iter().filter(|run| run.state == ContainerState::Running) {
            let Some((kind, _)) = pod.container(&run.name) else { continue };
            let text = format!("Stopping container {}", run.name);
            self.node.recorder.say(
                &pod.key,
                &field_path(kind, &run.name),
                EventType::Normal,
                "Killing",
                &text,
            );
        }
        if !self.stop_everything(&observed, grace).await {
            return false;
        }
        if let Ok(stopped) = Observed::of_pod(&runtime, &pod.key.uid).await {
            self.waiting.clear();
            self.read_messages(pod, &stopped);
            self.tell(pod, &stopped).await;
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
        match self.node.source.finish_deletion(&pod.key).await {
            Ok(()) | Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => true,
            Err(error) => {
                warn!(%error, "deletion not finished");
                false
            }
        }
    }
}
