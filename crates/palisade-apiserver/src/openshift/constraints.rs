//! The constraints of the server, read once for each change of them.

use std::sync::{Arc, Mutex};

use palisade_policy::scc::constraint::ReadError;
use palisade_policy::scc::set::ConstraintSet;
use serde_json::Value;

use crate::admission_chain::Cluster;
use crate::storage::lock;

/// Constraints, as stored.
pub(super) const RESOURCE: &str = "securitycontextconstraints.security.openshift.io";

/// What was read: the constraints in order, and the objects that are none.
#[derive(Debug, Default)]
pub(super) struct Reading {
    revisions: Vec<u64>,
    pub(super) constraints: ConstraintSet,
    pub(super) errors: Vec<ReadError>,
}

/// Keeps the last reading.
#[derive(Debug, Default)]
pub(super) struct Constraints {
    last: Mutex<Arc<Reading>>,
}

impl Constraints {
    /// The constraints as they are now.
    pub(super) fn read(&self, cluster: &dyn Cluster) -> Arc<Reading> {
        let stored = cluster.list(RESOURCE, "");
        // A revision belongs to one write of one object, so the revisions together identify what was read.
        let revisions: Vec<u64> = stored.iter().map(|object| object.revision).collect();
        let mut last = lock(&self.last);
        if last.revisions != revisions {
            let objects: Vec<_> = stored.iter().map(|object| Value::Object(object.parse())).collect();
            let (constraints, errors) = ConstraintSet::read(&objects);
            *last = Arc::new(Reading { revisions, constraints, errors });
        }
        last.clone()
    }
}
