//! The node's API client, seen from the server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "tests fail by panicking, and json! values are made to be given away"
)]

mod agent;
mod api;
mod one_reading;
