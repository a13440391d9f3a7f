//! The webhook from outside: over TLS, beside the embedded API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, and the recordings are printed as a table"
)]

mod config_map_profiles;
mod fail_fast;
mod instance_report;
mod outage;
mod protocol;
mod recordings;
mod registration;
mod resilience;
mod reviews;
mod support;
