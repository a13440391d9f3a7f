//! What can be asked: the commands and their options.
//!
//! Options that a configuration file can set as well are optional here; [`crate::config`] brings both together.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use palisade_base::version::{KubeVersion, NEWEST_MINOR, OLDEST_MINOR, VersionError};
use palisade_model::compat::Compat;
use palisade_policy::standards::level::{Level, Version};

use crate::render::Output;

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
    Check(CheckArgs),
    /// Say what every container will really run with, and why
    Explain(ExplainArgs),
    /// Rewrite legacy annotations into fields, keeping comments and formatting
    Migrate(MigrateArgs),
    /// Look into seccomp profile documents
    Profile {
        /// What to do with them.
        #[command(subcommand)]
        command: ProfileCommand,
    },
    /// Say what blocks enforced Pod Security in an OpenShift cluster, and what to do about it
    Rollout {
        /// What to say.
        #[command(subcommand)]
        command: crate::commands::rollout::RolloutCommand,
    },
    /// Run the embedded control plane: an API server for kubectl and kube clients, with pod security inside
    Up(UpArgs),
    /// Run one pod on the local container runtime, and say what the kernel really enforces
    Run(crate::commands::run::RunArgs),
    /// Compare what pods declare with what the kernel enforces
    Verify(crate::commands::verify::VerifyArgs),
    /// Run the controllers of a cluster: labels, readiness for enforced Pod Security, published profiles
    Controller(crate::commands::controller::ControllerArgs),
    /// Run the pods of a cluster on this machine
    Node(crate::commands::node::NodeArgs),
    /// Answer the API server of a real cluster: mutating and validating admission webhooks
    Webhook(Box<crate::commands::webhook::WebhookArgs>),
    /// Print manifests that install Palisade on a cluster, for kubectl apply
    Install(crate::commands::install::InstallArgs),
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

/// Where manifests are.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// Files, folders (searched for .yaml, .yml and .json), or - for stdin
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Leave out paths that match, such as `vendor/**` or `*.tmpl.yaml`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
}

/// What `check` judges.
#[derive(Debug, Args)]
pub struct CheckInputArgs {
    /// Files, folders (searched for .yaml, .yml and .json), or - for stdin
    #[arg(required_unless_present = "cluster", conflicts_with = "cluster", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Leave out paths that match, such as `vendor/**` or `*.tmpl.yaml`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Or a cluster.
    #[command(flatten)]
    pub live: crate::live::LiveArgs,
}

/// What `explain` explains.
#[derive(Debug, Args)]
pub struct ExplainInputArgs {
    /// Files, folders (searched for .yaml, .yml and .json), or - for stdin
    #[arg(required_unless_present = "live", conflicts_with = "live", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Leave out paths that match, such as `vendor/**` or `*.tmpl.yaml`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// An object of a cluster instead of files, with its API server and its node's kubelet: NAMESPACE/POD, KIND/NAME or NAMESPACE/KIND/NAME
    #[arg(long, value_name = "OBJECT")]
    pub live: Option<String>,
    /// With --live: which cluster.
    #[command(flatten)]
    pub cluster: crate::cluster::ClusterArgs,
    /// With --live: namespace of an object that names none [default: the context's]
    #[arg(long, short, value_name = "NAMESPACE", requires = "live")]
    pub namespace: Option<String>,
}

/// `palisade check`
#[derive(Debug, Args)]
#[command(after_help = CHECK_AFTER_HELP)]
pub struct CheckArgs {
    /// Where to look.
    #[command(flatten)]
    pub input: CheckInputArgs,
    /// Level to judge by: privileged, baseline or restricted [default: restricted]
    #[arg(long, short, value_name = "LEVEL")]
    pub level: Option<Level>,
    /// Edition of the standards: v1.0 to v1.37, or latest [default: latest]
    #[arg(long, value_name = "VERSION", value_parser = policy_version)]
    pub policy_version: Option<Version>,
    /// Release whose API server would take the manifests: v1.19 to v1.37, or `designs` [default: v1.37]
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<ApiVersion>,
    /// Switches of the designs: SeccompConfigMaps=true, AppArmor=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Namespace of objects that name none
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Output: human, json, sarif, junit, github or name, each optionally =FILE; may be repeated [default: human]
    #[arg(long, short, value_name = "FORMAT[=FILE]", value_delimiter = ',')]
    pub output: Vec<Output>,
    /// Write what can be fixed mechanically into the files
    #[arg(long)]
    pub fix: bool,
    /// Print what --fix would change as a unified diff, and write nothing
    #[arg(long)]
    pub diff: bool,
    /// Treat objects that hold no pod as errors instead of skipping them
    #[arg(long)]
    pub strict: bool,
    /// Configuration file [default: palisade.toml here or in the closest parent folder]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Use no configuration file
    #[arg(long, conflicts_with = "config")]
    pub no_config: bool,
    /// Files to work on at the same time [default: one for each processor]
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<std::num::NonZeroUsize>,
    /// Print no summary and no progress
    #[arg(long, short)]
    pub quiet: bool,
}

const CHECK_AFTER_HELP: &str = "\
Exit status: 0 clean, 1 findings, 2 nothing could be judged or wrong usage, 3 could not complete.

To accept a finding, say why, on its line or the line above:
    # palisade:ignore pss/hostPorts reason=\"node exporter\" until=2027-01-31
or for a whole object, in its annotations:
    palisade.dev/ignore: \"pss/hostPorts; reason=node exporter; until=2027-01-31\"";

/// `palisade explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Where to look.
    #[command(flatten)]
    pub input: ExplainInputArgs,
    /// Kubelet on the node: v1.18 to v1.37 [default: as the API server]
    #[arg(long, value_name = "VERSION", value_parser = kubelet_version)]
    pub kubelet: Option<KubeVersion>,
    /// API server that takes the manifest: v1.19 to v1.37, or `designs` [default: v1.37]
    #[arg(long, value_name = "VERSION")]
    pub apiserver: Option<ApiVersion>,
    /// Switches of the designs: SeccompConfigMaps=true, AppArmor=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Only containers of this name
    #[arg(long, short, value_name = "NAME")]
    pub container: Option<String>,
    /// The kubelet runs with --seccomp-default
    #[arg(long)]
    pub seccomp_default: bool,
    /// Output: table or json
    #[arg(long, short, value_enum, default_value_t = ExplainFormat::Table, value_name = "FORMAT", hide_possible_values = true)]
    pub output: ExplainFormat,
}

/// How `explain` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExplainFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// `palisade migrate`
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// Where to look.
    #[command(flatten)]
    pub input: InputArgs,
    /// Print the changes as a unified diff, and write nothing
    #[arg(long)]
    pub diff: bool,
    /// Write nothing; exit with 1 if something would change
    #[arg(long)]
    pub check: bool,
    /// Print no summary
    #[arg(long, short)]
    pub quiet: bool,
}

/// `palisade profile …`
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Find mistakes: syntax, unknown system calls, actions and architectures, what a kernel lacks
    Lint {
        /// Profiles (JSON), or manifests of ConfigMaps that hold some or of SeccompProfiles
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Kernel the profile must work on, such as 5.10
        #[arg(long, value_name = "VERSION")]
        kernel: Option<String>,
        /// Output: human, json, sarif, junit, github or name, each optionally =FILE
        #[arg(long, short, value_name = "FORMAT[=FILE]", value_delimiter = ',')]
        output: Vec<Output>,
    },
    /// Compare what two profiles do to every system call, with an example call for each difference
    Diff {
        /// The first profile
        #[arg(value_name = "OLD")]
        old: PathBuf,
        /// The second profile
        #[arg(value_name = "NEW")]
        new: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the SHA-256 of profiles, as the container status reports it and `sha256sum` prints it
    Hash {
        /// Profiles, or ConfigMap manifests that hold some
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

/// `palisade up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: std::net::SocketAddr,
    /// Where to write the administrator's kubeconfig [default: palisade.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Keep objects and keys here; every acknowledged write is durable. In memory if left out
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Behave exactly as this release, v1.19 to v1.37 [default: the designs]
    #[arg(long, value_name = "VERSION")]
    pub emulate_kubernetes: Option<Emulated>,
    /// Switches of the designs: SeccompConfigMaps=true, AppArmor=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Be an OpenShift cluster: security context constraints, namespace ranges, PSAEnforcementConfig and its rollout
    #[arg(long)]
    pub openshift: bool,
    /// How the rollout is run.
    #[command(flatten)]
    pub rollout: crate::commands::controller::RolloutRunArgs,
    /// Admission plugins to have besides those that are on anyway, such as one of OpenShift's alone
    #[arg(long, value_name = "PLUGIN", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to leave out
    #[arg(long, value_name = "PLUGIN", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// PodSecurityConfiguration, bare or in an AdmissionConfiguration; applied again when it changes
    #[arg(long, value_name = "FILE")]
    pub admission_config: Option<PathBuf>,
    /// Start with the objects of a dump such as `kubectl get -o yaml` writes; may be repeated
    #[arg(long, value_name = "FILE")]
    pub snapshot: Vec<PathBuf>,
    /// Write an audit log, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Run pods for real, on the container runtime of this machine (as root)
    #[arg(long)]
    pub node: bool,
    /// Which runtime.
    #[command(flatten)]
    pub runtime: crate::commands::node::RuntimeArgs,
}

/// The release an embedded server emulates; none means the designs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulated(pub Compat);

impl Default for Emulated {
    fn default() -> Self {
        Self(Compat::designs())
    }
}

impl std::fmt::Display for Emulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kubernetes {}", self.0.api)
    }
}

impl std::str::FromStr for Emulated {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<ApiVersion>() {
            Ok(ApiVersion(compat)) if !compat.is_designs() => Ok(Self(compat)),
            Ok(_) => Err("leave the option out for the designs".to_owned()),
            Err(error) => Err(error),
        }
    }
}

/// An API server: a release, or the designs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiVersion(pub Compat);

impl Default for ApiVersion {
    fn default() -> Self {
        Self(Compat::kubernetes(NEWEST_MINOR))
    }
}

impl std::str::FromStr for ApiVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "designs" || text == "extended" {
            return Ok(Self(Compat::designs()));
        }
        if text == "latest" {
            return Ok(Self::default());
        }
        let version: KubeVersion = text.parse().map_err(|error| format!("{error}, or `designs`"))?;
        if (OLDEST_MINOR..=NEWEST_MINOR).contains(&version.minor()) {
            Ok(Self(Compat::kubernetes(version.minor())))
        } else {
            Err(format!("only v1.{OLDEST_MINOR} to v1.{NEWEST_MINOR} are known, and `designs`"))
        }
    }
}

/// An edition of the standards that exists. Labels may name later ones, which mean the latest; whoever asks for one by name
/// should not get another.
pub(crate) fn policy_version(text: &str) -> Result<Version, String> {
    match text.parse::<Version>() {
        Ok(Version::Minor(minor)) if minor > u64::from(NEWEST_MINOR) => {
            Err(format!("only v1.0 to v1.{NEWEST_MINOR} are known, and latest"))
        }
        Ok(version) => Ok(version),
        Err(error) => Err(error.to_string()),
    }
}

/// The oldest kubelet that can be told of: the last one that knows seccomp annotations alone.
const OLDEST_KUBELET: u16 = 18;

fn kubelet_version(text: &str) -> Result<KubeVersion, String> {
    let version: KubeVersion = text.parse().map_err(|error: VersionError| error.to_string())?;
    if (OLDEST_KUBELET..=NEWEST_MINOR).contains(&version.minor()) {
        Ok(version)
    } else {
        Err(format!("only v1.{OLDEST_KUBELET} to v1.{NEWEST_MINOR} are known"))
    }
}

/// A switch of the designs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureGate {
    /// Seccomp profiles from ConfigMaps.
    SeccompConfigMaps(bool),
    /// AppArmor at all.
    AppArmor(bool),
    /// Enforced Pod Security in an OpenShift cluster: the break-glass of its rollout.
    OpenShiftPodSecurityAdmission(bool),
}

impl FeatureGate {
    /// Flips the switches.
    #[must_use]
    pub fn apply(gates: &[Self], mut compat: Compat) -> Compat {
        for gate in gates {
            match *gate {
                Self::SeccompConfigMaps(on) => compat.gates.seccomp_config_maps = on,
                Self::AppArmor(on) => compat.gates.app_armor = on,
                Self::OpenShiftPodSecurityAdmission(_) => {}
            }
        }
        compat
    }

    /// What was said about enforced Pod Security, if anything.
    #[must_use]
    pub fn enforcement(gates: &[Self]) -> Option<bool> {
        gates.iter().rev().find_map(|gate| match *gate {
            Self::OpenShiftPodSecurityAdmission(on) => Some(on),
            Self::SeccompConfigMaps(_) | Self::AppArmor(_) => None,
        })
    }
}

impl std::str::FromStr for FeatureGate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("write it as SeccompConfigMaps=true")?;
        let on = value.parse().map_err(|_| format!("{value:?} is neither true nor false"))?;
        match name {
            "SeccompConfigMaps" => Ok(Self::SeccompConfigMaps(on)),
            "AppArmor" => Ok(Self::AppArmor(on)),
            "OpenShiftPodSecurityAdmission" => Ok(Self::OpenShiftPodSecurityAdmission(on)),
            _ => Err("gates are SeccompConfigMaps, AppArmor and OpenShiftPodSecurityAdmission".to_owned()),
        }
    }
}
