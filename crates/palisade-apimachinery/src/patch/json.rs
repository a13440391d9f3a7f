//! JSON patch.
//!
//! Implements: RFC 6902 as `gopkg.in/evanphx/json-patch.v4` does it: negative indices count from the end, `replace` of a
//! missing key adds it, and every operation that does not apply is answered with the same 422.

use palisade_base::go;
use serde_json::Value;

use crate::decode::{FieldValidation, Problems, read_untyped, syntax_error};
use crate::status::{Result, Status};

/// Upstream's limit on the number of operations.
const MAX_OPERATIONS: usize = 10_000;
/// Upstream's limit on bytes copied by `copy` operations of one patch.
const MAX_COPIED: usize = 3 * 1024 * 1024;

pub(super) fn apply(live: &Value, body: &[u8], validation: FieldValidation) -> Result<(Value, Vec<String>)> {
    let (operations, strict) = read(body, validation)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(Status::request_entity_too_large(&format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut document = live.clone();
    let mut copied = 0usize;
    for operation in &operations {
        apply_one(&mut document, operation, &mut copied).ok_or_else(Status::unprocessable)?;
    }
    Ok((document, strict))
}

fn read(body: &[u8], validation: FieldValidation) -> Result<(Vec<Value>, Vec<String>)> {
    let bad = |why: &str| Status::bad_request(format!("error decoding patch: {why}"));
    let mut problems = Problems::new(palisade_base::version::KubeVersion::LATEST);
    let mut input = serde_json::Deserializer::from_slice(body);
    let value = read_untyped(&mut input, &mut problems)
        .and_then(|value| input.end().map(|()| value))
        .map_err(|e| bad(&syntax_error(body, &e.to_string())))?;
    let unmarshal = |found: &Value, into: &str| {
        bad(&format!("json: cannot unmarshal {} into Go {into}", go::json_type(found)))
    };
    let operations = match value {
        Value::Null => Vec::new(),
        Value::Array(operations) => operations,
        other => return Err(unmarshal(&other, "value of type []handlers.jsonPatchOp")),
    };
    let mut strict = problems.strict;
    for (at, operation) in operations.iter().enumerate() {
        let Value::Object(fields) = operation else {
            if operation.is_null() {
                continue;
            }
            return Err(unmarshal(operation, "value of type handlers.jsonPatchOp"));
        };
        for (name, value) in fields {
            match name.as_str() {
                "op" | "path" | "from" => {
                    if !value.is_string() && !value.is_null() {
                        return Err(unmarshal(
                            value,
                            &format!("struct field jsonPatchOp.{name} of type string"),
                        ));
                    }
                }
                "value" => {}
                unknown => strict.push(format!("unknown field {}", go::quote(&format!("[{at}].{unknown}")))),
            }
        }
    }
    let strict = if validation == FieldValidation::Ignore {
        Vec::new()
    } else {
        strict.into_iter().map(|text| format!("json patch {text}")).collect()
    };
    Ok((operations, strict))
}

fn apply_one(document: &mut Value, operation: &Value, copied: &mut usize) -> Option<()> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match text("op")? {
        "add" => add(document, text("path")?, value()),
        "remove" => remove(document, text("path")?).map(|_| ()),
        "replace" => {
            let path = text("path")?;
            if path.is_empty() {
                let value = value();
                if !value.is_object() && !value.is_array() {
                    return None;
                }
                *document = value;
                return Some(());
            }
            let (parent, key) = parent_mut(document, path)?;
            match parent {
                Value::Object(map) => {
                    map.insert(key, value());
                }
                Value::Array(items) => {
                    let at = index(&key, items.len())?;
                    *items.get_mut(at)? = value();
                }
                _ => return None,
            }
            Some(())
        }
        "move" => {
            let taken = remove(document, text("from")?)?;
            add(document, text("path")?, taken)
        }
        "copy" => {
            let from = text("from")?;
            let (parent, key) = parent_mut(document, from)?;
            let found = match parent {
                Value::Object(map) => map.get(&key).cloned().unwrap_or(Value::Null),
                Value::Array(items) => items.get(index(&key, items.len())?)?.clone(),
                _ => return None,
            };
            *copied = copied.saturating_add(found.to_string().len());
            if *copied > MAX_COPIED {
                return None;
            }
            add(document, text("path")?, found)
        }
        "test" => {
            let path = text("path")?;
            let expected = operation.get("value").filter(|v| !v.is_null());
            if path.is_empty() {
                return (Some(&*document) == expected).then_some(());
            }
            let (parent, key) = parent_mut(document, path)?;
            let found = match parent {
                Value::Object(map) => map.get(&key),
                Value::Array(items) => Some(items.get(index(&key, items.len())?)?),
                _ => return None,
            };
            (found.filter(|v| !v.is_null()) == expected).then_some(())
        }
        _ => None,
    }
}

fn decode_key(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// The container a path ends in, and its last key.
fn parent_mut<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.len() < 2 {
        return None;
    }
    let last = decode_key(parts.pop()?);
    let mut at = document;
    for part in parts.into_iter().skip(1) {
        let key = decode_key(part);
        at = match at {
            Value::Object(map) => map.get_mut(&key)?,
            Value::Array(items) => {
                let at = index(&key, items.len())?;
                items.get_mut(at)?
            }
            _ => return None,
        };
        if !at.is_object() && !at.is_array() {
            return None;
        }
    }
    Some((at, last))
}

/// An index into a list; negative ones count from the end.
fn index(key: &str, len: usize) -> Option<usize> {
    let at: i64 = key.parse().ok()?;
    let at = if at < 0 { at.checked_add(i64::try_from(len).ok()?)? } else { at };
    usize::try_from(at).ok()
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    let (parent, key) = parent_mut(document, path)?;
    match parent {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key, items.len() + 1)?;
            if at > items.len() {
                return None;
            }
            items.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    let (parent, key) = parent_mut(document, path)?;
    match parent {
        Value::Object(map) => map.remove(&key),
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            (at < items.len()).then(|| items.remove(at))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(document: &Value, patch: &Value) -> Option<Value> {
        let body = patch.to_string();
        apply(document, body.as_bytes(), FieldValidation::Warn).ok().map(|(value, _)| value)
    }

    #[test]
    fn follows_rfc_6902() {
        let document = json!({"a": {"b": [1, 2]}, "x/y": 1});
        for (patch, expected) in [
            (json!([{"op": "add", "path": "/a/b/-", "value": 3}]), Some(json!([1, 2, 3]))),
            (json!([{"op": "add", "path": "/a/b/0", "value": 3}]), Some(json!([3, 1, 2]))),
            (json!([{"op": "add", "path": "/a/b/3", "value": 3}]), None),
            (json!([{"op": "remove", "path": "/a/b/-1"}]), Some(json!([1]))),
            (json!([{"op": "remove", "path": "/a/c"}]), None),
            (json!([{"op": "move", "from": "/a/b/0", "path": "/a/b/1"}]), Some(json!([2, 1]))),
            (json!([{"op": "copy", "from": "/x~1y", "path": "/a/b/2"}]), Some(json!([1, 2, 1]))),
            (json!([{"op": "test", "path": "/a/b/0", "value": 1}]), Some(json!([1, 2]))),
            (json!([{"op": "test", "path": "/a/b/0", "value": 2}]), None),
            (json!([{"op": "test", "path": "/a/none"}]), Some(json!([1, 2]))),
            (json!([{"op": "frob", "path": "/a"}]), None),
        ] {
            let result = run(&document, &patch);
            assert_eq!(result.map(|d| d["a"]["b"].clone()), expected, "{patch}");
        }
    }

    #[test]
    fn names_what_cannot_be_read() {
        let error =
            |body: &str| apply(&json!({}), body.as_bytes(), FieldValidation::Warn).unwrap_err().message;
        assert_eq!(
            error("{}"),
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        );
        assert_eq!(error("["), "error decoding patch: unexpected end of JSON input");
    }
}
