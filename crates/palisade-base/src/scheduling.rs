//! What a pod needs of a node, and whether a node is one it may run on.
//!
//! Implements: resource requests of pods, host ports, tolerations and required node affinity, as the scheduler and the
//! kubelet compute them (`k8s.io/component-helpers/resource`, `…/scheduling/corev1`).
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/>. Which of them count, in which order and
//! with which messages, is the scheduler's and the node's.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{label_selector::Operator, quantity::Quantity};

/// Amounts by resource: thousandths of CPUs, bytes, whole units of everything else.
pub type Amounts = BTreeMap<String, i64>;

/// A quantity in the unit of [`Amounts`]; 0 if it cannot be read.
fn amount(name: &str, quantity: &Value) -> i64 {
    let read = match quantity {
        Value::String(text) => Quantity::parse(text),
        number => Quantity::parse(&number.to_string()),
    };
    read.map_or(0, |read| if name == "cpu" { read.milli() } else { read.whole() })
}

fn amounts(list: Option<&Value>) -> Amounts {
    let entries = list.and_then(Value::as_object).into_iter().flatten();
    entries.map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect()
}

/// What a node has for pods.
#[must_use]
pub fn allocatable(node: &Value) -> Amounts {
    amounts(node.pointer("/status/allocatable"))
}

/// Adds amounts to others.
pub fn add(sum: &mut Amounts, more: &Amounts) {
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

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// What a pod of this `spec` requests: its containers and sidecars together, or its largest init container beside the
/// sidecars that start before it, if that is more; and the overhead of its sandbox.
#[must_use]
pub fn requests(spec: &Value) -> Amounts {
    let of = |container: &Value| {
        let resources = |name| container.get("resources").and_then(|resources| resources.get(name));
        // A limit without a request is the request, as the API server defaults it.
        let mut requests = amounts(resources("limits"));
        requests.extend(amounts(resources("requests")));
        requests
    };
    let mut sum = Amounts::new();
    for container in list(spec, "containers") {
        add(&mut sum, &of(container));
    }
    let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
    for container in list(spec, "initContainers") {
        let mut beside = sidecars.clone();
        add(&mut beside, &of(container));
        at_least(&mut largest, &beside);
        if is_sidecar(container) {
            sidecars = beside;
        }
    }
    add(&mut sum, &sidecars);
    at_least(&mut sum, &largest);
    add(&mut sum, &amounts(spec.get("overhead")));
    sum
}

/// A port of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// The address; empty for all.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The number.
    pub port: i64,
}

impl HostPort {
    /// Whether two pods cannot have both.
    #[must_use]
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let any = |ip: &str| matches!(ip, "" | "0.0.0.0");
        self.protocol == other.protocol
            && self.port == other.port
            && (self.ip == other.ip || any(&self.ip) || any(&other.ip))
    }
}

/// The ports of the node that a pod of this `spec` listens on; those of sidecars only where they count.
#[must_use]
pub fn host_ports(spec: &Value, with_sidecars: bool) -> Vec<HostPort> {
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    let sidecars = list(spec, "initContainers").iter().filter(|one| with_sidecars && is_sidecar(one));
    let ports = list(spec, "containers").iter().chain(sidecars).flat_map(|one| list(one, "ports"));
    ports
        .filter_map(|port| {
            let number = |key: &str| port.get(key).and_then(Value::as_i64).unwrap_or_default();
            // In the node's network every port is one of the node's.
            let number = match number("hostPort") {
                0 if host_network => number("containerPort"),
                number => number,
            };
            let protocol = match text(port, "protocol") {
                "" => "TCP",
                protocol => protocol,
            };
            let host_port = || HostPort {
                ip: text(port, "hostIP").to_owned(),
                protocol: protocol.to_owned(),
                port: number,
            };
            (number > 0).then(host_port)
        })
        .collect()
}

/// A taint of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the API's own")]
pub struct Taint<'a> {
    pub key: &'a str,
    pub value: &'a str,
    pub effect: &'a str,
}

/// The taints of a node.
pub fn taints(node: &Value) -> impl Iterator<Item = Taint<'_>> {
    let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    taints.map(|taint| Taint {
        key: text(taint, "key"),
        value: text(taint, "value"),
        effect: text(taint, "effect"),
    })
}

/// Whether a pod of this `spec` tolerates a taint.
#[must_use]
pub fn tolerates(spec: &Value, taint: Taint<'_>) -> bool {
    toleration_of(spec, taint).is_some()
}

/// The first toleration of a pod of this `spec` that a taint is tolerated by.
#[must_use]
pub fn toleration_of<'s>(spec: &'s Value, taint: Taint<'_>) -> Option<&'s Value> {
    list(spec, "tolerations").iter().find(|toleration| {
        let (effect, key) = (text(toleration, "effect"), text(toleration, "key"));
        if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
            return false;
        }
        match text(toleration, "operator") {
            "Exists" => true,
            "" | "Equal" => !key.is_empty() && text(toleration, "value") == taint.value,
            _ => false,
        }
    })
}

/// Whether a node of this name and with these labels is one that `nodeSelector` and the required node affinity of a pod
/// of this `spec` select.
#[must_use]
pub fn selects<'n>(spec: &Value, node: &'n str, label: impl Fn(&str) -> Option<&'n str>) -> bool {
    let mut wanted = spec.get("nodeSelector").and_then(Value::as_object).into_iter().flatten();
    if wanted.any(|(key, value)| label(key) != value.as_str()) {
        return false;
    }
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let Some(required) = spec.pointer(required).filter(|required| required.is_object()) else { return true };
    let field = |key: &str| (key == "metadata.name").then_some(node);
    list(required, "nodeSelectorTerms").iter().any(|term| {
        let (expressions, fields) = (list(term, "matchExpressions"), list(term, "matchFields"));
        // A term without requirements matches nothing.
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|requirement| holds(requirement, &label))
            && fields.iter().all(|requirement| holds(requirement, field))
    })
}

fn holds<'v>(requirement: &Value, value: impl Fn(&str) -> Option<&'v str>) -> bool {
    let values = list(requirement, "values").iter().filter_map(Value::as_str);
    Operator::of_nodes(text(requirement, "operator"))
        .is_some_and(|operator| operator.holds(values, value(text(requirement, "key"))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn init_containers_request_the_most_of_one_beside_the_sidecars() {
        let one = |cpu: &str, sidecar: bool| {
            let policy = if sidecar { json!("Always") } else { json!(null) };
            json!({"resources": {"requests": {"cpu": cpu}}, "restartPolicy": policy})
        };
        for (case, init, expected) in [
            ("none", json!([]), 1000),
            ("small", json!([one("500m", false)]), 1000),
            ("large", json!([one("1500m", false), one("1200m", false)]), 1500),
            ("sidecar", json!([one("300m", true)]), 1300),
            ("large beside an earlier sidecar", json!([one("300m", true), one("1500m", false)]), 1800),
            ("large before the sidecar", json!([one("1500m", false), one("300m", true)]), 1500),
        ] {
            let spec = json!({"initContainers": init, "containers": [one("1", false)]});
            assert_eq!(requests(&spec)["cpu"], expected, "{case}");
        }
    }

    #[test]
    fn requests_default_to_limits_and_include_overhead() {
        let resources = json!({"limits": {"cpu": 3, "memory": "1Ki"}, "requests": {"memory": "1500m"}});
        let spec = json!({"containers": [{"resources": resources}], "overhead": {"cpu": "250m"}});
        let expected = [("cpu".to_owned(), 3250), ("memory".to_owned(), 2)];
        assert_eq!(requests(&spec), Amounts::from(expected));
    }

    #[test]
    fn ports_conflict_on_an_address_they_share() {
        let with = |host_network: bool, port: Value| json!({"hostNetwork": host_network, "containers": [{"ports": [port]}]});
        let first = with(false, json!({"containerPort": 80, "hostPort": 8080}));
        for (case, host_network, port, expected) in [
            ("another port", false, json!({"containerPort": 80, "hostPort": 8081}), false),
            ("no host port", false, json!({"containerPort": 8080}), false),
            ("the same", false, json!({"containerPort": 80, "hostPort": 8080}), true),
            ("another protocol", false, json!({"hostPort": 8080, "protocol": "UDP"}), false),
            ("one address of all", false, json!({"hostPort": 8080, "hostIP": "127.0.0.1"}), true),
            ("in the node's network", true, json!({"containerPort": 8080}), true),
        ] {
            let (one, other) = (host_ports(&first, true), host_ports(&with(host_network, port), true));
            let conflict = other.iter().any(|port| port.conflicts_with(&one[0]));
            assert_eq!(conflict, expected, "{case}");
        }
        let sidecar = json!({"initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 80}]}]});
        assert_eq!([false, true].map(|counted| host_ports(&sidecar, counted).len()), [0, 1]);
    }

    #[test]
    fn tolerations_match_key_value_and_effect() {
        let taint = Taint { key: "gone", value: "v", effect: "NoExecute" };
        for (toleration, expected) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "gone", "operator": "Exists", "effect": "NoExecute"}), true),
            (json!({"key": "gone", "value": "v"}), true),
            (json!({"key": "gone", "operator": "Equal", "value": "x"}), false),
            (json!({"key": "gone", "operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"operator": "Equal", "value": "v"}), false),
            (json!({"operator": "Unknown"}), false),
        ] {
            assert_eq!(tolerates(&json!({"tolerations": [toleration]}), taint), expected, "{toleration}");
        }
        assert!(!tolerates(&json!({}), taint));
    }

    #[test]
    fn selects_nodes_by_labels_and_name() {
        let label = |key: &str| match key {
            "disk" => Some("ssd"),
            "gen" => Some("5"),
            _ => None,
        };
        let affinity = |terms: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}}})
        };
        let term = |key: &str, operator: &str, values: Value| {
            affinity(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
        };
        let named = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]);
        for (case, spec, expected) in [
            ("no requirement", json!({}), true),
            ("label", json!({"nodeSelector": {"disk": "ssd"}}), true),
            ("another value", json!({"nodeSelector": {"disk": "hdd"}}), false),
            ("no such label", json!({"nodeSelector": {"zone": "a"}}), false),
            ("in", term("disk", "In", json!(["hdd", "ssd"])), true),
            ("not in", term("disk", "NotIn", json!(["ssd"])), false),
            ("exists", term("zone", "Exists", json!([])), false),
            ("greater", term("gen", "Gt", json!(["4"])), true),
            ("less", term("gen", "Lt", json!(["5"])), false),
            ("unknown operator", term("disk", "Like", json!(["ssd"])), false),
            ("no term", affinity(json!([])), false),
            ("empty term", affinity(json!([{}])), false),
            ("by name", affinity(named), true),
        ] {
            assert_eq!(selects(&spec, "n", label), expected, "{case}");
        }
    }
}
