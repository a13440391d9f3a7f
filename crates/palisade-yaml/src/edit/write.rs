//! Values to text, in the style of the document.

use std::fmt::Write as _;

use super::{
    Value,
    style::{Json, Style},
};
use crate::scalar::{Resolved, resolve_plain};

/// Writes a document in the block style of Kubernetes manifests, each line at `indent` and with its end. It reads back as
/// `value`: strings are quoted where a YAML 1.1 or 1.2 reader would take them for something else.
#[must_use]
pub fn to_yaml(value: &serde_json::Value, indent: usize) -> String {
    let style = Style {
        eol: "\n",
        step: 2,
        list_offset: 0,
        flow_lists: false,
        single_quotes: false,
        literals: false,
        json: None,
    };
    let Block { head, lines, .. } = style.block(&Value::from(value.clone()).into(), Parent::Root, false);
    let mut out = String::new();
    for line in std::iter::once(head).chain(lines) {
        let _ = writeln!(out, "{:indent$}{line}", "");
    }
    out
}

/// What is written: values, and aliases that stay aliases.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Scalar(Value),
    List(Vec<Tree>),
    Map(Vec<(Key, Tree)>),
    /// `*name`
    Alias(String),
}

#[derive(Clone, Debug)]
pub(super) enum Key {
    Text(String),
    /// `<<`
    Merge,
}

impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        match value {
            Value::List(items) => Self::List(items.into_iter().map(Into::into).collect()),
            Value::Map(entries) => {
                Self::Map(entries.into_iter().map(|(key, value)| (Key::Text(key), value.into())).collect())
            }
            scalar => Self::Scalar(scalar),
        }
    }
}

/// A value in block style: what stands behind the `:` or `-`, and the lines below.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) head: String,
    pub(super) lines: Vec<String>,
    /// The column of `head` if it is the first line of a collection, which needs a line of its own after an anchor.
    pub(super) compact: Option<usize>,
}

impl Block {
    fn inline(head: impl Into<String>) -> Self {
        Self { head: head.into(), ..Self::default() }
    }

    /// Puts an anchor before the value.
    pub(super) fn with_anchor(mut self, anchor: &str) -> Self {
        if let Some(column) = self.compact.take() {
            self.lines.insert(0, format!("{:column$}{}", "", self.head));
            self.head.clear();
        }
        let space = if self.head.is_empty() { "" } else { " " };
        self.head = format!("{anchor}{space}{}", self.head);
        self
    }
}

/// What a block value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parent {
    /// A key in this column.
    Key(usize),
    /// A dash in this column, and how far right of it the item begins.
    Dash(usize, usize),
    /// Nothing: the value is the document.
    Root,
}

impl Style {
    /// Writes a value in block style. `flow_list` requests brackets around a list of scalars.
    pub(super) fn block(&self, tree: &Tree, parent: Parent, flow_list: bool) -> Block {
        match tree {
            Tree::Alias(name) => Block::inline(name),
            Tree::Scalar(Value::String(text)) if self.literals && suits_literal(text) => {
                self.literal(text, parent)
            }
            Tree::Scalar(value) => Block::inline(self.scalar(value, false)),
            Tree::Map(entries) if entries.is_empty() => Block::inline("{}"),
            Tree::List(items) if items.is_empty() => Block::inline("[]"),
            Tree::List(items) if (flow_list || self.flow_lists) && items.iter().all(is_short_scalar) => {
                Block::inline(self.flow(tree))
            }
            Tree::Map(entries) => {
                let indent = match parent {
                    Parent::Key(column) => column + self.step,
                    Parent::Dash(column, gap) => column + gap,
                    Parent::Root => 0,
                };
                let mut lines = Vec::new();
                for (key, value) in entries {
                    self.block_entry(&mut lines, key, value, indent);
                }
                compact(lines, parent, indent)
            }
            Tree::List(items) => {
                let indent = match parent {
                    Parent::Key(column) => column + self.list_offset,
                    Parent::Dash(column, gap) => column + gap,
                    Parent::Root => 0,
                };
                let mut lines = Vec::new();
                for item in items {
                    self.block_item(&mut lines, item, indent, " ");
                }
                compact(lines, parent, indent)
            }
        }
    }

    /// Writes `key: value` at a column.
    pub(super) fn block_entry(&self, lines: &mut Vec<String>, key: &Key, value: &Tree, column: usize) {
        let block = self.block(value, Parent::Key(column), false);
        let space = if block.head.is_empty() { "" } else { " " };
        lines.push(format!("{:column$}{}:{space}{}", "", self.key(key, false), block.head));
        lines.extend(block.lines);
    }

    /// Writes `- value` at a column; `gap` is what stands between dash and value.
    pub(super) fn block_item(&self, lines: &mut Vec<String>, item: &Tree, column: usize, gap: &str) {
        let block = self.block(item, Parent::Dash(column, 1 + gap.len()), false);
        lines.push(format!("{:column$}-{gap}{}", "", block.head));
        lines.extend(block.lines);
    }

    /// A text of several lines, as it is.
    fn literal(&self, text: &str, parent: Parent) -> Block {
        let indent = match parent {
            Parent::Key(column) => column + self.step,
            Parent::Dash(column, gap) => column + gap,
            Parent::Root => self.step,
        };
        let (head, content) = match text.strip_suffix('\n') {
            Some(content) => ("|", content),
            None => ("|-", text),
        };
        let line = |line: &str| if line.is_empty() { String::new() } else { format!("{:indent$}{line}", "") };
        Block { lines: content.split('\n').map(line).collect(), ..Block::inline(head) }
    }

    /// Writes a value in flow style, on one line.
    pub(super) fn flow(&self, tree: &Tree) -> String {
        let mut out = String::new();
        self.write_flow(&mut out, tree);
        out
    }

    fn write_flow(&self, out: &mut String, tree: &Tree) {
        match tree {
            Tree::Alias(name) => out.push_str(name),
            Tree::Scalar(value) => out.push_str(&self.scalar(value, true)),
            Tree::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push_str(self.comma());
                    }
                    self.write_flow(out, item);
                    if at + 1 == items.len() && matches!(item, Tree::Alias(_)) {
                        // `*name]` is fine for YAML, but some readers take the bracket for a part of the name.
                        out.push(' ');
                    }
                }
                out.push(']');
            }
            Tree::Map(entries) => {
                out.push('{');
                for (at, (key, value)) in entries.iter().enumerate() {
                    if at > 0 {
                        out.push_str(self.comma());
                    }
                    out.push_str(&self.key(key, true));
                    out.push_str(self.colon());
                    self.write_flow(out, value);
                }
                out.push('}');
            }
        }
    }

    /// Writes a value in flow style the way this document lays it out: pretty JSON gets a line per entry. `indent`
    /// is the indentation of the line the value begins on.
    pub(super) fn laid_out(&self, tree: &Tree, indent: &str) -> String {
        let mut out = String::new();
        match self.json {
            Some(Json::Pretty { width, tabs }) => {
                let level = if tabs { "\t" } else { " " }.repeat(width);
                self.write_pretty(&mut out, tree, indent, &level);
            }
            _ => self.write_flow(&mut out, tree),
        }
        out
    }

    fn write_pretty(&self, out: &mut String, tree: &Tree, indent: &str, level: &str) {
        let inner = format!("{indent}{level}");
        match tree {
            Tree::List(items) if !items.is_empty() => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    let _ = write!(out, "{}{}{inner}", if at > 0 { "," } else { "" }, self.eol);
                    self.write_pretty(out, item, &inner, level);
                }
                let _ = write!(out, "{}{indent}]", self.eol);
            }
            Tree::Map(entries) if !entries.is_empty() => {
                out.push('{');
                for (at, (key, value)) in entries.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    let _ = write!(out, "{comma}{}{inner}{}{}", self.eol, self.key(key, true), self.colon());
                    self.write_pretty(out, value, &inner, level);
                }
                let _ = write!(out, "{}{indent}}}", self.eol);
            }
            other => self.write_flow(out, other),
        }
    }

    /// Between a key and its value in flow style.
    pub(super) fn colon(&self) -> &'static str {
        if self.json == Some(Json::Minified) { ":" } else { ": " }
    }

    /// Between two entries in flow style.
    pub(super) fn comma(&self) -> &'static str {
        if self.json == Some(Json::Minified) { "," } else { ", " }
    }

    pub(super) fn key(&self, key: &Key, flow: bool) -> String {
        match key {
            Key::Merge => "<<".into(),
            Key::Text(text) => self.string(text, flow),
        }
    }

    pub(super) fn scalar(&self, value: &Value, flow: bool) -> String {
        match value {
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::UInt(value) => value.to_string(),
            Value::Float(value) => float(*value),
            Value::String(text) => self.string(text, flow),
            // Collections never come here.
            Value::Null | Value::List(_) | Value::Map(_) => "null".into(),
        }
    }

    fn string(&self, text: &str, flow: bool) -> String {
        if self.json.is_some() {
            return double_quoted(text);
        }
        if is_plain(text, flow) {
            return text.to_owned();
        }
        if self.single_quotes && !text.contains(needs_escape) {
            return format!("'{}'", text.replace('\'', "''"));
        }
        double_quoted(text)
    }
}

/// The first line stands behind a dash; a document has no indentation to begin with.
fn compact(mut lines: Vec<String>, parent: Parent, indent: usize) -> Block {
    match parent {
        Parent::Key(_) => Block { lines, ..Block::default() },
        Parent::Dash(..) | Parent::Root => {
            let first = if lines.is_empty() { String::new() } else { lines.remove(0) };
            Block { head: first.get(indent..).unwrap_or_default().to_owned(), lines, compact: Some(indent) }
        }
    }
}

fn is_short_scalar(tree: &Tree) -> bool {
    const LONG: usize = 40;
    match tree {
        Tree::Scalar(Value::String(text)) => text.len() <= LONG,
        Tree::Scalar(_) | Tree::Alias(_) => true,
        _ => false,
    }
}

fn float(value: f64) -> String {
    if value.is_nan() {
        return ".nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.into();
    }
    // `Debug` always has a point or an exponent, so that it reads as a float again.
    format!("{value:?}")
}

/// Characters that only double quotes can hold.
fn needs_escape(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn double_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            // All of these are below U+10000, and JSON has this escape as well.
            other if needs_escape(other) => {
                let _ = write!(out, "\\u{:04x}", u32::from(other));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// Whether a text reads as this very string without quotes, for YAML 1.1 and 1.2 readers.
fn is_plain(text: &str, flow: bool) -> bool {
    let bytes = text.as_bytes();
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else { return false };
    let begins = match first {
        b'-' => {
            bytes.get(1).is_some_and(|&next| next.is_ascii_alphanumeric() || next == b'-')
                && !text.starts_with("---")
        }
        b'?' | b':' | b',' | b'[' | b']' | b'{' | b'}' | b'#' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\''
        | b'"' | b'%' | b'@' | b'`' | b' ' | b'=' | b'<' => false,
        _ => !text.starts_with("..."),
    };
    let has_indicator =
        text.contains(": ") || text.contains(" #") || (flow && text.contains([',', '?', '[', ']', '{', '}']));
    begins
        && !matches!(last, b' ' | b':')
        && !has_indicator
        && !text.contains(needs_escape)
        && matches!(resolve_plain(text), Resolved::Str(_))
        && !looks_like_date_or_time(text)
}

/// `2024-01-01` and `12:30` are strings for Kubernetes, but not for every reader of YAML 1.1.
fn looks_like_date_or_time(text: &str) -> bool {
    let digits_first =
        text.trim_start_matches(['-', '+']).bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    let rest =
        text.trim_start_matches(['-', '+']).trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
    digits_first
        && (rest.starts_with('-') || rest.starts_with(':'))
        && text.bytes().all(|byte| {
            byte.is_ascii_digit()
                || matches!(byte, b'-' | b'+' | b':' | b'.' | b'_' | b'T' | b't' | b'Z' | b' ')
        })
}

/// Whether a text is best written as a literal block: lines that need neither escapes nor indentation indicators.
fn suits_literal(text: &str) -> bool {
    let content = text.strip_suffix('\n').unwrap_or(text);
    content.contains('\n')
        && !content.starts_with([' ', '\n', '\t'])
        && !content.ends_with('\n')
        && !content.contains(|character| character != '\n' && needs_escape(character))
        && content.split('\n').all(|line| !line.ends_with([' ', '\t']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, parse};

    fn style(json: Option<Json>) -> Style {
        Style {
            eol: "\n",
            step: 2,
            list_offset: 0,
            flow_lists: false,
            single_quotes: false,
            literals: true,
            json,
        }
    }

    #[test]
    fn documents_are_written_in_block_style() {
        let value = serde_json::json!({"a": [{"b": "x", "c": []}, "w", ["z"]], "d": {"e": "true", "f": "1", "g": null, "h": {}}});
        assert_eq!(
            to_yaml(&value, 2),
            "  a:\n  - b: x\n    c: []\n  - w\n  - - z\n  d:\n    e: \"true\"\n    f: \"1\"\n    g: null\n    h: {}\n"
        );
        assert_eq!(to_yaml(&"two\nlines".into(), 0), "\"two\\nlines\"\n");
    }

    #[test]
    fn quotes_only_what_needs_them() {
        for (text, block, flow) in [
            ("ALL", "ALL", "ALL"),
            ("", "\"\"", "\"\""),
            ("yes", "\"yes\"", "\"yes\""),
            ("No", "\"No\"", "\"No\""),
            ("null", "\"null\"", "\"null\""),
            ("123", "\"123\"", "\"123\""),
            ("0x1f", "\"0x1f\"", "\"0x1f\""),
            ("1e3", "\"1e3\"", "\"1e3\""),
            ("100m", "100m", "100m"),
            ("10.0.0.1", "10.0.0.1", "10.0.0.1"),
            ("2024-01-01", "\"2024-01-01\"", "\"2024-01-01\""),
            ("12:30", "\"12:30\"", "\"12:30\""),
            ("nginx:1.25", "nginx:1.25", "nginx:1.25"),
            ("a: b", "\"a: b\"", "\"a: b\""),
            ("a:", "\"a:\"", "\"a:\""),
            ("a #b", "\"a #b\"", "\"a #b\""),
            ("a#b", "a#b", "a#b"),
            ("a,b", "a,b", "\"a,b\""),
            ("--verbose", "--verbose", "--verbose"),
            ("-v", "-v", "-v"),
            ("- v", "\"- v\"", "\"- v\""),
            ("---", "\"---\"", "\"---\""),
            ("<<", "\"<<\"", "\"<<\""),
            ("*x", "\"*x\"", "\"*x\""),
            ("@x", "\"@x\"", "\"@x\""),
            ("it's", "it's", "it's"),
            ("say \"hi\"", "say \"hi\"", "say \"hi\""),
            ("tab\there", "\"tab\\there\"", "\"tab\\there\""),
            ("line\nbreak", "\"line\\nbreak\"", "\"line\\nbreak\""),
            ("\u{7}\u{feff}", "\"\\u0007\\ufeff\"", "\"\\u0007\\ufeff\""),
            ("é", "é", "é"),
        ] {
            let value = Value::from(text);
            assert_eq!(style(None).scalar(&value, false), block, "{text:?} in block style");
            assert_eq!(style(None).scalar(&value, true), flow, "{text:?} in flow style");
        }
        let single = Style { single_quotes: true, ..style(None) };
        assert_eq!(single.scalar(&"don't: x".into(), false), "'don''t: x'");
        assert_eq!(single.scalar(&"a\nb".into(), true), "\"a\\nb\"");
        assert_eq!(style(Some(Json::Spaced)).scalar(&"ALL".into(), true), "\"ALL\"");
    }

    #[test]
    fn writes_values_in_both_styles() {
        let value = Value::map([
            ("name", Value::from("web")),
            ("list", Value::list(["a", "b"])),
            ("nested", Value::list([Value::map([("x", 1), ("z", 2)]), Value::list([1, 2])])),
            ("text", Value::from("one\n\ntwo\n")),
            ("empty", Value::Map(Vec::new())),
            ("nothing", Value::Null),
        ]);
        let tree = Tree::from(value.clone());
        let mut lines = Vec::new();
        style(None).block_entry(&mut lines, &Key::Text("top".into()), &tree, 2);
        let text = lines.join("\n");
        insta::assert_snapshot!(text, @r#"
        top:
          name: web
          list:
          - a
          - b
          nested:
          - x: 1
            z: 2
          - - 1
            - 2
          text: |
            one

            two
          empty: {}
          nothing: null
        "#);
        let parsed = parse(&text, &Limits::default());
        assert!(Value::of(parsed.documents[0].root().get("top").unwrap()).means(&value));
        for style in
            [style(None), style(Some(Json::Minified)), style(Some(Json::Pretty { width: 1, tabs: true }))]
        {
            let text = style.laid_out(&tree, "");
            let parsed = parse(&text, &Limits::default());
            assert_eq!(parsed.errors, [], "{text}");
            assert!(Value::of(parsed.documents[0].root()).means(&value), "{text}");
        }
    }
}
