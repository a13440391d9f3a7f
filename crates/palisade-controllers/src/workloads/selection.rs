//! Which controllers run: the list of `--controllers`, read as kube-controller-manager reads it.

use std::collections::BTreeSet;

/// Deployments.
pub const DEPLOYMENT: &str = "deployment-controller";
/// ReplicaSets.
pub const REPLICA_SET: &str = "replicaset-controller";
/// ReplicationControllers.
pub const REPLICATION_CONTROLLER: &str = "replicationcontroller-controller";
/// Jobs.
pub const JOB: &str = "job-controller";
/// Finished Jobs whose time to live is over.
pub const TTL_AFTER_FINISHED: &str = "ttl-after-finished-controller";
/// CronJobs.
pub const CRON_JOB: &str = "cronjob-controller";
/// DaemonSets.
pub const DAEMON_SET: &str = "daemonset-controller";
/// StatefulSets.
pub const STATEFUL_SET: &str = "statefulset-controller";
/// PodDisruptionBudgets.
pub const DISRUPTION: &str = "disruption-controller";
/// Endpoints.
pub const ENDPOINTS: &str = "endpoints-controller";
/// EndpointSlices of Services.
pub const ENDPOINT_SLICE: &str = "endpointslice-controller";
/// EndpointSlices of Endpoints that users write.
pub const ENDPOINT_SLICE_MIRRORING: &str = "endpointslice-mirroring-controller";
/// Pods on nodes with taints that they do not tolerate.
pub const TAINT_EVICTION: &str = "taint-eviction-controller";
/// Every controller, by the names of kube-controller-manager.
pub const NAMES: [&str; 13] = [
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    DISRUPTION,
    ENDPOINT_SLICE,
    ENDPOINT_SLICE_MIRRORING,
    ENDPOINTS,
    JOB,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
    TAINT_EVICTION,
    TTL_AFTER_FINISHED,
];

/// The controllers that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(BTreeSet<&'static str>);

impl Default for Selection {
    fn default() -> Self {
        Self(NAMES.into())
    }
}

impl Selection {
    /// No controller.
    #[must_use]
    pub const fn none() -> Self {
        Self(BTreeSet::new())
    }

    /// Reads a list: `*` is every controller, `name` is this one, `-name` all but this one, `none` is no controller. A list that
    /// names none of these controllers does not choose among them.
    #[must_use]
    pub fn of(list: &[String]) -> Self {
        if list.iter().any(|entry| entry == "none") {
            return Self::none();
        }
        if !list.iter().any(|entry| is_about(entry)) {
            return Self::default();
        }
        let all = list.iter().any(|entry| entry == "*");
        let is_enabled = |name: &&str| {
            let first = list.iter().find(|entry| entry.strip_prefix('-').unwrap_or(entry) == *name);
            first.map_or(all, |entry| !entry.starts_with('-'))
        };
        Self(NAMES.into_iter().filter(is_enabled).collect())
    }

    /// Whether a controller runs.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The names of the controllers that run.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().copied()
    }

    /// Whether none runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether an entry of the list is about these controllers.
#[must_use]
pub fn is_about(entry: &str) -> bool {
    entry == "*" || NAMES.contains(&entry.strip_prefix('-').unwrap_or(entry))
}

#[cfg(test)]
mod tests {
    use super::{NAMES, REPLICA_SET, Selection};

    #[test]
    fn lists_are_read_as_kube_controller_manager_reads_them() {
        let without = |name: &str| NAMES.into_iter().filter(|one| *one != name).collect::<Vec<_>>();
        for (list, expected) in [
            ("*", NAMES.to_vec()),
            ("none", vec![]),
            ("readiness", NAMES.to_vec()),
            ("replicaset-controller", vec![REPLICA_SET]),
            ("*,-replicaset-controller", without(REPLICA_SET)),
            ("-replicaset-controller", vec![]),
            ("-replicaset-controller,replicaset-controller,*", without(REPLICA_SET)),
        ] {
            let list: Vec<String> = list.split(',').map(str::to_owned).collect();
            assert_eq!(Selection::of(&list), Selection(expected.into_iter().collect()), "{list:?}");
        }
    }
}
