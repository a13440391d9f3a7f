//! The webhook configurations in the API server, made and kept.
//!
//! [`objects`] and [`conditions`] make them (pure), [`keeper`] keeps them in the cluster.

pub mod conditions;
pub mod keeper;
pub mod objects;
