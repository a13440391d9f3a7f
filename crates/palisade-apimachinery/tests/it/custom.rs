//! Custom resources: schemas, pruning, defaults, columns, scale.

use std::sync::Arc;

use palisade_apimachinery::apply::{self, Manager};
use palisade_apimachinery::rest::{self, CreateContext, Extra};
use palisade_apimachinery::{FieldValidation, Kind, crd, scale, table};
use palisade_base::version::KubeVersion;
use serde_json::{Value, json};

const NOW: &str = "2026-01-02T03:04:05Z";

fn kind(schema: Value) -> Arc<Kind> {
    let definition = json!({"spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                      "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                          "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                      "additionalPrinterColumns": [
                          {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                          {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]}]}});
    let text = definition.to_string().into();
    crd::Definition::read(&text, KubeVersion::LATEST, None).unwrap().kinds.remove(0)
}

fn of_spec(spec: Value) -> Arc<Kind> {
    kind(json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}))
}

/// What a create of this spec is answered: the stored spec, or the messages of the causes.
fn create(kind: &Kind, spec: Value) -> Result<Value, Vec<String>> {
    let body =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
    let decoded = kind.decode(body.to_string().as_bytes(), FieldValidation::Warn).unwrap();
    let mut object = decoded.object;
    kind.default(&mut object).expect("defaults");
    apply::on_update(kind, None, &mut object, &Manager { name: "m", subresource: "", now: NOW });
    let context = CreateContext { namespace: "n", now: NOW, uid: "u", suffix: "bcdfg" };
    match rest::before_create(kind, &mut object, &context, &Extra::default()) {
        Ok(_) => Ok(object["spec"].clone()),
        Err(status) => Err(status
            .details
            .unwrap()
            .causes
            .into_iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect()),
    }
}

#[test]
fn values_are_judged_in_upstreams_words() {
    for (case, schema, value, expected) in [
        (
            "wrong type",
            json!({"type": "integer"}),
            json!("x"),
            "spec.v: Invalid value: \"string\": spec.v in body must be of type integer: \"string\"",
        ),
        (
            "too small",
            json!({"type": "number", "minimum": 1, "exclusiveMinimum": true}),
            json!(1),
            "spec.v: Invalid value: 1: spec.v in body should be greater than 1",
        ),
        (
            "no multiple",
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            "spec.v: Invalid value: 4: spec.v in body should be a multiple of 3",
        ),
        (
            "pattern",
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            "spec.v: Invalid value: \"b\": spec.v in body should match '^a+$'",
        ),
        (
            "too short",
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            "spec.v: Invalid value: \"a\": spec.v in body should be at least 2 chars long",
        ),
        (
            "too many items",
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1}),
            json!([1, 2]),
            "spec.v: Too many: 2: must have at most 1 item",
        ),
        (
            "format",
            json!({"type": "string", "format": "date-time"}),
            json!("now"),
            "spec.v: Invalid value: \"now\": spec.v in body must be of type date-time: \"now\"",
        ),
        (
            "inside a list",
            json!({"type": "array", "items": {"type": "object", "required": ["k"]}}),
            json!([{}]),
            "spec.v[0].k: Required value",
        ),
        (
            "neither",
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            "spec.v: Invalid value: \"boolean\": spec.v in body must be of type integer,string: \"boolean\"",
        ),
        (
            "a repeated set item",
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
            json!(["a", "a"]),
            "spec.v[1]: Duplicate value: \"a\"",
        ),
        (
            "null",
            json!({"type": "string"}),
            Value::Null,
            "spec.v: Invalid value: \"null\": spec.v in body must be of type string: \"null\"",
        ),
    ] {
        let kind = of_spec(json!({"type": "object", "properties": {"v": schema}}));
        assert_eq!(create(&kind, json!({"v": value})), Err(vec![expected.to_owned()]), "{case}");
    }
}

#[test]
fn good_values_pass_pruned_and_defaulted() {
    for (case, schema, value, expected) in [
        ("int or string", json!({"x-kubernetes-int-or-string": true}), json!("25%"), json!("25%")),
        ("nullable", json!({"type": "string", "nullable": true}), Value::Null, Value::Null),
        (
            "unknown fields go",
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            json!({"a": "x", "b": 1}),
            json!({"a": "x"}),
        ),
        (
            "unless they are kept",
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"b": {"c": 1}}),
            json!({"b": {"c": 1}}),
        ),
        (
            "maps keep their keys",
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"x": 1}),
            json!({"x": 1}),
        ),
        (
            "defaults reach into lists",
            json!({"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string", "default": "z"}}}}),
            json!([{}]),
            json!([{"d": "z"}]),
        ),
    ] {
        let kind = of_spec(json!({"type": "object", "properties": {"v": schema}}));
        assert_eq!(create(&kind, json!({"v": value})).map(|spec| spec["v"].clone()), Ok(expected), "{case}");
    }
}

#[test]
fn columns_and_scale_follow_their_paths() {
    let kind = of_spec(json!({"type": "object", "properties": {"replicas": {"type": "integer"}}}));
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "n", "creationTimestamp": NOW, "resourceVersion": "1"},
        "spec": {"replicas": 2}, "status": {"replicas": 1, "selector": "a=b",
        "conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}});
    let now = palisade_base::time::parse(NOW).unwrap().seconds + 90;
    assert_eq!(
        table::table(&kind, std::slice::from_ref(&object), now).rows,
        [[json!("w"), json!("True"), json!("90s")]]
    );
    let current = scale::get(&kind, &object);
    assert_eq!(
        (&current["spec"], &current["status"]),
        (&json!({"replicas": 2}), &json!({"replicas": 1, "selector": "a=b"}))
    );
    let manager = Manager { name: "m", subresource: "scale", now: NOW };
    let wanted = json!({"spec": {"replicas": 5}});
    assert_eq!(scale::set(&kind, &object, &wanted, &manager).unwrap()["spec"]["replicas"], 5);
    let negative = scale::set(&kind, &object, &json!({"spec": {"replicas": -1}}), &manager).unwrap_err();
    assert_eq!(negative.code, 422);
}
