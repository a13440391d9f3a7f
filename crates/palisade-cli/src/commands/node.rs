//! `palisade node`: the agent of a node that runs the pods of a cluster, and what it shares with `up --node`, `run` and
//! `verify`.
//!
//! The agent itself is `palisade-node`; here its settings are read and it is tied to a cluster.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use futures::StreamExt as _;
use palisade_apiserver::log_source::{LogAnswer, LogRequest, LogSource};
use palisade_base::version::KubeVersion;
use palisade_model::compat::Compat;
use palisade_node::{
    api::kube::KubeSource,
    cri::client::{EndpointError, Runtime},
    kernel::apparmor::load_profile,
    kubelet,
    logs::{LogOptions, pod_logs},
    node::{Node, NodeConfig},
};
use tokio::sync::mpsc;

use crate::{
    Exit,
    args::{Emulated, FeatureGate},
    cluster::ClusterArgs,
    commands::node_agent::{self, AgentArgs},
    service::{self, fail, stopped},
    terminal::Terminal,
};

/// Which runtime, and where the node keeps its things.
#[derive(Debug, Clone, Default, Args)]
pub struct RuntimeArgs {
    /// Socket of the container runtime [default: /run/containerd/containerd.sock]
    #[arg(long, value_name = "SOCKET")]
    pub runtime_endpoint: Option<String>,
    /// The node's folder: pods, logs, and the administrator's seccomp profiles in seccomp/ [default: /var/lib/palisade]
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,
    /// Deprecated: another folder for seccomp profiles than `seccomp` below the root-dir
    #[arg(long, value_name = "DIR")]
    pub seccomp_profile_root: Option<PathBuf>,
    /// Name of the node [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Address of the node that pods are told
    #[arg(long, value_name = "IP")]
    pub node_ip: Option<std::net::IpAddr>,
    /// Containers that name no seccomp profile get the runtime's default
    #[arg(long)]
    pub seccomp_default: bool,
    /// Load the AppArmor profiles of this file first; may be repeated
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
            || !self.load_apparmor_profile.is_empty()
    }

    /// Loads the AppArmor profiles that were named, or says why not.
    pub async fn load_profiles(&self) -> Result<(), String> {
        for file in &self.load_apparmor_profile {
            let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
            let text = std::fs::read_to_string(file).map_err(|error| fail(&error))?;
            load_profile(&text).await.map_err(|error| fail(&error))?;
        }
        Ok(())
    }

    /// The settings of the node, or what is wrong with them.
    pub fn config(&self, compat: Compat) -> Result<NodeConfig, String> {
        let minor = compat.kubelet.minor();
        if self.seccomp_profile_root.is_some() && compat.kubelet != KubeVersion::Designs && minor >= 23 {
            return Err(format!(
                "the kubelet of v1.{minor} has no --seccomp-profile-root: use <root-dir>/seccomp"
            ));
        }
        let mut config = NodeConfig {
            compat: Compat { seccomp_default: self.seccomp_default, ..compat },
            ..NodeConfig::default()
        };
        if let Some(endpoint) = &self.runtime_endpoint {
            config.runtime_endpoint.clone_from(endpoint);
        }
        let absolute = |folder: &PathBuf| {
            std::path::absolute(folder).map_err(|error| format!("{}: {error}", folder.display()))
        };
        if let Some(folder) = &self.root_dir {
            config.root_dir = absolute(folder)?;
        }
        config.seccomp_profile_root = self.seccomp_profile_root.as_ref().map(absolute).transpose()?;
        if let Some(name) = &self.node_name {
            config.node_name.clone_from(name);
        }
        if let Some(address) = self.node_ip {
            config.host_ip = address.to_string();
        }
        Runtime::check(&config.runtime_endpoint).map_err(|EndpointError { given }| {
            format!("--runtime-endpoint {given:?} is no Unix socket: write it as a path or as unix:///path")
        })?;
        Ok(config)
    }
}

/// What to look at when a runtime does not answer.
#[must_use]
pub fn runtime_away(why: &str) -> String {
    format!("{why}\n  = help: see that it runs, and that --runtime-endpoint is its CRI v1 socket")
}

/// What runs pods needs to be root: it mounts, and looks into other users' processes.
pub fn need_root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err("running pods takes root: it mounts volumes and reads what the kernel says about processes"
            .to_owned())
    }
}

/// `palisade node`
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// What the agent is
    #[arg(long, value_enum, default_value_t = Mode::KubeVersion, value_name = "MODE")]
    pub mode: Mode,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Which runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Behave exactly as the kubelet of this release, v1.19 to v1.37 [default: the designs]
    #[arg(long, value_name = "VERSION")]
    pub emulate_kubernetes: Option<Emulated>,
    /// Switches of the designs: SeccompConfigMaps=true, AppArmor=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Beside a kubelet.
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// What an agent on a node can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// In the place of a kubelet: it runs the pods of the node
    KubeVersion,
    /// Beside a kubelet: it puts seccomp profiles in place, verifies containers and reports
    Agent,
}

/// Runs until interrupted.
#[must_use]
pub fn run(args: &NodeArgs, terminal: &Terminal) -> Exit {
    service::run(terminal, serve(args, terminal))
}

async fn serve(args: &NodeArgs, terminal: &Terminal) -> Exit {
    let compat = FeatureGate::apply(&args.feature_gates, args.emulate_kubernetes.unwrap_or_default().0);
    let beside_a_kubelet = args.mode == Mode::Agent;
    let mut config = match args.runtime.config(compat) {
        Ok(config) => config,
        Err(why) => return fail(terminal, &why, Exit::Input),
    };
    if let Err(why) = need_root() {
        return fail(terminal, &why, Exit::Incomplete);
    }
    if beside_a_kubelet {
        // The kubelet's folder, not one of our own.
        if args.runtime.root_dir.is_none() {
            config.root_dir = PathBuf::from("/var/lib/kubelet");
        }
        if args.agent.prepare_only {
            return node_agent::prepare(&args.agent, &config, terminal);
        }
    }
    if let Err(why) = args.runtime.load_profiles().await {
        return fail(terminal, &why, Exit::Incomplete);
    }
    let client = match args.cluster.connect().await {
        Ok(client) => client,
        Err(why) => return fail(terminal, &why, Exit::Incomplete),
    };
    match args.mode {
        Mode::Agent => node_agent::serve(&args.agent, config, client, terminal).await,
        Mode::KubeVersion => match node(config, client) {
            Ok(node) => {
                let (name, endpoint) = (&node.config.node_name, &node.config.runtime_endpoint);
                terminal.say(format!(
                    "node {name} runs its pods on {endpoint}; stop it with Ctrl-C, and they go on"
                ));
                kubelet::run(node, stopped()).await;
                Exit::Clean
            }
            Err(error) => fail(terminal, &error.to_string(), Exit::Input),
        },
    }
}

/// A node that runs the pods an API server gives it.
pub fn node(config: NodeConfig, client: kube::Client) -> Result<Node, EndpointError> {
    let source = KubeSource::new(client, &config.node_name);
    Node::new(config, Arc::new(source))
}

/// The logs of the node in this process.
pub struct NodeLogs {
    config: NodeConfig,
    runtime: Runtime,
}

impl NodeLogs {
    /// Of a node with these settings. Must be called inside a tokio runtime.
    pub fn new(config: NodeConfig) -> Result<Self, EndpointError> {
        let runtime = Runtime::new(&config.runtime_endpoint, config.runtime_timeout)?;
        Ok(Self { config, runtime })
    }
}

impl LogSource for NodeLogs {
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
            let mut pieces = pod_logs(config, runtime, &request.pod, &request.container, options).await?;
            let (sender, receiver) = mpsc::channel::<Bytes>(4);
            tokio::spawn(async move {
                loop {
                    tokio::select! {
                        // Whoever followed has gone.
                        () = sender.closed() => return,
                        piece = pieces.next() => match piece {
                            Some(Ok(piece)) => if sender.send(piece).await.is_err() { return },
                            Some(Err(error)) => {
                                tracing::warn!(%error, "log not read to its end");
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
