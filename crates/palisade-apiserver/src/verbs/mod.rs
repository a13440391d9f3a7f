//! What can be done with objects: one file a verb.
//!
//! Implements: Kubernetes API Concepts, "Standard API terminology".
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/>

pub mod create;
pub mod delete;
pub mod deletecollection;
pub mod get;
pub mod list;
pub mod patch;
pub mod update;
pub mod watch;
pub mod write;
