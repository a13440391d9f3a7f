//! Random documents: a text with every layout we can think of, and the value it should have.

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A document in the making. The small numbers choose among layouts.
#[derive(Clone, Debug)]
pub(crate) enum Gen {
    Scalar(usize),
    BlockScalar(usize),
    List { items: Vec<Gen>, flow: bool, layout: usize },
    Map { entries: Vec<(usize, Gen)>, flow: bool, layout: usize, merge: Option<usize> },
    Anchor(Box<Gen>),
    Alias(usize),
}

/// A scalar as it is written, and what it means.
fn scalars() -> Vec<(&'static str, Value)> {
    vec![
        ("plain", json!("plain")),
        ("two words", json!("two words")),
        ("1", json!(1)),
        ("0x1F", json!(31)),
        ("0755", json!(493)),
        ("1.5", json!(1.5)),
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("~", json!(null)),
        ("null", json!(null)),
        ("'it''s'", json!("it's")),
        ("'#no: comment'", json!("#no: comment")),
        ("\"a\\tb\\n\"", json!("a\tb\n")),
        ("\"\"", json!("")),
        ("''", json!("")),
        ("nginx:1.25", json!("nginx:1.25")),
        ("a#b", json!("a#b")),
        ("é😀", json!("é😀")),
        ("!!str 5", json!("5")),
        ("!!int \"7\"", json!(7)),
        ("2024-01-01", json!("2024-01-01")),
        ("-x", json!("-x")),
        ("\"{{ x }}\"", json!("{{ x }}")),
    ]
}

fn keys() -> Vec<(&'static str, &'static str)> {
    vec![
        ("a", "a"),
        ("b", "b"),
        ("key", "key"),
        ("two words", "two words"),
        ("\"quoted\"", "quoted"),
        ("'single'", "single"),
        ("on", "true"),
        ("8", "8"),
        ("a.b/c", "a.b/c"),
        ("é", "é"),
        ("'<<'", "<<"),
    ]
}

/// The lines of a block scalar, its header, and what it means.
fn block_scalars() -> Vec<(&'static str, &'static [&'static str], &'static str)> {
    vec![
        ("|", &["one", "two"], "one\ntwo\n"),
        ("|-", &["# no comment", " more", "", "end"], "# no comment\n more\n\nend"),
        ("|+", &["kept", "", ""], "kept\n\n\n"),
        (">", &["folded", "text"], "folded text\n"),
        (">-", &["- x: 1"], "- x: 1"),
        ("| # header", &["x", ""], "x\n"),
    ]
}

pub(crate) fn document() -> impl Strategy<Value = Gen> {
    let leaf = prop_oneof![
        6 => (0..64_usize).prop_map(Gen::Scalar),
        1 => (0..16_usize).prop_map(Gen::BlockScalar),
        1 => (0..8_usize).prop_map(Gen::Alias),
        1 => (0..64_usize).prop_map(|scalar| Gen::Anchor(Box::new(Gen::Scalar(scalar)))),
    ];
    let tree = leaf.prop_recursive(4, 40, 5, |inner| {
        let collection = prop_oneof![
            2 => (prop::collection::vec(inner.clone(), 0..5), any::<bool>(), 0..64_usize)
                .prop_map(|(items, flow, layout)| Gen::List { items, flow: flow && layout % 3 == 0, layout }),
            4 => (
                prop::collection::vec((0..16_usize, inner), 0..5),
                any::<bool>(),
                0..64_usize,
                prop::option::weighted(0.2, 0..8_usize)
            )
                .prop_map(|(entries, flow, layout, merge)| Gen::Map { entries, flow: flow && layout % 3 == 0, layout, merge }),
        ];
        (collection, prop::bool::weighted(0.2))
            .prop_map(|(gen_, anchored)| if anchored { Gen::Anchor(Box::new(gen_)) } else { gen_ })
    });
    tree.prop_filter("a document is a collection", |tree| matches!(tree, Gen::List { .. } | Gen::Map { .. }))
}

/// Text and meaning of a document.
pub(crate) fn write(document: &Gen, line_end: &str) -> (String, Value) {
    let mut writer = Writer { out: String::new(), anchors: Vec::new() };
    let value = writer.root(document);
    (writer.out.replace('\n', line_end), value)
}

struct Writer {
    out: String,
    anchors: Vec<Value>,
}

#[derive(Clone, Copy)]
enum After {
    Root,
    /// A key in this column.
    Key(usize),
    /// A dash in this column.
    Dash(usize),
}

impl Writer {
    fn root(&mut self, document: &Gen) -> Value {
        match document {
            Gen::List { items, flow, .. } if *flow || items.is_empty() => self.line_flow(document),
            Gen::Map { entries, flow, merge, .. }
                if *flow || (entries.is_empty() && self.target(*merge).is_none()) =>
            {
                self.line_flow(document)
            }
            _ => self.block(document, After::Root),
        }
    }

    fn line_flow(&mut self, node: &Gen) -> Value {
        let value = self.flow(node);
        self.out.push('\n');
        value
    }

    /// A mapping that was anchored before, as its number and value.
    fn target(&self, merge: Option<usize>) -> Option<(usize, Value)> {
        let maps: Vec<_> = self.anchors.iter().enumerate().filter(|(_, value)| value.is_object()).collect();
        let (number, value) = maps.get(merge?.checked_rem(maps.len())?)?;
        Some((*number, (*value).clone()))
    }

    fn end_line(&mut self, layout: usize, column: usize) {
        match layout % 11 {
            0 => self.out.push_str(" # comment\n"),
            1 => self.out.push_str("  \n"),
            2 => self.out.push_str("\n\n"),
            3 => {
                self.out.push('\n');
                self.out.push_str(&" ".repeat(column));
                self.out.push_str("# above: x\n");
            }
            _ => self.out.push('\n'),
        }
    }

    /// Writes a value after `key:` or `-` (or at the start), with the end of its line.
    fn block(&mut self, node: &Gen, after: After) -> Value {
        let column = match after {
            After::Root => 0,
            After::Key(column) | After::Dash(column) => column,
        };
        match node {
            Gen::Anchor(inner) => {
                let inner = match &**inner {
                    Gen::Anchor(_) | Gen::Alias(_) => &Gen::Scalar(0),
                    other => other,
                };
                if let After::Root = after {
                    return self.block(inner, after);
                }
                let number = self.anchors.len();
                self.anchors.push(Value::Null);
                write!(self.out, " &x{number}").unwrap();
                let after = match after {
                    After::Dash(column) => After::Key(column + 1),
                    other => other,
                };
                let value = self.block(inner, after);
                self.anchors[number] = value.clone();
                value
            }
            Gen::BlockScalar(choice) if !matches!(after, After::Root) => {
                let (header, lines, value) = pick(&block_scalars(), *choice);
                writeln!(self.out, " {header}").unwrap();
                for line in lines {
                    let indent = if line.is_empty() { 0 } else { column + 2 };
                    writeln!(self.out, "{:indent$}{line}", "").unwrap();
                }
                json!(value)
            }
            Gen::Map { entries, flow: false, layout, merge }
                if !entries.is_empty() || self.target(*merge).is_some() =>
            {
                self.block_map(entries, *layout, *merge, after)
            }
            Gen::List { items, flow: false, layout } if !items.is_empty() => {
                self.block_list(items, *layout, after)
            }
            _ => {
                if !matches!(after, After::Root) {
                    self.out.push(' ');
                }
                let value = self.flow(node);
                self.end_line(column + self.out.len(), column);
                value
            }
        }
    }

    fn block_map(
        &mut self,
        entries: &[(usize, Gen)],
        layout: usize,
        merge: Option<usize>,
        after: After,
    ) -> Value {
        let (column, mut first_inline) = match after {
            After::Root => (0, true),
            After::Key(column) => {
                self.end_line(layout, column + 1);
                (column + 1 + layout % 4, false)
            }
            After::Dash(column) => {
                self.out.push_str(&" ".repeat(1 + layout % 2));
                (column + 2 + layout % 2, true)
            }
        };
        let mut map = Map::new();
        let merge = self.target(merge);
        let merge_first = layout.is_multiple_of(2);
        let mut own: Vec<String> = Vec::new();
        let merge_entry = |writer: &mut Self, map: &mut Map<String, Value>, first_inline: &mut bool| {
            if let Some((number, value)) = &merge {
                writer.indent(column, first_inline);
                writeln!(writer.out, "<<: *x{number}").unwrap();
                if let Some(value) = value.as_object() {
                    map.extend(value.clone());
                }
            }
        };
        if merge_first {
            merge_entry(self, &mut map, &mut first_inline);
        }
        for (key, value) in entries {
            let (text, name) = pick(&keys(), *key);
            if own.iter().any(|known| known == name) {
                continue;
            }
            own.push(name.to_owned());
            self.indent(column, &mut first_inline);
            self.out.push_str(text);
            self.out.push(':');
            let value = self.block(value, After::Key(column));
            map.insert(name.to_owned(), value);
        }
        if !merge_first {
            merge_entry(self, &mut map, &mut first_inline);
        }
        Value::Object(map)
    }

    fn indent(&mut self, column: usize, first_inline: &mut bool) {
        if !std::mem::take(first_inline) {
            self.out.push_str(&" ".repeat(column));
        }
    }

    fn block_list(&mut self, items: &[Gen], layout: usize, after: After) -> Value {
        let (column, mut first_inline) = match after {
            After::Root => (0, true),
            After::Key(column) => {
                self.end_line(layout, column + 1);
                (column + layout % 3, false)
            }
            After::Dash(column) => {
                self.out.push(' ');
                (column + 2, true)
            }
        };
        let mut list = Vec::new();
        for item in items {
            self.indent(column, &mut first_inline);
            self.out.push('-');
            list.push(self.block(item, After::Dash(column)));
        }
        Value::Array(list)
    }

    /// Writes a value on one line.
    fn flow(&mut self, node: &Gen) -> Value {
        match node {
            Gen::Scalar(choice) | Gen::BlockScalar(choice) => {
                let (text, value) = pick(&scalars(), *choice);
                self.out.push_str(text);
                value
            }
            Gen::Alias(choice) => match choice.checked_rem(self.anchors.len()) {
                Some(number) if self.anchors[number] != Value::Null => {
                    write!(self.out, "*x{number}").unwrap();
                    self.anchors[number].clone()
                }
                _ => self.flow(&Gen::Scalar(0)),
            },
            Gen::Anchor(inner) => match &**inner {
                Gen::Anchor(_) | Gen::Alias(_) => self.flow(&Gen::Scalar(0)),
                inner => {
                    let number = self.anchors.len();
                    self.anchors.push(Value::Null);
                    write!(self.out, "&x{number} ").unwrap();
                    let value = self.flow(inner);
                    self.anchors[number] = value.clone();
                    value
                }
            },
            Gen::List { items, layout, .. } => {
                let (open, close) = if layout % 2 == 0 { ("[", "]") } else { ("[ ", " ]") };
                self.out.push_str(open);
                let mut list = Vec::new();
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.out.push_str(", ");
                    }
                    list.push(self.flow(item));
                }
                self.out.push_str(if items.is_empty() { close.trim() } else { close });
                Value::Array(list)
            }
            Gen::Map { entries, layout, .. } => {
                self.out.push('{');
                let mut map = Map::new();
                for (key, value) in entries {
                    let (text, name) = pick(&keys(), *key);
                    if map.contains_key(name) {
                        continue;
                    }
                    if !map.is_empty() {
                        self.out.push_str(if layout % 5 == 0 { " , " } else { ", " });
                    }
                    self.out.push_str(text);
                    self.out.push_str(": ");
                    let value = self.flow(value);
                    map.insert(name.to_owned(), value);
                }
                if !map.is_empty() && layout % 7 == 0 {
                    self.out.push(',');
                }
                self.out.push('}');
                Value::Object(map)
            }
        }
    }
}

fn pick<T: Clone>(choices: &[T], choice: usize) -> T {
    choices[choice % choices.len()].clone()
}
