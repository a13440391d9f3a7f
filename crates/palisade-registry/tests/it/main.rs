//! Black-box tests of pulling and pushing: a real registry, and registries that attack.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on should stop")]

mod attacks;
mod distribution;
mod fake;

/// A profile that denies one call.
const PROFILE: &str =
    r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir"],"action":"SCMP_ACT_ERRNO"}]}"#;
