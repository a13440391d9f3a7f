//! Kinds that make pods: pod templates, replication controllers and the `apps` group.
//!
//! Implements: `pkg/apis/apps/v1/defaults.go`, `pkg/apis/apps/validation`, `pkg/registry/apps/*/strategy.go`.

use serde_json::{Map, Value, json};

use super::pod::{default_template, spec_selector, validate_template};
use super::{Strategy, bump_generation, keep, no_reset, section, set_default, set_generation};
use crate::apply::ResetFields;
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get, Path};
use crate::scheme::Kind;
use crate::selector::LabelSelector;
use crate::status::BadValue;
use crate::version::KubeVersion;

macro_rules! workload {
    ($name:ident, $default:expr, $create:expr, $update:expr, $validate:expr, $validate_update:expr) => {
        pub(crate) static $name: Strategy = Strategy {
            default: $default,
            prepare_create: $create,
            prepare_update: $update,
            validate: $validate,
            validate_update: $validate_update,
            reset_fields: reset_status,
        };
    };
}

workload!(
    DEPLOYMENT,
    default_deployment,
    create,
    update_deployment,
    validate_deployment,
    validate_deployment_update
);
workload!(
    REPLICA_SET,
    default_replica_set,
    create,
    update,
    validate_replica_set,
    validate_replica_set_update
);
workload!(
    STATEFUL_SET,
    default_stateful_set,
    create,
    update,
    validate_stateful_set,
    validate_stateful_set_update
);
workload!(
    DAEMON_SET,
    default_daemon_set,
    create_daemon_set,
    update_daemon_set,
    validate_daemon_set,
    validate_daemon_set_update
);
workload!(
    REPLICATION_CONTROLLER,
    default_replication_controller,
    create,
    update,
    validate_replication_controller,
    validate_replication_controller_update
);

pub(crate) static POD_TEMPLATE: Strategy = Strategy {
    default: |object, version| default_template(object.get_mut("template"), version),
    prepare_create: |object, _| set_generation(object),
    prepare_update: |new, old, _, _| {
        let changed = new.get("template") != old.get("template");
        bump_generation(new, old, changed);
    },
    validate: |object, _, errors| {
        meta::validate(object, true, NameRule::Subdomain, errors);
        validate_template(object.get("template"), &Path::Root("template"), errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        validate_template(new.get("template"), &Path::Root("template"), errors);
    },
    reset_fields: no_reset,
};

pub(crate) static CONTROLLER_REVISION: Strategy = Strategy {
    default: super::no_default,
    prepare_create: super::no_prepare_create,
    prepare_update: super::no_prepare_update,
    validate: |object, _, errors| {
        meta::validate(object, true, NameRule::Subdomain, errors);
        validate_revision(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        validate_revision(new, errors);
        errors.immutable(&Path::Root("data"), new.get("data"), old.get("data"));
    },
    reset_fields: no_reset,
};

fn validate_revision(object: &Value, errors: &mut Errors) {
    if object.get("data").is_none_or(Value::is_null) {
        errors.required(&Path::Root("data"), "data is mandatory");
    }
    errors.non_negative(&Path::Root("revision"), object.int("revision"));
}

pub(super) fn reset_status(subresource: &str) -> ResetFields {
    match subresource {
        "" => ResetFields::Exclude(&[&["status"]]),
        "status" => ResetFields::Exclude(&[&["spec"], &["metadata", "labels"]]),
        _ => ResetFields::NONE,
    }
}

fn spec_of(object: &mut Value) -> Option<&mut Value> {
    section(object, "spec")
}

fn create(object: &mut Value, version: KubeVersion) {
    reset_status_field(object, version);
    set_generation(object);
}

fn reset_status_field(object: &mut Value, _: KubeVersion) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".into(), Value::Object(Map::new()));
    }
}

fn update(new: &mut Value, old: &Value, subresource: &str, _: KubeVersion) {
    if subresource == "status" {
        keep(new, old, "spec");
        return;
    }
    keep(new, old, "status");
    let changed = new.get("spec") != old.get("spec");
    bump_generation(new, old, changed);
}

fn update_deployment(new: &mut Value, old: &Value, subresource: &str, version: KubeVersion) {
    if subresource == "status" {
        keep(new, old, "spec");
        let labels = old.pointer("/metadata/labels").cloned();
        if let Some(meta) = crate::apply::metadata_mut(new) {
            match labels {
                Some(labels) => meta.insert("labels".into(), labels),
                None => meta.remove("labels"),
            };
        }
        return;
    }
    update(new, old, subresource, version);
    // Deployments also count changes of annotations.
    let annotations = |v: &Value| v.pointer("/metadata/annotations").cloned();
    if annotations(new) != annotations(old) {
        bump_generation(new, old, true);
    }
}

fn default_deployment(object: &mut Value, version: KubeVersion) {
    let Some(spec) = spec_of(object) else { return };
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    set_default(spec, "progressDeadlineSeconds", 600);
    if let Some(strategy) = section(spec, "strategy") {
        if strategy.text("type").is_empty() {
            strategy["type"] = "RollingUpdate".into();
        }
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = section(strategy, "rollingUpdate")
        {
            set_default(rolling, "maxUnavailable", "25%");
            set_default(rolling, "maxSurge", "25%");
        }
    }
    default_template(spec.get_mut("template"), version);
}

fn default_replica_set(object: &mut Value, version: KubeVersion) {
    let Some(spec) = spec_of(object) else { return };
    set_default(spec, "replicas", 1);
    default_template(spec.get_mut("template"), version);
}

fn default_stateful_set(object: &mut Value, version: KubeVersion) {
    let Some(spec) = spec_of(object) else { return };
    if spec.text("podManagementPolicy").is_empty() {
        spec["podManagementPolicy"] = "OrderedReady".into();
    }
    if let Some(strategy) = section(spec, "updateStrategy") {
        let unset = strategy.text("type").is_empty();
        if unset {
            strategy["type"] = "RollingUpdate".into();
        }
        if strategy.text("type") == "RollingUpdate"
            && (unset || strategy.child("rollingUpdate").is_some() || version.at_least(24))
            && let Some(rolling) = section(strategy, "rollingUpdate")
        {
            set_default(rolling, "partition", 0);
            if version.at_least(35) {
                set_default(rolling, "maxUnavailable", 1);
            }
        }
    }
    if version.at_least(27)
        && let Some(policy) = section(spec, "persistentVolumeClaimRetentionPolicy")
    {
        for field in ["whenDeleted", "whenScaled"] {
            if policy.text(field).is_empty() {
                policy[field] = "Retain".into();
            }
        }
    }
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    default_template(spec.get_mut("template"), version);
    for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        // Each is a whole PersistentVolumeClaim, and defaulted as one.
        set_default(claim, "kind", "PersistentVolumeClaim");
        set_default(claim, "apiVersion", "v1");
        if let Some(spec) = section(claim, "spec") {
            set_default(spec, "volumeMode", "Filesystem");
        }
        if let Some(status) = section(claim, "status")
            && status.text("phase").is_empty()
        {
            status["phase"] = "Pending".into();
        }
    }
}

fn default_daemon_set(object: &mut Value, version: KubeVersion) {
    let generation = object
        .pointer("/metadata/annotations")
        .map(|a| a.text("deprecated.daemonset.template.generation").to_owned())
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "0".to_owned());
    if let Some(meta) = crate::apply::metadata_mut(object) {
        // The internal field `templateGeneration` only survives as this annotation.
        let annotations = meta.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if annotations.is_null() {
            *annotations = Value::Object(Map::new());
        }
        if let Some(map) = annotations.as_object_mut() {
            map.insert("deprecated.daemonset.template.generation".into(), generation.into());
        }
    }
    let Some(spec) = spec_of(object) else { return };
    if let Some(strategy) = section(spec, "updateStrategy") {
        if strategy.text("type").is_empty() {
            strategy["type"] = "RollingUpdate".into();
        }
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = section(strategy, "rollingUpdate")
        {
            set_default(rolling, "maxUnavailable", 1);
            if version.at_least(22) {
                set_default(rolling, "maxSurge", 0);
            }
        }
    }
    set_default(spec, "revisionHistoryLimit", 10);
    default_template(spec.get_mut("template"), version);
}

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(map) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        map.insert("deprecated.daemonset.template.generation".into(), generation.to_string().into());
    }
}

fn template_generation(object: &Value) -> i64 {
    object
        .pointer("/metadata/annotations")
        .and_then(|a| a.text("deprecated.daemonset.template.generation").parse().ok())
        .unwrap_or(0)
}

fn create_daemon_set(object: &mut Value, version: KubeVersion) {
    create(object, version);
    if template_generation(object) < 1 {
        set_template_generation(object, 1);
    }
}

fn update_daemon_set(new: &mut Value, old: &Value, subresource: &str, version: KubeVersion) {
    update(new, old, subresource, version);
    if subresource == "status" {
        return;
    }
    let before = template_generation(old);
    let changed = new.pointer("/spec/template") != old.pointer("/spec/template");
    set_template_generation(new, if changed { before.saturating_add(1) } else { before });
}

fn default_replication_controller(object: &mut Value, version: KubeVersion) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    if let Some(labels) = labels {
        if let Some(spec) = spec_of(object)
            && spec.get("selector").and_then(Value::as_object).is_none_or(Map::is_empty)
        {
            spec["selector"] = labels.clone();
        }
        if let Some(meta) = crate::apply::metadata_mut(object)
            && meta.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
        {
            meta.insert("labels".into(), labels);
        }
    }
    let Some(spec) = spec_of(object) else { return };
    set_default(spec, "replicas", 1);
    default_template(spec.get_mut("template"), version);
}

const SPEC: Path<'static> = Path::Root("spec");

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
        errors.invalid(&at, BadValue::Json(selector.clone()), empty_rule);
    }
}

/// A workload's template: its labels must match, and its pods must restart.
fn validate_pod_template(spec: &Value, what: &str, errors: &mut Errors) {
    let at = SPEC.field("template");
    let empty = Value::Null;
    let template = spec.get("template").unwrap_or(&empty);
    let selector = spec.get("selector").map(LabelSelector::from_object);
    let labels = template.pointer("/metadata/labels");
    if let Some(selector) = selector.filter(|s| !s.is_empty())
        && !selector.matches_labels(labels)
    {
        let shown = labels.cloned().unwrap_or(Value::Null);
        errors.invalid(
            &at.field("metadata").field("labels"),
            if shown.is_null() { BadValue::Nil } else { BadValue::Json(shown) },
            "`selector` does not match template `labels`",
        );
    }
    validate_template(Some(template), &at, errors);
    let template_spec = template.get("spec").unwrap_or(&empty);
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
fn validate_int_or_percent(value: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
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

fn validate_deployment(object: &Value, kind: &Kind, errors: &mut Errors) {
    meta::validate(object, kind.namespaced, NameRule::Subdomain, errors);
    validate_deployment_spec(object, errors);
}

fn validate_deployment_spec(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    errors.non_negative(&SPEC.field("replicas"), spec.int("replicas"));
    validate_selector(spec, "empty selector is invalid for deployment", errors);
    validate_pod_template(spec, "ReplicaSet", errors);
    let strategy = spec.get("strategy").unwrap_or(&empty);
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
        other => errors.not_supported(&at.field("type"), other, &["Recreate", "RollingUpdate"]),
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

fn validate_status_numbers(new: &Value, fields: &[&str], errors: &mut Errors) {
    let at = Path::Root("status");
    let empty = Value::Null;
    let status = new.get("status").unwrap_or(&empty);
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

fn validate_deployment_update(new: &Value, old: &Value, subresource: &str, _: &Kind, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    if subresource == "status" {
        validate_status_numbers(new, DEPLOYMENT_STATUS, errors);
        return;
    }
    validate_deployment_spec(new, errors);
    immutable_selector(new, old, errors);
}

fn immutable_selector(new: &Value, old: &Value, errors: &mut Errors) {
    let (selector, before) = (new.pointer("/spec/selector"), old.pointer("/spec/selector"));
    if selector != before {
        let shown = selector.filter(|s| !s.is_null()).map_or(BadValue::Nil, BadValue::from);
        errors.invalid(&SPEC.field("selector"), shown, "field is immutable");
    }
}

fn validate_replica_set(object: &Value, kind: &Kind, errors: &mut Errors) {
    meta::validate(object, kind.namespaced, NameRule::Subdomain, errors);
    validate_replica_set_spec(object, errors);
}

fn validate_replica_set_spec(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    errors.non_negative(&SPEC.field("replicas"), spec.int("replicas"));
    errors.non_negative(&SPEC.field("minReadySeconds"), spec.int("minReadySeconds"));
    validate_selector(spec, "empty selector is invalid for deployment", errors);
    validate_pod_template(spec, "ReplicaSet", errors);
}

const SET_STATUS: &[&str] =
    &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];

fn validate_replica_set_update(new: &Value, old: &Value, subresource: &str, _: &Kind, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    if subresource == "status" {
        validate_status_numbers(new, SET_STATUS, errors);
        return;
    }
    validate_replica_set_spec(new, errors);
    immutable_selector(new, old, errors);
}

fn validate_stateful_set(object: &Value, kind: &Kind, errors: &mut Errors) {
    meta::validate(object, kind.namespaced, NameRule::Subdomain, errors);
    validate_stateful_set_spec(object, errors);
}

fn validate_stateful_set_spec(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let policies = ["OrderedReady", "Parallel"];
    match spec.text("podManagementPolicy") {
        "" => errors.required(&SPEC.field("podManagementPolicy"), ""),
        policy if policies.contains(&policy) => {}
        other => {
            errors.invalid(&SPEC.field("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'");
        }
    }
    let strategy = spec.get("updateStrategy").unwrap_or(&empty);
    let at = SPEC.field("updateStrategy");
    match strategy.text("type") {
        "" => errors.required(&at, ""),
        "OnDelete" => {
            if strategy.child("rollingUpdate").is_some() {
                errors.invalid(
                    &at.field("rollingUpdate"),
                    strategy.get("rollingUpdate").map_or(BadValue::Nil, BadValue::from),
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
        other => errors.invalid(
            &at,
            BadValue::Json(json!({"type": other})),
            "must be 'RollingUpdate' or 'OnDelete'",
        ),
    }
    errors.non_negative(&SPEC.field("replicas"), spec.int("replicas"));
    errors.non_negative(&SPEC.field("minReadySeconds"), spec.int("minReadySeconds"));
    validate_selector(spec, "empty selector is invalid for statefulset", errors);
    validate_pod_template(spec, "StatefulSet", errors);
}

fn validate_stateful_set_update(new: &Value, old: &Value, subresource: &str, _: &Kind, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    if subresource == "status" {
        validate_status_numbers(
            new,
            &["replicas", "readyReplicas", "availableReplicas", "observedGeneration"],
            errors,
        );
        return;
    }
    validate_stateful_set_spec(new, errors);
    let strip = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or(Value::Null);
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

fn validate_daemon_set(object: &Value, kind: &Kind, errors: &mut Errors) {
    meta::validate(object, kind.namespaced, NameRule::Subdomain, errors);
    validate_daemon_set_spec(object, errors);
}

fn validate_daemon_set_spec(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let at = SPEC.field("selector");
    if let Some(selector) = spec.child("selector") {
        spec_selector(selector, &at, errors);
    }
    let selector = spec.get("selector").map(LabelSelector::from_object).unwrap_or_default();
    let labels = spec.pointer("/template/metadata/labels");
    let template_at = SPEC.field("template");
    if !selector.is_empty() && !selector.matches_labels(labels) {
        let shown = labels.cloned().map_or(BadValue::Nil, BadValue::Json);
        errors.invalid(
            &template_at.field("metadata").field("labels"),
            shown,
            "`selector` does not match template `labels`",
        );
    }
    if selector.is_empty() {
        let shown = spec.child("selector").map_or(BadValue::Nil, BadValue::from);
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
    let strategy = spec.get("updateStrategy").unwrap_or(&empty);
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
                    (true, true) => errors.invalid(
                        &at.field("maxUnavailable"),
                        unavailable.map_or(BadValue::Nil, BadValue::from),
                        "cannot be 0 when maxSurge is 0",
                    ),
                    (false, false) => errors.invalid(
                        &at.field("maxSurge"),
                        surge.map_or(BadValue::Nil, BadValue::from),
                        "may not be set when maxUnavailable is non-zero",
                    ),
                    _ => {}
                }
            }
        },
        other => errors.not_supported(&at.field("type"), other, &["OnDelete", "RollingUpdate"]),
    }
    errors.non_negative(&SPEC.field("revisionHistoryLimit"), spec.int("revisionHistoryLimit"));
}

fn validate_daemon_set_update(new: &Value, old: &Value, subresource: &str, _: &Kind, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    if subresource == "status" {
        let at = Path::Root("status");
        let empty = Value::Null;
        let status = new.get("status").unwrap_or(&empty);
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
        return;
    }
    validate_daemon_set_spec(new, errors);
    immutable_selector(new, old, errors);
}

fn validate_replication_controller(object: &Value, kind: &Kind, errors: &mut Errors) {
    meta::validate(object, kind.namespaced, NameRule::Subdomain, errors);
    validate_replication_controller_spec(object, errors);
}

fn validate_replication_controller_spec(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
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

fn validate_replication_controller_update(
    new: &Value,
    old: &Value,
    subresource: &str,
    _: &Kind,
    errors: &mut Errors,
) {
    meta::validate_update(new, old, errors);
    if subresource == "status" {
        validate_status_numbers(new, SET_STATUS, errors);
    } else {
        validate_replication_controller_spec(new, errors);
    }
}
