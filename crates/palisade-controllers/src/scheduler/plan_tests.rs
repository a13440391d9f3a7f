//! Pods and nodes as JSON, decisions as text.

use serde_json::{Value, json};

use super::*;

fn node(name: &str, ready: &str, more: Value) -> DynamicObject {
    let mut node = json!({"metadata": {"name": name, "labels": {"disk": "ssd", "cores": "8"}},
        "status": {"allocatable": {"pods": "2", "cpu": "1", "memory": "1Gi"},
            "conditions": [{"type": "Ready", "status": ready}]}});
    if let (Value::Object(node), Value::Object(more)) = (&mut node, more) {
        node.extend(more);
    }
    serde_json::from_value(node).unwrap()
}

fn pod(name: &str, spec: Value) -> DynamicObject {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "c"}]);
    }
    serde_json::from_value(json!({"metadata": {"namespace": "n", "name": name}, "spec": spec})).unwrap()
}

fn decisions(pods: &[DynamicObject], nodes: &[DynamicObject]) -> Vec<String> {
    let pods: Vec<&DynamicObject> = pods.iter().collect();
    let nodes: Vec<&DynamicObject> = nodes.iter().collect();
    let heartbeats = BTreeMap::from([("silent".to_owned(), Timestamp::UNIX_EPOCH)]);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let observed = Observed { pods: &pods, nodes: &nodes, heartbeats: &heartbeats, now };
    plan(&observed)
        .into_iter()
        .map(|(pod, decision)| match decision {
            SchedulingDecision::Bind(node) => format!("{pod} -> {node}"),
            SchedulingDecision::Unschedulable(why) => format!("{pod}: {why}"),
        })
        .collect()
}

#[test]
fn reasons_are_worded_as_kube_scheduler_words_them() {
    const NOT_HELPFUL: &str =
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    const NO_VICTIMS: &str =
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    let affinity = |operator: &str, values: Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "cores", "operator": operator, "values": values}]}]}}}})
    };
    let tainted = json!({"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}});
    let mismatch = "1 node(s) didn't match Pod's node affinity/selector";
    let requesting = |what: &str, much: &str| json!({"containers": [{"name": "c", "resources": {"requests": {what: much}}}]});
    for (case, spec, on, expected) in [
        ("plain", json!({}), ("a", "True", json!({})), None),
        ("selector", json!({"nodeSelector": {"disk": "ssd"}}), ("a", "True", json!({})), None),
        (
            "other selector",
            json!({"nodeSelector": {"disk": "tape"}}),
            ("a", "True", json!({})),
            Some((mismatch, NOT_HELPFUL)),
        ),
        ("affinity", affinity("Gt", json!(["4"])), ("a", "True", json!({})), None),
        (
            "other affinity",
            affinity("NotIn", json!(["8"])),
            ("a", "True", json!({})),
            Some((mismatch, NOT_HELPFUL)),
        ),
        (
            "not ready",
            json!({}),
            ("a", "False", json!({})),
            Some(("1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }", NOT_HELPFUL)),
        ),
        (
            "silent",
            json!({}),
            ("silent", "True", json!({})),
            Some(("1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }", NOT_HELPFUL)),
        ),
        (
            "cordoned",
            json!({}),
            ("a", "True", json!({"spec": {"unschedulable": true}})),
            Some(("1 node(s) were unschedulable", NOT_HELPFUL)),
        ),
        (
            "tainted",
            json!({}),
            ("a", "True", tainted.clone()),
            Some(("1 node(s) had untolerated taint {a: b}", NOT_HELPFUL)),
        ),
        (
            "tolerated",
            json!({"tolerations": [{"key": "a", "operator": "Exists"}]}),
            ("a", "True", tainted.clone()),
            None,
        ),
        (
            "tolerated by value",
            json!({"tolerations": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}),
            ("a", "True", tainted.clone()),
            None,
        ),
        (
            "other effect",
            json!({"tolerations": [{"key": "a", "value": "b", "effect": "NoExecute"}]}),
            ("a", "True", tainted),
            Some(("1 node(s) had untolerated taint {a: b}", NOT_HELPFUL)),
        ),
        (
            "processors",
            requesting("cpu", "1001m"),
            ("a", "True", json!({})),
            Some(("1 Insufficient cpu", NO_VICTIMS)),
        ),
        ("fits exactly", requesting("memory", "1024Mi"), ("a", "True", json!({})), None),
        (
            "a resource that no node has",
            requesting("example.com/gpu", "1"),
            ("a", "True", json!({})),
            Some(("1 Insufficient example.com/gpu", NO_VICTIMS)),
        ),
    ] {
        let (name, ready, more) = on;
        let found = decisions(&[pod("p", spec)], &[node(name, ready, more)]);
        let expected = match expected {
            None => format!("n/p -> {name}"),
            Some((why, preemption)) => format!("n/p: 0/1 nodes are available: {why}. {preemption}"),
        };
        assert_eq!(found, [expected], "{case}");
    }
    assert_eq!(decisions(&[pod("p", json!({}))], &[]), ["n/p: no nodes available to schedule pods"]);
}

#[test]
fn reasons_are_counted_over_nodes() {
    let nodes = [
        node("a", "False", json!({})),
        node("b", "False", json!({})),
        node("c", "True", json!({"spec": {"unschedulable": true}})),
    ];
    assert_eq!(
        decisions(&[pod("p", json!({}))], &nodes),
        ["n/p: 0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) had untolerated taint \
          {node.kubernetes.io/not-ready: }. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."]
    );
}

#[test]
fn allocations_are_counted_and_pods_are_spread() {
    let nodes = [node("a", "True", json!({})), node("b", "True", json!({}))];
    let running = pod("old", json!({"nodeName": "a"}));
    let pods: Vec<DynamicObject> =
        std::iter::once(running).chain((0..4).map(|number| pod(&format!("p{number}"), json!({})))).collect();
    let full = "n/p3: 0/2 nodes are available: 2 Too many pods. preemption: 0/2 nodes are available: \
                2 No preemption victims found for incoming pod.";
    assert_eq!(decisions(&pods, &nodes), ["n/p0 -> b", "n/p1 -> a", "n/p2 -> b", full]);
}

#[test]
fn host_ports_are_taken_once() {
    let port = |address: &str| json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80, "hostIP": address}]}]});
    let nodes = [node("a", "True", json!({}))];
    let found = decisions(&[pod("p0", port("127.0.0.1")), pod("p1", port(""))], &nodes);
    assert_eq!(found[0], "n/p0 -> a");
    assert!(found[1].contains("1 node(s) didn't have free ports for the requested pod ports"), "{found:?}");
    assert_eq!(
        decisions(&[pod("p0", port("127.0.0.1")), pod("p1", port("127.0.0.2"))], &nodes)[1],
        "n/p1 -> a"
    );
}

#[test]
fn skips_pods_of_other_schedulers_and_pods_that_are_not_pending() {
    let nodes = [node("a", "True", json!({}))];
    for (case, spec) in [
        ("assigned", json!({"nodeName": "elsewhere"})),
        ("gated", json!({"schedulingGates": [{"name": "g"}]})),
        ("another scheduler's", json!({"schedulerName": "other"})),
    ] {
        assert_eq!(decisions(&[pod("p", spec)], &nodes), [""; 0], "{case}");
    }
    let mut done = pod("p", json!({}));
    done.data["status"] = json!({"phase": "Failed"});
    assert_eq!(decisions(&[done], &nodes), [""; 0], "done");
}
