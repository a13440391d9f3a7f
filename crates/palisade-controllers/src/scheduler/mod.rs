//! Which node runs a pod: the scheduler of an embedded cluster.
//!
//! Implements: the filters of kube-scheduler that a small cluster needs (`pkg/scheduler/framework/plugins`: NodeUnschedulable,
//! NodeName, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit) with its words, and of its scores only "the node
//! with the fewest pods". Left out: affinity between pods, topology spread, preemption, volumes. A real cluster brings its
//! own scheduler.

pub mod apply;
pub mod fit;
pub mod plan;

pub use apply::run;
