//! Kustomizations in, objects with origins out.

mod build;
mod cases;
mod kubectl;
mod support;
