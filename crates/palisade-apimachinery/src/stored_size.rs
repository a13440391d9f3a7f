//! How large an object may be where it is stored.
//!
//! Upstream keeps objects in etcd, which takes requests of 1.5 MiB: custom resources and their definitions as JSON, every
//! other kind as protobuf. <https://etcd.io/docs/v3.6/dev-guide/limit/>

use serde_json::{Map, Value};

use crate::schema::{TypeKind, TypeRef};
use crate::scheme::{Body, Kind};
use crate::status::Status;

/// The most bytes of a stored object.
pub const MAX_STORED: usize = 1_536 << 10;

impl Kind {
    /// The bytes of an object without `apiVersion` and `kind` in the form that upstream stores. `json` is the length of its
    /// JSON. The size as protobuf is an estimate: tags count as two bytes.
    #[must_use]
    pub fn stored_size(&self, object: &Map<String, Value>, json: usize) -> usize {
        match &self.body {
            Body::Builtin(builtin) if builtin.stored_as_protobuf() => fields(self.schema(), object),
            Body::Builtin(_) | Body::Custom(_) => json,
        }
    }
}

/// 500: the object is too large to be stored, in the words of upstream's storage.
#[must_use]
pub fn too_large() -> Box<Status> {
    Status::unknown_error("etcdserver: request is too large")
}

/// A lower bound of the JSON text of a value.
pub(crate) fn json_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 1,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_size(item) + 1).sum::<usize>() + 1,
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| name.len() + json_size(value) + 4).sum::<usize>() + 1
        }
    }
}

const TAG: usize = 2;

fn fields(of: TypeRef<'_>, object: &Map<String, Value>) -> usize {
    let sizes = object.iter().filter_map(|(name, value)| of.member(name).map(|of| field(of, value)));
    sizes.sum()
}

/// A field with its tags: a list and a map have one for each entry.
fn field(of: TypeRef<'_>, value: &Value) -> usize {
    match (&of.ty.kind, value) {
        (_, Value::Null) => 0,
        (TypeKind::List { item, .. }, Value::Array(items)) => {
            items.iter().map(|value| field(of.with(item), value)).sum()
        }
        (TypeKind::Map { item, .. }, Value::Object(entries)) => {
            let entry =
                |(key, value): (&String, &Value)| TAG + delimited(key.len()) + field(of.with(item), value);
            entries.iter().map(|pair| TAG + delimited(entry(pair))).sum()
        }
        (TypeKind::Struct { .. }, Value::Object(object)) => TAG + delimited(fields(of, object)),
        (TypeKind::Bytes, Value::String(text)) => TAG + delimited(text.len() / 4 * 3),
        (_, Value::String(text)) => TAG + delimited(text.len()),
        (_, Value::Bool(_)) => TAG + 1,
        (_, Value::Number(number)) => TAG + number.as_i64().map_or(8, |n| varint(n.unsigned_abs())),
        (_, untyped @ (Value::Array(_) | Value::Object(_))) => TAG + delimited(json_size(untyped)),
    }
}

fn delimited(length: usize) -> usize {
    length + varint(u64::try_from(length).unwrap_or(u64::MAX))
}

/// The bytes of a number of which each holds seven bits.
fn varint(number: u64) -> usize {
    let bits = usize::try_from(u64::BITS - number.leading_zeros()).unwrap_or_default();
    bits.div_ceil(7).max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheme::LATEST;

    #[test]
    fn built_in_kinds_count_as_protobuf_and_definitions_as_json() {
        let role = LATEST.by_kind("rbac.authorization.k8s.io", "v1", "Role").unwrap();
        let one = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
        let object = json!({"metadata": {"name": "a"}, "rules": vec![one; 40_000]});
        let json = object.to_string().len();
        let size = role.stored_size(object.as_object().unwrap(), json);
        assert!(json > MAX_STORED && size < MAX_STORED, "upstream stores this role: {json} {size}");
        let definition = LATEST.by_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
        assert_eq!(definition.stored_size(&Map::new(), 7), 7);
    }

    #[test]
    fn the_bound_of_a_text_is_not_above_it() {
        for value in [
            json!(null),
            json!(true),
            json!(1.5),
            json!("a"),
            json!([]),
            json!({}),
            json!([1, [2]]),
            json!({"a": {"b": []}, "c": null}),
        ] {
            assert!(json_size(&value) <= value.to_string().len() + 1, "{value}");
        }
    }
}
