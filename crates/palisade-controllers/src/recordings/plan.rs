//! What becomes of a recording, from its object, the parts of the nodes and the pods that ran. Pure: time is a parameter.

use std::collections::{BTreeMap, BTreeSet};

use palisade_base::{
    sha256,
    time::{Time, rfc3339},
};
use palisade_model::{
    profile::recording::{
        Phase, Recording,
        document::{combined, combined_profile},
    },
    profile_recording::{ProfileRecording, Purpose},
};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// How many pods and denials are listed.
const MOST_ROWS: usize = 1000;
/// How many denials become events: the most frequent ones.
const MOST_EVENTS: usize = 64;
/// How long after its end nodes may take to report it.
const NODES_WITHIN: i64 = 120;
/// What the watch of pods may be behind.
const PODS_WITHIN: i64 = 3;

/// A pod that a recording selects and that has started.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StartedPod {
    /// Its identity.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
}

/// Why the profile of a recording is not in its ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotWritten {
    /// Nothing is written over.
    #[error("there is a ConfigMap {name:?}, which is not written over")]
    Exists {
        /// Its name.
        name: String,
    },
    /// The API server rejects it.
    #[error("{0}")]
    Rejected(String),
}

/// An event on the owner of a pod: a profile would deny it a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenialEvent {
    /// The reference to the owner.
    pub owner: Value,
    /// Distinguishes it from others of the same owner.
    pub digest: String,
    /// In words.
    pub message: String,
    /// How often.
    pub count: u64,
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordingPlan {
    /// The status; with a ConfigMap to write it is completed by [`completed`].
    pub status: Value,
    /// The ConfigMap, at the end of a recording.
    pub config_map: Option<Value>,
    /// Calls that a profile would deny.
    pub events: Vec<DenialEvent>,
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn list<'v>(value: &'v Value, path: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

/// Whether a recording has been completed: nothing of it changes any more.
#[must_use]
pub fn is_completed(recording: &Value) -> bool {
    list(recording, "/status/conditions")
        .any(|known| text(known, "/type") == "Recorded" && text(known, "/status") != "Unknown")
}

/// The moment at which a recording must be looked at again although nothing changes.
#[must_use]
pub fn next_look(recording: &Value, now: Time) -> Option<i64> {
    // swallowed: one that cannot be read has no end
    let until = ProfileRecording::read(recording).ok()?.until.seconds;
    [until + 1, until + PODS_WITHIN, until + NODES_WITHIN].into_iter().find(|at| *at > now.seconds)
}

struct Conditions<'v> {
    before: &'v Value,
    now: Time,
    made: Vec<Value>,
}

impl Conditions<'_> {
    fn put(&mut self, kind: &str, holds: Option<bool>, reason: &str, message: &str) {
        let status = match holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let same = list(self.before, "/conditions")
            .find(|known| text(known, "/type") == kind && text(known, "/status") == status);
        let since = same
            .map_or_else(|| rfc3339(self.now.seconds), |known| text(known, "/lastTransitionTime").to_owned());
        self.made.push(json!({"type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since}));
    }
}

/// The pods that were seen and whether their node recorded them; what was known stays.
fn pods(before: &Value, parts: &[&Value], started: &[StartedPod]) -> BTreeMap<String, (Value, bool)> {
    let recorded: BTreeSet<&str> =
        parts.iter().flat_map(|part| list(part, "/pods")).map(|pod| text(pod, "/uid")).collect();
    let mut pods = BTreeMap::new();
    let mut put = |uid: &str, name: &str, node: &str, was: bool| {
        if pods.len() < MOST_ROWS || pods.contains_key(uid) {
            let is_recorded = was || recorded.contains(uid);
            let row = json!({"name": name, "uid": uid, "node": node, "recorded": is_recorded});
            pods.insert(uid.to_owned(), (row, is_recorded));
        }
    };
    for pod in list(before, "/pods") {
        let was = pod.get("recorded").and_then(Value::as_bool) == Some(true);
        put(text(pod, "/uid"), text(pod, "/name"), text(pod, "/node"), was);
    }
    for part in parts {
        for pod in list(part, "/pods") {
            put(text(pod, "/uid"), text(pod, "/name"), text(part, "/node"), true);
        }
    }
    for pod in started {
        put(&pod.uid, &pod.name, &pod.node, false);
    }
    pods
}

struct Losses(BTreeSet<String>);

impl Losses {
    fn put(&mut self, reason: impl Into<String>) {
        if self.0.len() < MOST_ROWS {
            self.0.insert(reason.into());
        }
    }
}

/// What is to be written for a recording. `parts` are those of its namespace.
#[must_use]
pub fn plan(object: &Value, parts: &[Value], started: &[StartedPod], now: Time) -> RecordingPlan {
    let before = object.get("status").unwrap_or(&Value::Null);
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let mut conditions = Conditions { before, now, made: Vec::new() };
    let recording = match ProfileRecording::read(object) {
        Ok(recording) => recording,
        Err(error) => {
            conditions.put("Accepted", Some(false), "Invalid", &error.to_string());
            conditions.put("Recorded", None, "Invalid", "nothing is recorded");
            let status = json!({"observedGeneration": generation, "conditions": conditions.made});
            return RecordingPlan { status, config_map: None, events: Vec::new() };
        }
    };
    conditions.put("Accepted", Some(true), "Valid", "the recording can be made");
    let owned = |part: &&Value| {
        list(part, "/metadata/ownerReferences").any(|owner| text(owner, "/uid") == recording.uid)
    };
    let parts: Vec<&Value> = parts.iter().filter(owned).collect();
    let mut losses = Losses(BTreeSet::new());
    let pods = pods(before, &parts, started);
    if pods.len() >= MOST_ROWS {
        losses.put(format!("there are more than {MOST_ROWS} pods"));
    }
    let mut nodes: BTreeSet<&str> = list(before, "/nodes").filter_map(Value::as_str).collect();
    let present: BTreeSet<&str> = parts.iter().map(|part| text(part, "/node")).collect();
    for gone in nodes.difference(&present) {
        losses.put(format!("what node {gone} has recorded was deleted"));
    }
    nodes.extend(&present);
    let mut read = Vec::new();
    for part in &parts {
        let node = text(part, "/node");
        for reason in list(part, "/lossy") {
            losses.put(reason.as_str().unwrap_or("a reason that cannot be read"));
        }
        match part.get("recorded").filter(|recorded| !recorded.is_null()).map(Recording::from_document) {
            None => {}
            Some(Ok(recorded)) => read.push(recorded),
            Some(Err(error)) => losses.put(format!("what node {node} has recorded cannot be read: {error}")),
        }
    }
    let silent: Vec<&str> = parts
        .iter()
        .filter(|part| part.get("ended").and_then(Value::as_bool) != Some(true))
        .map(|part| text(part, "/node"))
        .collect();
    let after = now.seconds - recording.until.seconds;
    let is_over = !recording.counts_at(now) && after >= PODS_WITHIN;
    let is_final = is_over && (silent.is_empty() || after >= NODES_WITHIN);
    if is_final {
        for node in &silent {
            losses.put(format!("node {node} has not reported the end of the recording"));
        }
        for (row, _) in pods.values().filter(|(_, is_recorded)| !is_recorded) {
            losses.put(format!(
                "pod {} was not recorded: node {} has no recorder, or the pod ran before",
                text(row, "/name"),
                text(row, "/node")
            ));
        }
    }
    let together = combined(&read).map(|mut together| {
        for reason in &losses.0 {
            together.lose(reason);
        }
        together
    });
    let lossy: Vec<String> = match &together {
        Some(together) => together.losses().map(str::to_owned).collect(),
        None => losses.0.iter().cloned().collect(),
    };
    let denials = denials(&parts);
    let mut status = json!({"observedGeneration": generation, "nodes": nodes,
        "pods": pods.values().map(|(row, _)| row).collect::<Vec<_>>(), "lossy": lossy});
    let mut put = |key: &str, value: Value| {
        if let Some(fields) = status.as_object_mut() {
            fields.insert(key.to_owned(), value);
        }
    };
    if let Some(together) = &together {
        put("containers", together.containers().collect::<Vec<_>>().into());
        put("calls", together.calls().len().into());
        let phases: Map<String, Value> = Phase::ALL
            .into_iter()
            .map(|phase| (phase.as_str().to_owned(), together.calls_in(phase).len().into()))
            .collect();
        put("phases", phases.into());
    }
    let is_complete = together.as_ref().is_some_and(Recording::is_complete);
    let mut config_map = None;
    let is_complaint = matches!(recording.purpose, Purpose::Complain { .. });
    if is_complaint {
        let rows: Vec<&Value> = denials.iter().take(MOST_ROWS).collect();
        put("denials", json!(rows));
    }
    if !is_final {
        let (reason, message) = if is_over || after >= 0 {
            ("Ending", format!("{} nodes have not reported the end", silent.len()))
        } else {
            ("Recording", format!("until {}", rfc3339(recording.until.seconds)))
        };
        conditions.put("Recorded", None, reason, &message);
        if is_complaint {
            conditions.put("Enforceable", None, reason, &message);
        }
    } else if let Some(together) = &together {
        match &recording.purpose {
            Purpose::Complain { .. } => {
                outcome(&mut conditions, is_complete, lossy.len());
                enforceable(&mut conditions, is_complete, denials.len());
            }
            Purpose::Profile { config_map: name } => match combined_profile(&read) {
                Ok(profile) => {
                    config_map = Some(written(&recording, name, &profile.to_oci(), together));
                    outcome(&mut conditions, is_complete, lossy.len());
                }
                Err(error) => conditions.put("Recorded", Some(false), "NoProfile", &error.to_string()),
            },
        }
    } else {
        conditions.put("Recorded", Some(false), "NothingRecorded", "no container was recorded");
        if is_complaint {
            conditions.put("Enforceable", None, "NothingRecorded", "no container was recorded");
        }
    }
    if let Some(fields) = status.as_object_mut() {
        fields.insert("conditions".to_owned(), conditions.made.into());
    }
    RecordingPlan { status, config_map, events: events(&recording, &denials) }
}

fn outcome(conditions: &mut Conditions<'_>, is_complete: bool, lossy: usize) {
    if is_complete {
        conditions.put("Recorded", Some(true), "Complete", "every call of every container was recorded");
    } else {
        let message = format!("calls may be missing, for {lossy} reasons: see lossy");
        conditions.put("Recorded", Some(false), "Lossy", &message);
    }
}

fn enforceable(conditions: &mut Conditions<'_>, is_complete: bool, denials: usize) {
    match (denials, is_complete) {
        (1.., _) => {
            let message = format!("the profile would have denied {denials} calls: see denials");
            conditions.put("Enforceable", Some(false), "Denials", &message);
        }
        (0, false) => conditions.put("Enforceable", None, "Lossy", "calls may be missing: see lossy"),
        (0, true) => {
            conditions.put("Enforceable", Some(true), "NoDenials", "the profile would have denied nothing");
        }
    }
}

/// The status after the ConfigMap was written, or could not be.
#[must_use]
pub fn completed(mut status: Value, name: &str, written: Result<(), NotWritten>, now: Time) -> Value {
    match written {
        Ok(()) => {
            if let Some(fields) = status.as_object_mut() {
                fields.insert("configMap".to_owned(), name.into());
            }
        }
        Err(error) => {
            let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten() {
                if text(condition, "/type") == "Recorded" {
                    *condition = json!({"type": "Recorded", "status": "False", "reason": "NotWritten",
                        "message": error.to_string(), "lastTransitionTime": rfc3339(now.seconds)});
                }
            }
        }
    }
    status
}

fn written(recording: &ProfileRecording, name: &str, profile: &Value, together: &Recording) -> Value {
    let statement = together.statement(None);
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": recording.namespace,
            "annotations": {"palisade.dev/recorded-by": recording.name, "palisade.dev/recording-uid": recording.uid}},
        "data": {"profile.json": format!("{profile:#}\n"), "statement.json": format!("{statement:#}\n")}})
}

/// The calls that the profile would deny, the most frequent first.
fn denials(parts: &[&Value]) -> Vec<Value> {
    let mut rows: Vec<Value> = parts.iter().flat_map(|part| list(part, "/denials")).cloned().collect();
    let count = |row: &Value| row.get("count").and_then(Value::as_u64).unwrap_or_default();
    rows.sort_by(|a, b| {
        let key = |row: &Value| ["/pod", "/container", "/call"].map(|path| text(row, path).to_owned());
        count(b).cmp(&count(a)).then_with(|| key(a).cmp(&key(b)))
    });
    rows
}

fn events(recording: &ProfileRecording, denials: &[Value]) -> Vec<DenialEvent> {
    let Purpose::Complain { config_map, key } = &recording.purpose else { return Vec::new() };
    denials
        .iter()
        .take(MOST_EVENTS)
        .map(|row| {
            let (pod, uid) = (text(row, "/pod"), text(row, "/uid"));
            let (container, call) = (text(row, "/container"), text(row, "/call"));
            let count = row.get("count").and_then(Value::as_u64).unwrap_or_default();
            // A pod that nobody made is its own owner.
            let own = || json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid});
            let owner = row.get("owner").cloned().unwrap_or_else(own);
            let content = format!("{}|{uid}|{container}|{call}", recording.uid);
            let digest = sha256::hex(content.as_bytes());
            DenialEvent {
                owner,
                digest: digest.get(..16).unwrap_or(&digest).to_owned(),
                message: format!(
                    "profile {config_map}/{key} would deny {call} to container {container:?} of pod {pod}: {count} calls"
                ),
                count,
            }
        })
        .collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
