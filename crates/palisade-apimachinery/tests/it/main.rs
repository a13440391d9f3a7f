//! Black-box tests of the object machinery.

// Helpers of tests fail by panicking, take values as they are written down, and may read files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_types, clippy::needless_pass_by_value)]

mod apply;
mod custom;
mod defaults;
mod properties;
mod quantities;
mod rule_costs;
mod selectors;
mod strategic_merge;
