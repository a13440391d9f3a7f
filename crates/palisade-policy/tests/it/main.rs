//! Black-box tests of the policies.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::needless_pass_by_value, reason = "values read better at the place of use")]

mod namespaces;
mod profiles;
mod registry;
mod remedies;
mod wording;

use palisade_model::pod::Pod;

/// A pod from JSON.
fn pod(json: &str) -> Pod<'_> {
    serde_json::from_str(json).unwrap()
}
