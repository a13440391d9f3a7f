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
    decisions_with(pods, &[], nodes)
}

fn decisions_with(pods: &[DynamicObject], budgets: &[DynamicObject], nodes: &[DynamicObject]) -> Vec<String> {
    let pods: Vec<&DynamicObject> = pods.iter().collect();
    let nodes: Vec<&DynamicObject> = nodes.iter().collect();
    let heartbeats = BTreeMap::from([("silent".to_owned(), Timestamp::UNIX_EPOCH)]);
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let budgets: Vec<&DynamicObject> = budgets.iter().collect();
    let observed = Observed { pods: &pods, budgets: &budgets, nodes: &nodes, heartbeats: &heartbeats, now };
    plan(&observed)
        .into_iter()
        .map(|(pod, decision)| match decision {
            SchedulingDecision::Bind(node) => format!("{pod} -> {node}"),
            SchedulingDecision::Unschedulable { why, nominated: None } => format!("{pod}: {why}"),
            SchedulingDecision::Unschedulable { why, nominated: Some(node) } => {
                format!("{pod} waits for {node}: {why}")
            }
            SchedulingDecision::Preempt(Preemption { node, victims, outranked, .. }) => {
                let names = |pods: Vec<Victim>| {
                    pods.into_iter().map(|pod| pod.name.replace("n/", "")).collect::<Vec<_>>().join(" ")
                };
                format!("{pod} preempts [{}] on {node}, before [{}]", names(victims), names(outranked))
            }
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

/// A pod with a priority and a request for processors; on a node if one is named.
fn ranked(name: &str, priority: i64, cpu: &str, node: &str) -> DynamicObject {
    let mut made = pod(
        name,
        json!({"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}),
    );
    made.metadata.labels = Some(BTreeMap::from([("app".to_owned(), name.to_owned())]));
    if !node.is_empty() {
        made.data["spec"]["nodeName"] = node.into();
        made.data["status"] = json!({"startTime": "2025-01-01T00:00:00Z"});
    }
    made
}

fn with(mut pod: DynamicObject, at: &str, key: &str, value: Value) -> DynamicObject {
    pod.data[at][key] = value;
    pod
}

/// A pod that ends because of a preemption.
fn ending(mut pod: DynamicObject, reason: &str) -> DynamicObject {
    pod.metadata.deletion_timestamp = serde_json::from_value(json!("2025-12-31T23:59:59Z")).unwrap();
    pod.data["status"]["conditions"] =
        json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
    pod
}

fn budget(app: &str, allowed: i64) -> DynamicObject {
    serde_json::from_value(json!({"metadata": {"namespace": "n", "name": app},
        "spec": {"selector": {"matchLabels": {"app": app}}}, "status": {"disruptionsAllowed": allowed}}))
    .unwrap()
}

fn large(name: &str) -> DynamicObject {
    let mut made = node(name, "True", json!({}));
    made.data["status"]["allocatable"]["pods"] = "100".into();
    made
}

#[test]
fn less_important_pods_make_way() {
    let none = "0/1 nodes are available: 1 Insufficient cpu. preemption:";
    for (case, pods, expected) in [
        (
            "as few as possible, the least important first",
            vec![ranked("high", 10, "400m", ""), ranked("a", 1, "400m", "n1"), ranked("b", 2, "400m", "n1")],
            "n/high preempts [a] on n1, before []".to_owned(),
        ),
        (
            "all that are needed",
            vec![ranked("high", 10, "1", ""), ranked("a", 1, "400m", "n1"), ranked("b", 2, "400m", "n1")],
            "n/high preempts [b a] on n1, before []".to_owned(),
        ),
        (
            "a small one does not help",
            vec![ranked("high", 10, "800m", ""), ranked("a", 1, "100m", "n1"), ranked("b", 2, "400m", "n1")],
            "n/high preempts [b] on n1, before []".to_owned(),
        ),
        (
            "the same priority is not lower",
            vec![ranked("high", 10, "1", ""), ranked("a", 10, "400m", "n1")],
            format!(
                "n/high: {none} 0/1 nodes are available: 1 No preemption victims found for incoming pod."
            ),
        ),
        (
            "not enough to gain",
            vec![ranked("high", 10, "1", ""), ranked("a", 1, "400m", "n1"), ranked("b", 10, "400m", "n1")],
            format!("n/high: {none} 0/1 nodes are available: 1 Insufficient cpu."),
        ),
        (
            "never",
            vec![
                with(ranked("high", 10, "1", ""), "spec", "preemptionPolicy", json!("Never")),
                ranked("a", 1, "400m", "n1"),
            ],
            format!("n/high: {none} not eligible due to preemptionPolicy=Never."),
        ),
        (
            "the node is promised to another one",
            vec![
                ranked("high", 10, "1", ""),
                ranked("a", 1, "1", "n1"),
                with(ranked("mid", 5, "1", ""), "status", "nominatedNodeName", json!("n1")),
            ],
            "n/high preempts [a] on n1, before [mid]".to_owned(),
        ),
        (
            "victims that are ending",
            vec![
                with(ranked("high", 10, "1", ""), "status", "nominatedNodeName", json!("n1")),
                ending(ranked("a", 1, "1", "n1"), "PreemptionByScheduler"),
            ],
            format!(
                "n/high waits for n1: {none} not eligible due to a terminating pod on the nominated node."
            ),
        ),
        (
            "a pod that ends for another reason",
            vec![
                with(ranked("high", 10, "1", ""), "status", "nominatedNodeName", json!("n1")),
                ending(ranked("a", 1, "1", "n1"), "EvictionByEvictionAPI"),
            ],
            "n/high preempts [] on n1, before []".to_owned(),
        ),
    ] {
        assert_eq!(decisions(&pods, &[large("n1")])[0], expected, "{case}");
    }
}

#[test]
fn a_promised_node_is_not_given_to_less_important_pods() {
    let pods = [
        with(ranked("high", 10, "600m", ""), "status", "nominatedNodeName", json!("n1")),
        ending(ranked("a", 1, "600m", "n1"), "PreemptionByScheduler"),
        ranked("small", 1, "400m", ""),
    ];
    let found = decisions(&pods, &[large("n1")]);
    assert!(found[0].starts_with("n/high waits for n1"), "{found:?}");
    assert!(found[1].starts_with("n/small: 0/1 nodes are available: 1 Insufficient cpu."), "{found:?}");
}

#[test]
fn the_node_with_the_least_harm_is_chosen() {
    let preemptor = || ranked("high", 10, "1", "");
    let late = |pod| with(pod, "status", "startTime", json!("2025-06-01T00:00:00Z"));
    for (case, pods, budgets, expected) in [
        (
            "no budget is violated",
            vec![preemptor(), ranked("a", 1, "1", "n1"), ranked("b", 2, "1", "n2")],
            vec![budget("a", 0)],
            "[b] on n2",
        ),
        (
            "violated where nothing else helps",
            vec![preemptor(), ranked("a", 1, "1", "n1"), ranked("b", 10, "1", "n2")],
            vec![budget("a", 0)],
            "[a] on n1",
        ),
        (
            "a budget with something left",
            vec![preemptor(), ranked("a", 1, "1", "n1"), ranked("b", 2, "1", "n2")],
            vec![budget("a", 1)],
            "[a] on n1",
        ),
        (
            "the lowest highest priority",
            vec![
                preemptor(),
                ranked("a", 3, "1", "n1"),
                ranked("b", 2, "500m", "n2"),
                ranked("c", 2, "500m", "n2"),
            ],
            vec![],
            "[b c] on n2",
        ),
        (
            "the fewest",
            vec![
                preemptor(),
                ranked("a", 2, "500m", "n1"),
                ranked("b", 2, "500m", "n1"),
                ranked("c", 2, "1", "n2"),
            ],
            vec![],
            "[c] on n2",
        ),
        (
            "the latest start",
            vec![preemptor(), ranked("a", 2, "1", "n1"), late(ranked("b", 2, "1", "n2"))],
            vec![],
            "[b] on n2",
        ),
        (
            "the first",
            vec![preemptor(), ranked("a", 2, "1", "n1"), ranked("b", 2, "1", "n2")],
            vec![],
            "[a] on n1",
        ),
    ] {
        let found = decisions_with(&pods, &budgets, &[large("n1"), large("n2")]);
        assert_eq!(found[0], format!("n/high preempts {expected}, before []"), "{case}");
    }
    // Of the pods of one node, those without a budget end first.
    let pods = [ranked("high", 10, "500m", ""), ranked("a", 1, "500m", "n1"), ranked("b", 2, "500m", "n1")];
    let found = decisions_with(&pods, &[budget("a", 0)], &[large("n1")]);
    assert_eq!(found[0], "n/high preempts [b] on n1, before []");
}
