//! Black-box tests of palisade-yaml.

// The helpers of tests are tests, too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod deserialize;
mod edit;
mod generate;
mod lookup;
mod property;
mod reader;
