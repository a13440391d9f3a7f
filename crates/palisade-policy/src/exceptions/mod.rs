//! `SecurityException`: findings of the standards that an administrator accepts, for whom, why and until when.
//!
//! [`object`] reads the resource, [`pattern`] its fields and images, [`workload`] decides which workload a pod belongs to,
//! [`set`] removes from a verdict what the exceptions in force name, and [`review`] reports expired, unused and broad ones.
//!
//! The module `cel` writes the same for policies that an API server evaluates itself.
//!
//! An exception removes exactly the findings that it names: control, field and value, each spelled out. Whatever else a check
//! finds stays. What cannot be read, and what has ended, removes nothing.

pub(crate) mod cel;
pub mod object;
pub mod pattern;
pub mod review;
pub mod set;
pub mod workload;
