//! Running other programs, and printing what is run.

use std::process::{Command, Stdio};

use crate::{Failure, root};

/// Cargo in the root of the repository, without the variables that `cargo run` gave this program: build scripts that read them, such as that of
/// ring, would run again, and everything that depends on them would be built again.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root());
    for (name, _) in std::env::vars_os() {
        let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];
        if name.to_str().is_some_and(|name| of_package.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    command
}

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
