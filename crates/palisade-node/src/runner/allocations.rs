//! Whether a pod that is bound to this node fits it: selector and affinity, taints, host ports, and resources.
//!
//! Implements: the kubelet's predicate admission (`pkg/kubelet/lifecycle/predicate.go`) with its reasons and words. The
//! scheduler checks much the same before it binds a pod; a pod with `spec.nodeName` in its manifest bypasses it, and two
//! schedulers may allocate the same resources twice. A pod without a node (`palisade run`) is not checked.
//! Running pods keep their resources whatever the node has become. There is no preemption for critical pods.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use palisade_base::scheduling::{
    Amounts, HostPort, Taint, allocatable, host_ports, requests, selects, taints, tolerates,
};
use serde_json::Value;

use super::plan::Reason;
use crate::pod::RunPod;

/// What the pods of the node have, by their identities.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allocations {
    by_uid: Arc<Mutex<BTreeMap<String, Allocation>>>,
}

/// What a pod has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Allocation {
    requests: Amounts,
    ports: Vec<HostPort>,
}

/// A pod's allocation, released when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    allocations: Allocations,
    uid: String,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.allocations.by_uid.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.uid);
    }
}

/// Why a pod does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) reason: String,
    pub(super) message: String,
}

impl Allocations {
    /// A reservation for a pod that runs already, or that was not scheduled.
    pub(super) fn keep(&self, pod: &RunPod, minor: u16) -> Reservation {
        let mut by_uid = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        by_uid.insert(pod.key.uid.clone(), Allocation::of(pod, minor));
        Reservation { allocations: self.clone(), uid: pod.key.uid.clone() }
    }

    /// A reservation for a new pod, on the node as the API has it. Check and reservation are one step, so that no two
    /// pods get the same resources.
    pub(super) fn admit(&self, pod: &RunPod, node: &Value, minor: u16) -> Result<Reservation, Unfit> {
        let wanted = Allocation::of(pod, minor);
        let mut by_uid = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        let others: Vec<&Allocation> =
            by_uid.iter().filter(|(uid, _)| **uid != pod.key.uid).map(|(_, allocation)| allocation).collect();
        if let Some(unfit) = unfit(spec(pod), &wanted, node, &others) {
            return Err(unfit);
        }
        by_uid.insert(pod.key.uid.clone(), wanted);
        Ok(Reservation { allocations: self.clone(), uid: pod.key.uid.clone() })
    }
}

impl Allocations {
    /// Changes the reservation of a running pod; the error is the reason of the condition `PodResizePending`.
    pub(super) fn resize(&self, pod: &RunPod, node: &Value, minor: u16) -> Result<(), Reason> {
        let wanted = Allocation::of(pod, minor);
        let mut by_uid = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        let others: Vec<&Allocation> =
            by_uid.iter().filter(|(uid, _)| **uid != pod.key.uid).map(|(_, allocation)| allocation).collect();
        let allocatable = allocatable(node);
        let refused =
            |reason: &str, unfit: Unfit| Reason { reason: reason.to_owned(), message: unfit.message };
        // What the empty node does not have never fits.
        if let Some(unfit) = shortage(&wanted, &allocatable, &[]) {
            return Err(refused("Infeasible", unfit));
        }
        if let Some(unfit) = shortage(&wanted, &allocatable, &others) {
            return Err(refused("Deferred", unfit));
        }
        by_uid.insert(pod.key.uid.clone(), wanted);
        Ok(())
    }
}

fn spec(pod: &RunPod) -> &Value {
    &pod.object["spec"]
}

impl Allocation {
    fn of(pod: &RunPod, minor: u16) -> Self {
        // Releases before v1.32 do not count the ports of sidecars.
        Self { requests: requests(spec(pod)), ports: host_ports(spec(pod), minor >= 32) }
    }
}

/// The first reason, in the kubelet's order.
fn unfit(spec: &Value, wanted: &Allocation, node: &Value, others: &[&Allocation]) -> Option<Unfit> {
    let predicate = |name: &str, why: &str| {
        Some(Unfit { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") })
    };
    if let Some(unfit) = shortage(wanted, &allocatable(node), others) {
        return Some(unfit);
    }
    let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let label = |key: &str| node.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str());
    if !selects(spec, name, label) {
        return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
    let mut taken = others.iter().flat_map(|allocation| &allocation.ports);
    if taken.any(|taken| wanted.ports.iter().any(|port| taken.conflicts_with(port))) {
        return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    // The other effects are the scheduler's.
    let repels = |taint: Taint<'_>| taint.effect == "NoExecute" && !tolerates(spec, taint);
    if taints(node).any(repels) {
        return predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    None
}

fn shortage(wanted: &Allocation, allocatable: &Amounts, others: &[&Allocation]) -> Option<Unfit> {
    let lacks = |name: &str, requested: i64, used: i64, capacity: i64| Unfit {
        reason: format!("OutOf{name}"),
        message: format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        ),
    };
    let pods = i64::try_from(others.len()).unwrap_or(i64::MAX);
    if let Some(&capacity) = allocatable.get("pods")
        && pods >= capacity
    {
        return Some(lacks("pods", 1, pods, capacity));
    }
    // CPU, memory and storage first, then the others by name.
    let first = ["cpu", "memory", "ephemeral-storage"];
    let rest = wanted.requests.keys().map(String::as_str).filter(|name| !first.contains(name));
    for name in first.into_iter().chain(rest) {
        let requested = wanted.requests.get(name).copied().unwrap_or_default();
        let capacity = match allocatable.get(name) {
            Some(capacity) => *capacity,
            // An extended resource that the node does not report is counted by the cluster.
            None if name.contains('/') => continue,
            None => 0,
        };
        let used = others.iter().filter_map(|allocation| allocation.requests.get(name));
        let used = used.fold(0_i64, |sum, more| sum.saturating_add(*more));
        if requested > 0 && requested > capacity.saturating_sub(used) {
            return Some(lacks(name, requested, used, capacity));
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "json! values are made to be given away")]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, spec: Value) -> RunPod {
        let mut object = json!({"metadata": {"name": name}, "spec": {"nodeName": "n", "containers": [
            {"name": "c", "image": "i"}]}});
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        RunPod::from_object(object).unwrap()
    }

    fn requesting(resources: Value) -> Value {
        json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": resources}}]})
    }

    fn node() -> Value {
        json!({"metadata": {"name": "n", "labels": {"disk": "ssd", "gen": "5"}},
            "spec": {"taints": [{"key": "gone", "effect": "NoExecute"}, {"key": "keep-off", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"}}})
    }

    fn untainted() -> Value {
        let mut node = node();
        node["spec"] = json!({});
        node
    }

    fn reason(unfit: Result<Reservation, Unfit>) -> Option<(String, String)> {
        unfit.err().map(|unfit| (unfit.reason, unfit.message))
    }

    #[test]
    fn names_why_a_pod_does_not_fit() {
        let affinity = |terms: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}}})
        };
        let term = |key: &str, operator: &str, values: Value| {
            affinity(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
        };
        let affinity_fails = Some((
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ));
        let resource = |reason, message| Some((reason, message));
        for (case, spec, expected) in [
            ("no requirement", json!({}), None),
            ("selected", json!({"nodeSelector": {"disk": "ssd"}}), None),
            ("another value", json!({"nodeSelector": {"disk": "hdd"}}), affinity_fails),
            ("no such label", json!({"nodeSelector": {"zone": "a"}}), affinity_fails),
            ("affinity in", term("disk", "In", json!(["hdd", "ssd"])), None),
            ("affinity not in", term("disk", "NotIn", json!(["ssd"])), affinity_fails),
            ("affinity exists", term("zone", "Exists", json!([])), affinity_fails),
            ("affinity greater", term("gen", "Gt", json!(["4"])), None),
            ("affinity less", term("gen", "Lt", json!(["5"])), affinity_fails),
            ("no term", affinity(json!([])), affinity_fails),
            ("empty term", affinity(json!([{}])), affinity_fails),
            (
                "by name",
                affinity(
                    json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]),
                ),
                None,
            ),
            (
                "processors",
                requesting(json!({"cpu": "2100m"})),
                resource(
                    "OutOfcpu",
                    "Node didn't have enough resource: cpu, requested: 2100, used: 0, capacity: 2000",
                ),
            ),
            (
                "memory before affinity",
                json!({"nodeSelector": {"zone": "a"}, "containers": requesting(json!({"memory": "2Gi"}))["containers"]}),
                resource(
                    "OutOfmemory",
                    "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
                ),
            ),
            (
                "resource that the node does not have",
                requesting(json!({"hugepages-2Mi": "2Mi"})),
                resource(
                    "OutOfhugepages-2Mi",
                    "Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
                ),
            ),
            (
                "extended resource that the node does not report",
                requesting(json!({"example.com/thing": "1"})),
                None,
            ),
            (
                "a limit is a request",
                json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "3"}}}]}),
                resource(
                    "OutOfcpu",
                    "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000",
                ),
            ),
        ] {
            let found = reason(Allocations::default().admit(&pod("p", spec), &untainted(), 31));
            let found = found.as_ref().map(|(reason, message)| (reason.as_str(), message.as_str()));
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn only_no_execute_taints_count() {
        let refused = Some((
            "TaintToleration".to_owned(),
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate".to_owned(),
        ));
        for (tolerations, expected) in [
            (json!([]), refused.clone()),
            (json!([{"operator": "Exists"}]), None),
            (json!([{"key": "gone", "operator": "Exists", "effect": "NoExecute"}]), None),
            (json!([{"key": "gone", "operator": "Equal", "value": "x"}]), refused.clone()),
            (json!([{"key": "gone", "operator": "Exists", "effect": "NoSchedule"}]), refused.clone()),
        ] {
            let found =
                Allocations::default().admit(&pod("p", json!({"tolerations": tolerations})), &node(), 31);
            assert_eq!(reason(found), expected, "{tolerations}");
        }
    }

    #[test]
    fn resources_are_allocated_once_until_they_are_released() {
        let allocations = Allocations::default();
        let node = untainted();
        let first = allocations.admit(&pod("first", requesting(json!({"cpu": "1500m"}))), &node, 31).unwrap();
        let second = pod("second", requesting(json!({"cpu": "600m"})));
        assert_eq!(
            reason(allocations.admit(&second, &node, 31)).unwrap().1,
            "Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000"
        );
        // A pod that runs already keeps running, and counts.
        let adopted = allocations.keep(&second, 31);
        drop(first);
        let third = pod("third", requesting(json!({"cpu": "1500m"})));
        assert!(reason(allocations.admit(&third, &node, 31)).unwrap().1.contains("used: 600"));
        drop(adopted);
        let reservations: Vec<Reservation> = ["third", "b", "c"]
            .iter()
            .map(|name| allocations.admit(&pod(name, json!({})), &node, 31).unwrap())
            .collect();
        assert_eq!(
            reason(allocations.admit(&pod("d", json!({})), &node, 31)),
            Some((
                "OutOfpods".to_owned(),
                "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3".to_owned()
            ))
        );
        drop(reservations);
        assert!(allocations.by_uid.lock().unwrap().is_empty());
    }

    #[test]
    fn a_resize_waits_for_resources_of_others_and_is_refused_beyond_the_node() {
        let allocations = Allocations::default();
        let node = untainted();
        let first = allocations.admit(&pod("first", requesting(json!({"cpu": "500m"}))), &node, 33).unwrap();
        let other = allocations.admit(&pod("other", requesting(json!({"cpu": "1"}))), &node, 33).unwrap();
        let resize = |cpu: &str| {
            let found = allocations.resize(&pod("first", requesting(json!({"cpu": cpu}))), &node, 33);
            found.err().map(|refused| refused.reason)
        };
        assert_eq!(resize("1"), None);
        assert_eq!(resize("1500m").as_deref(), Some("Deferred"));
        assert_eq!(resize("3").as_deref(), Some("Infeasible"));
        drop(other);
        assert_eq!(resize("1500m"), None);
        // It counts for others from now on.
        assert!(allocations.admit(&pod("late", requesting(json!({"cpu": "600m"}))), &node, 33).is_err());
        drop(first);
    }

    #[test]
    fn host_ports_are_allocated_once() {
        let with = |name: &str, host_network: bool, port: Value| {
            pod(
                name,
                json!({"hostNetwork": host_network, "containers": [{"name": "c", "image": "i", "ports": [port]}]}),
            )
        };
        let first = with("first", false, json!({"containerPort": 80, "hostPort": 8080}));
        for (case, host_network, port, clashes) in [
            ("another port", false, json!({"containerPort": 80, "hostPort": 8081}), false),
            ("no host port", false, json!({"containerPort": 8080}), false),
            ("the same", false, json!({"containerPort": 80, "hostPort": 8080}), true),
            (
                "another protocol",
                false,
                json!({"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}),
                false,
            ),
            (
                "one address of all",
                false,
                json!({"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"}),
                true,
            ),
            ("in the node's network", true, json!({"containerPort": 8080}), true),
        ] {
            let allocations = Allocations::default();
            let _reservation = allocations.admit(&first, &untainted(), 31).unwrap();
            let found = reason(allocations.admit(&with("second", host_network, port), &untainted(), 31));
            let expected = clashes.then(|| {
                let why = "node(s) didn't have free ports for the requested pod ports";
                ("NodePorts".to_owned(), format!("Predicate NodePorts failed: {why}"))
            });
            assert_eq!(found, expected, "{case}");
        }
    }
}
