//! Which controllers run: the list of `--controllers`, read as kube-controller-manager reads it.

use std::collections::BTreeSet;

/// Deployments.
pub const DEPLOYMENT: &str = "deployment-controller";
/// ReplicaSets.
pub const REPLICA_SET: &str = "replicaset-controller";
/// ReplicationControllers.
pub const REPLICATION_CONTROLLER: &str = "replicationcontroller-controller";
/// Every controller, by the names of kube-controller-manager.
pub const NAMES: [&str; 3] = [DEPLOYMENT, REPLICA_SET, REPLICATION_CONTROLLER];

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
    use super::{DEPLOYMENT, NAMES, REPLICA_SET, REPLICATION_CONTROLLER, Selection};

    #[test]
    fn lists_are_read_as_kube_controller_manager_reads_them() {
        for (list, expected) in [
            ("*", &NAMES[..]),
            ("none", &[]),
            ("readiness", &NAMES[..]),
            ("replicaset-controller", &[REPLICA_SET]),
            ("*,-replicaset-controller", &[DEPLOYMENT, REPLICATION_CONTROLLER]),
            ("-replicaset-controller", &[]),
            ("-replicaset-controller,replicaset-controller,*", &[DEPLOYMENT, REPLICATION_CONTROLLER]),
        ] {
            let list: Vec<String> = list.split(',').map(str::to_owned).collect();
            assert_eq!(Selection::of(&list), Selection(expected.iter().copied().collect()), "{list:?}");
        }
    }
}
