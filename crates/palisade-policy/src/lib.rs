//! Is it allowed, by which rule, and what would make it so?
//!
//! [`standards`] judges pods by the Pod Security Standards and namespaces by Pod Security Admission's labels;
//! [`profiles`] by the profiles an administrator allows. Pure, as the model is.
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod profiles;
pub mod standards;
