//! Properties: reading never fails in surprising ways, edits change what they name and nothing else.

use palisade_yaml::{
    Editor, Kind, Limits, LineIndex, NodeRef, Parsed, Step, WhenEmpty, looks_like_template, parse, to_yaml,
};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::generate::{document, write};

/// A path in an owned form.
#[derive(Clone, Debug, PartialEq)]
enum At {
    Key(String),
    Index(usize),
}

fn steps(path: &[At]) -> Vec<Step<'_>> {
    path.iter()
        .map(|step| match step {
            At::Key(key) => Step::Key(key),
            At::Index(index) => Step::Index(*index),
        })
        .collect()
}

fn paths(value: &Value) -> Vec<Vec<At>> {
    let mut all = vec![Vec::new()];
    let mut below = |step: At, value: &Value| {
        all.extend(paths(value).into_iter().map(|mut rest| {
            rest.insert(0, step.clone());
            rest
        }));
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| below(At::Key(key.clone()), value)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| below(At::Index(index), value));
        }
        _ => {}
    }
    all
}

/// What the document should be: removed things stay as tombstones, so that indexes do not shift.
#[derive(Clone, Debug)]
enum Model {
    Scalar(Value),
    List(Vec<(Model, bool)>),
    Map(Vec<(String, Model, bool)>),
}

impl Model {
    fn new(value: &Value) -> Self {
        match value {
            Value::Array(list) => Self::List(list.iter().map(|item| (Self::new(item), true)).collect()),
            Value::Object(map) => {
                Self::Map(map.iter().map(|(key, value)| (key.clone(), Self::new(value), true)).collect())
            }
            scalar => Self::Scalar(scalar.clone()),
        }
    }

    fn at(&mut self, path: &[At]) -> (&mut Self, Option<&mut bool>) {
        let mut node = self;
        let mut alive = None;
        for step in path {
            if let Self::Scalar(_) = node {
                *node = match step {
                    At::Key(_) => Self::Map(Vec::new()),
                    At::Index(_) => Self::List(Vec::new()),
                };
            }
            let next = match (node, step) {
                (Self::Map(entries), At::Key(key)) => {
                    let at = entries.iter().position(|(own, ..)| own == key).unwrap_or_else(|| {
                        entries.push((key.clone(), Self::Scalar(Value::Null), false));
                        entries.len() - 1
                    });
                    let (_, value, alive) = &mut entries[at];
                    (value, alive)
                }
                (Self::List(items), At::Index(index)) => {
                    let (value, alive) = &mut items[*index];
                    (value, alive)
                }
                _ => panic!("the path does not fit"),
            };
            node = next.0;
            if !*next.1 {
                *node = Self::Scalar(Value::Null);
            }
            *next.1 = true;
            alive = Some(next.1);
        }
        (node, alive)
    }

    fn value(&self, prune: bool, root: bool) -> Option<Value> {
        match self {
            Self::Scalar(value) => Some(value.clone()),
            Self::List(items) => {
                let kept: Vec<_> = items
                    .iter()
                    .map(|(item, alive)| alive.then(|| item.value(prune, false)).flatten())
                    .collect();
                let gone = kept.iter().any(Option::is_none);
                let kept: Vec<_> = kept.into_iter().flatten().collect();
                (root || !(prune && gone && kept.is_empty())).then_some(Value::Array(kept))
            }
            Self::Map(entries) => {
                let kept: Vec<_> = entries
                    .iter()
                    .map(|(key, value, alive)| {
                        Some((key.clone(), alive.then(|| value.value(prune, false)).flatten()?))
                    })
                    .collect();
                let gone = kept.iter().any(Option::is_none);
                let kept: serde_json::Map<_, _> = kept.into_iter().flatten().collect();
                (root || !(prune && gone && kept.is_empty())).then_some(Value::Object(kept))
            }
        }
    }
}

#[derive(Clone, Debug)]
struct RandomEdit {
    target: Index,
    operation: u8,
    value: usize,
    key: usize,
}

fn random_edit() -> impl Strategy<Value = RandomEdit> {
    (any::<Index>(), 0..6_u8, 0..64_usize, 0..8_usize)
        .prop_map(|(target, operation, value, key)| RandomEdit { target, operation, value, key })
}

fn new_value(choice: usize) -> Value {
    let values = [
        json!("text"),
        json!("yes"),
        json!(true),
        json!(1000),
        json!(null),
        json!(["ALL"]),
        json!(["a: b", "- c", "#d", "e, f"]),
        json!({"type": "RuntimeDefault"}),
        json!({"a": {"b": [1, {"c": "d"}]}, "e": "f"}),
        json!({}),
        json!([]),
        json!([[1, 2], [], {}]),
        json!("several\nlines\n"),
        json!("odd  \nlines\n\n"),
        json!(" é \u{7}"),
        json!(-0.5),
    ];
    values[choice % values.len()].clone()
}

const NEW_KEYS: [&str; 8] = ["securityContext", "new", "yes", "a: b", "é", "1", "with space", "key"];

/// Queues random edits, and applies the ones that are accepted to the model.
fn edit(parsed: &Parsed<'_>, edits: &[RandomEdit], when_empty: WhenEmpty) -> (Result<String, String>, Value) {
    let original = parsed.documents[0].root().to_json().unwrap();
    let all = paths(&original);
    let mut model = Model::new(&original);
    let mut editor = Editor::new(parsed);
    let mut set: Vec<Vec<At>> = Vec::new();
    for edit in edits {
        let mut path = edit.target.get(&all).clone();
        let target = path.iter().fold(&original, |value, step| match step {
            At::Key(key) => &value[key],
            At::Index(index) => &value[*index],
        });
        let value = new_value(edit.value);
        let mut removes = false;
        let mut appends = false;
        match (edit.operation, target) {
            (0, _) if !path.is_empty() => removes = true,
            (1, Value::Array(_)) => appends = true,
            (2 | 3, Value::Object(_) | Value::Null) => {
                path.push(At::Key(NEW_KEYS[edit.key].to_owned()));
                if edit.operation == 3 {
                    path.push(At::Key("deep".into()));
                    // What is there may not be a mapping.
                    if original.pointer("").is_none() || path_exists_as_scalar(&original, &path) {
                        path.pop();
                    }
                }
            }
            _ if path.is_empty() => continue,
            _ => {}
        }
        // A value that an earlier edit has put there has no stable indexes.
        if set.iter().any(|earlier| path.starts_with(earlier) || earlier.starts_with(&path)) {
            continue;
        }
        let queued = if removes {
            editor.remove(0, &steps(&path), when_empty)
        } else if appends {
            editor.append(0, &steps(&path), value.clone())
        } else {
            editor.set(0, &steps(&path), value.clone())
        };
        queued.unwrap_or_else(|error| panic!("{path:?}: {error}"));
        if removes {
            if let (node, Some(alive)) = model.at(&path) {
                *node = Model::Scalar(Value::Null);
                *alive = false;
            }
            set.push(path);
        } else if appends {
            if let Model::List(items) = model.at(&path).0 {
                items.push((Model::new(&value), true));
            }
        } else {
            *model.at(&path).0 = Model::new(&value);
            set.push(path);
        }
    }
    let expected = model.value(when_empty == WhenEmpty::Prune, true).unwrap();
    (editor.finish().map_err(|error| error.to_string()), expected)
}

fn path_exists_as_scalar(value: &Value, path: &[At]) -> bool {
    let mut at = value;
    for step in &path[..path.len() - 1] {
        let next = match step {
            At::Key(key) => at.get(key),
            At::Index(index) => at.get(index),
        };
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
    !at.is_object() && !at.is_null()
}

/// Every span is inside its parent, in order, on character boundaries.
fn check_spans(parsed: &Parsed<'_>) {
    let source = parsed.source();
    for document in &parsed.documents {
        check_node(document.root(), 0, source.len());
    }
    for comment in parsed.comments() {
        assert!(comment.span.text(source).starts_with('#'));
        assert!(!comment.span.text(source).contains('\n'));
    }
    for error in &parsed.errors {
        assert!(source.get(error.span.range()).is_some(), "{error:?}");
        assert!(!error.message.is_empty() && !error.message.ends_with('.'));
    }
}

fn check_node(node: NodeRef<'_>, start: usize, end: usize) {
    let source = node.document().source();
    let written = node.node();
    assert!(start <= written.indicator && written.indicator <= written.outer_start, "{written:?}");
    assert!(
        written.outer_start <= written.span.start && written.span.end <= end,
        "{written:?} ends after {end}"
    );
    assert!(source.get(written.outer_start..written.span.start).is_some(), "{written:?}");
    assert!(source.get(written.span.range()).is_some(), "{written:?}");
    let mut at = written.outer_start;
    let mut below = |child: NodeRef<'_>| {
        check_node(child, at, written.span.end);
        at = child.span().end;
    };
    match written.kind {
        Kind::Sequence(_) => node.items().for_each(&mut below),
        Kind::Mapping(_) => {
            for (key, value) in node.written_pairs() {
                below(key);
                below(value);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reads_what_was_written(document in document(), crlf: bool) {
        let (text, expected) = write(&document, if crlf { "\r\n" } else { "\n" });
        let parsed = parse(&text, &Limits::default());
        prop_assert_eq!(&parsed.errors, &[], "{}", text);
        check_spans(&parsed);
        prop_assert_eq!(parsed.documents[0].root().to_json().unwrap(), expected, "{}", text);
    }

    #[test]
    fn edits_change_what_they_name(
        document in document(),
        edits in prop::collection::vec(random_edit(), 1..5),
        crlf: bool,
        prune: bool,
        newline: bool,
    ) {
        let (mut text, _) = write(&document, if crlf { "\r\n" } else { "\n" });
        if !newline {
            text.truncate(text.trim_end_matches(['\r', '\n']).len());
        }
        let parsed = parse(&text, &Limits::default());
        prop_assert_eq!(&parsed.errors, &[], "{}", text);
        let when_empty = if prune { WhenEmpty::Prune } else { WhenEmpty::Keep };
        let (edited, expected) = edit(&parsed, &edits, when_empty);
        let edited = edited.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let again = parse(&edited, &Limits::default());
        prop_assert_eq!(&again.errors, &[], "{}\n---\n{}", text, edited);
        prop_assert_eq!(again.documents.len(), 1);
        let actual = again.documents[0].root().to_json().unwrap();
        prop_assert_eq!(actual, expected, "{}\n---\n{}", text, edited);
        prop_assert_eq!(edited.contains("\r\n"), edited.contains('\n') && crlf && text.contains("\r\n"), "line ends");
    }

    #[test]
    fn a_new_key_leaves_every_other_line_alone(document in document(), edit in random_edit()) {
        let (text, _) = write(&document, "\n");
        let parsed = parse(&text, &Limits::default());
        prop_assert_eq!(&parsed.errors, &[]);
        let original = parsed.documents[0].root().to_json().unwrap();
        let maps: Vec<_> = paths(&original)
            .into_iter()
            .filter(|path| parsed.documents[0].find(&steps(path)).is_ok_and(|found| found.value.is_mapping()))
            .collect();
        // Aliases are edited where they are used; a list of scalars has no mapping.
        if maps.is_empty() || text.contains('*') {
            return Ok(());
        }
        let mut path = edit.target.get(&maps).clone();
        path.push(At::Key("brandNew".into()));
        let mut editor = Editor::new(&parsed);
        editor.set(0, &steps(&path), new_value(edit.value)).unwrap();
        let edited = editor.finish().unwrap();
        // All old lines are there, except at most the one that the mapping or its braces stand on.
        let mut new_lines: Vec<_> = edited.lines().collect();
        let lost = text.lines().filter(|line| match new_lines.iter().position(|new| new == line) {
            Some(at) => {
                new_lines.remove(at);
                false
            }
            None => true,
        });
        prop_assert!(lost.count() <= 1, "{}\n---\n{}", text, edited);
    }

    #[test]
    fn no_edit_changes_nothing(text in ".{0,200}") {
        let parsed = parse(&text, &Limits::default());
        prop_assert_eq!(Editor::new(&parsed).finish().unwrap(), text.as_str());
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in r#"([ \t\n\r:?,\[\]{}&*!|>'"%@`#~<.a-c0-2é\u{feff}\-]|- |: |<<: \*a|&a |---\n|\n  ){0,60}"#) {
        let parsed = parse(&text, &Limits::default());
        check_spans(&parsed);
        let _ = looks_like_template(&text);
        let index = LineIndex::new(&text);
        for document in &parsed.documents {
            let _ = document.root().to_json();
            let position = index.position(document.root().span().start);
            prop_assert!(position.line >= document.line());
        }
    }

    #[test]
    fn mutated_documents_are_read_without_a_panic(
        document in document(),
        mutations in prop::collection::vec((any::<Index>(), "[ \n:\\-\\[\\]{}&*!|>'\"#,a?\t]"), 1..6),
        edits in prop::collection::vec(random_edit(), 1..3),
    ) {
        let (mut text, _) = write(&document, "\n");
        for (at, with) in &mutations {
            let mut offset = at.index(text.len() + 1);
            while !text.is_char_boundary(offset) {
                offset -= 1;
            }
            text.insert_str(offset, with);
        }
        let parsed = parse(&text, &Limits::default());
        check_spans(&parsed);
        if parsed.documents.len() == 1 && parsed.documents[0].root().to_json().is_ok() {
            // The editor may refuse odd layouts, but what it returns has to be right.
            let (edited, expected) = edit(&parsed, &edits, WhenEmpty::Keep);
            if let Ok(edited) = edited {
                let again = parse(&edited, &Limits::default());
                prop_assert_eq!(again.documents[0].root().to_json().unwrap(), expected, "{}\n---\n{}", text, edited);
            }
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
        "(yes|no|0x1|1e3|~|a: b|- x|# c|[.]nan|2001-01-01|a\nb)".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[ -~]{1,8}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_reads_back(value in any_json(), indent in 0_usize..3) {
        let text = to_yaml(&value, indent);
        let parsed = parse(&text, &Limits::default());
        prop_assert!(parsed.errors.is_empty(), "{text}");
        prop_assert_eq!(parsed.documents[0].root().to_json().unwrap(), value, "{}", text);
    }
}
