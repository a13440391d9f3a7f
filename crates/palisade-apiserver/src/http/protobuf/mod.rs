//! Bodies in protobuf, as Go clients and kubectl send them for built-in kinds.
//!
//! Implements: Kubernetes API Concepts, "Kubernetes Protobuf encoding".
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding>
//!
//! A body becomes the JSON value it stands for and goes the way of every other body. What the server sends is in `encode`.

mod encode;

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palisade_apimachinery::schema::{self, TypeKind};
use serde_json::{Map, Value};
use thiserror::Error;

pub use encode::{EncodeError, encode, encode_event, encode_list, supports};

/// The media type.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The media type of a watch.
pub const WATCH_MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";
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
    /// A value that its type does not have.
    #[error("proto: {0} cannot be read")]
    Value(&'static str),
    /// A field without a number.
    #[error("proto: illegal tag 0")]
    Tag,
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
    /// Go writes it even if nothing is set: it is no pointer.
    always: bool,
}

#[derive(Debug, Default)]
struct Message {
    name: &'static str,
    fields: BTreeMap<u64, Field>,
    /// In JSON it is the list that is its only field.
    list: bool,
}

/// Messages that are no kinds of their own.
const FORMS: &str = "@meta.PartialObjectMetadata\n1 metadata meta.ObjectMeta\n";

/// Read when the first client uses protobuf.
static MESSAGES: LazyLock<BTreeMap<&'static str, Message>> = LazyLock::new(|| {
    let mut messages: BTreeMap<&'static str, Message> = BTreeMap::new();
    let mut current = "";
    for line in include_str!("types.txt").lines().chain(FORMS.lines()) {
        if let Some(head) = line.strip_prefix('@') {
            let (name, list) =
                head.split_once(' ').map_or((head, false), |(name, flag)| (name, flag == "[]"));
            current = name;
            messages.insert(name, Message { name, list, ..Message::default() });
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
        let field = Field { name: name.trim_start_matches('!'), inline, cardinality, ty, always: true };
        if let Some(message) = messages.get_mut(current) {
            message.fields.insert(number, field);
        }
    }
    mark_pointers(&mut messages);
    messages
});

/// Takes from the table of Go's types which fields are pointers. The fields of an embedded struct are those of the struct around it.
fn mark_pointers(messages: &mut BTreeMap<&'static str, Message>) {
    let find = |name: &str| schema::builtin().by_name(name).map(|(_, known)| known);
    let embedded = messages.values().flat_map(|message| {
        let inline = message.fields.values().filter(|field| field.inline);
        inline.filter_map(|field| match field.ty {
            Type::Message(inner) => Some((inner, message.name)),
            _ => None,
        })
    });
    let around: HashMap<&str, &str> = embedded.collect();
    for message in messages.values_mut() {
        let known = find(message.name).or_else(|| find(around.get(message.name)?));
        let Some(known) = known else { continue };
        for field in message.fields.values_mut() {
            let ty = known.field(field.name).map(|field| &field.ty);
            field.always = ty.is_none_or(|ty| !ty.pointer && !matches!(ty.kind, TypeKind::Bytes));
        }
    }
}

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
    let mut object = Map::new();
    read_message(name, message, raw, 0, &mut object)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// Options of requests have the group of the request in their `apiVersion`.
fn message_name(api_version: &str, kind: &str) -> String {
    if matches!(kind, "DeleteOptions" | "Status") {
        return format!("meta.{kind}");
    }
    if (api_version, kind) == ("autoscaling/v2", "HorizontalPodAutoscaler") {
        return "autoscalingv2.HorizontalPodAutoscaler".to_owned();
    }
    let group = api_version.split_once('/').map_or("core", |(group, _)| group);
    format!("{}.{kind}", group.split('.').next().unwrap_or(group))
}

/// Reads a message into what earlier occurrences of its field left: a message that is there twice is merged.
fn read_message(
    name: &str,
    message: &Message,
    bytes: &[u8],
    depth: usize,
    object: &mut Map<String, Value>,
) -> Result<(), ProtobufError> {
    if depth > DEPTH {
        return Err(ProtobufError::Depth);
    }
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.field()? {
        let Some(field) = message.fields.get(&number) else { continue };
        let wrong = || ProtobufError::WireType(format!("{name}.{}", field.name));
        match field.cardinality {
            Cardinality::One if field.inline => {
                let mut whole = Value::Object(std::mem::take(object));
                read_value(field, &wire, depth, &mut whole)?.ok_or_else(wrong)?;
                if let Value::Object(merged) = whole {
                    *object = merged;
                }
            }
            Cardinality::One => {
                let value = object.entry(field.name).or_insert(Value::Null);
                read_value(field, &wire, depth, value)?.ok_or_else(wrong)?;
            }
            Cardinality::List => {
                let mut value = Value::Null;
                read_value(field, &wire, depth, &mut value)?.ok_or_else(wrong)?;
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
                        (2, wire) => read_value(field, wire, depth, &mut value)?.ok_or_else(wrong)?,
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
    Ok(())
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

/// Reads a value over the one before it; `None` if the wire type does not fit.
fn read_value(
    field: &Field,
    wire: &Wire<'_>,
    depth: usize,
    value: &mut Value,
) -> Result<Option<()>, ProtobufError> {
    *value = match (field.ty, wire) {
        (Type::Text, Wire::Bytes(bytes)) => text(bytes, field.name)?.into(),
        (Type::Bytes, Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (Type::Bool, Wire::Number(number)) => (*number != 0).into(),
        (Type::Integer, Wire::Number(number)) => number.cast_signed().into(),
        (Type::Double, Wire::Fixed(bits)) => f64::from_bits(*bits).into(),
        (Type::Message(name), Wire::Bytes(bytes)) => read_special(name, bytes, depth, value.take())?,
        _ => return Ok(None),
    };
    Ok(Some(()))
}

/// Messages that are not objects in JSON, and all others.
fn read_special(name: &str, bytes: &[u8], depth: usize, before: Value) -> Result<Value, ProtobufError> {
    match name {
        "meta.Time" | "meta.MicroTime" => time(bytes, name == "meta.MicroTime"),
        "resource.Quantity" => Ok(first_text(bytes, 1)?.into()),
        "apiextensions.JSONSchemaPropsOrArray" => schema_or(bytes, depth, 1, Alternative::Schemas),
        "apiextensions.JSONSchemaPropsOrBool" => schema_or(bytes, depth, 2, Alternative::Allows),
        "apiextensions.JSONSchemaPropsOrStringArray" => schema_or(bytes, depth, 1, Alternative::Properties),
        "apiextensions.JSON" | "meta.FieldsV1" | "runtime.RawExtension" => {
            let mut reader = Reader(bytes);
            let mut value = Value::Null;
            while let Some((number, wire)) = reader.field()? {
                if let (1, Wire::Bytes(raw)) = (number, wire) {
                    value = serde_json::from_slice(raw)
                        .map_err(|_| ProtobufError::Value("JSON inside the message"))?;
                }
            }
            Ok(value)
        }
        "intstr.IntOrString" => {
            let (mut kind, mut number, mut string) = (0, 0, String::new());
            let mut reader = Reader(bytes);
            while let Some((field, wire)) = reader.field()? {
                match (field, wire) {
                    (1, Wire::Number(value)) => kind = value,
                    (2, Wire::Number(value)) => number = value.cast_signed(),
                    (3, Wire::Bytes(bytes)) => string = text(bytes, "strVal")?,
                    _ => {}
                }
            }
            match kind {
                0 => Ok(number.into()),
                1 => Ok(string.into()),
                _ => Err(ProtobufError::Value("IntOrString")),
            }
        }
        _ => {
            let Some(message) = MESSAGES.get(name) else { return Err(ProtobufError::Kind(name.to_owned())) };
            let mut object = match before {
                Value::Object(object) => object,
                items @ Value::Array(_) => Map::from_iter([("items".to_owned(), items)]),
                _ => Map::new(),
            };
            read_message(name, message, bytes, depth + 1, &mut object)?;
            if message.list {
                return Ok(object.remove("items").unwrap_or_else(|| Value::Array(Vec::new())));
            }
            Ok(Value::Object(object))
        }
    }
}

/// What may stand in the place of a schema in a definition.
#[derive(Debug, Clone, Copy)]
enum Alternative {
    Schemas,
    Allows,
    Properties,
}

/// A schema, which is the field with number `schema`, or what stands in its place, which is the other one of the two.
fn schema_or(
    bytes: &[u8],
    depth: usize,
    schema: u64,
    alternative: Alternative,
) -> Result<Value, ProtobufError> {
    const SCHEMA: &str = "apiextensions.JSONSchemaProps";
    if depth > DEPTH {
        return Err(ProtobufError::Depth);
    }
    let (mut whole, mut items, mut allows) = (None, Vec::new(), false);
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.field()? {
        match (number, wire, alternative) {
            (number, Wire::Bytes(bytes), _) if number == schema => {
                whole = Some(read_special(SCHEMA, bytes, depth + 1, whole.take().unwrap_or_default())?);
            }
            (2, Wire::Bytes(bytes), Alternative::Schemas) => {
                items.push(read_special(SCHEMA, bytes, depth + 1, Value::Null)?);
            }
            (2, Wire::Bytes(bytes), Alternative::Properties) => items.push(text(bytes, "property")?.into()),
            (1, Wire::Number(number), Alternative::Allows) => allows = number != 0,
            (1 | 2, ..) => return Err(ProtobufError::WireType(number.to_string())),
            _ => {}
        }
    }
    Ok(match (whole, alternative) {
        (Some(whole), _) => whole,
        (None, Alternative::Allows) => allows.into(),
        (None, _) => items.into(),
    })
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
    // swallowed: both mean the same, that there is no such time
    let time = i32::try_from(nanos).ok().and_then(|nanos| jiff::Timestamp::new(seconds, nanos).ok());
    let time = time.ok_or(ProtobufError::Value("time"))?;
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
        if tag >> 3 == 0 {
            return Err(ProtobufError::Tag);
        }
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
        let tag = u16::from(number) << 3 | 2;
        let low = u8::try_from(tag & 0x7f).expect("seven bits");
        match u8::try_from(tag >> 7).expect("short") {
            0 => [&[low, length], bytes].concat(),
            high => [&[low | 0x80, high, length], bytes].concat(),
        }
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn reads_definitions_with_what_may_stand_for_a_schema() {
        let object = field(5, b"object");
        let any = field(29, &[field(1, b"a"), field(2, &field(30, &[8, 1]))].concat());
        let list = field(29, &[field(1, b"b"), field(2, &field(24, &field(1, &object)))].concat());
        let default = field(8, &field(1, b"{\"x\":1}"));
        let schema = field(1, &[object.clone(), any, list, default].concat());
        let version = field(7, &[field(1, b"v1"), field(4, &schema)].concat());
        let raw = field(2, &version);
        let read = decode(&envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw)).unwrap();
        assert_eq!(
            read["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            json!({
                "type": "object",
                "default": {"x": 1},
                "properties": {
                    "a": {"additionalProperties": true},
                    "b": {"items": {"type": "object"}},
                },
            })
        );
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
            ("no field", envelope("v1", "ConfigMap", &[0x00, 1]), ProtobufError::Tag),
            (
                "no JSON where JSON belongs",
                envelope("apps/v1", "ControllerRevision", &field(2, &field(1, b"{bad"))),
                ProtobufError::Value("JSON inside the message"),
            ),
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
    fn merges_a_message_that_is_there_twice() {
        let number = |field: &str| {
            let fields = &MESSAGES["core.PodSpec"].fields;
            let found = fields.iter().find(|(_, known)| known.name == field).expect("a field");
            u8::try_from(*found.0).expect("small")
        };
        let container = |name: &str| field(number("containers"), &field(1, name.as_bytes()));
        let first = [container("a"), vec![number("hostPID") << 3, 1]].concat();
        let raw = [field(2, &first), field(1, &field(1, b"p")), field(2, &container("b"))].concat();
        let pod = decode(&envelope("v1", "Pod", &raw)).expect("a pod");
        assert_eq!(pod["spec"], json!({"hostPID": true, "containers": [{"name": "a"}, {"name": "b"}]}));
        assert_eq!(pod["metadata"], json!({"name": "p"}));
    }

    #[test]
    fn every_type_of_the_table_is_there() {
        let special = [
            "meta.Time",
            "meta.MicroTime",
            "resource.Quantity",
            "meta.FieldsV1",
            "runtime.RawExtension",
            "apiextensions.JSON",
            "apiextensions.JSONSchemaPropsOrArray",
            "apiextensions.JSONSchemaPropsOrBool",
            "apiextensions.JSONSchemaPropsOrStringArray",
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
