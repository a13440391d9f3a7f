//! Kustomizations in, objects with origins out.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail as well")]

mod build;
mod cases;
mod kubectl;
mod support;
