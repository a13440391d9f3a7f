//! How a cluster moves to enforcing the Pod Security Standards, and back.
//!
//! Implements: OpenShift's `PSAEnforcementConfig` design: [`state`] is the state machine, [`managed`] and [`labels`] the
//! label syncer's decisions, [`classify`] and [`violations`] those of the readiness controller, [`render`] the global
//! configuration. Reading the cluster and writing to it is the controllers' work.

pub mod classify;
pub mod conditions;
pub mod labels;
pub mod level;
pub mod managed;
pub mod mode;
pub mod ownership;
pub mod render;
pub mod resource;
pub mod state;
pub mod violations;
