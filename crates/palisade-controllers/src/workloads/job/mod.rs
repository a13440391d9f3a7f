//! Jobs: pods that run to completion, and what follows from how they end.
//!
//! Implements: Jobs, <https://kubernetes.io/docs/concepts/workloads/controllers/job/>, and "Automatic Cleanup for Finished Jobs",
//! <https://kubernetes.io/docs/concepts/workloads/controllers/ttlafterfinished/>.
//!
//! | module | is about |
//! | --- | --- |
//! | [`account`] | how the status counts the pods |
//! | [`indexes`] | sets of completion indexes |
//! | [`policy`] | pod failure policy and success policy |
//! | [`plan`] | which pods to create, delete and release, and the status |
//! | [`pods`] | the pods of a Job |
//! | [`ttl`] | when a finished Job is deleted |

pub mod account;
mod apply;
pub mod indexes;
pub mod plan;
pub mod pods;
pub mod policy;
pub mod ttl;

pub use self::apply::run;
