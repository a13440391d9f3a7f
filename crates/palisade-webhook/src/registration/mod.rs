//! The webhook configurations in the API server, made and kept.
//!
//! [`objects`] makes them (pure), [`keeper`] keeps them in the cluster.

pub mod keeper;
pub mod objects;
