//! What the API server knows of us: its webhook configurations, made and kept.
//!
//! [`objects`] says what they look like (pure), [`keeper`] keeps them so.

pub mod keeper;
pub mod objects;
