//! How many of it there are, and should be: `scale` of the kinds that have replicas.
//!
//! Implements: Scale v1 of `autoscaling`.
//! <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/>

use std::sync::Arc;

use palisade_apimachinery::patch::{self, PatchType};
use palisade_apimachinery::status::GroupName;
use palisade_apimachinery::{FieldError, Status, apply};
use serde_json::{Map, Value, json};

use crate::api::Call;
use crate::http::{Reply, negotiate};
use crate::meta;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::verbs::get;
use crate::verbs::write::{Writer, untyped_body};

const KIND: GroupName<'static> = GroupName::new("autoscaling", "Scale");

/// Where a kind keeps what a `Scale` shows.
struct Paths {
    spec: String,
    status: String,
    selector: String,
}

fn paths(entry: &Entry) -> Paths {
    let custom = entry.kind.scale_paths();
    let pointer = |path: &str| path.replace('.', "/");
    match custom {
        Some(paths) => Paths {
            spec: pointer(&paths.spec_replicas),
            status: pointer(&paths.status_replicas),
            selector: pointer(&paths.label_selector),
        },
        None => Paths {
            spec: "/spec/replicas".to_owned(),
            status: "/status/replicas".to_owned(),
            selector: "/spec/selector".to_owned(),
        },
    }
}

/// The `Scale` of an object.
fn scale_of(entry: &Entry, object: &Value) -> Value {
    let paths = paths(entry);
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        let text = meta::meta_text(object, field);
        if !text.is_empty() {
            metadata.insert(field.to_owned(), text.into());
        }
    }
    let mut spec = Map::new();
    if number(&paths.spec) != 0 {
        spec.insert("replicas".to_owned(), number(&paths.spec).into());
    }
    let mut status = json!({"replicas": number(&paths.status)});
    let selector = match object.pointer(&paths.selector) {
        Some(Value::String(text)) => text.clone(),
        Some(selector) => selector_text(selector),
        None => String::new(),
    };
    if let (false, Value::Object(status)) = (selector.is_empty(), &mut status) {
        status.insert("selector".to_owned(), selector.into());
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// A label selector as text; replication controllers have plain labels.
fn selector_text(selector: &Value) -> String {
    let labels = selector.get("matchLabels").or_else(|| selector.get("matchExpressions").is_none().then_some(selector));
    let mut terms: Vec<String> = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
        let values = expression.get("values").and_then(Value::as_array);
        let mut values: Vec<&str> = values.into_iter().flatten().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let (key, values) = (text("key"), values.join(","));
        terms.push(match text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.sort();
    terms.join(",")
}

/// Reads or changes the scale.
pub(super) async fn dispatch(call: &Call<'_>, entry: &Arc<Entry>, verb: &str) -> Result<Reply, Box<Status>> {
    if verb == "get" {
        let object = entry.typed(get::find(call, entry)?.parse());
        return Ok(Reply::json(200, &scale_of(entry, &object)));
    }
    let options_kind = if verb == "patch" { "PatchOptions" } else { "UpdateOptions" };
    let content_type = negotiate::content_type(&call.parts.headers).to_owned();
    let applies = content_type == "application/apply-patch+yaml";
    let options = WriteOptions::parse(call.query, options_kind, call.api.version, verb == "patch" && applies)?;
    let mut writer = Writer::new(call, entry, "scale", options);
    let change = |writer: &mut Writer<'_>, live: &Value| {
        let current = scale_of(entry, live);
        let wanted = match (verb, content_type.as_str()) {
            ("update", _) | (_, "application/apply-patch+yaml") => untyped_body(call)?,
            (_, "application/json-patch+json") => patch::untyped(&current, PatchType::Json, &call.body)?,
            (_, "application/merge-patch+json" | "application/strategic-merge-patch+json") => {
                patch::untyped(&current, PatchType::Merge, &call.body)?
            }
            _ => return Err(Status::generic(415, "UnsupportedMediaType", "415: Unsupported Media Type")),
        };
        scaled(writer, entry, live, &wanted)
    };
    match writer.update(&call.info.name, change).await {
        Ok(written) => {
            let scale = scale_of(entry, &written.value(entry));
            let mut reply = Reply::json(200, &scale);
            writer.annotate(&mut reply);
            Ok(reply)
        }
        Err(status) => Ok(writer.error(status)),
    }
}

/// The live object with the wanted number of replicas.
fn scaled(writer: &Writer<'_>, entry: &Entry, live: &Value, wanted: &Value) -> Result<Value, Box<Status>> {
    let name = &writer.call.info.name;
    let replicas = wanted.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        let error =
            FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(Status::invalid(KIND, name, &[error], writer.call.api.version));
    }
    let mut object = live.clone();
    let version = meta::meta_text(wanted, "resourceVersion");
    if !version.is_empty() && version != meta::meta_text(live, "resourceVersion") {
        return Err(Status::modified(entry.kind.resource_name(), name));
    }
    set(&mut object, &paths(entry).spec, replicas.into());
    apply::on_update(&entry.kind, Some(live), &mut object, &writer.manager());
    Ok(object)
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    let mut steps = pointer.split('/').filter(|s| !s.is_empty()).peekable();
    while let Some(step) = steps.next() {
        let Value::Object(map) = at else { return };
        if steps.peek().is_none() {
            map.insert(step.to_owned(), value);
            return;
        }
        at = map.entry(step).or_insert_with(|| json!({}));
    }
}
