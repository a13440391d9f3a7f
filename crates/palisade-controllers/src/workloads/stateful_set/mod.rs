//! StatefulSets: pods with names, one after the other, each with its own claims.
//!
//! Implements: StatefulSets, <https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/>.

mod apply;
pub mod plan;
pub mod pods;

pub use self::apply::run;
