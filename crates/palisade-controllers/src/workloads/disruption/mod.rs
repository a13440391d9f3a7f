//! PodDisruptionBudgets: how many pods may be evicted.
//!
//! Implements: `k8s.io/kubernetes/pkg/controller/disruption`,
//! <https://kubernetes.io/docs/tasks/run-application/configure-pdb/>. Owners of a kind that is not built in count as not scalable.

mod apply;
pub mod plan;

pub use self::apply::run;
