//! The commands, in the groups of `palisade --help`, and what runs each.

use std::{
    ffi::{OsStr, OsString},
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::{
    commands::{
        check, completions, controller, dashboard, exceptions, explain, export, install, lsp, man, migrate,
        node, preview, profile, rollout, run, uninstall, up, verify, version, webhook,
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
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// When to use colors; the environment variable NO_COLOR turns them off
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN", hide_possible_values = true)]
    pub color: ColorChoice,
}

/// When to use colors.
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
    /// Find pods that the Pod Security Standards reject, invalid profiles and annotations without effect
    Check(check::CheckArgs),
    /// Show what every container runs with, and which line decides it
    Explain(explain::ExplainArgs),
    /// Rewrite legacy annotations into fields, keeping comments and formatting
    Migrate(migrate::MigrateArgs),
    /// Check, explain and fix manifests and charts in an editor, by the Language Server Protocol
    Lsp(lsp::LspArgs),
    /// Show what an upgrade of API server, kubelet, runtime or standards changes for manifests or a cluster
    Preview(Box<preview::PreviewArgs>),
    /// Review exceptions: used, unused, expired, too broad
    Exceptions(exceptions::ExceptionsArgs),
    /// Check, compare, combine, hash, push and pull seccomp profiles
    Profile {
        /// The subcommand.
        #[command(subcommand)]
        command: profile::ProfileCommand,
    },
    /// Show what blocks enforced Pod Security, and how to fix it; pause, resume and take back waves
    Rollout {
        /// The subcommand.
        #[command(subcommand)]
        command: rollout::RolloutCommand,
    },
    /// Run an API server on this machine for kubectl and kube clients, with pod security built in
    Up(up::UpArgs),
    /// Run one pod on the local container runtime, and compare it with what the kernel enforces
    Run(run::RunArgs),
    /// Compare what pods declare with what the kernel enforces
    Verify(verify::VerifyArgs),
    /// Run the controllers: labels, readiness for enforced Pod Security, published profiles
    Controller(controller::ControllerArgs),
    /// Serve a page about the current cluster on loopback: readiness, blockers, exceptions, nodes
    Dashboard(dashboard::DashboardArgs),
    /// Run the pods of a cluster on this machine, or the agent beside a kubelet
    Node(node::NodeArgs),
    /// Serve mutating and validating admission webhooks for a cluster
    Webhook(Box<webhook::WebhookArgs>),
    /// Print manifests that install Palisade on a cluster, for kubectl apply
    Install(install::InstallArgs),
    /// Remove Palisade from a cluster, the registration of the webhook first
    Uninstall(uninstall::UninstallArgs),
    /// Print the Pod Security Standards in a form that other programs enforce
    Export {
        /// The subcommand.
        #[command(subcommand)]
        command: export::ExportCommand,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of the program or of one command
    Man {
        /// A command, such as `check` [default: the program itself]
        page: Option<String>,
        /// Write the pages of the program and of every command into this folder
        #[arg(long, value_name = "DIR", conflicts_with = "page")]
        folder: Option<PathBuf>,
    },
    /// Print the version and the supported Kubernetes releases
    Version,
}

/// The groups of `palisade --help`. Every command is in one of them.
pub const GROUPS: &[(&str, &[&str])] = &[
    ("Manifests", &["check", "exceptions", "explain", "lsp", "migrate", "preview"]),
    ("Local cluster", &["up", "run", "verify"]),
    (
        "Real cluster",
        &["install", "uninstall", "webhook", "controller", "node", "rollout", "dashboard", "export"],
    ),
    ("Profiles", &["profile"]),
    ("Other", &["completions", "man", "version", "help"]),
];

/// The command line, with its commands in groups: clap has headings for options only.
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
    let is_plugin = is_kubectl_plugin(arguments.first().map(OsString::as_os_str));
    let parse = |command: clap::Command| {
        let named =
            if is_plugin { command.name("kubectl-palisade").bin_name("kubectl palisade") } else { command };
        let matches = named.try_get_matches_from(&arguments)?;
        Cli::from_arg_matches(&matches)
    };
    // Listing the commands by group takes longer than all the rest; only help and errors show it.
    let cli = match parse(Cli::command()).or_else(|_| parse(command())) {
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
        terminal.report(format!("error: {failure}"));
        failure.exit
    });
    exit.into()
}

fn run_command(command: Command, terminal: &mut Terminal) -> Result<Exit, Failure> {
    match command {
        Command::Check(args) => check::run(&args, terminal),
        Command::Exceptions(args) => exceptions::run(&args, terminal),
        Command::Explain(args) => explain::run(&args, terminal),
        Command::Lsp(args) => lsp::run(&args, terminal),
        Command::Migrate(args) => migrate::run(&args, terminal),
        Command::Preview(args) => preview::run(&args, terminal),
        Command::Profile { command } => profile::run(&command, terminal),
        Command::Rollout { command } => rollout::run(&command, terminal),
        Command::Up(args) => up::run(&args, terminal),
        Command::Run(args) => run::run(&args, terminal),
        Command::Verify(args) => verify::run(&args, terminal),
        Command::Controller(args) => controller::run(&args, terminal),
        Command::Dashboard(args) => dashboard::run(&args, terminal),
        Command::Node(args) => node::run(&args, terminal),
        Command::Webhook(args) => webhook::run(&args, terminal),
        Command::Install(args) => install::run(&args, terminal),
        Command::Uninstall(args) => uninstall::run(&args, terminal),
        Command::Export { command } => export::run(&command, terminal),
        Command::Completions { shell } => completions::run(shell, terminal),
        Command::Man { page, folder } => man::run(page.as_deref(), folder.as_deref(), terminal),
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
