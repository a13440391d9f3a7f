//! serde: values, borrowing, and errors with their place.

use std::fmt::Write as _;

use std::{borrow::Cow, collections::BTreeMap};

use palisade_yaml::{Limits, LineIndex, parse};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pod<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    host_network: Option<bool>,
    #[serde(default)]
    containers: Vec<Container<'a>>,
    policy: Option<Policy>,
    #[serde(default)]
    ports: BTreeMap<u16, &'a str>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Container<'a> {
    image: &'a str,
    user: Option<i64>,
    ratio: Option<f64>,
}

#[derive(Debug, Deserialize, PartialEq)]
enum Policy {
    Always,
    Limit(u8),
}

#[test]
fn reads_types_that_borrow() {
    let source = "name: web\nhostNetwork: yes\ncontainers:\n- {image: 'a', user: 0o17, ratio: 2}\n- image: \"b\"\n  user: 1e3\npolicy: {Limit: 3}\nports: {80: http}\n";
    let parsed = parse(source, &Limits::default());
    let pod: Pod<'_> = parsed.documents[0].deserialize().unwrap();
    assert!(matches!(pod.name, Cow::Borrowed("web")), "borrowed");
    assert_eq!(
        pod,
        Pod {
            name: "web".into(),
            host_network: Some(true),
            containers: vec![
                Container { image: "a", user: Some(15), ratio: Some(2.0) },
                Container { image: "b", user: Some(1000), ratio: None },
            ],
            policy: Some(Policy::Limit(3)),
            ports: BTreeMap::from([(80, "http")]),
        }
    );
}

#[test]
fn errors_carry_message_path_and_place() {
    let mut out = String::new();
    for source in [
        "name: x\nhostNetwork: yes please\n",
        "name: x\nhostNetwork: 'true'\n",
        "name: 5\n",
        "name:\n  first: x\n",
        "name: x\ncontainers: 5\n",
        "name: x\ncontainers:\n- image: a\n- image: [b]\n",
        "name: x\ncontainers:\n- user: 5\n",
        "name: x\ncontainers:\n- image: a\n  user: 99999999999999999999\n",
        "name: x\ncontainers:\n- image: a\n  ratio: .nan\n",
        "name: x\nhostPID: true\n",
        "name: x\npolicy: Never\n",
        "name: x\npolicy: {Limit: 300}\n",
        "name: x\npolicy: [a]\n",
        "- x\n",
        "just text\n",
        "x: &x {image: {}}\nname: y\n",
    ] {
        let parsed = parse(source, &Limits::default());
        let error = parsed.documents[0].deserialize::<Pod<'_>>().unwrap_err();
        let at = LineIndex::new(source).position(error.span.start);
        writeln!(out, "{}:{} {error}", at.line, at.column).unwrap();
    }
    insta::assert_snapshot!(out, @r#"
    2:14 hostNetwork: expected a boolean, found the string "yes please"
    2:14 hostNetwork: expected a boolean, found the string "true"
    1:7 name: expected a string, found the integer 5
    2:3 name: expected a string, found a mapping
    2:13 containers: expected a list, found the integer 5
    4:10 containers[1].image: expected a string, found a list
    3:3 containers[0]: the field "image" is missing
    4:9 containers[0].user: expected an integer, found the number 100000000000000000000
    4:10 containers[0].ratio: `.nan` is not a number that JSON can hold
    2:1 unknown field "hostPID", expected one of "name", "hostNetwork", "containers", "policy", "ports"
    2:9 policy: expected one of "Always", "Limit", found "Never"
    2:17 policy.Limit: expected an integer from 0 to 255, found 300
    2:9 policy: expected one of "Always", "Limit", found a list
    1:1 expected a mapping, found a list
    1:1 expected a mapping, found the string "just text"
    1:1 unknown field "x", expected one of "name", "hostNetwork", "containers", "policy", "ports"
    "#);
}

#[test]
fn json_is_what_kubernetes_would_send() {
    for (source, expected) in [
        ("a: [1, 2.5, 08, 1e3, -0.0]", json!({"a": [1, 2.5, 8, 1000, -0.0]})),
        ("a: 18446744073709551615", json!({"a": u64::MAX})),
        ("{yes: no, 1: ~, 2.5: '', null_: x}", json!({"true": false, "1": null, "2.5": "", "null_": "x"})),
        ("a: !!binary aGk=\nb: 2024-01-01", json!({"a": "hi", "b": "2024-01-01"})),
        ("a: |\n  x\n  y\nb: >-\n  x\n  y\n", json!({"a": "x\ny\n", "b": "x y"})),
        (
            "a: &a {x: 1}\nb: {<<: *a, z: 2}\nc: *a",
            json!({"a": {"x": 1}, "b": {"x": 1, "z": 2}, "c": {"x": 1}}),
        ),
        ("a: {'<<': 1}", json!({"a": {"<<": 1}})),
        (
            "a: &a {x: 1, w: 1}\nb: &b {x: 2, z: 2}\nc: {x: 0, <<: [*a, *b], z: 3}",
            json!({"a": {"x": 1, "w": 1}, "b": {"x": 2, "z": 2}, "c": {"x": 1, "w": 1, "z": 3}}),
        ),
        ("a: &x 1\nb: &x 2\nc: *x", json!({"a": 1, "b": 2, "c": 2})),
        ("a: 'x\n\n  y'", json!({"a": "x\ny"})),
    ] {
        let parsed = parse(source, &Limits::default());
        assert_eq!(parsed.errors, [], "{source}");
        assert_eq!(parsed.documents[0].root().to_json().unwrap(), expected, "{source}");
    }
}

#[test]
fn json_text_reads_as_json() {
    for source in [
        "{\"a\":{\"b\":[1,-2.5e3,true,false,null,\"x\\n\\u00e9\\/\"]},\"c\":{},\"d\":[]}",
        "{\n\t\"a\": [\n\t\t1,\n\t\t{\"b\": \"c: d # e\"}\n\t]\n}\n",
        "[]",
        "\"text\"",
        "\"\\ud83d\\ude00 \\u00e9 \\/\"",
        "{\"a\":\"https://example.com/?x=[1]\",\"yes\":\"no\"}",
    ] {
        let parsed = parse(source, &Limits::default());
        assert_eq!(parsed.errors, [], "{source}");
        let expected: serde_json::Value = serde_json::from_str(source).unwrap();
        let actual = parsed.documents[0].root().to_json().unwrap();
        // -2.5e3 has no fraction, and comes out as Go writes it.
        assert_eq!(actual.to_string().replace("-2500,", "-2500.0,"), expected.to_string(), "{source}");
    }
}

#[test]
fn long_json_lines_are_read() {
    let mut source = String::from("{");
    for key in 0..2000 {
        write!(source, "\"key{key}\":\"{}\",", "x".repeat(50)).unwrap();
    }
    source.push_str("\"last\":1}");
    let parsed = parse(&source, &Limits::default());
    assert_eq!(parsed.errors, []);
    let last = parsed.documents[0].root().get("last").unwrap();
    assert_eq!(last.span().text(&source), "1");
}
