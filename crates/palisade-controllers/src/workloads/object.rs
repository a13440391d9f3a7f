//! An object of a kind that controllers write: its metadata, and all of its JSON.
//!
//! Templates are kept as they are: a field that this program does not know belongs to the pod all the same.

use jiff::Timestamp;
use palisade_base::{label_selector::LabelSelector, time::rfc3339};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{meta::Meta, mirror::Mirrored};

/// An object.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// Metadata.
    pub meta: Meta,
    /// The whole object, without managed fields.
    pub value: Value,
}

impl Object {
    /// Reads an object.
    pub fn of(mut value: Value) -> Result<Self, serde_json::Error> {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let meta = Meta::deserialize(value.get("metadata").unwrap_or(&Value::Null))?;
        Ok(Self { meta, value })
    }

    /// What a JSON pointer leads to, or null.
    #[must_use]
    pub fn at(&self, pointer: &str) -> &Value {
        at(&self.value, pointer)
    }

    /// A number, if there is one.
    #[must_use]
    pub fn int(&self, pointer: &str) -> Option<i64> {
        self.at(pointer).as_i64()
    }

    /// A number of the status, which is zero where there is none.
    #[must_use]
    pub fn count(&self, pointer: &str) -> i64 {
        self.int(pointer).unwrap_or_default()
    }

    /// A text; empty if there is none.
    #[must_use]
    pub fn text(&self, pointer: &str) -> &str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    /// The entries of a list.
    #[must_use]
    pub fn list(&self, pointer: &str) -> &[Value] {
        list(self.at(pointer))
    }

    /// `spec.replicas`, which defaults to one.
    #[must_use]
    pub fn replicas(&self) -> i64 {
        self.int("/spec/replicas").unwrap_or(1)
    }

    /// `spec.selector` as a label selector.
    #[must_use]
    pub fn selector(&self) -> LabelSelector {
        LabelSelector::from_object(self.at("/spec/selector"))
    }

    /// The object with another status, for a write to `/status`.
    #[must_use]
    pub fn with_status(&self, status: Value) -> Value {
        let mut object = self.value.clone();
        object["status"] = status;
        object
    }
}

impl Mirrored for Object {
    fn read(json: &str) -> Result<Self, serde_json::Error> {
        Self::of(serde_json::from_str(json)?)
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

const NULL: &Value = &Value::Null;

/// What a JSON pointer leads to, or null.
#[must_use]
pub fn at<'v>(value: &'v Value, pointer: &str) -> &'v Value {
    value.pointer(pointer).unwrap_or(NULL)
}

/// The entries of a list; none if it is not there.
#[must_use]
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A moment as objects have it.
#[must_use]
pub fn stamp(time: Timestamp) -> String {
    rfc3339(time.as_second())
}

/// Sets a number where it is not zero: Go omits zeros.
pub fn set_count(status: &mut Map<String, Value>, key: &str, count: i64) {
    if count == 0 {
        status.remove(key);
    } else {
        status.insert(key.to_owned(), count.into());
    }
}

/// Whether two values mean the same: null, empty and absent are one.
#[must_use]
pub fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(key, value)| is_equal(value, b.get(key).unwrap_or(NULL)))
                && b.iter().all(|(key, value)| a.contains_key(key) || is_empty(value))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (a, b) => a == b || (is_empty(a) && is_empty(b)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_equal;

    #[test]
    fn absent_null_and_empty_are_one() {
        for (case, a, b, expected) in [
            ("absent and null", json!({"a": null}), json!({}), true),
            ("absent and empty", json!({"a": {}, "b": []}), json!({}), true),
            ("nested", json!({"a": {"b": {"c": null}}}), json!({"a": {}}), true),
            ("a value", json!({"a": 1}), json!({}), false),
            ("another value", json!({"a": [1]}), json!({"a": [2]}), false),
            ("false is a value", json!({"a": false}), json!({}), false),
        ] {
            assert_eq!(is_equal(&a, &b), expected, "{case}");
            assert_eq!(is_equal(&b, &a), expected, "{case}, the other way");
        }
    }
}
