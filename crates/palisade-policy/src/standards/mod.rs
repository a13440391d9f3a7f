//! The Pod Security Standards.
//!
//! <https://kubernetes.io/docs/concepts/security/pod-security-standards/>

mod cel;
pub mod checks;
pub mod evaluator;
pub mod finding;
pub mod fixes;
pub mod level;
mod message;
pub mod namespace;
pub mod policies;
pub mod policy;
