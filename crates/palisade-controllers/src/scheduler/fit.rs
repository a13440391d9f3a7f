//! Whether a pod fits a node, and what is said if it does not. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use palisade_apimachinery::quantity::Quantity;

/// Why a node does not take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// Only a change of the pod or of the node helps.
    Unresolvable(String),
    /// Another pod might make room.
    Full(Vec<String>),
}

impl Unfit {
    /// The sentences, as kube-scheduler counts them.
    #[must_use]
    pub fn reasons(&self) -> &[String] {
        match self {
            Self::Unresolvable(reason) => std::slice::from_ref(reason),
            Self::Full(reasons) => reasons,
        }
    }
}

/// What the pods of a node use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many there are.
    pub pods: i64,
    /// Requested resources: thousandths of processors, bytes.
    requested: BTreeMap<String, i64>,
    /// Taken host ports: address, protocol, port.
    ports: Vec<(String, String, i32)>,
}

impl Usage {
    /// Counts a pod.
    pub fn add(&mut self, pod: &Pod) {
        let Some(spec) = &pod.spec else { return };
        self.pods += 1;
        for (name, amount) in requests(spec) {
            let sum = self.requested.entry(name).or_default();
            *sum = sum.saturating_add(amount);
        }
        self.ports.extend(host_ports(spec));
    }
}

/// Whether the node takes the pod beside what it has; in kube-scheduler's order of filters.
pub fn fit(pod: &Pod, node: &Node, lost: Option<&str>, usage: &Usage) -> Result<(), Unfit> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let unresolvable = |reason: &str| Err(Unfit::Unresolvable(reason.to_owned()));
    let node_spec = node.spec.clone().unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let tolerated = |taint: &Taint| tolerations.iter().any(|toleration| tolerates(toleration, taint));
    let taint =
        |key: &str| Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    if node_spec.unschedulable == Some(true) && !tolerated(&taint("node.kubernetes.io/unschedulable")) {
        return unresolvable("node(s) were unschedulable");
    }
    // What the node lifecycle controller would have put there.
    let lost = lost.map(taint);
    let taints = node_spec.taints.iter().flatten().chain(lost.as_ref());
    if let Some(taint) = taints
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .find(|taint| !tolerated(taint))
    {
        let value = taint.value.as_deref().unwrap_or_default();
        return unresolvable(&format!("node(s) had untolerated taint {{{}: {value}}}", taint.key));
    }
    if !selected(spec, node) {
        return unresolvable("node(s) didn't match Pod's node affinity/selector");
    }
    let clashes = |wanted: &(String, String, i32)| {
        let any = |address: &str| address.is_empty() || address == "0.0.0.0";
        usage.ports.iter().any(|taken| {
            taken.1 == wanted.1
                && taken.2 == wanted.2
                && (taken.0 == wanted.0 || any(&taken.0) || any(&wanted.0))
        })
    };
    if host_ports(spec).iter().any(clashes) {
        return Err(Unfit::Full(vec![
            "node(s) didn't have free ports for the requested pod ports".to_owned(),
        ]));
    }
    let reasons = shortages(spec, node, usage);
    if reasons.is_empty() { Ok(()) } else { Err(Unfit::Full(reasons)) }
}

fn shortages(spec: &PodSpec, node: &Node, usage: &Usage) -> Vec<String> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.clone()).unwrap_or_default();
    let has = |name: &str| allocatable.get(name).map(|quantity| amount(name, quantity));
    let mut reasons = Vec::new();
    if has("pods").is_some_and(|pods| usage.pods >= pods) {
        reasons.push("Too many pods".to_owned());
    }
    for (name, wanted) in requests(spec) {
        let used = usage.requested.get(&name).copied().unwrap_or_default();
        if wanted > 0 && used.saturating_add(wanted) > has(&name).unwrap_or_default() {
            reasons.push(format!("Insufficient {name}"));
        }
    }
    reasons
}

/// Whole bytes and things, thousandths of processors.
fn amount(name: &str, quantity: &ApiQuantity) -> i64 {
    let read = Quantity::parse(&quantity.0);
    read.map(|read| if name == "cpu" { read.milli() } else { read.whole() }).unwrap_or_default()
}

/// What a pod asks for: its containers and sidecars together, or its largest init container if that is more.
fn requests(spec: &PodSpec) -> BTreeMap<String, i64> {
    let of = |container: &Container| -> BTreeMap<String, i64> {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.clone());
        requests
            .unwrap_or_default()
            .iter()
            .map(|(name, wanted)| (name.clone(), amount(name, wanted)))
            .collect()
    };
    let add = |sum: &mut BTreeMap<String, i64>, more: BTreeMap<String, i64>| {
        for (name, amount) in more {
            let total = sum.entry(name).or_default();
            *total = total.saturating_add(amount);
        }
    };
    let mut sum = BTreeMap::new();
    spec.containers.iter().for_each(|container| add(&mut sum, of(container)));
    let mut sidecars = BTreeMap::new();
    let mut largest: BTreeMap<String, i64> = BTreeMap::new();
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sidecars, of(container));
            continue;
        }
        // It runs beside the sidecars that were started before it.
        let mut beside = sidecars.clone();
        add(&mut beside, of(container));
        for (name, amount) in beside {
            let most = largest.entry(name).or_default();
            *most = (*most).max(amount);
        }
    }
    add(&mut sum, sidecars);
    for (name, amount) in largest {
        let total = sum.entry(name).or_default();
        *total = (*total).max(amount);
    }
    add(
        &mut sum,
        spec.overhead.iter().flatten().map(|(name, more)| (name.clone(), amount(name, more))).collect(),
    );
    sum
}

fn host_ports(spec: &PodSpec) -> Vec<(String, String, i32)> {
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|&number| number > 0)?;
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((port.host_ip.clone().unwrap_or_default(), protocol, number))
        })
        .collect()
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    if !effect.is_empty() && effect != taint.effect || !key.is_empty() && key != taint.key {
        return false;
    }
    match text(&toleration.operator).as_str() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        _ => false,
    }
}

/// `nodeSelector` and what node affinity requires.
fn selected(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    if spec.node_selector.iter().flatten().any(|(key, value)| labels.get(key) != Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let Some(required) = required else { return true };
    let name = node.metadata.name.clone().unwrap_or_default();
    let fields = BTreeMap::from([("metadata.name".to_owned(), name)]);
    required.node_selector_terms.iter().any(|term| matches(term, &labels, &fields))
}

fn matches(
    term: &NodeSelectorTerm,
    labels: &BTreeMap<String, String>,
    fields: &BTreeMap<String, String>,
) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let of_fields = term.match_fields.as_deref().unwrap_or_default();
    // A term that asks for nothing matches nothing.
    !(expressions.is_empty() && of_fields.is_empty())
        && expressions.iter().all(|requirement| holds(requirement, labels))
        && of_fields.iter().all(|requirement| holds(requirement, fields))
}

fn holds(requirement: &NodeSelectorRequirement, values: &BTreeMap<String, String>) -> bool {
    let found = values.get(&requirement.key);
    let wanted = requirement.values.as_deref().unwrap_or_default();
    let compared = |test: fn(i64, i64) -> bool| {
        let number = |text: Option<&String>| text?.parse::<i64>().ok();
        number(found).zip(number(wanted.first())).is_some_and(|(found, wanted)| test(found, wanted))
    };
    match requirement.operator.as_str() {
        "In" => found.is_some_and(|found| wanted.contains(found)),
        "NotIn" => found.is_none_or(|found| !wanted.contains(found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared(|found, wanted| found > wanted),
        "Lt" => compared(|found, wanted| found < wanted),
        _ => false,
    }
}
