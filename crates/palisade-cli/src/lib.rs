//! How does a person ask, and what do they read?
//!
//! The command line of Palisade. It has no judgement of its own: it reads manifests with their places
//! (`palisade-yaml`), asks the engine (`palisade-model`, `palisade-policy`), and draws what they answer as
//! [`diagnostic::Diagnostic`]s. Every command is one file in [`commands`], every output format one in [`render`].
//!
//! Exit status: 0 clean, 1 findings, 2 usage or unreadable input, 3 could not complete.

pub mod args;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod diagnostic;
pub mod engine;
pub mod fix;
pub mod input;
pub mod install;
pub mod judge;
pub mod live;
pub mod manifest;
pub mod render;
pub mod replace;
pub mod service;
pub mod source_map;
pub mod suppression;
pub mod terminal;

use std::{
    ffi::{OsStr, OsString},
    path::Path,
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches};

use crate::{
    args::{Cli, Command},
    terminal::Terminal,
};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Nothing to say.
    Clean = 0,
    /// Something is wrong with what was looked at.
    Findings = 1,
    /// The question or the input could not be understood.
    Input = 2,
    /// Something outside stopped the work half-way.
    Incomplete = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Runs the command line of this process.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = Cli::command();
    if is_kubectl_plugin(arguments.first().map(OsString::as_os_str)) {
        command = command.name("kubectl-palisade").bin_name("kubectl palisade");
    }
    let parsed = command.try_get_matches_from(arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way as well, and go to stdout with status 0.
            let status = if error.use_stderr() { Exit::Input } else { Exit::Clean };
            let _ = error.print();
            return status.into();
        }
    };
    let mut terminal = Terminal::of_process(cli.color);
    run(cli.command, &mut terminal).into()
}

fn run(command: Command, terminal: &mut Terminal) -> Exit {
    match command {
        Command::Check(args) => commands::check::run(&args, terminal),
        Command::Explain(args) => commands::explain::run(&args, terminal),
        Command::Migrate(args) => commands::migrate::run(&args, terminal),
        Command::Profile { command } => commands::profile::run(&command, terminal),
        Command::Rollout { command } => commands::rollout::run(&command, terminal),
        Command::Up(args) => commands::up::run(&args, terminal),
        Command::Run(args) => commands::run::run(&args, terminal),
        Command::Verify(args) => commands::verify::run(&args, terminal),
        Command::Controller(args) => commands::controller::run(&args, terminal),
        Command::Node(args) => commands::node::run(&args, terminal),
        Command::Webhook(args) => commands::webhook::run(&args, terminal),
        Command::Install(args) => commands::install::run(&args, terminal),
        Command::Completions { shell } => commands::completions::run(shell, terminal),
        Command::Man { page } => commands::man::run(page.as_deref(), terminal),
        Command::Version => commands::version::run(terminal),
    }
}

/// kubectl finds plugins by their file name.
fn is_kubectl_plugin(program: Option<&OsStr>) -> bool {
    let stem = program.map(Path::new).and_then(Path::file_stem);
    stem.is_some_and(|stem| stem == "kubectl-palisade" || stem == "kubectl_palisade")
}
