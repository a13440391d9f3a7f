//! The webhook, measured from outside by a program that speaks TLS.

use std::process::Command;

use crate::{Failure, process::output, root};

/// What was measured, the figure, the target, and whether it is met.
pub(crate) type Row = (String, String, String, bool);

/// Runs the load generator of the webhook's crate against the release build.
pub(crate) fn measure() -> Result<Vec<Row>, Failure> {
    from_example("palisade-webhook", "load")
}

/// Runs an example that measures the release build and prints its rows, columns separated by tabs.
pub(crate) fn from_example(package: &str, example: &str) -> Result<Vec<Row>, Failure> {
    let printed = output(
        Command::new("cargo")
            .args(["run", "--release", "--quiet", "--package", package, "--example", example, "--"])
            .arg(root().join("target/release/palisade"))
            .current_dir(root()),
    )?;
    let row = |line: &str| match line.split('\t').collect::<Vec<_>>()[..] {
        [what, figure, target, met] => {
            Ok((what.to_owned(), figure.to_owned(), target.to_owned(), met == "true"))
        }
        _ => Err(Failure(format!("a line nobody understands: {line}"))),
    };
    printed.lines().map(row).collect()
}
