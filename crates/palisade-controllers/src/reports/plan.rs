//! From what was judged in a namespace to its report: pure.
//!
//! | result | means |
//! | --- | --- |
//! | `fail` | the level of the namespace forbids it, or the pods of the workload are rejected |
//! | `warn` | a stricter level would forbid it |
//! | `skip` | an exception accepts it |
//! | `error` | it cannot be judged |
//!
//! `pass` is in the summary alone: it counts the pods and workloads in which no level forbids anything.

use std::borrow::Cow;

use palisade_model::workload::WORKLOADS;
use palisade_policy::standards::{checks, level::Level};
use serde_json::{Value, json};

use super::kind::ReportKind;
use crate::cluster::{Blocker, Cause, ExcusedObjects, RejectedWorkload, Undecided};

/// The name of the report of each namespace.
pub const NAME: &str = "palisade-pod-security";
/// Who writes.
pub const SOURCE: &str = "palisade";
/// How many results of each kind a report does not list.
pub const NOT_LISTED: &str = "palisade.dev/results-not-listed";
/// The fields that this controller owns.
pub const CONTENT: [&str; 5] = ["source", "scope", "configuration", "summary", "results"];

/// How many results a report lists; the summary counts all.
pub const MOST_RESULTS: usize = 200;
/// How much of a message is kept.
const MOST_MESSAGE: usize = 500;
/// How many violations have a series of their own in the metrics of the whole cluster.
pub const MOST_SERIES: usize = 200;

/// What was judged in a namespace.
#[derive(Debug, Clone)]
pub struct NamespaceFindings {
    /// The namespace.
    pub namespace: String,
    /// Its unique id.
    pub uid: String,
    /// The strictest level that it is held to, now or by the rollout.
    pub held_to: Level,
    /// What any level forbids.
    pub objects: Vec<Blocker>,
    /// What cannot be judged.
    pub undecided: Vec<Undecided>,
    /// Workloads whose pods are rejected.
    pub rejected: Vec<RejectedWorkload>,
    /// How many pods and workloads no level forbids anything in.
    pub compliant: usize,
}

/// How one finding counts. The order is that of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The level of the namespace forbids it.
    Fail,
    /// It cannot be judged.
    Error,
    /// A stricter level would forbid it.
    Warn,
    /// An exception accepts it.
    Skip,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fail, Self::Error, Self::Warn, Self::Skip];

    /// The name in reports and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Skip => "skip",
        }
    }
}

/// One result. Rows are ordered as a report lists them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// How it counts.
    pub outcome: Outcome,
    /// The position of its severity, the highest first.
    severity: Severity,
    /// The kind of the object.
    pub kind: Cow<'static, str>,
    /// Its name.
    pub name: String,
    /// The level that forbids it.
    pub policy: &'static str,
    /// The check.
    pub rule: &'static str,
    /// The field, if it is about one.
    pub field: String,
    /// What is wrong.
    message: String,
    /// The exception that accepts it.
    exception: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    High,
    Medium,
}

impl Severity {
    const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
        }
    }
}

/// How many results there are of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts([usize; 4]);

impl Counts {
    /// Of rows.
    pub fn count<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Self {
        let mut counts = Self::default();
        for row in rows {
            counts.0[row.outcome as usize] += 1;
        }
        counts
    }

    /// Of one kind.
    #[must_use]
    pub const fn of(self, outcome: Outcome) -> usize {
        self.0[outcome as usize]
    }

    /// Adds others.
    pub fn add(&mut self, other: Self) {
        for (own, more) in self.0.iter_mut().zip(other.0) {
            *own += more;
        }
    }

    fn describe(self) -> String {
        let parts = Outcome::ALL.into_iter().filter(|outcome| self.of(*outcome) > 0);
        parts
            .map(|outcome| format!("{} {}", self.of(outcome), outcome.as_str()))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// What the reports of all namespaces contain, as far as metrics report it.
#[derive(Debug, Clone, Default)]
pub struct ClusterFindings {
    /// How many results there are.
    pub counts: Counts,
    /// The first violations, with their namespace.
    pub violations: Vec<(String, Row)>,
}

impl ClusterFindings {
    /// Of all namespaces, by name.
    pub fn of<'n>(namespaces: impl IntoIterator<Item = (&'n String, (Counts, &'n [Row]))>) -> Self {
        let mut found = Self::default();
        for (namespace, (counts, violations)) in namespaces {
            found.counts.add(counts);
            let room = MOST_SERIES - found.violations.len();
            found.violations.extend(violations.iter().take(room).map(|row| (namespace.clone(), row.clone())));
        }
        found
    }
}

const fn policy(level: Level) -> &'static str {
    match level {
        Level::Restricted => "pod-security-restricted",
        Level::Baseline | Level::Privileged => "pod-security-baseline",
    }
}

fn shortened(text: &str) -> String {
    if text.len() <= MOST_MESSAGE {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(MOST_MESSAGE).collect();
    short.push('…');
    short
}

/// All results of a namespace, in order.
#[must_use]
pub fn rows(found: &NamespaceFindings, excused: &ExcusedObjects) -> Vec<Row> {
    let mut rows = Vec::new();
    for object in &found.objects {
        let own = excused.get(&(object.kind.to_string(), object.name.clone()));
        let unmasked = own.into_iter().flat_map(|own| &own.unmasked);
        let mut of_object: Vec<Row> = Vec::new();
        for cause in object.causes.iter().chain(unmasked) {
            let exception = own.and_then(|own| own.exception(cause));
            let level = checks::check(cause.check).map_or(Level::Baseline, |check| check.level);
            let outcome = match exception {
                Some(_) => Outcome::Skip,
                None if level <= found.held_to => Outcome::Fail,
                None => Outcome::Warn,
            };
            let row = row(object, cause, level, outcome, exception);
            // What a baseline check finds is not listed again for the restricted check of the same field, unless an exception
            // accepts the first alone.
            let is_covered = |known: &Row| {
                (known.policy, &known.field) == (policy(Level::Baseline), &row.field)
                    && (known.outcome != Outcome::Skip || outcome == Outcome::Skip)
            };
            if level != Level::Restricted || !of_object.iter().any(is_covered) {
                of_object.push(row);
            }
        }
        rows.append(&mut of_object);
        if let Some(rejection) = &object.rejection {
            rows.push(rejected(object.kind.clone(), &object.name, "securityContextConstraints", rejection));
        }
    }
    for undecided in &found.undecided {
        rows.push(Row {
            outcome: Outcome::Error,
            severity: Severity::High,
            kind: undecided.kind.clone(),
            name: undecided.name.clone(),
            policy: "pod-security",
            rule: "undecided",
            field: String::new(),
            message: shortened(&undecided.reason),
            exception: None,
        });
    }
    for workload in &found.rejected {
        rows.push(rejected(workload.kind.into(), &workload.name, workload.by.as_str(), &workload.message));
    }
    rows.sort();
    rows.dedup();
    rows
}

fn row(object: &Blocker, cause: &Cause, level: Level, outcome: Outcome, exception: Option<&str>) -> Row {
    Row {
        outcome,
        severity: if level == Level::Restricted { Severity::Medium } else { Severity::High },
        kind: object.kind.clone(),
        name: object.name.clone(),
        policy: policy(level),
        rule: cause.check,
        field: shortened(&cause.path),
        message: shortened(&format!("{}: {}; allowed: {}", cause.path, cause.summary, cause.allowed)),
        exception: exception.map(str::to_owned),
    }
}

fn rejected(kind: Cow<'static, str>, name: &str, rule: &'static str, message: &str) -> Row {
    Row {
        outcome: Outcome::Fail,
        severity: Severity::High,
        kind,
        name: name.to_owned(),
        policy: "admission",
        rule,
        field: String::new(),
        message: shortened(&format!("its pods are rejected: {message}")),
        exception: None,
    }
}

/// The report of a namespace; `None` if nothing in it was judged.
#[must_use]
pub fn report(kind: ReportKind, found: &NamespaceFindings, rows: &[Row]) -> Option<Value> {
    if rows.is_empty() && found.compliant == 0 {
        return None;
    }
    let counts = Counts::count(rows);
    let results: Vec<Value> =
        rows.iter().take(MOST_RESULTS).map(|row| result(row, &found.namespace)).collect();
    let mut report = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind(),
        "metadata": {
            "name": NAME,
            "namespace": found.namespace,
            "labels": {"app.kubernetes.io/name": "palisade", "app.kubernetes.io/managed-by": "palisade"},
        },
        "scope": {"apiVersion": "v1", "kind": "Namespace", "name": found.namespace, "uid": found.uid},
        "summary": {
            "pass": found.compliant,
            "fail": counts.of(Outcome::Fail),
            "warn": counts.of(Outcome::Warn),
            "error": counts.of(Outcome::Error),
            "skip": counts.of(Outcome::Skip),
        },
        "results": results,
    });
    if kind == ReportKind::OpenReports {
        report["source"] = SOURCE.into();
        report["configuration"] = json!({"limits": {"maxResults": MOST_RESULTS}});
    }
    let rest = Counts::count(rows.iter().skip(MOST_RESULTS)).describe();
    if !rest.is_empty() {
        report["metadata"]["annotations"] = json!({NOT_LISTED: rest});
    }
    Some(report)
}

fn result(row: &Row, namespace: &str) -> Value {
    let mut properties = serde_json::Map::new();
    if !row.field.is_empty() {
        properties.insert("field".to_owned(), row.field.as_str().into());
    }
    if let Some(exception) = &row.exception {
        properties.insert("exception".to_owned(), exception.as_str().into());
    }
    let mut result = json!({
        "source": SOURCE,
        "category": "Pod Security Standards",
        "policy": row.policy,
        "rule": row.rule,
        "result": row.outcome.as_str(),
        "severity": row.severity.as_str(),
        "scored": true,
        "message": row.message,
    });
    if !properties.is_empty() {
        result["properties"] = properties.into();
    }
    if let Some(api_version) = api_version(&row.kind) {
        result["resources"] =
            json!([{"apiVersion": api_version, "kind": row.kind, "namespace": namespace, "name": row.name}]);
    }
    result
}

/// The `apiVersion` of a kind that is watched.
fn api_version(kind: &str) -> Option<String> {
    let known = WORKLOADS.iter().find(|known| known.kind == kind)?;
    Some(if known.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", known.group) })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
