//! How many pods to make, which ones to delete, and the status. Pure.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::{SignedDuration, Timestamp};
use palisade_base::label_selector::LabelSelector;
use serde_json::{Map, Value, json};

use crate::workloads::{
    meta::Meta,
    object::{Object, set_count, stamp},
    pod::{Phase, Pod},
};

/// At most so many pods are made or deleted at a time.
pub const BURST: usize = 500;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What is to be done about the number of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaChange<'p> {
    /// Nothing.
    None,
    /// So many more.
    Create(usize),
    /// These are too many.
    Delete(Vec<&'p Pod>),
}

/// Compares the pods with the wanted number. `related` are the pods of sibling ReplicaSets by node, which decide about ties.
#[must_use]
pub fn change<'p>(
    wanted: i64,
    pods: &[&'p Pod],
    related: &BTreeMap<Box<str>, usize>,
    now: Timestamp,
) -> ReplicaChange<'p> {
    let active: Vec<&'p Pod> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
    let wanted = usize::try_from(wanted).unwrap_or_default();
    if active.len() < wanted {
        return ReplicaChange::Create((wanted - active.len()).min(BURST));
    }
    let surplus = (active.len() - wanted).min(BURST);
    if surplus == 0 {
        return ReplicaChange::None;
    }
    let mut ranked = active;
    ranked.sort_by_cached_key(|pod| rank(pod, related, now));
    ranked.truncate(surplus);
    ReplicaChange::Delete(ranked)
}

/// The order of deletion: first what is worth least. Upstream's `ActivePodsWithRanks`.
fn rank(pod: &Pod, related: &BTreeMap<Box<str>, usize>, now: Timestamp) -> impl Ord + use<> {
    let phase = match pod.phase {
        Phase::Pending => 0,
        Phase::Unknown => 1,
        _ => 2,
    };
    let cost: i32 = pod.meta.annotation(DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or_default();
    let crowd = related.get(&pod.node).copied().unwrap_or_default();
    // Ages count by their order of magnitude: what started together is deleted at random, here by uid.
    let age =
        |since: Option<Timestamp>| since.map(|since| now.duration_since(since).as_secs().max(1).ilog2());
    (
        !pod.node.is_empty(),
        phase,
        pod.is_ready,
        cost,
        Reverse(crowd),
        pod.is_ready.then(|| age(pod.ready_since)),
        Reverse(pod.restarts),
        age(pod.meta.created),
        pod.meta.uid.clone(),
    )
}

/// The status, and when it changes without an event.
#[must_use]
pub fn status(
    set: &Object,
    pods: &[&Pod],
    template_labels: &LabelSelector,
    failure: Option<(&'static str, String)>,
    now: Timestamp,
) -> (Value, Option<SignedDuration>) {
    let min_ready = set.count("/spec/minReadySeconds");
    let active: Vec<&Pod> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
    let count = |of: &dyn Fn(&Pod) -> bool| {
        i64::try_from(active.iter().filter(|pod| of(pod)).count()).unwrap_or(i64::MAX)
    };
    let mut status: Map<String, Value> = set.at("/status").as_object().cloned().unwrap_or_default();
    status.insert("replicas".to_owned(), count(&|_| true).into());
    set_count(&mut status, "fullyLabeledReplicas", count(&|pod| pod.meta.is_selected_by(template_labels)));
    set_count(&mut status, "readyReplicas", count(&|pod| pod.is_ready));
    set_count(&mut status, "availableReplicas", count(&|pod| pod.is_available(min_ready, now)));
    if set.text("/kind") == "ReplicaSet" {
        let terminating = pods.iter().filter(|pod| pod.meta.is_deleting() && !pod.is_finished()).count();
        status.insert("terminatingReplicas".to_owned(), terminating.into());
    }
    status.insert("observedGeneration".to_owned(), set.meta.generation.into());
    let known = set.list("/status/conditions").iter().find(|condition| condition["type"] == "ReplicaFailure");
    let mut conditions: Vec<Value> = set
        .list("/status/conditions")
        .iter()
        .filter(|one| one["type"] != "ReplicaFailure")
        .cloned()
        .collect();
    if let Some((reason, message)) = failure {
        // The first message stays while the reason does.
        conditions.push(match known {
            Some(known) if known["reason"] == reason => known.clone(),
            _ => json!({"type": "ReplicaFailure", "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": stamp(now)}),
        });
    }
    if conditions.is_empty() {
        status.remove("conditions");
    } else {
        status.insert("conditions".to_owned(), conditions.into());
    }
    let next = active.iter().filter_map(|pod| pod.available_in(min_ready, now)).min();
    (Value::Object(status), next)
}

/// The pod of a template.
#[must_use]
pub fn pod_of(template: &Value, owner: &Meta, reference: &Value) -> Value {
    // A name that is too long to be continued is shortened by the API server.
    let mut metadata = Map::from_iter([
        ("generateName".to_owned(), json!(format!("{}-", owner.name))),
        ("namespace".to_owned(), json!(owner.namespace)),
        ("ownerReferences".to_owned(), json!([reference])),
    ]);
    for key in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.pointer(&format!("/metadata/{key}")) {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::{ReplicaChange, change};
    use crate::workloads::{mirror::Mirrored as _, pod::Pod};

    const NOW: &str = "2026-01-01T01:00:00Z";

    /// A pod from the parts that decide about its rank.
    fn pod(uid: &str, meta: &str, spec: &str, status: &str) -> Pod {
        Pod::read(&format!(
            r#"{{"metadata":{{"name":"{uid}","uid":"{uid}","creationTimestamp":"2026-01-01T00:00:00Z"{meta}}},
                "spec":{{{spec}}},"status":{{{status}}}}}"#
        ))
        .unwrap()
    }

    const ON_NODE: &str = r#""nodeName":"n1""#;

    fn ready(since: &str, restarts: u32) -> String {
        format!(
            r#""phase":"Running","conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"{since}"}}],
               "containerStatuses":[{{"name":"c","restartCount":{restarts}}}]"#
        )
    }

    #[test]
    fn the_pod_that_is_worth_least_goes_first() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:59:00Z");
        let cost = r#","annotations":{"controller.kubernetes.io/pod-deletion-cost":"10"}"#;
        let young = r#","labels":{},"generation":1"#;
        for (case, first, second) in [
            ("unassigned", pod("a", "", "", ""), pod("b", "", ON_NODE, "")),
            ("pending", pod("a", "", ON_NODE, ""), pod("b", "", ON_NODE, r#""phase":"Running""#)),
            (
                "not ready",
                pod("a", "", ON_NODE, r#""phase":"Running""#),
                pod("b", "", ON_NODE, &ready(early, 0)),
            ),
            ("cheap", pod("z", "", ON_NODE, &ready(early, 0)), pod("b", cost, ON_NODE, &ready(early, 0))),
            (
                "ready for less time",
                pod("z", young, ON_NODE, &ready(late, 0)),
                pod("b", "", ON_NODE, &ready(early, 0)),
            ),
            (
                "more restarts",
                pod("z", "", ON_NODE, &ready(early, 5)),
                pod("b", "", ON_NODE, &ready(early, 0)),
            ),
        ] {
            let now: Timestamp = NOW.parse().unwrap();
            for pods in [[&first, &second], [&second, &first]] {
                let planned = change(1, &pods, &BTreeMap::new(), now);
                assert_eq!(planned, ReplicaChange::Delete(vec![&first]), "{case}");
            }
        }
    }

    #[test]
    fn crowded_nodes_lose_pods_first() {
        let (a, b) = (pod("a", "", r#""nodeName":"n1""#, ""), pod("b", "", r#""nodeName":"n2""#, ""));
        let related = BTreeMap::from([("n2".into(), 3), ("n1".into(), 1)]);
        assert_eq!(change(1, &[&a, &b], &related, NOW.parse().unwrap()), ReplicaChange::Delete(vec![&b]));
    }

    #[test]
    fn finished_and_deleted_pods_do_not_count() {
        let failed = pod("a", "", ON_NODE, r#""phase":"Failed""#);
        let deleted = pod("b", r#","deletionTimestamp":"2026-01-01T00:00:00Z""#, ON_NODE, "");
        let fine = pod("c", "", ON_NODE, "");
        let now = NOW.parse().unwrap();
        assert_eq!(change(2, &[&failed, &deleted, &fine], &BTreeMap::new(), now), ReplicaChange::Create(1));
        assert_eq!(change(1, &[&failed, &deleted, &fine], &BTreeMap::new(), now), ReplicaChange::None);
    }
}
