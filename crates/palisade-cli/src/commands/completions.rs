//! `palisade completions`: a completion script for a shell.

use std::io::Write;

use clap::CommandFactory;

use crate::{Exit, args::Cli, terminal::Terminal};

/// Prints the script.
pub fn run(shell: clap_complete::Shell, terminal: &mut Terminal) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "palisade", &mut script);
    match terminal.out.write_all(&script).and_then(|()| terminal.out.flush()) {
        Ok(()) => Exit::Clean,
        Err(error) => terminal.cannot_write(&error),
    }
}
