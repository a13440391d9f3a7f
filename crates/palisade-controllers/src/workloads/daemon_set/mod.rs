//! DaemonSets: a pod on each node that may run it.
//!
//! Implements: DaemonSet, <https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/>.

mod apply;
pub mod plan;
pub mod rollout;

pub use self::apply::run;
