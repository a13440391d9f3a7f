//! Sessions with the real kubectl: the one on PATH, and Debian's 1.20.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use palisade_apiserver::Server;

use crate::support::start;

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: c, image: nginx}
";

/// One kubectl with its own home and the server's kubeconfig.
struct Session {
    kubectl: PathBuf,
    home: tempfile::TempDir,
}

impl Session {
    async fn start(kubectl: PathBuf) -> (Server, Self) {
        let home = tempfile::tempdir().expect("home");
        let server = start(Server::builder().kubeconfig(home.path().join("config"))).await;
        std::fs::write(home.path().join("pod.yaml"), POD).expect("manifest");
        std::fs::write(home.path().join("crds.yaml"), DEFINITIONS).expect("manifest");
        (server, Self { kubectl, home })
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.args(arguments.split_whitespace()).current_dir(self.home.path());
        command.env("HOME", self.home.path()).env("KUBECONFIG", self.home.path().join("config"));
        command.env("KUBE_EDITOR", "sed -i s/front/back/").stdin(Stdio::null());
        command
    }

    /// Runs a command; everything it printed, and whether it went well.
    fn run(&self, arguments: &str) -> (bool, String) {
        let output = self.command(arguments).output().expect("kubectl runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// A table of commands and something each must print; a `!` in front of the command expects failure.
    fn script(&self, lines: &[(&str, &str)]) {
        for (line, expected) in lines {
            let (command, wanted) = match line.strip_prefix('!') {
                Some(command) => (command, false),
                None => (*line, true),
            };
            let (succeeded, printed) = self.run(command);
            assert_eq!(succeeded, wanted, "kubectl {command}\n{printed}");
            assert!(printed.contains(expected), "kubectl {command}: no {expected:?} in\n{printed}");
        }
    }

    /// `get -w` prints a change that happens while it runs.
    fn watch(&self) {
        self.script(&[("create configmap early --from-literal=k=v", "created")]);
        let mut watching =
            self.command("get configmaps -w --no-headers").stdout(Stdio::piped()).spawn().expect("kubectl");
        let (sender, printed) = mpsc::channel();
        let lines = BufReader::new(watching.stdout.take().expect("piped")).lines();
        std::thread::spawn(move || lines.map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        let prints = |name: &str| {
            while !printed.recv_timeout(Duration::from_secs(30)).expect("still printing").contains(name) {}
        };
        prints("early");
        self.script(&[("create configmap late --from-literal=k=v", "created")]);
        prints("late");
        watching.kill().expect("still running");
        watching.wait().expect("reaped");
    }
}

/// A list, because then even today's kubectl validates by itself; with values that may be anything.
const DEFINITIONS: &str = r"
apiVersion: v1
kind: List
items:
- apiVersion: apiextensions.k8s.io/v1
  kind: CustomResourceDefinition
  metadata: {name: widgets.example.com}
  spec:
    group: example.com
    scope: Namespaced
    names: {plural: widgets, singular: widget, kind: Widget}
    versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            size: {type: string, enum: [small, large], default: small}
            count: {type: integer, enum: [1, 2], default: 1}
";

/// What every supported kubectl can do.
const COMMON: &[(&str, &str)] = &[
    ("get namespaces", "kube-system"),
    ("api-resources", "deployments"),
    ("explain pod.spec.containers", "image"),
    ("apply -f crds.yaml", "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created"),
    ("auth can-i create pods", "yes"),
    ("!auth can-i create pods --as bob", "no"),
    ("apply -f pod.yaml", "pod/web created"),
    ("apply -f pod.yaml", "pod/web unchanged"),
    ("apply --server-side --force-conflicts -f pod.yaml", "serverside-applied"),
    ("apply --dry-run=server -f pod.yaml", "(server dry run)"),
    ("get pods -o wide", "NOMINATED NODE"),
    ("get pod web -o yaml", "terminationMessagePolicy: File"),
    ("get pod web -o json", "\"phase\": \"Pending\""),
    ("describe pod web", "QoS Class"),
    ("label namespace default x=y --dry-run=server", "labeled"),
    ("get namespace default --show-labels", "kubernetes.io/metadata.name=default"),
    ("label pod web tier=front", "labeled"),
    ("patch pod web -p {\"metadata\":{\"annotations\":{\"a\":\"b\"}}}", "patched"),
    ("patch pod web --type=json -p [{\"op\":\"remove\",\"path\":\"/metadata/annotations/a\"}]", "patched"),
    ("edit pod web", "edited"),
    ("get pod web --show-labels", "tier=back"),
    ("create configmap c --from-literal=k=v", "created"),
    ("create secret generic s --from-literal=k=v", "created"),
    ("create deployment d --image=nginx", "created"),
    ("scale deployment d --replicas=3", "scaled"),
    ("get deployment d", "0/3"),
    ("create role reader --verb=get --resource=pods", "created"),
    ("create rolebinding reader --role=reader --user=bob", "created"),
    ("auth can-i get pods --as bob", "yes"),
    ("debug web --image=busybox --target=c", ""),
    ("get pod web -o jsonpath={.spec.ephemeralContainers[0].image}", "busybox"),
    ("!wait --for=condition=Ready pod/web --timeout=1s", "timed out"),
    ("logs web -c c", ""),
    ("delete pod web", "deleted"),
    ("!get pod web", "not found"),
    ("delete deployment,configmap,secret --all", "deleted"),
    ("create namespace other", "created"),
    ("run p -n other --image=nginx", "created"),
    ("delete namespace other", "deleted"),
    ("!get namespace other", "not found"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubectl_on_path() {
    let (server, session) = Session::start("kubectl".into()).await;
    tokio::task::spawn_blocking(move || {
        session.script(COMMON);
        session.script(&[
            ("auth whoami", "kubernetes-admin"),
            ("auth can-i --list --as bob", "selfsubjectrulesreviews"),
            ("create serviceaccount robot", "created"),
            ("create token robot", "ey"),
            ("version", "Server Version: v1.37.0"),
        ]);
        session.watch();
    })
    .await
    .expect("session");
    server.shutdown().await;
}

/// Debian's kubernetes-client, downloaded and unpacked once.
fn old_kubectl() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes-client");
    let kubectl = directory.join("usr/bin/kubectl");
    if kubectl.exists() {
        return kubectl;
    }
    std::fs::create_dir_all(&directory).expect("directory");
    let shell = "apt-get download kubernetes-client && dpkg-deb -x kubernetes-client_*.deb .";
    let output = Command::new("sh").args(["-c", shell]).current_dir(&directory).output().expect("a shell");
    assert!(
        output.status.success() && kubectl.exists(),
        "this test needs Debian's kubernetes-client (1.20): run `{shell}` in {} where an archive is reachable\n{}",
        directory.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    kubectl
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_1_20() {
    let kubectl = tokio::task::spawn_blocking(old_kubectl).await.expect("kubectl");
    let (server, session) = Session::start(kubectl).await;
    tokio::task::spawn_blocking(move || {
        session.script(COMMON);
        std::fs::write(session.home.path().join("typo.yaml"), POD.replace("image:", "imgae:"))
            .expect("manifest");
        session.script(&[("!apply -f typo.yaml", "unknown field \"imgae\"")]);
    })
    .await
    .expect("session");
    server.shutdown().await;
}

#[tokio::test]
async fn ready_soon_after_start() {
    let began = Instant::now();
    let server = start(Server::builder()).await;
    // Tests run unoptimised and beside others; the released binary has 50 ms.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    server.shutdown().await;
}
