//! Running other programs, and printing what is run.

use std::process::{Command, Stdio};

use crate::Failure;

/// Runs a command with its output on ours; fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let shown = show(command);
    println!("\n$ {shown}");
    let status = command.status().map_err(|error| Failure(format!("cannot run {shown}: {error}")))?;
    if status.success() { Ok(()) } else { Err(Failure(format!("{shown} failed: {status}"))) }
}

/// Runs a command and takes its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let shown = show(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure(format!("cannot run {shown}: {error}")))?;
    if !output.status.success() {
        return Err(Failure(format!("{shown} failed: {}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|error| Failure(format!("{shown} printed no text: {error}")))
}

/// Whether a program is on the path.
pub(crate) fn exists(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|paths| std::env::split_paths(&paths).any(|folder| folder.join(program).is_file()))
}

fn show(command: &Command) -> String {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
