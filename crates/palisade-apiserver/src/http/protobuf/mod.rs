//! Bodies in protobuf, as Go clients and kubectl send them for built-in kinds.
//!
//! Implements: Kubernetes API Concepts, "Kubernetes Protobuf encoding".
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>
//!
//! A body becomes the JSON value it stands for and goes the way of every other body. Answers are JSON: every
//! client that accepts protobuf accepts that as well.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use thiserror::Error;

/// The media type.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
const MAGIC: &[u8] = b"k8s\0";
/// Messages inside each other at most.
const DEPTH: usize = 64;

/// Why a body cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ProtobufError {
    /// The first bytes are wrong.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Magic,
    /// It ends in the middle.
    #[error("unexpected EOF")]
    Truncated,
    /// A field has the wrong wire type, or one that is not used.
    #[error("proto: wrong wireType for field {0}")]
    WireType(String),
    /// Text that is no UTF-8.
    #[error("proto: field {0} contains invalid UTF-8")]
    Text(String),
    /// Messages inside messages inside messages.
    #[error("proto: message is nested too deeply")]
    Depth,
    /// A kind whose protobuf form is not known here.
    #[error("no protobuf form of kind {0}")]
    Kind(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cardinality {
    One,
    List,
    Map,
}

#[derive(Debug, Clone, Copy)]
enum Type {
    Text,
    Bytes,
    Bool,
    Integer,
    Double,
    Message(&'static str),
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    inline: bool,
    cardinality: Cardinality,
    ty: Type,
}

#[derive(Debug, Default)]
struct Message {
    fields: BTreeMap<u64, Field>,
    /// In JSON it is the list that is its only field.
    list: bool,
}

static MESSAGES: LazyLock<BTreeMap<&'static str, Message>> = LazyLock::new(|| {
    let mut messages: BTreeMap<&'static str, Message> = BTreeMap::new();
    let mut current = "";
    for line in include_str!("types.txt").lines() {
        if let Some(head) = line.strip_prefix('@') {
            let (name, list) =
                head.split_once(' ').map_or((head, false), |(name, flag)| (name, flag == "[]"));
            current = name;
            messages.insert(name, Message { list, ..Message::default() });
            continue;
        }
        let mut words = line.split(' ');
        let (Some(number), Some(name), Some(ty)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        let (cardinality, ty) = match (ty.strip_prefix("[]"), ty.strip_prefix("{}")) {
            (Some(item), _) => (Cardinality::List, item),
            (_, Some(item)) => (Cardinality::Map, item),
            _ => (Cardinality::One, ty),
        };
        let ty = match ty {
            "s" => Type::Text,
            "b" => Type::Bytes,
            "t" => Type::Bool,
            "i" => Type::Integer,
            "d" => Type::Double,
            message => Type::Message(message),
        };
        let inline = name.starts_with('!');
        let field = Field { name: name.trim_start_matches('!'), inline, cardinality, ty };
        if let Some(message) = messages.get_mut(current) {
            message.fields.insert(number, field);
        }
    }
    messages
});

/// The value a body stands for, with `apiVersion` and `kind`.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::Magic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader(envelope);
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            (1, Wire::Bytes(meta)) => {
                let mut meta = Reader(meta);
                while let Some((number, wire)) = meta.field()? {
                    match (number, wire) {
                        (1, Wire::Bytes(bytes)) => api_version = text(bytes, "apiVersion")?,
                        (2, Wire::Bytes(bytes)) => kind = text(bytes, "kind")?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let name = message_name(&api_version, &kind);
    let (name, message) =
        MESSAGES.get_key_value(name.as_str()).ok_or_else(|| ProtobufError::Kind(kind.clone()))?;
    let mut object = read_message(name, message, raw, 0)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// Options of requests have the group of the request in their `apiVersion`.
fn message_name(api_version: &str, kind: &str) -> String {
    if kind == "DeleteOptions" {
        return "meta.DeleteOptions".to_owned();
    }
    let group = api_version.split_once('/').map_or("core", |(group, _)| group);
    format!("{}.{kind}", group.split('.').next().unwrap_or(group))
}

fn read_message(
    name: &str,
    message: &Message,
    bytes: &[u8],
    depth: usize,
) -> Result<Map<String, Value>, ProtobufError> {
    if depth > DEPTH {
        return Err(ProtobufError::Depth);
    }
    let mut object = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.field()? {
        let Some(field) = message.fields.get(&number) else { continue };
        let wrong = || ProtobufError::WireType(format!("{name}.{}", field.name));
        match field.cardinality {
            Cardinality::One => {
                let value = read_value(field, &wire, depth)?.ok_or_else(wrong)?;
                match value {
                    Value::Object(inner) if field.inline => object.extend(inner),
                    value => {
                        object.insert(field.name.to_owned(), value);
                    }
                }
            }
            Cardinality::List => {
                let value = read_value(field, &wire, depth)?.ok_or_else(wrong)?;
                let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    list.push(value);
                }
            }
            Cardinality::Map => {
                let Wire::Bytes(entry) = wire else { return Err(wrong()) };
                let (mut key, mut value) = (String::new(), zero(field.ty));
                let mut entry = Reader(entry);
                while let Some((number, wire)) = entry.field()? {
                    match (number, &wire) {
                        (1, Wire::Bytes(bytes)) => key = text(bytes, field.name)?,
                        (2, wire) => value = read_value(field, wire, depth)?.ok_or_else(wrong)?,
                        _ => {}
                    }
                }
                let map = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(object)
}

fn zero(ty: Type) -> Value {
    match ty {
        Type::Text | Type::Bytes => "".into(),
        Type::Bool => false.into(),
        Type::Integer => 0.into(),
        Type::Double => 0.0.into(),
        Type::Message(_) => Value::Null,
    }
}

/// `None` if the wire type does not fit.
fn read_value(field: &Field, wire: &Wire<'_>, depth: usize) -> Result<Option<Value>, ProtobufError> {
    Ok(match (field.ty, wire) {
        (Type::Text, Wire::Bytes(bytes)) => Some(text(bytes, field.name)?.into()),
        (Type::Bytes, Wire::Bytes(bytes)) => Some(STANDARD.encode(bytes).into()),
        (Type::Bool, Wire::Number(number)) => Some((*number != 0).into()),
        (Type::Integer, Wire::Number(number)) => Some(number.cast_signed().into()),
        (Type::Double, Wire::Fixed(bits)) => Some(f64::from_bits(*bits).into()),
        (Type::Message(name), Wire::Bytes(bytes)) => Some(read_special(name, bytes, depth)?),
        _ => None,
    })
}

/// Messages that are not objects in JSON, and all others.
fn read_special(name: &str, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    match name {
        "meta.Time" | "meta.MicroTime" => time(bytes, name == "meta.MicroTime"),
        "resource.Quantity" => Ok(first_text(bytes, 1)?.into()),
        "meta.FieldsV1" | "runtime.RawExtension" => {
            let mut reader = Reader(bytes);
            let mut value = Value::Null;
            while let Some((number, wire)) = reader.field()? {
                if let (1, Wire::Bytes(raw)) = (number, wire) {
                    value = serde_json::from_slice(raw).unwrap_or_default();
                }
            }
            Ok(value)
        }
        "intstr.IntOrString" => {
            let (mut is_text, mut number, mut string) = (false, 0, String::new());
            let mut reader = Reader(bytes);
            while let Some((field, wire)) = reader.field()? {
                match (field, wire) {
                    (1, Wire::Number(kind)) => is_text = kind == 1,
                    (2, Wire::Number(value)) => number = value.cast_signed(),
                    (3, Wire::Bytes(bytes)) => string = text(bytes, "strVal")?,
                    _ => {}
                }
            }
            Ok(if is_text { string.into() } else { number.into() })
        }
        _ => {
            let Some(message) = MESSAGES.get(name) else { return Err(ProtobufError::Kind(name.to_owned())) };
            let object = read_message(name, message, bytes, depth + 1)?;
            if message.list {
                return Ok(object.get("items").cloned().unwrap_or_else(|| Value::Array(Vec::new())));
            }
            Ok(Value::Object(object))
        }
    }
}

fn first_text(bytes: &[u8], wanted: u64) -> Result<String, ProtobufError> {
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.field()? {
        if let (true, Wire::Bytes(bytes)) = (number == wanted, wire) {
            return text(bytes, "string");
        }
    }
    Ok(String::new())
}

/// The zero time, or no time at all, is null.
fn time(bytes: &[u8], micro: bool) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            (1, Wire::Number(value)) => seconds = value.cast_signed(),
            (2, Wire::Number(value)) => nanos = value.cast_signed(),
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).unwrap_or(0);
    let Ok(time) = jiff::Timestamp::new(seconds, nanos) else { return Ok(Value::Null) };
    let text = if micro { crate::meta::format_micro_time(time) } else { crate::meta::format_time(time) };
    Ok(text.into())
}

fn text(bytes: &[u8], field: &str) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Text(field.to_owned()))
}

/// A value on the wire.
enum Wire<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn field(&mut self) -> Result<Option<(u64, Wire<'a>)>, ProtobufError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => {
                let (bits, rest) = self.0.split_first_chunk::<8>().ok_or(ProtobufError::Truncated)?;
                self.0 = rest;
                Wire::Fixed(u64::from_le_bytes(*bits))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            5 => {
                let (bits, rest) = self.0.split_first_chunk::<4>().ok_or(ProtobufError::Truncated)?;
                self.0 = rest;
                Wire::Fixed(u64::from(u32::from_le_bytes(*bits)))
            }
            _ => return Err(ProtobufError::WireType((tag >> 3).to_string())),
        };
        Ok(Some((tag >> 3, wire)))
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(ProtobufError::Truncated)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("short");
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn reads_a_config_map() {
        let metadata = [field(1, b"a"), field(8, b"")].concat();
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &metadata), field(2, &entry)].concat();
        assert_eq!(
            decode(&envelope("v1", "ConfigMap", &raw)),
            Ok(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
                "metadata": {"name": "a", "creationTimestamp": null},
            }))
        );
    }

    #[test]
    fn refuses_what_it_cannot_read() {
        for (case, body, expected) in [
            ("JSON", b"{}".to_vec(), ProtobufError::Magic),
            ("unknown kind", envelope("v1", "Nope", &[]), ProtobufError::Kind("Nope".to_owned())),
            ("cut off", envelope("v1", "ConfigMap", &[0x0a, 0x50, 1]), ProtobufError::Truncated),
            (
                "wrong wire type",
                envelope("v1", "ConfigMap", &[0x08, 1]),
                ProtobufError::WireType("core.ConfigMap.metadata".to_owned()),
            ),
        ] {
            assert_eq!(decode(&body), Err(expected), "{case}");
        }
    }

    #[test]
    fn every_type_of_the_table_is_there() {
        let special = [
            "meta.Time",
            "meta.MicroTime",
            "resource.Quantity",
            "meta.FieldsV1",
            "runtime.RawExtension",
            "intstr.IntOrString",
        ];
        for (name, message) in MESSAGES.iter() {
            for field in message.fields.values() {
                if let Type::Message(inner) = field.ty {
                    assert!(
                        MESSAGES.contains_key(inner) || special.contains(&inner),
                        "{name}.{}: {inner}",
                        field.name
                    );
                }
            }
        }
    }
}
