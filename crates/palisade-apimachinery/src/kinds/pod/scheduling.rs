//! Validation of affinity, spread constraints and label selectors.

use palisade_base::field_path::Path;
use serde_json::Value;

use crate::rest::meta::validate_labels;
use crate::rest::names;
use crate::rest::path::{Errors, Get};

pub(super) fn validate_affinity(affinity: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(node) = affinity.child("nodeAffinity") {
        let at = at.field("nodeAffinity");
        if let Some(required) = node.child("requiredDuringSchedulingIgnoredDuringExecution") {
            validate_node_selector(
                required,
                &at.field("requiredDuringSchedulingIgnoredDuringExecution"),
                errors,
            );
        }
        let preferred_at = at.field("preferredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in node.list("preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            let at = preferred_at.index(i);
            validate_weight(term, &at, errors);
            if let Some(preference) = term.child("preference") {
                validate_expressions(preference, &at.field("preference"), true, errors);
            }
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = affinity.child(kind) else { continue };
        let at = at.field(kind);
        let required_at = at.field("requiredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in affinity.list("requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            validate_pod_term(term, &required_at.index(i), errors);
        }
        let preferred_at = at.field("preferredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in affinity.list("preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            let at = preferred_at.index(i);
            validate_weight(term, &at, errors);
            if let Some(term) = term.child("podAffinityTerm") {
                validate_pod_term(term, &at.field("podAffinityTerm"), errors);
            }
        }
    }
}

fn validate_weight(term: &Value, at: &Path<'_>, errors: &mut Errors) {
    let weight = term.int("weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(&at.field("weight"), weight, "must be in the range 1-100");
    }
}

/// A node selector: terms of expressions.
pub(crate) fn validate_node_selector(selector: &Value, at: &Path<'_>, errors: &mut Errors) {
    let terms = selector.list("nodeSelectorTerms");
    let at = at.field("nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&at, "must have at least one node selector term");
        return;
    }
    for (i, term) in terms.iter().enumerate() {
        validate_expressions(term, &at.index(i), true, errors);
    }
}

/// The expressions of a label selector, or of a node selector term, which also compares numbers.
fn validate_expressions(owner: &Value, at: &Path<'_>, of_nodes: bool, errors: &mut Errors) {
    for (i, requirement) in owner.list("matchExpressions").iter().enumerate() {
        let expressions = at.field("matchExpressions");
        let at = expressions.index(i);
        let values = requirement.list("values");
        match requirement.text("operator") {
            "In" | "NotIn" => {
                if values.is_empty() {
                    errors.required(
                        &at.field("values"),
                        "must be specified when `operator` is 'In' or 'NotIn'",
                    );
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    errors.forbidden(
                        &at.field("values"),
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    );
                }
            }
            "Gt" | "Lt" if of_nodes => {
                if values.len() != 1 {
                    errors.required(
                        &at.field("values"),
                        "must be specified single value when `operator` is 'Lt' or 'Gt'",
                    );
                }
            }
            other => errors.invalid(&at.field("operator"), other, "not a valid selector operator"),
        }
        let version = errors.version;
        let key = requirement.text("key");
        errors.format(&at.field("key"), key, names::qualified_name(key, version));
        if !of_nodes {
            for (j, value) in values.iter().filter_map(Value::as_str).enumerate() {
                errors.format(&at.field("values").index(j), value, names::label_value(value, version));
            }
        }
    }
}

fn validate_pod_term(term: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(selector) = term.child("labelSelector") {
        spec_selector(selector, &at.field("labelSelector"), errors);
    }
    if let Some(selector) = term.child("namespaceSelector") {
        spec_selector(selector, &at.field("namespaceSelector"), errors);
    }
    for name in term.list("namespaces").iter().filter_map(Value::as_str) {
        errors.format(&at.field("namespace"), name, names::dns1123_label(name));
    }
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.required(&at.field("topologyKey"), "can not be empty");
    }
    let version = errors.version;
    errors.format(&at.field("topologyKey"), key, names::qualified_name(key, version));
}

/// A `metav1.LabelSelector`.
pub(crate) fn spec_selector(selector: &Value, at: &Path<'_>, errors: &mut Errors) {
    validate_labels(selector, "matchLabels", at, errors);
    validate_expressions(selector, at, false, errors);
}

pub(super) fn validate_spread(constraints: &[Value], at: &Path<'_>, errors: &mut Errors) {
    for (i, constraint) in constraints.iter().enumerate() {
        let here = at.index(i);
        let skew = constraint.int("maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.invalid(&here.field("maxSkew"), skew, "must be greater than zero");
        }
        let key = constraint.text("topologyKey");
        if key.is_empty() {
            errors.required(&here.field("topologyKey"), "can not be empty");
        } else {
            let version = errors.version;
            errors.format(&here.field("topologyKey"), key, names::qualified_name(key, version));
        }
        let policy = constraint.text("whenUnsatisfiable");
        if !["DoNotSchedule", "ScheduleAnyway"].contains(&policy) {
            errors.not_supported(
                &here.field("whenUnsatisfiable"),
                policy,
                &["DoNotSchedule", "ScheduleAnyway"],
            );
        }
        let repeated = constraints[i + 1..]
            .iter()
            .any(|c| c.text("topologyKey") == key && c.text("whenUnsatisfiable") == policy);
        if repeated {
            errors.duplicate(&here.field("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {policy}}}"));
        }
        if let Some(selector) = constraint.child("labelSelector") {
            spec_selector(selector, &here.field("labelSelector"), errors);
        }
    }
}
