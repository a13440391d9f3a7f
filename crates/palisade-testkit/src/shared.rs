//! The folder `shared` beside a checkout: upstream's fixtures and other material that is not in the repository.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::Location;
use std::path::{Path, PathBuf};

/// A folder or file of `../shared`. Without it the test that calls this is not run: it reports that on standard error, and
/// in `target/not-run.txt`, which `cargo xtask check` counts.
#[must_use]
#[track_caller]
#[allow(clippy::print_stderr, reason = "a test that is not run must not look like one that passed")]
pub fn shared(name: &str) -> Option<PathBuf> {
    // A worktree may be a folder deeper than the main checkout.
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let mut places = workspace.ancestors().skip(1).take(2).map(|parent| parent.join("shared").join(name));
    if let Some(found) = places.find(|place| place.exists()) {
        return Some(found);
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let entry = format!("{test} ({}) needs ../shared/{name}\n", Location::caller().file());
    eprint!("NOT RUN: {entry}");
    let list = OpenOptions::new().create(true).append(true).open(workspace.join("target/not-run.txt"));
    if let Err(error) = list.and_then(|mut list| list.write_all(entry.as_bytes())) {
        eprintln!("cannot count it: {error}");
    }
    None
}
