//! A structural schema, read once from a definition.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use crate::rest::path::Get;

/// One level of an `openAPIV3Schema`.
#[derive(Debug, Default)]
pub(crate) struct JsonSchema {
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) properties: BTreeMap<String, JsonSchema>,
    pub(crate) additional: Option<Box<JsonSchema>>,
    /// `additionalProperties: true`.
    pub(crate) additional_allowed: bool,
    pub(crate) items: Option<Box<JsonSchema>>,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded_resource: bool,
    pub(crate) int_or_string: bool,
    pub(crate) list_type: String,
    pub(crate) list_map_keys: Vec<String>,
    pub(crate) map_type: String,
    pub(crate) rules: Rules,
}

/// Value rules; also what stands inside `allOf`, `anyOf`, `oneOf` and `not`.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) enumeration: Option<Vec<Value>>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) pattern: Option<(String, Option<Regex>)>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) all_of: Vec<JsonSchema>,
    pub(crate) any_of: Vec<JsonSchema>,
    pub(crate) one_of: Vec<JsonSchema>,
    pub(crate) not: Option<Box<JsonSchema>>,
}

impl JsonSchema {
    /// Reads a schema; depth is bounded by the JSON parser that read the definition.
    pub(crate) fn read(value: &Value) -> Self {
        let texts = |key: &str| -> Vec<String> {
            value.list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let schemas = |key: &str| -> Vec<JsonSchema> { value.list(key).iter().map(Self::read).collect() };
        let number = |key: &str| value.get(key).and_then(Value::as_f64);
        let count = |key: &str| value.get(key).and_then(Value::as_u64);
        let flag = |key: &str| value.flag(key) == Some(true);
        let additional = value.get("additionalProperties");
        Self {
            kind: value.text("type").to_owned(),
            format: value.text("format").to_owned(),
            properties: value.entries("properties").map(|(k, v)| (k.clone(), Self::read(v))).collect(),
            additional: additional.filter(|a| a.is_object()).map(|a| Box::new(Self::read(a))),
            additional_allowed: additional.and_then(Value::as_bool) == Some(true),
            items: value.get("items").filter(|i| i.is_object()).map(|i| Box::new(Self::read(i))),
            required: texts("required"),
            default: value.get("default").filter(|d| !d.is_null()).cloned(),
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            list_type: value.text("x-kubernetes-list-type").to_owned(),
            list_map_keys: texts("x-kubernetes-list-map-keys"),
            map_type: value.text("x-kubernetes-map-type").to_owned(),
            rules: Rules {
                enumeration: value.get("enum").and_then(Value::as_array).cloned(),
                maximum: number("maximum"),
                exclusive_maximum: flag("exclusiveMaximum"),
                minimum: number("minimum"),
                exclusive_minimum: flag("exclusiveMinimum"),
                multiple_of: number("multipleOf"),
                max_length: count("maxLength"),
                min_length: count("minLength"),
                pattern: value
                    .get("pattern")
                    .and_then(Value::as_str)
                    .filter(|p| !p.is_empty())
                    .map(|p| (p.to_owned(), Regex::new(p).ok())),
                max_items: count("maxItems"),
                min_items: count("minItems"),
                unique_items: flag("uniqueItems"),
                max_properties: count("maxProperties"),
                min_properties: count("minProperties"),
                all_of: schemas("allOf"),
                any_of: schemas("anyOf"),
                one_of: schemas("oneOf"),
                not: value.get("not").filter(|n| n.is_object()).map(|n| Box::new(Self::read(n))),
            },
        }
    }
}
