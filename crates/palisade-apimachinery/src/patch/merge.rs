//! JSON merge patch.
//!
//! Implements: RFC 7386 as `github.com/evanphx/json-patch` does, `null` in new objects included.

use serde_json::{Map, Value};

use crate::decode::FieldValidation;
use crate::status::{Result, Status};

pub(super) fn read(body: &[u8], validation: FieldValidation) -> Result<(Value, Vec<String>)> {
    // `null` would replace the whole object; it is no instruction about its fields.
    if body.trim_ascii() == b"null" {
        return Err(Status::bad_request("Invalid JSON Patch"));
    }
    super::read_object(body, validation, |why| {
        if validation == FieldValidation::Ignore {
            Status::bad_request("Invalid JSON Patch")
        } else {
            Status::bad_request(format!("error decoding patch: {why}"))
        }
    })
}

pub(super) fn apply(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(&key);
            continue;
        }
        match map.get_mut(&key) {
            Some(current) if current.is_object() && value.is_object() => apply(current, value),
            _ => {
                let mut value = value;
                prune_nulls(&mut value);
                map.insert(key, value);
            }
        }
    }
}

fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn follows_rfc_7386() {
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut value = target.clone();
            apply(&mut value, patch.clone());
            assert_eq!(value, expected, "{target} + {patch}");
        }
    }
}
