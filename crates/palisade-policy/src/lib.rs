//! Whether a pod is allowed, by which rule, and what would make it so.
//!
//! [`standards`] judges pods by the Pod Security Standards and namespaces by Pod Security Admission's labels;
//! [`profiles`] by the profiles an administrator allows; [`scc`] by OpenShift's security context constraints.
//! [`exceptions`] are findings that an administrator accepts for a while.
//! [`enforcement`] decides how a cluster moves to enforcing the standards. [`resources`] are our kinds, as definitions for an
//! API server. Pure, as the model is.
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod enforcement;
pub mod exceptions;
pub mod profiles;
pub mod resources;
pub mod scc;
pub mod standards;
