//! Dropping unknown fields of custom objects, and setting their defaults.
//!
//! Implements: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/{pruning,defaulting}`.

use std::fmt::Write as _;

use serde_json::Value;

use super::JsonSchema;
use crate::stored_size::json_size;

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

/// Sets defaults of fields that are missing, or null where null is not allowed. A short body can have many places for a
/// long default: they are set until their text alone is larger than what can be stored.
#[derive(Debug)]
pub(super) struct Defaults {
    /// The bytes that may still be added.
    pub(super) left: usize,
}

impl Defaults {
    /// False if the defaults are too large; the value has some of them then.
    pub(super) fn set(&mut self, schema: &JsonSchema, value: &mut Value) -> bool {
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
                        if !self.take(name.len().saturating_add(json_size(default))) {
                            return false;
                        }
                        map.insert(name.to_owned(), default.clone());
                    }
                }
                map.iter_mut().all(|(name, value)| {
                    let inner = schema.properties.get(name).or(schema.additional.as_deref());
                    inner.is_none_or(|inner| self.replace_null(inner, value) && self.set(inner, value))
                })
            }
            Value::Array(items) => {
                let Some(inner) = &schema.items else { return true };
                items.iter_mut().all(|item| self.replace_null(inner, item) && self.set(inner, item))
            }
            _ => true,
        }
    }

    fn replace_null(&mut self, schema: &JsonSchema, value: &mut Value) -> bool {
        if value.is_null()
            && !schema.nullable
            && let Some(default) = &schema.default
        {
            if !self.take(json_size(default)) {
                return false;
            }
            *value = default.clone();
        }
        true
    }

    fn take(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}
