//! `palisade man`: the manual page of the program or of one command.

use clap::CommandFactory;

use crate::{
    command_line::Cli,
    failure::{Exit, Failure},
    terminal::Terminal,
};

/// Prints the page.
pub fn run(page: Option<&str>, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    command.build();
    if let Some(page) = page {
        let found = command.find_subcommand(page);
        let found = found.ok_or_else(|| Failure::input(format!("unknown command {page:?}")))?;
        // The name lives as long as the process, which ends with this page.
        command = found.clone().name(format!("palisade-{page}").leak() as &'static str);
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text).map_err(Failure::output)?;
    terminal.print(text)?;
    Ok(Exit::Clean)
}
