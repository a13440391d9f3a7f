//! Which nodes get a pod, which pods go, and the status. Pure.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::{SignedDuration, Timestamp};
use palisade_base::scheduling::{Taint, selects, taints, tolerates};
use serde_json::{Map, Value, json};

use crate::workloads::{
    meta::controller_reference,
    object::{Object, list, set_count},
    pod::{Phase, Pod},
    replica_set::plan::pod_of,
    revisions::HASH,
};

/// The generation of the template, on the DaemonSet.
const GENERATION: &str = "deprecated.daemonset.template.generation";
/// The generation of the template, on its pods.
const GENERATION_LABEL: &str = "pod-template-generation";

/// The pods of a DaemonSet by the node on which they run or are to run.
pub type ByNode<'p> = BTreeMap<&'p str, Vec<&'p Pod>>;

/// Sorts pods by node, the oldest ones first. Those that have ended and are being deleted are gone already.
#[must_use]
pub fn by_node<'p>(pods: &[&'p Pod]) -> ByNode<'p> {
    let mut nodes = ByNode::new();
    for pod in pods.iter().copied().filter(|pod| !(pod.is_finished() && pod.meta.is_deleting())) {
        let node = if pod.node.is_empty() { &*pod.wanted_node } else { &*pod.node };
        nodes.entry(node).or_default().push(pod);
    }
    for pods in nodes.values_mut() {
        pods.sort_by_key(|pod| (pod.node.is_empty(), pod.meta.created, pod.meta.name.clone()));
    }
    nodes
}

/// The specification of the pods, which tolerate what befalls a node.
#[must_use]
pub fn pod_spec(set: &Object) -> Value {
    let mut spec = set.at("/spec/template/spec").clone();
    let mut tolerations = list(&spec["tolerations"]).to_vec();
    let conditions = [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
        ("network-unavailable", "NoSchedule"),
    ];
    for (key, effect) in conditions {
        if key == "network-unavailable" && spec["hostNetwork"] != true {
            continue;
        }
        let toleration =
            json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    spec["tolerations"] = tolerations.into();
    spec
}

/// Whether a pod of this specification is to run on a node, and whether one that is there may stay.
#[must_use]
pub fn suits(spec: &Value, node: &Object) -> (bool, bool) {
    let name = &*node.meta.name;
    let chosen = spec["nodeName"].as_str().unwrap_or_default();
    if !(chosen.is_empty() || chosen == name) || !selects(spec, name, |key| node.meta.label(key)) {
        return (false, false);
    }
    let repels = |effects: &[&str]| {
        let matters = |taint: &Taint<'_>| effects.contains(&taint.effect) && !tolerates(spec, *taint);
        taints(&node.value).any(|taint| matters(&taint))
    };
    (!repels(&["NoSchedule", "NoExecute"]), !repels(&["NoExecute"]))
}

/// Whether a pod has the template of the DaemonSet.
#[must_use]
pub fn is_updated(set: &Object, pod: &Pod, hash: &str) -> bool {
    let generation = set.meta.annotation(GENERATION);
    let has_generation = generation.is_some() && pod.meta.label(GENERATION_LABEL) == generation;
    has_generation || pod.meta.label(HASH) == Some(hash)
}

/// What is to be done about the pods.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DaemonChange<'p> {
    /// The nodes that get a pod.
    pub create: Vec<&'p str>,
    /// The pods that go.
    pub delete: Vec<&'p Pod>,
    /// The pods that ended and are replaced, with their node.
    pub ended: Vec<(&'p Pod, &'p str)>,
}

/// Compares pods and nodes, whatever the templates of the pods.
#[must_use]
pub fn manage<'p>(
    set: &Object,
    nodes: &[&'p Object],
    pods: &ByNode<'p>,
    hash: &str,
    now: Timestamp,
) -> DaemonChange<'p> {
    let spec = pod_spec(set);
    let surges = super::rollout::limits(set, 0).0 > 0;
    let min_ready = set.count("/spec/minReadySeconds");
    let mut change = DaemonChange::default();
    for node in nodes {
        let (runs, stays) = suits(&spec, node);
        let name = &*node.meta.name;
        let Some(there) = pods.get(name) else {
            change.create.extend(runs.then_some(name));
            continue;
        };
        let present = there.iter().copied().filter(|pod| !pod.meta.is_deleting());
        if !stays {
            change.delete.extend(present);
            continue;
        }
        let (ended, running): (Vec<&Pod>, Vec<&Pod>) = present.partition(|pod| pod.is_finished());
        change.ended.extend(ended.into_iter().map(|pod| (pod, name)));
        if !surges {
            change.delete.extend(running.into_iter().skip(1));
            continue;
        }
        if running.is_empty() && runs {
            change.create.push(name);
        }
        if running.len() <= 1 {
            continue;
        }
        // One of each template, until the new one can take over.
        let (mut new, mut old) = (None, None);
        for pod in running {
            let kept = if pod.meta.label(HASH) == Some(hash) { &mut new } else { &mut old };
            if kept.is_none() {
                *kept = Some(pod);
            } else {
                change.delete.push(pod);
            }
        }
        if let (Some(new), Some(old)) = (new, old)
            && (!old.is_ready || new.is_available(min_ready, now))
        {
            change.delete.push(old);
        }
    }
    // Nothing else deletes a pod that waits for a node that is gone.
    let is_gone = |name: &str| !nodes.iter().any(|node| &*node.meta.name == name);
    let waiting = pods.iter().filter(|(name, _)| is_gone(name)).flat_map(|(_, pods)| pods);
    change.delete.extend(waiting.filter(|pod| pod.node.is_empty() && !pod.meta.is_deleting()));
    change
}

/// The pod of a node.
#[must_use]
pub fn pod(set: &Object, hash: &str, node: &str) -> Value {
    let reference = controller_reference("apps/v1", "DaemonSet", &set.meta);
    let mut pod = pod_of(set.at("/spec/template"), &set.meta, &reference);
    pod["metadata"]["labels"][HASH] = json!(hash);
    if let Some(generation) = set.meta.annotation(GENERATION) {
        pod["metadata"]["labels"][GENERATION_LABEL] = json!(generation);
    }
    let mut spec = pod_spec(set);
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms":
        [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    pod["spec"] = spec;
    pod
}

/// The status, and when it changes without an event.
#[must_use]
pub fn status(
    set: &Object,
    nodes: &[&Object],
    pods: &ByNode<'_>,
    hash: &str,
    now: Timestamp,
) -> (Value, Option<SignedDuration>) {
    let spec = pod_spec(set);
    let min_ready = set.count("/spec/minReadySeconds");
    let [mut desired, mut current, mut misplaced, mut ready, mut updated, mut available] = [0_i64; 6];
    let mut again = None;
    for node in nodes {
        let first = pods.get(&*node.meta.name).and_then(|pods| pods.first());
        if !suits(&spec, node).0 {
            misplaced += i64::from(first.is_some());
            continue;
        }
        desired += 1;
        let Some(pod) = first else { continue };
        current += 1;
        ready += i64::from(pod.is_ready);
        available += i64::from(pod.is_available(min_ready, now));
        updated += i64::from(is_updated(set, pod, hash));
        let next = pod.available_in(min_ready, now);
        again = again.map(Reverse).max(next.map(Reverse)).map(|Reverse(next)| next);
    }
    let mut status: Map<String, Value> = set.at("/status").as_object().cloned().unwrap_or_default();
    for (key, count) in [
        ("currentNumberScheduled", current),
        ("numberMisscheduled", misplaced),
        ("desiredNumberScheduled", desired),
        ("numberReady", ready),
        ("observedGeneration", set.meta.generation),
    ] {
        status.insert(key.to_owned(), count.into());
    }
    set_count(&mut status, "updatedNumberScheduled", updated);
    set_count(&mut status, "numberAvailable", available);
    set_count(&mut status, "numberUnavailable", desired - available);
    (Value::Object(status), again)
}

/// The event about a pod that ended.
#[must_use]
pub fn ended(pod: &Pod, node: &str) -> (bool, &'static str, String) {
    let name = format!("{}/{}", pod.meta.namespace, pod.meta.name);
    if pod.phase == Phase::Succeeded {
        let text = format!("Found succeeded daemon pod {name} on node {node}, will try to delete it");
        (false, "SucceededDaemonPod", text)
    } else {
        (
            true,
            "FailedDaemonPod",
            format!("Found failed daemon pod {name} on node {node}, will try to kill it"),
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{by_node, manage, pod, status};
    use crate::workloads::{mirror::Mirrored as _, object::Object, pod::Pod};

    pub(in crate::workloads::daemon_set) fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    pub(in crate::workloads::daemon_set) fn set(strategy: &Value, spec: &Value) -> Object {
        Object::of(json!({"metadata": {"name": "d", "namespace": "n", "uid": "u", "generation": 1}, "spec": {
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": strategy},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}}))
        .unwrap()
    }

    pub(in crate::workloads::daemon_set) fn node(name: &str, more: &Value) -> Object {
        let mut node = json!({"metadata": {"name": name, "labels": {"disk": "ssd"}}});
        node["spec"] = more.clone();
        Object::of(node).unwrap()
    }

    /// A pod `NAME@NODE` of a template, with a phase or `Ready`.
    pub(in crate::workloads::daemon_set) fn on(place: &str, hash: &str, phase: &str, more: &Value) -> Pod {
        let (name, node) = place.split_once('@').unwrap();
        let mut metadata = json!({"name": name, "uid": name, "namespace": "n", "labels": {"controller-revision-hash": hash},
            "creationTimestamp": "2026-01-01T00:00:00Z"});
        for (key, value) in more.as_object().into_iter().flatten() {
            metadata[key] = value.clone();
        }
        let is_ready = phase == "Ready";
        let status = json!({"phase": if is_ready { "Running" } else { phase }, "conditions": [{"type": "Ready",
            "status": if is_ready { "True" } else { "False" }, "lastTransitionTime": "2026-01-01T00:30:00Z"}]});
        Pod::read(&json!({"metadata": metadata, "spec": {"nodeName": node}, "status": status}).to_string())
            .unwrap()
    }

    #[test]
    fn every_node_that_suits_has_one_pod() {
        let taint = |effect: &str| json!({"taints": [{"key": "k", "effect": effect}]});
        let unschedulable =
            json!({"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]});
        let plain = json!({});
        let other = json!({"nodeSelector": {"disk": "hdd"}});
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:50:00Z"});
        for (case, spec, node_spec, pods, create, delete) in [
            ("none", &plain, plain.clone(), vec![], 1, ""),
            ("one", &plain, plain.clone(), vec![on("p@a", "h", "Running", &plain)], 0, ""),
            ("not selected", &other, plain.clone(), vec![], 0, ""),
            ("no longer selected", &other, plain.clone(), vec![on("p@a", "h", "Running", &plain)], 0, "p"),
            ("tainted", &plain, taint("NoSchedule"), vec![], 0, ""),
            (
                "one that is there stays",
                &plain,
                taint("NoSchedule"),
                vec![on("p@a", "h", "Running", &plain)],
                0,
                "",
            ),
            (
                "unless the taint evicts",
                &plain,
                taint("NoExecute"),
                vec![on("p@a", "h", "Running", &plain)],
                0,
                "p",
            ),
            ("unschedulable is tolerated", &plain, unschedulable, vec![], 1, ""),
            (
                "two",
                &plain,
                plain.clone(),
                vec![on("q@a", "h", "Running", &plain), on("p@a", "h", "Running", &plain)],
                0,
                "q",
            ),
            ("one on its way out", &plain, plain.clone(), vec![on("p@a", "h", "Running", &deleting)], 0, ""),
            (
                "a failed one is replaced",
                &plain,
                plain.clone(),
                vec![on("p@a", "h", "Failed", &plain)],
                0,
                "ended p",
            ),
        ] {
            let (set, node) = (set(&json!({}), spec), node("a", &node_spec));
            let pods: Vec<&Pod> = pods.iter().collect();
            let change = manage(&set, &[&node], &by_node(&pods), "h", now());
            let mut deleted: Vec<String> =
                change.delete.iter().map(|pod| pod.meta.name.to_string()).collect();
            deleted.extend(change.ended.iter().map(|(pod, _)| format!("ended {}", pod.meta.name)));
            assert_eq!((change.create.len(), deleted.join(",").as_str()), (create, delete), "{case}");
        }
    }

    #[test]
    fn a_pod_goes_to_its_node_and_waits_for_no_other() {
        let made =
            pod(&set(&json!({}), &json!({"tolerations": [{"key": "mine", "operator": "Exists"}]})), "h", "a");
        let read = Pod::read(&made.to_string()).unwrap();
        assert_eq!((&*read.wanted_node, read.meta.label("controller-revision-hash")), ("a", Some("h")));
        let tolerations = made["spec"]["tolerations"].as_array().unwrap();
        assert_eq!((tolerations.len(), &tolerations[0]["key"]), (7, &json!("mine")));
        // Its node is gone.
        let change = manage(&set(&json!({}), &json!({})), &[], &by_node(&[&read]), "h", now());
        assert_eq!(change.delete, [&read]);
    }

    #[test]
    fn the_status_counts_nodes() {
        let (a, b, c) = (
            node("a", &json!({})),
            node("b", &json!({})),
            node("c", &json!({"taints": [{"key": "k", "effect": "NoSchedule"}]})),
        );
        let pods = [on("p@a", "new", "Ready", &json!({})), on("q@c", "old", "Ready", &json!({}))];
        let pods: Vec<&Pod> = pods.iter().collect();
        let (status, _) = status(&set(&json!({}), &json!({})), &[&a, &b, &c], &by_node(&pods), "new", now());
        assert_eq!(
            status,
            json!({"currentNumberScheduled": 1, "desiredNumberScheduled": 2, "numberMisscheduled": 1, "numberReady": 1,
                "numberAvailable": 1, "numberUnavailable": 1, "updatedNumberScheduled": 1, "observedGeneration": 1})
        );
    }
}
