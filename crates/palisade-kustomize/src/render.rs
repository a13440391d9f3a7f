//! Objects as text, with the origin of each key and value in it.
//!
//! The text is JSON, one document for each object, which every reader of manifests takes. Nobody edits it: places in it lead back
//! to the files by [`Rendered::origin`].

use std::fmt::Write as _;

use palisade_yaml::Span;
use serde_json::Value as Json;

use crate::tree::{Node, Origin, Value};

/// Objects as text.
#[derive(Debug, Default)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// Where what begins, by offset.
    marks: Vec<Mark>,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: usize,
    /// After the key alone, if it is one.
    key_end: Option<usize>,
    origin: Option<Origin>,
    /// Where the value of the key ends in the same source.
    value_end: Option<usize>,
}

impl Rendered {
    /// Writes objects.
    pub fn of<'n>(objects: impl Iterator<Item = &'n Node>) -> Self {
        let mut rendered = Self::default();
        for object in objects {
            rendered.text.push_str("---\n");
            rendered.node(object);
            rendered.text.push('\n');
        }
        rendered
    }

    fn mark(&mut self, origin: Option<Origin>) {
        self.marks.push(Mark { at: self.text.len(), key_end: None, origin, value_end: None });
    }

    fn node(&mut self, node: &Node) {
        self.mark(node.origin);
        match &node.value {
            Value::Scalar(Json::String(text)) => self.string(text),
            Value::Scalar(scalar) => {
                // Writing to a string cannot fail.
                let _ = write!(self.text, "{scalar}");
            }
            Value::List(items) => {
                self.text.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.text.push_str(if index == 0 { "\n" } else { ",\n" });
                    self.node(item);
                }
                self.text.push(']');
            }
            Value::Map(entries) => {
                self.text.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.text.push_str(if index == 0 { "\n" } else { ",\n" });
                    let at = self.text.len();
                    self.string(key);
                    let value_end = match (value.key, value.origin, &value.value) {
                        (Some(key), Some(origin), Value::Scalar(_))
                            if key.source == origin.source && key.span.start <= origin.span.start =>
                        {
                            Some(origin.span.end)
                        }
                        _ => None,
                    };
                    let key_end = Some(self.text.len());
                    let origin = value.key.or(value.origin);
                    self.marks.push(Mark { at, key_end, origin, value_end });
                    self.text.push_str(": ");
                    self.node(value);
                }
                self.text.push('}');
            }
        }
    }

    /// A string as JSON and YAML both read it: control characters are escaped.
    fn string(&mut self, text: &str) {
        self.text.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                ' '..='\u{7e}'
                | '\u{a0}'..='\u{2027}'
                | '\u{202a}'..='\u{d7ff}'
                | '\u{e000}'..='\u{fefe}' => {
                    self.text.push(letter);
                }
                _ => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.text, "\\u{unit:04x}");
                    }
                }
            }
        }
        self.text.push('"');
    }

    /// The origin of what begins at an offset, or of the closest before it that has one; `span` is what was found in the text.
    #[must_use]
    pub fn origin(&self, span: Span) -> Option<(Origin, Span)> {
        let after = self.marks.partition_point(|mark| mark.at <= span.start);
        let mark = self.marks.get(..after)?.iter().rev().find(|mark| mark.origin.is_some())?;
        let origin = mark.origin?;
        let is_pair = mark.at == span.start && mark.key_end.is_some_and(|end| span.end > end);
        let end = mark.value_end.filter(|_| is_pair).unwrap_or(origin.span.end);
        Some((origin, Span::new(origin.span.start, end)))
    }
}
