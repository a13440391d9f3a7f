//! ConfigMaps, Secrets, ServiceAccounts, Namespaces and the small namespaced kinds around them.
//!
//! Implements: the parts of `pkg/apis/core/validation` and `pkg/registry/core` about them.

use base64::Engine as _;
use palisade_base::field_error::BadValue;
use palisade_base::field_path::Path;
use palisade_base::version::KubeVersion;
use serde_json::{Map, Value, json};

use super::amounts;
use super::pod::spec_selector;
use super::workload::validate_int_or_percent;
use super::{
    Strategy, keep, no_default, no_prepare_create, no_prepare_update, no_reset, section, set_default,
    set_generation, update_spec_or_status, validate_meta_only,
};
use crate::apply::ResetFields;
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

/// The most bytes a ConfigMap or Secret may hold.
const MAX_SIZE: usize = 1024 * 1024;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";

pub(crate) static CONFIG_MAP: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: validate_config_map,
    validate_update: |new, old, _, kind, errors| {
        meta::validate_update(new, old, errors);
        validate_immutable(new, old, &["data", "binaryData"], errors);
        validate_config_map(new, kind, errors);
    },
    reset_fields: no_reset,
};

pub(crate) static SECRET: Strategy = Strategy {
    default: default_secret,
    prepare_create: no_prepare_create,
    prepare_update: |new, old, _, _| {
        if new.text("type").is_empty() {
            keep(new, old, "type");
        }
    },
    validate: validate_secret,
    validate_update: |new, old, _, kind, errors| {
        meta::validate_update(new, old, errors);
        errors.immutable(&Path::Root("type"), new.get("type"), old.get("type"));
        validate_immutable(new, old, &["data"], errors);
        validate_secret(new, kind, errors);
    },
    reset_fields: no_reset,
};

pub(crate) static SERVICE_ACCOUNT: Strategy = Strategy {
    default: no_default,
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: validate_meta_only,
    validate_update: |new, old, _, kind, errors| {
        meta::validate_update(new, old, errors);
        validate_meta_only(new, kind, errors);
    },
    reset_fields: no_reset,
};

pub(crate) static NAMESPACE: Strategy = Strategy {
    default: default_namespace,
    prepare_create: create_namespace,
    prepare_update: update_namespace,
    validate: |object, _, errors| {
        meta::validate(object, false, NameRule::Label, errors);
        for finalizer in object.get("spec").map_or(&[][..], |s| s.list("finalizers")) {
            let text = finalizer.as_str().unwrap_or_default();
            let spec = Path::Root("spec");
            let at = spec.field("finalizers");
            let version = errors.version;
            errors.format(&at, text, names::qualified_name(text, version));
            if !text.contains('/') && text != "kubernetes" {
                errors.invalid(
                    &at,
                    text,
                    "name is neither a standard finalizer name nor is it fully qualified",
                );
            }
        }
    },
    validate_update: |new, old, subresource, _, errors| {
        meta::validate_update(new, old, errors);
        if subresource == "status" {
            let phase = new.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
            let deleted = new.pointer("/metadata/deletionTimestamp").is_some_and(|t| !t.is_null());
            let status = Path::Root("status");
            let at = status.field("Phase");
            if !deleted && phase != "Active" {
                errors.invalid(&at, phase, "may only be 'Active' if `deletionTimestamp` is empty");
            } else if deleted && phase != "Terminating" {
                errors.invalid(&at, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
            }
        }
    },
    reset_fields: |subresource| match subresource {
        "" => ResetFields::Exclude(&[&["status"]]),
        "status" => ResetFields::Exclude(&[&["spec"]]),
        _ => ResetFields::NONE,
    },
};

/// Kinds with a spec, a status and rules that hold on create and on update.
macro_rules! spec_and_status {
    ($name:ident, $default:expr, $validate:expr, $changed:expr) => {
        pub(crate) static $name: Strategy = Strategy {
            default: $default,
            prepare_create: no_prepare_create,
            prepare_update: |new, old, subresource, _| {
                if subresource == "status" { keep(new, old, "spec") } else { keep(new, old, "status") }
            },
            validate: |object, kind, errors| {
                validate_meta_only(object, kind, errors);
                ($validate)(object, errors);
            },
            validate_update: |new, old, subresource, _, errors| {
                meta::validate_update(new, old, errors);
                if subresource.is_empty() {
                    ($validate)(new, errors);
                    ($changed)(new, old, errors);
                }
            },
            reset_fields: |subresource| match subresource {
                "" => ResetFields::Exclude(&[&["status"]]),
                "status" => ResetFields::Exclude(&[&["spec"]]),
                _ => ResetFields::NONE,
            },
        };
    };
}

spec_and_status!(CLAIM, default_claim, amounts::validate_claim, |_, _, _: &mut Errors| {});
spec_and_status!(QUOTA, no_default, amounts::validate_quota, amounts::validate_quota_update);

pub(crate) static BUDGET: Strategy = Strategy {
    default: no_default,
    prepare_create: |object, _| {
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), Value::Object(Map::new()));
        }
        set_generation(object);
    },
    prepare_update: update_spec_or_status,
    validate: |object, kind, errors| {
        validate_meta_only(object, kind, errors);
        validate_budget(object, errors);
    },
    validate_update: |new, old, subresource, _, errors| {
        meta::validate_update(new, old, errors);
        if subresource != "status" {
            validate_budget(new, errors);
        }
    },
    reset_fields: |subresource| match subresource {
        "" => ResetFields::Exclude(&[&["status"]]),
        "status" => ResetFields::Exclude(&[&["spec"]]),
        _ => ResetFields::NONE,
    },
};

/// Implements: `pkg/apis/policy/validation`.
fn validate_budget(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let at = Path::Root("spec");
    let shown = |field: &str| spec.get(field).unwrap_or(&empty).to_string();
    if spec.child("minAvailable").is_some() && spec.child("maxUnavailable").is_some() {
        let internal = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            shown("minAvailable"),
            shown("selector"),
            shown("maxUnavailable"),
            shown("unhealthyPodEvictionPolicy"),
        );
        let why = "minAvailable and maxUnavailable cannot be both set";
        errors.invalid(&at, BadValue::Plain(internal), why);
    }
    for field in ["minAvailable", "maxUnavailable"] {
        validate_int_or_percent(spec.child(field), &at.field(field), errors);
    }
    if let Some(selector) = spec.child("selector") {
        spec_selector(selector, &at.field("selector"), errors);
    }
    if let Some(policy) = spec.child("unhealthyPodEvictionPolicy").and_then(Value::as_str)
        && !matches!(policy, "AlwaysAllow" | "IfHealthyBudget")
    {
        let supported = &["AlwaysAllow", "IfHealthyBudget"];
        errors.not_supported(&at.field("unhealthyPodEvictionPolicy"), policy, supported);
    }
}

fn validate_immutable(new: &Value, old: &Value, fields: &[&'static str], errors: &mut Errors) {
    if old.flag("immutable") != Some(true) {
        return;
    }
    if new.flag("immutable") != Some(true) {
        errors.forbidden(&Path::Root("immutable"), IMMUTABLE);
    }
    for field in fields {
        if new.get(field) != old.get(field) {
            errors.forbidden(&Path::Root(field), IMMUTABLE);
        }
    }
}

fn decoded_len(text: &str) -> usize {
    base64::engine::general_purpose::STANDARD.decode(text).map_or(0, |bytes| bytes.len())
}

fn validate_config_map(object: &Value, _: &Kind, errors: &mut Errors) {
    meta::validate(object, true, NameRule::Subdomain, errors);
    let mut size = 0usize;
    let binary = object.get("binaryData");
    for (key, value) in object.entries("data") {
        let at = Path::Root("data");
        errors.format(&at.key(key), key, names::config_map_key(key));
        if binary.and_then(|b| b.get(key)).is_some() {
            errors.invalid(&at.key(key), key.as_str(), "duplicate of key present in binaryData");
        }
        size = size.saturating_add(value.as_str().map_or(0, str::len));
    }
    for (key, value) in object.entries("binaryData") {
        errors.format(&Path::Root("binaryData").key(key), key, names::config_map_key(key));
        size = size.saturating_add(value.as_str().map_or(0, decoded_len));
    }
    if size > MAX_SIZE {
        errors.too_long(&Path::Root("[]"), MAX_SIZE);
        // Upstream's path is empty, and prints so.
        if let Some(error) = errors.list.last_mut() {
            error.called = Some("[]".into());
        }
    }
}

fn default_secret(object: &mut Value, _: KubeVersion) {
    // `stringData` is write-only: it is merged into `data` on the way in.
    let plain = object.as_object_mut().and_then(|map| map.remove("stringData"));
    if let Some(Value::Object(plain)) = plain
        && let Some(data) = section(object, "data").and_then(Value::as_object_mut)
    {
        for (key, value) in plain {
            let encoded =
                base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
            data.insert(key, encoded.into());
        }
    }
    if object.text("type").is_empty() && object.is_object() {
        object["type"] = "Opaque".into();
    }
}

fn validate_secret(object: &Value, _: &Kind, errors: &mut Errors) {
    meta::validate(object, true, NameRule::Subdomain, errors);
    let at = Path::Root("data");
    let mut size = 0usize;
    for (key, value) in object.entries("data") {
        errors.format(&at.key(key), key, names::config_map_key(key));
        size = size.saturating_add(value.as_str().map_or(0, decoded_len));
    }
    if size > MAX_SIZE {
        errors.too_long(&at, MAX_SIZE);
    }
    let has = |key: &str| object.get("data").is_some_and(|d| d.get(key).is_some());
    match object.text("type") {
        "kubernetes.io/service-account-token" => {
            let account = object
                .pointer("/metadata/annotations/kubernetes.io~1service-account.name")
                .and_then(Value::as_str)
                .unwrap_or_default();
            if account.is_empty() {
                let metadata = Path::Root("metadata");
                let annotations = metadata.field("annotations");
                errors.required(&annotations.key("kubernetes.io/service-account.name"), "");
            }
        }
        "kubernetes.io/dockercfg" => validate_docker(object, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => validate_docker(object, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.required(&at.key("username"), "");
            errors.required(&at.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if !has("ssh-privatekey") => {
            errors.required(&at.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    errors.required(&at.key(key), "");
                }
            }
        }
        _ => {}
    }
}

fn validate_docker(object: &Value, key: &str, errors: &mut Errors) {
    let data = Path::Root("data");
    let at = data.key(key);
    let Some(text) = object.get("data").and_then(|d| d.get(key)).and_then(Value::as_str) else {
        errors.required(&at, "");
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    let problem = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            palisade_base::go::json_type(&other)
        ),
        Err(error) => crate::decode::syntax_error(&bytes, &error.to_string()),
    };
    errors.invalid(&at, "<secret contents redacted>", problem);
}

fn default_namespace(object: &mut Value, version: KubeVersion) {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !name.is_empty()
        && version.at_least(21)
        && let Some(meta) = crate::apply::metadata_mut(object)
    {
        let labels = meta.entry("labels").or_insert_with(|| Value::Object(Map::new()));
        if labels.is_null() {
            *labels = Value::Object(Map::new());
        }
        if let Some(labels) = labels.as_object_mut() {
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
    }
    if let Some(status) = section(object, "status")
        && status.text("phase").is_empty()
    {
        status["phase"] = "Active".into();
    }
}

fn create_namespace(object: &mut Value, version: KubeVersion) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".into(), json!({"phase": "Active"}));
    }
    if let Some(spec) = section(object, "spec")
        && let Some(spec) = spec.as_object_mut()
    {
        let finalizers = spec.entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
        if finalizers.is_null() {
            *finalizers = Value::Array(Vec::new());
        }
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|f| f == "kubernetes")
        {
            list.push("kubernetes".into());
        }
    }
    default_namespace(object, version);
}

fn update_namespace(new: &mut Value, old: &Value, subresource: &str, version: KubeVersion) {
    match subresource {
        "status" => keep(new, old, "spec"),
        "finalize" => keep(new, old, "status"),
        _ => {
            keep(new, old, "spec");
            keep(new, old, "status");
        }
    }
    default_namespace(new, version);
}

fn default_claim(object: &mut Value, _: KubeVersion) {
    if let Some(spec) = section(object, "spec") {
        set_default(spec, "volumeMode", "Filesystem");
    }
    if let Some(status) = section(object, "status")
        && status.text("phase").is_empty()
    {
        status["phase"] = "Pending".into();
    }
}

/// What containers may use where only some of it is specified.
pub(crate) static LIMIT_RANGE: Strategy = Strategy {
    default: |object, _| {
        let limits = object.pointer_mut("/spec/limits").and_then(Value::as_array_mut);
        for item in limits.into_iter().flatten().filter(|item| item.text("type") == "Container") {
            for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
                let known: Vec<(String, Value)> =
                    item.entries(from).map(|(name, amount)| (name.clone(), amount.clone())).collect();
                let Some(target) = section(item, to).and_then(Value::as_object_mut) else { continue };
                for (name, amount) in known {
                    target.entry(name).or_insert(amount);
                }
            }
        }
    },
    prepare_create: no_prepare_create,
    prepare_update: no_prepare_update,
    validate: |object, kind, errors| {
        validate_meta_only(object, kind, errors);
        amounts::validate_limit_range(object, errors);
    },
    validate_update: |new, old, _, _, errors| {
        meta::validate_update(new, old, errors);
        amounts::validate_limit_range(new, errors);
    },
    reset_fields: no_reset,
};
