//! Kinds that make pods: pod templates, replication controllers and the `apps` group.
//!
//! Implements: `pkg/apis/apps/v1/defaults.go`, `pkg/apis/apps/validation`, `pkg/registry/apps/*/strategy.go`.

mod validate;

pub(crate) use validate::validate_int_or_percent;

use serde_json::{Map, Value};

use super::pod::{default_template, validate_template};
use super::{
    Strategy, bump_generation, keep, no_reset, section, set_default, set_generation, update_spec_or_status,
};
use crate::apply::ResetFields;
use crate::rest::meta::{self, NameRule};
use crate::rest::path::{Errors, Get};
use palisade_base::field_path::Path;
use palisade_base::version::KubeVersion;

macro_rules! workload {
    ($name:ident, $default:expr, $create:expr, $update:expr) => {
        pub(crate) static $name: Strategy = Strategy {
            default: $default,
            prepare_create: $create,
            prepare_update: $update,
            validate: |object, kind, errors| validate::$name.create(object, kind, errors),
            validate_update: |new, old, subresource, _, errors| {
                validate::$name.update(new, old, subresource, errors);
            },
            reset_fields: reset_status,
        };
    };
}

workload!(DEPLOYMENT, default_deployment, create, update_deployment);
workload!(REPLICA_SET, default_replica_set, create, update_spec_or_status);
workload!(STATEFUL_SET, default_stateful_set, create, update_spec_or_status);
workload!(DAEMON_SET, default_daemon_set, create_daemon_set, update_daemon_set);
workload!(REPLICATION_CONTROLLER, default_replication_controller, create, update_spec_or_status);

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
    update_spec_or_status(new, old, subresource, version);
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
    update_spec_or_status(new, old, subresource, version);
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
