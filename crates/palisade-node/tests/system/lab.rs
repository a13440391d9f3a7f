//! A containerd of the test's own, and a node on it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use palisade_model::compat::Compat;
use palisade_node::{
    agent,
    api::{ConfigMap, local::LocalSource},
    cri::client::Runtime,
    kernel::process::ProcessSecurity,
    node::{Node, NodeConfig},
    pod::RunPod,
    verify,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::images;

/// The image of every test that does not say otherwise.
pub(crate) const IMAGE: &str = "localhost/busybox:1";
/// An image whose user is a number.
pub(crate) const IMAGE_UID: &str = "localhost/busybox-uid:1";
/// An image whose user is a name.
pub(crate) const IMAGE_NAMED: &str = "localhost/busybox-named:1";
const PAUSE: &str = "localhost/pause:1";

/// A containerd process.
pub(crate) struct Containerd {
    pub(crate) folder: PathBuf,
    pub(crate) socket: PathBuf,
    child: Option<Child>,
}

impl Containerd {
    /// Starts one below `folder`; `runc` may be a wrapper.
    pub(crate) fn start(folder: &Path, runc: Option<&Path>) -> Self {
        assert!(rustix::process::geteuid().is_root(), "the system tests need root");
        for program in ["containerd", "runc", "ctr", "tar"] {
            let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
            assert!(
                found.status.success(),
                "{program} is missing: apt-get install --no-install-recommends containerd runc busybox-static containernetworking-plugins"
            );
        }
        let cni = folder.join("cni");
        fs::create_dir_all(&cni).unwrap();
        // A pod without hostNetwork gets a network of its own that leads to this machine and nowhere else.
        let network = serde_json::json!({"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "ptp",
            "ipam": {"type": "host-local", "subnet": "10.231.0.0/16", "dataDir": folder.join("addresses")}}]});
        fs::write(cni.join("10-lab.conflist"), network.to_string()).unwrap();
        let socket = folder.join("c.sock");
        let runc = runc.map_or_else(|| "runc".to_owned(), |path| path.display().to_string());
        let config = format!(
            r#"version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      Root = "{runc_root}"
"#,
            root = folder.join("root").display(),
            state = folder.join("state").display(),
            socket = socket.display(),
            cni = cni.display(),
            runc_root = folder.join("runc").display(),
        );
        fs::write(folder.join("config.toml"), config).unwrap();
        let mut containerd = Self { folder: folder.to_owned(), socket, child: None };
        containerd.spawn();
        for (name, user, command) in [
            (IMAGE, "", &["sh"][..]),
            (IMAGE_UID, "1234:5678", &["sh"]),
            (IMAGE_NAMED, "web", &["sh"]),
            (PAUSE, "", &["sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"]),
        ] {
            let archive = images::archive(folder, name, user, command);
            images::run(
                Command::new("ctr")
                    .arg("-a")
                    .arg(&containerd.socket)
                    .args(["-n", "k8s.io", "images", "import"])
                    .arg(&archive),
            );
        }
        containerd
    }

    fn spawn(&mut self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("containerd.log"))
            .unwrap();
        let child = Command::new("containerd")
            .arg("--config")
            .arg(self.folder.join("config.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let up = Command::new("ctr").arg("-a").arg(&self.socket).arg("version").output().unwrap();
            if up.status.success() {
                return;
            }
            assert!(Instant::now() < deadline, "containerd does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("containerd.log")).unwrap_or_default()
    }

    /// Stops the daemon; containers go on.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts the daemon again.
    pub(crate) fn start_again(&mut self) {
        self.spawn();
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if self.child.is_none() {
            return;
        }
        // Nothing may be left on the machine, whatever the test did.
        let runtime_socket = self.socket.display().to_string();
        let cleaned = std::thread::spawn(move || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(async {
                let runtime = Runtime::new(&runtime_socket, Duration::from_secs(20)).unwrap();
                for sandbox in runtime.list_pod_sandboxes(&[]).await.unwrap_or_default() {
                    runtime.stop_pod_sandbox(&sandbox.id).await.ok();
                    runtime.remove_pod_sandbox(&sandbox.id).await.ok();
                }
            });
        });
        cleaned.join().ok();
        self.stop();
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        for point in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)) {
            if Path::new(point).starts_with(&self.folder) {
                rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).ok();
            }
        }
    }
}

/// A node with its agent, and the objects it works on.
pub(crate) struct Lab {
    pub(crate) source: LocalSource,
    pub(crate) node: Node,
    pub(crate) root: PathBuf,
    agent: Option<tokio::task::JoinHandle<()>>,
    pub(crate) containerd: Containerd,
    pub(crate) folder: TempDir,
}

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

    pub(crate) fn with_runc(compat: Compat, runc: impl FnOnce(&Path) -> Option<PathBuf>) -> Self {
        if std::env::var_os("PALISADE_TEST_LOG").is_some() {
            tracing_subscriber::fmt()
                .with_env_filter("palisade_node=debug")
                .with_target(false)
                .try_init()
                .ok();
        }
        let folder = tempfile::Builder::new().prefix("pal").tempdir_in("/tmp").unwrap();
        let wrapper = runc(folder.path());
        let containerd = Containerd::start(folder.path(), wrapper.as_deref());
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
        let node = Node::new(config, Arc::new(source.clone())).unwrap();
        let mut lab = Self { source, node, root, agent: None, containerd, folder };
        lab.start_agent();
        lab
    }

    pub(crate) fn start_agent(&mut self) {
        self.agent = Some(tokio::spawn(agent::run(self.node.clone(), std::future::pending())));
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
        let deadline = Instant::now() + Duration::from_mins(1);
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
        let deadline = Instant::now() + Duration::from_mins(1);
        while self.source.has_pod(&pod.key.uid) {
            assert!(Instant::now() < deadline, "{} is never gone", pod.key);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What the kernel says about a container.
    pub(crate) async fn kernel(&self, pod: &RunPod, container: &str) -> ProcessSecurity {
        let pid = self.pid(pod, container).await;
        ProcessSecurity::read(Path::new("/proc"), pid).unwrap()
    }

    pub(crate) async fn pid(&self, pod: &RunPod, container: &str) -> u32 {
        let observed = palisade_node::runner::observed::Observed::of_pod(&self.node.runtime, &pod.key.uid)
            .await
            .unwrap();
        let run = observed.latest(container).expect("the container has run");
        verify::container_pid(&self.node.runtime, &run.id).await.unwrap().expect("the container runs")
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
