//! Validation of the kinds that make pods.
//!
//! Implements: `pkg/apis/apps/validation` and the replication controllers of `pkg/apis/core/validation`.

use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use palisade_base::label_selector::LabelSelector;
use palisade_base::version::KubeVersion;
use serde_json::{Value, json};

use crate::kinds::pod::{spec_selector, validate_template};
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

const SPEC: Path<'static> = Path::Root("spec");

/// The validation of a workload kind, part by part.
pub(super) struct Rules {
    /// The release since which names become host names.
    host_names_since: Option<u16>,
    spec: fn(&Value, &mut Errors),
    /// What an update of the spec may not change.
    changes: fn(&Value, &Value, &mut Errors),
    status: fn(&Value, &mut Errors),
}

impl Rules {
    pub(super) fn create(&self, object: &Value, kind: &Kind, errors: &mut Errors) {
        let is_host_name = self.host_names_since.is_some_and(|since| kind.emulated.at_least(since));
        let rule = if is_host_name { NameRule::Label } else { NameRule::Subdomain };
        meta::validate(object, kind.namespaced, rule, errors);
        (self.spec)(object.get("spec").unwrap_or(&Value::Null), errors);
    }

    pub(super) fn update(&self, new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        if subresource == "status" {
            (self.status)(new.get("status").unwrap_or(&Value::Null), errors);
        } else {
            (self.spec)(new.get("spec").unwrap_or(&Value::Null), errors);
            (self.changes)(new, old, errors);
        }
    }
}

pub(super) const DEPLOYMENT: Rules = Rules {
    host_names_since: None,
    spec: validate_deployment_spec,
    changes: immutable_selector,
    status: |status, errors| validate_status_numbers(status, DEPLOYMENT_STATUS, errors),
};

pub(super) const REPLICA_SET: Rules = Rules {
    spec: validate_replica_set_spec,
    status: |status, errors| validate_status_numbers(status, SET_STATUS, errors),
    ..DEPLOYMENT
};

pub(super) const STATEFUL_SET: Rules = Rules {
    host_names_since: Some(28),
    spec: validate_stateful_set_spec,
    changes: validate_stateful_set_changes,
    status: validate_stateful_set_status,
};

pub(super) const DAEMON_SET: Rules =
    Rules { spec: validate_daemon_set_spec, status: validate_daemon_set_status, ..DEPLOYMENT };

pub(super) const REPLICATION_CONTROLLER: Rules =
    Rules { spec: validate_replication_controller_spec, changes: |_, _, _| {}, ..REPLICA_SET };

/// The selector of a workload; `None` if there is none to match with.
fn validate_selector(spec: &Value, empty_rule: &'static str, errors: &mut Errors) {
    let at = SPEC.field("selector");
    let Some(selector) = spec.child("selector") else {
        errors.required(&at, "");
        return;
    };
    spec_selector(selector, &at, errors);
    let is_empty =
        selector.entries("matchLabels").next().is_none() && selector.list("matchExpressions").is_empty();
    if is_empty {
        errors.invalid(&at, BadValue::selector(selector), empty_rule);
    }
}

/// Whether upstream can make a selector of it, once it has reported what is wrong with it.
fn is_convertible(selector: &Value, version: KubeVersion) -> bool {
    let names = |key: &str| names::qualified_name(key, version).is_empty();
    let value = |value: &str| names::label_value(value, version).is_empty();
    selector.entries("matchLabels").all(|(key, v)| names(key) && v.as_str().is_some_and(value))
        && selector.list("matchExpressions").iter().all(|requirement| {
            let values = requirement.list("values");
            let fits = match requirement.text("operator") {
                "In" | "NotIn" => !values.is_empty(),
                "Exists" | "DoesNotExist" => values.is_empty(),
                _ => false,
            };
            fits && names(requirement.text("key")) && values.iter().filter_map(Value::as_str).all(value)
        })
}

/// A workload's template: its labels must match, and its pods must restart.
fn validate_pod_template(spec: &Value, what: &str, errors: &mut Errors) {
    let at = SPEC.field("template");
    let empty = Value::Null;
    let template = spec.get("template").unwrap_or(&empty);
    let labels = template.pointer("/metadata/labels");
    if let Some(selector) =
        spec.child("selector").filter(|selector| !is_convertible(selector, errors.version))
    {
        let rule = if what == "ReplicaSet" { "invalid label selector" } else { "" };
        errors.invalid(&SPEC.field("selector"), BadValue::selector(selector), rule);
        // Upstream looks at the template only together with a selector it can use.
        if what == "ReplicaSet" {
            return;
        }
        validate_restarts(template, what, &at, errors);
        return;
    }
    // No selector selects nothing, and an empty one everything.
    let selector = spec.child("selector").map(LabelSelector::from_object);
    if selector.is_none_or(|selector| !selector.is_empty() && !selector.matches_labels(labels)) {
        let shown = labels.cloned().unwrap_or(Value::Null);
        errors.invalid(
            &at.field("metadata").field("labels"),
            if shown.is_null() { BadValue::Nil } else { BadValue::Json(shown) },
            "`selector` does not match template `labels`",
        );
    }
    validate_template(Some(template), &at, errors);
    validate_restarts(template, what, &at, errors);
}

/// The pods of a workload run until they are stopped.
fn validate_restarts(template: &Value, what: &str, at: &Path<'_>, errors: &mut Errors) {
    let template_spec = template.get("spec").unwrap_or(&Value::Null);
    let spec_at = at.field("spec");
    let policy = template_spec.text("restartPolicy");
    if policy != "Always" {
        errors.not_supported(&spec_at.field("restartPolicy"), policy, &["Always"]);
    }
    if template_spec.child("activeDeadlineSeconds").is_some() {
        errors.forbidden(
            &spec_at.field("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {what} is not Supported"),
        );
    }
}

/// A number or percentage; true if it is zero.
pub(crate) fn validate_int_or_percent(value: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
    match value {
        Some(Value::String(text)) => {
            errors.format(at, text, names::percent(text));
            percent_limit(text, at, errors);
        }
        Some(other) => errors.non_negative(at, other.as_i64()),
        None => {}
    }
}

fn percent_limit(text: &str, at: &Path<'_>, errors: &mut Errors) {
    let number = text.strip_suffix('%').and_then(|n| n.parse::<u64>().ok());
    if number.is_some_and(|n| n > 100) && !at.to_string().ends_with("maxSurge") {
        errors.invalid(at, text, "must not be greater than 100%");
    }
}

fn is_zero(value: Option<&Value>) -> bool {
    match value {
        None => true,
        Some(Value::String(text)) => text.strip_suffix('%').and_then(|n| n.parse::<u64>().ok()) == Some(0),
        Some(other) => other.as_i64() == Some(0),
    }
}

/// A strategy of an unknown type, as upstream's internal type prints it.
fn internal_strategy(name: &str) -> BadValue {
    BadValue::Plain(format!("{{\"Type\":{},\"RollingUpdate\":null}}", json!(name)))
}

fn internal_rolling_update(strategy: &Value) -> BadValue {
    let rolling = strategy.get("rollingUpdate").unwrap_or(&Value::Null);
    let partition = rolling.int("partition").unwrap_or(0);
    let unavailable = rolling.get("maxUnavailable").unwrap_or(&Value::Null);
    BadValue::Plain(format!("{{\"Partition\":{partition},\"MaxUnavailable\":{unavailable}}}"))
}

fn validate_deployment_spec(spec: &Value, errors: &mut Errors) {
    errors.non_negative(&SPEC.field("replicas"), spec.int("replicas"));
    validate_selector(spec, "empty selector is invalid for deployment", errors);
    validate_pod_template(spec, "ReplicaSet", errors);
    let strategy = spec.get("strategy").unwrap_or(&Value::Null);
    let at = SPEC.field("strategy");
    match strategy.text("type") {
        "Recreate" => {
            if strategy.child("rollingUpdate").is_some() {
                errors.forbidden(
                    &at.field("rollingUpdate"),
                    "may not be specified when strategy `type` is 'Recreate'",
                );
            }
        }
        "RollingUpdate" => match strategy.child("rollingUpdate") {
            None => errors.required(&at.field("rollingUpdate"), "this should be defaulted and never be nil"),
            Some(rolling) => {
                let at = at.field("rollingUpdate");
                let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
                validate_int_or_percent(unavailable, &at.field("maxUnavailable"), errors);
                validate_int_or_percent(surge, &at.field("maxSurge"), errors);
                if is_zero(unavailable) && is_zero(surge) {
                    let shown = unavailable.map_or(BadValue::Nil, BadValue::from);
                    errors.invalid(&at.field("maxUnavailable"), shown, "may not be 0 when `maxSurge` is 0");
                }
            }
        },
        other => errors.not_supported(&at, internal_strategy(other), &["Recreate", "RollingUpdate"]),
    }
    errors.non_negative(&SPEC.field("minReadySeconds"), spec.int("minReadySeconds"));
    errors.non_negative(&SPEC.field("revisionHistoryLimit"), spec.int("revisionHistoryLimit"));
    if let Some(deadline) = spec.int("progressDeadlineSeconds") {
        let at = SPEC.field("progressDeadlineSeconds");
        errors.non_negative(&at, Some(deadline));
        if deadline <= spec.int("minReadySeconds").unwrap_or(0) {
            errors.invalid(&at, deadline, "must be greater than minReadySeconds");
        }
    }
}

fn validate_status_numbers(status: &Value, fields: &[&str], errors: &mut Errors) {
    let at = Path::Root("status");
    for field in fields {
        errors.non_negative(&at.field(field), status.int(field));
    }
    let replicas = status.int("replicas").unwrap_or(0);
    let ready = status.int("readyReplicas").unwrap_or(0);
    for field in ["updatedReplicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if fields.contains(&field)
            && let Some(count) = status.int(field).filter(|c| *c > replicas)
        {
            errors.invalid(&at.field(field), count, "cannot be greater than status.replicas");
        }
    }
    if fields.contains(&"availableReplicas")
        && let Some(count) = status.int("availableReplicas").filter(|c| *c > ready)
    {
        errors.invalid(&at.field("availableReplicas"), count, "cannot be greater than readyReplicas");
    }
}

const DEPLOYMENT_STATUS: &[&str] = &[
    "observedGeneration",
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
];

fn immutable_selector(new: &Value, old: &Value, errors: &mut Errors) {
    let (selector, before) = (new.pointer("/spec/selector"), old.pointer("/spec/selector"));
    if selector != before {
        let shown = selector.filter(|s| !s.is_null()).map_or(BadValue::Nil, BadValue::selector);
        errors.invalid(&SPEC.field("selector"), shown, "field is immutable");
    }
}

fn validate_replica_set_spec(spec: &Value, errors: &mut Errors) {
    errors.non_negative(&SPEC.field("replicas"), spec.int("replicas"));
    errors.non_negative(&SPEC.field("minReadySeconds"), spec.int("minReadySeconds"));
    validate_selector(spec, "empty selector is invalid for deployment", errors);
    validate_pod_template(spec, "ReplicaSet", errors);
}

const SET_STATUS: &[&str] =
    &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];

fn validate_stateful_set_spec(spec: &Value, errors: &mut Errors) {
    let policies = ["OrderedReady", "Parallel"];
    match spec.text("podManagementPolicy") {
        "" => errors.required(&SPEC.field("podManagementPolicy"), ""),
        policy if policies.contains(&policy) => {}
        other => {
            errors.invalid(&SPEC.field("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'");
        }
    }
    let strategy = spec.get("updateStrategy").unwrap_or(&Value::Null);
    let at = SPEC.field("updateStrategy");
    match strategy.text("type") {
        "" => errors.required(&at, ""),
        "OnDelete" => {
            if strategy.child("rollingUpdate").is_some() {
                errors.invalid(
                    &at.field("rollingUpdate"),
                    internal_rolling_update(strategy),
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => {
            if let Some(rolling) = strategy.child("rollingUpdate") {
                let at = at.field("rollingUpdate");
                errors.non_negative(&at.field("partition"), rolling.int("partition"));
                if rolling.child("maxUnavailable").is_some() {
                    validate_int_or_percent(
                        rolling.get("maxUnavailable"),
                        &at.field("maxUnavailable"),
                        errors,
                    );
                    if is_zero(rolling.get("maxUnavailable")) {
                        errors.invalid(
                            &at.field("maxUnavailable"),
                            rolling.get("maxUnavailable").map_or(BadValue::Nil, BadValue::from),
                            "cannot be 0",
                        );
                    }
                }
            }
        }
        other => errors.invalid(&at, internal_strategy(other), "must be 'RollingUpdate' or 'OnDelete'"),
    }
    if let Some(policy) = spec.child("persistentVolumeClaimRetentionPolicy") {
        let at = SPEC.field("persistentVolumeClaimRetentionPolicy");
        for field in ["whenDeleted", "whenScaled"] {
            let given = policy.text(field);
            if !matches!(given, "Retain" | "Delete") {
                errors.not_supported(&at.field(field), given, &["Retain", "Delete"]);
            }
        }
    }
    errors.non_negative(&SPEC.field("replicas"), spec.int("replicas"));
    errors.non_negative(&SPEC.field("minReadySeconds"), spec.int("minReadySeconds"));
    if let Some(ordinals) = spec.child("ordinals") {
        errors.non_negative(&SPEC.field("ordinals").field("start"), ordinals.int("start"));
    }
    validate_selector(spec, "empty selector is invalid for statefulset", errors);
    validate_pod_template(spec, "StatefulSet", errors);
}

fn validate_stateful_set_status(status: &Value, errors: &mut Errors) {
    let at = Path::Root("status");
    for field in [
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ] {
        errors.non_negative(&at.field(field), status.int(field));
    }
    let count = |field: &str| status.int(field).unwrap_or(0);
    for field in ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"] {
        if count(field) > count("replicas") {
            errors.invalid(&at.field(field), count(field), "cannot be greater than status.replicas");
        }
    }
    let available = count("availableReplicas");
    if available > count("readyReplicas") {
        let rule = "cannot be greater than status.readyReplicas";
        errors.invalid(&at.field("availableReplicas"), available, rule);
    }
}

fn validate_stateful_set_changes(new: &Value, old: &Value, errors: &mut Errors) {
    let strip = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        if let Some(map) = spec.as_object_mut() {
            for field in [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ] {
                map.remove(field);
            }
        }
        spec
    };
    if strip(new) != strip(old) {
        let fields = if errors.version.at_least(33) {
            "'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', \
             'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds'"
        } else if errors.version.at_least(27) {
            "'replicas', 'ordinals', 'template', 'updateStrategy', 'persistentVolumeClaimRetentionPolicy' and \
             'minReadySeconds'"
        } else if errors.version.at_least(23) {
            "'replicas', 'template', 'updateStrategy', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds'"
        } else {
            "'replicas', 'template', and 'updateStrategy'"
        };
        errors.forbidden(
            &SPEC,
            format!("updates to statefulset spec for fields other than {fields} are forbidden"),
        );
    }
}

fn validate_daemon_set_spec(spec: &Value, errors: &mut Errors) {
    let at = SPEC.field("selector");
    if let Some(selector) = spec.child("selector") {
        spec_selector(selector, &at, errors);
    }
    let selector = spec.child("selector").map(LabelSelector::from_object);
    let labels = spec.pointer("/template/metadata/labels");
    let template_at = SPEC.field("template");
    let usable = spec.child("selector").is_none_or(|selector| is_convertible(selector, errors.version));
    if usable && selector.as_ref().is_none_or(|selector| !selector.matches_labels(labels)) {
        let shown = labels.cloned().map_or(BadValue::Nil, BadValue::Json);
        errors.invalid(
            &template_at.field("metadata").field("labels"),
            shown,
            "`selector` does not match template `labels`",
        );
    }
    if selector.is_some_and(|selector| selector.is_empty()) {
        let shown = spec.child("selector").map_or(BadValue::Nil, BadValue::selector);
        errors.invalid(&at, shown, "empty selector is invalid for daemonset");
    }
    validate_template(spec.get("template"), &template_at, errors);
    let policy = spec.pointer("/template/spec/restartPolicy").and_then(Value::as_str).unwrap_or_default();
    if policy != "Always" {
        errors.not_supported(&template_at.field("spec").field("restartPolicy"), policy, &["Always"]);
    }
    if spec.pointer("/template/spec/activeDeadlineSeconds").is_some() {
        errors.forbidden(
            &template_at.field("spec").field("activeDeadlineSeconds"),
            "activeDeadlineSeconds in DaemonSet is not Supported",
        );
    }
    errors.non_negative(&SPEC.field("minReadySeconds"), spec.int("minReadySeconds"));
    let strategy = spec.get("updateStrategy").unwrap_or(&Value::Null);
    let at = SPEC.field("updateStrategy");
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => match strategy.child("rollingUpdate") {
            None => errors.required(&at.field("rollingUpdate"), ""),
            Some(rolling) => {
                let at = at.field("rollingUpdate");
                let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
                validate_int_or_percent(unavailable, &at.field("maxUnavailable"), errors);
                validate_int_or_percent(surge, &at.field("maxSurge"), errors);
                match (is_zero(unavailable), is_zero(surge)) {
                    (true, true) => {
                        errors.required(&at.field("maxUnavailable"), "cannot be 0 when maxSurge is 0");
                    }
                    (false, false) => errors.invalid(
                        &at.field("maxSurge"),
                        surge.map_or(BadValue::Nil, BadValue::from),
                        "may not be set when maxUnavailable is non-zero",
                    ),
                    _ => {}
                }
            }
        },
        other => errors.not_supported(&at, internal_strategy(other), &["RollingUpdate", "OnDelete"]),
    }
    errors.non_negative(&SPEC.field("revisionHistoryLimit"), spec.int("revisionHistoryLimit"));
}

fn validate_daemon_set_status(status: &Value, errors: &mut Errors) {
    let at = Path::Root("status");
    for field in [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ] {
        errors.non_negative(&at.field(field), status.int(field));
    }
}

fn validate_replication_controller_spec(spec: &Value, errors: &mut Errors) {
    errors.non_negative(&SPEC.field("minReadySeconds"), spec.int("minReadySeconds"));
    let at = SPEC.field("selector");
    meta::validate_labels(spec, "selector", &SPEC, errors);
    if spec.entries("selector").next().is_none() {
        errors.required(&at, "");
    }
    errors.non_negative(&SPEC.field("replicas"), spec.int("replicas"));
    let template_at = SPEC.field("template");
    let Some(template) = spec.child("template") else {
        errors.required(&template_at, "");
        return;
    };
    let labels = template.pointer("/metadata/labels");
    let matches = spec.entries("selector").all(|(key, value)| labels.and_then(|l| l.get(key)) == Some(value));
    if !matches {
        errors.invalid(
            &template_at.field("metadata").field("labels"),
            labels.cloned().map_or(BadValue::Nil, BadValue::Json),
            "`selector` does not match template `labels`",
        );
    }
    validate_template(Some(template), &template_at, errors);
    let policy = template.pointer("/spec/restartPolicy").and_then(Value::as_str).unwrap_or_default();
    if policy != "Always" {
        errors.not_supported(&template_at.field("spec").field("restartPolicy"), policy, &["Always"]);
    }
}
