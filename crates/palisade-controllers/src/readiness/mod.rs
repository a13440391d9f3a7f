//! Reports which namespaces would violate enforcement, and drives the rollout's status.
//!
//! Implements: OpenShift's `PodSecurityReadinessController` as the design of `PSAEnforcementConfig` specifies it. It is the
//! only writer of the status.

pub mod apply;
pub mod events;
pub mod ledger;
pub mod plan;
pub mod report;
pub mod waves;
