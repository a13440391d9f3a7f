//! Objects and lists on their way out: whole, as tables, as metadata alone; in JSON, YAML or protobuf.
//!
//! Stored bytes are sent as they are wherever the client requests the object itself.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use palisade_apimachinery::{Status, table};
use serde_json::{Value, json};

use crate::api::Call;
use crate::http::body::Body;
use crate::http::negotiate::{self, Encoding, Form, Output};
use crate::http::protobuf::EncodeError;
use crate::http::{Query, Reply, protobuf};
use crate::meta;
use crate::registry::Entry;
use crate::storage::Object;

/// A list is sent in pieces of about this many bytes.
const PIECE: usize = 128 << 10;

/// What the client accepts from a resource.
pub fn output(call: &Call<'_>, entry: &Entry) -> Result<Output, Box<Status>> {
    let representations = if entry.kind.is_custom() {
        "application/json, application/yaml"
    } else {
        "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    };
    let kind = &entry.kind;
    let in_protobuf = || !kind.is_custom() && protobuf::supports(&kind.api_version(), &kind.kind);
    // Reviews are not stored.
    let tables = kind.is_custom() || kind.verbs.contains(&"get");
    let mut output = negotiate::output(&call.parts.headers, representations, tables, in_protobuf)?;
    output.pretty |= call.query.get("pretty").is_some_and(|p| p != "false" && p != "0");
    Ok(output)
}

/// One stored object.
pub fn object(code: u16, entry: &Entry, object: &Object, output: Output, query: &Query) -> Reply {
    if output.form == Form::Object && output.encoding == Encoding::Json && !output.pretty {
        return Reply::bytes(code, crate::http::reply::JSON, typed_json(&entry.prefix, &object.json, true));
    }
    value(code, entry, &entry.typed(object.parse()), output, query)
}

/// One object that need not be stored.
#[must_use]
pub fn value(code: u16, entry: &Entry, object: &Value, output: Output, query: &Query) -> Reply {
    let document = match output.form {
        Form::Object => return document(code, object, output),
        Form::Metadata(version) => partial(object, version),
        Form::Table(version) => {
            let revision = meta::meta_text(object, "resourceVersion");
            table_of(
                entry,
                std::slice::from_ref(object),
                &json!({"resourceVersion": revision}),
                version,
                query,
                true,
            )
        }
    };
    self::document(code, &document, output)
}

/// Any document.
#[must_use]
pub fn document(code: u16, document: &Value, output: Output) -> Reply {
    match output.encoding {
        Encoding::Yaml => {
            let text = palisade_yaml::to_yaml(document, 0);
            Reply::bytes(code, Encoding::Yaml.media_type(), text.into_bytes())
        }
        Encoding::Json if output.pretty => {
            let mut text = serde_json::to_vec_pretty(document).unwrap_or_default();
            text.push(b'\n');
            Reply::bytes(code, crate::http::reply::JSON, text)
        }
        Encoding::Json => Reply::json(code, document),
        Encoding::Protobuf => in_protobuf(code, protobuf::encode(document)),
    }
}

fn in_protobuf(code: u16, encoded: Result<Vec<u8>, EncodeError>) -> Reply {
    match encoded {
        Ok(bytes) => Reply::bytes(code, protobuf::MEDIA_TYPE, bytes),
        Err(error) => {
            tracing::error!(%error, "object cannot be encoded");
            Reply::error(Status::internal(error.to_string()))
        }
    }
}

/// An error in protobuf, for clients that prefer it.
#[must_use]
pub fn error_in_protobuf(mut reply: Reply) -> Reply {
    let Some(status) = &reply.status else { return reply };
    if let Ok(bytes) = protobuf::encode(&status.to_value()) {
        reply.body = bytes.into();
        reply.content_type = protobuf::MEDIA_TYPE;
    }
    reply
}

/// The stored JSON with `kind` and `apiVersion` in front.
#[must_use]
pub fn typed_json(prefix: &str, json: &[u8], line_feed: bool) -> Bytes {
    let body = json.get(1..).unwrap_or_default();
    let mut out = BytesMut::with_capacity(prefix.len() + body.len() + 1);
    out.put_slice(prefix.as_bytes());
    out.put_slice(body);
    if line_feed {
        out.put_u8(b'\n');
    }
    out.freeze()
}

/// The metadata of an object alone.
#[must_use]
pub fn partial(object: &Value, version: &str) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    hide_conversion_annotations(&mut metadata);
    json!({"kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata})
}

/// Upstream adds this one only to whole objects, when it converts them.
fn hide_conversion_annotations(metadata: &mut Value) {
    let Some(metadata) = metadata.as_object_mut() else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.remove("deprecated.daemonset.template.generation");
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Objects as rows.
#[must_use]
pub fn table_of(
    entry: &Entry,
    objects: &[Value],
    list_metadata: &Value,
    version: &str,
    query: &Query,
    columns: bool,
) -> Value {
    let mut printed = table::table(&entry.kind, objects, meta::unix_now());
    let include = query.get("includeObject").unwrap_or("Metadata");
    let rows = printed.rows.drain(..).zip(objects).map(|(cells, object)| {
        let shown = match include {
            "None" => Value::Null,
            "Object" => object.clone(),
            _ => partial(object, version),
        };
        let mut row = json!({"cells": cells, "object": shown});
        if let (Some(conditions), Value::Object(row)) = (table::row_conditions(&entry.kind, object), &mut row)
        {
            row.insert("conditions".to_owned(), conditions);
        }
        row
    });
    let rows: Vec<Value> = rows.collect();
    let columns = if columns { printed.columns.to_value() } else { Value::Null };
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": list_metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

/// The objects of a list, with the list's own metadata.
#[must_use]
pub fn list(
    entry: &Arc<Entry>,
    objects: Vec<Arc<Object>>,
    list_metadata: &Value,
    output: Output,
    query: &Query,
) -> Reply {
    match output.form {
        Form::Object if output.encoding == Encoding::Json && !output.pretty => {
            plain(entry, objects, list_metadata)
        }
        Form::Object if output.encoding == Encoding::Protobuf => {
            let items = objects.iter().map(|object| Value::Object(object.parse()));
            let kind = (&*entry.kind.api_version(), &*entry.kind.kind);
            in_protobuf(200, protobuf::encode_list(kind, &entry.kind.list_kind, list_metadata, items))
        }
        Form::Metadata(version) if output.encoding == Encoding::Protobuf => {
            let items = objects.iter().map(|object| partial(&Value::Object(object.parse()), version));
            let kind = (&*format!("meta.k8s.io/{version}"), "PartialObjectMetadata");
            let list_kind = "PartialObjectMetadataList";
            in_protobuf(200, protobuf::encode_list(kind, list_kind, list_metadata, items))
        }
        Form::Object => {
            let items: Vec<Value> = objects.iter().map(|o| item(entry, o)).collect();
            let list = json!({
                "kind": entry.kind.list_kind,
                "apiVersion": entry.kind.api_version(),
                "metadata": list_metadata,
                "items": items,
            });
            document(200, &list, output)
        }
        Form::Metadata(version) => {
            let items: Vec<Value> =
                objects.iter().map(|o| partial(&Value::Object(o.parse()), version)).collect();
            let items = if items.is_empty() { Value::Null } else { items.into() };
            let list = json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": list_metadata,
                "items": items,
            });
            document(200, &list, output)
        }
        Form::Table(version) => {
            let objects: Vec<Value> = objects.iter().map(|o| entry.typed(o.parse())).collect();
            let table = table_of(entry, &objects, list_metadata, version, query, true);
            document(200, &table, output)
        }
    }
}

/// Items of built-in kinds leave out what the list already states; custom resources repeat it.
fn item(entry: &Entry, object: &Object) -> Value {
    if entry.kind.is_custom() { entry.typed(object.parse()) } else { Value::Object(object.parse()) }
}

fn plain(entry: &Arc<Entry>, objects: Vec<Arc<Object>>, list_metadata: &Value) -> Reply {
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{list_metadata},\"items\":[",
        entry.kind.list_kind,
        entry.kind.api_version()
    );
    let size: usize = objects.iter().map(|o| o.json.len() + entry.prefix.len()).sum();
    let mut pieces = Pieces {
        entry: entry.clone(),
        objects: objects.into_iter(),
        buffer: BytesMut::from(head.as_bytes()),
        first: true,
        done: false,
    };
    let body = if size < PIECE {
        Body::Known(pieces.collect())
    } else {
        let first = pieces.next();
        Body::Lazy(Box::new(first.into_iter().chain(pieces)))
    };
    Reply::bytes(200, crate::http::reply::JSON, body)
}

/// The bytes of a list, made as they are sent: a list of a hundred thousand objects is never in memory twice.
struct Pieces {
    entry: Arc<Entry>,
    objects: std::vec::IntoIter<Arc<Object>>,
    buffer: BytesMut,
    first: bool,
    done: bool,
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let custom = self.entry.kind.is_custom();
        while self.buffer.len() < PIECE {
            let Some(object) = self.objects.next() else {
                self.buffer.put_slice(b"]}\n");
                self.done = true;
                break;
            };
            if !std::mem::take(&mut self.first) {
                self.buffer.put_u8(b',');
            }
            if custom {
                self.buffer.put_slice(self.entry.prefix.as_bytes());
                self.buffer.put_slice(object.json.get(1..).unwrap_or_default());
            } else {
                self.buffer.put_slice(&object.json);
            }
        }
        Some(self.buffer.split().freeze())
    }
}
