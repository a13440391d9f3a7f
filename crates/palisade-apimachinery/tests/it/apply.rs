//! Server-side apply by example: who owns what, and when two managers disagree.

use palisade_apimachinery::apply::{self, Manager};
use palisade_apimachinery::scheme::LATEST;
use serde_json::{Value, json};

fn pod_with_port(port: &str) -> Value {
    let port: Value = serde_json::from_str(port).unwrap();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"},
           "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": port}]}]}})
}

#[test]
fn numbers_conflict_by_value_not_by_spelling() {
    let kind = LATEST.by_kind("", "v1", "Pod").unwrap();
    let manager = |name| Manager { name, subresource: "", now: "2026-01-02T03:04:05Z" };
    // Ports are keys of their list: the second manager takes part in one item, or adds another.
    for (first, second, items) in
        [("0", "-0", 1), ("-0", "-0", 1), ("80", "80.0", 1), ("80.0", "8e1", 1), ("80", "81", 2)]
    {
        let made = apply::apply(kind, None, &pod_with_port(first), &manager("a"), false).unwrap();
        let joined = apply::apply(kind, Some(&made), &pod_with_port(second), &manager("b"), false).unwrap();
        let ports = joined.pointer("/spec/containers/0/ports").and_then(Value::as_array).unwrap();
        assert_eq!(ports.len(), items, "{first} and {second}: {ports:?}");
    }
    let with = |uid: Value| {
        let mut pod = pod_with_port("80");
        pod["spec"]["securityContext"] = json!({"runAsUser": uid});
        pod
    };
    let made = apply::apply(kind, None, &with(json!(1000)), &manager("a"), false).unwrap();
    assert!(apply::apply(kind, Some(&made), &with(json!(1000.0)), &manager("b"), false).is_ok());
    assert!(apply::apply(kind, Some(&made), &with(json!(1001)), &manager("b"), false).is_err());
}
