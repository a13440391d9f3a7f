//! How a cluster moves to enforcing the Pod Security Standards, and back.
//!
//! Implements: OpenShift's `PSAEnforcementConfig` design: [`state`] is the state machine, [`managed`] and [`labels`] the
//! label syncer's decisions, [`memory`] what the workloads of a namespace need, [`waves`] in which order namespaces move, [`classify`] and [`violations`] those of the readiness controller, [`ledger`] what the status
//! cannot hold, [`render`] the global configuration, [`instances`] how it gets to those who enforce it and what they
//! report. Reading the cluster and writing to it is the controllers' work.

pub mod classify;
pub mod conditions;
pub mod feature_gate;
pub mod instances;
pub mod labels;
pub mod ledger;
pub mod level;
pub mod managed;
pub mod memory;
pub mod mode;
pub mod ownership;
pub mod platform;
pub mod render;
pub mod resource;
pub mod state;
pub mod violations;
pub mod waves;
