//! Black-box tests of the object machinery.

// Helpers of tests fail by panicking, and tests may read files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_types)]

mod properties;
mod recordings;
mod replay;
