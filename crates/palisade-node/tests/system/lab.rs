//! A node on a containerd of the test's own.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use palisade_model::compat::Compat;
use palisade_node::{
    api::{ConfigMap, local::LocalSource},
    kernel::process::ProcessSecurity,
    kubelet,
    node::{Node, NodeConfig},
    pod::RunPod,
    verify,
};
use palisade_testkit::containerd::Containerd;
pub(crate) use palisade_testkit::containerd::{IMAGE, IMAGE_NAMED, IMAGE_UID};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A node with its agent, and the objects it works on.
pub(crate) struct Lab {
    pub(crate) source: LocalSource,
    pub(crate) node: Node,
    pub(crate) root: PathBuf,
    agent: Option<tokio::task::JoinHandle<()>>,
    pub(crate) containerd: Containerd,
    pub(crate) folder: TempDir,
}

/// Far more than anything takes: machines that build beside it are slow.
const PATIENCE: Duration = Duration::from_mins(2);

/// The designs with their gate open.
pub(crate) fn designs() -> Compat {
    let mut compat = Compat::designs();
    compat.gates.seccomp_config_maps = true;
    compat
}

impl Lab {
    pub(crate) fn new(compat: Compat) -> Self {
        Self::with_runc(compat, |_| None)
    }

    /// On a containerd whose plugins may adjust containers; none without the folder that has it.
    pub(crate) fn with_plugins(compat: Compat) -> Option<Self> {
        let packed = palisade_testkit::shared("kubernetes/containerd-2.3")?;
        Some(Self::on(compat, |folder| Containerd::start_with_plugins(folder, &packed)))
    }

    pub(crate) fn with_runc(compat: Compat, runc: impl FnOnce(&Path) -> Option<PathBuf>) -> Self {
        Self::on(compat, |folder| {
            let wrapper = runc(folder);
            Containerd::start(folder, wrapper.as_deref())
        })
    }

    /// With other settings.
    pub(crate) fn with_config(compat: Compat, change: impl FnOnce(NodeConfig) -> NodeConfig) -> Self {
        Self::set_up(compat, |folder| Containerd::start(folder, None), change)
    }

    fn on(compat: Compat, start: impl FnOnce(&Path) -> Containerd) -> Self {
        Self::set_up(compat, start, |config| config)
    }

    fn set_up(
        compat: Compat,
        start: impl FnOnce(&Path) -> Containerd,
        change: impl FnOnce(NodeConfig) -> NodeConfig,
    ) -> Self {
        if std::env::var_os("PALISADE_TEST_LOG").is_some() {
            tracing_subscriber::fmt()
                .with_env_filter("palisade_node=debug")
                .with_target(false)
                .try_init()
                .ok();
        }
        let folder = tempfile::Builder::new().prefix("pal").tempdir_in("/tmp").unwrap();
        let containerd = start(folder.path());
        let root = folder.path().join("agent");
        fs::create_dir_all(root.join("seccomp/dir.json")).unwrap();
        for (name, content) in [
            ("ok.json", DENY_MKDIR),
            ("badjson.json", "{ not json"),
            ("badaction.json", r#"{"defaultAction":"SCMP_ACT_NOPE"}"#),
            (
                "badcall.json",
                r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["nosuchcall"],"action":"SCMP_ACT_ERRNO"}]}"#,
            ),
            ("denyall.json", r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#),
            ("empty.json", ""),
        ] {
            fs::write(root.join("seccomp").join(name), content).unwrap();
        }
        let source = LocalSource::default();
        let config = NodeConfig {
            node_name: "lab".to_owned(),
            runtime_endpoint: containerd.socket.display().to_string(),
            runtime_timeout: Duration::from_mins(1),
            root_dir: root.clone(),
            compat,
            ..NodeConfig::default()
        };
        let node = Node::new(change(config), Arc::new(source.clone())).unwrap();
        let mut lab = Self { source, node, root, agent: None, containerd, folder };
        lab.start_agent();
        lab
    }

    pub(crate) fn start_agent(&mut self) {
        self.agent = Some(tokio::spawn(kubelet::run(self.node.clone(), std::future::pending())));
    }

    /// Ends the agent without a word to its pods.
    pub(crate) async fn stop_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.abort();
            agent.await.ok();
        }
    }

    pub(crate) fn apply(&self, pod: Value) -> RunPod {
        let pod = RunPod::from_object(pod).unwrap();
        self.source.apply(&pod);
        pod
    }

    pub(crate) fn put_profile(&self, name: &str, key: &str, text: &str) {
        let mut map = ConfigMap::default();
        map.data.insert(key.to_owned(), text.to_owned());
        self.source.put_config_map("default", name, map);
    }

    pub(crate) fn status(&self, pod: &RunPod) -> Value {
        self.source.status(&pod.key.uid).unwrap_or(Value::Null)
    }

    /// Waits until the pod's status is as wanted.
    pub(crate) async fn until(&self, pod: &RunPod, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status(pod);
            if wanted(&status) {
                return status;
            }
            if Instant::now() > deadline {
                let events: Vec<_> = self
                    .source
                    .events(&pod.key.uid)
                    .into_iter()
                    .map(|event| {
                        format!(
                            "{} {} x{}: {}",
                            event.kind.as_str(),
                            event.reason,
                            event.count,
                            event.message
                        )
                    })
                    .collect();
                panic!("{}: never {what}: {status:#}\n{}", pod.key, events.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn until_running(&self, pod: &RunPod) -> Value {
        self.until(pod, "running", |status| {
            let all = status["containerStatuses"].as_array();
            all.is_some_and(|all| all.iter().all(|one| one["state"]["running"].is_object()))
        })
        .await
    }

    pub(crate) async fn until_waiting(&self, pod: &RunPod, reason: &str) -> Value {
        self.until(pod, reason, |status| waiting(status)["reason"] == reason).await
    }

    pub(crate) async fn until_phase(&self, pod: &RunPod, phase: &str) -> Value {
        self.until(pod, phase, |status| status["phase"] == phase).await
    }

    pub(crate) async fn delete(&self, pod: &RunPod) {
        self.source.delete(&pod.key.uid, Some(0));
        self.until_gone(pod).await;
    }

    pub(crate) async fn until_gone(&self, pod: &RunPod) {
        let deadline = Instant::now() + PATIENCE;
        while self.source.has_pod(&pod.key.uid) {
            assert!(Instant::now() < deadline, "{} is never gone", pod.key);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The kernel's state of a container.
    pub(crate) async fn kernel(&self, pod: &RunPod, container: &str) -> ProcessSecurity {
        let pid = self.pid(pod, container).await;
        ProcessSecurity::read(Path::new("/proc"), pid).unwrap()
    }

    pub(crate) async fn pid(&self, pod: &RunPod, container: &str) -> u32 {
        self.find_pid(pod, container).await.expect("the container runs")
    }

    pub(crate) async fn find_pid(&self, pod: &RunPod, container: &str) -> Option<u32> {
        let observed =
            palisade_node::runner::observed::Observed::of_pod(&self.node.runtime, &pod.key.uid).await.ok()?;
        let run = observed.latest(container)?;
        verify::container_pid(&self.node.runtime, &run.id).await.ok()?
    }

    pub(crate) async fn container_id(&self, pod: &RunPod, container: &str) -> String {
        let observed = palisade_node::runner::observed::Observed::of_pod(&self.node.runtime, &pod.key.uid)
            .await
            .unwrap();
        observed.latest(container).expect("the container has run").id.clone()
    }

    /// Runs a command in a container: exit code and output.
    pub(crate) async fn exec(&self, pod: &RunPod, container: &str, command: &str) -> (i32, String) {
        let id = self.container_id(pod, container).await;
        let answer =
            self.node.runtime.exec_sync(&id, &["sh", "-c", command], Duration::from_secs(10)).await.unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
        (answer.exit_code, text)
    }

    pub(crate) fn events(&self, pod: &RunPod) -> Vec<(String, String, String)> {
        let events = self.source.events(&pod.key.uid).into_iter();
        events.map(|event| (event.kind.as_str().to_owned(), event.reason, event.message)).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.abort();
        }
    }
}

/// Denies mkdir and allows the rest.
pub(crate) const DENY_MKDIR: &str = r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}"#;

pub(crate) fn waiting(status: &Value) -> Value {
    status["containerStatuses"][0]["state"]["waiting"].clone()
}

/// A pod of one container that sleeps.
pub(crate) fn sleeper(name: &str, pod_context: Value, context: Value) -> Value {
    pod(name, pod_context, context, "trap 'exit 0' TERM; sleep 600 & wait")
}

pub(crate) fn pod(name: &str, pod_context: Value, context: Value, script: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"hostNetwork": true, "terminationGracePeriodSeconds": 1, "securityContext": pod_context, "containers": [
            {"name": "c", "image": IMAGE, "command": ["sh", "-c", script], "securityContext": context}]}})
}
