//! Reports workloads whose pods admission rejects, as events on the workloads.
//!
//! A workload is accepted although none of its pods will be: what rejects them is in the events of a ReplicaSet or in a
//! condition. This controller brings the message to the object that its author wrote. The same workloads are in the metrics
//! and in the condition `PodsRejected` of `PSAEnforcementConfig`.

pub mod apply;
pub mod plan;
