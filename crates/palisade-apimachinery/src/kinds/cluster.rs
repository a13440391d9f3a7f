//! Nodes, leases, events and webhook configurations.
//!
//! Implements: the parts of `pkg/apis/core`, `pkg/apis/coordination`, `pkg/apis/events` and
//! `pkg/apis/admissionregistration` about them.

use serde_json::Value;

use super::{
    Strategy, bump_generation, keep, no_default, no_prepare_create, no_prepare_update, no_reset, set_default,
    set_generation,
};
use crate::apply::ResetFields;
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get, Path};
use crate::scheme::Kind;
use crate::status::BadValue;

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
            errors.duplicate(&at, BadValue::Json(taint.clone()));
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

pub(crate) static WEBHOOKS: Strategy = Strategy {
    default: |object, _| {
        let mutating = object.text("kind") == "MutatingWebhookConfiguration";
        for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
            set_default(webhook, "failurePolicy", "Fail");
            set_default(webhook, "matchPolicy", "Equivalent");
            set_default(webhook, "namespaceSelector", Value::Object(serde_json::Map::new()));
            set_default(webhook, "objectSelector", Value::Object(serde_json::Map::new()));
            set_default(webhook, "timeoutSeconds", 10);
            if mutating {
                set_default(webhook, "reinvocationPolicy", "Never");
            }
            for rule in webhook.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten() {
                set_default(rule, "scope", "*");
            }
            if let Some(service) = webhook.pointer_mut("/clientConfig/service").filter(|s| s.is_object()) {
                set_default(service, "port", 443);
            }
        }
    },
    prepare_create: |object, _| set_generation(object),
    prepare_update: |new, old, _, _| {
        let changed = new.get("webhooks") != old.get("webhooks");
        bump_generation(new, old, changed);
    },
    validate: validate_webhooks,
    validate_update: |new, old, _, kind, errors| {
        meta::validate_update(new, old, errors);
        validate_webhooks(new, kind, errors);
    },
    reset_fields: no_reset,
};

fn validate_webhooks(object: &Value, _: &Kind, errors: &mut Errors) {
    meta::validate(object, false, NameRule::Subdomain, errors);
    let list_at = Path::Root("webhooks");
    let mut seen: Vec<&str> = Vec::new();
    for (i, webhook) in object.list("webhooks").iter().enumerate() {
        let at = list_at.index(i);
        let name = webhook.text("name");
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else {
            let messages = names::dns1123_subdomain(name);
            if !messages.is_empty() {
                errors.invalid(&at.field("name"), name, messages.join(","));
            } else if name.split('.').count() < 3 {
                errors.invalid(
                    &at.field("name"),
                    name,
                    "should be a domain with at least three segments separated by dots",
                );
            }
        }
        if seen.contains(&name) {
            errors.duplicate(&at.field("name"), name);
        }
        seen.push(name);
        let versions = webhook.list("admissionReviewVersions");
        if versions.is_empty() {
            errors.required(&at.field("admissionReviewVersions"), "must specify one of v1, v1beta1");
        } else if !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
            errors.invalid(
                &at.field("admissionReviewVersions"),
                BadValue::Json(Value::Array(versions.to_vec())),
                "must include at least one of v1, v1beta1",
            );
        }
        match webhook.child("sideEffects").and_then(Value::as_str) {
            None => errors.required(&at.field("sideEffects"), "must specify one of None, NoneOnDryRun"),
            Some("None" | "NoneOnDryRun") => {}
            Some(other) => errors.not_supported(&at.field("sideEffects"), other, &["None", "NoneOnDryRun"]),
        }
        if let Some(seconds) = webhook.int("timeoutSeconds").filter(|s| !(1..=30).contains(s)) {
            errors.invalid(
                &at.field("timeoutSeconds"),
                seconds,
                "the timeout value must be between 1 and 30 seconds",
            );
        }
        let config = webhook.get("clientConfig").unwrap_or(&Value::Null);
        let one = config.child("url").is_some() != config.child("service").is_some();
        if !one {
            errors.required(&at.field("clientConfig"), "exactly one of url or service is required");
        }
    }
}
