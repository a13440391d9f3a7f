//! A real Kubernetes of the test's own, from the binaries in `../shared/kubernetes`: etcd, kube-apiserver,
//! kube-controller-manager, kube-scheduler, a kubelet on a containerd of its own.
//!
//! Everything is below a temporary folder and ends with the value, also after a panic. Each test process has a loopback
//! address of its own, so that clusters run side by side on the usual ports.
//!
//! [`Cluster::start_on`] is the same with another API server, such as `palisade up`, instead of etcd and kube-apiserver.
//!
//! There is no kube-proxy and no cluster DNS. On a cluster with a node, the API server listens on the address of the Service
//! `kubernetes` itself, so that pods reach it as in any cluster; it reaches the pods behind a webhook's Service directly
//! (`--enable-aggregator-routing`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::print_stderr,
    missing_docs,
    reason = "tests fail by panicking, and this is a part of them"
)]

mod binaries;
mod node;
mod pki;

use std::{
    env,
    ffi::OsStr,
    fmt::Write as _,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use self::{binaries::Binaries, pki::write_localhost_certificate};
use self::{node::Node, pki::Authority};
use crate::{
    command::{CommandOutput, output, output_with_input},
    containerd::unmount_below,
    shared,
};

/// Far more than anything takes: machines that build beside it are slow.
const PATIENCE: Duration = Duration::from_mins(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Which components run; each choice includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parts {
    /// etcd and kube-apiserver: objects are admitted and stored, and that is all. Service accounts do not exist and are not
    /// needed; a namespace that is deleted stays.
    Api,
    /// The controllers: workloads get pods, namespaces a service account.
    Controllers,
    /// The scheduler and a node, `node1`: pods run. Needs root.
    Node,
}

/// A running cluster.
pub struct Cluster {
    /// In the order of their start: etcd first, those of the test last.
    programs: Vec<Program>,
    apiserver: Option<Program>,
    apiserver_program: PathBuf,
    apiserver_arguments: Vec<String>,
    node: Option<Node>,
    /// Whether the components hold Leases, so that the API server sees that they run.
    elects_leaders: bool,
    address: Ipv4Addr,
    port: u16,
    binaries: Binaries,
    /// Removed last.
    folder: TempDir,
}

/// A process with its log.
struct Program {
    child: Child,
}

impl Program {
    fn start(log: &Path, command: &mut Command) -> Self {
        let log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child }
    }

    /// Ends it with a signal, and with SIGKILL if that is not enough.
    fn stop(&mut self, signal: Signal) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let _ = kill_process(Pid::from_child(&self.child), signal);
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that a test started beside a cluster, and may end before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started(u32);

/// The components that connect to the API server: file, user, group.
const CLIENTS: &[(&str, &str, Option<&str>)] = &[
    ("kube-controller-manager", "system:kube-controller-manager", None),
    ("kube-scheduler", "system:kube-scheduler", None),
    ("kubelet", "system:node:node1", Some("system:nodes")),
];

/// The clusters that this process started.
static STARTED: AtomicU16 = AtomicU16::new(0);

impl Cluster {
    /// Starts one. Nothing without `../shared/kubernetes`: the test is then reported as not run.
    #[track_caller]
    pub fn start(parts: Parts) -> Option<Self> {
        Self::start_with(parts, &[])
    }

    /// The same with further flags of kube-apiserver; the variable `APISERVER_FLAGS` adds its own.
    #[track_caller]
    pub fn start_with(parts: Parts, apiserver_flags: &[&str]) -> Option<Self> {
        let (mut cluster, loopback, first_port) = Self::prepared(parts, "kube-apiserver")?;
        let authority = cluster.certificates(loopback);
        let etcd = format!("http://{loopback}:{}", first_port + 79);
        cluster.start_etcd(&etcd, &format!("http://{loopback}:{}", first_port + 80));
        cluster.apiserver_arguments = cluster.apiserver_arguments(&etcd, parts, apiserver_flags);
        cluster.start_apiserver();
        cluster.start_the_rest(parts, &authority, true);
        Some(cluster)
    }

    /// Starts the components of Kubernetes on another API server: the program is started with `arguments` and must serve at
    /// the address, write the administrator's kubeconfig and sign the requests of clients for certificates.
    #[track_caller]
    pub fn start_on(
        program: &Path,
        parts: Parts,
        arguments: impl Fn(&Path, &str, &Path) -> Vec<String>,
    ) -> Option<Self> {
        let (mut cluster, _, _) = Self::prepared(parts, program)?;
        let authority = Authority::new(&cluster.path("pki"));
        let listen = format!("{}:{}", cluster.address, cluster.port);
        cluster.apiserver_arguments = arguments(&cluster.kubeconfig(), &listen, cluster.folder.path());
        cluster.start_apiserver();
        // Kubelets trust clients of the authority that the API server has.
        let trusted = cluster.get(&["configmap", "kube-root-ca.crt"]);
        fs::write(cluster.path("pki/ca.crt"), trusted["data"]["ca.crt"].as_str().unwrap()).unwrap();
        for (name, user, group) in CLIENTS {
            let request = authority.request(name, user, *group);
            cluster.sign(name, &request);
            authority.kubeconfig(name, &cluster.url(), &cluster.path(&format!("pki/{name}.kubeconfig")));
        }
        cluster.start_the_rest(parts, &authority, false);
        Some(cluster)
    }

    /// Has the API server sign the certificate of a client.
    fn sign(&self, name: &str, request: &str) {
        self.apply(
            &json!({
                "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                "metadata": {"name": name},
                "spec": {
                    "request": STANDARD.encode(request), "signerName": "kubernetes.io/kube-apiserver-client",
                    "usages": ["client auth"],
                },
            })
            .to_string(),
        );
        let _ = self.kubectl(&["certificate", "approve", name]).expect_success();
        let signed = self.until("a certificate", || {
            let request = self.get(&["certificatesigningrequest", name]);
            request["status"]["certificate"].as_str().map(|text| STANDARD.decode(text).unwrap())
        });
        fs::write(self.path(&format!("pki/{name}.crt")), signed).unwrap();
    }

    /// A folder, addresses and, if there will be one, the runtime of the node; nothing else runs yet.
    #[track_caller]
    fn prepared(parts: Parts, apiserver: impl AsRef<Path>) -> Option<(Self, Ipv4Addr, u16)> {
        let material = shared("kubernetes")?;
        let binaries = Binaries::new(material);
        let folder = tempfile::Builder::new().prefix("palisade-k8s-").tempdir_in("/tmp").unwrap();
        for part in ["logs", "pki"] {
            fs::create_dir_all(folder.path().join(part)).unwrap();
        }
        let node = (parts >= Parts::Node).then(|| Node::new(folder.path()));
        let loopback = loopback_of(std::process::id());
        let first_port = 2300 + 100 * STARTED.fetch_add(1, Ordering::Relaxed);
        let address = node.as_ref().map_or(loopback, |node| node.service_address(1));
        let port = if node.is_some() { 443 } else { first_port + 43 };
        let apiserver = apiserver.as_ref();
        let is_own = apiserver.components().count() > 1;
        let apiserver_program =
            if is_own { apiserver.to_owned() } else { binaries.path(&apiserver.to_string_lossy()) };
        let cluster = Self {
            programs: Vec::new(),
            apiserver: None,
            apiserver_program,
            apiserver_arguments: Vec::new(),
            node,
            elects_leaders: is_own,
            address,
            port,
            binaries,
            folder,
        };
        Some((cluster, loopback, first_port))
    }

    fn start_the_rest(&mut self, parts: Parts, authority: &Authority, signs: bool) {
        if parts >= Parts::Controllers {
            self.start_controller_manager(signs);
        }
        if parts >= Parts::Node {
            self.start_scheduler();
            self.start_kubelet(authority);
        }
        if parts >= Parts::Controllers {
            let account = ["get", "serviceaccount", "default"];
            self.until("service account", || (self.kubectl(&account).code == 0).then_some(()));
        }
    }

    fn certificates(&self, loopback: Ipv4Addr) -> Authority {
        let authority = Authority::new(&self.path("pki"));
        authority.server("apiserver", &[IpAddr::V4(self.address), IpAddr::V4(loopback)]);
        let masters = Some("system:masters");
        let own = [("admin", "admin", masters), ("kubelet-client", "kube-apiserver", masters)];
        for (name, user, group) in own.into_iter().chain(CLIENTS.iter().copied()) {
            authority.client(name, user, group);
            let path = self.path(&format!("pki/{name}.kubeconfig"));
            authority.kubeconfig(name, &self.url(), &path);
        }
        authority
    }

    fn start_etcd(&mut self, client: &str, peer: &str) {
        let mut command = Command::new("etcd");
        // A test's data need not survive a power failure.
        command.arg("--unsafe-no-fsync").arg("--data-dir").arg(self.path("etcd"));
        command.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
        command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        self.start_part("etcd", &mut command);
    }

    fn apiserver_arguments(&self, etcd: &str, parts: Parts, more: &[&str]) -> Vec<String> {
        let services = self.node.as_ref().map_or_else(|| "10.99.0.0/24".to_owned(), Node::services);
        let policy = self.path("audit-policy.json");
        let rules = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata", "omitStages": ["RequestReceived"]}]}"#;
        fs::write(&policy, rules).unwrap();
        let pki = |name: &str| self.path("pki").join(name).display().to_string();
        let address = self.address.to_string();
        let mut arguments: Vec<String> = [
            ("etcd-servers", etcd),
            ("bind-address", &address),
            ("advertise-address", &address),
            ("secure-port", &self.port.to_string()),
            // It would reject the loopback address, and the Service needs no endpoints where there is no kube-proxy.
            ("endpoint-reconciler-type", "none"),
            ("tls-cert-file", &pki("apiserver.crt")),
            ("tls-private-key-file", &pki("apiserver.key")),
            ("client-ca-file", &pki("ca.crt")),
            ("service-account-key-file", &pki("sa.pub")),
            ("service-account-signing-key-file", &pki("sa.key")),
            ("service-account-issuer", "https://kubernetes.default.svc"),
            ("authorization-mode", "Node,RBAC"),
            ("enable-admission-plugins", "NodeRestriction"),
            ("kubelet-preferred-address-types", "InternalIP"),
            ("kubelet-client-certificate", &pki("kubelet-client.crt")),
            ("kubelet-client-key", &pki("kubelet-client.key")),
            ("service-cluster-ip-range", &services),
            ("allow-privileged", "true"),
            ("enable-aggregator-routing", "true"),
            ("audit-policy-file", &policy.display().to_string()),
            ("audit-log-path", &self.path("logs/audit.log").display().to_string()),
        ]
        .map(|(flag, value)| format!("--{flag}={value}"))
        .into();
        if parts == Parts::Api {
            arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
        }
        arguments.extend(more.iter().map(|flag| (*flag).to_owned()));
        let variable = env::var("APISERVER_FLAGS").unwrap_or_default();
        arguments.extend(variable.split_whitespace().map(str::to_owned));
        arguments
    }

    /// Starts the API server, again after [`Self::stop_apiserver`], and waits until it is ready.
    pub fn start_apiserver(&mut self) {
        let mut command = Command::new(&self.apiserver_program);
        command.args(&self.apiserver_arguments);
        self.apiserver = Some(Program::start(&self.log_path("kube-apiserver"), &mut command));
        let deadline = Instant::now() + PATIENCE;
        while self.kubectl(&["get", "--raw", "/readyz"]).code != 0 {
            let ended =
                self.apiserver.as_mut().is_none_or(|server| server.child.try_wait().unwrap().is_some());
            assert!(!ended && Instant::now() < deadline, "the API server is not ready:\n{}", self.logs());
            std::thread::sleep(PAUSE);
        }
    }

    /// Ends the API server as a node's shutdown does (SIGTERM), or at once (SIGKILL).
    pub fn stop_apiserver(&mut self, signal: Signal) {
        if let Some(mut server) = self.apiserver.take() {
            server.stop(signal);
        }
    }

    fn kubeconfig_flags(&self, client: &str) -> Vec<String> {
        let kubeconfig = self.path(&format!("pki/{client}.kubeconfig")).display().to_string();
        let mut flags: Vec<_> = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
            .map(|flag| format!("--{flag}={kubeconfig}"))
            .into();
        flags.push(format!("--leader-elect={}", self.elects_leaders));
        // No test reads their metrics, so they need no port.
        flags.push("--secure-port=0".to_owned());
        flags
    }

    /// With `signs`, it signs tokens and certificates with the keys of the test's authority.
    fn start_controller_manager(&mut self, signs: bool) {
        let pki = self.path("pki");
        let mut command = Command::new(self.binaries.path("kube-controller-manager"));
        command
            .args(self.kubeconfig_flags("kube-controller-manager"))
            .arg("--use-service-account-credentials");
        command.arg("--root-ca-file").arg(pki.join("ca.crt"));
        let keys = [
            ("--service-account-private-key-file", "sa.key"),
            ("--cluster-signing-cert-file", "ca.crt"),
            ("--cluster-signing-key-file", "ca.key"),
        ];
        for (flag, file) in keys.iter().filter(|_| signs) {
            command.arg(flag).arg(pki.join(file));
        }
        self.start_part("kube-controller-manager", &mut command);
    }

    fn start_scheduler(&mut self) {
        let mut command = Command::new(self.binaries.path("kube-scheduler"));
        command.args(self.kubeconfig_flags("kube-scheduler"));
        self.start_part("kube-scheduler", &mut command);
    }

    fn start_kubelet(&mut self, authority: &Authority) {
        let Some(node) = &self.node else { return };
        authority.server("kubelet-server", &[IpAddr::V4(node.service_address(1))]);
        let mut command = node.kubelet(&self.binaries.path("kubelet"), self.folder.path());
        self.start_part("kubelet", &mut command);
        let wait = ["wait", "--for=condition=Ready", "node/node1", "--timeout=1s"];
        self.until("node ready", || (self.kubectl(&wait).code == 0).then_some(()));
    }

    fn start_part(&mut self, name: &str, command: &mut Command) -> Started {
        let program = Program::start(&self.log_path(name), command);
        let started = Started(program.child.id());
        self.programs.push(program);
        started
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.path(&format!("logs/{name}.log"))
    }

    /// A path in the cluster's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The address that the API server listens on. A webhook can listen on it too.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The URL of the API server.
    pub fn url(&self) -> String {
        format!("https://{}:{}", self.address, self.port)
    }

    /// The administrator's kubeconfig (`system:masters`).
    pub fn kubeconfig(&self) -> PathBuf {
        self.path("pki/admin.kubeconfig")
    }

    /// The administrator's client. The limits of a single test are its own: there is no timeout for a watch.
    pub async fn client(&self) -> kube::Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        kube::Client::try_from(config).unwrap()
    }

    /// A program with the administrator's kubeconfig and without anything of the user who runs the tests.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.folder.path());
        command
    }

    /// One of the binaries of `../shared/kubernetes`, such as `pod-security.test`.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.binaries.path(name)
    }

    /// Runs the kubectl of the cluster's release.
    pub fn kubectl(&self, arguments: &[&str]) -> CommandOutput {
        output(self.command(self.binaries.path("kubectl")).args(arguments))
    }

    /// The same with something to read, for `-f -`.
    pub fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> CommandOutput {
        output_with_input(self.command(self.binaries.path("kubectl")).args(arguments), input)
    }

    /// Applies manifests, YAML or JSON.
    #[track_caller]
    pub fn apply(&self, manifests: &str) {
        let _ = self.kubectl_with_input(&["apply", "-f", "-"], manifests).expect_success();
    }

    /// Objects as JSON: `kubectl get -o json`. Null if there is none.
    pub fn get(&self, arguments: &[&str]) -> Value {
        let output = self.kubectl(&[&["get", "-o", "json"], arguments].concat());
        serde_json::from_str(&output.out).unwrap_or(Value::Null)
    }

    /// Starts a program that runs beside the cluster; what it prints is in [`Self::log`] by its name.
    pub fn spawn(&mut self, name: &str, command: &mut Command) -> Started {
        self.start_part(name, command)
    }

    /// Ends a program of [`Self::spawn`].
    pub fn stop(&mut self, started: Started, signal: Signal) {
        if let Some(at) = self.programs.iter().position(|program| program.child.id() == started.0) {
            self.programs.remove(at).stop(signal);
        }
    }

    /// What a program or component printed so far.
    pub fn log(&self, name: &str) -> String {
        fs::read(self.log_path(name))
            .map_or_else(|_| String::new(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    /// The last lines of every log.
    fn logs(&self) -> String {
        let mut paths: Vec<_> = fs::read_dir(self.path("logs"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        let mut text = String::new();
        for path in paths.iter().filter(|path| !path.ends_with("audit.log")) {
            let log = fs::read(path).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<_> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(15)..).unwrap_or_default();
            let _ = writeln!(text, "== {}\n{}", path.display(), tail.join("\n"));
        }
        text
    }

    /// The audit log so far, one event for each finished request, at level `Metadata`.
    pub fn audit(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.path("logs/audit.log")).unwrap_or_default();
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Each request of users whose names begin so that the API server forbade: user, verb, URI and message.
    pub fn forbidden(&self, user_prefix: &str) -> Vec<String> {
        self.forbidden_after(0, user_prefix)
    }

    /// The same, without the first events of the audit log.
    pub fn forbidden_after(&self, events: usize, user_prefix: &str) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut found: Vec<_> = self
            .audit()
            .iter()
            .skip(events)
            .filter(|event| event["responseStatus"]["code"] == 403)
            .filter(|event| text(&event["user"]["username"]).starts_with(user_prefix))
            .map(|event| {
                let user = text(&event["user"]["username"]);
                let message = text(&event["responseStatus"]["message"]);
                format!("{user} {} {}: {message}", text(&event["verb"]), text(&event["requestURI"]))
            })
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// Imports an OCI archive into the node's containerd.
    pub fn import_image(&self, archive: &Path) {
        let node = self.node.as_ref().expect("a cluster with a node");
        let _ = node
            .ctr(&["images", "import"])
            .arg(archive)
            .output()
            .map(CommandOutput::from)
            .unwrap()
            .expect_success();
    }

    /// The socket of the node's containerd.
    pub fn runtime_socket(&self) -> &Path {
        &self.node.as_ref().expect("a cluster with a node").containerd.socket
    }

    /// What `look` finds, as soon as it finds something.
    ///
    /// # Panics
    ///
    /// With the ends of all logs if it takes too long.
    #[track_caller]
    pub fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            if Instant::now() > deadline {
                let pods = self.kubectl(&["get", "pods,events", "-A", "-o", "wide"]);
                panic!("waited in vain: {what}\n{}\n{}{}", self.logs(), pods.out, pods.err);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The folder is about to go.
            eprintln!("{}", self.logs());
        }
        // The kubelet ends before its containers, which it would start again; etcd ends last.
        while self.programs.len() > 1 {
            if let Some(mut program) = self.programs.pop() {
                program.stop(Signal::TERM);
            }
        }
        self.node.take();
        // Nothing is stored after this, so that nothing is lost.
        self.stop_apiserver(Signal::KILL);
        for mut program in self.programs.drain(..) {
            program.stop(Signal::KILL);
        }
        // Volumes of pods, which the kubelet mounts.
        unmount_below(self.folder.path());
    }
}

/// An address that no other process uses: the number of a process has at most 22 bits.
fn loopback_of(process: u32) -> Ipv4Addr {
    let [_, high, middle, low] = process.to_be_bytes();
    Ipv4Addr::new(127, 64 | (high & 63), middle, low)
}

#[cfg(test)]
mod tests {
    use super::loopback_of;

    #[test]
    fn each_process_has_a_loopback_address() {
        for (process, address) in [(1, "127.64.0.1"), (256, "127.64.1.0"), ((1 << 22) - 1, "127.127.255.255")]
        {
            assert_eq!(loopback_of(process).to_string(), address);
        }
    }
}
