//! `palisade lsp`: findings, explanations and fixes in an editor.

use std::{
    io::{self, BufReader, IsTerminal as _},
    path::PathBuf,
};

use clap::Args;
use palisade_policy::standards::level::{Level, Version};

use crate::{
    args::{ApiVersion, FeatureGate, policy_version},
    config::Chosen,
    failure::{Exit, Failure},
    lsp::{ConfigChoice, Options, serve},
    terminal::Terminal,
};

/// `palisade lsp`
#[derive(Debug, Args)]
pub struct LspArgs {
    /// Accepted and ignored: the server always uses stdin and stdout
    #[arg(long)]
    pub stdio: bool,
    /// Level of the Pod Security Standards: privileged, baseline or restricted [default: restricted]
    #[arg(long, short, value_name = "LEVEL")]
    pub level: Option<Level>,
    /// Version of the standards: v1.0 to v1.37, or latest [default: latest]
    #[arg(long, value_name = "VERSION", value_parser = policy_version)]
    pub policy_version: Option<Version>,
    /// Release of the API server that the manifests are for: v1.19 to v1.37, or `extended` for Palisade's extensions [default: v1.37]
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<ApiVersion>,
    /// Feature gates: SeccompConfigMaps=true, SecurityProfileOCIArtifact=true, AppArmor=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Namespace of objects that do not set one
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Configuration file [default: palisade.toml in the folder of each document or the closest parent that has one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Do not read a configuration file
    #[arg(long, conflicts_with = "config")]
    pub no_config: bool,
}

/// Runs the command.
pub fn run(args: &LspArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if io::stdin().is_terminal() {
        return Err(Failure::input("palisade lsp is started by an editor: see docs/editors.md"));
    }
    let config = match (&args.config, args.no_config) {
        (Some(file), _) => ConfigChoice::File(file.clone()),
        (None, true) => ConfigChoice::None,
        (None, false) => ConfigChoice::Closest,
    };
    let chosen = Chosen {
        level: args.level,
        policy_version: args.policy_version,
        kubernetes_version: args.kubernetes_version,
        feature_gates: args.feature_gates.clone(),
        namespace: args.namespace.clone(),
        strict: false,
    };
    let in_order = serve(Options { chosen, config }, BufReader::new(io::stdin()), &mut terminal.out)
        .map_err(Failure::output)?;
    // The protocol wants 1 where the client did not send `shutdown` before `exit`.
    Ok(if in_order { Exit::Clean } else { Exit::Command(1) })
}
