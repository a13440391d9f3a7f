//! Whether a pod fits a node, and kube-scheduler's reasons if it does not. Pure.

use kube::core::DynamicObject;
use palisade_base::scheduling::{
    Amounts, HostPort, Taint, add, allocatable, host_ports, requests, selects, taints, tolerates,
};
use serde_json::Value;

/// Why a node does not take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// Only a change of the pod or of the node helps.
    Unresolvable(String),
    /// The node fits once other pods are gone.
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

/// What a pod needs of a node.
#[derive(Debug)]
pub struct Needs<'p> {
    spec: &'p Value,
    requests: Amounts,
    ports: Vec<HostPort>,
}

impl<'p> Needs<'p> {
    /// The needs of a pod.
    #[must_use]
    pub fn of(pod: &'p DynamicObject) -> Self {
        let spec = &pod.data["spec"];
        Self { spec, requests: requests(spec), ports: host_ports(spec, false) }
    }
}

/// What the pods of a node use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many there are.
    pub pods: i64,
    requested: Amounts,
    ports: Vec<HostPort>,
}

impl Usage {
    /// Counts a pod.
    pub fn add(&mut self, needs: &Needs<'_>) {
        self.pods += 1;
        add(&mut self.requested, &needs.requests);
        self.ports.extend(needs.ports.iter().cloned());
    }
}

/// Whether the node takes the pod beside what it has; in kube-scheduler's order of filters.
pub fn fit(needs: &Needs<'_>, node: &DynamicObject, lost: Option<&str>, usage: &Usage) -> Result<(), Unfit> {
    let spec = needs.spec;
    let unresolvable = |reason: &str| Err(Unfit::Unresolvable(reason.to_owned()));
    let of_key = |key| Taint { key, value: "", effect: "NoSchedule" };
    let unschedulable = node.data.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
    if unschedulable && !tolerates(spec, of_key("node.kubernetes.io/unschedulable")) {
        return unresolvable("node(s) were unschedulable");
    }
    // The node lifecycle controller adds the taint of a lost node.
    let repels =
        |taint: &Taint<'_>| matches!(taint.effect, "NoSchedule" | "NoExecute") && !tolerates(spec, *taint);
    if let Some(taint) = taints(&node.data).chain(lost.map(of_key)).find(repels) {
        return unresolvable(&format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value));
    }
    let labels = node.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    if !selects(spec, node.metadata.name.as_deref().unwrap_or_default(), label) {
        return unresolvable("node(s) didn't match Pod's node affinity/selector");
    }
    if needs.ports.iter().any(|port| usage.ports.iter().any(|taken| taken.conflicts_with(port))) {
        return Err(Unfit::Full(vec![
            "node(s) didn't have free ports for the requested pod ports".to_owned(),
        ]));
    }
    let reasons = shortages(needs, &allocatable(&node.data), usage);
    if reasons.is_empty() { Ok(()) } else { Err(Unfit::Full(reasons)) }
}

fn shortages(needs: &Needs<'_>, allocatable: &Amounts, usage: &Usage) -> Vec<String> {
    let mut reasons = Vec::new();
    if allocatable.get("pods").is_some_and(|pods| usage.pods >= *pods) {
        reasons.push("Too many pods".to_owned());
    }
    let amount = |of: &Amounts, name: &str| of.get(name).copied().unwrap_or_default();
    for (name, wanted) in &needs.requests {
        let sum = amount(&usage.requested, name).saturating_add(*wanted);
        if *wanted > 0 && sum > amount(allocatable, name) {
            reasons.push(format!("Insufficient {name}"));
        }
    }
    reasons
}
