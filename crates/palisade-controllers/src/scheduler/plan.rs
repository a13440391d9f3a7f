//! Which pod runs on which node: a pure function from pods and nodes to bindings and reasons.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube::core::DynamicObject;
use serde_json::Value;

use super::fit::{Needs, Unfit, Usage, fit};
use super::preemption::{self, Running, Site, Victim};

/// The scheduler of pods that name no other.
pub const SCHEDULER: &str = "default-scheduler";

/// A node without a heartbeat for so long is lost.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(40);

/// What happens to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchedulingDecision {
    /// It runs on this node.
    Bind(String),
    /// No node takes it.
    Unschedulable {
        /// kube-scheduler's sentence.
        why: String,
        /// The node it still waits for, because its victims are ending there.
        nominated: Option<String>,
    },
    /// Other pods end so that it fits this node.
    Preempt(Preemption),
}

/// What a pod does to others to run on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemption {
    /// kube-scheduler's sentence about why it does not run yet.
    pub why: String,
    /// The node it waits for from now on.
    pub node: String,
    /// The pods that are to end; those that are ending already are not among them.
    pub victims: Vec<Victim>,
    /// Less important pods that wait for the node too, and no longer do.
    pub outranked: Vec<Victim>,
}

/// What the scheduler observes.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// Every pod.
    pub pods: &'a [&'a DynamicObject],
    /// Every disruption budget.
    pub budgets: &'a [&'a DynamicObject],
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
    let mut state = State::default();
    for pod in observed.pods.iter().copied().filter(|pod| !is_done(pod)) {
        if let Some(node) = assigned(pod) {
            let needs = Needs::of(pod);
            state.usage.entry(node).or_default().add(&needs);
            state.running.entry(node).or_default().push(Running { pod, needs });
        }
    }
    let mut waiting: Vec<&DynamicObject> = observed.pods.iter().copied().filter(|pod| waits(pod)).collect();
    waiting.sort_by_cached_key(|pod| {
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(priority(pod)), created, name(pod))
    });
    let mut decisions = BTreeMap::new();
    for pod in waiting {
        let decision = decide(pod, observed, &state);
        // What is promised to a pod is not there for the less important ones after it.
        let promised = match &decision {
            SchedulingDecision::Bind(node) => Some(node),
            SchedulingDecision::Preempt(preemption) => Some(&preemption.node),
            SchedulingDecision::Unschedulable { nominated, .. } => nominated.as_ref(),
        };
        if let Some(promised) = promised
            && let Some(node) = observed
                .nodes
                .iter()
                .filter_map(|known| known.metadata.name.as_deref())
                .find(|known| known == promised)
        {
            let needs = Needs::of(pod);
            state.usage.entry(node).or_default().add(&needs);
            state.promised.entry(node).or_default().add(&needs);
        }
        decisions.insert(name(pod), decision);
    }
    decisions
}

/// What is used, and by whom.
#[derive(Debug, Default)]
struct State<'p> {
    /// By node, everything that is used or promised.
    usage: BTreeMap<&'p str, Usage>,
    /// By node, what is promised to pods that do not run yet.
    promised: BTreeMap<&'p str, Usage>,
    /// By node, the pods that run there.
    running: BTreeMap<&'p str, Vec<Running<'p>>>,
}

/// The priority of a pod.
#[must_use]
pub fn priority(pod: &DynamicObject) -> i64 {
    pod.data.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or_default()
}

/// The node that a pod waits for.
#[must_use]
pub fn nominated(pod: &DynamicObject) -> Option<&str> {
    pod.data.pointer("/status/nominatedNodeName")?.as_str().filter(|node| !node.is_empty())
}

fn victim(pod: &DynamicObject) -> Victim {
    Victim { name: name(pod), uid: pod.metadata.uid.clone().unwrap_or_default() }
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

fn decide(pod: &DynamicObject, observed: &Observed<'_>, state: &State<'_>) -> SchedulingDecision {
    if observed.nodes.is_empty() {
        let why = "no nodes available to schedule pods".to_owned();
        return SchedulingDecision::Unschedulable { why, nominated: None };
    }
    let (needs, nothing) = (Needs::of(pod), Usage::default());
    // The node that was made free for the pod comes first.
    let mut best: Option<(bool, i64, &str)> = None;
    let mut refused = Vec::new();
    for node in observed.nodes {
        let Some(name) = node.metadata.name.as_deref() else { continue };
        let used = state.usage.get(name).unwrap_or(&nothing);
        match fit(&needs, node, lost(node, observed), used) {
            Ok(()) => {
                let candidate = (nominated(pod) != Some(name), used.pods, name);
                best = Some(best.map_or(candidate, |known| known.min(candidate)));
            }
            Err(unfit) => refused.push((*node, unfit)),
        }
    }
    match best {
        Some((_, _, node)) => SchedulingDecision::Bind(node.to_owned()),
        None => preempt(pod, &needs, observed, state, &refused),
    }
}

/// What a pod that fits no node does about it.
fn preempt(
    pod: &DynamicObject,
    needs: &Needs<'_>,
    observed: &Observed<'_>,
    state: &State<'_>,
    refused: &[(&DynamicObject, Unfit)],
) -> SchedulingDecision {
    let why = unschedulable(refused);
    let waits_for = nominated(pod);
    let is_resolvable = refused
        .iter()
        .any(|(node, unfit)| node.metadata.name.as_deref() == waits_for && matches!(unfit, Unfit::Full(_)));
    let beside = waits_for.and_then(|node| state.running.get(node)).into_iter().flatten();
    if let Some(reason) = preemption::ineligible(pod, waits_for, is_resolvable, beside) {
        let nominated = waits_for.filter(|_| is_resolvable).map(str::to_owned);
        return SchedulingDecision::Unschedulable { why: format!("{why} preemption: {reason}"), nominated };
    }
    let (mut candidates, mut reasons) = (Vec::new(), Vec::new());
    for (node, unfit) in refused {
        if let Unfit::Unresolvable(_) = unfit {
            reasons.push(vec!["Preemption is not helpful for scheduling".to_owned()]);
            continue;
        }
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let running = state.running.get(name).map_or(&[][..], Vec::as_slice);
        let site = Site { node, lost: lost(node, observed), running, promised: state.promised.get(name) };
        match preemption::victims(pod, needs, &site, observed.budgets, observed.now) {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => reasons.push(why),
        }
    }
    let Some(best) = preemption::best(candidates) else {
        let why = format!("{why} preemption: {}", preemption::counted(&reasons));
        return SchedulingDecision::Unschedulable { why, nominated: None };
    };
    let is_outranked = |other: &&&DynamicObject| {
        waits(other) && nominated(other) == Some(best.node) && priority(other) < priority(pod)
    };
    let ending = best.victims.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    SchedulingDecision::Preempt(Preemption {
        why,
        node: best.node.to_owned(),
        victims: ending.map(|pod| victim(pod)).collect(),
        outranked: observed.pods.iter().filter(is_outranked).map(|pod| victim(pod)).collect(),
    })
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
fn unschedulable(refused: &[(&DynamicObject, Unfit)]) -> String {
    let reasons: Vec<Vec<String>> = refused.iter().map(|(_, unfit)| unfit.reasons().to_vec()).collect();
    preemption::counted(&reasons)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
