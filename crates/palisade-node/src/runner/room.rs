//! Whether a pod that was bound to this node belongs here: selector and affinity, taints, host ports, and room for it.
//!
//! Implements: the kubelet's predicate admission (`pkg/kubelet/lifecycle/predicate.go`) with its reasons and words. The
//! scheduler asks much the same before it binds a pod; whoever writes `spec.nodeName` himself passes it by, and two
//! schedulers may give the same room away twice. A pod that nobody bound (`palisade run`) was never placed, so nobody asks.
//! Pods that are already running keep their room whatever the node has become. No pod makes room for another here: there is
//! no preemption for critical pods.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::resources::milli;
use crate::pod::{Container, RunPod};

/// What the node has given away, by the pods' identities.
#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    taken: Arc<Mutex<BTreeMap<String, Share>>>,
}

/// What a pod needs of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Share {
    /// Thousandths of processors, bytes, whole things.
    requests: BTreeMap<String, i64>,
    /// Address, protocol, number.
    ports: Vec<(String, String, i32)>,
}

/// A pod's place on the node, given back when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    room: Room,
    uid: String,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.uid);
    }
}

/// Why a pod does not belong here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) reason: String,
    pub(super) message: String,
}

impl Room {
    /// A place for a pod that is here already, or that nobody placed.
    pub(super) fn keep(&self, pod: &RunPod, minor: u16) -> Seat {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.insert(pod.key.uid.clone(), Share::of(pod, minor));
        Seat { room: self.clone(), uid: pod.key.uid.clone() }
    }

    /// A place for a pod that is new, on the node as the API has it. Asking and taking are one step, so that no two pods get
    /// the same room.
    pub(super) fn admit(&self, pod: &RunPod, node: &Value, minor: u16) -> Result<Seat, Unfit> {
        let share = Share::of(pod, minor);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let others: Vec<&Share> =
            taken.iter().filter(|(uid, _)| **uid != pod.key.uid).map(|(_, share)| share).collect();
        if let Some(unfit) = unfit(pod, &share, node, &others) {
            return Err(unfit);
        }
        taken.insert(pod.key.uid.clone(), share);
        Ok(Seat { room: self.clone(), uid: pod.key.uid.clone() })
    }
}

/// The first reason, in the kubelet's order.
fn unfit(pod: &RunPod, share: &Share, node: &Value, others: &[&Share]) -> Option<Unfit> {
    let predicate = |name: &str, why: &str| {
        Some(Unfit { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") })
    };
    if let Some(unfit) = shortage(share, node, others) {
        return Some(unfit);
    }
    if !is_selected(pod, node) {
        return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
    let mut taken = others.iter().flat_map(|share| &share.ports);
    if taken.any(|taken| share.ports.iter().any(|wanted| clash(taken, wanted))) {
        return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    let tolerations: Vec<Toleration> = read(pod.object.pointer("/spec/tolerations")).unwrap_or_default();
    let taints: Vec<Taint> = read(node.pointer("/spec/taints")).unwrap_or_default();
    // The other effects are the scheduler's to heed.
    let repels = |taint: &Taint| {
        taint.effect == "NoExecute" && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
    };
    if taints.iter().any(repels) {
        return predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    None
}

fn read<T: DeserializeOwned>(value: Option<&Value>) -> Option<T> {
    value.and_then(|value| T::deserialize(value).ok())
}

fn shortage(share: &Share, node: &Value, others: &[&Share]) -> Option<Unfit> {
    let allocatable = |name: &str| {
        let found = node.pointer("/status/allocatable").and_then(|list| list.get(name));
        found.map(|quantity| amount(name, quantity))
    };
    let lacks = |name: &str, requested: i64, used: i64, capacity: i64| Unfit {
        reason: format!("OutOf{name}"),
        message: format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        ),
    };
    let pods = i64::try_from(others.len()).unwrap_or(i64::MAX);
    if let Some(capacity) = allocatable("pods")
        && pods >= capacity
    {
        return Some(lacks("pods", 1, pods, capacity));
    }
    // Processors, memory and storage first; whatever else there is, after them.
    let first = ["cpu", "memory", "ephemeral-storage"];
    let rest = share.requests.keys().map(String::as_str).filter(|name| !first.contains(name));
    for name in first.into_iter().chain(rest) {
        let requested = share.requests.get(name).copied().unwrap_or_default();
        let capacity = match allocatable(name) {
            Some(capacity) => capacity,
            // What only the cluster knows is not the node's to count.
            None if name.contains('/') => continue,
            None => 0,
        };
        let used = others.iter().filter_map(|share| share.requests.get(name));
        let used = used.fold(0_i64, |sum, more| sum.saturating_add(*more));
        if requested > 0 && requested > capacity.saturating_sub(used) {
            return Some(lacks(name, requested, used, capacity));
        }
    }
    None
}

fn amount(name: &str, quantity: &Value) -> i64 {
    let milli = milli(quantity).unwrap_or_default();
    // Whatever is not a processor comes in whole pieces, rounded up.
    if name == "cpu" { milli } else { milli.saturating_add(999) / 1000 }
}

impl Share {
    fn of(pod: &RunPod, minor: u16) -> Self {
        Self { requests: requests(pod), ports: ports(pod, minor) }
    }
}

/// What a pod asks for: its containers and sidecars together, or its largest init container beside the sidecars that were
/// started before it, if that is more; and what the sandbox itself costs.
fn requests(pod: &RunPod) -> BTreeMap<String, i64> {
    type Amounts = BTreeMap<String, i64>;
    fn add(sum: &mut Amounts, more: &Amounts) {
        for (name, amount) in more {
            let total = sum.entry(name.clone()).or_default();
            *total = total.saturating_add(*amount);
        }
    }
    fn at_least(sum: &mut Amounts, least: &Amounts) {
        for (name, amount) in least {
            let total = sum.entry(name.clone()).or_default();
            *total = (*total).max(*amount);
        }
    }
    let of = |container: &Container| -> Amounts {
        // Who names a limit and no request asks for the limit, as the API server has it.
        let mut named = container.resources.limits.clone();
        named.extend(container.resources.requests.clone());
        named.iter().map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect()
    };
    let mut sum = Amounts::new();
    pod.spec.containers.iter().for_each(|container| add(&mut sum, &of(container)));
    let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
    for container in &pod.spec.init_containers {
        let mut beside = sidecars.clone();
        add(&mut beside, &of(container));
        at_least(&mut largest, &beside);
        if container.is_sidecar() {
            sidecars = beside;
        }
    }
    add(&mut sum, &sidecars);
    at_least(&mut sum, &largest);
    let overhead = pod.object.pointer("/spec/overhead").and_then(Value::as_object).into_iter().flatten();
    add(&mut sum, &overhead.map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect());
    sum
}

fn ports(pod: &RunPod, minor: u16) -> Vec<(String, String, i32)> {
    let host_network = super::config::is_host_network(pod);
    // Releases before v1.32 forgot the sidecars.
    let sidecars = pod.spec.init_containers.iter().filter(|container| minor >= 32 && container.is_sidecar());
    let ports = pod.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
    ports
        .filter_map(|port| {
            // In the node's network every port is one of the node's.
            let number =
                if port.host_port == 0 && host_network { port.container_port } else { port.host_port };
            let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
            (number > 0).then(|| (port.host_ip.clone(), protocol.to_owned(), number))
        })
        .collect()
}

fn clash(one: &(String, String, i32), other: &(String, String, i32)) -> bool {
    let any = |address: &str| matches!(address, "" | "0.0.0.0");
    one.1 == other.1 && one.2 == other.2 && (one.0 == other.0 || any(&one.0) || any(&other.0))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let (effect, key) =
        (toleration.effect.as_deref().unwrap_or_default(), toleration.key.as_deref().unwrap_or_default());
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => {
            !key.is_empty()
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

/// `nodeSelector` and what node affinity requires.
fn is_selected(pod: &RunPod, node: &Value) -> bool {
    let labels: BTreeMap<String, String> = read(node.pointer("/metadata/labels")).unwrap_or_default();
    let selector: BTreeMap<String, String> =
        read(pod.object.pointer("/spec/nodeSelector")).unwrap_or_default();
    if selector.iter().any(|(key, value)| labels.get(key) != Some(value)) {
        return false;
    }
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let Some(required) = read::<Option<NodeSelector>>(pod.object.pointer(required)).flatten() else {
        return true;
    };
    let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let fields = BTreeMap::from([("metadata.name".to_owned(), name.to_owned())]);
    let matches = |term: &NodeSelectorTerm| {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let of_fields = term.match_fields.as_deref().unwrap_or_default();
        // A term that asks for nothing matches nothing.
        !(expressions.is_empty() && of_fields.is_empty())
            && expressions.iter().all(|requirement| holds(requirement, &labels))
            && of_fields.iter().all(|requirement| holds(requirement, &fields))
    };
    required.node_selector_terms.iter().any(matches)
}

fn holds(requirement: &NodeSelectorRequirement, values: &BTreeMap<String, String>) -> bool {
    let found = values.get(&requirement.key);
    let wanted = requirement.values.as_deref().unwrap_or_default();
    let numbers = || {
        let number = |text: Option<&String>| text?.parse::<i64>().ok();
        number(found).zip(number(wanted.first()))
    };
    match requirement.operator.as_str() {
        "In" => found.is_some_and(|found| wanted.contains(found)),
        "NotIn" => found.is_none_or(|found| !wanted.contains(found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => numbers().is_some_and(|(found, wanted)| found > wanted),
        "Lt" => numbers().is_some_and(|(found, wanted)| found < wanted),
        _ => false,
    }
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

    fn asking(resources: Value) -> Value {
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

    fn said(unfit: Result<Seat, Unfit>) -> Option<(String, String)> {
        unfit.err().map(|unfit| (unfit.reason, unfit.message))
    }

    #[test]
    fn a_pod_is_told_why_the_node_does_not_take_it() {
        let affinity = |terms: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}}})
        };
        let asks = |key: &str, operator: &str, values: Value| {
            affinity(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
        };
        let affinity_fails = Some((
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ));
        let resource = |reason, message| Some((reason, message));
        for (case, spec, expected) in [
            ("nothing asked", json!({}), None),
            ("selected", json!({"nodeSelector": {"disk": "ssd"}}), None),
            ("another value", json!({"nodeSelector": {"disk": "hdd"}}), affinity_fails),
            ("no such label", json!({"nodeSelector": {"zone": "a"}}), affinity_fails),
            ("affinity in", asks("disk", "In", json!(["hdd", "ssd"])), None),
            ("affinity not in", asks("disk", "NotIn", json!(["ssd"])), affinity_fails),
            ("affinity exists", asks("zone", "Exists", json!([])), affinity_fails),
            ("affinity greater", asks("gen", "Gt", json!(["4"])), None),
            ("affinity less", asks("gen", "Lt", json!(["5"])), affinity_fails),
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
                asking(json!({"cpu": "2100m"})),
                resource(
                    "OutOfcpu",
                    "Node didn't have enough resource: cpu, requested: 2100, used: 0, capacity: 2000",
                ),
            ),
            (
                "memory before affinity",
                json!({"nodeSelector": {"zone": "a"}, "containers": asking(json!({"memory": "2Gi"}))["containers"]}),
                resource(
                    "OutOfmemory",
                    "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
                ),
            ),
            (
                "what the node does not have",
                asking(json!({"hugepages-2Mi": "2Mi"})),
                resource(
                    "OutOfhugepages-2Mi",
                    "Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0",
                ),
            ),
            ("what only the cluster knows", asking(json!({"example.com/thing": "1"})), None),
            (
                "a limit is a request",
                json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "3"}}}]}),
                resource(
                    "OutOfcpu",
                    "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000",
                ),
            ),
        ] {
            let found = said(Room::default().admit(&pod("p", spec), &untainted(), 31));
            let found = found.as_ref().map(|(reason, message)| (reason.as_str(), message.as_str()));
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn only_taints_that_end_pods_count() {
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
            let found = Room::default().admit(&pod("p", json!({"tolerations": tolerations})), &node(), 31);
            assert_eq!(said(found), expected, "{tolerations}");
        }
    }

    #[test]
    fn what_one_pod_has_another_cannot_get_until_it_is_given_back() {
        let room = Room::default();
        let node = untainted();
        let first = room.admit(&pod("first", asking(json!({"cpu": "1500m"}))), &node, 31).unwrap();
        let second = pod("second", asking(json!({"cpu": "600m"})));
        assert_eq!(
            said(room.admit(&second, &node, 31)).unwrap().1,
            "Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000"
        );
        // Whoever runs already keeps running, and counts.
        let adopted = room.keep(&second, 31);
        drop(first);
        let third = pod("third", asking(json!({"cpu": "1500m"})));
        assert!(said(room.admit(&third, &node, 31)).unwrap().1.contains("used: 600"));
        drop(adopted);
        let seats: Vec<Seat> = ["third", "b", "c"]
            .iter()
            .map(|name| room.admit(&pod(name, json!({})), &node, 31).unwrap())
            .collect();
        assert_eq!(
            said(room.admit(&pod("d", json!({})), &node, 31)),
            Some((
                "OutOfpods".to_owned(),
                "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3".to_owned()
            ))
        );
        drop(seats);
        assert!(room.taken.lock().unwrap().is_empty());
    }

    #[test]
    fn host_ports_are_given_once() {
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
            let room = Room::default();
            let _seat = room.admit(&first, &untainted(), 31).unwrap();
            let found = said(room.admit(&with("second", host_network, port), &untainted(), 31));
            let expected = clashes.then(|| {
                let why = "node(s) didn't have free ports for the requested pod ports";
                ("NodePorts".to_owned(), format!("Predicate NodePorts failed: {why}"))
            });
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn init_containers_ask_for_the_most_of_one_beside_the_sidecars() {
        let one = |name: &str, cpu: &str, sidecar: bool| {
            let mut object = json!({"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}});
            if sidecar {
                object["restartPolicy"] = json!("Always");
            }
            object
        };
        for (case, init, expected) in [
            ("none", json!([]), 1000),
            ("small", json!([one("a", "500m", false)]), 1000),
            ("large", json!([one("a", "1500m", false), one("b", "1200m", false)]), 1500),
            ("sidecar", json!([one("s", "300m", true)]), 1300),
            (
                "large beside an earlier sidecar",
                json!([one("s", "300m", true), one("a", "1500m", false)]),
                1800,
            ),
            ("large before the sidecar", json!([one("a", "1500m", false), one("s", "300m", true)]), 1500),
        ] {
            let pod = pod("p", json!({"initContainers": init, "containers": [one("c", "1", false)]}));
            assert_eq!(requests(&pod)["cpu"], expected, "{case}");
        }
    }
}
