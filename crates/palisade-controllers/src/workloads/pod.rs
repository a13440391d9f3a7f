//! A pod as controllers of workloads need it, and no more of it: a cluster has many.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::{
    meta::{Meta, nullable, time},
    mirror::Mirrored,
};

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
    /// Whether the condition Ready is true.
    pub is_ready: bool,
    /// Since when it is ready, if it is.
    pub ready_since: Option<Timestamp>,
    /// How often its containers were restarted; the most of them.
    pub restarts: i64,
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
    restart_count: i64,
}

impl Mirrored for Pod {
    fn read(json: &str) -> Result<Self, serde_json::Error> {
        let Json { metadata: mut meta, spec, status } = serde_json::from_str(json)?;
        meta.annotations.retain(|key, _| key.starts_with("controller.kubernetes.io/"));
        let ready =
            status.conditions.iter().find(|one| &*one.kind == "Ready").filter(|one| &*one.status == "True");
        Ok(Self {
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
            node: spec.node_name,
            meta,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
