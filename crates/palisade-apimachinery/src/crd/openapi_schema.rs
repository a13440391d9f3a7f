//! A structural schema, read once from a definition and kept small.
//!
//! Definitions repeat themselves: every operator embeds the same pod template, every version the one before. Levels that
//! are equal are one level, shared, and what only people read (descriptions) is left in the definition.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use super::pattern::Pattern;
use crate::rest::path::Get;

/// One level of an `openAPIV3Schema`.
#[derive(Debug, Default)]
pub(crate) struct JsonSchema {
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) properties: Properties,
    pub(crate) additional: Option<Arc<JsonSchema>>,
    /// `additionalProperties: true`.
    pub(crate) additional_allowed: bool,
    pub(crate) items: Option<Arc<JsonSchema>>,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded_resource: bool,
    pub(crate) int_or_string: bool,
    pub(crate) list_type: String,
    pub(crate) list_map_keys: Vec<String>,
    pub(crate) map_type: String,
    /// None where values are not restricted beyond their type; a format is a restriction.
    pub(crate) rules: Option<Box<Rules>>,
}

/// The named fields of a level, sorted.
#[derive(Debug, Default)]
pub(crate) struct Properties(Box<[(Box<str>, Arc<JsonSchema>)]>);

impl Properties {
    pub(crate) fn get(&self, name: &str) -> Option<&JsonSchema> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        self.0.get(at).map(|(_, schema)| &**schema)
    }

    pub(crate) fn contains_key(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<JsonSchema>)> {
        self.0.iter().map(|(name, schema)| (&**name, schema))
    }
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
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) all_of: Vec<Arc<JsonSchema>>,
    pub(crate) any_of: Vec<Arc<JsonSchema>>,
    pub(crate) one_of: Vec<Arc<JsonSchema>>,
    pub(crate) not: Option<Arc<JsonSchema>>,
}

/// Keywords whose values decide what a level means, apart from the levels below it.
const OWN: &[&str] = &[
    "type",
    "format",
    "required",
    "default",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
];
/// Likewise, for [`Rules`].
const OWN_RULES: &[&str] = &[
    "enum",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxProperties",
    "minProperties",
];

/// Reads schemas, and returns the same level for equal schemas.
#[derive(Debug, Default)]
struct Reader {
    known: HashMap<String, Arc<JsonSchema>>,
}

impl JsonSchema {
    /// Reads a schema; depth is bounded by the JSON parser that read the definition.
    pub(crate) fn read(value: &Value) -> Arc<Self> {
        Reader::default().level(value)
    }
}

impl Reader {
    fn level(&mut self, value: &Value) -> Arc<JsonSchema> {
        let properties: Box<[(Box<str>, Arc<JsonSchema>)]> = value
            .entries("properties")
            .map(|(name, inner)| (name.as_str().into(), self.level(inner)))
            .collect();
        let mut below = |key: &str| value.get(key).filter(|v| v.is_object()).map(|v| self.level(v));
        let (additional, items, not) = (below("additionalProperties"), below("items"), below("not"));
        let mut list = |key: &str| -> Vec<Arc<JsonSchema>> {
            value.list(key).iter().map(|inner| self.level(inner)).collect()
        };
        let (all_of, any_of, one_of) = (list("allOf"), list("anyOf"), list("oneOf"));

        // Levels below are shared already, so that their addresses stand for their content.
        let mut identity = String::new();
        for key in OWN.iter().chain(OWN_RULES) {
            if let Some(own) = value.get(key) {
                let _ = write!(identity, "{key}={own};");
            }
        }
        let _ = write!(identity, "{:?};", value.get("additionalProperties").and_then(Value::as_bool));
        for (name, inner) in &properties {
            let _ = write!(identity, "{name:?}:{:p};", Arc::as_ptr(inner));
        }
        for inner in [&additional, &items, &not] {
            let _ = write!(identity, "{:p};", inner.as_ref().map_or(std::ptr::null(), Arc::as_ptr));
        }
        for list in [&all_of, &any_of, &one_of] {
            for inner in list {
                let _ = write!(identity, "{:p},", Arc::as_ptr(inner));
            }
            identity.push(';');
        }
        if let Some(known) = self.known.get(&identity) {
            return known.clone();
        }

        let has_rules = OWN_RULES.iter().any(|key| value.get(key).is_some())
            || value.get("format").is_some()
            || not.is_some()
            || [&all_of, &any_of, &one_of].iter().any(|list| !list.is_empty());
        let rules = has_rules.then(|| Box::new(Rules { all_of, any_of, one_of, not, ..Rules::read(value) }));
        let texts = |key: &str| -> Vec<String> {
            value.list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let flag = |key: &str| value.flag(key) == Some(true);
        let schema = Arc::new(JsonSchema {
            kind: value.text("type").to_owned(),
            format: value.text("format").to_owned(),
            properties: Properties(properties),
            additional,
            additional_allowed: flag("additionalProperties"),
            items,
            required: texts("required"),
            default: value.get("default").filter(|d| !d.is_null()).cloned(),
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            list_type: value.text("x-kubernetes-list-type").to_owned(),
            list_map_keys: texts("x-kubernetes-list-map-keys"),
            map_type: value.text("x-kubernetes-map-type").to_owned(),
            rules,
        });
        self.known.insert(identity, schema.clone());
        schema
    }
}

impl Rules {
    /// The rules without those that are schemas themselves.
    fn read(value: &Value) -> Self {
        let number = |key: &str| value.get(key).and_then(Value::as_f64);
        let count = |key: &str| value.get(key).and_then(Value::as_u64);
        let flag = |key: &str| value.flag(key) == Some(true);
        let pattern = value.get("pattern").and_then(Value::as_str).filter(|p| !p.is_empty());
        Self {
            enumeration: value.get("enum").and_then(Value::as_array).cloned(),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: pattern.map(Pattern::new),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            unique_items: flag("uniqueItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_levels_are_shared() {
        let port = json!({"type": "integer", "minimum": 1, "description": "one"});
        let mut other = port.clone();
        other["description"] = "another".into();
        let schema = JsonSchema::read(&json!({"type": "object", "properties": {
            "a": port, "b": other, "c": {"type": "integer", "minimum": 2}, "d": {"type": "integer"}}}));
        let level = |name: &str| schema.properties.get(name).map(std::ptr::from_ref);
        assert_eq!(level("a"), level("b"));
        assert_ne!(level("a"), level("c"));
        assert_ne!(level("a"), level("d"));
    }

    #[test]
    fn levels_that_differ_only_below_or_in_one_word_are_not_shared() {
        for (one, two) in [
            (json!({"items": {"type": "string"}}), json!({"items": {"type": "integer"}})),
            (json!({"items": {"type": "string"}}), json!({"additionalProperties": {"type": "string"}})),
            (json!({"additionalProperties": true}), json!({})),
            (json!({"anyOf": [{"minimum": 1}]}), json!({"allOf": [{"minimum": 1}]})),
            (json!({"not": {"minimum": 1}}), json!({"items": {"minimum": 1}})),
            (
                json!({"properties": {"a": {}, "b": {"type": "string"}}}),
                json!({"properties": {"a": {"type": "string"}, "b": {}}}),
            ),
            (json!({"default": "1"}), json!({"default": 1})),
            (json!({"pattern": "a"}), json!({"format": "a"})),
            (json!({"nullable": true}), json!({"x-kubernetes-preserve-unknown-fields": true})),
        ] {
            let schema = JsonSchema::read(&json!({"properties": {"one": one, "two": two}}));
            let level = |name: &str| schema.properties.get(name).map(std::ptr::from_ref);
            assert_ne!(level("one"), level("two"), "{one} {two}");
        }
    }
}
