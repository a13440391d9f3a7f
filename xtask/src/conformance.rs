//! Replays what real servers answered: the tests that do so, with the figures they print.

use std::path::Path;

use crate::{
    Failure,
    process::{self, cargo},
};

/// API servers over HTTPS, OpenShift's constraints, upstream's fixtures.
pub(crate) fn run_all(folder: &Path) -> Result<(), Failure> {
    run_server(folder)?;
    run_tests(folder, "palisade-policy", &["scc_recordings", "fixtures"])
}

/// The recordings of API servers, over HTTPS against the embedded one.
pub(crate) fn run_server(folder: &Path) -> Result<(), Failure> {
    run_tests(folder, "palisade-apiserver", &["conformance"])
}

/// The recordings about pods, over TLS through the webhook.
pub(crate) fn run_webhook(folder: &Path) -> Result<(), Failure> {
    run_tests(folder, "palisade-webhook", &["recordings"])
}

fn run_tests(folder: &Path, package: &str, filters: &[&str]) -> Result<(), Failure> {
    let folder = std::path::absolute(folder).map_err(|error| Failure(error.to_string()))?;
    process::run(
        cargo(&["test", "--quiet", "--package", package, "--test", "it", "--", "--nocapture"])
            .args(filters)
            .env("PALISADE_RECORDINGS", folder),
    )
}
