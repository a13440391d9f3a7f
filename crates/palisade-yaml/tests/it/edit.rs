//! Edits: what they write, and what they leave alone.

use std::fmt::Write as _;

use palisade_yaml::{EditError, Editor, Limits, Step, Value, WhenEmpty, parse};
use serde_json::json;

fn steps(path: &str) -> Vec<Step<'_>> {
    path.split('/')
        .filter(|step| !step.is_empty())
        .map(|step| step.parse().map_or(Step::Key(step), Step::Index))
        .collect()
}

/// An edit in a word: `=` sets, `+` appends, `-` removes, `--` removes and prunes; then a path with slashes and JSON.
fn queue(editor: &mut Editor<'_, '_>, document: usize, edit: &str) -> Result<(), EditError> {
    let (operation, rest) = edit.split_once(' ').unwrap();
    let (path, value) = rest.split_once(' ').unwrap_or((rest, "null"));
    let value = || Value::from(serde_json::from_str::<serde_json::Value>(value).unwrap());
    match operation {
        "=" => editor.set(document, &steps(path), value()),
        "+" => editor.append(document, &steps(path), value()),
        "-" => editor.remove(document, &steps(path), WhenEmpty::Keep),
        "--" => editor.remove(document, &steps(path), WhenEmpty::Prune),
        _ => panic!("{edit}"),
    }
}

fn try_edit(source: &str, edits: &[&str]) -> Result<String, EditError> {
    let parsed = parse(source, &Limits::default());
    assert_eq!(parsed.errors, [], "{source}");
    let mut editor = Editor::new(&parsed);
    for edit in edits {
        queue(&mut editor, 0, edit)?;
    }
    editor.finish()
}

fn check(table: &[(&str, &str, &[&str], &str)]) {
    for (case, source, edits, expected) in table {
        let actual = try_edit(source, edits).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(&actual, expected, "{case}\n--- actual\n{actual}--- expected\n{expected}");
    }
}

#[test]
fn replaces_scalars_in_place() {
    check(&[
        ("plain", "a: 1 # why\nb: 2\n", &["= a 5"], "a: 5 # why\nb: 2\n"),
        ("quoted", "a:   'x'   # c\n", &["= a \"z\""], "a:   z   # c\n"),
        ("needs quotes", "a: x\n", &["= a \"yes\""], "a: \"yes\"\n"),
        ("prefers single quotes", "a: x\nb: 'q'\n", &["= a \"yes\""], "a: 'yes'\nb: 'q'\n"),
        ("same value, other spelling", "a: 0x10\nb: yes\n", &["= a 16", "= b true"], "a: 0x10\nb: yes\n"),
        ("over lines", "a: one\n  two # c\nb: 1\n", &["= a 1"], "a: 1 # c\nb: 1\n"),
        ("block scalar", "a: |\n  one\n  two\n\nb: 1\n", &["= a \"x\""], "a: x\n\nb: 1\n"),
        ("block scalar that keeps lines", "a: |+\n  one\n\nb: 1\n", &["= a \"x\""], "a: x\nb: 1\n"),
        ("tagged", "a: !!str 5\nb: 1\n", &["= a 6"], "a: 6\nb: 1\n"),
        ("null", "a:\nb: 1\n", &["= a 6"], "a: 6\nb: 1\n"),
        ("null with comment", "a: # c\nb: 1\n", &["= a 6"], "a: 6 # c\nb: 1\n"),
        ("item", "- 1\n- 2 # c\n-\n", &["= 1 5", "= 2 \"x\""], "- 1\n- 5 # c\n- x\n"),
        ("in flow", "a: {b: 1, c: [x, 'z']}\n", &["= a/b 2", "= a/c/1 true"], "a: {b: 2, c: [x, true]}\n"),
        ("flow null", "a: {b: , c}\n", &["= a/b 2", "= a/c 3"], "a: {b: 2 , c: 3}\n"),
        ("value on the next line", "a:\n  x\nb: 1\n", &["= a \"z\""], "a: z\nb: 1\n"),
        (
            "several lines of text",
            "a: x # c\nb: 1\n",
            &["= a \"one\\ntwo\\n\""],
            "a: | # c\n  one\n  two\nb: 1\n",
        ),
        ("collection by scalar", "a:\n  b: 1\n  c: 2\nd: 1\n", &["= a 5"], "a: 5\nd: 1\n"),
        ("quoted keys", "\"a b\": 1\n'c': 2\n", &["= a%20b 5"], "\"a b\": 1\n'c': 2\na%20b: 5\n"),
        ("root", "5\n", &["=  6"], "6\n"),
    ]);
}

#[test]
fn adds_entries_in_the_style_of_their_mapping() {
    check(&[
        ("block", "a:\n  b: 1\nc: 2\n", &["= a/x 5"], "a:\n  b: 1\n  x: 5\nc: 2\n"),
        ("root", "a: 1\n", &["= b 2"], "a: 1\nb: 2\n"),
        ("no newline at end", "a: 1", &["= b 2"], "a: 1\nb: 2"),
        ("CRLF", "a:\r\n  b: 1\r\n", &["= a/c {\"d\":1}"], "a:\r\n  b: 1\r\n  c:\r\n    d: 1\r\n"),
        ("byte order mark", "\u{feff}a: 1\n", &["= b 2"], "\u{feff}a: 1\nb: 2\n"),
        ("missing parents", "a: 1\n", &["= b/c/d true"], "a: 1\nb:\n  c:\n    d: true\n"),
        ("one block for two edits", "a: 1\n", &["= b/c 1", "= b/d 2"], "a: 1\nb:\n  c: 1\n  d: 2\n"),
        ("indentation of four", "a:\n    b: 1\n", &["= c/d 1"], "a:\n    b: 1\nc:\n    d: 1\n"),
        (
            "odd indentation",
            "a:\n   b:\n      c: 1\n",
            &["= a/x/z 1"],
            "a:\n   b:\n      c: 1\n   x:\n      z: 1\n",
        ),
        ("below null", "a:\nb: 1\n", &["= a/c 1"], "a:\n  c: 1\nb: 1\n"),
        ("below null with comment", "a: # why\nb: 1\n", &["= a/c 1"], "a: # why\n  c: 1\nb: 1\n"),
        ("below tilde", "a: ~ # why\nb: 1\n", &["= a/c 1"], "a: # why\n  c: 1\nb: 1\n"),
        ("below empty braces", "a: {} # why\nb: 1\n", &["= a/c 1"], "a: # why\n  c: 1\nb: 1\n"),
        ("in flow", "a: {b: 1}\n", &["= a/c/d [\"x\"]"], "a: {b: 1, c: {d: [x]}}\n"),
        ("in flow with spaces", "a: { b: 1 }\n", &["= a/c 2"], "a: { b: 1, c: 2 }\n"),
        ("in flow with trailing comma", "a: {b: 1,}\n", &["= a/c 2"], "a: {b: 1, c: 2,}\n"),
        ("in flow over lines", "a: {\n  b: 1 # why\n}\n", &["= a/c 2"], "a: {\n  b: 1, # why\n  c: 2\n}\n"),
        (
            "in flow over lines, comma",
            "a: {\n  b: 1, # why\n}\n",
            &["= a/c 2"],
            "a: {\n  b: 1, # why\n  c: 2,\n}\n",
        ),
        ("a pair without braces", "a: [b: 1]\n", &["= a/0/c 2"], "a: [{b: 1, c: 2}]\n"),
        ("in a list item", "a:\n- b: 1\n- c: 1\n", &["= a/0/x 2"], "a:\n- b: 1\n  x: 2\n- c: 1\n"),
        (
            "in a wide list item",
            "a:\n  -   b: 1\n",
            &["= a/0/x/z 2"],
            "a:\n  -   b: 1\n      x:\n        z: 2\n",
        ),
        ("after a nested list", "a:\n- b:\n  - 1\n", &["= a/0/x 2"], "a:\n- b:\n  - 1\n  x: 2\n"),
        (
            "after a block scalar",
            "a:\n  b: |\n    text\n\nc: 1\n",
            &["= a/x 2"],
            "a:\n  b: |\n    text\n  x: 2\n\nc: 1\n",
        ),
        (
            "after lines that are kept",
            "a:\n  b: |+\n    text\n\nc: 1\n",
            &["= a/x 2"],
            "a:\n  b: |+\n    text\n\n  x: 2\nc: 1\n",
        ),
        (
            "comments between",
            "a:\n  # one\n  b: 1 # two\n  # three\n\n  # four\nc: 1\n",
            &["= a/x 2"],
            "a:\n  # one\n  b: 1 # two\n  x: 2\n  # three\n\n  # four\nc: 1\n",
        ),
        (
            "nested and outer at one place",
            "a:\n  b:\n    c: 1\n",
            &["= a/b/x 1", "= a/z 2", "= w 3"],
            "a:\n  b:\n    c: 1\n    x: 1\n  z: 2\nw: 3\n",
        ),
        ("document markers", "---\na: 1\n---\nb: 1\n...\n", &["= x 2"], "---\na: 1\nx: 2\n---\nb: 1\n...\n"),
        (
            "a text before a comment that would join it",
            "a:\n  b: 1\n    # deep\nc: 1\n",
            &["= a/x \"1\\n2\\n\""],
            "a:\n  b: 1\n    # deep\n  x: |\n    1\n    2\nc: 1\n",
        ),
        ("key that needs quotes", "a: 1\n", &["= yes 1", "= b:c 2"], "a: 1\n\"yes\": 1\nb:c: 2\n"),
    ]);
}

#[test]
fn writes_lists_like_the_others() {
    check(&[
        ("no example", "a: 1\n", &["= b [\"ALL\"]"], "a: 1\nb:\n- ALL\n"),
        ("indented", "a:\n  - 1\n", &["= b [\"ALL\"]"], "a:\n  - 1\nb:\n  - ALL\n"),
        ("in brackets", "a: [\"x\"]\n", &["= b [\"ALL\", \"no\"]"], "a: [\"x\"]\nb: [ALL, \"no\"]\n"),
        ("maps stay block", "a: [x]\n", &["= b [{\"c\":1,\"d\":2}]"], "a: [x]\nb:\n- c: 1\n  d: 2\n"),
        (
            "replaces brackets by brackets",
            "a:\n- 1\n- 2\nb: [x]\nc:\n- 1\n",
            &["= b [\"z\"]"],
            "a:\n- 1\n- 2\nb: [z]\nc:\n- 1\n",
        ),
        ("replaces block by block", "a:\n- 1 # c\n- 2\nb: 1\n", &["= a [3]"], "a:\n- 3\nb: 1\n"),
        ("append", "a:\n- 1\n- 2 # c\nb: 1\n", &["+ a 3", "+ a 4"], "a:\n- 1\n- 2 # c\n- 3\n- 4\nb: 1\n"),
        (
            "append indented",
            "a:\n    - 1\n",
            &["+ a {\"x\":1,\"z\":2}"],
            "a:\n    - 1\n    - x: 1\n      z: 2\n",
        ),
        ("append wide", "-   1\n", &["+  {\"x\":1,\"z\":[1]}"], "-   1\n-   x: 1\n    z:\n    - 1\n"),
        ("append to nothing", "a:\nb: 1\n", &["+ a 1"], "a:\n- 1\nb: 1\n"),
        ("append to missing", "b: 1\n", &["+ a/c 1"], "b: 1\na:\n  c:\n  - 1\n"),
        ("append to brackets", "a: [1, 2]\n", &["+ a 3"], "a: [1, 2, 3]\n"),
        ("append to empty brackets", "a: []\n", &["+ a 3"], "a:\n- 3\n"),
        ("append to lines in brackets", "a: [\n  1,\n  2\n]\n", &["+ a 3"], "a: [\n  1,\n  2,\n  3\n]\n"),
        ("set one past the end", "a: [1]\n", &["= a/1 2"], "a: [1, 2]\n"),
        ("nested lists", "- - 1\n  - 2\n- 3\n", &["+ 0 5", "= 1 [6]"], "- - 1\n  - 2\n  - 5\n- - 6\n"),
    ]);
}

#[test]
fn removes_entries_and_their_line_comments() {
    check(&[
        ("middle", "a: 1\nb: 2 # c\nc: 3\n", &["- b"], "a: 1\nc: 3\n"),
        ("first", "a: 1\nb: 2\n", &["- a"], "b: 2\n"),
        ("first two", "a: 1\r\nb: 2\r\nc: 3\r\n", &["- a", "- b"], "c: 3\r\n"),
        ("first after a byte order mark", "\u{feff}a: 1\nb: 2\n", &["- a"], "\u{feff}b: 2\n"),
        ("last two without newline", "a: 1\nb: 2\nc: 3", &["- b", "- c"], "a: 1"),
        ("after a text", "a: |\n  x\nb: 2", &["- b"], "a: |\n  x\n"),
        (
            "last of a block, and added behind it",
            "a:\n  b: 1\n  c: 2\n",
            &["- a/c", "= d 3"],
            "a:\n  b: 1\nd: 3\n",
        ),
        ("last", "a: 1\nb: 2\n", &["- b"], "a: 1\n"),
        ("last without newline", "a: 1\nb: 2", &["- b"], "a: 1"),
        ("last without newline, CRLF", "a: 1\r\nb: 2", &["- b"], "a: 1"),
        ("block", "a:\n  b: 1\n  # inside\nc: 1\n", &["- a"], "c: 1\n"),
        (
            "comments around stay",
            "# one\na: 1\n# two\nb: 2\n# three\nc: 3\n",
            &["- b"],
            "# one\na: 1\n# two\n# three\nc: 3\n",
        ),
        ("only entry", "a:\n  b: 1\nc: 1\n", &["- a/b"], "a: {}\nc: 1\n"),
        ("only entry with comment", "a: # why\n  b: 1\nc: 1\n", &["- a/b"], "a: {} # why\nc: 1\n"),
        ("only entry, pruned", "a:\n  b:\n    c: 1\nd: 1\n", &["-- a/b/c"], "d: 1\n"),
        ("only entry of the document", "a: 1\n", &["-- a"], "{}\n"),
        ("pruning stops at others", "a:\n  b:\n    c: 1\n  d: 1\n", &["-- a/b/c"], "a:\n  d: 1\n"),
        ("two make it empty", "a:\n  b: 1\n  c: 1\nd: 1\n", &["-- a/b", "-- a/c"], "d: 1\n"),
        ("first of an item", "- a: 1\n  b: 2\n- c: 3\n", &["- 0/a"], "- b: 2\n- c: 3\n"),
        (
            "first of an item, comment below",
            "- a: 1\n  # about b\n  b: 2\n",
            &["- 0/a"],
            "-\n  # about b\n  b: 2\n",
        ),
        ("first two of an item", "- a: 1\n  b: 2\n  c: 3\n", &["- 0/a", "- 0/b"], "- c: 3\n"),
        ("only of an item", "- a: 1\n- b: 2\n", &["- 0/a"], "- {}\n- b: 2\n"),
        ("only of an item, pruned", "- a: 1\n- b: 2\n", &["-- 0/a"], "- b: 2\n"),
        ("last of an item", "- a: 1\n  b: 2 # c\n- c: 3\n", &["- 0/b"], "- a: 1\n- c: 3\n"),
        ("items", "a:\n- 1\n- 2\n- 3\nb: 1\n", &["- a/0", "- a/2"], "a:\n- 2\nb: 1\n"),
        ("all items", "a:\n- 1\n- 2\nb: 1\n", &["- a/0", "- a/1"], "a: []\nb: 1\n"),
        ("first of a compact list", "- - 1\n  - 2\n", &["- 0/0"], "- - 2\n"),
        ("flow first", "{a: 1, b: 2, c: 3}\n", &["- a"], "{b: 2, c: 3}\n"),
        ("flow middle and last", "[1, 2, 3]\n", &["- 1", "- 2"], "[1]\n"),
        ("flow all", "a: {b: 1, c: 2}\n", &["- a/b", "- a/c"], "a: {}\n"),
        ("flow and append", "[1, 2]\n", &["- 1", "+  3"], "[1, 3]\n"),
        ("remove and add", "a:\n  b: 1\n  c: 2\n", &["- a/b", "= a/d 3"], "a:\n  c: 2\n  d: 3\n"),
        ("replace all", "a:\n  b: 1\nc: 1\n", &["- a/b", "= a/d 3"], "a:\n  d: 3\nc: 1\n"),
        (
            "before empty lines that would be kept",
            "a: |+\n  x\nb: 1\n\nc: 1\n",
            &["- b"],
            "a: |+\n  x\nc: 1\n",
        ),
        (
            "comment that would become text",
            "a: |\n  x\nb:\n  c: 1\n  # deep\nd: 1\n",
            &["- b"],
            "a: |\n  x\nd: 1\n",
        ),
        ("removed twice", "a: 1\nb: 1\n", &["- a", "- a"], "b: 1\n"),
        ("removed, then set", "a: {x: 1}\nb: 1\n", &["- a", "= a/z 2"], "a: {z: 2}\nb: 1\n"),
        ("duplicate keys", "a: 1\nb: 1\na: 2\n", &["- a"], "b: 1\n"),
    ]);
}

#[test]
fn json_stays_json() {
    check(&[
        (
            "minified",
            r#"{"a":{"b":1}}"#,
            &["= a/c {\"d\":[\"x\"]}", "= e null"],
            r#"{"a":{"b":1,"c":{"d":["x"]}},"e":null}"#,
        ),
        ("one line", r#"{"a": {"b": 1}}"#, &["= a/c {\"d\":2}"], r#"{"a": {"b": 1, "c": {"d": 2}}}"#),
        (
            "pretty",
            "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n",
            &["= a/c {\"d\":[\"x\"]}"],
            "{\n  \"a\": {\n    \"b\": 1,\n    \"c\": {\n      \"d\": [\n        \"x\"\n      ]\n    }\n  }\n}\n",
        ),
        (
            "pretty with tabs",
            "{\n\t\"a\": 1\n}\n",
            &["= b {\"c\":1}"],
            "{\n\t\"a\": 1,\n\t\"b\": {\n\t\t\"c\": 1\n\t}\n}\n",
        ),
        (
            "pretty, wide",
            "{\n    \"a\": {}\n}\n",
            &["= a/b {\"c\":1}"],
            "{\n    \"a\": {\n        \"b\": {\n            \"c\": 1\n        }\n    }\n}\n",
        ),
        ("empty", "{}", &["= a \"x\""], r#"{"a": "x"}"#),
        ("removal", "{\n  \"a\": 1,\n  \"b\": 2,\n  \"c\": 3\n}\n", &["- a", "- c"], "{\n  \"b\": 2\n}\n"),
        ("pruning", r#"{"a":{"b":1},"c":2}"#, &["-- a/b"], r#"{"c":2}"#),
        ("replacement", "{\n  \"a\": [1]\n}\n", &["= a [2, 3]"], "{\n  \"a\": [\n    2,\n    3\n  ]\n}\n"),
    ]);
}

#[test]
fn aliases_do_not_drag_others_along() {
    check(&[
        (
            "mapping",
            "a: &x\n  u: 1\n  v: 2\nb: *x\nc: *x\n",
            &["= b/u 5"],
            "a: &x\n  u: 1\n  v: 2\nb:\n  <<: *x\n  u: 5\nc: *x\n",
        ),
        (
            "mapping in flow",
            "a: &x {u: 1}\nb: {c: *x}\n",
            &["= b/c/v 5"],
            "a: &x {u: 1}\nb: {c: {<<: *x, v: 5}}\n",
        ),
        (
            "item",
            "a: &x {u: 1}\nb:\n- *x\n- *x # c\n",
            &["= b/1/v 5"],
            "a: &x {u: 1}\nb:\n- *x\n- <<: *x # c\n  v: 5\n",
        ),
        (
            "deep below",
            "a: &x\n  u: {v: {w: 1, z: 2}}\nb: *x\n",
            &["= b/u/v/w 5"],
            "a: &x\n  u: {v: {w: 1, z: 2}}\nb:\n  <<: *x\n  u:\n    v:\n      w: 5\n      z: 2\n",
        ),
        ("scalar", "a: &x 1\nb: *x\n", &["= b 5"], "a: &x 1\nb: 5\n"),
        ("list", "a: &x [1, 2]\nb: *x\n", &["+ b 3"], "a: &x [1, 2]\nb: [1, 2, 3]\n"),
        (
            "removal",
            "a: &x {u: 1, v: 2}\nb: *x\nc: *x\n",
            &["- b/u"],
            "a: &x {u: 1, v: 2}\nb:\n  v: 2\nc: *x\n",
        ),
        (
            "same change everywhere",
            "a: &x\n  u: 1\nb: *x\n",
            &["= a/v 2", "= b/v 2"],
            "a: &x\n  u: 1\n  v: 2\nb: *x\n",
        ),
        (
            "change at the anchor",
            "a: &x\n  u: 1\nb: *x\n",
            &["= a/v 2"],
            "a: &x\n  u: 1\n  v: 2\nb:\n  u: 1\n",
        ),
        ("scalar at the anchor", "a: &x 1\nb: *x\n", &["= a 2"], "a: &x 2\nb: 1\n"),
        (
            "anchor removed",
            "a: &x {u: 1}\nb: *x\nc: {<<: *x, v: 2}\n",
            &["- a"],
            "b:\n  u: 1\nc: {v: 2, u: 1}\n",
        ),
        (
            "different changes",
            "a: &x {u: 1}\nb: *x\n",
            &["= a/v 2", "= b/v 3"],
            "a: &x {u: 1, v: 2}\nb:\n  u: 1\n  v: 3\n",
        ),
        (
            "alias inside an anchor",
            "a: &x {u: 1}\nb: &z\n  c: *x\nd: *z\n",
            &["= b/c/v 2"],
            "a: &x {u: 1}\nb: &z\n  c:\n    <<: *x\n    v: 2\nd:\n  c:\n    u: 1\n",
        ),
    ]);
}

#[test]
fn merge_keys_are_overridden_or_written_out() {
    check(&[
        (
            "override",
            "a: &x {u: 1}\nb:\n  <<: *x\nc: 1\n",
            &["= b/u 5"],
            "a: &x {u: 1}\nb:\n  <<: *x\n  u: 5\nc: 1\n",
        ),
        (
            "override in flow",
            "a: &x {u: 1}\nb: {<<: *x}\n",
            &["= b/u 5"],
            "a: &x {u: 1}\nb: {<<: *x, u: 5}\n",
        ),
        (
            "override a late merge",
            "a: &x {u: 1}\nb:\n  u: 2\n  <<: *x\n",
            &["= b/u 5"],
            "a: &x {u: 1}\nb:\n  <<: *x\n  u: 5\n",
        ),
        (
            "nested",
            "a: &x {u: {v: 1, w: 2}}\nb:\n  <<: *x\n",
            &["= b/u/v 5"],
            "a: &x {u: {v: 1, w: 2}}\nb:\n  <<: *x\n  u:\n    v: 5\n    w: 2\n",
        ),
        (
            "explicit key edited in place",
            "a: &x {u: 1}\nb:\n  <<: *x\n  u: 2\n",
            &["= b/u 5"],
            "a: &x {u: 1}\nb:\n  <<: *x\n  u: 5\n",
        ),
        (
            "removal",
            "a: &x {u: 1, v: 2}\nb:\n  <<: *x\n  w: 3\n",
            &["- b/u"],
            "a: &x {u: 1, v: 2}\nb:\n  w: 3\n  v: 2\n",
        ),
        (
            "removal of the explicit one",
            "a: &x {u: 1, v: 2}\nb:\n  <<: *x\n  u: 3\n",
            &["- b/u"],
            "a: &x {u: 1, v: 2}\nb:\n  v: 2\n",
        ),
        (
            "change at the anchor",
            "a: &x {u: 1}\nb: {<<: *x, v: 2}\n",
            &["= a/u 5"],
            "a: &x {u: 5}\nb: {v: 2, u: 1}\n",
        ),
        ("equal value", "a: &x {u: 1}\nb: {<<: *x}\n", &["= b/u 1"], "a: &x {u: 1}\nb: {<<: *x}\n"),
    ]);
}

#[test]
fn other_documents_stay() {
    let source = "a: 1\n---\n# two\nb: 1\n---\nc: 1\n";
    let parsed = parse(source, &Limits::default());
    let mut editor = Editor::new(&parsed);
    queue(&mut editor, 2, "= x 1").unwrap();
    queue(&mut editor, 1, "= b 2").unwrap();
    assert_eq!(editor.text_edits().unwrap().len(), 2);
    assert_eq!(editor.finish().unwrap(), "a: 1\n---\n# two\nb: 2\n---\nc: 1\nx: 1\n");
}

#[test]
fn a_broken_neighbour_does_not_matter() {
    let source = "a: 1\n---\nb: [\n---\nc: 1\n";
    let parsed = parse(source, &Limits::default());
    assert_eq!((parsed.documents.len(), parsed.errors.len()), (2, 1));
    let mut editor = Editor::new(&parsed);
    queue(&mut editor, 1, "= c 2").unwrap();
    assert_eq!(editor.finish().unwrap(), "a: 1\n---\nb: [\n---\nc: 2\n");
}

#[test]
fn no_edits_give_the_text_back() {
    for source in ["", "a: 1", "\u{feff}a: 1\r\n---\r\n", "a: [\n"] {
        let parsed = parse(source, &Limits::default());
        let editor = Editor::new(&parsed);
        assert_eq!(editor.finish().as_deref(), Ok(source));
    }
}

#[test]
fn a_pod_is_made_restricted() {
    let source = "\
apiVersion: v1
kind: Pod
metadata:
  name: web # the shop
spec:
  # We need two.
  containers:
    - name: web
      image: \"nginx:1.25\"

    # Ships the logs.
    - name: logs
      image: fluent
      securityContext: {privileged: true}
";
    let actual = try_edit(
        source,
        &[
            "= spec/securityContext/runAsNonRoot true",
            "= spec/securityContext/seccompProfile/type \"RuntimeDefault\"",
            "= spec/containers/0/securityContext/allowPrivilegeEscalation false",
            "= spec/containers/0/securityContext/capabilities/drop [\"ALL\"]",
            "- spec/containers/1/securityContext/privileged",
            "= spec/containers/1/securityContext/allowPrivilegeEscalation false",
            "= spec/containers/1/securityContext/capabilities/drop [\"ALL\"]",
        ],
    );
    insta::assert_snapshot!(actual.unwrap(), @r#"
    apiVersion: v1
    kind: Pod
    metadata:
      name: web # the shop
    spec:
      # We need two.
      containers:
        - name: web
          image: "nginx:1.25"
          securityContext:
            allowPrivilegeEscalation: false
            capabilities:
              drop:
                - ALL

        # Ships the logs.
        - name: logs
          image: fluent
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      securityContext:
        runAsNonRoot: true
        seccompProfile:
          type: RuntimeDefault
    "#);
}

#[test]
fn impossible_edits_report_why() {
    let mut out = String::new();
    for (source, edit) in [
        ("a: 1\n", "- b"),
        ("a: 1\n", "- a/b"),
        ("a: 1\n", "= a/b 1"),
        ("a: [1]\n", "= a/b 1"),
        ("a: {b: 1}\n", "= a/0 1"),
        ("a: [1]\n", "= a/3 1"),
        ("a: 1\n", "= b/3 1"),
        ("a: {}\n", "+ a 1"),
        ("a: 1\n", "- "),
        ("? a\n: 1\n", "= a 2"),
    ] {
        let error = try_edit(source, &[edit]).unwrap_err();
        writeln!(out, "{source:?} {edit:?}: {error}").unwrap();
    }
    let parsed = parse("a: 1\n", &Limits::default());
    let error = Editor::new(&parsed).set(1, &[Step::Key("a")], 1).unwrap_err();
    out.push_str(&error.to_string());
    insta::assert_snapshot!(out, @r#"
    "a: 1\n" "- b": there is no `b`
    "a: 1\n" "- a/b": `a` is a number, not a mapping
    "a: 1\n" "= a/b 1": `a` is a number, not a mapping
    "a: [1]\n" "= a/b 1": `a` is a list, not a mapping
    "a: {b: 1}\n" "= a/0 1": `a` is a mapping, not a list
    "a: [1]\n" "= a/3 1": `a[3]` is beyond the end of the list, which has 1 items
    "a: 1\n" "= b/3 1": `b[3]` is beyond the end of the list, which has 0 items
    "a: {}\n" "+ a 1": `a` is a mapping, not a list
    "a: 1\n" "- ": a whole document cannot be removed
    "? a\n: 1\n" "= a 2": the entry `a` is written with `?`, which is not supported
    there is no document 1
    "#);
}

#[test]
fn queued_edits_see_each_other() {
    check(&[
        ("set twice", "a: 1\n", &["= a 2", "= a 3"], "a: 3\n"),
        ("below a new value", "a: 1\n", &["= b {\"c\":1}", "= b/d 2", "- b/c"], "a: 1\nb:\n  d: 2\n"),
        ("append to a new list", "a: 1\n", &["= b [1]", "+ b 2"], "a: 1\nb:\n- 1\n- 2\n"),
        ("prune a new value", "a: 1\n", &["= b/c {\"d\":1}", "-- b/c/d"], "a: 1\nb:\n  c: {}\n"),
    ]);
    for edits in
        [["= b {\"c\":1}", "= b/0 1"], ["= b/c 1", "= b/0 1"], ["+ b 1", "= b/c 1"], ["= b/c 1", "+ b 1"]]
    {
        let error = try_edit("a: 1\n", &edits).unwrap_err();
        assert!(matches!(error, EditError::WrongKind { .. }), "{edits:?}: {error}");
    }
}

#[test]
fn values_come_from_json() {
    let json = json!({"a": [1, -2, 1.5, u64::MAX, null, true, "x"]});
    assert_eq!(
        Value::from(json),
        Value::map([(
            "a",
            Value::List(vec![
                Value::Int(1),
                Value::Int(-2),
                Value::Float(1.5),
                Value::UInt(u64::MAX),
                Value::Null,
                Value::Bool(true),
                "x".into()
            ])
        )])
    );
}
