//! The container runtime: its messages, a client, and the security settings it gets.

pub mod client;
pub mod proto;
pub mod translate;
