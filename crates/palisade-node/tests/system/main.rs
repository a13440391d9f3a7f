//! Real pods on a real containerd and a real kernel.
//!
//! Every test starts its own containerd with its own root, state and socket, and builds its images from the node's static
//! busybox. They need root and the packages containerd, runc, busybox-static and containernetworking-plugins.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "tests fail by panicking, and json! values are made to be given away"
)]

mod agent;
mod algebra;
mod artifacts;
mod contexts;
mod cost;
mod failures;
mod guards;
mod lab;
mod lifecycle;
mod one_pod;
mod profiles;
mod reach;
mod recorded;
mod recordings;
mod resilience;
mod siblings;
mod vm;
