//! The usage of a quota. Pure.

use std::collections::BTreeMap;

use palisade_base::{
    quantity::Quantity,
    scheduling::{Amounts, add, requests},
};
use serde_json::{Map, Value, json};

use crate::workloads::object::{Object, list};

/// The objects of a namespace that count by what they ask for.
#[derive(Debug, Default)]
pub struct Usage {
    /// Pods.
    pub pods: Vec<Value>,
    /// Services.
    pub services: Vec<Value>,
    /// Claims of volumes.
    pub claims: Vec<Value>,
    /// How many objects there are, by `plural` or `plural.group`.
    pub counts: BTreeMap<String, i64>,
}

/// What is counted as objects, by the names that are older than `count/`.
const OLD: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// The resource that an entry of a quota counts as objects: `plural` or `plural.group`.
#[must_use]
pub fn counted(entry: &str) -> Option<&str> {
    match entry.strip_prefix("count/") {
        Some("pods" | "services" | "persistentvolumeclaims") => None,
        Some(resource) => Some(resource),
        None => OLD.contains(&entry).then_some(entry),
    }
}

fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether no container asks for CPU or memory.
fn is_best_effort(pod: &Value) -> bool {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|key| list(&pod["spec"][key]));
    let mut asked = containers.flat_map(|container| {
        ["requests", "limits"]
            .into_iter()
            .flat_map(|kind| ["cpu", "memory"].map(|name| &container["resources"][kind][name]))
    });
    asked.all(|quantity| {
        quantity.as_str().and_then(|text| Quantity::parse(text).ok()).is_none_or(Quantity::is_zero)
    })
}

/// Whether a scope with its requirement has a pod.
fn has(scope: &str, operator: &str, values: &[Value], pod: &Value) -> bool {
    let spec = &pod["spec"];
    let is_terminating = spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => is_terminating,
        "NotTerminating" => !is_terminating,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = spec["priorityClassName"].as_str().filter(|class| !class.is_empty());
            let is_listed = || values.iter().any(|value| value.as_str() == class);
            match operator {
                "In" => class.is_some() && is_listed(),
                "NotIn" => !is_listed(),
                "DoesNotExist" => class.is_none(),
                _ => class.is_some(),
            }
        }
        "CrossNamespacePodAffinity" => {
            let crosses =
                |term: &Value| !list(&term["namespaces"]).is_empty() || term["namespaceSelector"].is_object();
            ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
                let kind = &spec["affinity"][kind];
                let required = list(&kind["requiredDuringSchedulingIgnoredDuringExecution"]).iter();
                let preferred = list(&kind["preferredDuringSchedulingIgnoredDuringExecution"]).iter();
                required.chain(preferred.map(|one| &one["podAffinityTerm"])).any(crosses)
            })
        }
        _ => false,
    }
}

/// Whether the scopes of a quota have a pod.
fn is_in_scope(quota: &Object, pod: &Value) -> bool {
    let scopes = quota.list("/spec/scopes").iter().filter_map(Value::as_str);
    let mut scopes = scopes.map(|scope| (scope, "Exists", &[][..]));
    let selected = quota.list("/spec/scopeSelector/matchExpressions").iter().map(|one| {
        let text = |key: &str| one[key].as_str().unwrap_or_default();
        (text("scopeName"), text("operator"), list(&one["values"]))
    });
    scopes.all(|(scope, operator, values)| has(scope, operator, values, pod))
        && selected.into_iter().all(|(scope, operator, values)| has(scope, operator, values, pod))
}

fn has_scopes(quota: &Object) -> bool {
    !quota.list("/spec/scopes").is_empty() || !quota.list("/spec/scopeSelector/matchExpressions").is_empty()
}

/// The limits of a pod, as [`requests`] adds them up.
fn limits(spec: &Value) -> Amounts {
    let mut spec = spec.clone();
    for key in ["containers", "initContainers"] {
        for container in spec[key].as_array_mut().into_iter().flatten() {
            let limits = container["resources"]["limits"].take();
            container["resources"] = json!({"requests": limits});
        }
    }
    requests(&spec)
}

/// A number in the unit of [`Amounts`], as a quantity.
fn quantity(name: &str, amount: i64) -> Option<Quantity> {
    let text = if name == "cpu" { format!("{amount}m") } else { amount.to_string() };
    Quantity::parse(&text).ok()
}

fn count<T>(items: impl Iterator<Item = T>) -> i64 {
    i64::try_from(items.count()).unwrap_or(i64::MAX)
}

fn storage<'c>(claims: impl Iterator<Item = &'c Value>) -> Option<Quantity> {
    let sizes = claims.filter_map(|claim| {
        Quantity::parse(claim["spec"]["resources"]["requests"]["storage"].as_str()?).ok()
    });
    sizes.reduce(Quantity::plus).or_else(|| Quantity::parse("0").ok())
}

/// What an entry of a quota uses; none if it is not known what it means.
fn used(quota: &Object, entry: &str, usage: &Usage) -> Option<Quantity> {
    let whole = |count: i64| Quantity::parse(&count.to_string()).ok();
    let in_scope = || usage.pods.iter().filter(|pod| is_in_scope(quota, pod));
    let running = || in_scope().filter(|pod| !has_ended(pod));
    let sum = |of: fn(&Value) -> Amounts, name: &str| {
        let mut all = Amounts::new();
        for pod in running() {
            add(&mut all, &of(&pod["spec"]));
        }
        quantity(name, all.get(name).copied().unwrap_or_default())
    };
    match entry {
        "pods" => return whole(count(running())),
        "count/pods" => return whole(count(in_scope())),
        _ => {}
    }
    if let Some(name) = entry.strip_prefix("limits.") {
        return sum(limits, name);
    }
    let compute = entry.strip_prefix("requests.").unwrap_or(entry);
    let is_compute =
        matches!(compute, "cpu" | "memory" | "ephemeral-storage") || compute.starts_with("hugepages-");
    if is_compute || (compute != entry && compute.contains('/')) {
        return sum(requests, compute);
    }
    if has_scopes(quota) {
        // Scopes are about pods.
        return None;
    }
    let kind = |service: &Value| service["spec"]["type"].as_str().unwrap_or("ClusterIP").to_owned();
    let ports = |service: &Value| -> i64 {
        match kind(service).as_str() {
            "NodePort" => count(list(&service["spec"]["ports"]).iter()),
            "LoadBalancer" => count(
                list(&service["spec"]["ports"])
                    .iter()
                    .filter(|port| port["nodePort"].as_i64().unwrap_or_default() != 0),
            ),
            _ => 0,
        }
    };
    match entry {
        "services" | "count/services" => whole(count(usage.services.iter())),
        "services.loadbalancers" => {
            whole(count(usage.services.iter().filter(|one| kind(one) == "LoadBalancer")))
        }
        "services.nodeports" => whole(usage.services.iter().map(ports).sum()),
        "persistentvolumeclaims" | "count/persistentvolumeclaims" => whole(count(usage.claims.iter())),
        "requests.storage" => storage(usage.claims.iter()),
        _ => {
            if let Some((class, what)) = entry.split_once(".storageclass.storage.k8s.io/") {
                let of_class = usage.claims.iter().filter(|claim| claim["spec"]["storageClassName"] == class);
                return match what {
                    "requests.storage" => storage(of_class),
                    "persistentvolumeclaims" => whole(count(of_class)),
                    _ => None,
                };
            }
            counted(entry).and_then(|resource| whole(usage.counts.get(resource).copied()?))
        }
    }
}

/// The status of a quota.
#[must_use]
pub fn status(quota: &Object, usage: &Usage) -> Value {
    let mut all = Map::new();
    for (entry, hard) in quota.at("/spec/hard").as_object().into_iter().flatten() {
        // It is written as the limit is.
        let zero = hard.as_str().and_then(|hard| Quantity::parse(hard).ok()).map(|hard| hard.minus(hard));
        if let (Some(zero), Some(used)) = (zero, used(quota, entry, usage)) {
            all.insert(entry.clone(), json!(zero.plus(used).to_string()));
        }
    }
    json!({"hard": quota.at("/spec/hard"), "used": all})
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Usage, counted, status};
    use crate::workloads::object::Object;

    fn quota(hard: &Value, more: &Value) -> Object {
        let mut spec = json!({"hard": hard});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        Object::of(json!({"metadata": {"name": "q"}, "spec": spec})).unwrap()
    }

    fn pod(requests: &Value, limits: &Value, more: &Value) -> Value {
        let mut spec =
            json!({"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        json!({"spec": spec, "status": {"phase": "Running"}})
    }

    fn usage() -> Usage {
        let mut ended = pod(&json!({"cpu": "4"}), &json!({}), &json!({}));
        ended["status"]["phase"] = json!("Succeeded");
        Usage {
            pods: vec![
                pod(
                    &json!({"cpu": "500m", "memory": "252Mi"}),
                    &json!({"cpu": "1", "memory": "252Mi"}),
                    &json!({}),
                ),
                pod(
                    &json!({}),
                    &json!({}),
                    &json!({"activeDeadlineSeconds": 60, "priorityClassName": "high"}),
                ),
                ended,
            ],
            services: vec![
                json!({"spec": {"type": "NodePort", "ports": [{"port": 1}, {"port": 2}]}}),
                json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1, "nodePort": 30001}, {"port": 2}]}}),
                json!({"spec": {"type": "ClusterIP", "ports": [{"port": 1}]}}),
            ],
            claims: vec![
                json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}}),
                json!({"spec": {"resources": {"requests": {"storage": "1Gi"}}}}),
            ],
            counts: [("secrets".to_owned(), 3), ("deployments.apps".to_owned(), 2)].into(),
        }
    }

    #[test]
    fn every_entry_of_a_quota_is_counted() {
        for (entry, hard, expected) in [
            ("pods", "5", "2"),
            ("count/pods", "5", "3"),
            ("cpu", "1", "500m"),
            ("requests.cpu", "1", "500m"),
            ("requests.memory", "1Gi", "252Mi"),
            ("limits.cpu", "2", "1"),
            ("requests.example.com/gpu", "2", "0"),
            ("services", "10", "3"),
            ("services.nodeports", "10", "3"),
            ("services.loadbalancers", "10", "1"),
            ("persistentvolumeclaims", "10", "2"),
            ("requests.storage", "10Gi", "2Gi"),
            ("gold.storageclass.storage.k8s.io/requests.storage", "10Gi", "1Gi"),
            ("secrets", "10", "3"),
            ("count/deployments.apps", "10", "2"),
        ] {
            let found = status(&quota(&json!({entry: hard}), &json!({})), &usage());
            assert_eq!(found, json!({"hard": {entry: hard}, "used": {entry: expected}}), "{entry}");
        }
    }

    #[test]
    fn scopes_choose_pods() {
        let class = |operator: &str, values: Value| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
        for (case, scopes, expected) in [
            ("none", json!({}), "2"),
            ("Terminating", json!({"scopes": ["Terminating"]}), "1"),
            ("BestEffort", json!({"scopes": ["BestEffort"]}), "1"),
            ("both", json!({"scopes": ["BestEffort", "NotTerminating"]}), "0"),
            ("a class", class("In", json!(["high"])), "1"),
            ("another class", class("In", json!(["low"])), "0"),
            ("not a class", class("NotIn", json!(["high"])), "1"),
            ("without a class", class("DoesNotExist", json!([])), "1"),
        ] {
            let found = status(&quota(&json!({"pods": "5"}), &scopes), &usage());
            assert_eq!(found["used"]["pods"], expected, "{case}");
        }
        let found = status(&quota(&json!({"services": "5"}), &json!({"scopes": ["BestEffort"]})), &usage());
        assert_eq!(found["used"], json!({}), "only pods have scopes");
    }

    #[test]
    fn objects_are_counted_by_their_resource() {
        for (entry, expected) in [
            ("count/deployments.apps", Some("deployments.apps")),
            ("secrets", Some("secrets")),
            ("pods", None),
            ("requests.cpu", None),
        ] {
            assert_eq!(counted(entry), expected, "{entry}");
        }
    }
}
