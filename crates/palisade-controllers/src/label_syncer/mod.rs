//! Keeps the Pod Security labels of namespaces in line with what their service accounts may do.
//!
//! Implements: OpenShift's `PodSecurityAdmissionLabelSynchronizationController`, where the rollout decides about enforce
//! labels, and its sibling for the namespaces that are always privileged.

pub mod apply;
pub mod plan;
