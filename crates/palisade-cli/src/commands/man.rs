//! `palisade man`: the manual page of the program or of one command.

use std::io::Write;

use clap::CommandFactory;

use crate::{Exit, args::Cli, terminal::Terminal};

/// Prints the page.
pub fn run(page: Option<&str>, terminal: &mut Terminal) -> Exit {
    let mut command = Cli::command();
    command.build();
    if let Some(page) = page {
        let Some(found) = command.find_subcommand(page) else {
            terminal.say(format!("error: there is no command {page:?}"));
            return Exit::Input;
        };
        // The name lives as long as the process, which ends with this page.
        command = found.clone().name(format!("palisade-{page}").leak() as &'static str);
    }
    let mut text = Vec::new();
    let written = clap_mangen::Man::new(command)
        .render(&mut text)
        .and_then(|()| terminal.out.write_all(&text))
        .and_then(|()| terminal.out.flush());
    match written {
        Ok(()) => Exit::Clean,
        Err(error) => terminal.cannot_write(&error),
    }
}
