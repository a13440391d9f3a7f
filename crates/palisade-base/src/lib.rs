//! Kubernetes primitives that every other crate may use, each written once. No IO, no clock, no dependencies.
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod metrics;
pub mod quantity;
