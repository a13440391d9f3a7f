//! What the API server knows of us: its webhook configurations, made and kept.
//!
//! [`objects`] makes them (pure), [`keeper`] keeps them in the cluster.

pub mod keeper;
pub mod objects;
