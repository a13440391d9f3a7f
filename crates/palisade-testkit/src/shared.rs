//! What tests need that is not in the repository: the folder `shared` beside a checkout, with upstream's fixtures, and what chores build.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::Location;
use std::path::{Path, PathBuf};

/// A folder or file of `../shared`. Without it the test that calls this is not run: it reports that on standard error, and
/// in `target/not-run.txt`, which `cargo xtask check` counts.
#[must_use]
#[track_caller]
pub fn shared(name: &str) -> Option<PathBuf> {
    // A worktree may be a folder deeper than the main checkout.
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let mut places = workspace.ancestors().skip(1).take(2).map(|parent| parent.join("shared").join(name));
    if let Some(found) = places.find(|place| place.exists()) {
        return Some(found);
    }
    report_not_run(&format!("../shared/{name}"));
    None
}

/// What `cargo xtask` builds for tests, below `target`. Without it the test that calls this is not run, as with [`shared`].
#[must_use]
#[track_caller]
pub fn built(name: &str, chore: &str) -> Option<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?.join("target").join(name);
    if file.exists() {
        return Some(file);
    }
    report_not_run(&format!("target/{name}, which `{chore}` builds"));
    None
}

#[track_caller]
#[allow(clippy::print_stderr, reason = "a test that is not run must not look like one that passed")]
fn report_not_run(needed: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let entry = format!("{test} ({}) needs {needed}\n", Location::caller().file());
    eprint!("NOT RUN: {entry}");
    let list =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(|root| root.join("target/not-run.txt"));
    let Some(list) = list else { return };
    let list = OpenOptions::new().create(true).append(true).open(list);
    if let Err(error) = list.and_then(|mut list| list.write_all(entry.as_bytes())) {
        eprintln!("cannot count it: {error}");
    }
}
