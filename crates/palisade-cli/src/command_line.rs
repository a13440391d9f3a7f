//! The commands, in the groups of `palisade --help`, and what runs each.

use std::{
    ffi::{OsStr, OsString},
    fmt::Write as _,
    path::Path,
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::{
    commands::{
        check, completions, controller, explain, install, man, migrate, node, profile, rollout, run, up,
        verify, version, webhook,
    },
    failure::{Exit, Failure},
    terminal::Terminal,
};

/// Pod security for Kubernetes, from the manifest to the kernel.
#[derive(Debug, Parser)]
#[command(
    name = "palisade",
    version,
    about = "Pod security for Kubernetes, from the manifest to the kernel",
    propagate_version = true,
    max_term_width = 110
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// When to use colours; NO_COLOR in the environment switches them off
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN", hide_possible_values = true)]
    pub color: ColorChoice,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Find pods that Pod Security Standards refuse, invalid profiles and dead annotations
    Check(check::CheckArgs),
    /// Say what every container will really run with, and why
    Explain(explain::ExplainArgs),
    /// Rewrite legacy annotations into fields, keeping comments and formatting
    Migrate(migrate::MigrateArgs),
    /// Look into seccomp profile documents
    Profile {
        /// What to do with them.
        #[command(subcommand)]
        command: profile::ProfileCommand,
    },
    /// Say what blocks enforced Pod Security in an OpenShift cluster, and what to do about it
    Rollout {
        /// What to say.
        #[command(subcommand)]
        command: rollout::RolloutCommand,
    },
    /// Run the embedded control plane: an API server for kubectl and kube clients, with pod security inside
    Up(up::UpArgs),
    /// Run one pod on the local container runtime, and say what the kernel really enforces
    Run(run::RunArgs),
    /// Compare what pods declare with what the kernel enforces
    Verify(verify::VerifyArgs),
    /// Run the controllers of a cluster: labels, readiness for enforced Pod Security, published profiles
    Controller(controller::ControllerArgs),
    /// Run the pods of a cluster on this machine
    Node(node::NodeArgs),
    /// Answer the API server of a real cluster: mutating and validating admission webhooks
    Webhook(Box<webhook::WebhookArgs>),
    /// Print manifests that install Palisade on a cluster, for kubectl apply
    Install(install::InstallArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of the program or of one command
    Man {
        /// A command, such as `check`; the program itself if left out
        page: Option<String>,
    },
    /// Print the version, and which Kubernetes releases it knows
    Version,
}

/// The groups of `palisade --help`. Every command is in one of them.
pub const GROUPS: &[(&str, &[&str])] = &[
    ("Manifests", &["check", "explain", "migrate"]),
    ("Local cluster", &["up", "run", "verify"]),
    ("Real cluster", &["install", "webhook", "controller", "node", "rollout"]),
    ("Profiles", &["profile"]),
    ("Other", &["completions", "man", "version", "help"]),
];

/// The command line, with its commands in groups: clap knows headings for options only.
#[must_use]
pub fn command() -> clap::Command {
    let command = Cli::command();
    // Only a built command has the subcommand `help`; what is built cannot be renamed any more.
    let mut built = command.clone();
    built.build();
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "\n{header}{group}:{header:#}");
        for name in *names {
            let about = built.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:12}{literal:#} {about}");
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    command.help_template(text)
}

/// Runs the command line of this process.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = command();
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
    let exit = run_command(cli.command, &mut terminal).unwrap_or_else(|failure| {
        terminal.say(format!("error: {failure}"));
        failure.exit
    });
    exit.into()
}

fn run_command(command: Command, terminal: &mut Terminal) -> Result<Exit, Failure> {
    match command {
        Command::Check(args) => check::run(&args, terminal),
        Command::Explain(args) => explain::run(&args, terminal),
        Command::Migrate(args) => migrate::run(&args, terminal),
        Command::Profile { command } => profile::run(&command, terminal),
        Command::Rollout { command } => rollout::run(&command, terminal),
        Command::Up(args) => up::run(&args, terminal),
        Command::Run(args) => run::run(&args, terminal),
        Command::Verify(args) => verify::run(&args, terminal),
        Command::Controller(args) => controller::run(&args, terminal),
        Command::Node(args) => node::run(&args, terminal),
        Command::Webhook(args) => webhook::run(&args, terminal),
        Command::Install(args) => install::run(&args, terminal),
        Command::Completions { shell } => completions::run(shell, terminal),
        Command::Man { page } => man::run(page.as_deref(), terminal),
        Command::Version => version::run(terminal),
    }
}

/// kubectl finds plugins by their file name.
fn is_kubectl_plugin(program: Option<&OsStr>) -> bool {
    let stem = program.map(Path::new).and_then(Path::file_stem);
    stem.is_some_and(|stem| stem == "kubectl-palisade" || stem == "kubectl_palisade")
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, command};

    #[test]
    fn every_visible_command_is_in_exactly_one_group_of_the_help() {
        let mut command = command();
        command.build();
        let visible = command.get_subcommands().filter(|found| !found.is_hide_set());
        let mut visible: Vec<&str> = visible.map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        visible.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, visible);
    }
}
