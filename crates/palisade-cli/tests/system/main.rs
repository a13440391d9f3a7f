//! The binary with a real containerd, a real kernel and a real kubectl.
//!
//! Needs root and the packages containerd, runc, busybox-static, containernetworking-plugins and kubernetes-client.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "tests fail by panicking, and json! values are made to be given away"
)]

mod cost;
mod e2e;
mod one_pod;
mod recordings;
mod streams;
mod up;
mod world;
