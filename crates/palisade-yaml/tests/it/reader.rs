//! Spans, styles, comments, errors.

use std::fmt::Write as _;

use palisade_yaml::{ErrorKind, Kind, Limits, LineIndex, NodeRef, parse};

/// Every node with the text of its span, one line each.
fn outline(source: &str) -> String {
    let parsed = parse(source, &Limits::default());
    let index = LineIndex::new(source);
    let mut out = String::new();
    for document in &parsed.documents {
        writeln!(out, "document {} at line {}", document.index(), document.line()).unwrap();
        node(&mut out, document.root(), 1, "");
    }
    for error in &parsed.errors {
        let at = index.position(error.span.start);
        writeln!(
            out,
            "{:?} in document {} at {}:{}: {error}",
            error.kind, error.document, at.line, at.column
        )
        .unwrap();
    }
    out
}

fn node(out: &mut String, at: NodeRef<'_>, depth: usize, role: &str) {
    let source = at.document().source();
    let written = at.node();
    let indicator = source.get(written.indicator..).and_then(|rest| rest.chars().next()).unwrap_or('∅');
    let name = match &written.kind {
        Kind::Scalar(scalar) => format!("{:?} {:?} = {:?}", scalar.style, scalar.tag, scalar.text),
        Kind::Sequence(items) => format!("sequence{}", if items.flow { " (flow)" } else { "" }),
        Kind::Mapping(entries) => format!("mapping{}", if entries.flow { " (flow)" } else { "" }),
        Kind::Alias(_) => "alias".into(),
    };
    let outer = written.outer_span().text(source);
    writeln!(out, "{:indent$}{role}{name} {indicator:?} {outer:?}", "", indent = depth * 2).unwrap();
    match written.kind {
        Kind::Sequence(_) => at.items().for_each(|item| node(out, item, depth + 1, "- ")),
        Kind::Mapping(_) => {
            for entry in at.entries() {
                node(out, entry.key_node, depth + 1, "k ");
                node(out, entry.value, depth + 1, "v ");
            }
        }
        _ => {}
    }
}

#[test]
fn spans_of_every_kind_of_node() {
    let source = "\
a: plain # c
b:  'it''s'
c: \"x\\ty\"
d: &anchor !!str 5
e: *anchor
f:
g: ~
seq:
- one
-   two words
- - nested
  - x: 1
    y:
    - deep
-
flow: {a: 1, \"b\":[x , y], c: , d}
pair: [k: v, {m: n}]
multi: first
  second
lit: | # header
  text
   more

fold: >+
  kept

last: é
";
    insta::assert_snapshot!(outline(source), @r#"
    document 0 at line 1
      mapping 'a' "a: plain # c\nb:  'it''s'\nc: \"x\\ty\"\nd: &anchor !!str 5\ne: *anchor\nf:\ng: ~\nseq:\n- one\n-   two words\n- - nested\n  - x: 1\n    y:\n    - deep\n-\nflow: {a: 1, \"b\":[x , y], c: , d}\npair: [k: v, {m: n}]\nmulti: first\n  second\nlit: | # header\n  text\n   more\n\nfold: >+\n  kept\n\nlast: é"
        k Plain None = "a" 'a' "a"
        v Plain None = "plain" ':' "plain"
        k Plain None = "b" 'b' "b"
        v SingleQuoted None = "it's" ':' "'it''s'"
        k Plain None = "c" 'c' "c"
        v DoubleQuoted None = "x\ty" ':' "\"x\\ty\""
        k Plain None = "d" 'd' "d"
        v Plain Str = "5" ':' "&anchor !!str 5"
        k Plain None = "e" 'e' "e"
        v alias ':' "*anchor"
        k Plain None = "f" 'f' "f"
        v Plain None = "" ':' ""
        k Plain None = "g" 'g' "g"
        v Plain None = "~" ':' "~"
        k Plain None = "seq" 's' "seq"
        v sequence ':' "- one\n-   two words\n- - nested\n  - x: 1\n    y:\n    - deep\n-"
          - Plain None = "one" '-' "one"
          - Plain None = "two words" '-' "two words"
          - sequence '-' "- nested\n  - x: 1\n    y:\n    - deep"
            - Plain None = "nested" '-' "nested"
            - mapping '-' "x: 1\n    y:\n    - deep"
              k Plain None = "x" 'x' "x"
              v Plain None = "1" ':' "1"
              k Plain None = "y" 'y' "y"
              v sequence ':' "- deep"
                - Plain None = "deep" '-' "deep"
          - Plain None = "" '-' ""
        k Plain None = "flow" 'f' "flow"
        v mapping (flow) ':' "{a: 1, \"b\":[x , y], c: , d}"
          k Plain None = "a" 'a' "a"
          v Plain None = "1" ':' "1"
          k DoubleQuoted None = "b" '"' "\"b\""
          v sequence (flow) ':' "[x , y]"
            - Plain None = "x" 'x' "x"
            - Plain None = "y" 'y' "y"
          k Plain None = "c" 'c' "c"
          v Plain None = "" ':' ""
          k Plain None = "d" 'd' "d"
          v Plain None = "" '}' ""
        k Plain None = "pair" 'p' "pair"
        v sequence (flow) ':' "[k: v, {m: n}]"
          - mapping (flow) 'k' "k: v"
            k Plain None = "k" 'k' "k"
            v Plain None = "v" ':' "v"
          - mapping (flow) '{' "{m: n}"
            k Plain None = "m" 'm' "m"
            v Plain None = "n" ':' "n"
        k Plain None = "multi" 'm' "multi"
        v Plain None = "first second" ':' "first\n  second"
        k Plain None = "lit" 'l' "lit"
        v Literal None = "text\n more\n" ':' "| # header\n  text\n   more"
        k Plain None = "fold" 'f' "fold"
        v Folded None = "kept\n\n" ':' ">+\n  kept\n"
        k Plain None = "last" 'l' "last"
        v Plain None = "é" ':' "é"
    "#);
}

#[test]
fn documents_of_a_stream() {
    for (case, source, expected) in [
        ("nothing", "", &[][..]),
        ("only comments", "# a\n---\n# b\n---\n", &[]),
        ("two", "a: 1\n---\nb: 2\n", &["a: 1", "b: 2"]),
        ("empty ones dropped", "---\n---\na: 1\n---\n\n---\n# c\nb: 2\n...\n", &["a: 1", "b: 2"]),
        (
            "end marker and directives",
            "%YAML 1.1\n---\na: 1\n...\n# x\n%YAML 1.2\n---\nb: 2",
            &["a: 1", "b: 2"],
        ),
        ("byte order mark", "\u{feff}a: 1\n", &["a: 1"]),
        ("explicit null stays", "--- ~\n--- null\n", &["~", "null"]),
        ("value on the marker line", "--- {a: 1}\n--- |\n text\n", &["{a: 1}", "|\n text"]),
    ] {
        let parsed = parse(source, &Limits::default());
        assert_eq!(parsed.errors, [], "{case}");
        let texts: Vec<_> =
            parsed.documents.iter().map(|document| document.root().span().text(source)).collect();
        assert_eq!(texts, expected, "{case}");
    }
}

#[test]
fn document_spans_tile_the_source() {
    let source = "# head\na: 1\n--- # two\nb: 2\n---\nc: 3\n";
    let parsed = parse(source, &Limits::default());
    let texts: Vec<_> = parsed.documents.iter().map(|document| document.span().text(source)).collect();
    assert_eq!(texts, ["a: 1\n", "--- # two\nb: 2\n", "---\nc: 3\n"]);
    let lines: Vec<_> = parsed.documents.iter().map(palisade_yaml::Document::line).collect();
    assert_eq!(lines, [2, 4, 6]);
}

#[test]
fn one_mistake_does_not_hide_the_rest() {
    let source = "a: 1\n---\nb: [\n---\nc: 3\n---\nd: *nowhere\n---\ne: 5\n";
    insta::assert_snapshot!(outline(source), @r#"
    document 0 at line 1
      mapping 'a' "a: 1"
        k Plain None = "a" 'a' "a"
        v Plain None = "1" ':' "1"
    document 2 at line 5
      mapping 'c' "c: 3"
        k Plain None = "c" 'c' "c"
        v Plain None = "3" ':' "3"
    document 4 at line 9
      mapping 'e' "e: 5"
        k Plain None = "e" 'e' "e"
        v Plain None = "5" ':' "5"
    Syntax in document 1 at 4:1: expected a value here
    UnknownAnchor in document 3 at 7:4: `*nowhere` has no anchor `&nowhere` before it in this document
    "#);
}

#[test]
fn comments_and_what_only_looks_like_one() {
    let source = "\
# top
a: 1 # end
b: 'no # comment'
c: no#comment
d: | # header
  # text
e: [x, # inside
  y]
f: \"a
  # text\"
  # indented
g: &x 1
--- # marker
# last";
    let parsed = parse(source, &Limits::default());
    assert_eq!(parsed.errors, []);
    let comments: Vec<_> =
        parsed.comments().iter().map(|comment| (comment.line, comment.own_line, comment.text)).collect();
    assert_eq!(
        comments,
        [
            (1, true, "top"),
            (2, false, "end"),
            (5, false, "header"),
            (7, false, "inside"),
            (11, true, "indented"),
            (13, false, "marker"),
            (14, true, "last"),
        ]
    );
}

/// Each row was given to kubectl v1.32 below `kind: Foo`, and read as shown or refused.
#[test]
fn takes_and_refuses_what_kubectl_does() {
    for (source, expected) in [
        ("spec:\n  args: [\n    \"x\"\n  ]\n", Some(r#"{"spec":{"args":["x"]}}"#)),
        ("spec:\n  args: [\n    x\n]\n", Some(r#"{"spec":{"args":["x"]}}"#)),
        ("a: {b: 1,\nc: 2}\n", Some(r#"{"a":{"b":1,"c":2}}"#)),
        ("a:\tb\n", Some(r#"{"a":"b"}"#)),
        ("a: \"x\ny\"\n", Some(r#"{"a":"x y"}"#)),
        ("a: [\n# c\n1 ]\n", Some(r#"{"a":[1]}"#)),
        ("a: {b:1}\n", Some(r#"{"a":{"b:1":null}}"#)),
        ("a: |\n  no line break at the end", Some(r#"{"a":"no line break at the end\n"}"#)),
        ("on: 1\nn: 2\n", Some(r#"{"false":2,"true":1}"#)),
        ("a: {x: 1, <<: {x: 2}}\n", Some(r#"{"a":{"x":2}}"#)),
        ("a: 1\n\t\nb: 2\n", None),
        ("a:\n- b\n-\tc\n", None),
        ("a: [b?c]\n", None),
        ("a: b # c\n  d\n", None),
        ("a: &x#y 1\n", None),
        ("a: !{}\n", None),
    ] {
        let parsed = parse(source, &Limits::default());
        let actual = parsed.documents.first().map(|document| document.root().to_json().unwrap().to_string());
        assert_eq!(actual.as_deref(), expected, "{source:?}");
        assert_eq!(parsed.errors.is_empty(), expected.is_some(), "{source:?}");
    }
}

#[test]
fn a_bracket_that_is_open_is_pointed_at() {
    let source = "a: 1\nb: [1, 2\nc: 3\n";
    let parsed = parse(source, &Limits::default());
    let (span, message) = parsed.errors[0].related.as_ref().unwrap();
    assert_eq!((span.start, message.as_str()), (8, "the bracket that is open here"));
}

#[test]
fn errors_name_what_and_where() {
    let mut out = String::new();
    for source in [
        "a: b: c\n",
        "a:\n\tb: 1\n",
        "a: 'open\n",
        "a: [1, 2\nb: 3\n",
        "a: {b: 1\n",
        "a: 1\n  b: 2\n",
        "- a\nb: 1\n",
        "a: 1\nb\n",
        "a: %x\n",
        "é: [}\n",
        "a: *b\n",
        "a: &a [*a]\n",
        "? [x]\n: y\n",
        "{a: 1}: b\n",
        "~: x\n",
        "a: !Ref x\n",
        "a: !!int x\n",
        "a: !!binary '*'\n",
        "a: !!map [x]\n",
        "a: !!set {x}\n",
        "<<: x\n",
        "<<: [{}, 1]\n",
        "a: \"\\ud83d\"\n",
        "key: \0\n",
        "a: 1\n... b\n",
        "a: \"\\q\"\n",
        "a: |x\n",
        "a: [- b]\n",
    ] {
        let parsed = parse(source, &Limits::default());
        assert_eq!(parsed.errors.len(), 1, "{source:?}");
        for error in &parsed.errors {
            let at = LineIndex::new(source).position(error.span.start);
            writeln!(out, "{source:?} {:?} {}:{} {error}", error.kind, at.line, at.column).unwrap();
        }
    }
    insta::assert_snapshot!(out, @r#"
    "a: b: c\n" Syntax 1:5 a value cannot begin here: check the indentation, or quote a text that contains `: `
    "a:\n\tb: 1\n" Syntax 2:1 a tab cannot be used for indentation
    "a: 'open\n" Syntax 1:4 this quote is never closed
    "a: [1, 2\nb: 3\n" Syntax 2:2 expected `,` or `]` here
    "a: {b: 1\n" Syntax 2:1 expected `,` or `}` here
    "a: 1\n  b: 2\n" Syntax 2:4 a value cannot begin here: check the indentation, or quote a text that contains `: `
    "- a\nb: 1\n" Syntax 2:1 expected `-` here: check the indentation of this line
    "a: 1\nb\n" Syntax 2:1 expected `:` after this key
    "a: %x\n" Syntax 1:4 a text cannot begin with this character: put it in quotes
    "é: [}\n" Syntax 1:5 expected a value here
    "a: *b\n" UnknownAnchor 1:4 `*b` has no anchor `&b` before it in this document
    "a: &a [*a]\n" CyclicAlias 1:8 `*a` is inside the value it stands for
    "? [x]\n: y\n" InvalidKey 1:3 a list cannot be a key
    "{a: 1}: b\n" InvalidKey 1:1 a mapping cannot be a key
    "~: x\n" InvalidKey 1:1 null cannot be a key
    "a: !Ref x\n" InvalidTag 1:4 the tag `!Ref` is not known to Kubernetes
    "a: !!int x\n" InvalidTag 1:4 the value does not fit its tag: `!!int x`
    "a: !!binary '*'\n" InvalidTag 1:4 the value of `!!binary` is not base64
    "a: !!map [x]\n" InvalidTag 1:4 a list cannot have this tag
    "a: !!set {x}\n" InvalidTag 1:4 the tag `!!set` is not known to Kubernetes
    "<<: x\n" InvalidMerge 1:5 `<<` takes a mapping or a list of mappings
    "<<: [{}, 1]\n" InvalidMerge 1:10 `<<` takes a mapping or a list of mappings
    "a: \"\\ud83d\"\n" Syntax 1:5 this escape is no Unicode character
    "key: \0\n" Syntax 1:6 the control character U+0000 cannot be part of YAML
    "a: 1\n... b\n" Syntax 2:1 nothing can follow `...` on its line
    "a: \"\\q\"\n" Syntax 1:5 there is no such escape: write `\\` for a backslash
    "a: |x\n" Syntax 1:5 the text after `|` or `>` begins on the next line
    "a: [- b]\n" Syntax 1:5 `-` cannot begin an item inside brackets: separate items with `,`
    "#);
}

#[test]
fn duplicate_keys_are_the_callers_choice() {
    let source = "a: 1\nb: {x: 1, 'x': 2}\n'a': 2\n1: x\n\"1\": z\n";
    let parsed = parse(source, &Limits::default());
    assert_eq!(parsed.errors, []);
    let document = &parsed.documents[0];
    let found: Vec<_> = document
        .duplicate_keys()
        .iter()
        .map(|duplicate| (duplicate.key.as_str(), duplicate.first.start, duplicate.second.start))
        .collect();
    assert_eq!(found, [("x", 9, 15), ("a", 0, 23), ("1", 30, 35)]);
    assert_eq!(document.duplicate_keys()[0].to_string(), "the key \"x\" is already set in this mapping");
    assert_eq!(document.root().to_json().unwrap(), serde_json::json!({"a": 2, "b": {"x": 2}, "1": "z"}));
}

#[test]
fn duplicate_keys_of_large_mappings() {
    use std::fmt::Write as _;
    let mut source = String::new();
    for key in 0..100 {
        writeln!(source, "k{key}: 1").unwrap();
    }
    source.push_str("k50: 2\n");
    let parsed = parse(&source, &Limits::default());
    assert_eq!(parsed.documents[0].duplicate_keys().len(), 1);
}

#[test]
fn limits_hold() {
    let limits =
        Limits { max_bytes: 4000, max_nodes: 300, max_expanded_nodes: 1000, max_depth: 20, max_errors: 3 };
    let nest = |open: &str, close: &str, depth: usize| open.repeat(depth) + &close.repeat(depth);
    let mut deep_block = String::new();
    for level in 0..30 {
        writeln!(deep_block, "{:level$}a:", "").unwrap();
    }
    let bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n";
    let mut tower = String::from("a0: &a0 {x: {x: {x: {x: 1}}}}\n");
    for level in 1..8 {
        writeln!(tower, "a{level}: &a{level} {{x: {{x: {{x: *a{}}}}}}}", level - 1).unwrap();
    }
    for (case, source, kind) in [
        ("bytes", "x".repeat(4001), ErrorKind::TooLarge),
        ("nodes", "- x\n".repeat(300), ErrorKind::TooLarge),
        ("flow depth", nest("[", "]", 21), ErrorKind::TooDeep),
        ("block depth", deep_block, ErrorKind::TooDeep),
        ("depth by aliases", tower, ErrorKind::TooDeep),
        ("alias bomb", bomb.to_owned(), ErrorKind::AliasBomb),
    ] {
        let parsed = parse(&source, &limits);
        assert_eq!(parsed.errors.first().map(|error| error.kind), Some(kind), "{case}: {:?}", parsed.errors);
    }
    assert_eq!(parse(&nest("[", "]", 20), &limits).errors, []);
    assert_eq!(
        parse(&"a: [\n---\n".repeat(9), &limits).errors.len(),
        3,
        "reading stops after too many errors"
    );
    for depth in [200, 300, 100_000] {
        let source = nest("[", "]", depth);
        let parsed = parse(&source, &Limits::default());
        assert_eq!(parsed.errors.first().map(|error| error.kind), Some(ErrorKind::TooDeep));
    }
}

#[test]
fn strings_are_borrowed_where_the_source_holds_them() {
    let source = "a: plain\nb: 'quoted'\nc: \"x\"\nd: \"\\x41\"\n";
    let parsed = parse(source, &Limits::default());
    let range = source.as_bytes().as_ptr_range();
    for (key, borrowed) in [("a", true), ("b", true), ("c", true), ("d", false)] {
        let text = parsed.documents[0].root().get(key).unwrap().as_str().unwrap();
        assert_eq!(range.contains(&text.as_ptr()), borrowed, "{key}");
    }
}
