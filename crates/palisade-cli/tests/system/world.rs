//! A containerd, a `palisade up --node` on it, and kubectl.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) use palisade_testkit::command::output;
use palisade_testkit::{
    command::CommandOutput,
    containerd::{Containerd, runc_without_seccomp},
};
use serde_json::Value;
use tempfile::TempDir;

/// Denies mkdir and allows the rest.
pub(crate) const DENY_MKDIR: &str = r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}"#;

/// Far more than anything takes: machines that build beside it are slow.
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct World {
    up: Option<Child>,
    pub(crate) containerd: Containerd,
    pub(crate) folder: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_runc(|_| None)
    }

    pub(crate) fn without_seccomp() -> Self {
        Self::with_runc(|folder| Some(runc_without_seccomp(folder)))
    }

    fn with_runc(runc: impl FnOnce(&Path) -> Option<PathBuf>) -> Self {
        Self::on(|folder| Containerd::start(folder, runc(folder).as_deref()))
    }

    /// On a containerd 2.3, whose programs are packed in a folder.
    pub(crate) fn with_newer_containerd(packed: &Path) -> Self {
        Self::on(|folder| Containerd::start_with_plugins(folder, packed))
    }

    fn on(start: impl FnOnce(&Path) -> Containerd) -> Self {
        let folder = tempfile::Builder::new().prefix("pal").tempdir_in("/tmp").unwrap();
        let containerd = start(folder.path());
        fs::create_dir_all(folder.path().join("agent/seccomp")).unwrap();
        fs::write(folder.path().join("agent/seccomp/ok.json"), DENY_MKDIR).unwrap();
        Self { up: None, containerd, folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The binary, without the kubeconfig of the user who runs the tests.
    pub(crate) fn palisade(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command.args(arguments).env_remove("KUBECONFIG").env("HOME", self.folder.path());
        command
    }

    /// The same with this world's runtime and folder.
    pub(crate) fn on_node(&self, arguments: &[&str]) -> Command {
        let mut command = self.palisade(arguments);
        command
            .arg("--runtime-endpoint")
            .arg(&self.containerd.socket)
            .arg("--root-dir")
            .arg(self.path("agent"));
        command
    }

    /// Starts `palisade up --node` and waits until its node is ready.
    pub(crate) fn up(&mut self, arguments: &[&str]) {
        let mut command = self.on_node(&["up", "--node"]);
        command.args(arguments);
        self.spawn(command);
        self.until("node ready", || self.kubectl(&["get", "nodes"]).out.contains(" Ready ").then_some(()));
    }

    /// Starts an API server by a command of its own.
    pub(crate) fn spawn(&mut self, mut command: Command) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("up.log")).unwrap();
        let kubeconfig = self.path("kubeconfig");
        fs::remove_file(&kubeconfig).ok();
        command.arg("--kubeconfig").arg(&kubeconfig).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.up = Some(command.spawn().unwrap());
        self.until("kubeconfig", || kubeconfig.exists().then_some(()));
    }

    pub(crate) fn kill(&mut self, signal: rustix::process::Signal) {
        if let Some(mut child) = self.up.take() {
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = Command::new("kubectl");
        command.args(arguments).env("KUBECONFIG", self.path("kubeconfig")).env("HOME", self.folder.path());
        output(&mut command)
    }

    pub(crate) fn apply(&self, objects: &[Value]) {
        let file = self.path("objects.json");
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        fs::write(&file, list.to_string()).unwrap();
        let output = self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
        assert_eq!(output.code, 0, "{output:?}");
    }

    pub(crate) fn get(&self, arguments: &[&str]) -> Value {
        let output = self.kubectl(&[&["get", "-o", "json"], arguments].concat());
        serde_json::from_str(&output.out).unwrap_or(Value::Null)
    }

    /// Waits until a pod is as wanted.
    pub(crate) fn until_pod(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until(name, || Some(self.get(&["pod", name])).filter(&wanted))
    }

    pub(crate) fn until_ready(&self, name: &str) -> Value {
        self.until_pod(name, |pod| pod["status"]["containerStatuses"][0]["ready"] == true)
    }

    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            if Instant::now() > deadline {
                let log = fs::read_to_string(self.path("up.log")).unwrap_or_default();
                let pods = self.kubectl(&["describe", "pods"]);
                panic!("never {what}\n{log}\n{}\n{}", pods.out, pods.err);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut child) = self.up.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
