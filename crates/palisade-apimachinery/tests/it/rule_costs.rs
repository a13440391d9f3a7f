//! What rules may cost at most, as kube-apiserver v1.37 estimated it: `tests/data/recordings/cel-v1.37`. Each line is a
//! rule, the `maxItems` of the list whose items it is about (null: a rule about the whole object), and the causes with
//! which the server rejected the definition.

use std::path::Path;

use palisade_apimachinery::FieldValidation;
use palisade_apimachinery::rest::{self, CreateContext, Extra};
use palisade_apimachinery::scheme::LATEST;
use serde_json::{Value, json};

/// Functions and macros that rules cannot use here yet; docs/api-differences.md lists them.
const UNSUPPORTED: &[&str] = &["isSemver(", ".all(i, x,", ".all(k, v,"];

fn schema(properties: &Value, rule: &Value, max_items: &Value) -> Value {
    let rules = json!([{ "rule": rule }]);
    if max_items.is_null() {
        let spec = json!({"spec": {"type": "object"}});
        return json!({"type": "object", "properties": spec, "x-kubernetes-validations": rules});
    }
    let items = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
    let list = json!({"type": "array", "maxItems": max_items, "items": items});
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": list}}}})
}

fn causes(schema: &Value) -> Vec<String> {
    let kind = LATEST.by_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let definition = json!({"metadata": {"name": "foos.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let decoded = kind.decode(definition.to_string().as_bytes(), FieldValidation::Warn).unwrap();
    let mut object = decoded.object;
    kind.default(&mut object).expect("defaults");
    let context = CreateContext { namespace: "", now: "2026-01-02T03:04:05Z", uid: "u", suffix: "bcdfg" };
    match rest::before_create(kind, &mut object, &context, &Extra::default()) {
        Ok(_) => Vec::new(),
        Err(status) => status.details.unwrap().causes.into_iter().map(|cause| cause.message).collect(),
    }
}

#[test]
fn rules_cost_what_upstream_estimates() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings/cel-v1.37/costs.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let properties = lines.next().unwrap()["properties"].take();
    let (mut equal, mut different) = (0, Vec::new());
    for line in lines {
        let rule = line["rule"].as_str().unwrap();
        if UNSUPPORTED.iter().any(|part| rule.contains(part)) {
            continue;
        }
        let expected =
            line["causes"].as_array().unwrap().iter().map(|cause| cause.as_str().unwrap().to_owned());
        let (mut expected, mut found): (Vec<_>, Vec<_>) =
            (expected.collect(), causes(&schema(&properties, &line["rule"], &line["maxItems"])));
        expected.sort();
        found.sort();
        if found == expected {
            equal += 1;
        } else {
            different.push(format!("{rule}\n  expected {expected:#?}\n  found {found:#?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(equal > 100, "only {equal} rules were compared");
}
