//! Validation of resource limits and requests.

use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use palisade_base::quantity::Quantity;
use serde_json::Value;

use crate::rest::names;
use crate::rest::path::Errors;

fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| Quantity::parse(text).ok())
}

pub(super) fn validate_list(list: &Value, at: &Path<'_>, errors: &mut Errors) {
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

pub(super) fn validate(resources: &Value, at: &Path<'_>, errors: &mut Errors) {
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
}
