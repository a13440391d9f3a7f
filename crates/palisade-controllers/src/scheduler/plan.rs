//! Which pod runs on which node: a pure function from pods and nodes to bindings and reasons.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::Value;

use super::fit::{Needs, Unfit, Usage, fit};

/// The scheduler of pods that name no other.
pub const SCHEDULER: &str = "default-scheduler";

/// A node without a heartbeat for so long is lost.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(40);

/// What happens to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchedulingDecision {
    /// It runs on this node.
    Bind(String),
    /// No node takes it; kube-scheduler's sentence.
    Unschedulable(String),
}

/// What the scheduler observes.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// Every pod.
    pub pods: &'a [&'a DynamicObject],
    /// Every node.
    pub nodes: &'a [&'a DynamicObject],
    /// The last heartbeat of each node.
    pub heartbeats: &'a BTreeMap<String, Timestamp>,
    /// Now.
    pub now: Timestamp,
}

/// Decides about every pod that waits for a node, by `namespace/name`; the most important and oldest come first.
#[must_use]
pub fn plan(observed: &Observed<'_>) -> BTreeMap<String, SchedulingDecision> {
    let mut usage: BTreeMap<&str, Usage> = BTreeMap::new();
    for pod in observed.pods.iter().filter(|pod| !is_done(pod)) {
        if let Some(node) = assigned(pod) {
            usage.entry(node).or_default().add(&Needs::of(pod));
        }
    }
    let mut waiting: Vec<&DynamicObject> = observed.pods.iter().copied().filter(|pod| waits(pod)).collect();
    waiting.sort_by_cached_key(|pod| {
        let priority = pod.data.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or_default();
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(priority), created, name(pod))
    });
    let mut decisions = BTreeMap::new();
    for pod in waiting {
        let decision = decide(pod, observed, &usage);
        if let SchedulingDecision::Bind(node) = &decision
            && let Some(node) = observed
                .nodes
                .iter()
                .filter_map(|known| known.metadata.name.as_deref())
                .find(|known| known == node)
        {
            usage.entry(node).or_default().add(&Needs::of(pod));
        }
        decisions.insert(name(pod), decision);
    }
    decisions
}

/// `namespace/name` of a pod.
#[must_use]
pub fn name(pod: &DynamicObject) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name))
}

fn assigned(pod: &DynamicObject) -> Option<&str> {
    pod.data.pointer("/spec/nodeName")?.as_str().filter(|node| !node.is_empty())
}

fn is_done(pod: &DynamicObject) -> bool {
    let phase = pod.data.pointer("/status/phase").and_then(Value::as_str);
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a pod waits for this scheduler.
fn waits(pod: &DynamicObject) -> bool {
    let gates = pod.data.pointer("/spec/schedulingGates").and_then(Value::as_array);
    let scheduler = pod.data.pointer("/spec/schedulerName").and_then(Value::as_str);
    assigned(pod).is_none()
        && !is_done(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && gates.is_none_or(Vec::is_empty)
        && scheduler.is_none_or(|name| name.is_empty() || name == SCHEDULER)
}

fn decide(pod: &DynamicObject, observed: &Observed<'_>, usage: &BTreeMap<&str, Usage>) -> SchedulingDecision {
    if observed.nodes.is_empty() {
        return SchedulingDecision::Unschedulable("no nodes available to schedule pods".to_owned());
    }
    let (needs, nothing) = (Needs::of(pod), Usage::default());
    let mut best: Option<(i64, &str)> = None;
    let mut refused = Vec::new();
    for node in observed.nodes {
        let Some(name) = node.metadata.name.as_deref() else { continue };
        let used = usage.get(name).unwrap_or(&nothing);
        match fit(&needs, node, lost(node, observed), used) {
            Ok(()) => {
                let candidate = (used.pods, name);
                best = Some(best.map_or(candidate, |known| known.min(candidate)));
            }
            Err(unfit) => refused.push(unfit),
        }
    }
    match best {
        Some((_, node)) => SchedulingDecision::Bind(node.to_owned()),
        None => SchedulingDecision::Unschedulable(unschedulable(&refused)),
    }
}

/// The taint of a node that is not ready or has no heartbeat.
fn lost(node: &DynamicObject, observed: &Observed<'_>) -> Option<&'static str> {
    let mut conditions =
        node.data.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    if ready.is_none_or(|condition| condition["status"] != "True") {
        return Some("node.kubernetes.io/not-ready");
    }
    let heard = observed.heartbeats.get(node.metadata.name.as_deref()?)?;
    is_lost(*heard, observed.now).then_some("node.kubernetes.io/unreachable")
}

/// Whether a node with this last heartbeat is lost.
#[must_use]
pub fn is_lost(heard: Timestamp, now: Timestamp) -> bool {
    now.duration_since(heard) > LOST_AFTER
}

/// kube-scheduler's sentence for a pod that no node takes.
fn unschedulable(refused: &[Unfit]) -> String {
    let all = refused.len();
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in refused.iter().flat_map(Unfit::reasons) {
        *counted.entry(reason).or_default() += 1;
    }
    let listed = |counted: BTreeMap<&str, usize>| {
        let mut reasons: Vec<String> =
            counted.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        reasons.join(", ")
    };
    let mut preemption: BTreeMap<&str, usize> = BTreeMap::new();
    for unfit in refused {
        let why = match unfit {
            Unfit::Unresolvable(_) => "Preemption is not helpful for scheduling",
            Unfit::Full(_) => "No preemption victims found for incoming pod",
        };
        *preemption.entry(why).or_default() += 1;
    }
    format!(
        "0/{all} nodes are available: {}. preemption: 0/{all} nodes are available: {}.",
        listed(counted),
        listed(preemption)
    )
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
