//! Roles and bindings.
//!
//! Implements: `pkg/apis/rbac/v1/defaults.go` and `pkg/apis/rbac/validation`.
//! Leaves to others: escalation checks, which depend on the rights of the caller.

use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use palisade_base::version::KubeVersion;
use serde_json::Value;

use super::pod::spec_selector;
use super::{Strategy, internal, no_default, no_prepare_create, no_prepare_update, no_reset};
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) static ROLE: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: validate_role,
    validate_update: |new, old, _, kind, errors| {
        validate_role(new, kind, errors);
        meta::validate_update(new, old, errors);
    },
    reset_fields: no_reset,
};

pub(crate) static BINDING: Strategy = Strategy {
    default: default_binding,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: validate_binding,
    validate_update: |new, old, _, kind, errors| {
        validate_binding(new, kind, errors);
        meta::validate_update(new, old, errors);
        if new.get("roleRef") != old.get("roleRef") {
            let rule =
                if errors.version.at_least(34) { "field is immutable" } else { "cannot change roleRef" };
            let shown = new.get("roleRef").map(internal::role_ref).unwrap_or_default();
            errors.invalid(&Path::Root("roleRef"), BadValue::Plain(shown), rule);
        }
    },
    reset_fields: no_reset,
};

fn default_binding(object: &mut Value, _: KubeVersion) {
    if let Some(reference) = object.get_mut("roleRef")
        && reference.text("apiGroup").is_empty()
        && reference.is_object()
    {
        reference["apiGroup"] = GROUP.into();
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if subject.text("apiGroup").is_empty() && matches!(subject.text("kind"), "User" | "Group") {
            subject["apiGroup"] = GROUP.into();
        }
    }
}

fn validate_role(object: &Value, kind: &Kind, errors: &mut Errors) {
    meta::validate(object, kind.namespaced, NameRule::PathSegment, errors);
    let rules_at = Path::Root("rules");
    for (i, rule) in object.list("rules").iter().enumerate() {
        validate_rule(rule, kind.namespaced, &rules_at.index(i), errors);
    }
    if let Some(aggregation) = object.child("aggregationRule") {
        let root = Path::Root("aggregationRule");
        let at = root.field("clusterRoleSelectors");
        let selectors = aggregation.list("clusterRoleSelectors");
        if selectors.is_empty() {
            errors.required(&at, "at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for (i, selector) in selectors.iter().enumerate() {
            spec_selector(selector, &at.index(i), errors);
        }
    }
}

fn validate_rule(rule: &Value, namespaced: bool, at: &Path<'_>, errors: &mut Errors) {
    if rule.list("verbs").is_empty() {
        errors.required(&at.field("verbs"), "verbs must contain at least one value");
    }
    let urls = rule.list("nonResourceURLs");
    if !urls.is_empty() {
        let shown = || BadValue::Json(Value::Array(urls.to_vec()));
        if namespaced {
            errors.invalid(
                &at.field("nonResourceURLs"),
                shown(),
                "namespaced rules cannot apply to non-resource URLs",
            );
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|f| !rule.list(f).is_empty()) {
            errors.invalid(
                &at.field("nonResourceURLs"),
                shown(),
                "rules cannot apply to both regular resources and non-resource URLs",
            );
        }
        return;
    }
    if rule.list("apiGroups").is_empty() {
        errors.required(&at.field("apiGroups"), "resource rules must supply at least one api group");
    }
    if rule.list("resources").is_empty() {
        errors.required(&at.field("resources"), "resource rules must supply at least one resource");
    }
}

fn validate_binding(object: &Value, kind: &Kind, errors: &mut Errors) {
    meta::validate(object, kind.namespaced, NameRule::PathSegment, errors);
    let empty = Value::Null;
    let reference = object.get("roleRef").unwrap_or(&empty);
    let at = Path::Root("roleRef");
    if reference.text("apiGroup") != GROUP {
        errors.not_supported(&at.field("apiGroup"), reference.text("apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if kind.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&reference.text("kind")) {
        errors.not_supported(&at.field("kind"), reference.text("kind"), kinds);
    }
    let name = reference.text("name");
    if name.is_empty() {
        errors.required(&at.field("name"), "");
    } else {
        errors.format(&at.field("name"), name, names::path_segment(name));
    }
    let list_at = Path::Root("subjects");
    for (i, subject) in object.list("subjects").iter().enumerate() {
        let at = list_at.index(i);
        let (name, group) = (subject.text("name"), subject.text("apiGroup"));
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        }
        match subject.text("kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    errors.format(&at.field("name"), name, names::dns1123_subdomain(name));
                }
                if !group.is_empty() {
                    errors.not_supported(&at.field("apiGroup"), group, &[""]);
                }
                if !kind.namespaced && subject.text("namespace").is_empty() {
                    errors.required(&at.field("namespace"), "");
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    errors.not_supported(&at.field("apiGroup"), group, &[GROUP]);
                }
            }
            other => {
                errors.not_supported(&at.field("kind"), other, &["ServiceAccount", "User", "Group"]);
            }
        }
    }
}
