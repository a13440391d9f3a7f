//! Nodes, runtime classes, leases and events.
//!
//! Implements: the parts of `pkg/apis/core`, `pkg/apis/node`, `pkg/apis/coordination` and `pkg/apis/events` about them.

use std::collections::BTreeSet;

use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use serde_json::Value;

use super::{Strategy, keep, no_default, no_prepare_create, no_prepare_update, no_reset, pod};
use crate::apply::ResetFields;
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};

pub(crate) static NODE: Strategy = Strategy {
    default: |object, _| {
        if let Some(status) = object.get_mut("status")
            && status.child("allocatable").is_none()
            && let Some(capacity) = status.child("capacity").cloned()
            && let Some(map) = status.as_object_mut()
        {
            map.insert("allocatable".into(), capacity);
        }
    },
    prepare_create: no_prepare_create,
    prepare_update: |new, old, subresource, _| {
        if subresource == "status" { keep(new, old, "spec") } else { keep(new, old, "status") }
    },
    validate: |object, _, errors| {
        meta::validate(object, false, NameRule::Subdomain, errors);
        validate_taints(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        let spec = Path::Root("spec");
        let before = old.pointer("/spec/podCIDRs").and_then(Value::as_array);
        if before.is_some_and(|b| {
            !b.is_empty() && Some(b) != new.pointer("/spec/podCIDRs").and_then(Value::as_array)
        }) {
            errors.forbidden(
                &spec.field("podCIDRs"),
                "node updates may not change podCIDR except from \"\" to valid",
            );
        }
        let text =
            |v: &Value| v.pointer("/spec/providerID").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !text(old).is_empty() && text(old) != text(new) {
            errors.forbidden(
                &spec.field("providerID"),
                "node updates may not change providerID except from \"\" to valid",
            );
        }
        validate_taints(new, errors);
    },
    reset_fields: |subresource| match subresource {
        "" => ResetFields::Exclude(&[&["status"]]),
        "status" => ResetFields::Exclude(&[&["spec"]]),
        _ => ResetFields::NONE,
    },
};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn validate_taints(object: &Value, errors: &mut Errors) {
    let metadata = Path::Root("metadata");
    let list_at = metadata.field("taints");
    let taints = object.get("spec").map_or(&[][..], |s| s.list("taints"));
    for (i, taint) in taints.iter().enumerate() {
        let at = list_at.index(i);
        let version = errors.version;
        let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
        errors.format(&at.field("key"), key, names::qualified_name(key, version));
        let messages = names::label_value(value, version);
        if !messages.is_empty() {
            errors.invalid(&at.field("value"), value, messages.join(";"));
        }
        if effect.is_empty() {
            errors.required(&at.field("effect"), "");
        } else if !EFFECTS.contains(&effect) {
            errors.not_supported(&at.field("effect"), effect, EFFECTS);
        }
        let twice = taints[..i].iter().any(|t| t.text("key") == key && t.text("effect") == effect);
        if twice {
            // Upstream shows its internal type.
            let text = |field: &str| Value::from(taint.text(field));
            let added = taint.get("timeAdded").unwrap_or(&Value::Null);
            let (key, value, effect) = (text("key"), text("value"), text("effect"));
            errors.duplicate(
                &at,
                BadValue::Plain(format!(
                    "{{\"Key\":{key},\"Value\":{value},\"Effect\":{effect},\"TimeAdded\":{added}}}"
                )),
            );
        }
    }
}

pub(crate) static RUNTIME_CLASS: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: |object, _, errors| {
        meta::validate(object, false, NameRule::Subdomain, errors);
        validate_runtime_class(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        errors.immutable(&Path::Root("handler"), new.get("handler"), old.get("handler"));
    },
    reset_fields: no_reset,
};

fn validate_runtime_class(class: &Value, errors: &mut Errors) {
    let (handler, at) = (class.text("handler"), Path::Root("handler"));
    if handler.is_empty() {
        errors.required(&at, "");
    } else {
        errors.format(&at, handler, names::dns1123_label(handler));
    }
    if let Some(fixed) = class.child("overhead").and_then(|overhead| overhead.child("podFixed")) {
        pod::validate_amounts(fixed, &Path::Root("overhead").field("limits"), errors);
    }
    let Some(scheduling) = class.child("scheduling") else { return };
    let at = Path::Root("scheduling");
    meta::validate_labels(scheduling, "nodeSelector", &at, errors);
    let (tolerations, at) = (scheduling.list("tolerations"), at.field("tolerations"));
    pod::validate_tolerations(tolerations, &at, errors);
    let mut seen = BTreeSet::new();
    for (i, toleration) in tolerations.iter().enumerate() {
        if !seen.insert(["key", "operator", "value", "effect"].map(|field| toleration.text(field))) {
            let shown = super::internal::toleration(toleration, errors.version);
            errors.duplicate(&at.index(i), BadValue::Plain(shown));
        }
    }
}

pub(crate) static LEASE: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: |object, _, errors| {
        meta::validate(object, true, NameRule::Subdomain, errors);
        validate_lease(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        validate_lease(new, errors);
    },
    reset_fields: no_reset,
};

fn validate_lease(object: &Value, errors: &mut Errors) {
    let spec_at = Path::Root("spec");
    let Some(spec) = object.get("spec") else { return };
    if let Some(seconds) = spec.int("leaseDurationSeconds").filter(|s| *s <= 0) {
        errors.invalid(&spec_at.field("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    if let Some(count) = spec.int("leaseTransitions").filter(|c| *c < 0) {
        let rule = if errors.version.at_least(29) {
            "must be greater than or equal to 0"
        } else {
            "must to greater or equal than 0"
        };
        errors.invalid(&spec_at.field("leaseTransitions"), count, rule);
    }
}

pub(crate) static EVENT: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: |object, _, errors| {
        meta::validate(object, true, NameRule::Subdomain, errors);
        validate_event_namespace(object, "involvedObject", errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        validate_event_namespace(new, "involvedObject", errors);
    },
    reset_fields: no_reset,
};

pub(crate) static NEW_EVENT: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: |object, _, errors| {
        meta::validate(object, true, NameRule::Subdomain, errors);
        validate_event_namespace(object, "regarding", errors);
        if object.child("eventTime").is_none() {
            errors.required(&Path::Root("eventTime"), "");
        }
        for field in ["reportingController", "reportingInstance", "action", "reason"] {
            if object.text(field).is_empty() {
                errors.required(&Path::Root(field), "");
            }
        }
        let kind = object.text("type");
        if kind != "Normal" && kind != "Warning" {
            errors.invalid(&Path::Root("type"), "", format!("has invalid value: {kind}"));
        }
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        validate_event_namespace(new, "regarding", errors);
    },
    reset_fields: no_reset,
};

fn validate_event_namespace(object: &Value, reference: &'static str, errors: &mut Errors) {
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    let empty = Value::Null;
    let involved = object.get(reference).unwrap_or(&empty);
    let of = involved.text("namespace");
    let root = Path::Root("involvedObject");
    let at = root.field("namespace");
    if of.is_empty() {
        // Events about cluster-scoped objects live in the default or the system namespace.
        if namespace != "default" && namespace != "kube-system" {
            errors.invalid(&at, of, "does not match event.namespace");
        }
    } else if of != namespace {
        errors.invalid(&at, of, "does not match event.namespace");
    }
    errors.format(&Path::Root("namespace"), namespace, names::dns1123_subdomain(namespace));
}
