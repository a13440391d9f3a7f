//! Tables: what `kubectl get` prints.
//!
//! Implements: `pkg/printers/internalversion` for built-in kinds and the table convertor of custom resources,
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>.

mod infrastructure;
mod pod;
mod rows;

use palisade_base::time;
use serde_json::{Value, json};

use crate::rest::path::Get;
use crate::scheme::{Body, Kind};

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

/// The time of printing, in seconds since 1970.
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

/// The columns of a table.
#[derive(Debug, Clone)]
pub struct Columns(Vec<Column>);

impl Columns {
    /// The `columnDefinitions` of a `Table`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        self.0
            .iter()
            .map(|c| {
                json!({"name": c.name, "type": c.kind, "format": c.format, "priority": c.priority,
                       "description": c.description})
            })
            .collect()
    }
}

/// Columns, and the cells of one row for each object.
#[derive(Debug, Clone)]
pub struct Table {
    /// What the cells mean.
    pub columns: Columns,
    /// The cells of each object, in the order of the columns.
    pub rows: Vec<Vec<Value>>,
}

/// Prints objects; `now` is in seconds since 1970, for ages.
#[must_use]
pub fn table(kind: &Kind, objects: &[Value], now: i64) -> Table {
    let clock = Clock(now);
    let rows = objects.iter().map(|object| cells(kind, object, clock)).collect();
    Table { columns: Columns(columns(kind)), rows }
}

/// The `conditions` of a row: set for a pod that has ended.
#[must_use]
pub fn row_conditions(kind: &Kind, object: &Value) -> Option<Value> {
    (kind.kind == "Pod" && kind.group.is_empty()).then(|| pod::conditions(object)).flatten()
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

fn cells(kind: &Kind, object: &Value, clock: Clock) -> Vec<Value> {
    let Body::Custom(custom) = &kind.body else { return rows::cells(kind, object, clock) };
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
    out
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(_) | Value::Array(_) => palisade_base::go::json(value),
        other => other.to_string(),
    }
}
