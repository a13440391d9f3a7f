//! OpenAPI v2 in protobuf: kubectl before v1.27 validates manifests with it and requests nothing else.
//!
//! Implements: the message `Document` of gnostic's `openapi.v2`, as far as our documents use it.
//! <https://github.com/google/gnostic/blob/main/openapiv2/OpenAPIv2.proto>

use palisade_apimachinery::openapi::Document;
use serde_json::{Map, Value};

/// The document in protobuf.
pub(crate) fn encode(document: &Document<'_>) -> Vec<u8> {
    encode_parts(&document.outline(), document.definitions())
}

fn encode_parts<'a>(document: &Value, schemas: impl Iterator<Item = (&'a str, Value)>) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, text(document, "swagger"));
    if let Some(info) = document.get("info") {
        let mut message = Message::default();
        message.text(1, text(info, "title"));
        message.text(2, text(info, "version"));
        out.message(2, &message);
    }
    let mut paths = Message::default();
    for (name, item) in map(document, "paths") {
        paths.message(2, &named(name, &path_item(item)));
    }
    out.message(8, &paths);
    let mut definitions = Message::default();
    for (name, definition) in schemas {
        definitions.message(1, &named(name, &schema(&definition)));
    }
    out.message(9, &definitions);
    out.0
}

/// A name and a message: how ordered maps are written.
fn named(name: &str, value: &Message) -> Message {
    let mut message = Message::default();
    message.text(1, name);
    message.message(2, value);
    message
}

fn path_item(item: &Value) -> Message {
    let mut message = Message::default();
    for (number, method) in
        [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (6, "options"), (7, "head"), (8, "patch")]
    {
        if let Some(operation) = item.get(method) {
            message.message(number, &self::operation(operation));
        }
    }
    for parameter in list(item, "parameters") {
        message.message(9, &parameter_item(parameter));
    }
    message
}

fn operation(operation: &Value) -> Message {
    let mut message = Message::default();
    for tag in list(operation, "tags").iter().filter_map(Value::as_str) {
        message.text(1, tag);
    }
    message.text(3, text(operation, "description"));
    message.text(5, text(operation, "operationId"));
    for media in list(operation, "produces").iter().filter_map(Value::as_str) {
        message.text(6, media);
    }
    for media in list(operation, "consumes").iter().filter_map(Value::as_str) {
        message.text(7, media);
    }
    for parameter in list(operation, "parameters") {
        message.message(8, &parameter_item(parameter));
    }
    let mut responses = Message::default();
    for (code, response) in map(operation, "responses") {
        let mut described = Message::default();
        described.text(1, text(response, "description"));
        if let Some(schema) = response.get("schema") {
            let mut item = Message::default();
            item.message(1, &self::schema(schema));
            described.message(2, &item);
        }
        let mut value = Message::default();
        value.message(1, &described);
        responses.message(1, &named(code, &value));
    }
    message.message(9, &responses);
    extensions(&mut message, 13, operation);
    message
}

fn parameter_item(parameter: &Value) -> Message {
    let mut described = Message::default();
    let place = text(parameter, "in");
    let mut inner = Message::default();
    if place == "body" {
        inner.text(1, text(parameter, "description"));
        inner.text(2, text(parameter, "name"));
        inner.text(3, place);
        inner.flag(4, flag(parameter, "required"));
        if let Some(schema) = parameter.get("schema") {
            inner.message(5, &self::schema(schema));
        }
        described.message(1, &inner);
    } else {
        inner.flag(1, flag(parameter, "required"));
        inner.text(2, place);
        inner.text(3, text(parameter, "description"));
        inner.text(4, text(parameter, "name"));
        // Only parameters in the query may be there without a value, which moves the numbers after it.
        let kind_at = if place == "query" { 6 } else { 5 };
        inner.text(kind_at, text(parameter, "type"));
        let mut not_body = Message::default();
        not_body.message(if place == "query" { 3 } else { 4 }, &inner);
        described.message(2, &not_body);
    }
    let mut item = Message::default();
    item.message(1, &described);
    item
}

fn schema(schema: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, text(schema, "$ref"));
    message.text(2, text(schema, "format"));
    message.text(4, text(schema, "description"));
    if let Some(default) = schema.get("default") {
        message.message(5, &any(default));
    }
    for required in list(schema, "required").iter().filter_map(Value::as_str) {
        message.text(19, required);
    }
    for value in list(schema, "enum") {
        message.message(20, &any(value));
    }
    match schema.get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            let mut item = Message::default();
            item.flag(2, *allowed);
            message.message(21, &item);
        }
        Some(inner) => {
            let mut item = Message::default();
            item.message(1, &self::schema(inner));
            message.message(21, &item);
        }
        None => {}
    }
    if !text(schema, "type").is_empty() {
        let mut item = Message::default();
        item.text(1, text(schema, "type"));
        message.message(22, &item);
    }
    if let Some(items) = schema.get("items") {
        let mut item = Message::default();
        item.message(1, &self::schema(items));
        message.message(23, &item);
    }
    for inner in list(schema, "allOf") {
        message.message(24, &self::schema(inner));
    }
    let mut properties = Message::default();
    for (name, property) in map(schema, "properties") {
        properties.message(1, &named(name, &self::schema(property)));
    }
    if !properties.0.is_empty() {
        message.message(25, &properties);
    }
    extensions(&mut message, 31, schema);
    message
}

/// What starts with `x-`.
fn extensions(message: &mut Message, number: u64, value: &Value) {
    for (name, extension) in
        value.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-"))
    {
        message.message(number, &named(name, &any(extension)));
    }
}

/// Anything, as YAML: JSON is YAML.
fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(2, &format!("{value}\n"));
    message
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn map<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// A message being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f | 0x80).to_le_bytes()[0]);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.varint(number << 3 | 2);
        self.varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(bytes);
    }

    /// Empty text is the default and is not written.
    fn text(&mut self, number: u64, text: &str) {
        if !text.is_empty() {
            self.bytes(number, text.as_bytes());
        }
    }

    fn flag(&mut self, number: u64, value: bool) {
        if value {
            self.varint(number << 3);
            self.varint(1);
        }
    }

    fn message(&mut self, number: u64, message: &Self) {
        self.bytes(number, &message.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn writes_messages_inside_messages() {
        let document = json!({"swagger": "2.0"});
        let type_item = [0x0a, 6, b'o', b'b', b'j', b'e', b'c', b't'];
        let schema = [&[0xb2, 0x01, 8][..], &type_item].concat();
        let named = [&[0x0a, 1, b'a', 0x12, 11][..], &schema].concat();
        let message = [&[0x0a, 16][..], &named].concat();
        let expected = [&[0x0a, 3, b'2', b'.', b'0', 0x42, 0, 0x4a, 18][..], &message].concat();
        let definitions = [("a", json!({"type": "object"}))];
        assert_eq!(encode_parts(&document, definitions.into_iter()), expected);
    }
}
