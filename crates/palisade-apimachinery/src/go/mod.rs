//! How Go prints values: `%q`, `%v` of decoded JSON, and `encoding/json` text.
//!
//! Upstream's messages are full of values formatted by Go's `fmt` and `encoding/json`; they are reproduced here once.

pub mod time;

use std::fmt::Write as _;

use serde_json::Value;

/// `strconv.Quote`, the `%q` verb: a double-quoted Go string literal.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if is_print(c) => out.push(c),
            c if (c as u32) < 0x20 || c == '\x7f' => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c if (c as u32) < 0x10000 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => {
                let _ = write!(out, "\\U{:08x}", c as u32);
            }
        }
    }
    out.push('"');
    out
}

/// An approximation of `strconv.IsPrint`: Rust escapes the same categories (controls, separators, unassigned) in its
/// own debug form, except that a few grapheme extenders are escaped there and printed by Go.
fn is_print(c: char) -> bool {
    if (' '..='~').contains(&c) {
        return true;
    }
    if c.is_ascii() || c.is_control() || (c.is_whitespace() && c != ' ') {
        return false;
    }
    let mut buffer = [0u8; 4];
    let text: &str = c.encode_utf8(&mut buffer);
    // `escape_debug` on a str leaves grapheme extenders alone unless they come first, so something comes before.
    let mut probe = String::with_capacity(5);
    probe.push('a');
    probe.push_str(text);
    probe.escape_debug().count() == 2
}

/// `%v` of a value decoded from JSON into Go's `interface{}`: `map[a:1 b:[x y]]`.
#[must_use]
pub fn display(value: &Value) -> String {
    let mut out = String::new();
    write_display(&mut out, value);
    out
}

fn write_display(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => out.push_str(&n.to_string()),
        Value::String(s) => out.push_str(s),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_display(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                if let Some(item) = map.get(key) {
                    write_display(out, item);
                }
            }
            out.push(']');
        }
    }
}

/// `json.Marshal`: compact, keys sorted, `<`, `>`, `&`, U+2028 and U+2029 escaped.
#[must_use]
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, value);
    out
}

/// A structure as `encoding/json` writes it: the named fields first and in this order, then what else there is.
#[must_use]
pub fn ordered_json(value: &Value, fields: &[&str]) -> String {
    let Value::Object(map) = value else { return json(value) };
    let known = fields.iter().filter_map(|field| map.get_key_value(*field));
    let others = map.iter().filter(|(key, _)| !fields.contains(&key.as_str()));
    let mut out = String::from("{");
    for (key, value) in known.chain(others) {
        if out.len() > 1 {
            out.push(',');
        }
        json_string(&mut out, key);
        out.push(':');
        write_json(&mut out, value);
    }
    out.push('}');
    out
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort();
            for (i, key) in keys.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                json_string(out, key);
                out.push(':');
                if let Some(item) = map.get(key) {
                    write_json(out, item);
                }
            }
            out.push('}');
        }
        Value::String(text) => json_string(out, text),
        other => out.push_str(&other.to_string()),
    }
}

/// Writes `text` as `encoding/json` does with HTML escaping on.
pub fn json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The name Go's JSON decoder gives to a value in its errors: `string`, `number`, `bool`, `array`, `object`.
#[must_use]
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quotes_like_go() {
        for (text, expected) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("tab\tnl\n", r#""tab\tnl\n""#),
            ("\x07\x00\x7f", r#""\a\x00\x7f""#),
            ("é", r#""é""#),
            ("\u{200b}", r#""\u200b""#),
            ("\u{a0}", r#""\u00a0""#),
        ] {
            assert_eq!(quote(text), expected);
        }
    }

    #[test]
    fn prints_maps_like_go() {
        assert_eq!(display(&json!({"b": [1, "x"], "a": null})), "map[a:<nil> b:[1 x]]");
        assert_eq!(json(&json!({"b": "<", "a": 1})), r#"{"a":1,"b":"\u003c"}"#);
    }
}
