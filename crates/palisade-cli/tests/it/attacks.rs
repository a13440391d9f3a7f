//! The attack cases in `tests/attacks`, run against the embedded server in every mode, the webhook and the command line.
//!
//! A case is a file: its attack is rejected as the file expects, and its harmless twin succeeds. `tests/attacks/README.md`
//! describes the format. `ATTACKS=<substring>` restricts a run to the files whose names contain it.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::Request;
use kube::Client;
use palisade_apimachinery::patch::{PatchType, untyped};
use palisade_apiserver::{Router, Server, auth::UserInfo};
use palisade_base::version::KubeVersion;
use palisade_base::version::{NEWEST_MINOR, OLDEST_MINOR};
use palisade_cli::{args::FeatureGate, commands::up::pod_security_configuration};
use palisade_model::compat::Compat;
use palisade_webhook::{
    answer::{Answerer, Route},
    configuration::Follower,
    facts::ClusterFacts,
    metrics::Metrics,
    options::ConfigurationSource,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::support::{Project, Run};

/// The modes of a case that names none.
const MODES: [Mode; 4] = [Mode::Default, Mode::Release(37), Mode::Release(24), Mode::OpenShift];

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

/// Whose rules a server follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Default,
    Release(u16),
    OpenShift,
}

impl Mode {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "default" => Some(Self::Default),
            "openshift" => Some(Self::OpenShift),
            release => {
                let minor = release.strip_prefix("v1.")?.parse().ok()?;
                (OLDEST_MINOR..=NEWEST_MINOR).contains(&minor).then_some(Self::Release(minor))
            }
        }
    }

    fn compat(self) -> Compat {
        match self {
            Self::Default | Self::OpenShift => Compat::designs(),
            Self::Release(minor) => Compat::kubernetes(minor),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::OpenShift => f.write_str("openshift"),
            Self::Release(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// A file of `tests/attacks`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    #[serde(skip)]
    file: String,
    #[serde(skip)]
    path: PathBuf,
    #[expect(dead_code, reason = "for readers of the file; required")]
    about: String,
    #[serde(default)]
    modes: Vec<String>,
    gates: Option<String>,
    user: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    setup: Vec<Value>,
    attack: Vec<Step>,
    twin: Vec<Step>,
    #[serde(default)]
    webhook: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Step {
    request: Option<String>,
    command: Option<Vec<String>>,
    content_type: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    /// A body that is no text.
    base64: Option<String>,
    user: Option<String>,
    #[serde(default)]
    expect: Expected,
    /// Whether the webhook is left out for this step.
    #[serde(default)]
    no_webhook: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    status: Option<OneOrMore<u16>>,
    message: Option<OneOrMore<String>>,
    /// What the response does not contain.
    absent: Option<OneOrMore<String>>,
    exit: Option<OneOrMore<i32>>,
    stdout: Option<OneOrMore<String>>,
    stderr: Option<OneOrMore<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Setup,
    Attack,
    Twin,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setup => "setup",
            Self::Attack => "attack",
            Self::Twin => "twin",
        })
    }
}

fn read_yaml(text: &str) -> Result<Value, String> {
    let parsed = palisade_yaml::parse(text, &palisade_yaml::Limits::default());
    if let Some(error) = parsed.errors.first() {
        return Err(error.to_string());
    }
    match parsed.documents.as_slice() {
        [document] => document.root().to_json().map_err(|error| error.to_string()),
        other => Err(format!("{} documents", other.len())),
    }
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/attacks");
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no cases in {}", folder.display());
    let only = std::env::var("ATTACKS").unwrap_or_default();
    paths.retain(|path| path.to_string_lossy().contains(&only));
    paths.into_iter().map(|path| read_case(&path)).collect()
}

fn read_case(path: &Path) -> Case {
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).unwrap();
    let read = read_yaml(&text)
        .and_then(|value| serde_json::from_value::<Case>(value).map_err(|error| error.to_string()));
    let mut case = read.unwrap_or_else(|why| panic!("{file}: {why}"));
    assert!(!case.attack.is_empty() && !case.twin.is_empty(), "{file}: needs an attack and a twin");
    path.clone_into(&mut case.path);
    case.file = file;
    case.modes();
    case
}

impl Case {
    fn modes(&self) -> Vec<Mode> {
        if self.modes.is_empty() {
            return MODES.to_vec();
        }
        let parse =
            |text: &String| Mode::parse(text).unwrap_or_else(|| panic!("{}: mode {text:?}", self.file));
        self.modes.iter().map(parse).collect()
    }

    /// Whether anything but commands that name no server is in it.
    fn needs_server(&self) -> bool {
        let served = |step: &Step| match &step.command {
            Some(arguments) => arguments.iter().any(|argument| argument.contains("{kubeconfig}")),
            None => true,
        };
        !self.setup.is_empty() || self.attack.iter().chain(&self.twin).any(served)
    }

    /// The name of its namespace.
    fn namespace(&self) -> String {
        let stem = self.path.file_stem().unwrap().to_string_lossy().to_lowercase();
        stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(50).collect()
    }

    fn project(&self) -> Project {
        let project = Project::new();
        for (name, text) in &self.files {
            project.file(name, text);
        }
        project
    }
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

impl Case {
    fn compat(&self, mode: Mode) -> Compat {
        let gates = self.gates.iter().flat_map(|gates| gates.split(','));
        let gates: Vec<FeatureGate> = gates.map(|gate| gate.parse().unwrap()).collect();
        FeatureGate::apply(&gates, mode.compat())
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(600).collect()
}

impl Step {
    fn content_type(&self) -> &str {
        self.content_type.as_deref().unwrap_or("application/json")
    }

    fn bytes(&self, fill: impl Fn(&str) -> String) -> Result<Bytes, String> {
        if let Some(encoded) = &self.base64 {
            let joined: String = encoded.split_whitespace().collect();
            return BASE64_STANDARD.decode(joined).map(Bytes::from).map_err(|error| error.to_string());
        }
        Ok(match &self.body {
            None => Bytes::new(),
            Some(Value::String(text)) => fill(text).into(),
            Some(structure) => fill(&structure.to_string()).into(),
        })
    }

    fn creates_pod(&self) -> bool {
        let path = self.request.as_deref().and_then(|request| request.strip_prefix("POST "));
        let is_pods =
            path.is_some_and(|path| path.split('?').next().is_some_and(|path| path.ends_with("/pods")));
        is_pods && !self.no_webhook
    }
}

impl Expected {
    /// With what only a run has.
    fn filled(&self, fill: impl Fn(&str) -> String) -> Self {
        let fill = |texts: &Option<OneOrMore<String>>| {
            texts
                .as_ref()
                .map(|texts| OneOrMore::More(texts.as_slice().iter().map(|text| fill(text)).collect()))
        };
        Self { message: fill(&self.message), absent: fill(&self.absent), ..self.clone() }
    }

    fn judge(&self, answer: &Answer, part: Part) -> Result<(), String> {
        let code = answer.status;
        match (&self.status, part) {
            (Some(expected), _) if !expected.as_slice().contains(&code) => {
                return Err(format!("expected status {:?}", expected.as_slice()));
            }
            (None, Part::Attack) if !(400..500).contains(&code) => {
                return Err("expected a rejection".to_owned());
            }
            (None, Part::Twin | Part::Setup) if !(200..300).contains(&code) => {
                return Err("expected success".to_owned());
            }
            _ => {}
        }
        contains("message", self.message.as_ref(), &answer.text)?;
        for text in self.absent.as_ref().map_or(&[][..], OneOrMore::as_slice) {
            if answer.text.contains(text.as_str()) {
                return Err(format!("did not expect {text:?}"));
            }
        }
        Ok(())
    }
}

fn contains(what: &str, expected: Option<&OneOrMore<String>>, found: &str) -> Result<(), String> {
    // Inside a Status the quotes of a message are escaped.
    let plain = found.replace("\\\"", "\"");
    for text in expected.map_or(&[][..], OneOrMore::as_slice) {
        if !found.contains(text.as_str()) && !plain.contains(text.as_str()) {
            return Err(format!("expected {what} {text:?}"));
        }
    }
    Ok(())
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
        let follower = Follower::new(&source, pod_security_configuration, compat, metrics.clone());
        let follower = Arc::new(follower);
        let facts = ClusterFacts::new(client.clone(), mode == Mode::OpenShift, metrics.clone());
        let mut watches = JoinSet::new();
        facts.watch(&mut watches);
        if let ConfigurationSource::ConfigMap { namespace, name } = source {
            watches.spawn(follower.clone().follow_config_map(client, namespace, name));
        }
        // Constraints write into pods only beside an API server.
        let emulate = (mode != Mode::OpenShift).then_some(compat);
        let answerer = Answerer::new(facts, follower, metrics, emulate);
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
        kind.default(pod);
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
