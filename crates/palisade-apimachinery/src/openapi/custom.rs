//! Schemas of custom kinds in the form that clients read: what OpenAPI v2 has no word for is left out, and what is true of
//! every embedded object is added.
//!
//! Implements: `k8s.io/apiextensions-apiserver/pkg/controller/openapi/{builder,v2}`.

use serde_json::{Map, Value, json};

use super::{Dialect, describe, struct_name, wrap_reference};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Words of a schema that are published differently from what a definition has.
fn words(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::V2 => &["default", "nullable", "allOf", "anyOf", "oneOf", "not", PRESERVE, EMBEDDED],
        Dialect::V3 => &[EMBEDDED, INT_OR_STRING],
    }
}

/// The schema that is published, if it is another one than the text.
pub(super) fn published(dialect: Dialect, source: &[u8]) -> Option<Value> {
    // swallowed: a part of a JSON text is UTF-8
    let text = std::str::from_utf8(source).ok()?;
    let has = |word: &&str| text.contains(&format!("\"{word}\""));
    if !words(dialect).iter().any(has) {
        return None;
    }
    // swallowed: a part of a text that was read can be read again
    let mut schema: Value = serde_json::from_slice(source).ok()?;
    publish(dialect, &mut schema);
    Some(schema)
}

fn publish(dialect: Dialect, schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let flag = |fields: &Map<String, Value>, key: &str| fields.get(key) == Some(&Value::Bool(true));
    if dialect == Dialect::V2 {
        for word in ["default", "allOf", "anyOf", "oneOf", "not"] {
            fields.remove(word);
        }
        // Old clients reject null, and unknown fields beside known ones.
        let nullable = flag(fields, "nullable");
        if nullable || flag(fields, PRESERVE) {
            for word in ["type", "items", "properties"] {
                fields.remove(word);
            }
        }
        fields.remove("nullable");
    } else if flag(fields, INT_OR_STRING) && !names_both_types(fields) {
        let both = json!([{"type": "integer"}, {"type": "string"}]);
        if fields.contains_key("anyOf") {
            let all = fields.entry("allOf").or_insert_with(|| json!([]));
            if let Some(all) = all.as_array_mut() {
                all.push(json!({"anyOf": both}));
            }
        } else {
            fields.insert("anyOf".to_owned(), both);
        }
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|inner| publish(dialect, inner));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(key) {
            publish(dialect, inner);
        }
    }
    if flag(fields, EMBEDDED) && !(dialect == Dialect::V2 && flag(fields, PRESERVE)) {
        embed(dialect, fields);
    }
}

/// Whether a schema has the two types of such a value already.
fn names_both_types(fields: &Map<String, Value>) -> bool {
    let both = json!([{"type": "integer"}, {"type": "string"}]);
    let all = fields.get("allOf").and_then(Value::as_array);
    fields.get("anyOf") == Some(&both)
        || all.into_iter().flatten().any(|part| part.get("anyOf") == Some(&both))
}

/// The fields that every object has.
fn embed(dialect: Dialect, fields: &mut Map<String, Value>) {
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.extend(header(dialect));
    }
    let required = fields.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        for name in ["kind", "apiVersion"] {
            if !required.iter().any(|known| known == name) {
                required.push(name.into());
            }
        }
    }
}

/// `apiVersion`, `kind` and `metadata`.
pub(super) fn header(dialect: Dialect) -> impl Iterator<Item = (String, Value)> {
    let described = |name: &str| describe::field("", name).unwrap_or_default();
    let text = move |name: &str| (name.to_owned(), json!({"type": "string", "description": described(name)}));
    let mut metadata =
        Map::from_iter([("$ref".to_owned(), dialect.reference(&struct_name("meta.ObjectMeta")).into())]);
    wrap_reference(&mut metadata, dialect);
    metadata.insert("description".to_owned(), described("metadata").into());
    [text("apiVersion"), text("kind"), ("metadata".to_owned(), Value::Object(metadata))].into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishes_what_clients_of_each_dialect_read() {
        let same = |schema: &Value| schema.clone();
        let nothing = json!({});
        let free = json!({"type": "object", PRESERVE: true, "properties": {"a": {"type": "string"}}});
        let number = json!({INT_OR_STRING: true});
        let both = json!([{"type": "integer"}, {"type": "string"}]);
        for (case, schema, v2, v3) in [
            ("a text", json!({"type": "string"}), json!({"type": "string"}), json!({"type": "string"})),
            (
                "a default",
                json!({"type": "string", "default": "x"}),
                json!({"type": "string"}),
                json!({"type": "string", "default": "x"}),
            ),
            (
                "null",
                json!({"type": "string", "nullable": true}),
                nothing.clone(),
                json!({"type": "string", "nullable": true}),
            ),
            (
                "alternatives",
                json!({"type": "string", "oneOf": [{"pattern": "a"}]}),
                json!({"type": "string"}),
                json!({"type": "string", "oneOf": [{"pattern": "a"}]}),
            ),
            ("unknown fields", same(&free), json!({PRESERVE: true}), same(&free)),
            ("a number or a text", same(&number), same(&number), json!({INT_OR_STRING: true, "anyOf": both})),
            (
                "below",
                json!({"items": {"default": 1}}),
                json!({"items": {}}),
                json!({"items": {"default": 1}}),
            ),
        ] {
            let source = json!({"type": "object", "properties": {"f": schema}}).to_string();
            for (dialect, expected) in [(Dialect::V2, v2), (Dialect::V3, v3)] {
                let found = published(dialect, source.as_bytes());
                let found = found.unwrap_or_else(|| serde_json::from_str(&source).unwrap());
                assert_eq!(found["properties"]["f"], expected, "{case} in {dialect:?}");
            }
        }
    }

    #[test]
    fn embedded_objects_have_a_kind() {
        let source =
            json!({"type": "object", "properties": {"o": {"type": "object", EMBEDDED: true}}}).to_string();
        let found = published(Dialect::V3, source.as_bytes()).unwrap();
        assert_eq!(found["properties"]["o"]["required"], json!(["kind", "apiVersion"]));
        assert_eq!(found["properties"]["o"]["properties"]["kind"]["type"], "string");
        let free = json!({"type": "object", EMBEDDED: true, PRESERVE: true}).to_string();
        assert_eq!(published(Dialect::V2, free.as_bytes()), Some(json!({EMBEDDED: true, PRESERVE: true})));
    }
}
