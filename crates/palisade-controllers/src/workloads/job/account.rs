//! How the status of a Job counts its pods, and its conditions. Pure.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::plan::Ending;
use crate::workloads::{
    object::{set_count, stamp},
    pod::Pod,
};

/// The counters of the status, and the lists of pods that are not counted yet.
pub(super) const KEYS: [&str; 2] = ["succeeded", "failed"];

/// What a round counts.
#[derive(Debug)]
pub struct Account<'p> {
    /// The status before the finalizers are removed.
    pub status: Map<String, Value>,
    /// The pods that lose their finalizer.
    pub release: Vec<&'p Pod>,
    /// How the Job ends, once every pod is counted.
    pub ending: Option<Ending>,
    /// Whether the Job was suspended, or resumed.
    pub suspension: Option<bool>,
    /// The uids of the pods that have the finalizer.
    pub with_finalizer: BTreeSet<String>,
}

pub(super) fn write_uncounted(status: &mut Map<String, Value>, uncounted: [Vec<Value>; 2]) {
    let lists = KEYS.into_iter().zip(uncounted).filter(|(_, uids)| !uids.is_empty());
    let lists: Map<String, Value> = lists.map(|(key, uids)| (key.to_owned(), uids.into())).collect();
    status.insert("uncountedTerminatedPods".to_owned(), lists.into());
}

/// Moves the pods that have lost their finalizer to the counters.
pub fn settle(status: &mut Map<String, Value>, with_finalizer: &BTreeSet<String>) {
    let lists = KEYS.map(|key| {
        let uids = status.get("uncountedTerminatedPods").and_then(|lists| lists[key].as_array()).cloned();
        let (left, gone): (Vec<Value>, Vec<Value>) = uids
            .unwrap_or_default()
            .into_iter()
            .partition(|uid| uid.as_str().is_some_and(|uid| with_finalizer.contains(uid)));
        if !gone.is_empty() {
            let counted = status.get(key).and_then(Value::as_i64).unwrap_or_default();
            set_count(status, key, counted + count(gone.iter()));
        }
        left
    });
    write_uncounted(status, lists);
}

/// Adds the final condition, if every pod is counted.
pub fn finish(status: &mut Map<String, Value>, ending: &Ending, now: Timestamp) -> bool {
    let has_uncounted = status.get("uncountedTerminatedPods").is_some_and(|lists| {
        KEYS.iter().any(|key| lists[*key].as_array().is_some_and(|uids| !uids.is_empty()))
    });
    if has_uncounted {
        return false;
    }
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let is = ("True", ending.reason.as_str(), ending.message.as_str());
    set_condition(&mut conditions, ending.last(), is, now);
    status.insert("conditions".to_owned(), conditions.into());
    if ending.is_success() {
        status.insert("completionTime".to_owned(), json!(stamp(now)));
    }
    true
}

/// Sets a condition; whether that changes it. One that is not there is false already.
pub(super) fn set_condition(
    conditions: &mut Vec<Value>,
    kind: &str,
    is: (&str, &str, &str),
    now: Timestamp,
) -> bool {
    let (status, reason, message) = is;
    let wanted = json!({"type": kind, "status": status, "lastProbeTime": stamp(now), "lastTransitionTime": stamp(now),
        "reason": reason, "message": message});
    let is_same =
        |known: &Value| ["status", "reason", "message"].iter().all(|key| known[*key] == wanted[*key]);
    match conditions.iter_mut().find(|one| one["type"] == kind) {
        Some(known) if is_same(known) => false,
        Some(known) => {
            *known = wanted;
            true
        }
        None if status == "False" => false,
        None => {
            conditions.push(wanted);
            true
        }
    }
}

pub(super) fn count<T>(items: impl Iterator<Item = T>) -> i64 {
    i64::try_from(items.count()).unwrap_or(i64::MAX)
}
