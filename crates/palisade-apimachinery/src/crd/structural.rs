//! Whether the schema of a definition is structural.
//!
//! Implements: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/validation.go`.

use palisade_base::field_path::Path;
use serde_json::Value;

use super::rule_checks;
use crate::rest::path::{Errors, Get};

/// Checks `openAPIV3Schema`.
pub(crate) fn validate(schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let known = errors.list.len();
    let has_rules = level(schema, at, Place::Root, None, errors, 0);
    // What a rule costs means little where the rule or its schema is wrong.
    if has_rules && errors.version.at_least(25) && errors.list.len() == known {
        rule_checks::check_costs(schema, at, errors);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Field,
    Item,
}

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Which keywords of a level have rules beyond the shape of the schema, found in one pass: most levels have none, and
/// definitions may have tens of thousands of levels.
#[derive(Debug, Default, Clone, Copy)]
struct Keywords {
    /// Something of the following is there.
    any: bool,
    lists: bool,
    nested: bool,
    default: bool,
    pattern: bool,
    rules: bool,
    /// What is not in the fields above.
    others: bool,
}

impl Keywords {
    fn of(schema: &Value) -> Self {
        let mut found = Self::default();
        for keyword in schema.as_object().into_iter().flat_map(serde_json::Map::keys) {
            let place = match keyword.as_str() {
                "type" | "description" | "properties" | "items" | "format" | "title" | "enum"
                | "required" | "nullable" | "minimum" | "maximum" | "minLength" | "maxLength"
                | "minItems" | "maxItems" => continue,
                "x-kubernetes-list-type" | "x-kubernetes-list-map-keys" => &mut found.lists,
                "allOf" | "anyOf" | "oneOf" | "not" => &mut found.nested,
                "default" => &mut found.default,
                "pattern" => &mut found.pattern,
                "x-kubernetes-validations" => &mut found.rules,
                _ => &mut found.others,
            };
            *place = true;
            found.any = true;
        }
        found
    }
}

/// Checks a schema and those below it; true if there are rules among them. `adrift` is the list above in which items cannot be distinguished, if there is one.
fn level(
    schema: &Value,
    at: &Path<'_>,
    place: Place,
    adrift: Option<&Path<'_>>,
    errors: &mut Errors,
    depth: usize,
) -> bool {
    if depth > 100 {
        return false;
    }
    let kind = schema.text("type");
    let keywords = Keywords::of(schema);
    let free = keywords.others
        && (schema.flag("x-kubernetes-preserve-unknown-fields") == Some(true)
            || schema.flag("x-kubernetes-int-or-string") == Some(true));
    match (kind, place) {
        ("", Place::Root) => errors.required(&at.field("type"), "must not be empty at the root"),
        ("", _) if free => {}
        ("", Place::Field) => {
            errors.required(&at.field("type"), "must not be empty for specified object fields");
        }
        ("", Place::Item) => {
            errors.required(&at.field("type"), "must not be empty for specified array items");
        }
        ("object", _) => {}
        (other, Place::Root) => errors.invalid(&at.field("type"), other, "must be object at the root"),
        (other, _) => {
            if !TYPES.contains(&other) {
                errors.not_supported(&at.field("type"), other, TYPES);
            }
        }
    }
    let mut has_rules = false;
    if keywords.any {
        keyword_rules(schema, kind, free, keywords, at, errors, depth);
        if keywords.rules {
            if errors.version.at_least(25) {
                rule_checks::check(schema, at, place == Place::Root, adrift, errors);
            }
            has_rules = !schema.list("x-kubernetes-validations").is_empty();
        }
    }
    if keywords.others
        && let Some(inner) = schema.child("additionalProperties").filter(|a| a.is_object())
    {
        let at = at.field("additionalProperties");
        has_rules |= level(inner, &at, Place::Field, adrift, errors, depth + 1);
    }
    let properties = at.field("properties");
    for (name, inner) in schema.entries("properties") {
        if place == Place::Root && name == "metadata" {
            metadata_rules(inner, &properties.key(name), errors);
        }
        has_rules |= level(inner, &properties.key(name), Place::Field, adrift, errors, depth + 1);
    }
    match schema.child("items") {
        Some(inner) if inner.is_object() => {
            let apart = schema.text("x-kubernetes-list-type") == "map";
            let adrift = adrift.or(if apart { None } else { Some(at) });
            has_rules |= level(inner, &at.field("items"), Place::Item, adrift, errors, depth + 1);
        }
        Some(_) => errors.forbidden(&at.field("items"), "items must be a schema object and not an array"),
        None if kind == "array" => errors.required(&at.field("items"), "must be specified"),
        None => {}
    }
    has_rules
}

/// The checks of everything but the shape of a level.
fn keyword_rules(
    schema: &Value,
    kind: &str,
    free: bool,
    keywords: Keywords,
    at: &Path<'_>,
    errors: &mut Errors,
    depth: usize,
) {
    let others = keywords.others;
    let embedded = others && schema.flag("x-kubernetes-embedded-resource") == Some(true);
    if embedded {
        if kind != "object" {
            errors.invalid(
                &at.field("type"),
                kind,
                "must be object if x-kubernetes-embedded-resource is true",
            );
        }
        if schema.entries("properties").next().is_none() && !free {
            errors.required(
                &at.field("properties"),
                "must not be empty if x-kubernetes-embedded-resource is true without \
                 x-kubernetes-preserve-unknown-fields",
            );
        }
    }
    if others && schema.flag("x-kubernetes-preserve-unknown-fields") == Some(false) {
        errors.invalid(&at.field("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined");
    }
    if keywords.lists {
        list_rules(schema, kind, at, errors);
    }
    if others && schema.flag("uniqueItems") == Some(true) {
        errors.forbidden(
            &at.field("uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    if others {
        unsupported(schema, at, errors);
    }
    if keywords.nested {
        nested(schema, at, errors, depth);
    }
    if let Some(default) = schema.child("default").filter(|_| keywords.default) {
        for error in super::validate::of_default(&super::JsonSchema::read(schema), default) {
            let below = error.field();
            let below = if below.is_empty() { below } else { format!(".{below}") };
            let field = format!("{}{below}", at.field("default"));
            errors.list.push(error.called(field));
        }
    }
    if others
        && schema.entries("properties").next().is_some()
        && schema.child("additionalProperties").is_some()
    {
        errors.forbidden(
            &at.field("additionalProperties"),
            "additionalProperties and properties are mutual exclusive",
        );
    }
    if keywords.pattern
        && let Some(pattern) = schema.child("pattern").and_then(Value::as_str)
        && !super::pattern::is_usable(pattern)
    {
        errors.invalid(
            &at.field("pattern"),
            pattern,
            format!("must be a valid regular expression, but isn't: error parsing regexp: {pattern}"),
        );
    }
}

fn metadata_rules(schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let allowed = ["name", "generateName"];
    let restricted = schema.entries("properties").any(|(name, _)| !allowed.contains(&name.as_str()));
    if restricted || schema.child("additionalProperties").is_some() {
        errors.forbidden(at, "must not specify anything other than name and generateName, but metadata is implicitly specified");
    }
}

fn list_rules(schema: &Value, kind: &str, at: &Path<'_>, errors: &mut Errors) {
    let list_type = schema.text("x-kubernetes-list-type");
    let keys = schema.list("x-kubernetes-list-map-keys");
    if list_type.is_empty() {
        if !keys.is_empty() {
            errors.required(
                &at.field("x-kubernetes-list-type"),
                "must be map if x-kubernetes-list-map-keys is non-empty",
            );
        }
        return;
    }
    if kind != "array" {
        let shown = if kind.is_empty() { "" } else { kind };
        errors.invalid(&at.field("type"), shown, "must be array if x-kubernetes-list-type is specified");
    }
    if !["atomic", "set", "map"].contains(&list_type) {
        errors.not_supported(&at.field("x-kubernetes-list-type"), list_type, &["atomic", "set", "map"]);
    }
    if list_type != "map" {
        if !keys.is_empty() {
            errors.invalid(
                &at.field("x-kubernetes-list-type"),
                list_type,
                "must be map if x-kubernetes-list-map-keys is non-empty",
            );
        }
        return;
    }
    if keys.is_empty() {
        errors.required(
            &at.field("x-kubernetes-list-map-keys"),
            "must not be empty if x-kubernetes-list-type is map",
        );
    }
    let items = at.field("items");
    let properties = schema.pointer("/items/properties");
    for (i, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        let keys_at = at.field("x-kubernetes-list-map-keys");
        let Some(property) = properties.and_then(|p| p.get(name)) else {
            errors.invalid(&keys_at.index(i), name, "entries must all be names of item properties");
            continue;
        };
        let scalar = ["string", "integer", "number", "boolean"].contains(&property.text("type"));
        if !scalar {
            let properties_at = items.field("properties");
            errors.invalid(
                &properties_at.key(name).field("type"),
                property.text("type"),
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            );
        }
        let required = schema.pointer("/items/required").and_then(Value::as_array);
        let is_required = required.is_some_and(|r| r.contains(key));
        if !is_required && property.child("default").is_none() {
            let properties_at = items.field("properties");
            errors.required(
                &properties_at.key(name).field("default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            );
        }
    }
}

/// What JSON Schema has and definitions may not use.
fn unsupported(schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    for field in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let used = match schema.get(field) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            Some(_) => true,
        };
        if used {
            errors.forbidden(&at.field(field), format!("{field} is not supported"));
        }
    }
    if schema.flag("additionalProperties") == Some(false) {
        errors.forbidden(&at.field("additionalProperties"), "additionalProperties cannot be set to false");
    }
    if schema.flag("x-kubernetes-int-or-string") == Some(true) && !schema.text("type").is_empty() {
        let why = "must be empty if x-kubernetes-int-or-string is true";
        errors.invalid(&at.field("type"), schema.text("type"), why);
    }
}

/// Inside `allOf`, `anyOf`, `oneOf` and `not` stand rules about values, and nothing that gives values their shape.
fn nested(schema: &Value, at: &Path<'_>, errors: &mut Errors, depth: usize) {
    let either = schema.flag("x-kubernetes-int-or-string") == Some(true);
    for list in ["allOf", "anyOf", "oneOf"] {
        for (i, inner) in schema.list(list).iter().enumerate() {
            // An integer or a string is the one thing that types decide.
            if !either {
                value_rules(inner, &at.field(list).index(i), errors, depth + 1);
            }
        }
    }
    if let Some(inner) = schema.child("not") {
        value_rules(inner, &at.field("not"), errors, depth + 1);
    }
}

fn value_rules(schema: &Value, at: &Path<'_>, errors: &mut Errors, depth: usize) {
    if depth > 100 {
        return;
    }
    for (field, why) in [
        ("description", "must be empty to be structural"),
        ("type", "must be empty to be structural"),
        ("title", "must be empty to be structural"),
    ] {
        if !schema.text(field).is_empty() {
            errors.forbidden(&at.field(field), why);
        }
    }
    for field in ["default", "additionalProperties"] {
        if schema.child(field).is_some() {
            errors.forbidden(&at.field(field), "must be undefined to be structural");
        }
    }
    if schema.flag("nullable") == Some(true) {
        errors.forbidden(&at.field("nullable"), "must be false to be structural");
    }
    nested(schema, at, errors, depth);
    let properties = at.field("properties");
    for (name, inner) in schema.entries("properties") {
        value_rules(inner, &properties.key(name), errors, depth + 1);
    }
    if let Some(inner) = schema.child("items").filter(|items| items.is_object()) {
        value_rules(inner, &at.field("items"), errors, depth + 1);
    }
}
