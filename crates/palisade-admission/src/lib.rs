//! The response to a request to admit a pod, from facts.
//!
//! Request and facts in, verdict out, and nothing else: no client, no clock. The embedded API server and the
//! webhook both call this crate. [`review`] is the API server's own part (prepare, sync, validate, warn), [`pod_security`]
//! is Pod Security Admission, [`configuration`] its `PodSecurityConfiguration`, [`profile_policies`] and
//! [`constraints`] are the other judges. [`admission_review`] is the protocol of webhooks, [`mutation`] and
//! [`validation`] are what is answered to the two kinds of them, [`config_map_profiles`] and [`json_patch`] what they
//! write into objects.

pub mod admission_review;
pub mod app_armor_profiles;
pub mod config_map_profiles;
pub mod configuration;
pub mod constraints;
pub mod json_patch;
pub mod metrics;
pub mod mutation;
pub mod pod_security;
pub mod profile_policies;
pub mod response;
pub mod review;
pub mod rules;
pub mod validation;
