//! Black-box tests of palisade-helm.

// The helpers of tests are tests, too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod engine;
