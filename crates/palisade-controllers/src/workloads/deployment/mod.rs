//! Deployments: ReplicaSets that replace each other.
//!
//! Implements: Deployments, <https://kubernetes.io/docs/concepts/workloads/controllers/deployment/>.

pub mod plan;
pub mod status;
