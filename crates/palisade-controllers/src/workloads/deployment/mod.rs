//! Deployments: ReplicaSets that replace each other.
//!
//! Implements: Deployments, <https://kubernetes.io/docs/concepts/workloads/controllers/deployment/>.

mod apply;
pub mod plan;
pub mod status;

pub use self::apply::run;
