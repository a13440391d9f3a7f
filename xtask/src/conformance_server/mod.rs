//! Replays what real API servers answered against ours, over HTTPS, and reports where the answers differ.
//!
//! Implements: the comparison rules in the recordings' own README.
//! Leaves to others: starting a server; it is given the address and the credentials of one.

pub(crate) mod client;
mod normalise;
pub(crate) mod pods;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{Answer, Client, ClientError};
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

/// Why a replay could not be made.
#[derive(Debug, Error)]
pub(crate) enum ReplayError {
    /// A file of recordings.
    #[error("{path}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A line of a recording.
    #[error("{path}:{line}")]
    Record {
        /// Which file.
        path: PathBuf,
        /// Which line.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is nothing to replay.
    #[error("no recordings in {0}")]
    Empty(PathBuf),
}

/// One recorded scenario.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) group: String,
    #[serde(default)]
    pub(crate) namespaced: bool,
    /// Absent in the pod recordings.
    #[serde(default)]
    pub(crate) title: Option<String>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Step {
    pub(crate) request: StepRequest,
    #[serde(default)]
    pub(crate) answer: Value,
    #[serde(default)]
    pub(crate) events: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StepRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
    pub(crate) content_type: Option<String>,
    pub(crate) accept: Option<String>,
    pub(crate) impersonate_user: Option<String>,
    pub(crate) impersonate_groups: Vec<String>,
    pub(crate) save: BTreeMap<String, String>,
    pub(crate) steps: usize,
}

/// How a step compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// Everything is equal.
    Equal,
    /// Code and reason are.
    CodeAndReason,
    /// Not even those.
    Different,
}

/// A step that was not equal.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    /// `group id step: method path`.
    pub(crate) at: String,
    /// How bad it is.
    pub(crate) verdict: Verdict,
    /// What differs, line by line.
    pub(crate) text: String,
}

/// What came out of a replay.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Steps by group: equal, code and reason only, different.
    pub(crate) groups: BTreeMap<String, [usize; 3]>,
    /// The steps that were not equal.
    pub(crate) differences: Vec<Difference>,
}

impl Report {
    pub(crate) fn add(&mut self, group: &str, at: String, verdict: Verdict, text: String) {
        let counts = self.groups.entry(group.to_owned()).or_default();
        let index = match verdict {
            Verdict::Equal => 0,
            Verdict::CodeAndReason => 1,
            Verdict::Different => 2,
        };
        if let Some(count) = counts.get_mut(index) {
            *count += 1;
        }
        if verdict != Verdict::Equal {
            self.differences.push(Difference { at, verdict, text });
        }
    }

    /// Steps that were compared, and how many were equal.
    #[must_use]
    pub(crate) fn totals(&self) -> (usize, usize) {
        let all = self.groups.values().map(|counts| counts.iter().sum::<usize>()).sum();
        (all, self.groups.values().map(|counts| counts[0]).sum())
    }

    /// A table, and the first differences.
    #[must_use]
    pub(crate) fn render(&self, differences: usize) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{:<18} {:>6} {:>6} {:>12} {:>10}",
            "group", "steps", "equal", "code+reason", "different"
        );
        for (group, [equal, reason, different]) in &self.groups {
            let steps = equal + reason + different;
            let _ = writeln!(out, "{group:<18} {steps:>6} {equal:>6} {reason:>12} {different:>10}");
        }
        let (steps, equal) = self.totals();
        let _ = writeln!(out, "{:<18} {steps:>6} {equal:>6}", "all");
        for difference in self.differences.iter().take(differences) {
            let _ = write!(out, "\n{} ({:?})\n{}", difference.at, difference.verdict, difference.text);
        }
        let hidden = self.differences.len().saturating_sub(differences);
        if hidden > 0 {
            let _ = writeln!(out, "\n… and {hidden} more");
        }
        out
    }
}

/// The repository's copy of the recordings, or the folder named by the environment.
pub(crate) fn folder() -> PathBuf {
    given().unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings"))
}

fn given() -> Option<PathBuf> {
    std::env::var_os("PALISADE_RECORDINGS").map(PathBuf::from)
}

/// Nothing replayed proves nothing. Of the repository's copy it is known how much there is at least.
pub(crate) fn assert_enough(found: usize, known: usize) {
    let least = if given().is_some() { 1 } else { known };
    assert!(found >= least, "{found} of at least {least} to replay");
}

/// Reads every `.jsonl` and `.jsonl.gz` file of a directory, in order of their names.
pub(crate) fn read(directory: &Path) -> Result<Vec<Record>, ReplayError> {
    let file_error = |path: &Path| {
        let path = path.to_owned();
        move |source| ReplayError::File { path, source }
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .map_err(file_error(directory))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            name.trim_end_matches(".gz").rsplit_once('.').is_some_and(|(_, kind)| kind == "jsonl")
        })
        .collect();
    paths.sort();
    let mut records = Vec::new();
    for path in paths {
        let bytes = std::fs::read(&path).map_err(file_error(&path))?;
        let mut text = String::new();
        let read = if path.extension().is_some_and(|e| e == "gz") {
            flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text)
        } else {
            bytes.as_slice().read_to_string(&mut text)
        };
        read.map_err(file_error(&path))?;
        for (line, record) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let record = serde_json::from_str(record);
            records.push(record.map_err(|source| ReplayError::Record {
                path: path.clone(),
                line: line + 1,
                source,
            })?);
        }
    }
    if records.is_empty() { Err(ReplayError::Empty(directory.to_owned())) } else { Ok(records) }
}

/// Replays records against a server.
pub(crate) async fn replay(records: &[Record], client: &Client) -> Result<Report, ReplayError> {
    let mut report = Report::default();
    if records.iter().any(|record| record.title.is_none()) {
        pods::prepare(records, client).await?;
    }
    for record in records {
        if record.title.is_some() {
            scenario(record, client, &mut report).await?;
        } else {
            pods::replay(record, client, &mut report).await?;
        }
    }
    Ok(report)
}

fn fill(text: &str, namespace: &str, saved: &BTreeMap<String, String>) -> String {
    let mut text = text.replace("<NS>", namespace);
    for (name, value) in saved {
        text = text.replace(&format!("${{{name}}}"), value);
    }
    text
}

async fn send(
    client: &Client,
    request: &StepRequest,
    namespace: &str,
    saved: &BTreeMap<String, String>,
) -> Result<Answer, ClientError> {
    let body = match &request.body {
        None => None,
        Some(Value::String(text)) => Some(fill(text, namespace, saved)),
        Some(body) => Some(fill(&body.to_string(), namespace, saved)),
    };
    let mut headers = Vec::new();
    if body.is_some() {
        headers.push((
            "content-type",
            request.content_type.clone().unwrap_or_else(|| "application/json".to_owned()),
        ));
    }
    if let Some(accept) = &request.accept {
        headers.push(("accept", accept.clone()));
    }
    if let Some(user) = &request.impersonate_user {
        headers.push(("impersonate-user", user.clone()));
    }
    for group in &request.impersonate_groups {
        headers.push(("impersonate-group", group.clone()));
    }
    let path = fill(&request.path, namespace, saved);
    client.request(&request.method, &path, &headers, body.unwrap_or_default()).await
}

async fn scenario(record: &Record, client: &Client, report: &mut Report) -> Result<(), ReplayError> {
    let namespace = format!("rec-{}", record.id);
    if record.namespaced {
        let body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}).to_string();
        let headers = [("content-type", "application/json".to_owned())];
        client.request("POST", "/api/v1/namespaces", &headers, body).await?;
    }
    let mut saved = BTreeMap::new();
    let mut watches: Vec<(usize, usize, client::Watch)> = Vec::new();
    for (index, step) in record.steps.iter().enumerate() {
        let request = &step.request;
        if request.method == "WATCH" {
            let watch = client.watch(&fill(&request.path, &namespace, &saved)).await?;
            watches.push((index, index + request.steps, watch));
        } else {
            let answer = send(client, request, &namespace, &saved).await?;
            for (name, path) in &request.save {
                let value = path.split('.').try_fold(&answer.body, |value, key| value.get(key));
                let value = value.and_then(Value::as_str).unwrap_or_default().to_owned();
                saved.insert(name.clone(), value);
            }
            let expected = &step.answer;
            let actual = normalise::answer(&answer, &namespace);
            let (verdict, text) = compare(&record.group, expected, &actual);
            report.add(&record.group, place(record, index), verdict, text);
            if request.path.ends_with("/customresourcedefinitions") && answer.code == 201 {
                wait_until_established(client, &answer.body).await?;
            }
        }
        for (at, _, watch) in watches.extract_if(.., |(_, last, _)| *last == index) {
            let expected = record.steps.get(at).and_then(|s| s.events.clone()).unwrap_or_default();
            let events = watch.collect(expected.len(), Duration::from_millis(1500)).await;
            let actual: Vec<Value> = events.into_iter().map(|e| normalise::event(e, &namespace)).collect();
            let (expected, actual) = (Value::from(expected), Value::from(actual));
            let verdict = if expected == actual { Verdict::Equal } else { Verdict::Different };
            report.add(&record.group, place(record, at), verdict, diff(&expected, &actual));
        }
    }
    if record.namespaced {
        client.request("DELETE", &format!("/api/v1/namespaces/{namespace}"), &[], String::new()).await?;
    }
    Ok(())
}

pub(crate) fn place(record: &Record, index: usize) -> String {
    let request = record.steps.get(index).map(|s| &s.request);
    let (method, path) = request.map_or(("", ""), |r| (r.method.as_str(), r.path.as_str()));
    let title = record.title.as_deref().unwrap_or_default();
    format!("{} step {} ({title}): {method} {path}", record.id, index + 1)
}

async fn wait_until_established(client: &Client, definition: &Value) -> Result<(), ClientError> {
    let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    for _ in 0..200 {
        let answer = client.request("GET", &path, &[], String::new()).await?;
        let conditions = answer.body.pointer("/status/conditions").and_then(Value::as_array).cloned();
        let established = conditions.unwrap_or_default().iter().any(|condition| {
            condition.get("type").and_then(Value::as_str) == Some("Established")
                && condition.get("status").and_then(Value::as_str) == Some("True")
        });
        if established || answer.code == 404 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Compares an answer with the recorded one.
fn compare(group: &str, expected: &Value, actual: &Value) -> (Verdict, String) {
    let (mut expected, mut actual) = (expected.clone(), actual.clone());
    if group == "discovery" {
        normalise::keep_common_resources(&mut expected, &mut actual);
    }
    for answer in [&mut expected, &mut actual] {
        if let Some(warnings) = answer.get_mut("warnings").and_then(Value::as_array_mut) {
            warnings.sort_by_key(ToString::to_string);
        }
    }
    if expected == actual {
        return (Verdict::Equal, String::new());
    }
    let same = |pointer: &str| expected.pointer(pointer) == actual.pointer(pointer);
    let verdict =
        if same("/code") && same("/body/reason") { Verdict::CodeAndReason } else { Verdict::Different };
    (verdict, diff(&expected, &actual))
}

/// The differences of two documents, one line for each place.
pub(crate) fn diff(expected: &Value, actual: &Value) -> String {
    let mut out = String::new();
    diff_at("", expected, actual, &mut out);
    out
}

fn diff_at(path: &str, expected: &Value, actual: &Value, out: &mut String) {
    match (expected, actual) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                match b.get(key) {
                    Some(other) => diff_at(&format!("{path}.{key}"), value, other, out),
                    None => {
                        let _ = writeln!(out, "  - {path}.{key}: {value}");
                    }
                }
            }
            for (key, value) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
                let _ = writeln!(out, "  + {path}.{key}: {value}");
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (x, y)) in a.iter().zip(b).enumerate() {
                diff_at(&format!("{path}[{index}]"), x, y, out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => {
            let _ = writeln!(out, "  - {path}: {a}\n  + {path}: {b}");
        }
    }
}
