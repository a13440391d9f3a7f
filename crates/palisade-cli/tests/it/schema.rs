//! As much of JSON Schema as the schemas of the reports need.

use serde_json::Value;

/// Where a value breaks a schema; `$ref` names a definition.
pub(crate) fn violations(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, value, "$", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let mut fail = |what: &str| found.push(format!("{at}: {what}: {value}"));
    if let Some(name) = schema["$ref"].as_str() {
        let definition = &root["definitions"][name];
        assert!(definition.is_object(), "{name} is not defined");
        return check(root, definition, value, at, found);
    }
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("boolean") => value.is_boolean(),
        Some(other) => panic!("{other} is not known"),
        None => true,
    };
    if !fits {
        fail("wrong type");
    }
    if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
        fail("not one of the values");
    }
    if fits && schema["minimum"].as_i64() > value.as_i64() {
        fail("too small");
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            fail(&format!("{name} is missing"));
        }
    }
    if let Some(items) = value.as_array() {
        if schema["minItems"].as_u64().is_some_and(|least| (items.len() as u64) < least) {
            fail("too few items");
        }
        if schema["uniqueItems"] == true
            && items.iter().enumerate().any(|(index, item)| items[..index].contains(item))
        {
            fail("equal items");
        }
        for (index, item) in items.iter().enumerate() {
            check(root, &schema["items"], item, &format!("{at}[{index}]"), found);
        }
    } else if let Some(fields) = value.as_object() {
        for (name, field) in fields {
            let at = format!("{at}.{name}");
            match schema["properties"].get(name) {
                Some(schema) => check(root, schema, field, &at, found),
                None if schema["additionalProperties"] == false => {
                    found.push(format!("{at}: not a known property"));
                }
                None => {}
            }
        }
    }
}

#[test]
fn a_schema_finds_what_is_wrong() {
    let schema = serde_json::json!({"type": "object", "required": ["a"], "additionalProperties": false, "definitions": {"one": {"type": "integer", "minimum": 1}},
        "properties": {"a": {"$ref": "one"}, "b": {"type": "array", "minItems": 1, "uniqueItems": true, "items": {"enum": ["x", "y"]}}}});
    for (value, wrong) in [
        (serde_json::json!({"a": 1, "b": ["x", "y"]}), 0),
        (serde_json::json!({"a": 0}), 1),
        (serde_json::json!({"a": "1"}), 1),
        (serde_json::json!({"b": []}), 2),
        (serde_json::json!({"a": 1, "b": ["x", "x"]}), 1),
        (serde_json::json!({"a": 1, "b": ["z"]}), 1),
        (serde_json::json!({"a": 1, "c": 1}), 1),
        (serde_json::json!([]), 2),
    ] {
        let found = violations(&schema, &value);
        assert_eq!(found.len(), wrong, "{value}: {found:?}");
    }
}
