//! Limit ranges, quotas and claims: the rules about amounts.
//!
//! Implements: `ValidateLimitRange`, `ValidateResourceQuota` and `ValidatePersistentVolumeClaim` of `pkg/apis/core/validation`.
//!
//! Leaves out: data sources and selectors of claims, and ratios of limit ranges against the quotient of their bounds.

use std::collections::BTreeSet;

use palisade_base::field_path::Path;
use palisade_base::quantity::Quantity;
use serde_json::Value;

use crate::rest::names;
use crate::rest::path::{Errors, Get};

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const STORAGE: &str = "ephemeral-storage";
/// What quotas count, besides what has a domain.
const QUOTA_RESOURCES: &[&str] = &[
    CPU,
    MEMORY,
    STORAGE,
    "configmaps",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// What is counted one by one.
const COUNTED: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
const SCOPES: &[&str] = &[
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];
const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn quantity(value: &Value) -> Option<Quantity> {
    // swallowed: the decoder has rejected what is no quantity
    value.as_str().and_then(|text| Quantity::parse(text).ok())
}

/// An amount of a list such as `min`.
fn amount(item: &Value, list: &str, name: &str) -> Option<Quantity> {
    item.child(list)?.get(name).and_then(quantity)
}

pub(super) fn validate_limit_range(object: &Value, errors: &mut Errors) {
    const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    let (empty, root) = (Value::Null, Path::Root("spec"));
    let limits_at = root.field("limits");
    let limits = object.get("spec").unwrap_or(&empty).list("limits");
    for (i, item) in limits.iter().enumerate() {
        let at = limits_at.index(i);
        let kind = item.text("type");
        let kind_at = at.field("type");
        let messages = names::qualified_name(kind, errors.version);
        if !messages.is_empty() {
            errors.format(&kind_at, kind, messages);
        } else if !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
            errors.invalid(&kind_at, kind, "must be a standard limit type or fully qualified");
        }
        if limits.iter().take(i).any(|other| other.text("type") == kind) {
            errors.duplicate(&kind_at, kind);
        }
        let mut resources = BTreeSet::new();
        for list in LISTS {
            let list_at = at.field(list);
            if kind == "Pod" && list.starts_with("default") {
                if item.entries(list).next().is_some() {
                    errors.forbidden(&list_at, "may not be specified when `type` is 'Pod'");
                }
                continue;
            }
            for (name, _) in item.entries(list) {
                resources.insert(name.as_str());
                validate_resource(kind, name, &list_at.key(name), errors);
            }
        }
        if kind == "PersistentVolumeClaim"
            && ["min", "max"].iter().all(|list| amount(item, list, "storage").is_none())
        {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.required(&at.field("limits"), why);
        }
        for name in resources {
            compare_bounds(item, name, &at, errors);
        }
    }
}

/// The bounds and defaults of a resource contradict each other in no pair.
fn compare_bounds(item: &Value, name: &str, at: &Path<'_>, errors: &mut Errors) {
    // The smaller and the larger, as lists and as the messages name them; where and with which value the error is.
    const PAIRS: [(&str, &str, &str, &str, &str, &str); 6] = [
        ("min", "min", "max", "max", "min", "min"),
        ("min", "min", "defaultRequest", "default request", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "default request", "max", "max", "defaultRequest", "defaultRequest"),
        ("defaultRequest", "default request", "default", "default limit", "defaultRequest", "defaultRequest"),
        ("min", "min", "default", "default", "default", "min"),
        ("default", "default", "max", "max", "default", "max"),
    ];
    for (smaller, smaller_word, larger, larger_word, list, shown) in PAIRS {
        let (Some(low), Some(high)) = (amount(item, smaller, name), amount(item, larger, name)) else {
            continue;
        };
        if low > high {
            let value = if shown == smaller { low } else { high };
            let why = format!("{smaller_word} value {low} is greater than {larger_word} value {high}");
            errors.invalid(&at.field(list).key(name), value.to_string(), why);
        }
    }
    let ratio = amount(item, "maxLimitRequestRatio", name);
    if let Some(ratio) = ratio.filter(|ratio| ratio.milli() < 1000) {
        let why = format!("ratio {ratio} is less than 1");
        errors.invalid(&at.field("maxLimitRequestRatio").key(name), ratio.to_string(), why);
    }
}

fn validate_resource(kind: &str, name: &str, at: &Path<'_>, errors: &mut Errors) {
    let messages = names::qualified_name(name, errors.version);
    if !messages.is_empty() {
        errors.format(at, name, messages);
        return;
    }
    let known = match kind {
        "Pod" | "Container" => [CPU, MEMORY, STORAGE].contains(&name) || name.starts_with("hugepages-"),
        "PersistentVolumeClaim" => name == "storage",
        _ => true,
    };
    if !known && !name.contains('/') {
        let why = match kind {
            "PersistentVolumeClaim" => "must be a standard resource type or fully qualified",
            _ => "must be a standard resource for containers",
        };
        errors.invalid(at, name, why);
    }
}

pub(super) fn validate_quota(object: &Value, errors: &mut Errors) {
    let (empty, root) = (Value::Null, Path::Root("spec"));
    let spec = object.get("spec").unwrap_or(&empty);
    let hard_at = root.field("hard");
    for (name, value) in spec.entries("hard") {
        let at = hard_at.key(name);
        let messages = names::qualified_name(name, errors.version);
        if !messages.is_empty() {
            errors.format(&at, name, messages);
        } else if !name.contains('/') && !QUOTA_RESOURCES.contains(&name.as_str()) && !is_huge_pages(name) {
            errors.invalid(&at, name.as_str(), "must be a standard resource for quota");
        }
        let Some(amount) = quantity(value) else { continue };
        if amount.is_negative() {
            errors.invalid(&at, amount.to_string(), "must be greater than or equal to 0");
        }
        let counted = COUNTED.contains(&name.as_str()) || name.starts_with("count/");
        if counted && !amount.is_multiple_of(0) {
            errors.invalid(&at, amount.to_string(), "must be an integer");
        }
    }
    let scopes_at = root.field("scopes");
    for scope in spec.list("scopes").iter().filter_map(Value::as_str) {
        if !SCOPES.contains(&scope) {
            errors.invalid(&scopes_at, scope, "unsupported scope");
        }
    }
    let has = |scope: &str| spec.list("scopes").iter().any(|known| known == scope);
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if has(one) && has(other) {
            let scopes = spec.get("scopes").unwrap_or(&empty).to_string();
            errors.invalid(&scopes_at, scopes, "conflicting scopes");
        }
    }
}

fn is_huge_pages(name: &str) -> bool {
    name.strip_prefix("requests.").unwrap_or(name).starts_with("hugepages-")
}

/// What a quota counts stays; how much of it may change.
pub(super) fn validate_quota_update(new: &Value, old: &Value, errors: &mut Errors) {
    let scopes = |object: &Value| -> BTreeSet<String> {
        let list = object.get("spec").map_or(&[][..], |spec| spec.list("scopes"));
        list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if scopes(new) != scopes(old) {
        let at = Path::Root("spec");
        let shown = new.pointer("/spec/scopes").unwrap_or(&Value::Null).to_string();
        errors.invalid(&at.field("scopes"), shown, "field is immutable");
    }
}

pub(super) fn validate_claim(object: &Value, errors: &mut Errors) {
    let (empty, root) = (Value::Null, Path::Root("spec"));
    let spec = object.get("spec").unwrap_or(&empty);
    let (modes, at) = (spec.list("accessModes"), root.field("accessModes"));
    if modes.is_empty() {
        errors.required(&at, "at least one access mode is required");
    }
    for mode in modes.iter().filter_map(Value::as_str).filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.not_supported(&at, mode, ACCESS_MODES);
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        errors.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
    let resources_at = root.field("resources");
    let at = resources_at.key("storage");
    match spec.child("resources").and_then(|resources| amount(resources, "requests", "storage")) {
        None => errors.required(&at, ""),
        Some(wanted) if wanted.is_negative() || wanted.is_zero() => {
            errors.invalid(&at, wanted.to_string(), "must be greater than zero");
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use palisade_base::version::KubeVersion;
    use serde_json::json;

    use super::*;

    fn messages(check: fn(&Value, &mut Errors), spec: &Value) -> Vec<String> {
        let mut errors = Errors::new(KubeVersion::LATEST);
        check(&json!({"spec": spec}), &mut errors);
        errors.list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn bounds_of_a_limit_range_contradict_each_other_in_no_pair() {
        for (case, item, expected) in [
            (
                "in order",
                json!({"type": "Container", "min": {"cpu": "100m"}, "defaultRequest": {"cpu": "200m"},
                    "default": {"cpu": "300m"}, "max": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}}),
                vec![],
            ),
            (
                "min over max",
                json!({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}),
                vec![
                    r#"spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1"#,
                ],
            ),
            (
                "default over max",
                json!({"type": "Container", "default": {"memory": "2Gi"}, "max": {"memory": "1Gi"}}),
                vec![
                    r#"spec.limits[0].default[memory]: Invalid value: "1Gi": default value 2Gi is greater than max value 1Gi"#,
                ],
            ),
            (
                "defaults of pods",
                json!({"type": "Pod", "default": {"cpu": "1"}}),
                vec!["spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"],
            ),
            (
                "no storage",
                json!({"type": "PersistentVolumeClaim", "max": {}}),
                vec![
                    "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
                ],
            ),
            (
                "no such type",
                json!({"type": "Volume"}),
                vec![
                    r#"spec.limits[0].type: Invalid value: "Volume": must be a standard limit type or fully qualified"#,
                ],
            ),
            (
                "ratio",
                json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}}),
                vec![
                    r#"spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1"#,
                ],
            ),
        ] {
            assert_eq!(messages(validate_limit_range, &json!({"limits": [item]})), expected, "{case}");
        }
        let twice = json!({"limits": [{"type": "Pod"}, {"type": "Pod"}]});
        assert_eq!(
            messages(validate_limit_range, &twice),
            [r#"spec.limits[1].type: Duplicate value: "Pod""#]
        );
    }

    #[test]
    fn a_quota_counts_what_can_be_counted() {
        for (case, spec, problems) in [
            (
                "usual ones",
                json!({"hard": {"pods": "4", "cpu": "500m", "requests.memory": "1Gi", "count/jobs.batch": "2",
                    "gold.storageclass.storage.k8s.io/requests.storage": "1Gi", "requests.nvidia.com/gpu": "1",
                    "requests.hugepages-2Mi": "4Mi"}, "scopes": ["NotTerminating", "BestEffort"]}),
                0,
            ),
            ("no such resource", json!({"hard": {"pod": "1"}}), 1),
            ("half a pod", json!({"hard": {"pods": "500m"}}), 1),
            ("less than nothing", json!({"hard": {"cpu": "-1"}}), 1),
            ("no such scope", json!({"scopes": ["Best"]}), 1),
            ("opposite scopes", json!({"scopes": ["BestEffort", "NotBestEffort"]}), 1),
        ] {
            let found = messages(validate_quota, &spec);
            assert_eq!(found.len(), problems, "{case}: {found:?}");
        }
        let mut errors = Errors::new(KubeVersion::LATEST);
        let scoped = json!({"spec": {"scopes": ["BestEffort"]}});
        validate_quota_update(&scoped, &json!({"spec": {}}), &mut errors);
        assert_eq!(errors.list.len(), 1);
    }

    #[test]
    fn a_claim_has_access_modes_and_a_size() {
        let size = json!({"requests": {"storage": "1Gi"}});
        for (case, spec, problems) in [
            ("usual", json!({"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "resources": size}), 0),
            ("nothing", json!({}), 2),
            ("unknown mode", json!({"accessModes": ["Write"], "resources": size}), 1),
            (
                "one pod and others",
                json!({"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"], "resources": size}),
                1,
            ),
            (
                "no bytes",
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0"}}}),
                1,
            ),
        ] {
            let found = messages(validate_claim, &spec);
            assert_eq!(found.len(), problems, "{case}: {found:?}");
        }
    }
}
