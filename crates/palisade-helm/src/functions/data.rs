//! YAML and JSON, in and out. What `toYaml` writes has the values as its source, line by line.
//!
//! Implements: sigs.k8s.io/yaml on go-yaml v2, which Helm uses: keys in order, strings in quotes where they would be read as
//! something else.

use std::rc::Rc;

use palisade_yaml::{Limits, NodeRef, Resolved, View};

use super::Arguments;
use crate::{
    error::{Failed, TemplateErrorKind},
    exec::Interpreter,
    text::{NO_FILE, Out, SetId, Source, Text},
    value::{Data, IntKind, Map, Value},
};

const MAX_DEPTH: usize = 60;

pub(super) fn call(
    run: &mut Interpreter<'_>,
    name: &str,
    arguments: &Arguments<'_>,
) -> Option<Result<Value, Failed>> {
    Some(match name {
        "toYaml" | "toYamlPretty" => arguments.at(0).and_then(|value| {
            let text = to_yaml(run, value)?;
            Ok(Value::text(text))
        }),
        "fromYaml" | "fromJson" => arguments.at(0).and_then(|value| parsed(run, arguments, value, true)),
        "fromYamlArray" | "fromJsonArray" => {
            arguments.at(0).and_then(|value| parsed(run, arguments, value, false))
        }
        "toJson" | "toRawJson" => arguments.at(0).and_then(|value| {
            let mut text = String::new();
            json(run, value, &mut text, 0)?;
            Ok(Value::text(text))
        }),
        "toPrettyJson" => arguments.at(0).and_then(|value| {
            let mut text = String::new();
            json(run, value, &mut text, 0)?;
            let value: Result<serde_json::Value, _> = serde_json::from_str(&text);
            let pretty = value.and_then(|value| serde_json::to_string_pretty(&value));
            pretty.map(Value::text).map_err(|error| arguments.fail(error.to_string()))
        }),
        _ => return None,
    })
}

struct Writer<'w, 'r> {
    run: &'w mut Interpreter<'r>,
    out: Out,
}

/// A value as YAML, without the last line break.
pub(super) fn to_yaml(run: &mut Interpreter<'_>, value: &Value) -> Result<Text, Failed> {
    let mut writer = Writer { run, out: Out::default() };
    let data = writer.run.heap.deps(value);
    writer.value(value, data, 0, Place::Root, 0)?;
    let text = writer.out.finish();
    let end = text.text.trim_end_matches('\n').len();
    Ok(text.slice(0..end))
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Key,
    Item,
}

impl Writer<'_, '_> {
    fn source(&mut self, data: SetId) -> u32 {
        if data == 0 {
            return 0;
        }
        self.run.heap.source(Source { file: NO_FILE, data, ..Source::default() })
    }

    fn push(&mut self, text: &str, data: SetId) -> Result<(), Failed> {
        self.run.charge(1, text.len())?;
        let source = self.source(data);
        self.out.push_str(text, source);
        Ok(())
    }

    fn value(
        &mut self,
        value: &Value,
        data: SetId,
        indent: usize,
        place: Place,
        depth: usize,
    ) -> Result<(), Failed> {
        if depth > MAX_DEPTH {
            return Err(TemplateErrorKind::Limit("60 levels of lists and maps").into());
        }
        let gap = if place == Place::Key { " " } else { "" };
        match &value.data {
            Data::List(id) => {
                let items = self.run.heap.items(*id);
                if items.is_empty() {
                    return self.push(&format!("{gap}[]\n"), data);
                }
                if place == Place::Key {
                    self.push("\n", data)?;
                }
                for (index, item) in items.iter().enumerate() {
                    let own = self.run.heap.deps(item);
                    let own = if own == 0 { data } else { own };
                    let pad = if index == 0 && place == Place::Item { 0 } else { indent };
                    self.push(&format!("{}- ", " ".repeat(pad)), own)?;
                    self.value(item, own, indent + 2, Place::Item, depth + 1)?;
                }
                Ok(())
            }
            Data::Map(id) => {
                let entries = self.run.heap.entries(*id);
                if entries.is_empty() {
                    return self.push(&format!("{gap}{{}}\n"), data);
                }
                if place == Place::Key {
                    self.push("\n", data)?;
                }
                for (index, (key, item)) in entries.iter().enumerate() {
                    let own = self.run.heap.deps(item);
                    let own = if own == 0 { data } else { own };
                    let pad = if index == 0 && place == Place::Item { 0 } else { indent };
                    self.push(&format!("{}{}:", " ".repeat(pad), scalar(key)), own)?;
                    // Lists stand below their key without indentation.
                    let inner = if matches!(item.data, Data::List(_)) { indent } else { indent + 2 };
                    self.value(item, own, inner, Place::Key, depth + 1)?;
                }
                Ok(())
            }
            Data::Str(text) if text.text.contains('\n') => {
                let block = block_scalar(&text.text, indent);
                self.push(&format!("{gap}{block}"), data)
            }
            Data::Str(text) => self.push(&format!("{gap}{}\n", scalar(&text.text)), data),
            Data::Nil => self.push(&format!("{gap}null\n"), data),
            Data::Bool(value) => self.push(&format!("{gap}{value}\n"), data),
            Data::Int(value, _) => self.push(&format!("{gap}{value}\n"), data),
            Data::Float(value) => self.push(&format!("{gap}{}\n", json_float(*value)), data),
            Data::Files(_) | Data::ApiVersions => self.push(&format!("{gap}{{}}\n"), data),
        }
    }
}

/// A string of several lines, below its key. One whose first line is indented, or that has other breaks, is quoted.
fn block_scalar(text: &str, indent: usize) -> String {
    let odd = text.starts_with([' ', '\n', '\t'])
        || text.contains(['\r', '\t'])
        || text.chars().any(|c| c.is_control() && c != '\n');
    if odd {
        return format!("{}\n", quoted(text));
    }
    let chomping = if text.ends_with("\n\n") {
        "+"
    } else if text.ends_with('\n') {
        ""
    } else {
        "-"
    };
    let mut block = format!("|{chomping}\n");
    let pad = " ".repeat(indent.max(2));
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        if !line.is_empty() {
            block.push_str(&pad);
            block.push_str(line);
        }
        block.push('\n');
    }
    block
}

/// A string on one line, in quotes if it has to be.
fn scalar(text: &str) -> String {
    let written = palisade_yaml::to_yaml(&serde_json::Value::String(text.to_owned()), 0);
    let written = written.trim_end_matches('\n');
    if written.contains('\n') { quoted(text) } else { written.to_owned() }
}

fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

#[expect(clippy::cast_possible_truncation, reason = "a whole number within 53 bits")]
fn json_float(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return (value as i64).to_string();
    }
    super::print::float(value)
}

fn json(run: &mut Interpreter<'_>, value: &Value, text: &mut String, depth: usize) -> Result<(), Failed> {
    if depth > MAX_DEPTH {
        return Err(TemplateErrorKind::Limit("60 levels of lists and maps").into());
    }
    let before = text.len();
    match &value.data {
        Data::Nil => text.push_str("null"),
        Data::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Data::Int(value, _) => text.push_str(&value.to_string()),
        Data::Float(value) => text.push_str(&json_float(*value)),
        Data::Str(string) => text.push_str(&quoted(&string.text)),
        Data::List(id) => {
            text.push('[');
            for (index, item) in run.heap.items(*id).iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                json(run, item, text, depth + 1)?;
            }
            text.push(']');
        }
        Data::Map(id) => {
            text.push('{');
            for (index, (key, item)) in run.heap.entries(*id).iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&quoted(key));
                text.push(':');
                json(run, item, text, depth + 1)?;
            }
            text.push('}');
        }
        Data::Files(_) | Data::ApiVersions => text.push_str("{}"),
    }
    run.charge(1, text.len().saturating_sub(before) / (depth + 1))
}

fn parsed(
    run: &mut Interpreter<'_>,
    arguments: &Arguments<'_>,
    value: &Value,
    is_map: bool,
) -> Result<Value, Failed> {
    let Data::Str(text) = &value.data else { return Err(arguments.fail("a string is needed")) };
    let result = parse_yaml(run, text)?;
    let fits = match result.as_ref().map(|value| &value.data) {
        Ok(Data::Map(_)) => is_map,
        Ok(Data::List(_)) => !is_map,
        Ok(Data::Nil) => true,
        _ => false,
    };
    match result {
        Ok(value) if fits && !value.is_nil() => Ok(value),
        Ok(_) if fits => Ok(if is_map { run.heap.map(Map::new()) } else { run.heap.list(Vec::new()) }),
        // As Helm does: the error is in the result.
        Ok(_) => Ok(with_error(run, is_map, "error unmarshaling JSON: the text is of another type")),
        Err(message) => Ok(with_error(run, is_map, &message)),
    }
}

fn with_error(run: &mut Interpreter<'_>, is_map: bool, message: &str) -> Value {
    let message = Value::text(message);
    if is_map { run.heap.map([("Error".into(), message)].into()) } else { run.heap.list(vec![message]) }
}

/// What is wrong with a text that should be YAML.
type YamlProblem = Rc<str>;

/// The first document of a text; each value is made of what its text is made of.
fn parse_yaml(run: &mut Interpreter<'_>, text: &Text) -> Result<Result<Value, YamlProblem>, Failed> {
    run.charge(1 + text.text.len() as u64 / 16, text.text.len())?;
    let limits =
        Limits { max_bytes: 16 << 20, max_nodes: 500_000, max_expanded_nodes: 500_000, ..Limits::default() };
    let parsed = palisade_yaml::parse(&text.text, &limits);
    if let Some(error) = parsed.errors.first() {
        return Ok(Err(error.to_string().into()));
    }
    let Some(document) = parsed.documents.first() else { return Ok(Ok(Value::NIL)) };
    node(run, document.root(), text, 0).map(Ok)
}

fn node(run: &mut Interpreter<'_>, of: NodeRef<'_>, text: &Text, depth: usize) -> Result<Value, Failed> {
    if depth > 2 * MAX_DEPTH {
        return Err(TemplateErrorKind::Limit("60 levels of lists and maps").into());
    }
    run.charge(1, 8)?;
    let data = match of.view() {
        View::Scalar(Resolved::Null) => Data::Nil,
        View::Scalar(Resolved::Bool(value)) => Data::Bool(value),
        View::Scalar(Resolved::Int(value)) => Data::Int(value, IntKind::Yaml),
        #[expect(clippy::cast_precision_loss, reason = "as Go reads it")]
        View::Scalar(Resolved::UInt(value)) => Data::Float(value as f64),
        View::Scalar(Resolved::Float(value)) => Data::Float(value),
        View::Scalar(Resolved::Str(value)) => Data::Str(value.into()),
        View::Sequence(items) => {
            let mut values = Vec::with_capacity(items.len());
            for item in items {
                values.push(node(run, item, text, depth + 1)?);
            }
            run.heap.list(values).data
        }
        View::Mapping(entries) => {
            let mut map = Map::new();
            for entry in entries {
                let value = node(run, entry.value, text, depth + 1)?;
                map.insert(entry.key.as_ref().into(), value);
            }
            run.heap.map(map).data
        }
    };
    let source = text.source_at(of.target().span().start);
    let deps = run.heap.sources.get(source as usize).map_or(0, |source| source.data);
    Ok(Value { data, path: 0, deps })
}
