//! The container runtime: its messages, a client, and what it is told about security.

pub mod client;
pub mod proto;
pub mod translate;
