//! Validation of custom objects against their schema, with upstream's texts.
//!
//! Implements: `k8s.io/apiextensions-apiserver/pkg/apiserver/validation`, which is `k8s.io/kube-openapi/pkg/validation`,
//! and `…/apiserver/schema/listtype`.

use std::collections::HashMap;

use palisade_base::field_error::{BadValue, FieldError, FieldErrorKind};
use palisade_base::go;
use palisade_base::time;
use serde_json::Value;

use super::JsonSchema;
use super::openapi_schema::Rules;
use crate::rest::path::Errors;

pub(super) fn validate(root: &JsonSchema, object: &Value, errors: &mut Errors) {
    check(root, object, "", true, &mut errors.list);
}

/// What is wrong with a default.
pub(super) fn of_default(schema: &JsonSchema, default: &Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    check(schema, default, "", schema.embedded_resource, &mut found);
    found
}

/// The JSON type kube-openapi sees.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn check(schema: &JsonSchema, value: &Value, path: &str, is_root: bool, errors: &mut Vec<FieldError>) {
    if value.is_null() && schema.nullable {
        return;
    }
    let found = type_name(value);
    let fits = if schema.int_or_string {
        matches!(found, "integer" | "string")
    } else {
        match schema.kind.as_str() {
            "" => true,
            "number" => matches!(found, "number" | "integer"),
            "integer" => found == "integer" || value.as_f64().is_some_and(|n| n.fract() == 0.0),
            kind => kind == found,
        }
    };
    if !fits {
        let expected = if schema.int_or_string { "integer,string" } else { &schema.kind };
        errors.push(FieldError::new(
            FieldErrorKind::TypeInvalid,
            path,
            BadValue::Text(found.to_owned()),
            format!("{path} in body must be of type {expected}: {}", go::quote(found)),
        ));
        return;
    }
    check_rules(schema, value, path, errors);
    match value {
        Value::Object(map) => {
            for name in &schema.required {
                if !map.contains_key(name) {
                    errors.push(FieldError::required(join(path, name), ""));
                }
            }
            for (name, value) in map {
                if is_root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let inner = schema.properties.get(name).or(schema.additional.as_deref());
                if let Some(inner) = inner {
                    check(inner, value, &join(path, name), inner.embedded_resource, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    check(inner, item, &format!("{path}[{at}]"), false, errors);
                }
            }
        }
        _ => {}
    }
}

fn check_rules(schema: &JsonSchema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(rules) = &schema.rules else { return };
    let mut invalid = |value: &Value, rule: String| {
        errors.push(FieldError::invalid(path, BadValue::from(value), format!("{path} in body {rule}")));
    };
    match value {
        Value::Number(n) => {
            let number = n.as_f64().unwrap_or(0.0);
            if let Some(most) = rules.maximum {
                if rules.exclusive_maximum && number >= most {
                    invalid(value, format!("should be less than {}", plain(most)));
                } else if number > most {
                    invalid(value, format!("should be less than or equal to {}", plain(most)));
                }
            }
            if let Some(least) = rules.minimum {
                if rules.exclusive_minimum && number <= least {
                    invalid(value, format!("should be greater than {}", plain(least)));
                } else if number < least {
                    invalid(value, format!("should be greater than or equal to {}", plain(least)));
                }
            }
            if let Some(unit) = rules.multiple_of
                && unit != 0.0
                && (number / unit).fract() != 0.0
            {
                invalid(value, format!("should be a multiple of {}", plain(unit)));
            }
        }
        Value::String(text) => {
            let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
            if let Some(most) = rules.max_length.filter(|most| length > *most) {
                errors.push(FieldError::too_long(path, usize::try_from(most).unwrap_or(usize::MAX)));
                return;
            }
            if let Some(least) = rules.min_length.filter(|least| length < *least) {
                invalid(value, format!("should be at least {least} chars long"));
                return;
            }
            if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
                invalid(value, format!("should match '{}'", pattern.text()));
                return;
            }
            if !schema.int_or_string && !fits_format(&schema.format, text) {
                let rule = format!("must be of type {}: {}", schema.format, go::quote(text));
                invalid(value, rule);
            }
        }
        Value::Array(items) => {
            let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
            if let Some(most) = rules.max_items.filter(|most| count > *most) {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                errors.push(FieldError::too_many(path, items.len(), most));
            } else if let Some(least) = rules.min_items.filter(|least| count < *least) {
                invalid(value, format!("should have at least {least} items"));
            } else if rules.unique_items && (1..items.len()).any(|at| items[..at].contains(&items[at])) {
                invalid(value, "shouldn't contain duplicates".into());
            }
        }
        Value::Object(map) => {
            let count = u64::try_from(map.len()).unwrap_or(u64::MAX);
            if let Some(most) = rules.max_properties.filter(|most| count > *most) {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                errors.push(FieldError::too_many(path, map.len(), most));
            } else if let Some(least) = rules.min_properties.filter(|least| count < *least) {
                invalid(value, format!("should have at least {least} properties"));
            }
        }
        _ => {}
    }
    if let Some(allowed) = &rules.enumeration
        && !allowed.contains(value)
    {
        let texts: Vec<String> =
            allowed.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, BadValue::from(value), &texts));
    }
    check_combinations(rules, value, path, errors);
}

fn check_combinations(rules: &Rules, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let problems = |inner: &JsonSchema| {
        let mut found = Vec::new();
        check(inner, value, path, false, &mut found);
        found
    };
    let mut fail = |rule: String| {
        errors.push(FieldError::invalid(path, BadValue::from(value), format!("{} {rule}", go::quote(path))));
    };
    if !rules.any_of.is_empty() && rules.any_of.iter().all(|inner| !problems(inner).is_empty()) {
        fail("must validate at least one schema (anyOf)".into());
    }
    if !rules.one_of.is_empty() {
        let matching = rules.one_of.iter().filter(|inner| problems(inner).is_empty()).count();
        if matching == 0 {
            fail("must validate one and only one schema (oneOf). Found none valid".into());
        } else if matching > 1 {
            fail(format!(
                "must validate one and only one schema (oneOf). Found {matching} valid alternatives"
            ));
        }
    }
    if let Some(not) = &rules.not
        && problems(not).is_empty()
    {
        fail("must not validate the schema (not)".into());
    }
    for inner in &rules.all_of {
        let found = problems(inner);
        if !found.is_empty() {
            errors.push(FieldError::invalid(
                path,
                BadValue::from(value),
                format!("{} must validate all the schemas (allOf)", go::quote(path)),
            ));
            errors.extend(found);
        }
    }
}

/// A number as Go's `%v` prints a float.
fn plain(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e21 { format!("{number:.0}") } else { number.to_string() }
}

fn fits_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => time::parse(text).is_ok(),
        "date" => time::parse(&format!("{text}T00:00:00Z")).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "uuid" => {
            text.len() == 36
                && text.bytes().enumerate().all(|(at, b)| match at {
                    8 | 13 | 18 | 23 => b == b'-',
                    _ => b.is_ascii_hexdigit(),
                })
        }
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        _ => true,
    }
}

/// Lists that are sets or maps must not repeat themselves.
pub(super) fn list_types(schema: &JsonSchema, value: &Value, errors: &mut Errors) {
    lists(schema, value, "", &mut errors.list);
}

fn lists(schema: &JsonSchema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(inner) = schema.properties.get(name).or(schema.additional.as_deref()) {
                    lists(inner, value, &join(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            let keys: Vec<Value> = match schema.list_type.as_str() {
                "set" => items.clone(),
                "map" => items
                    .iter()
                    .map(|item| {
                        let fields = schema.list_map_keys.iter();
                        fields.filter_map(|k| item.get(k).map(|v| (k.clone(), v.clone()))).collect()
                    })
                    .collect(),
                _ => Vec::new(),
            };
            let mut seen: HashMap<String, usize> = HashMap::new();
            for (at, key) in keys.iter().enumerate() {
                // Each key is reported once, where it comes back first.
                let count = seen.entry(key.to_string()).or_default();
                *count += 1;
                if *count == 2 {
                    errors.push(FieldError::duplicate(format!("{path}[{at}]"), BadValue::from(key)));
                }
            }
            if let Some(inner) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    lists(inner, item, &format!("{path}[{at}]"), errors);
                }
            }
        }
        _ => {}
    }
}
