//! `palisade node`: the agent of a node that runs the pods of a cluster, and what it shares with `up --node`, `run` and
//! `verify`.
//!
//! The agent itself is `palisade-node`; here its settings are read and it is tied to a cluster.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use futures::StreamExt as _;
use palisade_apiserver::{
    log_source::{LogAnswer, LogError, LogRequest, LogSource},
    stream_source::{self, StreamAddress, StreamAnswer, StreamRequest, StreamSource, StreamTarget},
};
use palisade_base::version::KubeVersion;
use palisade_model::compat::Compat;
use palisade_node::{
    api::kube::KubeSource,
    app_armor::{self, Host},
    cri::client::{EndpointError, Runtime},
    kernel::apparmor::{AppArmor, Parser, load_profile},
    kubelet,
    logs::{LogOptions, pod_logs},
    node::{Node, NodeConfig},
    streams::{self, StreamError},
};
use palisade_registry::Transport;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    args::{Emulated, FeatureGate},
    cluster::ClusterArgs,
    commands::node_agent::{self, AgentArgs},
    failure::{Exit, Failure},
    service::{self, stopped},
    terminal::Terminal,
};

/// Which runtime, and where the node keeps its things.
#[derive(Debug, Clone, Default, Args)]
pub struct RuntimeArgs {
    /// Socket of the container runtime [default: /run/containerd/containerd.sock]
    #[arg(long, value_name = "SOCKET")]
    pub runtime_endpoint: Option<String>,
    /// Folder of the node: pods, logs, and the administrator's seccomp profiles in seccomp/ [default: /var/lib/palisade]
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    /// Deprecated: folder of seccomp profiles [default: seccomp in the root directory]
    #[arg(long, value_name = "DIR")]
    pub seccomp_profile_root: Option<PathBuf>,
    /// Name of the node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Address of the node
    #[arg(long, value_name = "IP")]
    pub node_ip: Option<std::net::IpAddr>,
    /// Use the runtime's default seccomp profile for containers without one
    #[arg(long)]
    pub seccomp_default: bool,
    /// Socket of the container runtime for plugins (NRI), through which system call guards reach new containers, privileged ones
    /// included; containerd 2.2 and CRI-O 1.34 have it, usually at /var/run/nri/nri.sock
    #[arg(long, value_name = "SOCKET")]
    pub nri_socket: Option<PathBuf>,
    /// Reach registries of seccomp profiles on loopback addresses over plain HTTP
    #[arg(long)]
    pub plain_http: bool,
    /// Load the AppArmor profiles of this file at start; may be repeated
    #[arg(long, value_name = "FILE")]
    pub load_apparmor_profile: Vec<PathBuf>,
}

impl RuntimeArgs {
    /// Whether one of the options was given.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.runtime_endpoint.is_some()
            || self.root_dir.is_some()
            || self.seccomp_profile_root.is_some()
            || self.node_name.is_some()
            || self.node_ip.is_some()
            || self.seccomp_default
            || self.nri_socket.is_some()
            || self.plain_http
            || !self.load_apparmor_profile.is_empty()
    }

    /// Loads the AppArmor profiles that were named.
    pub async fn load_profiles(&self) -> Result<(), Failure> {
        for file in &self.load_apparmor_profile {
            let fail =
                |error: &dyn std::fmt::Display| Failure::incomplete(format!("{}: {error}", file.display()));
            let text = std::fs::read_to_string(file).map_err(|error| fail(&error))?;
            load_profile(&text).await.map_err(|error| fail(&error))?;
        }
        Ok(())
    }

    /// The settings of the node.
    pub fn config(&self, compat: Compat) -> Result<NodeConfig, Failure> {
        let minor = compat.kubelet.minor();
        if self.seccomp_profile_root.is_some() && compat.kubelet != KubeVersion::Designs && minor >= 23 {
            return Err(Failure::input(format!(
                "the kubelet of v1.{minor} has no --seccomp-profile-root: use <root-dir>/seccomp"
            )));
        }
        let mut config = NodeConfig {
            compat: Compat { seccomp_default: self.seccomp_default, ..compat },
            ..NodeConfig::default()
        };
        if let Some(endpoint) = &self.runtime_endpoint {
            config.runtime_endpoint.clone_from(endpoint);
        }
        let absolute =
            |folder: &PathBuf| std::path::absolute(folder).map_err(|error| Failure::file(folder, error));
        if let Some(folder) = &self.root_dir {
            config.root_dir = absolute(folder)?;
        }
        config.seccomp_profile_root = self.seccomp_profile_root.as_ref().map(absolute).transpose()?;
        config.nri_socket.clone_from(&self.nri_socket);
        if self.plain_http {
            config.registries = Transport::PlainHttpOnLoopback;
        }
        if let Some(name) = &self.node_name {
            config.node_name.clone_from(name);
        }
        if let Some(address) = self.node_ip {
            config.host_ip = address.to_string();
        }
        Runtime::check(&config.runtime_endpoint).map_err(|EndpointError { given }| {
            Failure::input(format!(
                "--runtime-endpoint {given:?} is not a Unix socket: write it as a path or as unix:///path"
            ))
        })?;
        Ok(config)
    }
}

/// The container runtime does not respond.
#[must_use]
pub fn runtime_away(error: impl std::fmt::Display) -> Failure {
    Failure::incomplete(format!(
        "{error}\n  = help: check that the runtime runs and that --runtime-endpoint is its CRI v1 socket"
    ))
}

/// What runs pods needs to be root: it mounts, and looks into other users' processes.
pub fn need_root() -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::incomplete(
        "root is required to run pods: volumes are mounted, and processes of other users are inspected",
    ))
}

/// `palisade node`
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Role of the process
    #[arg(long, value_enum, default_value_t = Mode::Kubelet, value_name = "MODE")]
    pub mode: Mode,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Which runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Behave exactly as the kubelet of this release, v1.19 to v1.37 [default: v1.37 with Palisade's extensions]
    #[arg(long, value_name = "VERSION")]
    pub emulate_kubernetes: Option<Emulated>,
    /// Feature gates: SeccompConfigMaps=true, AppArmor=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Beside a kubelet.
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// What an agent on a node can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// In place of a kubelet: runs the pods of the node
    Kubelet,
    /// Beside a kubelet: installs seccomp profiles, verifies containers and reports
    Agent,
}

/// Runs until interrupted.
pub fn run(args: &NodeArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    service::run(terminal, serve(args, terminal))
}

async fn serve(args: &NodeArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let compat = FeatureGate::apply(&args.feature_gates, args.emulate_kubernetes.unwrap_or_default().0);
    let beside_a_kubelet = args.mode == Mode::Agent;
    let mut config = args.runtime.config(compat)?;
    need_root()?;
    if beside_a_kubelet {
        // The kubelet's folder, not one of our own.
        if args.runtime.root_dir.is_none() {
            config.root_dir = PathBuf::from("/var/lib/kubelet");
        }
        if args.agent.prepare_only {
            return node_agent::prepare(&args.agent, &config);
        }
    }
    args.runtime.load_profiles().await?;
    let client = args.cluster.connect().await?.client;
    if beside_a_kubelet {
        return node_agent::serve(&args.agent, config, client, terminal).await;
    }
    let _profiles = keep_app_armor(&config, &client);
    let node = node(config, client).map_err(Failure::input)?;
    let (name, endpoint) = (&node.config.node_name, &node.config.runtime_endpoint);
    terminal.report(format!(
        "node {name} runs its pods on {endpoint}; they keep running when you stop it with Ctrl-C"
    ));
    kubelet::run(node, stopped()).await;
    Ok(Exit::Clean)
}

/// Loads the AppArmor profiles of namespaces for as long as the result is kept, where the kernel has AppArmor and the API server
/// may have such profiles.
#[must_use]
pub fn keep_app_armor(config: &NodeConfig, client: &kube::Client) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let app_armor = AppArmor::below(&config.sys);
    if config.compat.is_designs() && app_armor.is_enabled() {
        let host = Host { app_armor, parser: Parser::below(None), proc: config.proc.clone() };
        tasks.spawn(app_armor::keep(client.clone(), config.node_name.clone(), host));
    }
    tasks
}

/// A node that runs the pods an API server gives it.
pub fn node(config: NodeConfig, client: kube::Client) -> Result<Node, EndpointError> {
    let source = KubeSource::new(client, &config.node_name);
    Node::new(config, Arc::new(source))
}

/// The containers of the node in this process, as the API server needs them: their logs, and streams into them.
pub struct NodeContainers {
    config: NodeConfig,
    runtime: Runtime,
}

impl NodeContainers {
    /// Of a node with these settings. Must be called inside a tokio runtime.
    pub fn new(config: NodeConfig) -> Result<Self, EndpointError> {
        let runtime = Runtime::new(&config.runtime_endpoint, config.runtime_timeout)?;
        Ok(Self { config, runtime })
    }
}

impl LogSource for NodeContainers {
    fn serves(&self, node: &str) -> bool {
        node == self.config.node_name
    }

    fn open(&self, request: LogRequest) -> LogAnswer<'_> {
        Box::pin(async move {
            let options = LogOptions {
                follow: request.follow,
                previous: request.previous,
                tail_lines: request.tail_lines,
                since: request.since,
                timestamps: request.timestamps,
                limit_bytes: request.limit_bytes,
            };
            let (config, runtime) = (&self.config, &self.runtime);
            let opened = pod_logs(config, runtime, &request.pod, &request.container, options).await;
            let mut pieces = opened.map_err(|error| LogError(error.to_string()))?;
            let (sender, receiver) = mpsc::channel::<Bytes>(4);
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        // The client has disconnected.
                        () = sender.closed() => return,
                        piece = pieces.next() => match piece {
                            Some(Ok(piece)) => if sender.send(piece).await.is_err() { return },
                            Some(Err(error)) => {
                                tracing::warn!(%error, "cannot read the log to its end");
                                return;
                            }
                            None => return,
                        },
                    }
                }
            });
            Ok(receiver)
        })
    }
}

impl StreamSource for NodeContainers {
    fn serves(&self, node: &str) -> bool {
        node == self.config.node_name
    }

    fn open(&self, StreamRequest { pod, target }: StreamRequest) -> StreamAnswer<'_> {
        Box::pin(async move {
            let opened = match target {
                StreamTarget::Exec { container, command, streams } => {
                    let url = streams::exec(&self.runtime, &pod, &container, command, to_node(streams)).await;
                    url.map(|url| (url, streams))
                }
                StreamTarget::Attach { container, streams } => {
                    let found = streams::attach(&self.runtime, &pod, &container, to_node(streams)).await;
                    found.map(|(url, found)| (url, from_node(found)))
                }
                StreamTarget::PortForward { ports } => {
                    let url = streams::port_forward(&self.runtime, &pod, &ports).await;
                    url.map(|url| (url, stream_source::Streams::default()))
                }
            };
            let (url, streams) = opened.map_err(|error| stream_error(&error))?;
            let uri = url.parse().map_err(|_| stream_source::StreamError {
                code: 500,
                message: "the container runtime returned an address that is no URL".to_owned(),
            })?;
            Ok(StreamAddress { uri, streams })
        })
    }
}

fn to_node(
    stream_source::Streams { stdin, stdout, stderr, tty }: stream_source::Streams,
) -> streams::Streams {
    streams::Streams { stdin, stdout, stderr, tty }
}

fn from_node(streams::Streams { stdin, stdout, stderr, tty }: streams::Streams) -> stream_source::Streams {
    stream_source::Streams { stdin, stdout, stderr, tty }
}

/// The kubelet's status for what a runtime returns.
fn stream_error(error: &StreamError) -> stream_source::StreamError {
    let code = match error {
        StreamError::Runtime(error) if error.is_not_found() => 404,
        _ => 500,
    };
    stream_source::StreamError { code, message: error.to_string() }
}
