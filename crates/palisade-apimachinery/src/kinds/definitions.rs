//! `CustomResourceDefinition` objects.
//!
//! Implements: `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/{v1/defaults.go,validation}` and
//! `…/registry/customresourcedefinition/strategy.go`. The schema itself is judged by [`crate::crd`].

use palisade_base::field_error::{BadValue, FieldError};
use palisade_base::field_path::Path;
use palisade_base::version::KubeVersion;
use serde_json::{Map, Value, json};

use super::{Strategy, section, set_default, set_generation, update_spec_or_status, webhooks};
use crate::apply::ResetFields;
use crate::crd::{rule_checks, structural};
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

pub(crate) static DEFINITION: Strategy = Strategy {
    default: default_definition,
    prepare_create,
    prepare_update: |new, old, subresource, version| {
        update_spec_or_status(new, old, subresource, version);
        if subresource != "status" {
            add_stored_version(new);
        }
    },
    validate: |object, kind, errors| {
        validate_name(object, errors);
        validate_spec(object, kind, errors);
        validate_approval(object, errors);
    },
    validate_update: |new, old, subresource, kind, errors| {
        meta::validate_general_update(new, old, errors);
        if subresource == "status" {
            validate_stored_versions(new, errors);
            return;
        }
        validate_spec(new, kind, errors);
        let established = crate::crd::establish::is_established(old);
        if established {
            let spec = Path::Root("spec");
            errors.immutable(&spec.field("scope"), new.pointer("/spec/scope"), old.pointer("/spec/scope"));
            errors.immutable(
                &spec.field("names").field("kind"),
                new.pointer("/spec/names/kind"),
                old.pointer("/spec/names/kind"),
            );
            errors.immutable(
                &spec.field("names").field("plural"),
                new.pointer("/spec/names/plural"),
                old.pointer("/spec/names/plural"),
            );
        }
        let spec = Path::Root("spec");
        errors.immutable(&spec.field("group"), new.pointer("/spec/group"), old.pointer("/spec/group"));
        validate_stored_versions(new, errors);
    },
    reset_fields: |subresource| match subresource {
        "" => ResetFields::Exclude(&[&["status"]]),
        "status" => ResetFields::Exclude(&[&["metadata"], &["spec"]]),
        _ => ResetFields::NONE,
    },
};

fn default_definition(object: &mut Value, _: KubeVersion) {
    let Some(spec) = section(object, "spec") else { return };
    if let Some(names) = section(spec, "names") {
        let kind = names.text("kind").to_owned();
        if names.text("singular").is_empty() {
            names["singular"] = kind.to_lowercase().into();
        }
        if names.text("listKind").is_empty() && !kind.is_empty() {
            names["listKind"] = format!("{kind}List").into();
        }
    }
    set_default(spec, "conversion", json!({}));
    if let Some(conversion) = section(spec, "conversion").filter(|c| c.text("strategy").is_empty()) {
        conversion["strategy"] = "None".into();
    }
    if let Some(service) =
        spec.pointer_mut("/conversion/webhook/clientConfig/service").filter(|s| s.is_object())
    {
        set_default(service, "port", 443);
    }
}

fn prepare_create(object: &mut Value, _: KubeVersion) {
    if let Some(map) = object.as_object_mut() {
        map.insert("status".into(), Value::Object(Map::new()));
    }
    set_generation(object);
    add_stored_version(object);
}

/// The storage version is remembered, so that it is never dropped while objects are stored in it.
fn add_stored_version(object: &mut Value) {
    let storage = object
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .and_then(|versions| versions.iter().find(|v| v.flag("storage") == Some(true)))
        .map(|v| v.text("name").to_owned());
    let (Some(storage), Some(status)) = (storage, section(object, "status")) else { return };
    let Some(status) = status.as_object_mut() else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| Value::Array(Vec::new()));
    if stored.is_null() {
        *stored = Value::Array(Vec::new());
    }
    if let Some(list) = stored.as_array_mut()
        && !list.iter().any(|v| v.as_str() == Some(&storage))
    {
        list.push(storage.into());
    }
}

const SPEC: Path<'static> = Path::Root("spec");

fn validate_name(object: &Value, errors: &mut Errors) {
    meta::validate_general(object, false, NameRule::Subdomain, errors);
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = text("/metadata/name");
    if !name.is_empty() && name != format!("{}.{}", text("/spec/names/plural"), text("/spec/group")) {
        let at = Path::Root("metadata");
        errors.invalid(&at.field("name"), name, "must be spec.names.plural+\".\"+spec.group");
    }
}

fn joined(at: &Path<'_>, value: &str, messages: &[String], prefix: &str, errors: &mut Errors) {
    if !messages.is_empty() {
        errors.invalid(at, value, format!("{prefix}{}", messages.join(",")));
    }
}

fn validate_spec(object: &Value, _: &Kind, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let group = spec.text("group");
    if group.is_empty() {
        errors.required(&SPEC.field("group"), "");
    } else if !names::dns1123_subdomain(group).is_empty() {
        joined(&SPEC.field("group"), group, &names::dns1123_subdomain(group), "", errors);
    } else if !group.contains('.') {
        errors.invalid(&SPEC.field("group"), group, "should be a domain with at least one dot");
    }
    match spec.text("scope") {
        "Cluster" | "Namespaced" => {}
        "" => errors.required(&SPEC.field("scope"), ""),
        other => errors.not_supported(&SPEC.field("scope"), other, &["Cluster", "Namespaced"]),
    }
    let versions_at = SPEC.field("versions");
    let versions = spec.list("versions");
    for (i, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            let at = versions_at.index(i);
            let schema = at.field("schema");
            errors.required(&schema.field("openAPIV3Schema"), "");
        }
    }
    // A schema all versions share moves up to the definition inside upstream, and errors with it.
    let first = versions.first().and_then(|v| v.pointer("/schema/openAPIV3Schema"));
    let shared = versions.iter().skip(1).all(|v| v.pointer("/schema/openAPIV3Schema") == first);
    for (i, version) in versions.iter().enumerate() {
        let at = versions_at.index(i);
        let name = version.text("name");
        joined(&at.field("name"), name, &names::dns1035_label(name), "", errors);
        if !shared && let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            let schema_at = at.field("schema");
            structural::validate(schema, &schema_at.field("openAPIV3Schema"), errors);
        }
        for (j, column) in version.list("additionalPrinterColumns").iter().enumerate() {
            let columns = at.field("additionalPrinterColumns");
            validate_column(column, &columns.index(j), errors);
        }
    }
    let shown = || shown_versions(versions);
    let repeated =
        (1..versions.len()).any(|i| versions[..i].iter().any(|v| v.text("name") == versions[i].text("name")));
    if repeated {
        errors.invalid(&versions_at, shown(), "must contain unique version names");
    }
    if versions.iter().filter(|v| v.flag("storage") == Some(true)).count() != 1 {
        errors.invalid(&versions_at, shown(), "must have exactly one version marked as storage version");
    }
    validate_names(spec.get("names").unwrap_or(&empty), errors);
    for (i, version) in versions.iter().enumerate() {
        // As with schemas, what all versions share is the definition's.
        let alike = versions.iter().all(|v| v.get("selectableFields") == version.get("selectableFields"));
        let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&empty);
        let at = versions_at.index(i);
        if !alike && shared && !version.list("selectableFields").is_empty() {
            // Upstream wants both in one place.
            let rule = "may only be set when `version.schema.openAPIV3Schema` is not included";
            errors.invalid(&at.field("selectableFields"), "", rule);
        } else if !alike {
            validate_selectable(
                version.list("selectableFields"),
                schema,
                &at.field("selectableFields"),
                errors,
            );
        } else if i == 0 {
            let at = SPEC.field("selectableFields");
            validate_selectable(version.list("selectableFields"), schema, &at, errors);
        }
    }
    if spec.flag("preserveUnknownFields") == Some(true) {
        errors.invalid(&SPEC.field("preserveUnknownFields"), true, "must be false");
    }
    for (i, version) in versions.iter().enumerate() {
        if let Some(scale) = version.pointer("/subresources/scale").filter(|s| s.is_object()) {
            let at = versions_at.index(i);
            let own = at.field("subresources");
            // As with schemas, what all versions share is the definition's.
            let alike = versions.iter().all(|v| v.get("subresources") == version.get("subresources"));
            if !alike {
                validate_scale(scale, &own.field("scale"), errors);
            } else if i == 0 {
                let common = SPEC.field("subresources");
                validate_scale(scale, &common.field("scale"), errors);
            }
        }
    }
    validate_conversion(spec.get("conversion").unwrap_or(&empty), errors);
    if shared && let Some(schema) = first.filter(|s| !s.is_null()) {
        let validation = SPEC.field("validation");
        structural::validate(schema, &validation.field("openAPIV3Schema"), errors);
    }
}

/// Versions that objects may be stored in must stay.
fn validate_stored_versions(definition: &Value, errors: &mut Errors) {
    let status = Path::Root("status");
    let at = status.field("storedVersions");
    let stored = definition.get("status").map_or(&[][..], |status| status.list("storedVersions"));
    if stored.is_empty() {
        errors.invalid(&at, BadValue::Nil, "must have at least one stored version");
        return;
    }
    let versions = definition.get("spec").map_or(&[][..], |spec| spec.list("versions"));
    let is_stored = |name: &str| stored.iter().any(|v| v.as_str() == Some(name));
    for version in versions {
        let name = version.text("name");
        if version.flag("storage") == Some(true) && !is_stored(name) {
            let shown = BadValue::Plain(shown_version(version));
            errors.invalid(&at, shown, format!("must have the storage version {name}"));
        }
    }
    for (i, version) in stored.iter().enumerate() {
        let name = version.as_str().unwrap_or_default();
        if !versions.iter().any(|v| v.text("name") == name) {
            errors.invalid(&at.index(i), name, "must appear in spec.versions");
        }
    }
}

/// The versions as upstream's internal type prints them, where what all of them share has moved up.
fn shown_versions(versions: &[Value]) -> BadValue {
    if versions.is_empty() {
        return BadValue::Nil;
    }
    let shown: Vec<String> = versions.iter().map(shown_version).collect();
    BadValue::Plain(format!("[{}]", shown.join(",")))
}

fn shown_version(version: &Value) -> String {
    let flag = |key: &str| version.flag(key).unwrap_or(false);
    let warning = version.get("deprecationWarning").unwrap_or(&Value::Null);
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{warning},\"Schema\":null,\
         \"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
        json!(version.text("name")),
        flag("served"),
        flag("storage"),
        flag("deprecated"),
    )
}

fn validate_scale(scale: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (field, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let path = scale.text(field);
        if path.is_empty() {
            errors.required(&at.field(field), "");
        } else if !path.starts_with('.') {
            errors.invalid(&at.field(field), path, "must be a simple json path starting with .");
        } else if !path.starts_with(root) {
            let rule = format!("should be a json path under {}", root.trim_end_matches('.'));
            errors.invalid(&at.field(field), path, rule);
        }
    }
    if let Some(path) = scale.child("labelSelectorPath").and_then(Value::as_str)
        && !path.is_empty()
        && !path.starts_with(".spec.")
        && !path.starts_with(".status.")
    {
        let rule = "should be a json path under either .spec or .status";
        errors.invalid(&at.field("labelSelectorPath"), path, rule);
    }
}

/// The fields of one version that lists can be selected by.
fn validate_selectable(fields: &[Value], schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    const MOST: usize = 8;
    let mut seen: Vec<&str> = Vec::new();
    for (i, field) in fields.iter().enumerate() {
        let path = field.text("jsonPath");
        let at = at.index(i);
        if path.is_empty() {
            errors.required(&at.field("jsonPath"), "");
            continue;
        }
        let found = match rule_checks::field_schema(path, schema) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(&at.field("jsonPath"), path, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if path == ".metadata" || path.starts_with(".metadata.") {
            errors.invalid(&at.field("jsonPath"), path, "must not point to fields in metadata");
        }
        if !matches!(found.text("type"), "boolean" | "integer" | "string") {
            let rule = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                        formats are allowed.";
            errors.invalid(&at.field("jsonPath"), path, rule);
        }
        if seen.contains(&path) {
            errors.duplicate(&at.field("jsonPath"), path);
        } else {
            seen.push(path);
        }
    }
    if seen.len() > MOST {
        errors.list.push(FieldError::too_many(at, seen.len(), MOST));
    }
}

fn validate_conversion(conversion: &Value, errors: &mut Errors) {
    let at = SPEC.field("conversion");
    let config_at = at.field("webhookClientConfig");
    let versions_at = at.field("conversionReviewVersions");
    let webhook = conversion.child("webhook");
    let config = webhook.and_then(|w| w.child("clientConfig"));
    let versions = webhook.map_or(&[][..], |w| w.list("conversionReviewVersions"));
    match conversion.text("strategy") {
        "Webhook" => {
            match config {
                None => errors.required(&config_at, "required when strategy is set to Webhook"),
                Some(config) => validate_client_config(config, &config_at, errors),
            }
            if versions.is_empty() {
                errors.required(&versions_at, "");
            } else {
                webhooks::recognized_versions(versions, &versions_at, errors);
            }
        }
        strategy => {
            match strategy {
                "None" => {}
                "" => errors.required(&at.field("strategy"), ""),
                other => errors.not_supported(&at.field("strategy"), other, &["None", "Webhook"]),
            }
            let rule = "should not be set when strategy is not set to Webhook";
            if config.is_some() {
                errors.forbidden(&config_at, rule);
            }
            if !versions.is_empty() {
                errors.forbidden(&versions_at, rule);
            }
        }
    }
}

fn validate_client_config(config: &Value, at: &Path<'_>, errors: &mut Errors) {
    match (config.child("url").and_then(Value::as_str), config.child("service")) {
        (Some(url), None) => webhooks::validate_url(url, &at.field("url"), errors),
        (None, Some(service)) => webhooks::validate_service(service, &at.field("service"), errors),
        _ => errors.required(at, "exactly one of url or service is required"),
    }
}

/// Groups of the Kubernetes community need its approval.
fn validate_approval(object: &Value, errors: &mut Errors) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const PULL: &str = "https://github.com/kubernetes/enhancements/pull/1111";
    let group = object.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let protected = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    if !protected("k8s.io") && !protected("kubernetes.io") {
        return;
    }
    let metadata = Path::Root("metadata");
    let annotations = metadata.field("annotations");
    let at = annotations.key(ANNOTATION);
    let given = object.pointer("/metadata/annotations").map_or("", |a| a.text(ANNOTATION));
    if given.is_empty() {
        let rule = format!("protected groups must have approval annotation \"{ANNOTATION}\", see {PULL}");
        errors.required(&at, rule);
        return;
    }
    let is_url = given.contains("://") && !given.contains(' ');
    if !is_url && !given.starts_with("unapproved") {
        let rule = format!(
            "protected groups must have approval annotation \"{ANNOTATION}\" with either a URL or a reason starting \
             with \"unapproved\", see {PULL}"
        );
        errors.invalid(&at, given, rule);
    }
}

fn validate_names(given: &Value, errors: &mut Errors) {
    let at = SPEC.field("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        if given.text(field).is_empty() {
            errors.required(&at.field(field), "");
        }
    }
    for field in ["plural", "singular"] {
        let name = given.text(field);
        if !name.is_empty() {
            joined(&at.field(field), name, &names::dns1035_label(name), "", errors);
        }
    }
    for field in ["kind", "listKind"] {
        let name = given.text(field);
        if !name.is_empty() {
            let messages = names::dns1035_label(&name.to_lowercase());
            joined(
                &at.field(field),
                name,
                &messages,
                "may have mixed case, but should otherwise match: ",
                errors,
            );
        }
    }
    for field in ["shortNames", "categories"] {
        for (i, name) in given.list(field).iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            joined(&at.field(field).index(i), name, &names::dns1035_label(name), "", errors);
        }
    }
    let kind = given.text("kind");
    if !kind.is_empty() && kind == given.text("listKind") {
        errors.invalid(&at.field("listKind"), kind, "kind and listKind may not be the same");
    }
}

fn validate_column(column: &Value, at: &Path<'_>, errors: &mut Errors) {
    const TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
    if column.text("name").is_empty() {
        errors.required(&at.field("name"), "");
    }
    let kind = column.text("type");
    let rule = format!("must be one of {}", TYPES.join(","));
    if kind.is_empty() {
        errors.required(&at.field("type"), rule);
    } else if !TYPES.contains(&kind) {
        errors.invalid(&at.field("type"), kind, rule);
    }
    match column.text("jsonPath") {
        "" => errors.required(&at.field("JSONPath"), ""),
        path if !path.starts_with('.') => {
            errors.invalid(&at.field("JSONPath"), path, "must be a simple json path starting with .");
        }
        _ => {}
    }
}
