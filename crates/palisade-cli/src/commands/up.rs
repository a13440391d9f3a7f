//! `palisade up`: the embedded API server, until SIGTERM or Ctrl-C, or until the command that it runs ends.
//!
//! The server itself is `palisade-apiserver`; here its options are read, its place is announced, and its Pod Security
//! configuration is kept up to date with its file.

mod announcement;
mod guest;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use palisade_admission::configuration::PodSecurityConfiguration;
use palisade_apiserver::{Server, auth::UserInfo, pod_security::PodSecurityPlugin, server::SnapshotReport};
use palisade_controllers::{
    api::Api,
    config_observer, crds,
    runner::{Options, ROLLOUT},
    workloads::{
        self,
        selection::{Selection, is_about},
    },
};
use palisade_model::compat::Compat;
use palisade_node::{kubelet, node::NodeConfig};
use palisade_policy::{
    enforcement::{level::LevelSource, platform::Platform},
    standards::policy::{Exemptions, Policy},
};
use palisade_serve::file_watch;
use palisade_yaml::{Limits, parse};
use serde_json::Value;
use thiserror::Error;

use crate::{
    args::{Emulated, FeatureGate},
    commands::{
        controller::RolloutRunArgs,
        node::{self, NodeContainers, RuntimeArgs},
        openshift::Rollout,
    },
    failure::{Exit, Failure},
    service::{self, stopped},
    terminal::Terminal,
};

use self::{
    announcement::{Announcement, absolute},
    guest::Guest,
};

/// `palisade up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub listen: std::net::SocketAddr,
    /// File for the administrator's kubeconfig [default: palisade.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Folder for objects and keys; every acknowledged write is durable [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Behave exactly as this release, v1.19 to v1.37 [default: v1.37 with Palisade's extensions]
    #[arg(long, value_name = "VERSION")]
    pub emulate_kubernetes: Option<Emulated>,
    /// Feature gates: SeccompConfigMaps=true, SecurityProfileOCIArtifact=true, AppArmor=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Behave as an OpenShift cluster: security context constraints, namespace ranges, PSAEnforcementConfig and its rollout
    #[arg(long)]
    pub openshift: bool,
    /// Options of the rollout.
    #[command(flatten)]
    pub rollout: RolloutRunArgs,
    /// Admission plugins to enable in addition to the default ones, such as a single one of OpenShift
    #[arg(long, value_name = "PLUGIN", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable
    #[arg(long, value_name = "PLUGIN", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// PodSecurityConfiguration, bare or in an AdmissionConfiguration; reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub admission_config: Option<PathBuf>,
    /// Load the objects of a dump, such as the output of `kubectl get -o yaml`; may be repeated
    #[arg(long, value_name = "FILE")]
    pub snapshot: Vec<PathBuf>,
    /// Write an audit log with one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Run the pods on the container runtime of this machine (requires root)
    #[arg(long)]
    pub node: bool,
    /// Which runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Run a command with KUBECONFIG set once the server is ready, stop with it, and exit with its status
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Serves until interrupted, or until the command ends.
pub fn run(args: &UpArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    service::run(terminal, serve(args, terminal))
}

async fn serve(args: &UpArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    if args.runtime.is_given() && !args.node {
        return Err(Failure::input("the options of the node require --node"));
    }
    let (selection, rollout_args) = split_controllers(&args.rollout, !args.snapshot.is_empty());
    let has_rollout = args.openshift || rollout_args.is_given();
    let rollout = rollout_args.options(&args.feature_gates, &ROLLOUT)?;
    let follows = rollout.controllers.contains(config_observer::apply::NAME);
    if has_rollout && follows && args.admission_config.is_some() {
        return Err(Failure::input(
            "--admission-config conflicts with the config observer, which writes the same configuration: omit it, or set \
             --controllers without config-observer",
        ));
    }
    let compat = FeatureGate::apply(&args.feature_gates, args.emulate_kubernetes.unwrap_or_default().0);
    let own_folder = if args.command.is_empty() || args.kubeconfig.is_some() {
        None
    } else {
        // Several commands may run at once in one folder: each has a kubeconfig of its own.
        let folder = tempfile::Builder::new().prefix("palisade-up-").tempdir();
        Some(folder.map_err(|error| Failure::incomplete(format!("cannot make a folder: {error}")))?)
    };
    let kubeconfig = match (&args.kubeconfig, &own_folder) {
        (Some(file), _) => file.clone(),
        (None, Some(folder)) => folder.path().join("kubeconfig"),
        (None, None) => PathBuf::from("palisade.kubeconfig"),
    };
    let mut builder = Server::builder().listen(args.listen).kubeconfig(&kubeconfig);
    if let Some(Emulated(emulated)) = args.emulate_kubernetes {
        builder = builder.version(emulated.api);
    }
    builder = builder.compat(compat).disable_plugins(args.disable_admission_plugins.iter().cloned());
    builder = builder.openshift(args.openshift).enable_plugins(args.enable_admission_plugins.iter().cloned());
    if let Some(directory) = &args.data_dir {
        builder = builder.data_dir(directory);
    }
    if let Some(file) = &args.audit_log {
        builder = builder.audit_log(file);
    }
    for file in &args.snapshot {
        builder = builder.snapshot(file);
    }
    if let Some(file) = &args.admission_config {
        let (defaults, exemptions) = read_configuration(file)?;
        builder = builder.pod_security(defaults, exemptions);
    }
    let node = node_config(args, compat)?;
    if let Some(config) = &node {
        args.runtime.load_profiles().await?;
        let containers = Arc::new(NodeContainers::new(config.clone()).map_err(Failure::input)?);
        builder = builder.log_source(containers.clone()).stream_source(containers);
    }
    let server = builder.start().await.map_err(Failure::incomplete)?;
    for report in &server.snapshots {
        report_snapshot(report, terminal);
    }
    report_set_aside(&server, terminal);
    let levels = if args.openshift { LevelSource::Constraints } else { LevelSource::Workloads };
    // Whatever this server behaves as, nothing else sets its labels.
    let rollout = Options {
        compat: Some(compat),
        levels,
        platform: Some(Platform::Kubernetes),
        // This server applies them, unless it behaves as a release that has none.
        count_exceptions: compat.is_designs(),
        ..rollout
    };
    let mut controllers: Vec<&'static str> = selection.names().collect();
    if has_rollout {
        controllers.extend(&rollout.controllers);
    }
    let rollout = if has_rollout {
        if !args.openshift {
            let api = Api::new(kube::Client::new(server.router(), "default"));
            crds::install(&api, false).await.map_err(Failure::incomplete)?;
        }
        // Without an observer in this process there may be one elsewhere, unless a file decides.
        Some(Rollout::start(&server, rollout, args.admission_config.is_none()).await)
    } else {
        None
    };
    let announcement = Announcement {
        url: server.url(),
        release: args.emulate_kubernetes.unwrap_or_default().to_string(),
        extensions: compat.is_designs().then_some(compat.gates),
        openshift: args.openshift,
        node: node.as_ref().map(|config| (config.node_name.clone(), config.runtime_endpoint.clone())),
        controllers,
        data: args.data_dir.clone(),
        kubeconfig: kubeconfig.clone(),
    };
    terminal.report(announcement.to_string().trim_end());
    if args.command.is_empty() {
        terminal.report_text(&announcement.first_steps());
    }
    let reloading =
        args.admission_config.clone().map(|file| tokio::spawn(reload(file, server.api.pod_security.clone())));
    let client = kube::Client::new(server.router(), "default");
    let scheduling = tokio::spawn(palisade_controllers::scheduler::run(client.clone()));
    // Without Palisade's extensions there are neither guards nor recordings.
    let guarding = compat
        .is_designs()
        .then(|| tokio::spawn(palisade_controllers::guards::run(client.clone(), std::future::pending())));
    let recording = compat
        .is_designs()
        .then(|| tokio::spawn(palisade_controllers::recordings::run(client.clone(), std::future::pending())));
    let making_pods = (!selection.is_empty()).then(|| tokio::spawn(run_workloads(&server, selection)));
    let guest = Guest::start(&args.command, &absolute(&announcement.kubeconfig))?;
    let mut exit = Ok(Exit::Clean);
    let end = async {
        match guest {
            None => stopped().await,
            Some(guest) => exit = guest.ended().await,
        }
    };
    let _profiles = node.as_ref().map(|config| node::keep_app_armor(config, &client));
    match node.map(|config| node::node(config, client)).transpose().map_err(Failure::input)? {
        None => end.await,
        Some(node) => {
            kubelet::run(node.clone(), end).await;
            if args.data_dir.is_none() {
                // Their objects end with this process.
                terminal.report("stopping the pods of this node");
                kubelet::remove_pods(&node).await;
            }
        }
    }
    scheduling.abort();
    for task in [guarding, recording].into_iter().flatten() {
        task.abort();
    }
    if let Some(task) = making_pods {
        task.abort();
    }
    if let Some(rollout) = rollout {
        rollout.stop().await;
    }
    if let Some(task) = reloading {
        task.abort();
    }
    server.shutdown().await;
    Ok(exit?)
}

/// The controllers that make pods, and the options of the rollout without them: each group is chosen by its own names. The
/// objects of a snapshot stay as they are, unless controllers are named.
fn split_controllers(args: &RolloutRunArgs, has_snapshot: bool) -> (Selection, RolloutRunArgs) {
    let names = args.controllers.as_deref().unwrap_or_default();
    let (ours, others): (Vec<String>, Vec<String>) = names.iter().cloned().partition(|name| is_about(name));
    let selection = if ours.is_empty() && has_snapshot { Selection::none() } else { Selection::of(names) };
    let controllers = (!others.is_empty()).then_some(others);
    (selection, RolloutRunArgs { controllers, ..args.clone() })
}

/// Runs the controllers that make pods, each as the service account that it has in a cluster.
fn run_workloads(server: &Server, selection: Selection) -> impl Future<Output = ()> + Send + use<> {
    let router = server.router();
    let client = move |account: &str| match account {
        "" => kube::Client::new(router.clone(), "default"),
        name => {
            kube::Client::new(router.as_user(UserInfo::service_account("kube-system", name, "")), "default")
        }
    };
    workloads::run(client, selection)
}

/// Prints what of a snapshot is not there; nothing is left out silently.
fn report_snapshot(report: &SnapshotReport, terminal: &Terminal) {
    if report.is_complete() {
        return;
    }
    let path = report.path.display();
    for ((api_version, kind), count) in &report.unserved {
        terminal
            .report(format!("{path}: not loaded: {count} of {kind} ({api_version}): the kind is not served"));
    }
    for why in &report.rejected {
        terminal.report(format!("{path}: not loaded: {why}"));
    }
}

/// Prints how many records of the data directory cannot be read.
fn report_set_aside(server: &Server, terminal: &Terminal) {
    let records = server.api.store.set_aside();
    if !records.is_empty() {
        terminal.report(format!(
            "{} records of the data directory cannot be read and are set aside; list them with: kubectl get --raw \
             /palisade/set-aside",
            records.len()
        ));
    }
}

/// The settings of the node, if one is wanted, or why there can be none.
fn node_config(args: &UpArgs, compat: Compat) -> Result<Option<NodeConfig>, Failure> {
    if !args.node {
        return Ok(None);
    }
    let config = args.runtime.config(compat)?;
    node::need_root()?;
    Ok(Some(config))
}

/// Why a text is not a usable `PodSecurityConfiguration`.
#[derive(Debug, Error)]
pub enum ConfigurationError {
    /// It is not YAML.
    #[error("{0}")]
    Syntax(String),
    /// It is empty.
    #[error("the file is empty")]
    Empty,
    /// It has values that JSON does not.
    #[error(transparent)]
    Value(#[from] palisade_yaml::DeserializeError),
    /// It is an `AdmissionConfiguration` for other plugins.
    #[error("the AdmissionConfiguration has no configuration for the plugin PodSecurity")]
    NoPlugin,
}

/// Reads a `PodSecurityConfiguration` from a file.
fn read_configuration(file: &Path) -> Result<(Policy, Exemptions), Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::file(file, error))?;
    let value = pod_security_configuration(&text).map_err(|error| Failure::file(file, error))?;
    let configuration: PodSecurityConfiguration =
        serde_json::from_value(value).map_err(|error| Failure::file(file, error))?;
    configuration.resolve().map_err(|error| Failure::file(file, error))
}

/// The `PodSecurityConfiguration` in a text, bare or inside an `AdmissionConfiguration`.
pub fn pod_security_configuration(text: &str) -> Result<Value, ConfigurationError> {
    let parsed = parse(text, &Limits::default());
    if let Some(error) = parsed.errors.first() {
        return Err(ConfigurationError::Syntax(error.to_string()));
    }
    let document = parsed.documents.first().ok_or(ConfigurationError::Empty)?;
    let value = document.root().to_json()?;
    if value.get("kind").and_then(Value::as_str) != Some("AdmissionConfiguration") {
        return Ok(value);
    }
    let plugins = value.get("plugins").and_then(Value::as_array);
    let own = plugins
        .into_iter()
        .flatten()
        .find(|plugin| plugin.get("name").and_then(Value::as_str) == Some("PodSecurity"));
    own.and_then(|plugin| plugin.get("configuration")).cloned().ok_or(ConfigurationError::NoPlugin)
}

/// Applies the file again whenever it changes; a file that cannot be read changes nothing and is reported.
async fn reload(file: PathBuf, plugin: Arc<PodSecurityPlugin>) {
    file_watch::follow(std::slice::from_ref(&file), || {
        match read_configuration(&file) {
            Ok((defaults, exemptions)) => {
                plugin.configure(defaults, exemptions);
                tracing::info!(file = %file.display(), "Pod Security configuration applied");
            }
            Err(error) => {
                tracing::error!(%error, "Pod Security configuration not applied; the previous one stays in effect");
            }
        }
        true
    })
    .await;
}
