//! The webhook from outside: over TLS, beside the embedded API server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[path = "../../../../xtask/src/conformance_server/mod.rs"]
mod conformance_server;

mod config_map_profiles;
mod protocol;
mod recordings;
mod registration;
mod resilience;
mod reviews;
mod support;
