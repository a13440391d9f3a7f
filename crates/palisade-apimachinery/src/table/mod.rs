//! Tables: what `kubectl get` prints.
//!
//! Implements: `pkg/printers/internalversion` for built-in kinds and the table convertor of custom resources,
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>.

mod pod;
mod rows;

use serde_json::{Map, Value, json};

use crate::go::time;
use crate::rest::path::Get;
use crate::scheme::{Body, Kind};

/// How much of each object goes into its row: `?includeObject=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata, the default.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

/// A column: heading, type, OpenAPI format, priority (0 is always shown).
#[derive(Debug, Clone)]
pub(crate) struct Column {
    name: String,
    kind: String,
    format: String,
    priority: i64,
    description: String,
}

pub(crate) fn column(name: &str, kind: &str, priority: i64) -> Column {
    let format = if name == "Name" { "name" } else { "" };
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: format.to_owned(),
        priority,
        description: String::new(),
    }
}

/// The seconds since 1970 of `now`; the age of everything is 0 if it is no time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(i64);

impl Clock {
    /// `5m`, or `<unknown>` if there is no time.
    pub(crate) fn since(self, value: Option<&Value>) -> String {
        match value.and_then(Value::as_str).and_then(|text| time::parse(text).ok()) {
            Some(then) => time::human_duration(self.0.saturating_sub(then.seconds)),
            None => "<unknown>".into(),
        }
    }
}

/// A table of objects, in the given order. `meta` is the metadata of the list.
#[must_use]
pub fn table(kind: &Kind, objects: &[&Value], include: IncludeObject, now: &str, meta: &Value) -> Value {
    let clock = Clock(time::parse(now).map_or(0, |t| t.seconds));
    let columns: Vec<Value> = columns(kind)
        .into_iter()
        .map(|c| {
            json!({"name": c.name, "type": c.kind, "format": c.format, "priority": c.priority,
                   "description": c.description})
        })
        .collect();
    let rows: Vec<Value> = objects.iter().map(|object| row(kind, object, include, clock)).collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": columns,
           "rows": rows})
}

/// One row, for watch events.
fn row(kind: &Kind, object: &Value, include: IncludeObject, clock: Clock) -> Value {
    let mut out = Map::new();
    out.insert("cells".into(), cells(kind, object, clock));
    if kind.kind == "Pod" && kind.group.is_empty() && let Some(conditions) = pod::conditions(object) {
        out.insert("conditions".into(), conditions);
    }
    let shown = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object.clone(),
        IncludeObject::Metadata => partial(object),
    };
    out.insert("object".into(), shown);
    Value::Object(out)
}

/// An object reduced to its metadata.
#[must_use]
pub fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
           "metadata": object.get("metadata").cloned().unwrap_or(Value::Null)})
}

fn columns(kind: &Kind) -> Vec<Column> {
    match &kind.body {
        Body::Custom(custom) => {
            let mut out = vec![column("Name", "string", 0)];
            if custom.columns.is_empty() {
                out.push(column("Age", "date", 0));
            }
            out.extend(custom.columns.iter().map(|c| Column {
                name: c.name.clone(),
                kind: c.kind.clone(),
                format: c.format.clone(),
                priority: c.priority,
                description: c.description.clone(),
            }));
            out
        }
        Body::Builtin(_) => rows::columns(kind),
    }
}

fn cells(kind: &Kind, object: &Value, clock: Clock) -> Value {
    let Body::Custom(custom) = &kind.body else { return Value::Array(rows::cells(kind, object, clock)) };
    let empty = Value::Null;
    let meta = object.get("metadata").unwrap_or(&empty);
    let mut out = vec![Value::from(meta.text("name"))];
    if custom.columns.is_empty() {
        out.push(clock.since(meta.get("creationTimestamp")).into());
    }
    for column in &custom.columns {
        let found = column.path.all(object);
        let cell = match (found.first(), column.kind.as_str()) {
            (None | Some(Value::Null), _) => Value::Null,
            (Some(value), "date") => clock.since(Some(value)).into(),
            (Some(value), "integer") => value.as_i64().map_or(Value::Null, Value::from),
            (Some(value), "number") => value.as_f64().map_or(Value::Null, |_| (*value).clone()),
            (Some(value), "boolean") => value.as_bool().map_or(Value::Null, Value::from),
            (Some(_), _) => {
                let texts: Vec<String> = found.iter().map(|v| plain(v)).collect();
                texts.join(" ").into()
            }
        };
        out.push(cell);
    }
    Value::Array(out)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(_) | Value::Array(_) => crate::go::json(value),
        other => other.to_string(),
    }
}
