//! Reports what the node records, ends recordings in time, and finds containers that no recorder serves.
//!
//! That a recording is complete does not follow from what was done: every running container of a pod that is selected is looked up
//! among those whose listener was taken.

use std::time::Duration;

use palisade_base::time::Time;
use tracing::{info, warn};

use crate::{
    cri::{client::RuntimeError, proto::ContainerState},
    guards::now,
    node::Node,
    reach::running_containers,
    runner::observed::labels,
};

/// How often what grows is reported.
const TICK: Duration = Duration::from_secs(5);
/// Changes that come together are reported together.
const GATHER: Duration = Duration::from_millis(200);
/// A runtime that does not answer is asked again after this time.
const RETRY: Duration = Duration::from_secs(1);

/// How long until a moment, at most a tick.
fn until(end: Option<Time>) -> Duration {
    let Some(end) = end else { return TICK };
    let now = now();
    let seconds = u64::try_from(end.seconds.saturating_sub(now.seconds)).unwrap_or_default();
    Duration::from_secs(seconds).min(TICK)
}

/// Reports for as long as the node works.
pub(crate) async fn keep(node: Node) {
    let recordings = &node.recordings;
    loop {
        let _ = tokio::time::timeout(until(recordings.next_end()), recordings.changed()).await;
        tokio::time::sleep(GATHER).await;
        if recordings.is_active() {
            match running_containers(&node.runtime).await {
                Ok(containers) => {
                    for container in containers {
                        let (pod, labels) = (&container.pod, &container.labels);
                        recordings.note_running(pod, labels, &container.name, &container.id);
                    }
                }
                Err(error) => warn!(%error, "the containers that are recorded are not known"),
            }
        }
        recordings.end_due();
        for part in recordings.parts(&node.config.node_name) {
            match node.source.write_recording(part.clone()).await {
                Ok(()) => recordings.wrote(&part),
                Err(error) => warn!(%error, recording = part.key, "failed to report what was recorded"),
            }
        }
    }
}

/// Stops containers whose recorder ended with the process before this one: every call of theirs fails. They are started again as their
/// pod wants it.
pub(crate) async fn stop_unattended(node: Node) {
    while let Err(error) = try_stop_unattended(&node).await {
        warn!(%error, "containers that have lost their recorder are not stopped yet");
        tokio::time::sleep(RETRY).await;
    }
}

async fn try_stop_unattended(node: &Node) -> Result<(), RuntimeError> {
    let selector = [(labels::MANAGED_BY, node.config.manager.as_str())];
    for container in node.runtime.list_containers(&selector).await? {
        let is_recorded = container.annotations.contains_key(labels::RECORDED);
        if is_recorded
            && container.state() == ContainerState::Running
            && !node.recordings.has_seen(&container.id)
        {
            info!(id = container.id, "stopping a container that has lost its recorder");
            node.runtime.stop_container(&container.id, Duration::ZERO).await?;
        }
    }
    Ok(())
}
