//! ReplicaSets and ReplicationControllers: as many pods of a template as there are to be.
//!
//! Implements: ReplicaSet, <https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/>. Both kinds are one controller, as
//! upstream.

mod apply;
pub mod plan;

pub use self::apply::run;
