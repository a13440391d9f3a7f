//! What every part of the agent shares: the node's settings, its runtime, and the API it reports to.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use palisade_model::compat::Compat;
use palisade_registry::Transport;

use crate::{
    api::PodSource,
    cri::client::{DEFAULT_ENDPOINT, DEFAULT_TIMEOUT, EndpointError, Runtime},
    events::Recorder,
    guards::Guards,
    kernel::{apparmor::AppArmor, probe::NodeFeatures},
    node_object::storage,
    profiles::{artifacts::Artifacts, localhost::ProfileFolder},
    recording::Recordings,
    runner::{allocations::Allocations, environment::Allocatable, id_ranges::IdRanges},
};

/// The node's settings. [`NodeConfig::default`] is a node for `palisade run`.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The node's name.
    pub node_name: String,
    /// The node's address.
    pub host_ip: String,
    /// The runtime's socket.
    pub runtime_endpoint: String,
    /// How long a call to the runtime may take.
    pub runtime_timeout: Duration,
    /// The agent's folder: pods, their volumes, and `seccomp/`.
    pub root_dir: PathBuf,
    /// The folder of container logs; below the agent's folder unless set.
    pub log_dir: Option<PathBuf>,
    /// The deprecated flag: another folder for seccomp profiles.
    pub seccomp_profile_root: Option<PathBuf>,
    /// Whose rules apply.
    pub compat: Compat,
    /// Whose pods these are: two agents on one runtime leave each other's alone.
    pub manager: String,
    /// How often changes are read from the runtime.
    pub relist: Duration,
    /// The kernel's view of processes.
    pub proc: PathBuf,
    /// The kernel's view of itself.
    pub sys: PathBuf,
    /// Where the runtime has its socket for plugins, if guards are to be applied by one.
    pub nri_socket: Option<PathBuf>,
    /// A process of the node itself; this one, unless it is in a container, where it has namespaces and capabilities of
    /// its own and the node's first process must be read.
    pub host_process: Option<u32>,
    /// How registries of seccomp profiles are reached.
    pub registries: Transport,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            node_name: host_name(),
            host_ip: "127.0.0.1".to_owned(),
            runtime_endpoint: DEFAULT_ENDPOINT.to_owned(),
            runtime_timeout: DEFAULT_TIMEOUT,
            root_dir: PathBuf::from("/var/lib/palisade"),
            log_dir: None,
            seccomp_profile_root: None,
            compat: Compat::designs(),
            manager: "palisade-node".to_owned(),
            relist: Duration::from_secs(1),
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
            nri_socket: None,
            host_process: None,
            registries: Transport::default(),
        }
    }
}

/// The host's name, as kubelets use it for their node.
#[must_use]
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().trim().to_ascii_lowercase();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

impl NodeConfig {
    /// The folder of container logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.log_dir.clone().unwrap_or_else(|| self.root_dir.join("logs"))
    }

    /// The folder of the node's seccomp profiles.
    #[must_use]
    pub fn profile_folder(&self) -> ProfileFolder {
        ProfileFolder::new(self.seccomp_profile_root.clone().unwrap_or_else(|| self.root_dir.join("seccomp")))
    }

    /// Warnings about the settings.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.seccomp_profile_root
            .iter()
            .map(|_| {
                "Flag --seccomp-profile-root has been deprecated, will be removed in 1.23, in favor of using the \
                 `<root-dir>/seccomp` directory"
                    .to_owned()
            })
            .collect()
    }
}

/// A node at work.
#[derive(Clone)]
pub struct Node {
    /// Its settings.
    pub config: Arc<NodeConfig>,
    /// Its runtime.
    pub runtime: Runtime,
    /// The API.
    pub source: Arc<dyn PodSource>,
    /// Events about pods.
    pub recorder: Recorder,
    /// Whose calls are recorded.
    pub recordings: Recordings,
    /// AppArmor on the host.
    pub app_armor: AppArmor,
    /// System calls that its containers may not make.
    pub guards: Arc<Guards>,
    /// What its pods have been given of it.
    pub(crate) allocations: Allocations,
    /// The ids of pods with a user namespace of their own.
    pub(crate) id_ranges: IdRanges,
    /// Its profiles from registries.
    pub(crate) artifacts: Arc<Artifacts>,
    features: Arc<RwLock<NodeFeatures>>,
    memory: i64,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Node {
    /// A node; nothing is started or connected yet. Must be called inside a tokio runtime.
    pub fn new(config: NodeConfig, source: Arc<dyn PodSource>) -> Result<Self, EndpointError> {
        let runtime = Runtime::new(&config.runtime_endpoint, config.runtime_timeout)?;
        let features = NodeFeatures::of_kernel(&config.proc, &config.sys);
        Ok(Self {
            runtime,
            recorder: Recorder::new(Arc::clone(&source)),
            source,
            recordings: Recordings::below(&config.root_dir),
            app_armor: AppArmor::below(&config.sys),
            guards: Arc::default(),
            allocations: Allocations::default(),
            id_ranges: IdRanges::below(&config.root_dir),
            artifacts: Arc::new(Artifacts::new(config.registries)),
            features: Arc::new(RwLock::new(features)),
            memory: total_memory(&config.proc),
            config: Arc::new(config),
        })
    }

    /// What the node supports, as last read.
    #[must_use]
    pub fn features(&self) -> NodeFeatures {
        self.features.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Queries kernel and runtime again; whether the runtime answered.
    pub async fn refresh_features(&self) -> bool {
        let mut fresh = NodeFeatures::of_kernel(&self.config.proc, &self.config.sys);
        let answered = fresh.query_runtime(&self.runtime).await.is_ok();
        if !answered {
            // What it reported before still holds; the node's condition shows that it is away.
            let known = self.features();
            fresh = NodeFeatures {
                kernel: fresh.kernel,
                seccomp_actions: fresh.seccomp_actions,
                app_armor: fresh.app_armor,
                selinux: fresh.selinux,
                ..known
            };
        }
        *self.features.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        answered
    }

    /// What the node has for pods.
    #[must_use]
    pub fn allocatable(&self) -> Allocatable {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        // swallowed: a size that no number holds is no limit
        let size = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Allocatable {
            cpu: i64::try_from(cpus).unwrap_or(i64::MAX).saturating_mul(1000),
            memory: self.memory,
            ephemeral_storage: storage(&self.config.root_dir).map_or(0, size),
        }
    }

    /// Memory of the node, in bytes.
    #[must_use]
    pub const fn memory(&self) -> i64 {
        self.memory
    }
}

fn total_memory(proc: &std::path::Path) -> i64 {
    let text = std::fs::read_to_string(proc.join("meminfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
    kilobytes.unwrap_or_default().saturating_mul(1024)
}
