//! A cluster in process, with one node, for tests of the agent beside a kubelet.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::needless_pass_by_value,
    missing_docs,
    reason = "tests fail by panicking, and this is a part of them"
)]

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        events::v1::Event,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
};
use palisade_apiserver::{Router, Server};
use palisade_base::{metrics::Registry, sha256};
use palisade_node::{
    agent::{self, Settings, published_name},
    kernel::probe::NodeFeatures,
    node::NodeConfig,
    profiles::{baseline::Bounds, localhost::ProfileFolder},
};
use palisade_policy::resources::custom_resource_definitions;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{sync::oneshot, task::JoinHandle};
use tower::filter::Filter;

const SOON: Duration = Duration::from_mins(1);
pub const PROFILE: &str = r#"{ "defaultAction": "SCMP_ACT_ERRNO" }"#;
pub const OTHER_PROFILE: &str = r#"{"defaultAction":"SCMP_ACT_KILL"}"#;

pub struct World {
    pub client: Client,
    router: Router,
    /// While true, the agent does not reach the API server.
    pub away: Arc<AtomicBool>,
    /// A folder on a tmpfs, so that none needs to be mounted.
    pub root: TempDir,
    applied: Mutex<BTreeMap<String, String>>,
    combined: Mutex<BTreeMap<String, Option<String>>>,
}

pub struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    pub metrics: Arc<Registry>,
}

impl Running {
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.unwrap();
    }
}

pub fn kind(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: "palisade.dev".into(),
        version: "v1alpha1".into(),
        api_version: "palisade.dev/v1alpha1".into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

impl World {
    pub async fn new() -> Self {
        let router = Server::builder().disable_plugins(["ServiceAccount".to_owned()]).router().unwrap();
        let client = Client::new(router.clone(), "default");
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in custom_resource_definitions() {
            let definition = serde_json::from_value(definition).unwrap();
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        let node = json!({"metadata": {"name": "n1"}, "spec": {"taints": [
            {"key": "palisade.dev/profiles-not-ready", "effect": "NoSchedule"},
            {"key": "example.com/own", "effect": "NoSchedule"}]},
            "status": {"nodeInfo": {"kubeletVersion": "v1.31.2", "containerRuntimeVersion": "containerd://1.6.20"}}});
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let (applied, combined) = Default::default();
        Self { client, router, away: Arc::default(), root, applied, combined }
    }

    /// Starts the agent on a folder, a tmpfs of its own or one that is there, and a runtime.
    pub fn start_on(&self, root_dir: &Path, runtime_endpoint: &str, tmpfs_size: u64) -> Running {
        self.start_with_plugin(root_dir, runtime_endpoint, tmpfs_size, None)
    }

    /// The same, with the socket of the runtime for plugins.
    pub fn start_with_plugin(
        &self,
        root_dir: &Path,
        runtime_endpoint: &str,
        tmpfs_size: u64,
        nri_socket: Option<PathBuf>,
    ) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let node = NodeConfig {
            nri_socket,
            node_name: "n1".into(),
            root_dir: root_dir.into(),
            runtime_endpoint: runtime_endpoint.into(),
            runtime_timeout: Duration::from_secs(10),
            ..NodeConfig::default()
        };
        let settings =
            Settings { verify_every: Duration::from_millis(500), tmpfs_size, ..Settings::new(node) };
        let away = self.away.clone();
        let arrives = move |request: http::Request<kube::client::Body>| {
            if away.load(Ordering::Relaxed) {
                return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
            }
            Ok(request)
        };
        let client = Client::new(Filter::new(self.router.clone(), arrives), "default");
        let metrics = Arc::new(Registry::default());
        let shown = metrics.clone();
        let task = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            agent::run(settings, client, shown, shutdown).await.unwrap();
        });
        Running { stop, task, metrics }
    }

    /// Starts the agent without a runtime.
    pub fn start(&self) -> Running {
        self.start_on(self.root.path(), "/nonexistent/runtime.sock", 1 << 20)
    }

    pub fn profiles(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &kind("PublishedProfile", "publishedprofiles"))
    }

    pub async fn publish(&self, text: &str) -> String {
        let hash = sha256::hex(text.as_bytes());
        self.publish_as(&hash, text).await;
        hash
    }

    pub async fn publish_as(&self, hash: &str, text: &str) {
        self.combine(hash, text);
        let object = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "PublishedProfile",
            "metadata": {"name": hash}, "spec": {"profile": text}});
        let object = serde_json::from_value(object).unwrap();
        self.profiles().create(&PostParams::default(), &object).await.unwrap();
    }

    pub async fn put_pod(&self, name: &str, hash: &str) {
        let pod = json!({"metadata": {"name": name, "annotations": {
                "seccomp.palisade.dev/pod": format!("configmap/web/p.json@sha256:{hash}")}},
            "spec": {"nodeName": "n1", "securityContext": {"seccompProfile": {"type": "Localhost",
                "localhostProfile": published_name(hash)}}, "containers": [{"name": "c", "image": "i"}]}});
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    pub fn folder(&self) -> PathBuf {
        self.root.path().join("seccomp/palisade")
    }

    pub fn path(&self, hash: &str) -> PathBuf {
        self.folder().join(format!("{hash}.json"))
    }

    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder()).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    pub fn holds(&self, hash: &str) -> bool {
        let path = self.path(hash);
        path.symlink_metadata()
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o777 == 0o444)
            && fs::read(&path)
                .is_ok_and(|content| self.applied(hash).as_deref() == Some(&*sha256::hex(&content)))
    }

    /// The hash of what a node applies of a published profile: the profile and the default of the node's runtime.
    pub fn applied(&self, hash: &str) -> Option<String> {
        self.applied.lock().unwrap().get(hash).cloned()
    }

    fn combine(&self, hash: &str, text: &str) {
        // Blanks do not change what a profile means.
        let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let mut combined = self.combined.lock().unwrap();
        let applied = combined.entry(dense).or_insert_with(|| {
            let features = NodeFeatures {
                runtime_name: "containerd".into(),
                runtime_version: "1.6.20".into(),
                ..NodeFeatures::of_kernel(Path::new("/proc"), Path::new("/sys"))
            };
            let folder = ProfileFolder::new("/nonexistent");
            Bounds::of_node(&features).combine(text, &folder).ok().map(|combined| combined.sha256)
        });
        if let Some(applied) = applied {
            self.applied.lock().unwrap().insert(hash.to_owned(), applied.clone());
        }
    }

    pub async fn until_held(&self, hash: &str) {
        until("a profile in place", || async { self.holds(hash).then_some(()) }).await;
    }

    pub async fn status(&self) -> Option<Value> {
        let reports: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &kind("NodeSecurityReport", "nodesecurityreports"));
        reports.get_opt("n1").await.unwrap().map(|report| report.data["status"].clone())
    }

    pub async fn until_status(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        until(what, || async { self.status().await.filter(&holds) }).await
    }

    pub async fn events(&self) -> BTreeMap<String, usize> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let mut found = BTreeMap::new();
        for event in events.list(&ListParams::default()).await.unwrap() {
            *found.entry(event.reason.unwrap()).or_default() += 1;
        }
        found
    }
}

pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let looked = tokio::time::timeout(SOON, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    looked.await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// Status and reason of a condition; empty before the first report.
pub fn condition(status: &Value, kind: &str) -> String {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == kind);
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    found.map(|found| format!("{} {}", text(found, "status"), text(found, "reason"))).unwrap_or_default()
}
