//! How Go prints values: `%q`, `%v` of decoded JSON, and `encoding/json` text.
//!
//! Upstream's messages are full of values formatted by Go's `fmt` and `encoding/json`; they are reproduced here once.

use std::fmt::{self, Write as _};

use serde_json::Value;

/// Displays a string as `strconv.Quote` and the `%q` verb do. Rust's `{:?}` escapes differently.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\x07' => f.write_str("\\a")?,
                '\x08' => f.write_str("\\b")?,
                '\x0c' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\x0b' => f.write_str("\\v")?,
                c if is_print(c) => f.write_char(c)?,
                c if c.is_ascii() => write!(f, "\\x{:02x}", c as u32)?,
                c if (c as u32) < 0x1_0000 => write!(f, "\\u{:04x}", c as u32)?,
                c => write!(f, "\\U{:08x}", c as u32)?,
            }
        }
        f.write_char('"')
    }
}

/// The type of a decoded JSON value as the `%T` verb prints it.
#[must_use]
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Whether a value is displayed as a text, found without making a string of it.
#[must_use]
pub fn displays_as(value: &impl fmt::Display, text: &str) -> bool {
    struct Rest<'a>(&'a str);
    impl fmt::Write for Rest<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(text);
    write!(rest, "{value}").is_ok() && rest.0.is_empty()
}

/// [`Quoted`] as a string.
#[must_use]
pub fn quote(text: &str) -> String {
    Quoted(text).to_string()
}

/// An approximation of `strconv.IsPrint`: Rust escapes the same categories (controls, separators, unassigned) in its
/// own debug form, except that a few grapheme extenders are escaped there and printed by Go.
fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    if c.is_control() || c.is_whitespace() {
        return false;
    }
    // `escape_debug` on a str leaves grapheme extenders alone unless they come first, so something comes before.
    String::from_iter(['a', c]).escape_debug().count() == 2
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

/// Displays a string as `encoding/json` does with HTML escaping on.
#[derive(Debug, Clone, Copy)]
pub struct JsonQuoted<'a>(pub &'a str);

impl fmt::Display for JsonQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\x08' => f.write_str("\\b")?,
                '\x0c' => f.write_str("\\f")?,
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\x1f' => {
                    write!(f, "\\u{:04x}", c as u32)?;
                }
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Appends [`JsonQuoted`].
pub fn json_string(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{}", JsonQuoted(text));
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
            ("\x07\x08\x0c\n\r\t\x0b", r#""\a\b\f\n\r\t\v""#),
            ("\0\x1f\x7f", r#""\x00\x1f\x7f""#),
            ("naïve 世界 😀", r#""naïve 世界 😀""#),
            ("\u{feff}", r#""\ufeff""#),
            ("\u{10ffff}", r#""\U0010ffff""#),
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
        assert_eq!(JsonQuoted("a<b>&\u{1}\n").to_string(), r#""a\u003cb\u003e\u0026\u0001\n""#);
    }
}
