//! Namespaces use no more than their quotas allow, and the status of a quota names what is used.
//!
//! Implements: Resource Quotas, and Admission Control, "ResourceQuota".
//! <https://kubernetes.io/docs/concepts/policy/resource-quotas/>
//!
//! What is used is read from the stored objects each time. A [`Claim`] counts an object between the decision about it and the
//! moment when it is stored, so that two requests together cannot exceed a quota. An amount that cannot be read is rejected.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use palisade_apimachinery::Status;
use palisade_base::quantity::Quantity;
use serde_json::{Value, json};

use crate::admission_chain::{Operation, Request};
use crate::api::Api;
use crate::meta;
use crate::storage::{Expect, Range, lock};
use crate::verbs::write;

/// The name of the plugin.
pub(crate) const NAME: &str = "ResourceQuota";

/// A text where an amount is expected.
#[derive(Debug)]
pub(crate) struct Unreadable(pub(super) String);

impl Unreadable {
    fn into_status(self) -> Box<Status> {
        Status::bad_request(format!("{:?} is not a quantity", self.0))
    }
}

/// Amounts by the name of the resource.
pub(crate) type Usage = BTreeMap<String, Quantity>;

fn quantity(value: &Value) -> Result<Quantity, Unreadable> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Quantity::parse(&text).map_err(|_| Unreadable(text))
}

fn one() -> Result<Quantity, Unreadable> {
    Quantity::parse("1").map_err(|_| Unreadable("1".to_owned()))
}

fn add(total: &mut Usage, name: &str, amount: Quantity) {
    let sum = total.get(name).map_or(amount, |before| before.plus(amount));
    total.insert(name.to_owned(), sum);
}

fn list<'v>(object: &'v Value, pointer: &str) -> impl Iterator<Item = &'v Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn amounts(owner: &Value, field: &str) -> Result<Usage, Unreadable> {
    let found = owner.get("resources").and_then(|resources| resources.get(field)).and_then(Value::as_object);
    found.into_iter().flatten().map(|(name, amount)| Ok((name.clone(), quantity(amount)?))).collect()
}

/// What a pod needs at most at one time: its containers and the init containers that go on, or the largest of those that run
/// before them together with what goes on by then. What the pod sets as a whole counts instead.
pub(crate) fn pod_amounts(pod: &Value, field: &str) -> Result<Usage, Unreadable> {
    let mut total = Usage::new();
    for container in list(pod, "/spec/containers") {
        for (name, amount) in amounts(container, field)? {
            add(&mut total, &name, amount);
        }
    }
    let (mut going_on, mut starting) = (Usage::new(), Usage::new());
    for container in list(pod, "/spec/initContainers") {
        let own = amounts(container, field)?;
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            for (name, amount) in own {
                add(&mut total, &name, amount);
                add(&mut going_on, &name, amount);
            }
            for (name, amount) in &going_on {
                let most = starting.get(name).map_or(*amount, |before| (*before).max(*amount));
                starting.insert(name.clone(), most);
            }
            continue;
        }
        for (name, amount) in own {
            let amount = going_on.get(&name).map_or(amount, |before| amount.plus(*before));
            let most = starting.get(&name).map_or(amount, |before| (*before).max(amount));
            starting.insert(name, most);
        }
    }
    for (name, amount) in starting {
        let most = total.get(&name).map_or(amount, |before| (*before).max(amount));
        total.insert(name, most);
    }
    if let Some(spec) = pod.get("spec") {
        total.extend(amounts(spec, field)?);
    }
    let overhead = pod.pointer("/spec/overhead").and_then(Value::as_object);
    for (name, amount) in overhead.into_iter().flatten() {
        if field == "requests" || total.contains_key(name) {
            add(&mut total, name, quantity(amount)?);
        }
    }
    Ok(total)
}

/// What an object counts as.
fn usage(group: &str, plural: &str, object: &Value) -> Result<Usage, Unreadable> {
    let mut used = Usage::new();
    if (group, plural) == ("", "pods") {
        let phase = object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        used.insert("count/pods".to_owned(), one()?);
        if matches!(phase, "Succeeded" | "Failed") {
            return Ok(used);
        }
        used.insert("pods".to_owned(), one()?);
        for (name, amount) in pod_amounts(object, "requests")? {
            used.insert(format!("requests.{name}"), amount);
            if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage")
                || name.starts_with("hugepages-")
            {
                used.insert(name, amount);
            }
        }
        for (name, amount) in pod_amounts(object, "limits")? {
            if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                used.insert(format!("limits.{name}"), amount);
            }
        }
        return Ok(used);
    }
    let dot = if group.is_empty() { "" } else { "." };
    used.insert(format!("count/{plural}{dot}{group}"), one()?);
    if !group.is_empty() {
        return Ok(used);
    }
    match plural {
        "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => {
            used.insert(plural.to_owned(), one()?);
        }
        "services" => {
            used.insert("services".to_owned(), one()?);
            let spec = object.get("spec").unwrap_or(&Value::Null);
            let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
            if kind == "LoadBalancer" {
                used.insert("services.loadbalancers".to_owned(), one()?);
            }
            if palisade_apimachinery::kinds::service::needs_node_ports(spec) {
                for _ in list(spec, "/ports") {
                    add(&mut used, "services.nodeports", one()?);
                }
            }
        }
        "persistentvolumeclaims" => {
            used.insert(plural.to_owned(), one()?);
            let class = object.pointer("/spec/storageClassName").and_then(Value::as_str).unwrap_or_default();
            let suffix = format!("{class}.storageclass.storage.k8s.io/");
            if !class.is_empty() {
                used.insert(format!("{suffix}persistentvolumeclaims"), one()?);
            }
            if let Some(storage) = object.pointer("/spec/resources/requests/storage") {
                used.insert("requests.storage".to_owned(), quantity(storage)?);
                if !class.is_empty() {
                    used.insert(format!("{suffix}requests.storage"), quantity(storage)?);
                }
            }
        }
        _ => {}
    }
    Ok(used)
}

/// Whether a quota is about an object: quotas with scopes are about pods alone, or about claims alone.
fn matches(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    let scopes =
        list(quota, "/spec/scopes").filter_map(Value::as_str).map(|scope| (scope, "Exists", Vec::new()));
    let selected = list(quota, "/spec/scopeSelector/matchExpressions").map(|expression| {
        let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
        let values = list(expression, "/values").filter_map(Value::as_str).collect();
        (text("scopeName"), text("operator"), values)
    });
    let claims_only = |scope: &str| scope == "VolumeAttributesClass";
    scopes.chain(selected).all(|(scope, operator, values): (&str, &str, Vec<&str>)| match (group, plural) {
        ("", "pods") => !claims_only(scope) && in_scope(object, scope, operator, &values),
        ("", "persistentvolumeclaims") => claims_only(scope) && in_scope(object, scope, operator, &values),
        _ => false,
    })
}

/// Whether a class is one that an expression of a scope selects.
fn selects(class: &str, operator: &str, values: &[&str]) -> bool {
    match operator {
        "In" => values.contains(&class),
        "NotIn" => !values.contains(&class),
        "DoesNotExist" => class.is_empty(),
        _ => !class.is_empty(),
    }
}

fn in_scope(pod: &Value, scope: &str, operator: &str, values: &[&str]) -> bool {
    let terminating = || {
        pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0)
    };
    let best_effort = || {
        let set = |container: &Value| {
            ["requests", "limits"].iter().any(|field| {
                let found = container.get("resources").and_then(|resources| resources.get(field));
                found
                    .and_then(Value::as_object)
                    .is_some_and(|amounts| ["cpu", "memory"].iter().any(|name| amounts.contains_key(*name)))
            })
        };
        let whole = pod.get("spec").is_some_and(&set);
        !whole && !list(pod, "/spec/containers").chain(list(pod, "/spec/initContainers")).any(set)
    };
    match scope {
        "Terminating" => terminating(),
        "NotTerminating" => !terminating(),
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" => {
            let class = pod.pointer("/spec/priorityClassName").and_then(Value::as_str).unwrap_or_default();
            selects(class, operator, values)
        }
        "VolumeAttributesClass" => {
            let class = pod.pointer("/spec/volumeAttributesClassName").and_then(Value::as_str);
            selects(class.unwrap_or_default(), operator, values)
        }
        "CrossNamespacePodAffinity" => pod.pointer("/spec/affinity").is_some_and(names_namespaces),
        // A scope that is not known here restricts nothing: the quota counts every pod.
        _ => true,
    }
}

/// Whether terms of a pod's affinity are about pods of other namespaces.
fn names_namespaces(affinity: &Value) -> bool {
    match affinity {
        Value::Object(fields) => fields.iter().any(|(name, value)| match name.as_str() {
            "namespaces" => value.as_array().is_some_and(|names| !names.is_empty()),
            "namespaceSelector" => !value.is_null(),
            _ => names_namespaces(value),
        }),
        Value::Array(items) => items.iter().any(names_namespaces),
        _ => false,
    }
}

fn hard(quota: &Value) -> Result<Usage, Unreadable> {
    let hard = quota.pointer("/spec/hard").and_then(Value::as_object);
    hard.into_iter().flatten().map(|(name, amount)| Ok((name.clone(), quantity(amount)?))).collect()
}

/// What the objects of a namespace use of a quota, every resource of the quota included.
fn used(api: &Api, namespace: &str, quota: &Value, hard: &Usage, except: &str) -> Result<Usage, Unreadable> {
    let mut total = Usage::new();
    let served = api.registry.served();
    let range = Range::Namespace(namespace.to_owned());
    for entry in served.stored().filter(|entry| entry.kind.namespaced) {
        let (group, plural) = (entry.kind.group.as_str(), entry.kind.plural.as_str());
        if !counts(group, plural, hard) {
            continue;
        }
        for stored in entry.bucket.list(&range).objects {
            if stored.uid() == except {
                continue;
            }
            let object = Value::Object(stored.parse());
            if matches(quota, group, plural, &object) {
                for (name, amount) in usage(group, plural, &object)? {
                    if hard.contains_key(&name) {
                        add(&mut total, &name, amount);
                    }
                }
            }
        }
    }
    for name in hard.keys() {
        if !total.contains_key(name) {
            total.insert(name.clone(), quantity(&json!("0"))?);
        }
    }
    Ok(total)
}

/// Whether objects of a resource can count for a quota at all.
fn counts(group: &str, plural: &str, hard: &Usage) -> bool {
    let dot = if group.is_empty() { "" } else { "." };
    let count = format!("count/{plural}{dot}{group}");
    let core = group.is_empty();
    hard.keys().any(|name| {
        *name == count
            || (core && name == plural)
            || (core && plural == "services" && name.starts_with("services."))
            || (core
                && plural == "persistentvolumeclaims"
                && (name == "requests.storage" || name.contains(".storageclass.")))
            || (core && plural == "pods" && is_of_pods(name))
    })
}

fn is_of_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || name.starts_with("limits.")
        || (name.starts_with("requests.") && name != "requests.storage")
}

/// The resources that a pod must name for every container, because the quota limits them.
fn unspecified(pod: &Value, hard: &Usage) -> Vec<String> {
    let mut missing = Vec::new();
    for name in hard.keys() {
        let (field, resource) = match name.as_str() {
            "cpu" | "memory" => ("requests", name.as_str()),
            "requests.cpu" | "requests.memory" => ("requests", name.trim_start_matches("requests.")),
            "limits.cpu" | "limits.memory" => ("limits", name.trim_start_matches("limits.")),
            _ => continue,
        };
        let lacks = |owner: &Value| owner.pointer(&format!("/resources/{field}/{resource}")).is_none();
        if pod.get("spec").is_some_and(|spec| !lacks(spec)) {
            continue;
        }
        let containers = list(pod, "/spec/containers").chain(list(pod, "/spec/initContainers"));
        let names: Vec<&str> = containers
            .filter(|container| lacks(container))
            .filter_map(|container| container.get("name").and_then(Value::as_str))
            .collect();
        if !names.is_empty() {
            missing.push(format!("{name} for: {}", names.join(",")));
        }
    }
    missing
}

/// What was admitted and is not stored yet.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pending(Arc<Mutex<Vec<(u64, String, Usage)>>>);

/// An object on its way into the store; it no longer counts when this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    pending: Pending,
    id: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.pending.0).retain(|(id, ..)| *id != self.id);
    }
}

fn shown(usage: &Usage, names: &[&String]) -> String {
    let parts = names.iter().filter_map(|name| usage.get(*name).map(|amount| format!("{name}={amount}")));
    parts.collect::<Vec<_>>().join(",")
}

/// Decides by the quotas of the namespace. What they allow counts as long as the claim lives.
pub(crate) fn admit(
    api: &Api,
    request: &Request<'_>,
    object: Option<&Value>,
) -> Result<Option<Claim>, Box<Status>> {
    let Some(object) = object.filter(|_| is_judged(request)) else { return Ok(None) };
    let bucket = api.store.bucket("resourcequotas");
    let quotas = bucket.list(&Range::Namespace(request.namespace.to_owned())).objects;
    if quotas.is_empty() {
        return Ok(None);
    }
    let (group, plural) = (request.kind.group.as_str(), request.kind.plural.as_str());
    let wanted = usage(group, plural, object).map_err(Unreadable::into_status)?;
    let old = request.old_object.filter(|_| request.operation == Operation::Update);
    let before = old.map(|old| usage(group, plural, old)).transpose().map_err(Unreadable::into_status)?;
    let before = before.unwrap_or_default();
    let except = old.map_or("", |old| meta::meta_text(old, "uid"));
    let mut pending = lock(&api.quotas.0);
    let mut claimed = Usage::new();
    for stored in quotas {
        let quota = Value::Object(stored.parse());
        if !matches(&quota, group, plural, object) {
            continue;
        }
        let name = stored.name();
        let hard = hard(&quota).map_err(Unreadable::into_status)?;
        if plural == "pods" && group.is_empty() && request.operation == Operation::Create {
            let missing = unspecified(object, &hard);
            if !missing.is_empty() {
                return Err(
                    request.forbidden(&format!("failed quota: {name}: must specify {}", missing.join("; ")))
                );
            }
        }
        let grows = |name: &&String| {
            let (new, old) = (wanted.get(*name), before.get(*name));
            new.is_some_and(|new| !new.is_zero() && old.is_none_or(|old| new > old))
        };
        let relevant: Vec<&String> = hard.keys().filter(grows).collect();
        if relevant.is_empty() {
            continue;
        }
        let mut used =
            used(api, request.namespace, &quota, &hard, except).map_err(Unreadable::into_status)?;
        for (_, namespace, usage) in pending.iter() {
            if namespace == request.namespace {
                usage
                    .iter()
                    .filter(|(name, _)| hard.contains_key(*name))
                    .for_each(|(name, amount)| add(&mut used, name, *amount));
            }
        }
        let exceeds = |name: &&&String| {
            let total = match (used.get(**name), wanted.get(**name)) {
                (Some(used), Some(wanted)) => used.plus(*wanted),
                _ => return true,
            };
            hard.get(**name).is_none_or(|hard| total > *hard)
        };
        let exceeded: Vec<&String> = relevant.iter().filter(exceeds).copied().collect();
        if !exceeded.is_empty() {
            return Err(request.forbidden(&format!(
                "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                shown(&wanted, &exceeded),
                shown(&used, &exceeded),
                shown(&hard, &exceeded)
            )));
        }
        for name in relevant {
            if let Some(amount) = wanted.get(name) {
                claimed.insert(name.clone(), *amount);
            }
        }
    }
    if claimed.is_empty() || request.dry_run {
        return Ok(None);
    }
    let id = pending.last().map_or(0, |(id, ..)| id.saturating_add(1));
    pending.push((id, request.namespace.to_owned(), claimed));
    Ok(Some(Claim { pending: api.quotas.clone(), id }))
}

/// Everything that is created in a namespace, and updates that can make something larger.
fn is_judged(request: &Request<'_>) -> bool {
    if !request.kind.namespaced || request.namespace.is_empty() {
        return false;
    }
    match (request.operation, request.kind.plural.as_str(), request.subresource) {
        (Operation::Create, _, "") => request.kind.verbs.contains(&"list"),
        (Operation::Update, "services" | "persistentvolumeclaims", "")
        | (Operation::Update, "pods", "resize") => request.kind.group.is_empty(),
        _ => false,
    }
}

/// Writes what is used into the status of every quota for which that has changed. True if there are quotas.
pub(crate) async fn sync(api: &Arc<Api>) -> bool {
    let served = api.registry.served();
    let Some(entry) = served.find("", "v1", "resourcequotas") else { return false };
    let quotas = entry.bucket.list(&Range::All).objects;
    for stored in &quotas {
        let mut quota = entry.typed(stored.parse());
        let status =
            hard(&quota).and_then(|hard| Ok((used(api, stored.namespace(), &quota, &hard, "")?, hard)));
        let (used, hard) = match status {
            Ok(status) => status,
            Err(error) => {
                tracing::warn!(quota = stored.key(), value = error.0, "usage of a quota cannot be computed");
                continue;
            }
        };
        let known = |field: &str| {
            let amounts = quota.pointer(&format!("/status/{field}")).and_then(Value::as_object);
            amounts
                .into_iter()
                .flatten()
                .map(|(name, amount)| Ok((name.clone(), quantity(amount)?)))
                .collect::<Result<Usage, Unreadable>>()
        };
        if known("hard").is_ok_and(|known| known == hard) && known("used").is_ok_and(|known| known == used) {
            continue;
        }
        let texts = |usage: &Usage| {
            usage
                .iter()
                .map(|(name, amount)| (name.clone(), amount.to_string().into()))
                .collect::<serde_json::Map<_, _>>()
        };
        quota["status"] = json!({"hard": quota.pointer("/spec/hard"), "used": texts(&used)});
        // A change meanwhile is seen in the next round.
        let _ =
            write::commit(api, entry, stored.key(), Expect::Revision(stored.revision), quota, false).await;
    }
    !quotas.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(containers: &Value, init: &Value) -> Value {
        json!({"spec": {"containers": containers, "initContainers": init}})
    }

    #[test]
    fn a_pod_counts_with_what_it_needs_at_one_time() {
        let needs = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let sidecar =
            json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
        for (case, pod, expected) in [
            ("containers add up", pod(&json!([needs("1"), needs("500m")]), &json!([])), "1500m"),
            ("the largest init container", pod(&json!([needs("1")]), &json!([needs("3"), needs("2")])), "3"),
            ("a sidecar goes on", pod(&json!([needs("1")]), &json!([sidecar])), "2"),
            (
                "an init container beside a sidecar",
                pod(&json!([needs("1")]), &json!([sidecar, needs("3")])),
                "4",
            ),
        ] {
            let amounts = pod_amounts(&pod, "requests").unwrap();
            assert_eq!(amounts["cpu"].to_string(), expected, "{case}");
        }
    }

    #[test]
    fn scopes_select_pods() {
        let quiet = json!({"spec": {"containers": [{"name": "c"}]}});
        let ending = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high",
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}});
        for (scope, expected) in [
            ("Terminating", [false, true]),
            ("NotTerminating", [true, false]),
            ("BestEffort", [true, false]),
            ("NotBestEffort", [false, true]),
            ("PriorityClass", [false, true]),
            ("SomethingNew", [true, true]),
            ("VolumeAttributesClass", [false, false]),
        ] {
            let quota = json!({"spec": {"scopes": [scope]}});
            assert_eq!([&quiet, &ending].map(|pod| matches(&quota, "", "pods", pod)), expected, "{scope}");
            assert!(!matches(&quota, "", "services", &quiet), "{scope}");
        }
    }

    #[test]
    fn amounts_that_cannot_be_read_are_errors() {
        let pod =
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "many"}}}]}});
        assert!(usage("", "pods", &pod).is_err());
    }
}
