//! The binary with a real Kubernetes: etcd, kube-apiserver, controllers, a kubelet.
//!
//! Needs `../shared/kubernetes`, root and the packages that `cargo xtask setup` installs; run by `cargo xtask cluster`. Each test has a
//! cluster of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::needless_pass_by_value,
    reason = "tests fail by panicking, and json! values are made to be given away"
)]

mod components;
mod exceptions;
mod exported_exceptions;
mod fail_fast;
mod install;
mod load;
mod node;
mod policies;
mod reports;
mod rollout;
mod support;
mod tenant_profile;
mod webhook;
