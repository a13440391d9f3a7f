//! Black-box tests of the model.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on should stop")]

mod algebra;
mod compat_matrix;
mod designs;
mod effective;
mod libseccomp;
mod node;

use palisade_model::pod::Pod;

/// A pod from JSON.
fn pod(json: &str) -> Pod<'_> {
    serde_json::from_str(json).unwrap()
}
