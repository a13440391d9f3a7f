//! YAML in and out: bodies as upstream reads them, and answers for clients that ask for YAML.

use std::fmt::Write as _;

use palisade_apimachinery::Status;
use palisade_yaml::{Limits, LineIndex};
use serde_json::Value;

/// Reads a body that is YAML or JSON; also returns the keys that are there twice.
pub(crate) fn parse(body: &[u8]) -> Result<(Value, Vec<String>), Box<Status>> {
    let bad = |why: String| Status::bad_request(format!("error converting YAML to JSON: yaml: {why}"));
    if body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
        && let Ok(value) = serde_json::from_slice(body)
    {
        return Ok((value, Vec::new()));
    }
    let text = palisade_yaml::decode(body).map_err(|error| bad(error.to_string()))?;
    let limits = Limits { max_bytes: crate::api::MAX_BODY, ..Limits::default() };
    let parsed = palisade_yaml::parse(&text, &limits);
    if let Some(error) = parsed.errors.first() {
        let line = LineIndex::new(&text).position(error.span.start).line;
        return Err(bad(format!("line {line}: {error}")));
    }
    let Some(document) = parsed.documents.first() else { return Ok((Value::Null, Vec::new())) };
    let duplicates = document.duplicate_keys().iter().map(|d| d.key.clone()).collect();
    let value = document.root().to_json().map_err(|error| bad(error.to_string()))?;
    Ok((value, duplicates))
}

/// Writes a document in block style.
#[must_use]
pub(crate) fn to_yaml(document: &Value) -> String {
    let mut out = String::new();
    block(document, 0, &mut out);
    out
}

fn block(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                indent(depth, out);
                scalar_text(key, out);
                out.push(':');
                nested(value, depth, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(depth, out);
                out.push('-');
                item_text(item, depth, out);
            }
        }
        other => {
            leaf(other, out);
            out.push('\n');
        }
    }
}

/// What follows `key:`.
fn nested(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            block(value, depth + 1, out);
        }
        // Lists stand under their key without further indentation, as upstream writes them.
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(value, depth, out);
        }
        other => {
            out.push(' ');
            leaf(other, out);
            out.push('\n');
        }
    }
}

/// What follows `-`.
fn item_text(item: &Value, depth: usize, out: &mut String) {
    match item {
        Value::Object(map) if !map.is_empty() => {
            for (at, (key, value)) in map.iter().enumerate() {
                if at == 0 {
                    out.push(' ');
                } else {
                    indent(depth + 1, out);
                }
                scalar_text(key, out);
                out.push(':');
                nested(value, depth + 1, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            block(item, depth + 1, out);
        }
        other => {
            out.push(' ');
            leaf(other, out);
            out.push('\n');
        }
    }
}

fn indent(depth: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", depth));
}

fn leaf(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => scalar_text(text, out),
        other => {
            // Numbers, booleans, null and empty collections are the same in JSON.
            let _ = write!(out, "{other}");
        }
    }
}

/// Plain where nobody could read it as something else, quoted as in JSON otherwise.
fn scalar_text(text: &str, out: &mut String) {
    let plain_start = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/');
    let plain_rest = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" | "nan" | "inf"
    );
    if plain_start && plain_rest && !word {
        out.push_str(text);
    } else {
        let _ = write!(out, "{}", Value::String(text.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_back() {
        let document = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "labels": {"on": "yes", "1": "2"}, "finalizers": []},
            "data": {"text": "two\nlines", "colon": "a: b", "empty": ""},
            "list": [{"a": 1, "b": [true, null, [1, 2]]}, "x", {}],
        });
        let text = to_yaml(&document);
        assert_eq!(parse(text.as_bytes()).expect("YAML").0, document, "{text}");
    }
}
