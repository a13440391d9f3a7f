//! Server-side apply by example: who owns what, and when two managers disagree.
//!
//! Implements: the cases of "Server-Side Apply", <https://kubernetes.io/docs/reference/using-api/server-side-apply/>.

use palisade_apimachinery::apply::{self, Managed, Manager, Operation, path_text};
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

#[test]
fn an_item_identified_by_defaults_alone_can_be_applied_again() {
    let kind = LATEST.by_kind("", "v1", "Pod").unwrap();
    let manager = Manager { name: "a", subresource: "", now: NOW };
    for spec in [
        json!({"containers": [{}]}),
        json!({"containers": [{"ports": [{}]}]}),
        json!({"containers": [{"name": "c", "env": [{}], "ports": [{}, {"containerPort": 80}]}]}),
        json!({"initContainers": [{"resources": {}}], "volumes": [{}], "hostAliases": [{}]}),
    ] {
        let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        let Ok(made) = apply::apply(kind, None, &config, &manager, false) else { continue };
        let again = apply::apply(kind, Some(&made), &config, &manager, false).unwrap();
        assert_eq!(made["spec"], again["spec"], "{config}");
    }
}

/// A write by a manager.
enum Write {
    Apply(&'static str, Value),
    Force(&'static str, Value),
    /// A create or update: the whole object, not a configuration.
    Update(&'static str, Value),
}
use Write::{Apply, Force, Update};

const NOW: &str = "2026-01-02T03:04:05Z";

/// Writes in turn; the object without its managed fields and names, or the message of the rejection.
fn written(kind: (&str, &str), writes: &[Write]) -> (Result<Value, String>, Vec<String>) {
    let (api_version, name) = kind;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = LATEST.by_kind(group, version, name).unwrap();
    let object = |value: &Value| {
        let mut object = value.clone();
        object["apiVersion"] = api_version.into();
        object["kind"] = name.into();
        object["metadata"]["name"] = "o".into();
        object["metadata"]["namespace"] = "n".into();
        object
    };
    let mut live: Option<Value> = None;
    for write in writes {
        let manager = |name| Manager { name, subresource: "", now: NOW };
        let done = match write {
            Apply(name, config) => apply::apply(kind, live.as_ref(), &object(config), &manager(name), false),
            Force(name, config) => apply::apply(kind, live.as_ref(), &object(config), &manager(name), true),
            Update(name, new) => {
                let mut new = object(new);
                if let Some(fields) = live.as_ref().and_then(|live| live["metadata"].get("managedFields")) {
                    new["metadata"]["managedFields"] = fields.clone();
                }
                apply::on_update(kind, live.as_ref(), &mut new, &manager(name));
                Ok(new)
            }
        };
        match done {
            Ok(object) => live = Some(object),
            Err(status) => return (Err(status.message.clone()), owners(&live.unwrap_or_default())),
        }
    }
    let mut object = live.unwrap();
    let owners = owners(&object);
    for field in ["apiVersion", "kind", "status"] {
        object.as_object_mut().unwrap().remove(field);
    }
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| {
        !["name", "namespace", "managedFields", "creationTimestamp"].contains(&key.as_str())
    });
    if metadata.is_empty() {
        object.as_object_mut().unwrap().remove("metadata");
    }
    (Ok(object), owners)
}

/// `a: .data.x .data.y`, an updater in brackets.
fn owners(object: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in Managed::decode(object).unwrap().entries {
        let mut paths = Vec::new();
        entry.set.for_each(&mut |path| paths.push(path_text(path)));
        let name =
            if entry.operation == Operation::Apply { entry.manager } else { format!("[{}]", entry.manager) };
        lines.push(format!("{name}: {}", paths.join(" ")));
    }
    lines.sort();
    lines
}

const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");

#[test]
fn fields_belong_to_those_who_apply_them() {
    let data = |data: Value| json!({ "data": data });
    for (case, writes, expected, owners) in [
        (
            "a new object belongs to its manager",
            vec![Apply("a", data(json!({"x": "1", "y": "1"})))],
            data(json!({"x": "1", "y": "1"})),
            vec!["a: .data.x .data.y"],
        ),
        (
            "another manager adds a field",
            vec![Apply("a", data(json!({"x": "1"}))), Apply("b", data(json!({"y": "1"})))],
            data(json!({"x": "1", "y": "1"})),
            vec!["a: .data.x", "b: .data.y"],
        ),
        (
            "an equal value is shared",
            vec![Apply("a", data(json!({"x": "1"}))), Apply("b", data(json!({"x": "1"})))],
            data(json!({"x": "1"})),
            vec!["a: .data.x", "b: .data.x"],
        ),
        (
            "what is no longer applied is removed",
            vec![Apply("a", data(json!({"x": "1", "y": "1"}))), Apply("a", data(json!({"y": "1"})))],
            data(json!({"y": "1"})),
            vec!["a: .data.y"],
        ),
        (
            "unless another manager owns it",
            vec![
                Apply("a", data(json!({"x": "1", "y": "1"}))),
                Apply("b", data(json!({"x": "1"}))),
                Apply("a", data(json!({"y": "1"}))),
            ],
            data(json!({"x": "1", "y": "1"})),
            vec!["a: .data.y", "b: .data.x"],
        ),
        (
            "force takes a field over",
            vec![Apply("a", data(json!({"x": "1", "y": "1"}))), Force("b", data(json!({"x": "2"})))],
            data(json!({"x": "2", "y": "1"})),
            vec!["a: .data.y", "b: .data.x"],
        ),
        (
            "a manager that owns nothing any more is forgotten",
            vec![Apply("a", data(json!({"x": "1"}))), Force("b", data(json!({"x": "2"})))],
            data(json!({"x": "2"})),
            vec!["b: .data.x"],
        ),
        (
            "an update takes what it changes",
            vec![
                Apply("a", data(json!({"x": "1", "y": "1"}))),
                Update("u", data(json!({"x": "2", "y": "1"}))),
            ],
            data(json!({"x": "2", "y": "1"})),
            vec!["[u]: .data.x", "a: .data.y"],
        ),
        (
            "an update removes what it leaves out",
            vec![Apply("a", data(json!({"x": "1", "y": "1"}))), Update("u", data(json!({"y": "1"})))],
            data(json!({"y": "1"})),
            vec!["a: .data.y"],
        ),
        (
            "an applier and an updater of one name are two",
            vec![Update("a", data(json!({"x": "1"}))), Apply("a", data(json!({"x": "1"})))],
            data(json!({"x": "1"})),
            vec!["[a]: .data .data.x", "a: .data.x"],
        ),
        (
            "what an applier gives up stays with the updater",
            vec![
                Update("u", data(json!({"x": "1"}))),
                Apply("a", data(json!({"x": "1", "y": "1"}))),
                Apply("a", data(json!({"y": "1"}))),
            ],
            data(json!({"x": "1", "y": "1"})),
            vec!["[u]: .data .data.x", "a: .data.y"],
        ),
    ] {
        let (found, found_owners) = written(CONFIG_MAP, &writes);
        assert_eq!(found, Ok(expected), "{case}");
        assert_eq!(found_owners, owners, "{case}");
    }
}

#[test]
fn another_value_is_a_conflict() {
    let data = |data: Value| json!({ "data": data });
    let pod = |container: Value| json!({"spec": {"containers": [container]}});
    for (case, kind, writes, message) in [
        (
            "one field",
            CONFIG_MAP,
            vec![Apply("a", data(json!({"x": "1"}))), Apply("b", data(json!({"x": "2"})))],
            "Apply failed with 1 conflict: conflict with \"a\": .data.x",
        ),
        (
            "several fields of one manager",
            CONFIG_MAP,
            vec![
                Apply("a", data(json!({"x": "1", "y": "1"}))),
                Apply("b", data(json!({"x": "2", "y": "2"}))),
            ],
            "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.x\n- .data.y",
        ),
        (
            "fields of two managers",
            CONFIG_MAP,
            vec![
                Apply("a", data(json!({"x": "1"}))),
                Apply("b", data(json!({"y": "1"}))),
                Apply("c", data(json!({"x": "2", "y": "2"}))),
            ],
            "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.x\nconflicts with \"b\":\n- .data.y",
        ),
        (
            "a field that was updated",
            CONFIG_MAP,
            vec![Update("u", data(json!({"x": "1"}))), Apply("a", data(json!({"x": "2"})))],
            "Apply failed with 1 conflict: conflict with \"u\" using v1: .data.x",
        ),
        (
            "a field that one has given up and the other has changed",
            CONFIG_MAP,
            vec![
                Apply("a", data(json!({"x": "1"}))),
                Update("u", data(json!({"x": "2"}))),
                Apply("a", data(json!({"x": "1"}))),
            ],
            "Apply failed with 1 conflict: conflict with \"u\" using v1: .data.x",
        ),
        (
            "in an item of a list, by its key",
            ("v1", "Pod"),
            vec![
                Apply("a", pod(json!({"name": "c", "image": "1"}))),
                Apply("b", pod(json!({"name": "c", "image": "2"}))),
            ],
            "Apply failed with 1 conflict: conflict with \"a\": .spec.containers[name=\"c\"].image",
        ),
        (
            "an atomic list as a whole",
            ("v1", "Pod"),
            vec![
                Apply("a", pod(json!({"name": "c", "args": ["1", "2"]}))),
                Apply("b", pod(json!({"name": "c", "args": ["1"]}))),
            ],
            "Apply failed with 1 conflict: conflict with \"a\": .spec.containers[name=\"c\"].args",
        ),
        (
            "an atomic map as a whole",
            ("v1", "Pod"),
            vec![
                Apply("a", json!({"spec": {"nodeSelector": {"x": "1"}}})),
                Apply("b", json!({"spec": {"nodeSelector": {"y": "1"}}})),
            ],
            "Apply failed with 1 conflict: conflict with \"a\": .spec.nodeSelector",
        ),
    ] {
        assert_eq!(written(kind, &writes).0, Err(message.to_owned()), "{case}");
    }
}

#[test]
fn lists_are_merged_by_their_type() {
    let pod = |containers: Value| json!({"spec": {"containers": containers}});
    let finalizers = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    for (case, kind, writes, at, expected, owners) in [
        (
            "items of a map list belong to those who apply them",
            ("v1", "Pod"),
            vec![
                Apply("a", pod(json!([{"name": "x", "image": "1"}]))),
                Apply("b", pod(json!([{"name": "y", "image": "1"}]))),
            ],
            "/spec/containers",
            json!([{"name": "x", "image": "1", "resources": {}}, {"name": "y", "image": "1", "resources": {}}]),
            vec![
                "a: .spec.containers[name=\"x\"] .spec.containers[name=\"x\"].image .spec.containers[name=\"x\"].name",
                "b: .spec.containers[name=\"y\"] .spec.containers[name=\"y\"].image .spec.containers[name=\"y\"].name",
            ],
        ),
        (
            "an item goes with its last owner",
            ("v1", "Pod"),
            vec![
                Apply("a", pod(json!([{"name": "x", "image": "1"}, {"name": "y", "image": "1"}]))),
                Apply("b", pod(json!([{"name": "y", "image": "1"}]))),
                Apply("a", pod(json!([]))),
            ],
            "/spec/containers",
            json!([{"name": "y", "image": "1", "resources": {}}]),
            vec![
                "b: .spec.containers[name=\"y\"] .spec.containers[name=\"y\"].image .spec.containers[name=\"y\"].name",
            ],
        ),
        (
            "a key that is left out has its default",
            ("v1", "Pod"),
            vec![
                Apply("a", pod(json!([{"name": "x", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]))),
                Apply("b", pod(json!([{"name": "x", "ports": [{"containerPort": 80, "name": "web"}]}]))),
            ],
            "/spec/containers/0/ports",
            json!([{"containerPort": 80, "protocol": "TCP", "name": "web"}]),
            vec![],
        ),
        (
            "two keys identify items",
            ("v1", "Pod"),
            vec![
                Apply("a", pod(json!([{"name": "x", "ports": [{"containerPort": 53, "protocol": "TCP"}]}]))),
                Apply("b", pod(json!([{"name": "x", "ports": [{"containerPort": 53, "protocol": "UDP"}]}]))),
            ],
            "/spec/containers/0/ports",
            json!([{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]),
            vec![],
        ),
        (
            "values of a set belong to those who apply them",
            CONFIG_MAP,
            vec![Apply("a", finalizers(json!(["x/1"]))), Apply("b", finalizers(json!(["x/2"])))],
            "/metadata/finalizers",
            json!(["x/1", "x/2"]),
            vec!["a: .metadata.finalizers[=\"x/1\"]", "b: .metadata.finalizers[=\"x/2\"]"],
        ),
        (
            "and go with their last owner",
            CONFIG_MAP,
            vec![
                Apply("a", finalizers(json!(["x/1", "x/2"]))),
                Apply("b", finalizers(json!(["x/2"]))),
                Apply("a", finalizers(json!(["x/3"]))),
            ],
            "/metadata/finalizers",
            json!(["x/2", "x/3"]),
            vec!["a: .metadata.finalizers[=\"x/3\"]", "b: .metadata.finalizers[=\"x/2\"]"],
        ),
        (
            "an atomic list is replaced",
            ("v1", "Pod"),
            vec![
                Apply("a", json!({"spec": {"tolerations": [{"key": "x"}, {"key": "y"}]}})),
                Apply("a", json!({"spec": {"tolerations": [{"key": "y"}]}})),
            ],
            "/spec/tolerations",
            json!([{"key": "y"}]),
            vec!["a: .spec.tolerations"],
        ),
    ] {
        let (found, found_owners) = written(kind, &writes);
        let found = found.unwrap_or_else(|message| panic!("{case}: {message}"));
        assert_eq!(found.pointer(at), Some(&expected), "{case}");
        if !owners.is_empty() {
            assert_eq!(found_owners, owners, "{case}");
        }
    }
}

#[test]
fn configurations_that_do_not_fit_the_schema_are_rejected() {
    let typed = "failed to create typed patch object (n/o; /v1, Kind=Pod): ";
    for (case, config, expected) in [
        (
            "items without their key, which has a default",
            json!({"spec": {"containers": [{"image": "1"}, {"image": "2"}]}}),
            format!("{typed}.spec.containers: duplicate entries for key [name=\"\"]"),
        ),
        (
            "a key twice",
            json!({"spec": {"containers": [{"name": "c"}, {"name": "c"}]}}),
            format!("{typed}.spec.containers: duplicate entries for key [name=\"c\"]"),
        ),
        (
            "a value of a set twice",
            json!({"metadata": {"finalizers": ["x/1", "x/1"]}}),
            format!("{typed}.metadata.finalizers: duplicate entries for key [=\"x/1\"]"),
        ),
        (
            "a field that does not exist",
            json!({"spec": {"nope": 1}}),
            format!("{typed}.spec.nope: field not declared in schema"),
        ),
        ("a list for a map", json!({"spec": []}), format!("{typed}.spec: expected map, got &{{[]}}")),
        (
            "managed fields",
            json!({"metadata": {"managedFields": []}}),
            "metadata.managedFields must be nil".to_owned(),
        ),
    ] {
        assert_eq!(written(("v1", "Pod"), &[Apply("a", config)]).0, Err(expected), "{case}");
    }
}

/// Each step of these would take minutes, or tens of gigabytes, if items were compared with each other one by one or if each
/// conflict had a copy of its owner's fields.
#[test]
fn many_fields_and_items_cost_in_proportion() {
    const COUNT: usize = 20_000;
    let kind = LATEST.by_kind("", "v1", "ConfigMap").unwrap();
    let manager = |name| Manager { name, subresource: "", now: NOW };
    let config = |value: &str, finalizers: usize| {
        let data: serde_json::Map<String, Value> =
            (0..COUNT).map(|i| (format!("k{i}"), Value::from(value))).collect();
        let finalizers: Vec<String> = (0..finalizers).map(|i| format!("example.com/f{i}")).collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": "o", "namespace": "n", "finalizers": finalizers}})
    };
    let made = apply::apply(kind, None, &config("a", COUNT), &manager("a"), false).unwrap();
    let status = apply::apply(kind, Some(&made), &config("b", 0), &manager("b"), false).unwrap_err();
    assert_eq!(status.details.unwrap().causes.len(), COUNT);
    assert!(status.message.starts_with("Apply failed with 20000 conflicts: conflicts with \"a\""));
    let fewer = apply::apply(kind, Some(&made), &config("a", COUNT / 2), &manager("a"), false).unwrap();
    assert_eq!(fewer["metadata"]["finalizers"].as_array().map(Vec::len), Some(COUNT / 2));
}
