//! Validation of resource limits and requests.

use std::collections::{BTreeMap, BTreeSet};

use palisade_base::field_error::{BadValue, FieldError, FieldErrorKind};
use palisade_base::field_path::Path;
use palisade_base::quantity::Quantity;
use serde_json::Value;

use crate::rest::names;
use crate::rest::path::{Errors, Get};

fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| Quantity::parse(text).ok())
}

pub(crate) fn validate_list(list: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (name, value) in list.as_object().into_iter().flatten() {
        let at = at.key(name);
        validate_name(name, &at, errors);
        let Some(amount) = quantity(value) else { continue };
        if amount.is_negative() {
            errors.invalid(&at, amount.to_string(), "must be greater than or equal to 0");
        }
        let whole_only =
            name.contains('/') && !name.split('/').next().unwrap_or_default().contains("kubernetes.io");
        if whole_only && !amount.is_multiple_of(0) {
            errors.invalid(&at, BadValue::Text(amount.to_string()), "must be an integer");
        }
    }
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn validate_name(name: &str, at: &Path<'_>, errors: &mut Errors) {
    let version = errors.version;
    let messages = names::qualified_name(name, version);
    if !messages.is_empty() {
        errors.format(at, name, messages);
        return;
    }
    if !name.contains('/') {
        const STANDARD: &[&str] = &["cpu", "memory", "ephemeral-storage"];
        const KNOWN: &[&str] = &[
            "storage",
            "pods",
            "services",
            "replicationcontrollers",
            "resourcequotas",
            "secrets",
            "configmaps",
            "persistentvolumeclaims",
            "services.nodeports",
            "services.loadbalancers",
            "requests.cpu",
            "requests.memory",
            "requests.storage",
            "requests.ephemeral-storage",
            "limits.cpu",
            "limits.memory",
            "limits.ephemeral-storage",
        ];
        if STANDARD.contains(&name) || is_huge_pages(name) {
            return;
        }
        if !KNOWN.contains(&name) {
            errors.invalid(at, name, "must be a standard resource type or fully qualified");
        }
        errors.invalid(at, name, "must be a standard resource for containers");
        return;
    }
    let domain = name.split('/').next().unwrap_or_default();
    let native = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    if !native && (name.starts_with("requests.") || name.len() > 253) {
        errors.invalid(at, name, "doesn't follow extended resource name standard");
    }
}

/// `claims` are the names in the pod's `resourceClaims`.
pub(super) fn validate(resources: &Value, claims: &BTreeSet<&str>, at: &Path<'_>, errors: &mut Errors) {
    let empty = Value::Null;
    let limits = resources.get("limits").unwrap_or(&empty);
    let requests = resources.get("requests").unwrap_or(&empty);
    let (limits_at, requests_at) = (at.field("limits"), at.field("requests"));
    validate_list(limits, &limits_at, errors);
    validate_list(requests, &requests_at, errors);
    for (name, value) in requests.as_object().into_iter().flatten() {
        let Some(request) = quantity(value) else { continue };
        let overcommit = !is_huge_pages(name)
            && (!name.contains('/') || name.split('/').next().unwrap_or_default().contains("kubernetes.io"));
        match limits.get(name).and_then(quantity) {
            Some(limit) => {
                let of = if errors.version.at_least(26) { format!(" of {limit}") } else { String::new() };
                if request != limit && !overcommit {
                    errors.invalid(
                        &requests_at,
                        request.to_string(),
                        format!("must be equal to {name} limit{of}"),
                    );
                } else if request > limit {
                    errors.invalid(
                        &requests_at,
                        request.to_string(),
                        format!("must be less than or equal to {name} limit{of}"),
                    );
                }
            }
            None if !overcommit => {
                errors.required(&limits_at, "Limit must be set for non overcommitable resources");
            }
            None => {}
        }
    }
    let has = |list: &Value, test: &dyn Fn(&str) -> bool| {
        list.as_object().is_some_and(|map| map.keys().any(|name| test(name)))
    };
    let compute = |name: &str| name == "cpu" || name == "memory";
    let huge = has(limits, &is_huge_pages) || has(requests, &is_huge_pages);
    if huge && !has(limits, &compute) && !has(requests, &compute) {
        errors.forbidden(at, "HugePages require cpu or memory");
    }
    validate_claims(resources.list("claims"), claims, &at.field("claims"), errors);
}

fn amount(resources: &Value, list: &str, name: &str) -> Option<Quantity> {
    resources.child(list)?.get(name).and_then(quantity)
}

/// What the containers of a pod request of a resource together: those that run side by side, or an init container with the
/// sidecars that run before it, whichever is more.
fn aggregate(spec: &Value, name: &str) -> Option<Quantity> {
    let request = |container: &Value| amount(container.child("resources")?, "requests", name);
    let add = |sum: Option<Quantity>, more: Option<Quantity>| match (sum, more) {
        (Some(sum), Some(more)) => Some(sum.plus(more)),
        (sum, more) => sum.or(more),
    };
    let (mut sidecars, mut most) = (None, None);
    for container in spec.list("initContainers") {
        if container.text("restartPolicy") == "Always" {
            sidecars = add(sidecars, request(container));
            most = most.max(sidecars);
        } else {
            most = most.max(add(sidecars, request(container)));
        }
    }
    let together =
        spec.list("containers").iter().fold(sidecars, |sum, container| add(sum, request(container)));
    most.max(together)
}

/// `spec.resources`, which all containers share. Before v1.34 its gate is off by default.
pub(super) fn validate_pod_level(spec: &Value, claims: &BTreeSet<&str>, at: &Path<'_>, errors: &mut Errors) {
    let Some(own) = spec.child("resources").filter(|_| errors.version.at_least(34)) else { return };
    let at = at.field("resources");
    if spec.pointer("/os/name").and_then(Value::as_str) == Some("windows") {
        errors.forbidden(&at, "may not be set for a windows pod");
        return;
    }
    if own.child("claims").is_some() {
        errors.forbidden(&at.field("claims"), "claims may not be set for Resources at pod-level");
    }
    validate(own, claims, &at, errors);
    for list in ["limits", "requests"] {
        for (name, _) in own.entries(list) {
            if !["cpu", "memory"].contains(&name.as_str()) && !is_huge_pages(name) {
                errors.not_supported(
                    &at.field(list).key(name),
                    name.as_str(),
                    &["cpu", "hugepages-", "memory"],
                );
            }
        }
    }
    for (name, _) in own.entries("requests") {
        let Some(most) = amount(own, "requests", name) else { continue };
        if let Some(all) = aggregate(spec, name).filter(|all| *all > most) {
            let why = format!("must be greater than or equal to aggregate container requests of {all}");
            errors.invalid(&at.field("requests").key(name), most.to_string(), why);
        }
    }
    for (i, container) in spec.list("containers").iter().enumerate() {
        let Some(resources) = container.child("resources") else { continue };
        for (name, _) in resources.entries("limits") {
            let (limit, most) = (amount(resources, "limits", name), amount(own, "limits", name));
            if let (Some(limit), Some(most)) = (limit, most)
                && limit > most
            {
                let containers = at.field("containers");
                let container = containers.index(i);
                let why = format!("must be less than or equal to pod limits of {most}");
                errors.invalid(&container.key(name).field("limits"), limit.to_string(), why);
            }
        }
    }
}

/// The claims of a container: each is one of the pod's, and none is there twice, as a whole or by request.
fn validate_claims(list: &[Value], claims: &BTreeSet<&str>, at: &Path<'_>, errors: &mut Errors) {
    let mut whole: BTreeSet<&str> = BTreeSet::new();
    let mut requests: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (i, claim) in list.iter().enumerate() {
        let at = at.index(i);
        let (name, request) = (claim.text("name"), claim.text("request"));
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        if whole.contains(name) {
            errors.duplicate(&at, name);
        } else if request.is_empty() {
            for _ in requests.get(name).into_iter().flatten() {
                errors.duplicate(&at, name);
            }
            whole.insert(name);
        } else {
            errors.format(&at.field("request"), request, names::dns1123_label(request));
            if !requests.entry(name).or_default().insert(request) {
                errors.duplicate(&at, format!("{name}/{request}"));
            }
        }
        if !claims.contains(name) {
            let known: Vec<&str> = claims.iter().copied().collect();
            let known = if known.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", known.join(", "))
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{known}");
            errors.list.push(FieldError::new(FieldErrorKind::NotFound, &at, name, detail));
        }
    }
}
