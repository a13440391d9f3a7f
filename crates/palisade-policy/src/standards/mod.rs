//! The Pod Security Standards.
//!
//! <https://kubernetes.io/docs/concepts/security/pod-security-standards/>

pub(crate) mod cel;
pub mod checks;
pub mod evaluator;
pub mod finding;
pub mod fixes;
pub mod level;
mod message;
pub mod namespace;
pub(crate) mod places;
pub mod policies;
pub mod policy;
