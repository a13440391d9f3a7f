//! The standards as policies of a real API server, compared with its own Pod Security Admission.
//!
//! `PALISADE_POLICY_VERSIONS=all` compares every pod in every version of the standards; without it, every pod in the latest
//! version, and upstream's fixtures in the versions that differ most.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use futures::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use palisade_base::version::NEWEST_MINOR;
use palisade_testkit::{
    command::output,
    kubernetes::{Cluster, Parts},
    recordings, shared,
};
use palisade_yaml::{Limits, parse};
use serde_json::{Value, json};

const REQUESTS_AT_ONCE: usize = 8;
const LEVELS: [&str; 2] = ["baseline", "restricted"];
/// Each has rules that those before it do not have.
const SAMPLED: &[&str] = &["v1.0", "v1.8", "v1.19", "v1.22", "v1.25", "v1.29", "v1.32", "v1.35"];
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// What an API server answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

pub(crate) struct Api {
    pub(crate) client: kube::Client,
}

impl Api {
    pub(crate) async fn send(&self, method: &str, path: &str, body: &Value, kind: &str) -> Answer {
        self.send_as(None, method, path, body, kind).await
    }

    /// Sends a request, as another user if one is named.
    pub(crate) async fn send_as(
        &self,
        user: Option<&str>,
        method: &str,
        path: &str,
        body: &Value,
        kind: &str,
    ) -> Answer {
        let mut request = hyper::Request::builder().method(method).uri(path).header("content-type", kind);
        if let Some(user) = user {
            request = request.header("impersonate-user", user).header("impersonate-group", "system:masters");
        }
        let request = request.body(serde_json::to_vec(body).unwrap().into()).unwrap();
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        let warnings =
            response.headers().get_all("warning").iter().map(|text| unquoted(text.to_str().unwrap()));
        let warnings = warnings.collect();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer { code, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null), warnings }
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, body, "application/json").await
    }

    /// Creates an object that is expected to be accepted.
    pub(crate) async fn make(&self, path: &str, body: &Value) {
        let answer = self.post(path, body).await;
        assert!(answer.code < 300, "{path}: {answer:?}");
    }

    pub(crate) async fn namespace(&self, name: &str, labels: Value) {
        self.make("/api/v1/namespaces", &json!({"metadata": {"name": name, "labels": labels}})).await;
    }

    /// Applies policies and bindings, and waits until all of them are in effect. They reach admission a moment after they are
    /// stored, not all at once but in the order they were made: when a marker that was made last decides, so do they.
    pub(crate) async fn make_policies(&self, objects: &[Value]) {
        for object in objects {
            self.make(&policy_path(object), object).await;
        }
        let name = format!("marker-{}", objects[0]["metadata"]["name"].as_str().unwrap()).replace('.', "-");
        for marker in marker_policies(&name) {
            self.make(&policy_path(&marker), &marker).await;
        }
        let namespace = json!({"metadata": {"name": name}});
        for _ in 0..600 {
            let answer = self.post("/api/v1/namespaces?dryRun=All", &namespace).await;
            // Mutation comes first, so a message of the one that sees the label of the other stands for both.
            if answer.code == 422 && answer.message().contains(&name) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("the policies {name} are not in effect");
    }

    /// Waits until the policies of a namespace are in effect: they reach admission a moment after they are stored.
    async fn until_denied(&self, namespace: &str) {
        let pod = pod_with(json!({"hostNetwork": true}));
        for _ in 0..600 {
            if self.dry_run(namespace, &pod).await.code == 403 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("the policies of namespace {namespace} are not in effect");
    }

    pub(crate) async fn dry_run(&self, namespace: &str, pod: &Value) -> Answer {
        self.post(&format!("/api/v1/namespaces/{namespace}/pods?dryRun=All"), pod).await
    }
}

/// A policy that labels namespaces, and one that denies the namespace of that name once it has the label.
fn marker_policies(name: &str) -> [Value; 4] {
    let version = "admissionregistration.k8s.io/v1";
    let rules = json!({"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["namespaces"],
    }]});
    let label = format!("Object{{metadata: Object.metadata{{labels: {{'{name}': 'seen'}}}}}}");
    let denied =
        format!("object.metadata.name != '{name}' || !('{name}' in object.metadata.?labels.orValue({{}}))");
    [
        json!({"apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "matchConstraints": rules, "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}],
        }}),
        json!({"apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name}}),
        json!({"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "matchConstraints": rules, "validations": [{"expression": denied, "message": name}],
        }}),
        json!({"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]}}),
    ]
}

pub(crate) fn policy_path(object: &Value) -> String {
    let plural = match object["kind"].as_str().unwrap() {
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
        "MutatingAdmissionPolicy" => "mutatingadmissionpolicies",
        "MutatingAdmissionPolicyBinding" => "mutatingadmissionpolicybindings",
        kind => panic!("{kind}"),
    };
    format!("{GROUP}/{plural}")
}

/// The text of a warning header: `299 - "text"`.
fn unquoted(header: &str) -> String {
    let text = header.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"')).unwrap_or(header);
    text.replace("\\\"", "\"")
}

pub(crate) fn pod_with(spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "a"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// What `palisade export policies` prints.
pub(crate) fn exported(arguments: &[&str]) -> Vec<Value> {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_palisade"));
    let text = output(command.args(["export", "policies"]).args(arguments)).expect_success();
    let parsed = parse(&text, &Limits::default());
    parsed.documents.iter().map(|document| document.root().to_json().unwrap()).collect()
}

/// Different pods, by where each was found first.
#[derive(Default)]
pub(crate) struct Pods(pub(crate) BTreeMap<String, (String, Value)>);

impl Pods {
    fn add(&mut self, pod: &Value, from: &str) {
        let mut metadata = json!({"name": "p"});
        for field in ["annotations", "labels"] {
            if let Some(value) = pod["metadata"].get(field) {
                metadata[field] = value.clone();
            }
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]});
        self.0.entry(pod.to_string()).or_insert_with(|| (from.to_owned(), pod));
    }

    /// Every pod in a record, however deep.
    fn find(&mut self, value: &Value, from: &str) {
        match value {
            Value::Object(_) if value["kind"] == "Pod" && value["spec"]["containers"].is_array() => {
                self.add(value, from);
            }
            Value::Object(fields) => fields.values().for_each(|value| self.find(value, from)),
            Value::Array(items) => items.iter().for_each(|value| self.find(value, from)),
            _ => {}
        }
    }
}

fn files_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir() { found.extend(files_below(&entry)) } else { found.push(entry) }
    }
    found
}

/// Upstream's fixtures.
pub(crate) fn fixtures() -> Option<Pods> {
    let mut pods = Pods::default();
    for file in files_below(&shared("fixtures/pod-security-standards")?) {
        if file.extension().is_some_and(|kind| kind == "yaml") {
            let text = fs::read_to_string(&file).unwrap();
            let parsed = parse(&text, &Limits::default());
            pods.add(&parsed.documents[0].root().to_json().unwrap(), &file.display().to_string());
        }
    }
    Some(pods)
}

/// The fixtures, and every pod that was sent to or came from a recorded server.
fn every_pod() -> Option<Pods> {
    let mut pods = fixtures()?;
    for root in [recordings::folder(), shared("recordings")?] {
        let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        for folder in folders.filter(|path| path.is_dir()) {
            let records: Vec<Value> = recordings::of_folder(&folder).unwrap();
            for record in &records {
                pods.find(record, &folder.display().to_string());
            }
        }
    }
    Some(pods)
}

/// How the verdicts of two namespaces compare.
#[derive(Default)]
struct Comparison {
    total: usize,
    equal: usize,
    denied: usize,
    same_message: usize,
    differences: Vec<String>,
}

impl Comparison {
    async fn of(api: &Api, ours: &str, theirs: &str, pods: &Pods) -> Self {
        let answers =
            stream::iter(pods.0.values())
                .map(|(from, pod)| async move {
                    (from, api.dry_run(theirs, pod).await, api.dry_run(ours, pod).await)
                })
                .buffer_unordered(REQUESTS_AT_ONCE);
        let mut found = Self::default();
        let mut answers = std::pin::pin!(answers);
        while let Some((from, theirs, ours)) = answers.next().await {
            found.total += 1;
            if theirs.code == ours.code {
                found.equal += 1;
            } else {
                found.differences.push(format!("{from}: {} / {}", theirs.message(), ours.message()));
            }
            if theirs.code == 403 && ours.code == 403 {
                found.denied += 1;
                let after = |text: &str, mark: &str| text.split_once(mark).map(|(_, rest)| rest.to_owned());
                let expected = after(theirs.message(), "is forbidden: ");
                let message = after(ours.message(), "denied request: ");
                if expected == message {
                    found.same_message += 1;
                } else {
                    found.differences.push(format!("{from}: {expected:?} / {message:?}"));
                }
            }
        }
        found
    }
}

#[tokio::test]
async fn exported_policies_decide_as_pod_security_admission() {
    let Some(cluster) = Cluster::start(Parts::Api) else { return };
    let (Some(fixtures), Some(pods)) = (fixtures(), every_pod()) else { return };
    assert!(fixtures.0.len() >= 350 && pods.0.len() >= 2_500, "{} {}", fixtures.0.len(), pods.0.len());
    let api = Api { client: cluster.client().await };
    let all = std::env::var("PALISADE_POLICY_VERSIONS").is_ok_and(|value| value == "all");
    let every_version: Vec<String> = (0..=NEWEST_MINOR).map(|minor| format!("v1.{minor}")).collect();
    let versions: Vec<&str> = if all {
        every_version.iter().map(String::as_str).chain(["latest"]).collect()
    } else {
        SAMPLED.iter().copied().chain(["latest"]).collect()
    };
    let mut table = "version  level       equal / total  denied  same message\n".to_owned();
    let mut differences = Vec::new();
    for version in versions {
        let pods = if all || version == "latest" { &pods } else { &fixtures };
        for level in LEVELS {
            let tag = format!("{level}-{version}").replace('.', "-");
            let (theirs, ours) = (format!("psa-{tag}"), format!("policy-{tag}"));
            api.namespace(
                &theirs,
                json!({"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": version}),
            )
            .await;
            api.namespace(&ours, json!({"policies": tag})).await;
            let selector = format!("policies={tag}");
            let policies =
                exported(&["--level", level, "--policy-version", version, "--namespace-selector", &selector]);
            api.make_policies(&policies).await;
            api.until_denied(&ours).await;
            let found = Comparison::of(&api, &ours, &theirs, pods).await;
            let _ = writeln!(
                table,
                "{version:8} {level:10} {:6} / {:5}  {:6}  {:12}",
                found.equal, found.total, found.denied, found.same_message
            );
            differences.extend(found.differences.into_iter().map(|text| format!("{level}:{version} {text}")));
            for policy in &policies {
                let name = policy["metadata"]["name"].as_str().unwrap();
                let path = format!("{}/{name}", policy_path(policy));
                assert_eq!(api.send("DELETE", &path, &json!({}), "application/json").await.code, 200);
            }
        }
    }
    println!("{table}");
    assert!(differences.is_empty(), "{table}\n{}", differences.join("\n"));
}

#[tokio::test]
async fn policies_that_follow_labels_decide_as_pod_security_admission() {
    // Two API servers: one enforces the labels itself, the other by policies alone.
    let flags = ["--disable-admission-plugins=PodSecurity"];
    let (Some(theirs), Some(ours)) = (Cluster::start(Parts::Api), Cluster::start_with(Parts::Api, &flags))
    else {
        return;
    };
    let Some(pods) = fixtures() else { return };
    let (theirs, ours) = (Api { client: theirs.client().await }, Api { client: ours.client().await });
    ours.make_policies(&exported(&["--follow-labels"])).await;
    let label = |mode: &str| format!("pod-security.kubernetes.io/{mode}");
    let cases = [
        ("none", json!({})),
        ("privileged", json!({label("enforce"): "privileged", label("warn"): "privileged"})),
        ("future", json!({label("enforce"): "restricted", label("enforce-version"): "v1.99"})),
        ("first", json!({label("enforce"): "baseline", label("enforce-version"): "v1.0"})),
        ("old", json!({label("enforce"): "restricted", label("enforce-version"): "v1.24"})),
        ("latest", json!({label("enforce"): "restricted", label("enforce-version"): "latest"})),
        (
            "warned",
            json!({label("enforce"): "baseline", label("warn"): "restricted", label("warn-version"): "v1.24"}),
        ),
        ("only-warned", json!({label("warn"): "baseline"})),
    ];
    for (name, labels) in &cases {
        theirs.namespace(name, labels.clone()).await;
        ours.namespace(name, labels.clone()).await;
    }
    ours.until_denied("latest").await;
    let mut differences = Vec::new();
    for (name, _) in &cases {
        let deployment = |pod: &Value| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}, "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}}})
        };
        let path = format!("/apis/apps/v1/namespaces/{name}/deployments?dryRun=All");
        for (from, pod) in pods.0.values() {
            let (expected, answer) = (theirs.dry_run(name, pod).await, ours.dry_run(name, pod).await);
            let strip =
                |text: &str| text.rsplit_once("is forbidden: ").map_or(text, |(_, rest)| rest).to_owned();
            let message = answer.message();
            let message = message.split_once("denied request: ").map_or(message, |(_, rest)| rest);
            if expected.code != answer.code || (expected.code == 403 && strip(expected.message()) != message)
            {
                differences.push(format!("{name} {from}: {} / {message}", expected.message()));
            }
            // A denied request is not warned about a second time.
            if expected.code == 201 && warnings(&expected) != warnings(&answer) {
                differences.push(format!("{name} {from}: {:?} / {:?}", expected.warnings, answer.warnings));
            }
            let (expected, answer) =
                (theirs.post(&path, &deployment(pod)).await, ours.post(&path, &deployment(pod)).await);
            if expected.code != answer.code || warnings(&expected) != warnings(&answer) {
                differences.push(format!("{name} Deployment {from}: {expected:?} / {answer:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} of {}: {}", differences.len(), pods.0.len(), differences.join("\n"));

    // Labels that cannot be read do not pass the plugin when they are written; without the plugin they are read as it reads
    // those that were stored before it was enabled.
    for (name, labels, expected) in [
        ("invalid-level", json!({label("enforce"): "Restricted"}), "restricted:latest"),
        (
            "invalid-version",
            json!({label("enforce"): "baseline", label("enforce-version"): "v1.01"}),
            "baseline:latest",
        ),
    ] {
        ours.namespace(name, labels).await;
        let answer = ours.dry_run(name, &pod_with(json!({"hostPID": true}))).await;
        let message = format!("violates PodSecurity \"{expected}\": ");
        assert!(answer.code == 403 && answer.message().contains(&message), "{name}: {answer:?}");
    }
    ours.namespace("invalid-warning", json!({label("enforce"): "privileged", label("warn"): "x"})).await;
    let answer = ours.dry_run("invalid-warning", &pod_with(json!({"hostPID": true}))).await;
    assert_eq!((answer.code, warnings(&answer).len()), (201, 0), "{answer:?}");
}

/// What standards warn about, whichever plugin does.
fn warnings(answer: &Answer) -> BTreeSet<String> {
    let of_standards = answer.warnings.iter().filter(|text| text.contains("would violate PodSecurity"));
    of_standards
        .map(|text| text.find("would violate").map_or(text.as_str(), |at| &text[at..]).to_owned())
        .collect()
}

#[tokio::test]
async fn policies_judge_updates_and_workloads_as_pod_security_admission() {
    let Some(cluster) = Cluster::start(Parts::Api) else { return };
    let api = Api { client: cluster.client().await };
    let (theirs, ours) = ("psa", "policy");
    for namespace in [theirs, ours] {
        api.namespace(namespace, json!({})).await;
        let mut pod = pod_with(json!({"hostNetwork": true}));
        pod["metadata"]["name"] = json!("old");
        api.make(&format!("/api/v1/namespaces/{namespace}/pods"), &pod).await;
    }
    // Levels that come later: the pod is there, and violates them.
    let merge = "application/merge-patch+json";
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let enforce = labels(json!({"pod-security.kubernetes.io/enforce": "baseline"}));
    assert_eq!(api.send("PATCH", "/api/v1/namespaces/psa", &enforce, merge).await.code, 200);
    let selected = labels(json!({"policies": "on"}));
    assert_eq!(api.send("PATCH", "/api/v1/namespaces/policy", &selected, merge).await.code, 200);
    api.make_policies(&exported(&["--level", "baseline", "--namespace-selector", "policies=on"])).await;
    api.until_denied(ours).await;

    let ephemeral =
        |name: &str, image: &str| json!({"spec": {"ephemeralContainers": [{"name": name, "image": image}]}});
    let cases = [
        ("a label", "", json!({"metadata": {"labels": {"a": "b"}}}), 200),
        ("a toleration", "", json!({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}), 200),
        ("a deadline", "", json!({"spec": {"activeDeadlineSeconds": 100}}), 200),
        ("an image", "", json!({"spec": {"containers": [{"name": "c", "image": "b"}]}}), 403),
        ("a new ephemeral container", "/ephemeralcontainers", ephemeral("e", "e"), 403),
        ("a status", "/status", json!({"status": {"message": "m"}}), 200),
    ];
    for (case, subresource, patch, expected) in cases {
        let mut codes = Vec::new();
        for namespace in [theirs, ours] {
            let path = format!("/api/v1/namespaces/{namespace}/pods/old{subresource}?dryRun=All");
            let kind = "application/strategic-merge-patch+json";
            codes.push(api.send("PATCH", &path, &patch, kind).await.code);
        }
        assert_eq!(codes, [expected, expected], "{case}");
    }

    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"hostPID": true, "restartPolicy": "Always",
        "containers": [{"name": "c", "image": "a", "securityContext": {"privileged": true}}]}});
    let mut job = template.clone();
    job["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({"matchLabels": {"a": "b"}});
    let workload = json!({"selector": selector, "template": template});
    for (path, kind, body) in [
        ("apis/apps/v1", "Deployment", json!({"spec": workload})),
        ("apis/apps/v1", "DaemonSet", json!({"spec": workload})),
        ("apis/apps/v1", "ReplicaSet", json!({"spec": workload})),
        ("apis/apps/v1", "StatefulSet", json!({"spec": workload})),
        ("apis/batch/v1", "Job", json!({"spec": {"template": job}})),
        (
            "apis/batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job}}}}),
        ),
        ("api/v1", "ReplicationController", json!({"spec": {"selector": {"a": "b"}, "template": template}})),
        ("api/v1", "PodTemplate", json!({"template": template})),
    ] {
        let mut found = Vec::new();
        for namespace in [theirs, ours] {
            let version = path.split_once('/').unwrap().1;
            let mut body = body.clone();
            body["apiVersion"] = json!(version);
            body["kind"] = json!(kind);
            body["metadata"] = json!({"name": "w"});
            let path = format!("/{path}/namespaces/{namespace}/{}s?dryRun=All", kind.to_lowercase());
            let answer = api.post(&path, &body).await;
            assert_eq!(answer.code, 201, "{kind}: {answer:?}");
            found.push(warnings(&answer));
        }
        assert_eq!(found[0], found[1], "{kind}");
        assert_eq!(found[0].len(), 1, "{kind}");
    }
}

#[tokio::test]
async fn policies_from_files_need_no_objects() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_palisade"));
    let _ = command.args(["export", "policies", "--level", "restricted", "--defaults", "--static-manifests"]);
    let configuration = output(command.arg(folder.path().join("policies"))).expect_success();
    let file = folder.path().join("admission.yaml");
    fs::write(&file, configuration).unwrap();
    let flag = format!("--admission-control-config-file={}", file.display());
    let Some(cluster) = Cluster::start_with(Parts::Api, &[&flag]) else { return };
    let api = Api { client: cluster.client().await };
    api.namespace("a", json!({})).await;
    // No waiting: the policies are in effect when the API server is ready.
    let denied = api.dry_run("a", &pod_with(json!({"hostNetwork": true}))).await;
    assert_eq!(denied.code, 403, "{denied:?}");
    assert!(
        denied.message().contains("pod-security-restricted-latest.static.k8s.io"),
        "{}",
        denied.message()
    );
    let admitted = api.dry_run("a", &pod_with(json!({}))).await;
    assert_eq!(admitted.code, 201, "{admitted:?}");
}

#[tokio::test]
async fn defaults_make_a_plain_pod_comply() {
    let Some(cluster) = Cluster::start(Parts::Api) else { return };
    let api = Api { client: cluster.client().await };
    for version in ["v1.0", "v1.19", "latest"] {
        let name = format!("defaults-{version}").replace('.', "-");
        api.namespace(&name, json!({"policies": name})).await;
        let selector = format!("policies={name}");
        let arguments = [
            "--level",
            "restricted",
            "--policy-version",
            version,
            "--defaults",
            "--namespace-selector",
            &selector,
        ];
        api.make_policies(&exported(&arguments)).await;
        api.until_denied(&name).await;
    }
    let own = json!({"runAsNonRoot": false, "allowPrivilegeEscalation": true, "capabilities": {"add": ["CHOWN"], "drop": ["KILL"]}});
    let cases = [
        ("nothing set", json!({}), 201),
        (
            "some set",
            json!({"securityContext": {"runAsUser": 7}, "initContainers": [{"name": "i", "image": "a",
            "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}}}]}),
            201,
        ),
        ("for Windows", json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}}), 201),
        (
            "values of its own stay",
            json!({"containers": [{"name": "c", "image": "a", "securityContext": own}]}),
            403,
        ),
        ("what no default mends", json!({"hostPID": true}), 403),
    ];
    api.until_denied("defaults-latest").await;
    for (case, spec, expected) in cases {
        let answer = api.dry_run("defaults-latest", &pod_with(spec)).await;
        assert_eq!(answer.code, expected, "{case}: {answer:?}");
    }
    let spec = api.dry_run("defaults-latest", &pod_with(json!({}))).await.body["spec"].take();
    assert_eq!(
        spec["securityContext"],
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})
    );
    assert_eq!(
        spec["containers"][0]["securityContext"],
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
    );
    // A version that does not require a value does not set it.
    let spec = api.dry_run("defaults-v1-0", &pod_with(json!({}))).await.body["spec"].take();
    assert_eq!(spec["securityContext"], json!({"runAsNonRoot": true}));
    assert_eq!(spec["containers"][0].get("securityContext"), None);
}

/// Policies and requests, and the same two servers: the real one, and `palisade up`.
struct PolicyCase {
    name: &'static str,
    /// Fields of the spec of the policy, besides what it matches.
    policy: Value,
    /// Fields of the spec of its binding.
    binding: Value,
    /// Data of the ConfigMap that is created.
    data: Value,
}

fn policy_cases() -> Vec<PolicyCase> {
    let case =
        |name, policy: Value, binding: Value| PolicyCase { name, policy, binding, data: json!({"a": "b"}) };
    let deny = || json!({"validationActions": ["Deny"]});
    let one = |expression: &str| json!({"validations": [{"expression": expression}]});
    let params = |action: &str| json!({"validationActions": ["Deny"], "paramRef": {"name": "limits", "parameterNotFoundAction": action}});
    let with_params = |expression: &str| json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": expression}]});
    vec![
        case("admits", one("object.data.a == 'b'"), deny()),
        case("denies", one("object.data.a == 'c'"), deny()),
        case("message", json!({"validations": [{"expression": "false", "message": "not today"}]}), deny()),
        case(
            "message-expression",
            json!({"validations": [{"expression": "false", "message": "m",
                "messageExpression": "'a is ' + object.data.a", "reason": "Forbidden"}]}),
            deny(),
        ),
        case(
            "message-expression-fails",
            json!({"validations": [{"expression": "false", "message": "m", "messageExpression": "string(object.data.x)"}]}),
            deny(),
        ),
        case(
            "too-large",
            json!({"validations": [{"expression": "false", "reason": "RequestEntityTooLarge"}]}),
            deny(),
        ),
        case(
            "second-of-three",
            json!({"validations": [
            {"expression": "true"}, {"expression": "1 > 2"}, {"expression": "2 > 3"}]}),
            deny(),
        ),
        case("warns", one("false"), json!({"validationActions": ["Warn", "Audit"]})),
        case("fails", one("object.data.missing == 'b'"), deny()),
        case("fails-and-warns", one("object.data.missing == 'b'"), json!({"validationActions": ["Warn"]})),
        case(
            "fails-ignored",
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.missing == 'b'"}]}),
            deny(),
        ),
        case(
            "variables",
            json!({"variables": [
            {"name": "one", "expression": "object.data.a"}, {"name": "two", "expression": "variables.one + 'c'"},
            {"name": "broken", "expression": "object.data.missing"}],
            "validations": [{"expression": "variables.two == 'bd'", "messageExpression": "variables.two"}]}),
            deny(),
        ),
        case(
            "broken-variable",
            json!({"variables": [{"name": "broken", "expression": "object.data.missing"}],
            "validations": [{"expression": "variables.broken == ''"}]}),
            deny(),
        ),
        case(
            "condition-false",
            json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'x'"}],
            "validations": [{"expression": "false"}]}),
            deny(),
        ),
        case(
            "condition-fails",
            json!({"matchConditions": [{"name": "c", "expression": "object.data.missing == 'x'"}],
            "validations": [{"expression": "false"}]}),
            deny(),
        ),
        case(
            "namespace",
            one("namespaceObject.metadata.name == request.namespace && request.operation == 'UPDATE'"),
            deny(),
        ),
        case(
            "request",
            one(
                "request.userInfo.groups.exists(g, g == 'system:masters') && request.kind.kind == 'ConfigMap' && \
            request.resource.resource == 'configmaps' && request.name == 'm' && oldObject == null && request.dryRun",
            ),
            deny(),
        ),
        case(
            "authorizer",
            one("authorizer.group('').resource('pods').namespace('default').check('create').allowed() && \
                 !authorizer.serviceAccount('default', 'nobody').group('').resource('pods').check('create').allowed()"),
            deny(),
        ),
        case(
            "authorizer-of-request",
            one(
                "authorizer.requestResource.check('create').allowed() && authorizer.path('/healthz').check('get').allowed()",
            ),
            deny(),
        ),
        case(
            "not-bound-here",
            one("false"),
            json!({"validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
        ),
        case(
            "excluded",
            json!({"validations": [{"expression": "false"}]}),
            json!({"validationActions": ["Deny"],
            "matchResources": {"excludeResourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["*"], "resources": ["configmaps"]}]}}),
        ),
        case("params", with_params("object.data.a == params.data.allowed"), params("Deny")),
        case("params-differ", with_params("object.data.a != params.data.allowed"), params("Deny")),
        case(
            "params-missing",
            with_params("false"),
            json!({"validationActions": ["Deny"],
            "paramRef": {"name": "none", "parameterNotFoundAction": "Deny"}}),
        ),
        case(
            "params-missing-allowed",
            with_params("false"),
            json!({"validationActions": ["Deny"],
            "paramRef": {"name": "none", "parameterNotFoundAction": "Allow"}}),
        ),
        case(
            "params-selected",
            with_params("object.data.a != params.data.allowed"),
            json!({"validationActions": ["Deny"],
            "paramRef": {"selector": {"matchLabels": {"limits": "yes"}}, "parameterNotFoundAction": "Deny"}}),
        ),
        case(
            "lists",
            one("[3, 1, 3].distinct().sort() == [1, 3] && {'a': 1}.all(k, v, v == 1) && \
            [4, 5].transformList(i, v, i > 0, v + 1) == [6] && ['a'].exists(i, v, i == 0 && v == 'a')"),
            deny(),
        ),
        case("unknown-variable", one("variables.nothing == 1"), deny()),
        case("unknown-name", one("nothing == 1"), deny()),
        case("no-validation", json!({"validations": []}), deny()),
        case("two-actions", one("true"), json!({"validationActions": ["Deny", "Warn"]})),
        case("no-action", one("true"), json!({"validationActions": []})),
    ]
}

fn mutation_cases() -> Vec<(&'static str, Value, Value)> {
    let json_patch =
        |expression: &str| json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]);
    let apply = |expression: &str| json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]);
    vec![
        ("json-patch", json_patch("[JSONPatch{op: 'add', path: '/data/c', value: 'd'}]"), json!({})),
        (
            "json-patch-nothing",
            json_patch("false ? [JSONPatch{op: 'remove', path: '/data'}] : []"),
            json!({}),
        ),
        (
            "json-patch-escaped",
            json_patch(
                "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'x': 'y'}}, \
            JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c'), value: 'd'}]",
            ),
            json!({}),
        ),
        ("apply", apply("Object{data: {'c': object.data.a + 'x'}}"), json!({})),
        ("apply-metadata", apply("Object{metadata: Object.metadata{labels: {'a': 'b'}}}"), json!({})),
        (
            "fails",
            json_patch("[JSONPatch{op: 'add', path: '/data/c', value: object.data.missing}]"),
            json!({}),
        ),
        (
            "fails-ignored",
            json_patch("[JSONPatch{op: 'add', path: '/data/c', value: object.data.missing}]"),
            json!({"failurePolicy": "Ignore"}),
        ),
        ("bad-path", json_patch("[JSONPatch{op: 'remove', path: '/data/none'}]"), json!({})),
        (
            "variables",
            json_patch("[JSONPatch{op: 'replace', path: '/data/a', value: variables.v}]"),
            json!({"variables": [{"name": "v", "expression": "object.data.a + '!'"}]}),
        ),
        (
            "condition",
            json_patch("[JSONPatch{op: 'remove', path: '/data/a'}]"),
            json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name != 'm'"}]}),
        ),
    ]
}

/// What a client sees of an answer. Libraries for JSON patches word their errors in different ways.
fn seen(answer: &Answer) -> Value {
    let causes = &answer.body["details"]["causes"];
    if let Some((before, _)) = answer.message().split_once("JSON Patch: ") {
        return json!({"code": answer.code, "reason": answer.body["reason"], "message": before});
    }
    let object = |field: &str| answer.body.pointer(field).cloned().unwrap_or(Value::Null);
    json!({
        "code": answer.code, "reason": answer.body["reason"], "message": answer.body["message"], "causes": causes,
        "warnings": answer.warnings, "data": object("/data"), "labels": object("/metadata/labels"),
    })
}

#[tokio::test]
async fn palisade_up_evaluates_policies_as_the_real_api_server() {
    let Some(cluster) = Cluster::start(Parts::Api) else { return };
    let minor = NEWEST_MINOR;
    let router = palisade_apiserver::Server::builder()
        .version(palisade_base::version::KubeVersion::LATEST)
        .compat(palisade_model::compat::Compat::kubernetes(minor))
        .router()
        .unwrap();
    let servers =
        [Api { client: cluster.client().await }, Api { client: kube::Client::new(router, "default") }];
    let rules = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps"]}]});
    let mut answers: [BTreeMap<String, Value>; 2] = Default::default();
    for (api, answers) in servers.iter().zip(&mut answers) {
        let mut waiting = Vec::new();
        for case in policy_cases() {
            let namespace = format!("v-{}", case.name);
            api.namespace(&namespace, json!({"case": namespace})).await;
            let limits = json!({"metadata": {"name": "limits", "labels": {"limits": "yes"}}, "data": {"allowed": "b"}});
            api.make(&format!("/api/v1/namespaces/{namespace}/configmaps"), &limits).await;
            let mut policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": case.name}, "spec": case.policy});
            policy["spec"]["matchConstraints"] = rules.clone();
            let mut binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": case.name}, "spec": case.binding});
            binding["spec"]["policyName"] = json!(case.name);
            if binding["spec"].pointer("/matchResources/namespaceSelector").is_none() {
                binding["spec"]["matchResources"]["namespaceSelector"] =
                    json!({"matchLabels": {"case": namespace}});
            }
            for object in [&policy, &binding] {
                let answer = api.post(&policy_path(object), object).await;
                if answer.code >= 300 {
                    let kind = object["kind"].as_str().unwrap();
                    answers.insert(format!("{} {kind}", case.name), seen(&answer));
                }
            }
            waiting.push((namespace, case));
        }
        for (name, mutations, more) in mutation_cases() {
            let namespace = format!("m-{name}");
            api.namespace(&namespace, json!({"case": namespace})).await;
            let mut policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
                "metadata": {"name": name}, "spec": {"mutations": mutations, "reinvocationPolicy": "Never", "matchConstraints": rules}});
            for (field, value) in more.as_object().unwrap() {
                policy["spec"][field] = value.clone();
            }
            let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
                "metadata": {"name": name}, "spec": {"policyName": name,
                    "matchResources": {"namespaceSelector": {"matchLabels": {"case": namespace}}}}});
            api.make_policies(&[policy, binding]).await;
        }
        // The last of them to be in effect; policies and bindings are read in one go.
        let probe = json!({"metadata": {"name": "m"}, "data": {"a": "b"}});
        for (namespace, field) in [("v-second-of-three", "/message"), ("m-variables", "/data/a")] {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
            for _ in 0..600 {
                let answer = api.post(&path, &probe).await;
                let found = answer.body.pointer(field).and_then(Value::as_str);
                if found.is_some_and(|text| text.contains("denied request") || text == "b!") {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
        for (namespace, case) in waiting {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
            let answer = api.post(&path, &json!({"metadata": {"name": "m"}, "data": case.data})).await;
            answers.insert(case.name.to_owned(), seen(&answer));
        }
        for (name, ..) in mutation_cases() {
            let answer =
                api.post(&format!("/api/v1/namespaces/m-{name}/configmaps?dryRun=All"), &probe).await;
            answers.insert(format!("mutation {name}"), seen(&answer));
        }
    }
    let [real, ours] = answers;
    let differences: Vec<String> = real
        .iter()
        .chain(&ours)
        .filter(|(case, _)| real.get(*case) != ours.get(*case))
        .map(|(case, _)| {
            let shown = |answer: Option<&Value>| answer.map_or("nothing".to_owned(), ToString::to_string);
            format!("{case}\n  real: {}\n  up:   {}", shown(real.get(case)), shown(ours.get(case)))
        })
        .collect();
    let differences: BTreeSet<String> = differences.into_iter().collect();
    let text: Vec<String> = differences.into_iter().collect();
    assert!(text.is_empty(), "{} of {}:\n{}", text.len(), real.len(), text.join("\n"));
}

#[tokio::test]
async fn palisade_up_decides_by_exported_policies_as_by_its_own_pod_security_admission() {
    let Some(pods) = every_pod() else { return };
    let router = palisade_apiserver::Server::builder()
        .version(palisade_base::version::KubeVersion::LATEST)
        .compat(palisade_model::compat::Compat::kubernetes(NEWEST_MINOR))
        .disable_plugins(["ServiceAccount".to_owned()])
        .router()
        .unwrap();
    let api = Api { client: kube::Client::new(router, "default") };
    let mut differences = Vec::new();
    for (level, version) in
        [("baseline", "v1.0"), ("restricted", "v1.24"), ("baseline", "latest"), ("restricted", "latest")]
    {
        let tag = format!("{level}-{version}").replace('.', "-");
        let (theirs, ours) = (format!("psa-{tag}"), format!("policy-{tag}"));
        let labels = json!({"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": version});
        api.namespace(&theirs, labels).await;
        api.namespace(&ours, json!({"policies": tag})).await;
        let selector = format!("policies={tag}");
        let arguments = ["--level", level, "--policy-version", version, "--namespace-selector", &selector];
        api.make_policies(&exported(&arguments)).await;
        let found = Comparison::of(&api, &ours, &theirs, &pods).await;
        println!(
            "{level}:{version} {} / {} equal, {} of {} messages",
            found.equal, found.total, found.same_message, found.denied
        );
        differences.extend(found.differences.into_iter().map(|text| format!("{level}:{version} {text}")));
    }
    assert!(
        differences.is_empty(),
        "{}: {}",
        differences.len(),
        differences.iter().take(30).cloned().collect::<Vec<_>>().join("\n")
    );
}
