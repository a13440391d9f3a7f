//! What a workload requests, and what each container gets.
//!
//! The pure reading of pods: lean types that borrow from the input ([`pod`]), profile references between field
//! and annotation ([`profile`]), what an API server does to a pod ([`prepare`], [`sync`]), what it refuses
//! ([`validation`]) and warns about ([`warnings`]), what each container really runs with ([`effective`]) and what the
//! node applies ([`node`]). One [`compat::Compat`] value decides whose rules apply.
//!
//! No IO, no clock, no async, no logging: everything worth reporting is returned.
#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod change;
pub mod compat;
pub mod effective;
pub mod guard;
pub mod json;
pub mod lower;
pub mod metadata;
pub mod node;
pub mod pod;
pub mod pod_view;
pub mod prepare;
pub mod profile;
pub mod profile_recording;
mod projected;
mod reading;
pub mod security_context;
pub mod server_version;
pub mod spelling;
pub mod sync;
pub mod text;
pub mod validation;
pub mod volume;
pub mod warnings;
pub mod workload;
