//! Who goes where: a pure function from pods and nodes to bindings and complaints.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};

use super::fit::{Unfit, Usage, fit};

/// The scheduler that pods ask for unless they say otherwise.
pub const SCHEDULER: &str = "default-scheduler";

/// A node whose agent has not been heard of for so long is lost.
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(40);

/// What is to be done about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It goes to this node.
    Bind(String),
    /// No node takes it; kube-scheduler's sentence.
    Unschedulable(String),
}

/// What a plan is made of.
#[derive(Debug, Clone, Copy)]
pub struct World<'a> {
    /// Every pod.
    pub pods: &'a [&'a Pod],
    /// Every node.
    pub nodes: &'a [&'a Node],
    /// When the agent of a node was heard of last.
    pub heartbeats: &'a BTreeMap<String, Timestamp>,
    /// Now.
    pub now: Timestamp,
}

/// Decides about every pod that waits for a node, by `namespace/name`; the most important and oldest come first.
#[must_use]
pub fn plan(world: &World<'_>) -> BTreeMap<String, Decision> {
    let mut usage: BTreeMap<&str, Usage> = BTreeMap::new();
    for pod in world.pods.iter().filter(|pod| !is_done(pod)) {
        if let Some(node) = assigned(pod) {
            usage.entry(node).or_default().add(pod);
        }
    }
    let mut waiting: Vec<&Pod> = world.pods.iter().copied().filter(|pod| waits(pod)).collect();
    waiting.sort_by_cached_key(|pod| {
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default();
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(priority), created, name(pod))
    });
    let mut decisions = BTreeMap::new();
    for pod in waiting {
        let decision = decide(pod, world, &usage);
        if let Decision::Bind(node) = &decision
            && let Some(node) = world
                .nodes
                .iter()
                .filter_map(|known| known.metadata.name.as_deref())
                .find(|known| known == node)
        {
            usage.entry(node).or_default().add(pod);
        }
        decisions.insert(name(pod), decision);
    }
    decisions
}

/// `namespace/name` of a pod.
#[must_use]
pub fn name(pod: &Pod) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name))
}

fn assigned(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

fn is_done(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a pod waits for this scheduler.
fn waits(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    assigned(pod).is_none()
        && !is_done(pod)
        && pod.metadata.deletion_timestamp.is_none()
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && spec.scheduler_name.as_deref().is_none_or(|name| name.is_empty() || name == SCHEDULER)
}

fn decide(pod: &Pod, world: &World<'_>, usage: &BTreeMap<&str, Usage>) -> Decision {
    if world.nodes.is_empty() {
        return Decision::Unschedulable("no nodes available to schedule pods".to_owned());
    }
    let nothing = Usage::default();
    let mut best: Option<(i64, &str)> = None;
    let mut refused = Vec::new();
    for node in world.nodes {
        let Some(name) = node.metadata.name.as_deref() else { continue };
        let used = usage.get(name).unwrap_or(&nothing);
        match fit(pod, node, lost(node, world), used) {
            Ok(()) => {
                let candidate = (used.pods, name);
                best = Some(best.map_or(candidate, |known| known.min(candidate)));
            }
            Err(unfit) => refused.push(unfit),
        }
    }
    match best {
        Some((_, node)) => Decision::Bind(node.to_owned()),
        None => Decision::Unschedulable(complaint(&refused)),
    }
}

/// The taint of a node that is not ready, or whose agent is silent.
fn lost(node: &Node, world: &World<'_>) -> Option<&'static str> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    if ready.is_none_or(|condition| condition.status != "True") {
        return Some("node.kubernetes.io/not-ready");
    }
    let heard = world.heartbeats.get(node.metadata.name.as_deref()?)?;
    is_lost(*heard, world.now).then_some("node.kubernetes.io/unreachable")
}

/// Whether an agent that was heard of then is lost.
#[must_use]
pub fn is_lost(heard: Timestamp, now: Timestamp) -> bool {
    now.duration_since(heard) > LOST_AFTER
}

/// kube-scheduler's sentence about a pod that no node takes.
fn complaint(refused: &[Unfit]) -> String {
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
