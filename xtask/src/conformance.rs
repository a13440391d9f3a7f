//! Replays what real API servers answered against the engine.
//!
//! The comparison follows the recordings' own notes: causes and warnings as multisets, of a message with several
//! causes only the part before the list, of a refused pod update only the first line.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use palisade_admission::{
    pod_security::{PodSecurity, Request as PodSecurityRequest, Screened},
    review::{Reviewed, is_significant_update, review_create, review_ephemeral_containers, review_update},
};
use palisade_base::{
    field_error::{FieldError, aggregate},
    go::Quoted,
    version::NEWEST_MINOR,
};
use palisade_model::{
    change::Change,
    compat::Compat,
    metadata::{ObjectMeta, StringMap},
    pod::{Container, Pod},
    prepare::Prepared,
    workload::{WorkloadKind, workload_resource},
};
use palisade_policy::standards::{
    evaluator::Evaluator,
    namespace::{self, ExistingPods, Limit, NamespaceVerdict},
    policy::{Exemptions, Policy},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    Failure, check, conformance_scc, fixtures, process,
    recordings::{self, Answer, Cause, Record, Request},
};

/// How many differences are shown.
const SHOWN: usize = 5;

/// Replays everything that needs no server: API servers, OpenShift's constraints, upstream's fixtures.
pub(crate) fn run_all(folder: &Path) -> Result<(), Failure> {
    run(folder)?;
    let openshift = folder.join("openshift");
    let summary = conformance_scc::run(openshift.is_dir().then_some(openshift.as_path())).map_err(Failure)?;
    println!("\n{:<34} {:>7} {:>7} {:>9}", "OpenShift", "total", "equal", "different");
    for (group, (all, same)) in &summary.groups {
        println!("{group:<34} {all:>7} {same:>7} {:>9}", all - same);
    }
    let (total, equal) = summary.total();
    println!("{:<34} {total:>7} {equal:>7} {:>9}", "all", total - equal);
    for difference in summary.differences.iter().take(SHOWN) {
        println!("\n{difference}");
    }
    if total == 0 || !summary.differences.is_empty() {
        return Err(Failure(format!("{} records of OpenShift differ", summary.differences.len())));
    }
    fixtures::run(&check::shared_fixtures())
}

/// Replays everything over HTTPS against the embedded API server, which the tests of its crate start.
pub(crate) fn run_server(folder: &Path) -> Result<(), Failure> {
    run_tests(folder, "palisade-apiserver", "conformance")
}

/// Replays the recordings about pods over TLS through the webhook, which the tests of its crate start.
pub(crate) fn run_webhook(folder: &Path) -> Result<(), Failure> {
    run_tests(folder, "palisade-webhook", "recordings")
}

fn run_tests(folder: &Path, package: &str, filter: &str) -> Result<(), Failure> {
    let folder = std::path::absolute(folder).map_err(|error| Failure(error.to_string()))?;
    process::run(
        Command::new("cargo")
            .args(["test", "--quiet", "--package", package, "--test", "it", filter, "--", "--nocapture"])
            .current_dir(crate::root())
            .env("PALISADE_RECORDINGS", folder),
    )
}

/// Replays every recording of plain API servers below a folder; fails if any answer differs.
pub(crate) fn run(folder: &Path) -> Result<(), Failure> {
    let mut table: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
    let mut differences = Vec::new();
    for file in engine_files(folder)? {
        for record in recordings::read::<Record>(&file)? {
            let found = replay(&record);
            let row = table.entry((record.server.clone(), record.group.clone())).or_default();
            row.0 += 1;
            if found.is_empty() {
                row.1 += 1;
            } else {
                differences.push(format!(
                    "{} {} ({})\n{}",
                    record.server,
                    record.id,
                    record.group,
                    found.join("\n")
                ));
            }
        }
    }
    println!("{:<18} {:<8} {:>7} {:>7} {:>9}", "group", "server", "total", "equal", "different");
    let (mut total, mut equal) = (0, 0);
    for ((server, group), (all, same)) in &table {
        println!("{group:<18} {server:<8} {all:>7} {same:>7} {:>9}", all - same);
        total += all;
        equal += same;
    }
    println!("{:<18} {:<8} {total:>7} {equal:>7} {:>9}", "all", "", total - equal);
    if total == 0 {
        return Err(Failure(format!("no recordings below {}", folder.display())));
    }
    for difference in differences.iter().take(SHOWN) {
        println!("\n{difference}");
    }
    if differences.is_empty() {
        Ok(())
    } else {
        Err(Failure(format!("{} records differ", differences.len())))
    }
}

/// The folders named after a release: `v1.24`, `v1.37`.
fn engine_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let of_release = |file: &PathBuf| {
        let parent = file.parent().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        parent.is_some_and(|name| name.starts_with("v1."))
    };
    Ok(recordings::files(folder)?.into_iter().filter(of_release).collect())
}

fn replay(record: &Record) -> Vec<String> {
    let minor =
        record.server.strip_prefix("v1.").and_then(|minor| minor.parse().ok()).unwrap_or(NEWEST_MINOR);
    let mut server = EngineServer::new(Compat::kubernetes(minor));
    let mut differences = Vec::new();
    for (index, step) in record.steps.iter().enumerate() {
        let answer = server.answer(&step.request);
        for (what, expected, given) in compare(&step.answer, &answer) {
            differences.push(format!(
                "  step {index} {} {}\n    {what}\n      recorded: {expected}\n      given:    {given}",
                step.request.method, step.request.path
            ));
        }
    }
    differences
}

fn compare(expected: &Answer, given: &Answer) -> Vec<(&'static str, String, String)> {
    let mut found = Vec::new();
    let mut check = |what: &'static str, expected: String, given: String| {
        if expected != given {
            found.push((what, expected, given));
        }
    };
    check("code", expected.code.to_string(), given.code.to_string());
    check("reason", format!("{:?}", expected.reason), format!("{:?}", given.reason));
    let message = |answer: &Answer| {
        let text = answer.message.clone().unwrap_or_default();
        if answer.causes.len() > 1 {
            return text.split(": [").next().unwrap_or_default().to_owned();
        }
        first_line_of_diff(&text)
    };
    check("message", message(expected), message(given));
    let causes = |answer: &Answer| {
        let mut causes: Vec<_> = answer
            .causes
            .iter()
            .map(|cause| Cause { message: first_line_of_diff(&cause.message), ..cause.clone() })
            .collect();
        causes.sort();
        causes
            .iter()
            .map(|cause| format!("\n        {} | {} | {}", cause.field, cause.message, cause.reason))
            .collect::<Vec<_>>()
            .concat()
    };
    check("causes", causes(expected), causes(given));
    let warnings = |answer: &Answer| {
        let mut warnings = answer.warnings.clone();
        warnings.sort();
        warnings.iter().map(|warning| format!("\n        {warning}")).collect::<Vec<_>>().concat()
    };
    check("warnings", warnings(expected), warnings(given));
    let show = |value: &Option<Value>| value.as_ref().map(Value::to_string).unwrap_or_default();
    check("pod", show(&expected.pod), show(&given.pod));
    check("template", show(&expected.template), show(&given.template));
    check("labels", show(&expected.labels), show(&given.labels));
    found
}

fn first_line_of_diff(text: &str) -> String {
    if text.contains("pod updates may not change fields other than") {
        return text.lines().next().unwrap_or_default().to_owned();
    }
    text.to_owned()
}

/// Just enough of an API server around the engine to replay a record.
struct EngineServer {
    compat: Compat,
    pod_security: PodSecurity,
    namespaces: BTreeMap<String, StringMap<'static>>,
    pods: BTreeMap<(String, String), Value>,
}

impl EngineServer {
    fn new(compat: Compat) -> Self {
        let pod_security = PodSecurity {
            evaluator: Evaluator::of(&compat),
            defaults: Policy::default(),
            exemptions: Exemptions::default(),
        };
        Self { compat, pod_security, namespaces: BTreeMap::new(), pods: BTreeMap::new() }
    }

    fn answer(&mut self, request: &Request) -> Answer {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let dry_run = query.contains("dryRun");
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        match (request.method.as_str(), segments.as_slice()) {
            ("POST", ["api", "v1", "namespaces"]) => self.create_namespace(&request.body, dry_run),
            ("PATCH", ["api", "v1", "namespaces", name]) => self.patch_namespace(name, &request.body),
            ("POST", ["api", "v1", "namespaces", namespace, resource]) => {
                self.create("", namespace, resource, &request.body, dry_run)
            }
            ("POST", ["apis", group, "v1", "namespaces", namespace, resource]) => {
                self.create(group, namespace, resource, &request.body, dry_run)
            }
            ("PATCH", ["api", "v1", "namespaces", namespace, "pods", name]) => {
                self.patch_pod(namespace, name, "", &request.body)
            }
            ("PATCH", ["api", "v1", "namespaces", namespace, "pods", name, subresource]) => {
                self.patch_pod(namespace, name, subresource, &request.body)
            }
            _ => Answer { code: 404, ..Answer::default() },
        }
    }

    fn create_namespace(&mut self, body: &Value, dry_run: bool) -> Answer {
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut labels = read_labels(body);
        let verdict =
            namespace::create(&name, &labels, &self.pod_security.defaults, &self.pod_security.exemptions);
        labels.insert("kubernetes.io/metadata.name", name.clone());
        match verdict {
            NamespaceVerdict::Invalid(problems) => invalid("Namespace", &name, &problems),
            NamespaceVerdict::Allowed(warnings) => {
                let answer = Answer { code: 201, warnings, labels: Some(json!(labels)), ..Answer::default() };
                if !dry_run {
                    self.namespaces.insert(name, labels);
                }
                answer
            }
            NamespaceVerdict::CheckPods(_) => Answer { code: 500, ..Answer::default() },
        }
    }

    fn patch_namespace(&self, name: &str, patch: &Value) -> Answer {
        let old = self.labels(name);
        let mut labels = old.clone();
        for (key, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
            match value.as_str() {
                Some(value) => labels.insert(key.clone(), value.to_owned()),
                None => labels.retain(|own, _| own != key),
            }
        }
        let security = &self.pod_security;
        let warnings = match namespace::update(name, &labels, &old, &security.defaults, &security.exemptions)
        {
            NamespaceVerdict::Invalid(problems) => return invalid("Namespace", name, &problems),
            NamespaceVerdict::Allowed(warnings) => warnings,
            NamespaceVerdict::CheckPods(policy) => {
                let pods: Vec<Prepared<'_>> = self
                    .pods
                    .iter()
                    .filter(|((namespace, _), _)| namespace == name)
                    .filter_map(|(_, pod)| Pod::deserialize(pod).ok())
                    .map(|pod| Prepared::stored(pod, &self.compat))
                    .collect();
                let limit = Limit::Pods(3000);
                ExistingPods::new(&security.evaluator, &security.exemptions, policy, limit).warnings(
                    name,
                    &pods,
                    || false,
                )
            }
        };
        Answer { code: 200, warnings, labels: Some(json!(labels)), ..Answer::default() }
    }

    /// The labels of a namespace; those the recordings made beforehand carry them in their names.
    fn labels(&self, name: &str) -> StringMap<'static> {
        if let Some(labels) = self.namespaces.get(name) {
            return labels.clone();
        }
        let mut labels = StringMap::default();
        let mut set = |key: &str, value: &str| {
            labels.insert(format!("pod-security.kubernetes.io/{key}"), value.to_owned());
        };
        match name {
            "warned" => set("warn", "restricted"),
            "mixed" => {
                set("enforce", "baseline");
                set("warn", "restricted");
                set("warn-version", "v1.22");
                set("audit", "restricted");
            }
            _ => {
                if let Some((level @ ("baseline" | "restricted" | "privileged"), version)) =
                    name.split_once('-')
                {
                    set("enforce", level);
                    set("enforce-version", &version.replacen("v1-", "v1.", 1));
                }
            }
        }
        labels
    }

    fn create(
        &mut self,
        group: &str,
        namespace: &str,
        resource: &str,
        body: &Value,
        dry_run: bool,
    ) -> Answer {
        let Some(kind) = workload_resource(group, resource) else {
            return Answer { code: 404, ..Answer::default() };
        };
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let reviewed = match review_create(body, kind, &self.compat) {
            Ok(reviewed) => reviewed,
            Err(error) => return Answer { code: 400, message: Some(error.to_string()), ..Answer::default() },
        };
        let shown_kind =
            if group.is_empty() { kind.kind.to_owned() } else { format!("{}.{group}", kind.kind) };
        let answer = self.admit(&reviewed, kind, namespace, name, &shown_kind, 201, true);
        if answer.code == 201 && !dry_run && kind.path.is_empty() {
            let mut stored = body.clone();
            apply(&reviewed.changes, &mut stored);
            self.pods.insert((namespace.to_owned(), name.to_owned()), stored);
        }
        answer
    }

    fn patch_pod(&self, namespace: &str, name: &str, subresource: &str, patch: &Value) -> Answer {
        let Some(old) = self.pods.get(&(namespace.to_owned(), name.to_owned())) else {
            return Answer { code: 404, ..Answer::default() };
        };
        let mut new = old.clone();
        strategic_merge(&mut new, patch);
        // What the release does not know never reaches the stored object, so it cannot differ.
        let (mut known_new, mut known_old) = (new.clone(), old.clone());
        if !self.compat.has_app_armor_fields() {
            forget(&mut known_new, "appArmorProfile");
            forget(&mut known_old, "appArmorProfile");
        }
        if !self.compat.keeps_host_users() {
            forget(&mut known_new, "hostUsers");
            forget(&mut known_old, "hostUsers");
        }
        let reviewed = if subresource == "ephemeralcontainers" {
            review_ephemeral_containers(&known_new, &known_old, &self.compat)
        } else {
            review_update(&known_new, &known_old, &self.compat)
        };
        let reviewed = match reviewed {
            Ok(reviewed) => reviewed,
            Err(error) => return Answer { code: 400, message: Some(error.to_string()), ..Answer::default() },
        };
        let old_pod = Pod::deserialize(&known_old).unwrap_or_default();
        let significant = reviewed.pod.as_ref().is_some_and(|pod| is_significant_update(pod.pod(), &old_pod));
        let Some(kind) = workload_resource("", "pods") else { return Answer::default() };
        self.admit(&reviewed, kind, namespace, name, "Pod", 200, significant)
    }

    #[allow(clippy::too_many_arguments, reason = "a request has that many parts")]
    fn admit(
        &self,
        reviewed: &Reviewed<'_>,
        kind: &WorkloadKind,
        namespace: &str,
        name: &str,
        shown_kind: &str,
        code: u16,
        significant: bool,
    ) -> Answer {
        let mut warnings = reviewed.warnings.clone();
        if !reviewed.problems.is_empty() {
            return Answer { warnings, ..invalid(shown_kind, name, &reviewed.problems) };
        }
        let is_pod = kind.path.is_empty();
        let Some(pod) = &reviewed.pod else { return Answer { code, ..Answer::default() } };
        let request = PodSecurityRequest { namespace, user: "admin", subresource: "", is_pod };
        if significant {
            let verdict = match self.pod_security.screen(&request, &self.labels(namespace)) {
                Screened::Done(verdict) => verdict,
                Screened::Judge(policy, error) => self.pod_security.judge(&policy, error, is_pod, pod),
            };
            if let Some(denied) = verdict.denied {
                return Answer {
                    code: 403,
                    reason: Some("Forbidden".to_owned()),
                    message: Some(format!("pods {} is forbidden: {denied}", Quoted(name))),
                    warnings,
                    ..Answer::default()
                };
            }
            warnings.extend(verdict.warnings);
        }
        let shown = Some(security_part(pod.pod()));
        let (pod, template) = if is_pod { (shown, None) } else { (None, shown) };
        Answer { code, warnings, pod, template, ..Answer::default() }
    }
}

fn read_labels(object: &Value) -> StringMap<'static> {
    ObjectMeta::deserialize(&object["metadata"])
        .map(|metadata| {
            metadata
                .labels
                .iter()
                .map(|(key, value)| (key.to_owned().into(), value.to_owned().into()))
                .collect()
        })
        .unwrap_or_default()
}

fn invalid(kind: &str, name: &str, problems: &[FieldError]) -> Answer {
    Answer {
        code: 422,
        reason: Some("Invalid".to_owned()),
        message: Some(format!("{kind} {} is invalid: {}", Quoted(name), aggregate(problems))),
        causes: problems
            .iter()
            .map(|problem| Cause {
                field: problem.field(),
                message: problem.body(palisade_base::version::KubeVersion::LATEST),
                reason: problem.kind.reason().to_owned(),
            })
            .collect(),
        ..Answer::default()
    }
}

fn apply(changes: &[Change], object: &mut Value) {
    for change in changes {
        change.apply(object);
    }
}

/// The part of a pod that the recordings keep.
fn security_part(pod: &Pod<'_>) -> Value {
    let mut part = Map::new();
    part.insert("annotations".to_owned(), json!(pod.metadata.annotations));
    part.insert("securityContext".to_owned(), json!(pod.spec.security_context));
    for (name, value) in [
        ("hostNetwork", pod.spec.host_network),
        ("hostPID", pod.spec.host_pid),
        ("hostIPC", pod.spec.host_ipc),
    ] {
        if value == Some(true) {
            part.insert(name.to_owned(), json!(true));
        }
    }
    if let Some(users) = pod.spec.host_users {
        part.insert("hostUsers".to_owned(), json!(users));
    }
    let list = |containers: &[Container<'_>]| {
        let shown = |container: &Container<'_>| json!({"name": container.name, "securityContext": container.security_context});
        Value::Array(containers.iter().map(shown).collect())
    };
    for (name, containers) in [
        ("containers", &pod.spec.containers),
        ("initContainers", &pod.spec.init_containers),
        ("ephemeralContainers", &pod.spec.ephemeral_containers),
    ] {
        if !containers.is_empty() {
            part.insert(name.to_owned(), list(containers));
        }
    }
    Value::Object(part)
}

/// As much of a strategic merge patch as the recordings of pods use: maps merge, containers merge by name.
fn strategic_merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(key);
                } else {
                    strategic_merge(target.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(target), Value::Array(patch))
            if patch.iter().all(|item| item.get("name").is_some()) =>
        {
            for item in patch {
                match target.iter_mut().find(|own| own.get("name") == item.get("name")) {
                    Some(own) => strategic_merge(own, item),
                    None => target.push(item.clone()),
                }
            }
        }
        (target @ Value::Null, Value::Object(_)) => {
            *target = Value::Object(Map::new());
            strategic_merge(target, patch);
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn forget(value: &mut Value, field: &str) {
    match value {
        Value::Object(fields) => {
            fields.remove(field);
            fields.values_mut().for_each(|value| forget(value, field));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| forget(item, field)),
        _ => {}
    }
}
