//! Agents, runtimes and their sockets that go away, and what is left when everything is over.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use palisade_node::{
    api::local::LocalSource,
    kubelet,
    node::{Node, NodeConfig},
    pod::RunPod,
};
use serde_json::{Value, json};

use crate::lab::{DENY_MKDIR, Lab, designs, sleeper};

/// A program among this crate's examples. A run of all the crate's tests has built it; a run of one may not have.
pub(crate) fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    if !program.exists() {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let arguments = ["build", "-p", "palisade-node", "--profile", profile, "--example", name];
        assert!(Command::new(env!("CARGO")).args(arguments).status().unwrap().success());
    }
    program
}

/// The agent as a process of its own.
pub(crate) struct AgentProcess {
    child: Child,
    folder: PathBuf,
}

impl AgentProcess {
    pub(crate) fn program() -> PathBuf {
        example("folder_agent")
    }

    fn start(folder: &Path) -> Self {
        let child = Command::new(Self::program()).arg(folder).stdin(Stdio::null()).spawn().unwrap();
        Self { child, folder: folder.to_owned() }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn reported(&self, pod: &str) -> Value {
        let text = fs::read(self.folder.join("status").join(format!("{pod}.json"))).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or(Value::Null)
    }

    fn until(&self, pod: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let reported = self.reported(pod);
            if wanted(&reported) {
                return reported;
            }
            assert!(Instant::now() < deadline, "{pod}: {reported:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_survive_an_agent_that_is_killed_and_are_adopted() {
    let mut lab = Lab::new(designs());
    lab.stop_agent().await;
    let folder = lab.folder.path().join("api");
    fs::create_dir_all(folder.join("objects")).unwrap();
    let put = |name: &str, object: &Value| {
        fs::write(folder.join("objects").join(format!("{name}.json")), object.to_string()).unwrap();
    };
    let settings = json!({"runtimeEndpoint": lab.containerd.socket, "rootDir": lab.root});
    fs::write(folder.join("node.json"), settings.to_string()).unwrap();
    put("map", &json!({"kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"p": DENY_MKDIR}}));
    let profile = json!({"seccompProfile": {"type": "ConfigMap", "configMapProfile": "web/p"}});
    for number in 0..3 {
        put(&format!("p{number}"), &sleeper(&format!("p{number}"), profile.clone(), json!({})));
    }
    let running =
        |reported: &Value| reported["status"]["containerStatuses"][0]["state"]["running"].is_object();
    let mut agent = AgentProcess::start(&folder);
    let before: Vec<_> = (0..3).map(|number| agent.until(&format!("p{number}"), running)).collect();
    agent.kill();
    // Meanwhile one pod is deleted.
    fs::remove_file(folder.join("objects/p2.json")).unwrap();
    fs::remove_dir_all(folder.join("status")).unwrap();
    let agent = AgentProcess::start(&folder);
    for (number, before) in before.iter().enumerate().take(2) {
        let after = agent.until(&format!("p{number}"), running);
        let one = |reported: &Value| reported["status"]["containerStatuses"][0].clone();
        assert_eq!(one(&after)["containerID"], one(before)["containerID"], "the same container, not another");
        assert_eq!(one(&after)["restartCount"], 0);
        assert_eq!(one(&after)["securityContext"], one(before)["securityContext"], "its hash is remembered");
        assert!(
            after["verified"]["containers"][0]["rows"]
                .as_array()
                .unwrap()
                .iter()
                .all(|row| row["ok"] == true)
        );
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let sandboxes = lab.node.runtime.list_pod_sandboxes(&[]).await.unwrap();
        if sandboxes.len() == 2 {
            break;
        }
        assert!(Instant::now() < deadline, "the pod that was deleted is removed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runtime_restarts_under_running_pods() {
    let mut lab = Lab::new(designs());
    let pod = lab.apply(sleeper("steady", json!({}), json!({})));
    let before = lab.until_running(&pod).await;
    lab.containerd.stop();
    let late = lab.apply(sleeper("late", json!({}), json!({})));
    let status = lab.until(&late, "reported", |status| status["containerStatuses"].is_array()).await;
    let message = status["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("error determining status: rpc error: code = Unavailable"), "{message}");
    assert_eq!(
        lab.status(&pod)["containerStatuses"][0]["containerID"],
        before["containerStatuses"][0]["containerID"]
    );
    lab.containerd.start_again();
    lab.until_running(&late).await;
    let after = lab.until_running(&pod).await;
    assert_eq!(after["containerStatuses"][0]["containerID"], before["containerStatuses"][0]["containerID"]);
    assert_eq!(after["containerStatuses"][0]["restartCount"], 0);
    assert_eq!(lab.exec(&pod, "c", "true").await.0, 0);
}

fn processes_of(folder: &Path) -> Vec<String> {
    let needle = folder.display().to_string();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|text| String::from_utf8_lossy(&text).replace('\0', " "))
        .filter(|line| line.contains(&needle) && line.contains("shim"))
        .collect()
}

fn mounts_of(folder: &Path) -> Vec<String> {
    let needle = folder.display().to_string();
    let text = fs::read_to_string("/proc/mounts").unwrap();
    text.lines().filter(|line| line.contains(&needle)).map(str::to_owned).collect()
}

fn cgroups_of(ids: &BTreeSet<String>) -> Vec<PathBuf> {
    walkdir::WalkDir::new("/sys/fs/cgroup")
        .max_depth(4)
        .into_iter()
        .flatten()
        .filter(|entry| ids.contains(entry.file_name().to_string_lossy().as_ref()))
        .map(walkdir::DirEntry::into_path)
        .collect()
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_pods_leave_nothing_behind() {
    let lab = Lab::new(designs());
    lab.put_profile("web", "p", DENY_MKDIR);
    // The first pod opens what stays open.
    let first = lab.apply(sleeper("first", json!({}), json!({})));
    lab.until_running(&first).await;
    lab.delete(&first).await;
    let files = open_files();
    let idle_memory = resident_memory();
    let profile = json!({"seccompProfile": {"type": "ConfigMap", "configMapProfile": "web/p"}});
    let pods: Vec<RunPod> = (0..100)
        .map(|number| {
            let mut object = sleeper(&format!("p{number}"), profile.clone(), json!({}));
            object["spec"]["volumes"] = json!([{"name": "m", "emptyDir": {"medium": "Memory"}}]);
            object["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "m", "mountPath": "/m"}]);
            lab.apply(object)
        })
        .collect();
    let deadline = Instant::now() + Duration::from_mins(4);
    for pod in &pods {
        while lab.status(pod)["phase"] != "Running" {
            assert!(Instant::now() < deadline, "{}: {:#}", pod.key, lab.status(pod));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let busy_memory = resident_memory();
    let mut ids = BTreeSet::new();
    for container in lab.node.runtime.list_containers(&[]).await.unwrap() {
        ids.insert(container.id);
    }
    for sandbox in lab.node.runtime.list_pod_sandboxes(&[]).await.unwrap() {
        ids.insert(sandbox.id);
    }
    assert_eq!(ids.len(), 200);
    assert!(!cgroups_of(&ids).is_empty(), "cgroups are found while they exist");
    // The shim of the first pod, and runc, may take a moment to end.
    let deadline = Instant::now() + Duration::from_secs(30);
    while processes_of(lab.folder.path()).len() != 100 {
        assert!(Instant::now() < deadline, "{:?}", processes_of(lab.folder.path()));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for pod in &pods {
        lab.source.delete(&pod.key.uid, Some(0));
    }
    let deadline = Instant::now() + Duration::from_mins(4);
    for pod in &pods {
        while lab.source.has_pod(&pod.key.uid) {
            assert!(Instant::now() < deadline, "{} stays", pod.key);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(processes_of(lab.folder.path()), [""; 0]);
    assert_eq!(mounts_of(lab.folder.path()), [""; 0]);
    assert_eq!(cgroups_of(&ids), Vec::<PathBuf>::new());
    assert_eq!(lab.node.runtime.list_pod_sandboxes(&[]).await.unwrap().len(), 0);
    assert_eq!(fs::read_dir(lab.root.join("pods")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(lab.root.join("logs")).unwrap().count(), 0);
    assert!(open_files() <= files + 2, "{} files open, {files} before", open_files());
    println!("resident memory of this process: {idle_memory} kB idle, {busy_memory} kB with 100 pods");
}

fn resident_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// A node whose runtime is not one.
async fn without_runtime(socket: &Path, timeout: Duration) -> (LocalSource, RunPod) {
    let folder = socket.parent().unwrap();
    let source = LocalSource::default();
    let config = NodeConfig {
        runtime_endpoint: socket.display().to_string(),
        runtime_timeout: timeout,
        root_dir: folder.join("agent"),
        compat: designs(),
        ..NodeConfig::default()
    };
    let node = Node::new(config, Arc::new(source.clone())).unwrap();
    tokio::spawn(kubelet::run(node, std::future::pending()));
    let pod = RunPod::from_object(sleeper("waits", json!({}), json!({}))).unwrap();
    source.apply(&pod);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let reported = source.events(&pod.key.uid).iter().any(|event| event.reason == "FailedSync");
        let node_reported = source
            .node()
            .0
            .is_some_and(|node| node.pointer("/status/conditions/0/status") == Some(&json!("False")));
        if reported && node_reported {
            break;
        }
        assert!(Instant::now() < deadline, "{:?} {:?}", source.events(&pod.key.uid), source.node());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (source, pod)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_is_missing_talks_nonsense_or_hangs() {
    let folder = tempfile::Builder::new().prefix("pal").tempdir_in("/tmp").unwrap();
    let message = |source: &LocalSource, pod: &RunPod| {
        let event =
            source.events(&pod.key.uid).into_iter().find(|event| event.reason == "FailedSync").unwrap();
        assert_eq!(source.status(&pod.key.uid).unwrap()["phase"], "Pending");
        event.message
    };
    let missing = folder.path().join("missing.sock");
    let (source, pod) = without_runtime(&missing, Duration::from_secs(2)).await;
    let text = message(&source, &pod);
    assert!(text.contains("code = Unavailable") && text.contains("No such file or directory"), "{text}");

    let nonsense = folder.path().join("nonsense.sock");
    let listener = UnixListener::bind(&nonsense).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            stream.write_all(&[0xff; 4096]).ok();
        }
    });
    let (source, pod) = without_runtime(&nonsense, Duration::from_secs(2)).await;
    let text = message(&source, &pod);
    assert!(text.starts_with("error determining status: rpc error: code = "), "{text}");

    let hanging = folder.path().join("hanging.sock");
    let listener = UnixListener::bind(&hanging).unwrap();
    let (source, pod) = without_runtime(&hanging, Duration::from_millis(300)).await;
    let text = message(&source, &pod);
    assert_eq!(
        text,
        "error determining status: rpc error: code = DeadlineExceeded desc = the runtime did not answer within 0.3s"
    );
    drop(listener);
}
