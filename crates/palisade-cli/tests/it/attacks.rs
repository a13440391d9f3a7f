//! The attack cases in `tests/attacks`, run against the embedded server in every mode, the webhook and the command line.
//!
//! A case is a file: its attack is rejected as the file expects, and its harmless twin succeeds. `tests/attacks/README.md`
//! describes the format. `ATTACKS=<substring>` restricts a run to the files whose names contain it.

mod case;

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Request;
use kube::Client;
use palisade_apimachinery::patch::{PatchType, untyped};
use palisade_apiserver::{Router, Server, auth::UserInfo};
use palisade_base::version::KubeVersion;
use palisade_cli::commands::up::pod_security_configuration;
use palisade_webhook::{
    answer::{Answerer, Route},
    configuration::Follower,
    facts::ClusterFacts,
    metrics::Metrics,
    options::ConfigurationSource,
};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use self::case::{Case, MODES, Mode, Part, Step, cases, contains, read_yaml};
use crate::support::{Project, Run};

#[tokio::test(flavor = "multi_thread")]
async fn attacks_fail_in_default_mode() {
    run_mode(|mode| mode == Mode::Default).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_fail_in_v1_37_mode() {
    run_mode(|mode| mode == Mode::Release(37)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_fail_in_v1_24_mode() {
    run_mode(|mode| mode == Mode::Release(24)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_fail_in_openshift_mode() {
    run_mode(|mode| mode == Mode::OpenShift).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_fail_in_the_other_releases_that_cases_name() {
    run_mode(|mode| !MODES.contains(&mode)).await;
}

/// Cases without a server run once.
#[test]
fn attacks_fail_on_the_command_line() {
    let mut failures = Vec::new();
    for case in cases().into_iter().filter(|case| !case.needs_server()) {
        let project = case.project();
        for (part, steps) in [(Part::Attack, &case.attack), (Part::Twin, &case.twin)] {
            for (number, step) in steps.iter().enumerate() {
                if let Err(why) = run_command(&project, step, part, str::to_owned) {
                    failures.push(format!("{} ({part} {number}): {why}", case.file));
                }
            }
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

async fn run_mode(wanted: impl Fn(Mode) -> bool) {
    let mut failures = Vec::new();
    for case in cases().iter().filter(|case| case.needs_server()) {
        for mode in case.modes().into_iter().filter(|mode| wanted(*mode)) {
            let found = run_case(case, mode).await;
            failures.extend(found.into_iter().map(|failure| format!("{} in {mode} {failure}", case.file)));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Runs a case on a server of its own: what failed.
async fn run_case(case: &Case, mode: Mode) -> Vec<String> {
    let arena = Arena::start(case, mode).await;
    let mut failures = Vec::new();
    for (number, item) in case.setup.iter().enumerate() {
        if let Err(why) = arena.set_up(item).await {
            failures.push(format!("(setup {number}): {why}"));
        }
    }
    let webhook = if case.webhook { Some(Webhook::start(&arena, mode, case).await) } else { None };
    // The twin first: an attack that is rejected only because something harmless failed is not rejected at all.
    for (part, steps) in [(Part::Twin, &case.twin), (Part::Attack, &case.attack)] {
        for (number, step) in steps.iter().enumerate() {
            let mut outcomes = vec![arena.run(step, part).await];
            if let Some(webhook) = webhook.as_ref().filter(|_| step.creates_pod()) {
                outcomes.push(webhook.check(&arena, step, part).await);
            }
            for why in outcomes.into_iter().filter_map(Result::err) {
                failures.push(format!("({part} {number}): {why}"));
            }
        }
    }
    arena.server.shutdown().await;
    failures
}

/// A server as `palisade up` builds it, with the namespace of a case.
struct Arena<'c> {
    case: &'c Case,
    server: Server,
    project: Project,
    namespace: String,
}

struct Answer {
    status: u16,
    text: String,
}

impl<'c> Arena<'c> {
    async fn start(case: &'c Case, mode: Mode) -> Self {
        let project = case.project();
        let mut builder = Server::builder().kubeconfig(project.path("kubeconfig"));
        if let Mode::Release(minor) = mode {
            builder = builder.version(KubeVersion::v1(minor));
        }
        builder = builder.compat(case.compat(mode)).openshift(mode == Mode::OpenShift);
        let server = builder.start().await.unwrap();
        let arena = Self { case, server, project, namespace: case.namespace() };
        let metadata = json!({"name": arena.namespace, "labels": case.labels});
        arena
            .make(
                "/api/v1/namespaces",
                &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
            )
            .await;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "attacks-edit"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "edit"}],
        });
        let namespace = &arena.namespace;
        arena
            .make(
                &format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"),
                &binding,
            )
            .await;
        arena.wait_for(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/default")).await;
        arena
    }

    async fn make(&self, path: &str, object: &Value) {
        let answer = self.send("admin", "POST", path, "application/json", &[], object.to_string()).await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.text);
    }

    async fn wait_for(&self, path: &str) {
        for _ in 0..500 {
            if self.send("admin", "GET", path, "", &[], Bytes::new()).await.status == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{path} is not there after 5 seconds");
    }

    fn router(&self, user: &str) -> Router {
        let groups = ["system:authenticated"];
        let user = if user == "admin" { UserInfo::admin() } else { UserInfo::new(user, &groups) };
        self.server.router().as_user(user)
    }

    async fn send(
        &self,
        user: &str,
        method: &str,
        path: &str,
        content_type: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = kube::client::Body::from(body.into());
        let request = request.body(body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let response = Client::new(self.router(user), "default").send(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer { status, text: String::from_utf8_lossy(&body).into_owned() }
    }

    /// Replaces what only a run has.
    fn fill(&self, text: &str) -> String {
        let kubeconfig = self.project.path("kubeconfig");
        text.replace("{ns}", &self.namespace).replace("{kubeconfig}", &kubeconfig.display().to_string())
    }

    async fn set_up(&self, item: &Value) -> Result<(), String> {
        if item.get("request").is_some() {
            let step: Step = serde_json::from_value(item.clone()).map_err(|error| error.to_string())?;
            let user = step.user.clone().or_else(|| Some("admin".to_owned()));
            return self.run(&Step { user, ..step }, Part::Setup).await;
        }
        let object = self.fill(&item.to_string());
        let path = self.collection(item).await?;
        let answer = self.send("admin", "POST", &path, "application/json", &[], object).await;
        if answer.status != 201 {
            return Err(format!("{path}: {} {}", answer.status, answer.text));
        }
        if item["kind"] == "CustomResourceDefinition" {
            let (spec, version) = (&item["spec"], &item["spec"]["versions"][0]["name"]);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
            self.wait_for(&format!("/apis/{group}/{}/{plural}", text(version))).await;
        }
        Ok(())
    }

    /// Where objects of a kind are created.
    async fn collection(&self, object: &Value) -> Result<String, String> {
        let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let (Some(version), Some(kind)) = (version, kind) else {
            return Err(format!("neither a request nor an object: {object}"));
        };
        let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let answer = self.send("admin", "GET", &root, "", &[], Bytes::new()).await;
        let list: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        let found = list["resources"].as_array().into_iter().flatten().find(|resource| {
            resource["kind"] == kind && resource["name"].as_str().is_some_and(|name| !name.contains('/'))
        });
        let resource = found.ok_or_else(|| format!("{version} {kind} is not served"))?;
        let name = resource["name"].as_str().unwrap_or_default();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&self.namespace);
        Ok(match resource["namespaced"].as_bool() {
            Some(true) => format!("{root}/namespaces/{}/{name}", self.fill(namespace)),
            _ => format!("{root}/{name}"),
        })
    }

    async fn run(&self, step: &Step, part: Part) -> Result<(), String> {
        let Some(request) = &step.request else {
            let (project, step) = (&self.project, step.clone());
            return tokio::task::block_in_place(|| run_command(project, &step, part, |text| self.fill(text)));
        };
        let request = self.fill(request);
        let (method, path) = request.split_once(' ').ok_or_else(|| format!("request {request:?}"))?;
        let body = step.bytes(|text| self.fill(text))?;
        let content_type = if body.is_empty() { "" } else { step.content_type() };
        let headers: Vec<(&str, String)> =
            step.headers.iter().map(|(name, value)| (&**name, self.fill(value))).collect();
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let user = step.user.as_deref().or(self.case.user.as_deref()).unwrap_or("admin");
        let answer = self.send(user, method, path, content_type, &headers, body).await;
        let expect = step.expect.filled(|text| self.fill(text));
        expect.judge(&answer, part).map_err(|why| {
            format!("{request}: {why}; answered {} {}", answer.status, shortened(&answer.text))
        })
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(600).collect()
}

fn run_command(
    project: &Project,
    step: &Step,
    part: Part,
    fill: impl Fn(&str) -> String,
) -> Result<(), String> {
    let command = step.command.as_ref().ok_or("neither a request nor a command")?;
    let arguments: Vec<String> = command.iter().map(|argument| fill(argument)).collect();
    let run = Run::of(project.command().args(&arguments));
    let expect = &step.expect;
    let exits = match (&expect.exit, part) {
        (Some(exits), _) => exits.as_slice().contains(&run.status),
        (None, Part::Attack) => run.status != 0,
        (None, Part::Twin | Part::Setup) => run.status == 0,
    };
    let judged = if exits { Ok(()) } else { Err(format!("expected exit {:?}", expect.exit)) };
    judged
        .and_then(|()| contains("stdout", expect.stdout.as_ref(), &run.stdout))
        .and_then(|()| contains("stderr", expect.stderr.as_ref(), &run.stderr))
        .map_err(|why| format!("{}: {why}; {}", arguments.join(" "), shortened(&run.to_string())))
}

/// The webhook beside the server of a case, by the rules of the same mode.
struct Webhook {
    answerer: Answerer,
    _watches: JoinSet<()>,
}

impl Webhook {
    async fn start(arena: &Arena<'_>, mode: Mode, case: &Case) -> Self {
        let client = Client::new(arena.router("admin"), "default");
        let metrics = Arc::new(Metrics::default());
        let (source, compat) = (ConfigurationSource::default(), case.compat(mode));
        let follower =
            Follower::new(&source, |text| Ok(pod_security_configuration(text)?), compat, metrics.clone());
        let follower = Arc::new(follower);
        let facts = ClusterFacts::new(
            client.clone(),
            if mode == Mode::OpenShift {
                palisade_policy::scc::mode::ConstraintMode::Enforce
            } else {
                palisade_policy::scc::mode::ConstraintMode::Off
            },
        );
        let mut watches = JoinSet::new();
        facts.watch(&mut watches);
        if let ConfigurationSource::ConfigMap { namespace, name } = source {
            watches.spawn(follower.clone().follow_config_map(client, namespace, name));
        }
        // Constraints write into pods only beside an API server.
        let emulate = (mode != Mode::OpenShift).then_some(compat);
        let answerer = Answerer::new(facts, follower, metrics, emulate, compat.gates);
        for _ in 0..500 {
            if answerer.facts.is_ready() && answerer.configuration.current().is_ok() {
                return Self { answerer, _watches: watches };
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the webhook is not ready after 5 seconds");
    }

    /// The pod of a step must be denied or allowed as the server did.
    async fn check(&self, arena: &Arena<'_>, step: &Step, part: Part) -> Result<(), String> {
        let denied = self.denied(arena, step).await?;
        match (part, denied) {
            (Part::Attack, None) => Err("the webhook allows it".to_owned()),
            (Part::Twin | Part::Setup, Some(why)) => Err(format!("the webhook denies it: {why}")),
            _ => Ok(()),
        }
    }

    /// Why the pod is denied, if it is.
    async fn denied(&self, arena: &Arena<'_>, step: &Step) -> Result<Option<String>, String> {
        let bytes = step.bytes(|text| arena.fill(text))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut object = match &step.body {
            // As a real API server sends it: plugins have completed it before.
            Some(Value::Object(fields)) => {
                let mut object = serde_json::from_str(&text).unwrap_or_else(|_| json!(fields));
                complete(&mut object, &arena.namespace);
                object.to_string()
            }
            _ if step.content_type().contains("yaml") => read_yaml(&text)?.to_string(),
            // Text as it is: an object that was read before is not the attack any more.
            _ => text,
        };
        for route in [Route::Mutate, Route::Validate] {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
            let review = arena.review(step, &object);
            let answer = match self.answerer.answer(route, review.as_bytes(), deadline).await {
                Ok(answer) => answer,
                Err(error) => return Ok(Some(error.to_string())),
            };
            let answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
            let response = &answer["response"];
            if response["allowed"] != true {
                return Ok(Some(response["status"]["message"].to_string()));
            }
            if let Some(patch) = response["patch"].as_str() {
                let patch = BASE64_STANDARD.decode(patch).map_err(|error| error.to_string())?;
                // What is too deep for this reader is validated as it was sent.
                let Ok(value) = serde_json::from_str::<Value>(&object) else { continue };
                let patched =
                    untyped(&value, PatchType::Json, &patch).map_err(|error| error.message.clone())?;
                object = patched.to_string();
            }
        }
        Ok(None)
    }
}

/// Fills in what an API server has filled in when it calls webhooks, as far as judges look at it.
fn complete(pod: &mut Value, namespace: &str) {
    if let Some(kind) = palisade_apimachinery::scheme::LATEST.by_kind("", "v1", "Pod") {
        kind.default(pod).expect("defaults");
    }
    for (place, field, value) in [
        ("metadata", "namespace", namespace),
        ("spec", "serviceAccountName", "default"),
        ("spec", "serviceAccount", "default"),
    ] {
        if let Some(fields) = pod.get_mut(place).and_then(Value::as_object_mut) {
            fields.entry(field).or_insert_with(|| json!(value));
        }
    }
}

impl Arena<'_> {
    fn review(&self, step: &Step, object: &str) -> String {
        let user = step.user.as_deref().or(self.case.user.as_deref()).unwrap_or("kubernetes-admin");
        let groups = if user == "edit" { json!(["system:authenticated"]) } else { json!(["system:masters"]) };
        let name = serde_json::from_str::<Value>(object).map(|value| value["metadata"]["name"].clone());
        let mut request = Map::new();
        for (key, value) in [
            ("uid", json!("705ab4f5-6393-11e8-b7cc-42010a800002")),
            ("kind", json!({"group": "", "version": "v1", "kind": "Pod"})),
            ("resource", json!({"group": "", "version": "v1", "resource": "pods"})),
            ("requestKind", json!({"group": "", "version": "v1", "kind": "Pod"})),
            ("name", name.ok().filter(Value::is_string).unwrap_or_else(|| json!(""))),
            ("namespace", json!(self.namespace)),
            ("operation", json!("CREATE")),
            ("userInfo", json!({"username": user, "groups": groups})),
            ("dryRun", json!(true)),
        ] {
            request.insert(key.to_owned(), value);
        }
        let request = Value::Object(request).to_string();
        let open = request.strip_suffix('}').unwrap();
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{open},"object":{object}}}}}"#
        )
    }
}
