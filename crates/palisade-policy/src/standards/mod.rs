//! The Pod Security Standards.
//!
//! <https://kubernetes.io/docs/concepts/security/pod-security-standards/>

pub mod checks;
pub mod evaluator;
pub mod finding;
pub mod level;
mod message;
pub mod namespace;
pub mod policy;
