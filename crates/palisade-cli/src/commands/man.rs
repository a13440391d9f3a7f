//! `palisade man`: the manual page of the program or of one command, or all of them as files.

use std::{fs, path::Path};

use clap::CommandFactory;

use crate::{
    command_line::Cli,
    failure::{Exit, Failure},
    terminal::Terminal,
};

/// Prints the page, or writes every page into a folder.
pub fn run(page: Option<&str>, folder: Option<&Path>, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    command.build();
    if let Some(folder) = folder {
        fs::create_dir_all(folder).map_err(|error| Failure::file(folder, error))?;
        let names: Vec<String> = command.get_subcommands().map(|found| found.get_name().to_owned()).collect();
        for name in names.iter().filter(|name| *name != "help") {
            write_page(folder, &format!("palisade-{name}"), of_command(&command, name)?)?;
        }
        write_page(folder, "palisade", command)?;
        return Ok(Exit::Clean);
    }
    if let Some(page) = page {
        command = of_command(&command, page)?;
    }
    terminal.print(rendered(command)?)?;
    Ok(Exit::Clean)
}

fn of_command(program: &clap::Command, name: &str) -> Result<clap::Command, Failure> {
    let found = program.find_subcommand(name);
    let found = found.ok_or_else(|| Failure::input(format!("unknown command {name:?}")))?;
    // The name lives as long as the process, which ends with its pages.
    Ok(found.clone().name(format!("palisade-{name}").leak() as &'static str))
}

fn rendered(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text).map_err(Failure::output)?;
    Ok(text)
}

fn write_page(folder: &Path, name: &str, command: clap::Command) -> Result<(), Failure> {
    let path = folder.join(format!("{name}.1"));
    fs::write(&path, rendered(command)?).map_err(|error| Failure::file(&path, error))
}
