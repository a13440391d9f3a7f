//! Every right is used, and everything that is used is granted: the components run under their service accounts on an API
//! server that enforces RBAC, and its audit log is compared with the rules of `palisade install`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use palisade_apiserver::Server;
use palisade_base::sha256;
use palisade_node::{
    agent::{self, Settings},
    node::NodeConfig,
};
use palisade_webhook::calls::{CALLS, When};
use palisade_yaml::{Limits, parse};
use serde_json::{Value, json};

use crate::{install::installed, support::kubectl};

/// Group, resource with subresource, verb.
type Right = (String, String, String);

/// The verb of an apply is patch, and API servers request create besides where there is nothing to patch yet.
const APPLIED: &str = "a server-side apply makes the object";

const ENDED: &str = "a recording ends, which the tests on a real runtime show";
const DENIED: &str = "a profile would deny a call, which the tests on a real runtime show";

/// Rights that nothing in this test shows, and when they are needed.
const ONLY_WHEN: &[(&str, &str, &str, &str)] = &[
    ("palisade-webhook", "namespaces", "get", "the watch is cold"),
    ("palisade-webhook", "leases", "create", APPLIED),
    ("palisade-webhook", "mutatingwebhookconfigurations", "create", APPLIED),
    ("palisade-webhook", "validatingwebhookconfigurations", "create", APPLIED),
    ("palisade-controller", "events", "patch", "the same event occurs again"),
    ("palisade-controller", "events", "get", "the same event occurs again"),
    ("palisade-node", "events", "patch", "the same event occurs again"),
    ("palisade-controller", "deploymentconfigs", "watch", "there is such a kind, as on OpenShift"),
    ("palisade-controller", "policyreports", "list", "the cluster has PolicyReports, and no OpenReports"),
    ("palisade-controller", "policyreports", "create", "the cluster has PolicyReports, and no OpenReports"),
    ("palisade-controller", "policyreports", "patch", "the cluster has PolicyReports, and no OpenReports"),
    ("palisade-controller", "policyreports", "delete", "the cluster has PolicyReports, and no OpenReports"),
    ("palisade-controller", "configmaps", "create", ENDED),
    ("palisade-controller", "replicasets", "get", DENIED),
    ("palisade-controller", "reports", "create", APPLIED),
    ("palisade-controller", "reports", "delete", "nothing is left to report in a namespace"),
];

fn granted(objects: &[Value], component: &str) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    let roles = objects.iter().filter(|object| {
        matches!(object["kind"].as_str(), Some("Role" | "ClusterRole"))
            && object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(component))
    });
    for rule in roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default()) {
        let list = |field: &str| -> Vec<String> {
            rule[field].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        for group in list("apiGroups") {
            for resource in list("resources") {
                for verb in list("verbs") {
                    assert!(!verb.contains('*') && !resource.contains('*') && !group.contains('*'));
                    rights.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    rights
}

struct World {
    folder: tempfile::TempDir,
    admin: PathBuf,
    audit: PathBuf,
}

impl World {
    fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        kubectl(&self.admin, arguments, input).0
    }

    fn apply(&self, object: &Value) {
        self.kubectl(&["apply", "-f", "-"], &object.to_string());
    }

    /// A kubeconfig with the token of a service account.
    fn kubeconfig_of(&self, account: &str) -> PathBuf {
        let token = self.kubectl(&["create", "token", account, "-n", "palisade-system"], "");
        let text = fs::read_to_string(&self.admin).unwrap();
        let mut config = parse(&text, &Limits::default()).documents[0].root().to_json().unwrap();
        config["users"][0]["user"] = json!({"token": token.trim()});
        let path = self.folder.path().join(account);
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    fn start(&self, account: &str, arguments: &[&str]) -> Running {
        let log = fs::File::create(self.folder.path().join(format!("{account}.log"))).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_palisade"))
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.kubeconfig_of(account))
            .env("RUST_LOG", "info")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Running(child)
    }

    /// What a service account did, and what it was refused.
    fn used(&self, account: &str) -> (BTreeSet<Right>, BTreeSet<Right>) {
        let account = format!("system:serviceaccount:palisade-system:{account}");
        let (mut used, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for line in fs::read_to_string(&self.audit).unwrap().lines() {
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let reference = &event["objectRef"];
            if event["user"]["username"] != account.as_str() || reference.is_null() {
                continue;
            }
            let word = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
            let resource = match word("subresource") {
                sub if sub.is_empty() => word("resource"),
                sub => format!("{}/{sub}", word("resource")),
            };
            let right = (word("apiGroup"), resource, event["verb"].as_str().unwrap().to_owned());
            if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
                refused.insert(right);
            } else {
                used.insert(right);
            }
        }
        (used, refused)
    }

    /// Everything used is granted, and everything granted is used, but for what is rarely needed.
    fn compare(&self, objects: &[Value], component: &str, only_when: &[(&str, &str, &str, &str)]) {
        let (used, refused) = self.used(component);
        assert_eq!(refused, BTreeSet::new(), "{component} requests more than it is granted");
        let rare = |(_, resource, verb): &Right| {
            only_when
                .iter()
                .any(|rare| (rare.0, rare.1, rare.2) == (component, resource.as_str(), verb.as_str()))
        };
        let unused: Vec<Right> =
            granted(objects, component).difference(&used).filter(|right| !rare(right)).cloned().collect();
        assert_eq!(unused, Vec::<Right>::new(), "{component} is granted more than it uses: {used:#?}");
    }

    async fn until(&self, what: &str, account: &str, right: (&str, &str)) {
        for _ in 0..1200 {
            let (used, _) = self.used(account);
            if used.iter().any(|(_, resource, verb)| (resource.as_str(), verb.as_str()) == right) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = fs::read_to_string(self.folder.path().join(format!("{account}.log"))).unwrap_or_default();
        panic!("{what}: {account} did not {right:?}\n{:#?}\n{log}", self.used(account));
    }
}

/// A process that gets SIGTERM, and is killed if it does not stop.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn published(text: &str) -> Value {
    json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "PublishedProfile",
        "metadata": {"name": sha256::hex(text.as_bytes())}, "spec": {"profile": text}})
}

fn pod(name: &str, annotations: &Value, profile: &str) -> Value {
    let hash = sha256::hex(profile.as_bytes());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team", "annotations": annotations},
        "spec": {"nodeName": "n1", "automountServiceAccountToken": false, "securityContext": {"seccompProfile": {"type": "Localhost",
            "localhostProfile": format!("palisade/{hash}.json")}}, "containers": [{"name": "c", "image": "i"}]}})
}

/// A profile that denies something: others are not published.
const PROFILE: &str = r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn roles_grant_what_is_used_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, audit) = (folder.path().join("admin"), folder.path().join("audit"));
    let server = Server::builder().kubeconfig(&admin).audit_log(&audit).start().await.unwrap();
    let world = World { folder, admin, audit };
    let (text, objects) = installed(&["--feature-gates", "SeccompConfigMaps=true"]);
    world.kubectl(&["apply", "-f", "-"], &text);
    world.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}));
    world.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "spec": {"taints": [{"key": "palisade.dev/profiles-not-ready", "effect": "NoSchedule"}]}}));
    let map = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "team"}, "data": {"p.json": text}});
    world.apply(&map(PROFILE));
    let allowed = json!({"types": ["ConfigMap", "Localhost", "RuntimeDefault", "Unconfined"], "configMaps": ["*"], "localhostProfiles": ["*"]});
    world.apply(&json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "ProfilePolicy", "metadata": {"name": "allowed"},
        "spec": {"seccomp": {"allowedProfiles": allowed}}}));

    // The webhook: it registers itself, answers for a pod with a ConfigMap profile and a namespace, and leaves.
    let port = free_port();
    let (listen, url) = (format!("127.0.0.1:{port}"), format!("https://127.0.0.1:{port}"));
    let webhook = world.start(
        "palisade-webhook",
        &[
            "webhook",
            "--listen",
            &listen,
            "--register",
            "--url",
            &url,
            "--service-account=palisade-system/palisade-webhook",
            "--feature-gates=SeccompConfigMaps=true",
        ],
    );
    for right in [
        ("mutatingwebhookconfigurations", "patch"),
        ("validatingwebhookconfigurations", "patch"),
        ("leases", "patch"),
    ] {
        world.until("registered", "palisade-webhook", right).await;
    }
    let mut legacy =
        pod("legacy", &json!({"seccomp.security.alpha.kubernetes.io/pod": "configmap/web/p.json"}), PROFILE);
    legacy["spec"]["securityContext"] = json!({});
    let read = (String::new(), "configmaps".to_owned(), "get".to_owned());
    for _ in 0..100 {
        world.apply(&legacy);
        if world.used("palisade-webhook").0.contains(&read) {
            break;
        }
        // The API server had not heard of the webhook yet.
        world.kubectl(&["delete", "pod", "legacy", "-n", "team", "--force", "--grace-period=0"], "");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.kubectl(&["label", "namespace", "team", "pod-security.kubernetes.io/enforce=restricted"], "");
    world.until("existing pods judged", "palisade-webhook", ("pods", "list")).await;
    world.kubectl(&["label", "namespace", "team", "pod-security.kubernetes.io/enforce-"], "");
    let used = world.used("palisade-webhook").0;
    assert!(used.contains(&read) && !used.iter().any(|(_, resource, _)| resource == "publishedprofiles"));
    webhook.stop();
    world.kubectl(&["delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "--all"], "");

    // The controller: a profile is missing, one cannot be had, one has aged, one has no pod.
    let source = |text: &str, map: &str| json!({"seccomp.palisade.dev/pod": format!("configmap/{map}/p.json@sha256:{}", sha256::hex(text.as_bytes()))});
    world.apply(&pod("missing", &source(PROFILE, "web"), PROFILE));
    world.apply(&pod("lost", &source("lost", "absent"), "lost"));
    let mut unwanted = published("[]");
    unwanted["metadata"]["annotations"] = json!({"palisade.dev/unreferenced-since": "2020-01-01T00:00:00Z"});
    world.apply(&unwanted);
    world
        .kubectl(&["delete", "publishedprofile", "--ignore-not-found", &sha256::hex(PROFILE.as_bytes())], "");
    world.kubectl(&["apply", "-f", "-"], include_str!("../../../../tests/data/reports/openreports.json"));
    world.kubectl(&["wait", "--for=condition=Established", "crd/reports.openreports.io"], "");
    // A workload whose pods are rejected.
    let labels = json!({"app": "web"});
    world.apply(&json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "team"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}}));
    let rejected = json!({"status": {"replicas": 0, "conditions": [{"type": "ReplicaFailure", "status": "True",
        "reason": "FailedCreate", "message": "pods \"web-x\" is forbidden: violates PodSecurity \"restricted:latest\": privileged",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
    .to_string();
    world.kubectl(
        &[
            "patch",
            "replicaset",
            "web",
            "-n",
            "team",
            "--subresource=status",
            "--type=merge",
            "-p",
            &rejected,
        ],
        "",
    );
    let controller = world.start(
        "palisade-controller",
        &[
            "controller",
            "--controllers=profile-publisher,profile-recordings,rejected-pods,reports,syscall-guards",
            "--profile-grace-period=1h",
        ],
    );
    for right in [
        ("publishedprofiles", "create"),
        ("publishedprofiles", "delete"),
        ("publishedprofiles/status", "patch"),
        ("events", "create"),
        ("events", "watch"),
        ("namespaces", "watch"),
        ("replicationcontrollers", "watch"),
        ("deployments", "watch"),
        ("daemonsets", "watch"),
        ("statefulsets", "watch"),
        ("replicasets", "watch"),
        ("jobs", "watch"),
        ("cronjobs", "watch"),
        ("leases", "update"),
        ("reports", "list"),
        ("reports", "patch"),
        ("securityexceptions", "watch"),
    ] {
        world.until("published", "palisade-controller", right).await;
    }
    // The event of rejected pods is in the core group, unlike those of the publisher.
    let recorded = ["get", "events", "-n", "team", "--field-selector=reason=PodsRejected", "-o", "name"];
    for _ in 0..600 {
        if !world.kubectl(&recorded, "").is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mark = "palisade.dev/unreferenced-since=2020-01-01T00:00:00Z";
    world.kubectl(&["annotate", "publishedprofile", &sha256::hex(PROFILE.as_bytes()), mark], "");
    world.until("mark taken back", "palisade-controller", ("publishedprofiles", "patch")).await;
    world.apply(&json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SyscallGuard", "metadata": {"name": "alg"},
        "spec": {"calls": ["socket(AF_ALG, *, *)"], "reason": "CVE-2026-0001", "until": "2999-01-01T00:00:00Z"}}));
    world.until("a status of the guard", "palisade-controller", ("syscallguards/status", "patch")).await;
    world.apply(&json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "ProfileRecording", "metadata": {"name": "web", "namespace": "team"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "until": "2999-01-01T00:00:00Z"}}));
    world
        .until("a status of the recording", "palisade-controller", ("profilerecordings/status", "patch"))
        .await;
    controller.stop();

    // The node agent: a taint, a profile, one that is missing, a file deleted.
    let account = "palisade-node";
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let node = NodeConfig {
        node_name: "n1".into(),
        root_dir: root.path().into(),
        runtime_endpoint: "/nonexistent/runtime.sock".into(),
        ..NodeConfig::default()
    };
    let client = client(&world.kubeconfig_of(account)).await;
    let agent = tokio::spawn(agent::run(
        Settings::new(node),
        client,
        std::sync::Arc::default(),
        std::future::pending(),
    ));
    for right in [
        ("nodes", "patch"),
        ("nodesecurityreports", "create"),
        ("nodesecurityreports/status", "patch"),
        ("publishedprofiles", "get"),
        ("events", "create"),
        ("syscallguards", "watch"),
        ("namespaces", "watch"),
    ] {
        world.until("reported", account, right).await;
    }
    agent.abort();
    server.shutdown().await;

    for component in ["palisade-webhook", "palisade-controller", "palisade-node"] {
        world.compare(&objects, component, ONLY_WHEN);
    }
}

/// With constraints, the controllers use the rights for them.
const CONSTRAINTS: &str = "--security-context-constraints=enforce";

/// What the rollout's controllers need besides, and when.
const ROLLOUT_ONLY_WHEN: &[(&str, &str, &str, &str)] = &[
    ("palisade-controller", "publishedprofiles", "create", "the other test shows it"),
    ("palisade-controller", "publishedprofiles", "patch", "the other test shows it"),
    ("palisade-controller", "publishedprofiles", "delete", "the other test shows it"),
    ("palisade-controller", "publishedprofiles/status", "patch", "the other test shows it"),
    ("palisade-controller", "syscallguards/status", "patch", "the other test shows it"),
    ("palisade-controller", "profilerecordings/status", "patch", "the other test shows it"),
    ("palisade-controller", "configmaps", "create", ENDED),
    ("palisade-controller", "replicasets", "get", DENIED),
    (
        "palisade-controller",
        "events",
        "create",
        "in events.k8s.io: the publisher's, which the other test shows",
    ),
    ("palisade-controller", "deploymentconfigs", "watch", "there is such a kind, as on OpenShift"),
    ("palisade-controller", "featuregates", "watch", "there is such a kind, as on OpenShift"),
    ("palisade-controller", "kubeapiservers", "list", "the cluster is OpenShift"),
    ("palisade-controller", "kubeapiservers", "watch", "the cluster is OpenShift"),
    ("palisade-controller", "podsecurityrollouts", "get", "another client wrote at the same time"),
    ("palisade-controller", "podsecurityrollouts/status", "update", "there are waves"),
    ("palisade-controller", "events", "patch", "the same event occurs again"),
    ("palisade-controller", "events", "get", "the same event occurs again"),
    ("palisade-controller", "leases", "delete", "an instance has gone without a word"),
    ("palisade-controller", "namespaces", "get", "another client wrote at the same time"),
    ("palisade-controller", "psaenforcementconfigs", "get", "another client wrote at the same time"),
    ("palisade-controller", "configmaps", "get", "another client wrote at the same time"),
    ("palisade-controller", "configmaps", "create", APPLIED),
    ("palisade-controller", "securityexceptions", "list", "the other test shows it"),
    ("palisade-controller", "securityexceptions", "watch", "the other test shows it"),
    ("palisade-controller", "reports", "list", "the other test shows it"),
    ("palisade-controller", "reports", "create", "the other test shows it"),
    ("palisade-controller", "reports", "patch", "the other test shows it"),
    ("palisade-controller", "reports", "delete", "nothing is left to report in a namespace"),
    ("palisade-controller", "policyreports", "list", "the cluster has PolicyReports, and no OpenReports"),
    ("palisade-controller", "policyreports", "create", "the cluster has PolicyReports, and no OpenReports"),
    ("palisade-controller", "policyreports", "patch", "the cluster has PolicyReports, and no OpenReports"),
    ("palisade-controller", "policyreports", "delete", "the cluster has PolicyReports, and no OpenReports"),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_of_the_rollout_are_granted_what_they_use() {
    let folder = tempfile::tempdir().unwrap();
    let (admin, audit) = (folder.path().join("admin"), folder.path().join("audit"));
    let server = Server::builder().kubeconfig(&admin).audit_log(&audit).start().await.unwrap();
    let world = World { folder, admin, audit };
    for components in ["crds", "constraints,controller"] {
        let (text, _) = installed(&["--rollout", CONSTRAINTS, "--components", components]);
        world.kubectl(&["apply", "-f", "-"], &text);
    }
    world.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}));
    world.apply(
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root", "namespace": "team"},
        "spec": {"automountServiceAccountToken": false,
                 "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}}),
    );
    let account = "palisade-controller";
    let run = |release: &str| {
        let controllers = "--controllers=label-syncer,readiness,config-observer,namespace-ranges,rejected-pods,profile-publisher,profile-recordings,syscall-guards";
        world.start(account, &["controller", controllers, CONSTRAINTS, "--release", release])
    };
    let evaluating = run("n");
    for right in [
        ("namespaces", "patch"),
        ("psaenforcementconfigs", "create"),
        ("psaenforcementconfigs", "patch"),
        ("psaenforcementconfigs/status", "update"),
        ("configmaps", "patch"),
        ("events", "create"),
        ("leases", "update"),
    ] {
        world.until("evaluated", account, right).await;
    }
    evaluating.stop();
    world.kubectl(&["delete", "pod", "root", "-n", "team", "--force", "--grace-period=0"], "");
    let opt_in = r#"{"spec": {"enforcementMode": "Restricted"}}"#;
    world.kubectl(&["patch", "psaenforcementconfig", "cluster", "--type=merge", "-p", opt_in], "");
    let enforcing = run("n+1");
    let mode = ["get", "psaenforcementconfig", "cluster", "-o", "jsonpath={.status.enforcementMode}"];
    for _ in 0..300 {
        if !world.kubectl(&mode, "").is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_ne!(world.kubectl(&mode, ""), "", "enforcement begins");
    enforcing.stop();
    server.shutdown().await;
    let (_, objects) = installed(&["--rollout", CONSTRAINTS]);
    world.compare(&objects, account, ROLLOUT_ONLY_WHEN);
}

/// The webhook's own list of its calls, which its tests compare with what they see, is the role.
#[test]
fn the_webhooks_role_is_its_list_of_calls() {
    let gate = "--feature-gates=SeccompConfigMaps=true";
    for (arguments, constraints, profiles, fail_fast) in [
        (&[][..], false, false, false),
        (&["--rollout"], false, false, false),
        (&[CONSTRAINTS], true, false, false),
        (&[gate], false, true, false),
        (&["--fail-fast=off"], false, false, true),
    ] {
        let (_, objects) = installed(arguments);
        let mut listed: BTreeMap<Right, &str> = BTreeMap::new();
        let granted_for = |when: When| match when {
            When::Constraints => constraints,
            When::ConfigMapProfiles => profiles,
            When::FailFast => fail_fast,
            _ => true,
        };
        for call in CALLS.iter().filter(|call| granted_for(call.when)) {
            for verb in call.verbs {
                listed
                    .insert((call.group.to_owned(), call.resource.to_owned(), (*verb).to_owned()), call.why);
            }
        }
        let listed: BTreeSet<Right> = listed.into_keys().collect();
        assert_eq!(granted(&objects, "palisade-webhook"), listed, "{arguments:?}");
    }
}
