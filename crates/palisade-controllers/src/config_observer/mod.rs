//! Keeps the global Pod Security configuration in line with the rollout.
//!
//! Implements: OpenShift's config observer for Pod Security Admission.

pub mod apply;
pub mod plan;
