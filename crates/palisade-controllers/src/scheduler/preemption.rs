//! Which pods make way for a pod that fits no node: the victims, and the node they run on. Pure.
//!
//! Implements: Pod Priority and Preemption, "Preemption", as kube-scheduler's DefaultPreemption does it: pods with a lower priority
//! are victims, as few and as unimportant ones as possible, disruption budgets are respected where another choice allows it, and
//! who has preempted once waits for the end of its victims.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/>

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;
use kube::core::DynamicObject;
use palisade_base::label_selector::LabelSelector;
use serde_json::Value;

use super::fit::{Needs, Unfit, Usage, fit};
use super::plan::{name, priority};

/// The condition of pods that are stopped for another reason than their own.
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Its reason here.
pub const PREEMPTED: &str = "PreemptionByScheduler";

/// A pod on a node.
#[derive(Debug)]
pub struct Running<'p> {
    pub(super) pod: &'p DynamicObject,
    pub(super) needs: Needs<'p>,
}

impl Running<'_> {
    fn started(&self) -> Option<Timestamp> {
        // swallowed: a pod without a time counts as started last
        self.pod.data.pointer("/status/startTime")?.as_str()?.parse().ok()
    }

    /// More important pods first: by priority, then by how long they run.
    fn importance(&self, now: Timestamp) -> (Reverse<i64>, Timestamp, String) {
        (Reverse(priority(self.pod)), self.started().unwrap_or(now), name(self.pod))
    }
}

/// A pod that is to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// `namespace/name`.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A node on which a pod fits once some others have ended.
#[derive(Debug)]
pub struct Candidate<'p> {
    /// The node.
    pub node: &'p str,
    /// The pods that end, the most important first.
    pub victims: Vec<&'p DynamicObject>,
    violations: usize,
    earliest: Timestamp,
}

impl Candidate<'_> {
    /// The best candidate has the smallest.
    fn cost(&self) -> (usize, i64, i64, usize, Reverse<Timestamp>) {
        let priorities = || self.victims.iter().map(|pod| priority(pod));
        let sum = priorities().map(|priority| priority.saturating_add(1 << 31)).sum();
        let highest = priorities().max().unwrap_or(i64::MIN);
        (self.violations, highest, sum, self.victims.len(), Reverse(self.earliest))
    }
}

/// Why a pod may not preempt others; nothing if it may.
pub(super) fn ineligible<'a>(
    pod: &DynamicObject,
    nominated: Option<&str>,
    is_resolvable: bool,
    mut beside: impl Iterator<Item = &'a Running<'a>>,
) -> Option<&'static str> {
    if pod.data.pointer("/spec/preemptionPolicy").and_then(Value::as_str) == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    // A node that is out of the question now does not become free by waiting.
    let waits = nominated.is_some()
        && is_resolvable
        && beside.any(|other| priority(other.pod) < priority(pod) && is_preempted(other.pod));
    waits.then_some("not eligible due to a terminating pod on the nominated node.")
}

/// Whether a pod is ending to make way for another.
fn is_preempted(pod: &DynamicObject) -> bool {
    let conditions = pod.data.pointer("/status/conditions").and_then(Value::as_array);
    pod.metadata.deletion_timestamp.is_some()
        && conditions.is_some_and(|all| {
            all.iter().any(|one| {
                one["type"] == DISRUPTION_TARGET && one["status"] == "True" && one["reason"] == PREEMPTED
            })
        })
}

/// What stays on a node while a pod looks for victims: whoever is as important, and what is promised.
pub(super) struct Site<'p, 'a> {
    pub(super) node: &'p DynamicObject,
    pub(super) lost: Option<&'a str>,
    pub(super) running: &'a [Running<'p>],
    pub(super) promised: Option<&'a Usage>,
}

/// The victims on one node, or why there are none.
pub(super) fn victims<'p>(
    pod: &DynamicObject,
    needs: &Needs<'_>,
    site: &Site<'p, '_>,
    budgets: &[&DynamicObject],
    now: Timestamp,
) -> Result<Candidate<'p>, Vec<String>> {
    let own = priority(pod);
    let (mut lower, others): (Vec<&Running<'p>>, Vec<&Running<'p>>) =
        site.running.iter().partition(|other| priority(other.pod) < own);
    if lower.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".to_owned()]);
    }
    let mut usage = site.promised.cloned().unwrap_or_default();
    for other in others {
        usage.add(&other.needs);
    }
    let fits = |usage: &Usage| fit(needs, site.node, site.lost, usage);
    fits(&usage).map_err(|unfit: Unfit| unfit.reasons().to_vec())?;
    lower.sort_by_cached_key(|running| running.importance(now));
    let (violating, free) = by_budget(&lower, budgets);
    let mut stays = |running: &&Running<'p>| {
        let mut with = usage.clone();
        with.add(&running.needs);
        let stays = fits(&with).is_ok();
        if stays {
            usage = with;
        }
        stays
    };
    let mut victims: Vec<&Running<'p>> = violating.into_iter().filter(|running| !stays(running)).collect();
    let violations = victims.len();
    victims.extend(free.into_iter().filter(|running| !stays(running)));
    victims.sort_by_cached_key(|running| running.importance(now));
    let highest = victims.first().map(|running| priority(running.pod));
    let earliest = victims
        .iter()
        .filter(|running| Some(priority(running.pod)) == highest)
        .map(|running| running.started().unwrap_or(now))
        .min();
    Ok(Candidate {
        node: site.node.metadata.name.as_deref().unwrap_or_default(),
        victims: victims.into_iter().map(|running| running.pod).collect(),
        violations,
        earliest: earliest.unwrap_or(now),
    })
}

/// Pods whose end a budget does not allow, and the others.
fn by_budget<'r, 'p>(
    pods: &[&'r Running<'p>],
    budgets: &[&DynamicObject],
) -> (Vec<&'r Running<'p>>, Vec<&'r Running<'p>>) {
    let mut left: Vec<i64> = budgets
        .iter()
        .map(|budget| budget.data.pointer("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or(0))
        .collect();
    pods.iter().copied().partition(|running| {
        let metadata = &running.pod.metadata;
        let labels = serde_json::json!(metadata.labels);
        let mut violates = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            let guards = budget.metadata.namespace == metadata.namespace
                && budget.data.pointer("/spec/selector").is_some_and(|selector| {
                    let is_empty = selector.as_object().is_none_or(serde_json::Map::is_empty);
                    !is_empty && LabelSelector::from_object(selector).matches_labels(Some(&labels))
                });
            let disrupted = budget.data.pointer("/status/disruptedPods").and_then(Value::as_object);
            let counted = disrupted.is_some_and(|disrupted| {
                metadata.name.as_ref().is_some_and(|name| disrupted.contains_key(name))
            });
            if guards && !counted {
                *left -= 1;
                violates |= *left < 0;
            }
        }
        violates
    })
}

/// The candidate with the least harm; the first of several.
pub(super) fn best(candidates: Vec<Candidate<'_>>) -> Option<Candidate<'_>> {
    candidates.into_iter().min_by_key(Candidate::cost)
}

/// kube-scheduler's sentence about nodes that do not take a pod, with the reasons of each.
pub(super) fn counted(reasons: &[Vec<String>]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons.iter().flatten() {
        *counts.entry(reason).or_default() += 1;
    }
    let mut listed: Vec<String> =
        counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    listed.sort();
    format!("0/{} nodes are available: {}.", reasons.len(), listed.join(", "))
}
