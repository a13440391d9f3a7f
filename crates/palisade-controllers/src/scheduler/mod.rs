//! Which node runs a pod: the scheduler of an embedded cluster.
//!
//! Implements: the filters of kube-scheduler that a small cluster needs (`pkg/scheduler/framework/plugins`: NodeUnschedulable,
//! NodeName, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit) with its words, and of its scores only "the node
//! with the fewest pods"; and its preemption by priority. Left out: affinity between pods, topology spread, volumes. A real
//! cluster brings its own scheduler.

pub mod apply;
pub mod fit;
pub mod plan;
pub mod preemption;

pub use apply::run;
