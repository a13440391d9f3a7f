//! The kinds of objects that own pods: where they are, and which pods they select.

use palisade_base::label_selector::LabelSelector;

use super::{
    context::{DAEMON_SETS, JOBS, Mirrors, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS},
    events::About,
    meta::Meta,
    mirror::Mirror,
    object::Object,
};
use crate::api::Resource;

/// A kind of objects that own pods.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Group and version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Resource.
    pub resource: Resource,
    /// Its objects.
    pub mirror: fn(&Mirrors) -> &Mirror<Object>,
    /// Which pods an object selects.
    pub selector: fn(&Object) -> LabelSelector,
}

impl Kind {
    /// What an event about an object of this kind is about.
    #[must_use]
    pub const fn about<'o>(&self, meta: &'o Meta) -> About<'o> {
        About { api_version: self.api_version, kind: self.kind, meta }
    }
}

/// ReplicaSets.
pub const REPLICA_SET: Kind = Kind {
    api_version: "apps/v1",
    kind: "ReplicaSet",
    resource: REPLICA_SETS,
    mirror: |mirrors| &mirrors.replica_sets,
    selector: Object::selector,
};

/// ReplicationControllers.
pub const REPLICATION_CONTROLLER: Kind = Kind {
    api_version: "v1",
    kind: "ReplicationController",
    resource: REPLICATION_CONTROLLERS,
    mirror: |mirrors| &mirrors.replication_controllers,
    selector: |controller| LabelSelector::from_labels(controller.at("/spec/selector")),
};

/// Jobs.
pub const JOB: Kind = Kind {
    api_version: "batch/v1",
    kind: "Job",
    resource: JOBS,
    mirror: |mirrors| &mirrors.jobs,
    selector: Object::selector,
};

/// DaemonSets.
pub const DAEMON_SET: Kind = Kind {
    api_version: "apps/v1",
    kind: "DaemonSet",
    resource: DAEMON_SETS,
    mirror: |mirrors| &mirrors.daemon_sets,
    selector: Object::selector,
};

/// StatefulSets.
pub const STATEFUL_SET: Kind = Kind {
    api_version: "apps/v1",
    kind: "StatefulSet",
    resource: STATEFUL_SETS,
    mirror: |mirrors| &mirrors.stateful_sets,
    selector: Object::selector,
};
