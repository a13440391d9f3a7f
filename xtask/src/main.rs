//! Every chore of the project, in Rust: `cargo xtask <chore>`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a chore talks to the person who runs it")]

mod conformance;
mod recordings;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Why a chore did not end well.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(text)) => {
            eprintln!("xtask: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let option = |name: &str| {
        arguments
            .iter()
            .position(|argument| argument == name)
            .and_then(|at| arguments.get(at + 1))
            .map(PathBuf::from)
    };
    match arguments.first().map(String::as_str) {
        Some("conformance") => {
            let folder = option("--recordings").unwrap_or_else(|| root().join("tests/data/recordings"));
            conformance::run(&folder)
        }
        _ => Err(Failure("usage: cargo xtask conformance [--recordings DIR]".to_owned())),
    }
}

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}
