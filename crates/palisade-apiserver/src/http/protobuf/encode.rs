//! Objects, lists, events and errors in protobuf.
//!
//! Implements: Kubernetes API Concepts, "Kubernetes Protobuf encoding".
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>
//!
//! The bytes are those that Go writes: fields in the order of their numbers, and a field that is no pointer in Go even if
//! nothing is set. Fields that upstream does not have, such as those of Palisade's extensions, have no number and are left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};
use thiserror::Error;

use super::{Alternative, Cardinality, Field, MAGIC, MESSAGES, Message, Type, message_name};

const SCHEMA: &str = "apiextensions.JSONSchemaProps";
static NOTHING: Value = Value::Null;

/// Why an object has no protobuf form.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// A kind whose protobuf form is not known here.
    #[error("no protobuf form of kind {0}")]
    Kind(String),
    /// A value that does not have the type of its field.
    #[error("field {0} cannot be written in protobuf")]
    Value(&'static str),
}

/// Whether a built-in kind has a protobuf form.
#[must_use]
pub fn supports(api_version: &str, kind: &str) -> bool {
    MESSAGES.contains_key(message_name(api_version, kind).as_str())
}

/// An object, by its `apiVersion` and `kind`.
pub fn encode(object: &Value) -> Result<Vec<u8>, EncodeError> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let mut raw = Vec::with_capacity(512);
    write_message(&mut raw, &message_name(api_version, kind), object)?;
    Ok(envelope(api_version, kind, &raw))
}

/// A list of objects of one kind.
pub fn encode_list(
    (api_version, kind): (&str, &str),
    list_kind: &str,
    metadata: &Value,
    items: impl Iterator<Item = Value>,
) -> Result<Vec<u8>, EncodeError> {
    let name = message_name(api_version, kind);
    let mut raw = Vec::with_capacity(4096);
    nested(&mut raw, 1, |out| write_message(out, "meta.ListMeta", metadata))?;
    for item in items {
        nested(&mut raw, 2, |out| write_message(out, &name, &item))?;
    }
    Ok(envelope(api_version, list_kind, &raw))
}

/// An event of a watch: its length in four bytes, and a `WatchEvent` around the object.
#[must_use]
pub fn encode_event(kind: &str, object: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(object.len() + 32);
    event.extend_from_slice(&[0; 4]);
    bytes_field(&mut event, 1, kind.as_bytes());
    let mut extension = Vec::with_capacity(object.len() + 8);
    bytes_field(&mut extension, 1, object);
    bytes_field(&mut event, 2, &extension);
    let length = u32::try_from(event.len().saturating_sub(4)).unwrap_or(u32::MAX);
    if let Some(place) = event.first_chunk_mut::<4>() {
        *place = length.to_be_bytes();
    }
    event.into()
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len() + api_version.len() + kind.len() + 24);
    out.extend_from_slice(MAGIC);
    let mut meta = Vec::with_capacity(api_version.len() + kind.len() + 8);
    bytes_field(&mut meta, 1, api_version.as_bytes());
    bytes_field(&mut meta, 2, kind.as_bytes());
    bytes_field(&mut out, 1, &meta);
    bytes_field(&mut out, 2, raw);
    // Content encoding and content type, which Go writes although they are empty.
    bytes_field(&mut out, 3, b"");
    bytes_field(&mut out, 4, b"");
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or(0x7f) | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or(0x7f));
}

fn bytes_field(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn number_field(out: &mut Vec<u8>, number: u64, value: u64) {
    varint(out, number << 3);
    varint(out, value);
}

/// A field with a length that is known when its content is written.
fn nested(
    out: &mut Vec<u8>,
    number: u64,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    varint(out, number << 3 | 2);
    let start = out.len();
    // Most messages are shorter than 128 bytes; longer ones are moved to make room.
    out.push(0);
    write(out)?;
    let length = out.len().saturating_sub(start + 1);
    let mut prefix = Vec::with_capacity(4);
    varint(&mut prefix, length as u64);
    out.splice(start..=start, prefix);
    Ok(())
}

fn write_message(out: &mut Vec<u8>, name: &str, value: &Value) -> Result<(), EncodeError> {
    let message = MESSAGES.get(name).ok_or_else(|| EncodeError::Kind(name.to_owned()))?;
    if message.list {
        let field = message.fields.get(&1).ok_or_else(|| EncodeError::Kind(name.to_owned()))?;
        return write_field(out, 1, field, value);
    }
    let object = match value {
        Value::Object(object) => object,
        Value::Null => &Map::new(),
        _ => return Err(EncodeError::Value(message.name)),
    };
    write_fields(out, message, object)
}

fn write_fields(
    out: &mut Vec<u8>,
    message: &Message,
    object: &Map<String, Value>,
) -> Result<(), EncodeError> {
    for (number, field) in &message.fields {
        if field.inline {
            let Type::Message(name) = field.ty else { return Err(EncodeError::Value(field.name)) };
            let inner = MESSAGES.get(name).ok_or_else(|| EncodeError::Kind(name.to_owned()))?;
            nested(out, *number, |out| write_fields(out, inner, object))?;
            continue;
        }
        write_field(out, *number, field, object.get(field.name).unwrap_or(&NOTHING))?;
    }
    Ok(())
}

fn write_field(out: &mut Vec<u8>, number: u64, field: &Field, value: &Value) -> Result<(), EncodeError> {
    let wrong = || EncodeError::Value(field.name);
    match (field.cardinality, value) {
        (Cardinality::One, Value::Null) if !field.always => Ok(()),
        (Cardinality::One, value) => write_value(out, number, field, value),
        (_, Value::Null) => Ok(()),
        (Cardinality::List, Value::Array(items)) => {
            items.iter().try_for_each(|item| write_value(out, number, field, item))
        }
        (Cardinality::Map, Value::Object(entries)) => {
            // In the order of the keys, as Go writes them.
            entries.iter().try_for_each(|(key, value)| {
                nested(out, number, |out| {
                    bytes_field(out, 1, key.as_bytes());
                    write_value(out, 2, field, value)
                })
            })
        }
        _ => Err(wrong()),
    }
}

/// One value; null is the zero value of the type.
fn write_value(out: &mut Vec<u8>, number: u64, field: &Field, value: &Value) -> Result<(), EncodeError> {
    let wrong = || EncodeError::Value(field.name);
    match (field.ty, value) {
        (Type::Text, Value::String(text)) => bytes_field(out, number, text.as_bytes()),
        (Type::Text, Value::Null) => bytes_field(out, number, b""),
        (Type::Bytes, Value::String(text)) => {
            let bytes = STANDARD.decode(text).map_err(|_| wrong())?;
            bytes_field(out, number, &bytes);
        }
        (Type::Bytes, Value::Null) => {}
        (Type::Bool, Value::Bool(value)) => number_field(out, number, u64::from(*value)),
        (Type::Bool | Type::Integer, Value::Null) => number_field(out, number, 0),
        (Type::Integer, Value::Number(value)) => {
            number_field(out, number, value.as_i64().ok_or_else(wrong)?.cast_unsigned());
        }
        (Type::Double, Value::Number(_) | Value::Null) => {
            varint(out, number << 3 | 1);
            out.extend_from_slice(&value.as_f64().unwrap_or(0.0).to_le_bytes());
        }
        (Type::Message(name), value) => {
            return nested(out, number, |out| write_special(out, name, field, value));
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

/// Messages that are not objects in JSON, and all others.
fn write_special(
    out: &mut Vec<u8>,
    name: &'static str,
    field: &Field,
    value: &Value,
) -> Result<(), EncodeError> {
    let wrong = || EncodeError::Value(field.name);
    match (name, value) {
        ("meta.Time" | "meta.MicroTime", Value::String(text)) => {
            if text.is_empty() {
                return Ok(());
            }
            let time: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
            number_field(out, 1, time.as_second().cast_unsigned());
            // Go drops what is below its precision: seconds, and microseconds.
            let nanos = if name == "meta.Time" { 0 } else { time.subsec_nanosecond() / 1000 * 1000 };
            number_field(out, 2, i64::from(nanos).cast_unsigned());
            Ok(())
        }
        ("resource.Quantity", Value::String(text)) => {
            bytes_field(out, 1, text.as_bytes());
            Ok(())
        }
        ("resource.Quantity", Value::Number(number)) => {
            bytes_field(out, 1, number.to_string().as_bytes());
            Ok(())
        }
        ("resource.Quantity", Value::Null) => {
            bytes_field(out, 1, b"0");
            Ok(())
        }
        ("intstr.IntOrString", value) => {
            let (kind, number, text) = match value {
                Value::Null => (0, 0, ""),
                Value::Number(number) => (0, number.as_i64().ok_or_else(wrong)?, ""),
                Value::String(text) => (1, 0, text.as_str()),
                _ => return Err(wrong()),
            };
            number_field(out, 1, kind);
            number_field(out, 2, number.cast_unsigned());
            bytes_field(out, 3, text.as_bytes());
            Ok(())
        }
        ("meta.FieldsV1" | "runtime.RawExtension" | "meta.Time" | "meta.MicroTime", Value::Null) => Ok(()),
        ("apiextensions.JSON" | "meta.FieldsV1" | "runtime.RawExtension", value) => {
            bytes_field(out, 1, value.to_string().as_bytes());
            Ok(())
        }
        ("apiextensions.JSONSchemaPropsOrArray", value) => {
            write_schema_or(out, field, value, Alternative::Schemas)
        }
        ("apiextensions.JSONSchemaPropsOrBool", value) => {
            write_schema_or(out, field, value, Alternative::Allows)
        }
        ("apiextensions.JSONSchemaPropsOrStringArray", value) => {
            write_schema_or(out, field, value, Alternative::Properties)
        }
        _ => write_message(out, name, value),
    }
}

/// A schema, or what stands in its place.
fn write_schema_or(
    out: &mut Vec<u8>,
    field: &Field,
    value: &Value,
    alternative: Alternative,
) -> Result<(), EncodeError> {
    let wrong = || EncodeError::Value(field.name);
    let schema = |out: &mut Vec<u8>, number, schema: &Value| {
        nested(out, number, |out| write_message(out, SCHEMA, schema))
    };
    match (alternative, value) {
        (Alternative::Allows, Value::Null) => number_field(out, 1, 0),
        (Alternative::Allows, Value::Bool(allows)) => number_field(out, 1, u64::from(*allows)),
        (Alternative::Allows, whole @ Value::Object(_)) => {
            number_field(out, 1, 1);
            schema(out, 2, whole)?;
        }
        (_, Value::Null) => {}
        (_, whole @ Value::Object(_)) => schema(out, 1, whole)?,
        (Alternative::Schemas, Value::Array(items)) => {
            items.iter().try_for_each(|item| schema(out, 2, item))?;
        }
        (Alternative::Properties, Value::Array(items)) => {
            for item in items {
                bytes_field(out, 2, item.as_str().ok_or_else(wrong)?.as_bytes());
            }
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::decode;
    use super::*;

    /// Each line is a response of a kube-apiserver v1.37, in JSON and in protobuf.
    const RECORDED: &str =
        include_str!("../../../../../tests/data/recordings/protobuf-v1.37/responses.jsonl");

    #[test]
    fn writes_the_bytes_that_kubernetes_writes() {
        for line in RECORDED.lines() {
            let recorded: Value = serde_json::from_str(line).unwrap();
            let (path, json) = (recorded["path"].as_str().unwrap(), &recorded["json"]);
            let expected = STANDARD.decode(recorded["protobuf"].as_str().unwrap()).unwrap();
            let text = |field: &str| json[field].as_str().unwrap_or_default();
            let (api_version, kind) = (text("apiVersion"), text("kind"));
            let bytes = match kind.strip_suffix("List") {
                None => encode(json),
                Some(item) => {
                    let items = json["items"].as_array().unwrap().iter().cloned();
                    encode_list((api_version, item), kind, &json["metadata"], items)
                }
            };
            let bytes = bytes.unwrap();
            let shown = String::from_utf8_lossy;
            assert_eq!(bytes, expected, "{path}\n{}\n{}", shown(&bytes), shown(&expected));
            if !kind.ends_with("List") {
                assert_eq!(encode(&decode(&expected).unwrap()).unwrap(), expected, "{path}");
            }
        }
    }

    #[test]
    fn reads_back_what_it_writes() {
        for (case, object) in [
            (
                "texts, bytes and nothing",
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
                    "data": {"k": "dg==", "empty": ""}, "type": "Opaque"}),
            ),
            (
                "embedded structs, quantities, numbers or texts, and negative numbers",
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"}, "spec": {
                    "priority": -5, "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
                    "containers": [{"name": "c", "resources": {"limits": {"cpu": "100m"}},
                        "livenessProbe": {"httpGet": {"path": "/", "port": "web"}},
                        "readinessProbe": {"tcpSocket": {"port": 80}}}]}}),
            ),
            (
                "schemas and what stands in their place",
                json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                    "metadata": {"name": "as.example.com"}, "spec": {"versions": [{"name": "v1", "schema":
                    {"openAPIV3Schema": {"type": "object", "default": {"x": 1.5},
                        "properties": {"a": {"additionalProperties": true}, "b": {"items": {"type": "string"}},
                            "c": {"additionalProperties": {"type": "integer"}}}}}}]}}),
            ),
            (
                "JSON, and times",
                json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 3,
                    "metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:04:05Z",
                        "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {}}}]},
                    "data": {"spec": {"x": [1, null]}}}),
            ),
            (
                "lists with a name",
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {"name": ""},
                    "status": {"user": {"extra": {"k": ["a", "b"]}}}}),
            ),
        ] {
            let read = decode(&encode(&object).unwrap()).unwrap();
            assert!(contains(&read, &object), "{case}\n{read:#}\n{object:#}");
            let again = decode(&encode(&read).unwrap()).unwrap();
            assert_eq!(read, again, "{case}");
        }
    }

    /// Whether everything of `part` is in `whole`, which may have zero values besides.
    fn contains(whole: &Value, part: &Value) -> bool {
        match (whole, part) {
            (Value::Object(whole), Value::Object(part)) => {
                part.iter().all(|(key, value)| whole.get(key).is_some_and(|known| contains(known, value)))
            }
            (Value::Array(whole), Value::Array(part)) => {
                whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
            }
            _ => whole == part,
        }
    }

    #[test]
    fn frames_events() {
        assert_eq!(&encode_event("ADDED", b"xy")[..], b"\0\0\0\x0d\n\x05ADDED\x12\x04\n\x02xy");
    }

    #[test]
    fn values_of_wrong_types_have_no_form() {
        for (object, error) in [
            (json!({"apiVersion": "v1", "kind": "ConfigMap", "data": []}), EncodeError::Value("data")),
            (json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "%"}}), EncodeError::Value("data")),
            (json!({"apiVersion": "v1", "kind": "Nope"}), EncodeError::Kind("core.Nope".to_owned())),
        ] {
            assert_eq!(encode(&object), Err(error), "{object}");
        }
    }
}
