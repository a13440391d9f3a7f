//! Replays what real API servers answered against ours, over HTTPS, and reports where the answers differ.
//!
//! Implements: the comparison rules in the recordings' own README.
//! Leaves to others: starting a server; it is given the address and the credentials of one.

#![allow(missing_docs, reason = "the fields are those of the recordings, which their README describes")]

mod normalise;
pub mod pods;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{self, Answer, Client, ClientError};

/// One recorded scenario.
#[derive(Debug, Clone, Deserialize)]
pub struct Record {
    pub id: String,
    pub group: String,
    #[serde(default)]
    pub namespaced: bool,
    /// Absent in the pod recordings.
    #[serde(default)]
    pub title: Option<String>,
    pub steps: Vec<RecordedStep>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct RecordedStep {
    pub request: StepRequest,
    #[serde(default)]
    pub answer: Value,
    #[serde(default)]
    pub events: Option<Vec<Value>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StepRequest {
    pub method: String,
    pub path: String,
    pub body: Option<Value>,
    pub content_type: Option<String>,
    pub accept: Option<String>,
    pub impersonate_user: Option<String>,
    pub impersonate_groups: Vec<String>,
    pub save: BTreeMap<String, String>,
    pub steps: usize,
}

/// How a step compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Everything is equal.
    Equal,
    /// Code and reason are.
    CodeAndReason,
    /// Not even those.
    Different,
}

/// A step that was not equal.
#[derive(Debug, Clone)]
pub struct Difference {
    /// `group id step: method path`.
    pub at: String,
    /// How bad it is.
    pub verdict: Verdict,
    /// What differs, line by line.
    pub text: String,
}

/// What came out of a replay.
#[derive(Debug, Default)]
pub struct Report {
    /// Steps by group: equal, code and reason only, different.
    pub groups: BTreeMap<String, [usize; 3]>,
    /// The steps that were not equal.
    pub differences: Vec<Difference>,
}

impl Report {
    pub fn add(&mut self, group: &str, at: String, verdict: Verdict, text: String) {
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
    pub fn totals(&self) -> (usize, usize) {
        let all = self.groups.values().map(|counts| counts.iter().sum::<usize>()).sum();
        (all, self.groups.values().map(|counts| counts[0]).sum())
    }

    /// A table, and the first differences.
    #[must_use]
    pub fn render(&self, differences: usize) -> String {
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

/// Replays records against a server.
pub async fn replay(records: &[Record], client: &Client) -> Result<Report, ClientError> {
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

async fn scenario(record: &Record, client: &Client, report: &mut Report) -> Result<(), ClientError> {
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

#[must_use]
pub fn place(record: &Record, index: usize) -> String {
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
#[must_use]
pub fn diff(expected: &Value, actual: &Value) -> String {
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
