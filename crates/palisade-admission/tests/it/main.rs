//! Black-box tests of admission.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::needless_pass_by_value, reason = "values read better at the place of use")]

mod admission_review;
mod mutation;
mod unreadable;
