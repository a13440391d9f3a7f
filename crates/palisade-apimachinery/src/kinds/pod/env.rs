//! Validation of environment variables.

use palisade_base::field_path::Path;
use serde_json::Value;

use crate::rest::names;
use crate::rest::path::{Errors, Get};

pub(super) fn validate(variables: &[Value], at: &Path<'_>, errors: &mut Errors) {
    for (i, variable) in variables.iter().enumerate() {
        let at = at.index(i);
        let name = variable.text("name");
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else {
            let version = errors.version;
            errors.format(&at.field("name"), name, names::env_var_name(name, version));
        }
        if let Some(from) = variable.child("valueFrom") {
            validate_value_from(from, !variable.text("value").is_empty(), &at.field("valueFrom"), errors);
        }
    }
}

const FIELD_PATHS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Resources an environment variable can show.
const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Fields that are known to pods, but not to environment variables.
const OTHER_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase"];

fn validate_value_from(from: &Value, has_value: bool, at: &Path<'_>, errors: &mut Errors) {
    let mut sources = 0;
    if let Some(field) = from.child("fieldRef") {
        sources += 1;
        validate_field_ref(field, &at.field("fieldRef"), errors);
    }
    if let Some(resource) = from.child("resourceFieldRef") {
        sources += 1;
        let at = at.field("resourceFieldRef");
        let name = resource.text("resource");
        if name.is_empty() {
            errors.required(&at.field("resource"), "");
        } else if !RESOURCE_FIELDS.contains(&name)
            && !name.starts_with("limits.hugepages-")
            && !name.starts_with("requests.hugepages-")
        {
            errors.not_supported(&at.field("resource"), name, RESOURCE_FIELDS);
        }
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let Some(key) = from.child(kind) else { continue };
        sources += 1;
        let at = at.field(kind);
        if key.text("name").is_empty() {
            errors.required(&at.field("name"), "");
        }
        let text = key.text("key");
        if text.is_empty() {
            errors.required(&at.field("key"), "");
        } else {
            errors.format(&at.field("key"), text, names::config_map_key(text));
        }
    }
    if let Some(file) = from.child("fileKeyRef") {
        sources += 1;
        for field in ["volumeName", "path", "key"] {
            if file.text(field).is_empty() {
                errors.required(&at.field("fileKeyRef").field(field), "");
            }
        }
    }
    if sources == 0 {
        let rule = if errors.version.at_least(34) {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        } else {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        };
        errors.invalid(at, "", rule);
    } else if has_value {
        errors.invalid(at, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(at, "", "may not have more than one field specified at a time");
    }
}

fn validate_field_ref(field: &Value, at: &Path<'_>, errors: &mut Errors) {
    let path = field.text("fieldPath");
    if field.text("apiVersion").is_empty() {
        errors.required(&at.field("apiVersion"), "");
        return;
    }
    if path.is_empty() {
        errors.required(&at.field("fieldPath"), "");
        return;
    }
    if field.text("apiVersion") != "v1" {
        errors.invalid(
            &at.field("fieldPath"),
            path,
            format!("error converting fieldPath: unsupported pod version: {}", field.text("apiVersion")),
        );
        return;
    }
    if let Some((base, rest)) = path.split_once("['")
        && let Some(key) = rest.strip_suffix("']")
    {
        let version = errors.version;
        match base {
            "metadata.annotations" => {
                errors.format(at, key, names::qualified_name(&key.to_lowercase(), version));
            }
            "metadata.labels" => errors.format(at, key, names::qualified_name(key, version)),
            _ => errors.invalid(
                &at.field("fieldPath"),
                path,
                format!("error converting fieldPath: field label does not support subscript: {path}"),
            ),
        }
        return;
    }
    if !FIELD_PATHS.contains(&path) {
        if OTHER_FIELDS.contains(&path) {
            errors.not_supported(&at.field("fieldPath"), path, FIELD_PATHS);
        } else {
            errors.invalid(
                &at.field("fieldPath"),
                path,
                format!("error converting fieldPath: field label not supported: {path}"),
            );
        }
    }
}

pub(super) fn validate_from(sources: &[Value], at: &Path<'_>, errors: &mut Errors) {
    for (i, source) in sources.iter().enumerate() {
        let here = at.index(i);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            let version = errors.version;
            errors.format(&here.field("prefix"), prefix, names::env_var_name(prefix, version));
        }
        let mut count = 0;
        for kind in ["configMapRef", "secretRef"] {
            let Some(reference) = source.child(kind) else { continue };
            count += 1;
            if reference.text("name").is_empty() {
                errors.required(&here.field(kind).field("name"), "");
            }
        }
        if count == 0 {
            errors.invalid(at, "", "must specify one of: `configMapRef` or `secretRef`");
        } else if count > 1 {
            errors.invalid(at, "", "may not have more than one field specified at a time");
        }
    }
}
