//! The serving side of every component that listens: the API server, the webhook, and the metrics endpoint of the
//! controllers and the node agent.
//!
//! [`connection`] accepts, [`body`] reads within limits, [`status`] is health and metrics, [`file_watch`] follows
//! configuration and certificates, [`tls`] and [`certificate`] are what a
//! handshake needs, [`signing_request`] reads and signs what clients send. A crate of its own because the API server and the webhook may not depend on each
//! other, and the crates below them do not need hyper's server.

pub mod body;
pub mod certificate;
pub mod connection;
pub mod file_watch;
pub mod signing_request;
pub mod status;
pub mod tls;

pub use connection::{Limits, Service, serve};
