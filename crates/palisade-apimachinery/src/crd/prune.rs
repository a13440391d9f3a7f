//! Dropping unknown fields of custom objects, and setting their defaults.
//!
//! Implements: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/{pruning,defaulting}`.

use std::fmt::Write as _;

use serde_json::Value;

use super::JsonSchema;

/// Fields of every object, known without being in the schema.
const ROOT_FIELDS: &[&str] = &["apiVersion", "kind", "metadata"];

/// Drops unknown fields; their paths are collected.
pub(super) fn prune(root: &JsonSchema, object: &mut Value, unknown: &mut Vec<String>) {
    prune_at(root, object, true, &mut String::new(), unknown);
}

fn prune_at(
    schema: &JsonSchema,
    value: &mut Value,
    is_resource: bool,
    path: &mut String,
    unknown: &mut Vec<String>,
) {
    match value {
        Value::Object(map) => {
            let keep_unknown = schema.preserve_unknown || schema.additional_allowed;
            map.retain(|key, value| {
                if is_resource && ROOT_FIELDS.contains(&key.as_str()) {
                    return true;
                }
                let length = path.len();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                let inner = schema.properties.get(key).or(schema.additional.as_deref());
                let keep = match inner {
                    Some(inner) => {
                        prune_at(inner, value, inner.embedded_resource, path, unknown);
                        true
                    }
                    None if keep_unknown => true,
                    None => {
                        unknown.push(path.clone());
                        false
                    }
                };
                path.truncate(length);
                keep
            });
        }
        Value::Array(items) => {
            let Some(inner) = &schema.items else { return };
            for (at, item) in items.iter_mut().enumerate() {
                let length = path.len();
                let _ = write!(path, "[{at}]");
                prune_at(inner, item, inner.embedded_resource, path, unknown);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Sets defaults of fields that are missing, or null where null is not allowed.
pub(super) fn default(schema: &JsonSchema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, inner) in schema.properties.iter() {
                let Some(default) = &inner.default else { continue };
                let missing = match map.get(name) {
                    None => true,
                    Some(Value::Null) => !inner.nullable,
                    Some(_) => false,
                };
                if missing {
                    map.insert(name.to_owned(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                let inner = schema.properties.get(name).or(schema.additional.as_deref());
                let Some(inner) = inner else { continue };
                if value.is_null()
                    && !inner.nullable
                    && let Some(default) = &inner.default
                {
                    *value = default.clone();
                }
                default(inner, value);
            }
        }
        Value::Array(items) => {
            let Some(inner) = &schema.items else { return };
            for item in items {
                if item.is_null()
                    && !inner.nullable
                    && let Some(default) = &inner.default
                {
                    *item = default.clone();
                }
                default(inner, item);
            }
        }
        _ => {}
    }
}
