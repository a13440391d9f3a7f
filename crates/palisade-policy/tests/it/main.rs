//! Black-box tests of the policies.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::print_stdout, reason = "figures of replayed recordings, for cargo xtask conformance")]
#![allow(clippy::needless_pass_by_value, reason = "values read better at the place of use")]

mod allocations;
mod exceptions;
mod fixtures;
mod namespaces;
mod profiles;
mod registry;
mod remedies;
mod scc_enforcement;
mod scc_level_proof;
mod scc_recordings;
mod scc_replay;
mod wording;

use palisade_model::pod::Pod;

/// A pod from JSON.
fn pod(json: &str) -> Pod<'_> {
    serde_json::from_str(json).unwrap()
}
