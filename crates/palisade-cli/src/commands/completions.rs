//! `palisade completions`: a completion script for a shell.

use clap::CommandFactory;

use crate::{
    command_line::Cli,
    failure::{Exit, Failure},
    terminal::Terminal,
};

/// Prints the script.
pub fn run(shell: clap_complete::Shell, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "palisade", &mut script);
    terminal.print(script)?;
    Ok(Exit::Clean)
}
