//! Strategic merge patches by example.
//!
//! Implements: the cases of "Strategic Merge Patch", sections "Basic Patch Format" and "Directives",
//! <https://git.k8s.io/community/contributors/devel/sig-api-machinery/strategic-merge-patch.md>.

use palisade_apimachinery::FieldValidation;
use palisade_apimachinery::patch::{PatchType, patch};
use palisade_apimachinery::scheme::LATEST;
use serde_json::{Value, json};

/// What becomes of `live` below `at`, or the message of the rejection.
fn patched(kind: (&str, &str), at: &str, live: &Value, body: &Value) -> Result<Value, String> {
    let (api_version, name) = kind;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = LATEST.by_kind(group, version, name).unwrap();
    let object = |value: &Value| {
        let mut object = json!({"apiVersion": api_version, "kind": name, "metadata": {"name": "n"}});
        match at {
            "metadata" => object[at].as_object_mut().unwrap().extend(value.as_object().unwrap().clone()),
            _ => object[at] = value.clone(),
        }
        object
    };
    let body = json!({at: body}).to_string();
    let done = patch(kind, &object(live), PatchType::Strategic, body.as_bytes(), FieldValidation::Ignore);
    let mut found = done.map_err(|status| status.message.clone())?.object[at].take();
    if at == "metadata" {
        found.as_object_mut().unwrap().retain(|key, _| key != "name" && key != "creationTimestamp");
    }
    Ok(found)
}

const POD: (&str, &str) = ("v1", "Pod");

#[test]
fn lists_are_merged_by_key_or_replaced() {
    for (case, at, live, body, expected) in [
        (
            "an item of the same name is merged",
            "spec",
            json!({"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b", "image": "1"}]}),
            json!({"containers": [{"name": "a", "image": "2"}]}),
            json!({"containers": [{"name": "a", "image": "2", "resources": {}, "tty": true},
                                  {"name": "b", "image": "1", "resources": {}}]}),
        ),
        (
            "an item can be deleted by its key",
            "spec",
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
            json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            json!({"containers": [{"name": "b", "image": "1", "resources": {}}]}),
        ),
        (
            "deleting what is not there changes nothing",
            "spec",
            json!({"containers": [{"name": "a", "image": "1"}]}),
            json!({"containers": [{"name": "z", "$patch": "delete"}]}),
            json!({"containers": [{"name": "a", "image": "1", "resources": {}}]}),
        ),
        (
            "a merged list can be replaced as a whole",
            "spec",
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
            json!({"containers": [{"name": "c", "image": "2"}, {"$patch": "replace"}]}),
            json!({"containers": [{"name": "c", "image": "2", "resources": {}}]}),
        ),
        (
            "a list without merge key is replaced",
            "spec",
            json!({"containers": [{"name": "a", "image": "1", "args": ["1", "2"]}]}),
            json!({"containers": [{"name": "a", "args": ["3"]}]}),
            json!({"containers": [{"name": "a", "image": "1", "args": ["3"], "resources": {}}]}),
        ),
        (
            "of the two keys of ports only the number counts",
            "spec",
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 53, "protocol": "UDP"},
                                                          {"containerPort": 53, "protocol": "TCP"}]}]}),
            json!({"containers": [{"name": "a", "ports": [{"containerPort": 53, "name": "dns"}]}]}),
            json!({"containers": [{"name": "a", "resources": {}, "ports": [
                {"containerPort": 53, "protocol": "UDP", "name": "dns"}, {"containerPort": 53, "protocol": "TCP"}]}]}),
        ),
        (
            "an order given is followed, and other items stand before the first that they stood before",
            "spec",
            json!({"containers": [{"name": "a"}, {"name": "s"}, {"name": "b"}]}),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
            json!({"containers": [{"name": "s", "resources": {}}, {"name": "b", "resources": {}},
                                  {"name": "a", "resources": {}}]}),
        ),
        (
            "values of a set are added once",
            "metadata",
            json!({"finalizers": ["x/a", "x/b"]}),
            json!({"finalizers": ["x/b", "x/c"]}),
            json!({"finalizers": ["x/a", "x/b", "x/c"]}),
        ),
        (
            "values of a set can be deleted",
            "metadata",
            json!({"finalizers": ["x/a", "x/b"]}),
            json!({"$deleteFromPrimitiveList/finalizers": ["x/a", "x/z"]}),
            json!({"finalizers": ["x/b"]}),
        ),
        (
            "deleting values of a list that is not there makes none",
            "metadata",
            json!({}),
            json!({"$deleteFromPrimitiveList/finalizers": ["x/a"]}),
            json!({}),
        ),
    ] {
        let mut expected = expected;
        if at == "spec" {
            expected.as_object_mut().unwrap().entry("containers").or_insert_with(|| json!([]));
        }
        assert_eq!(patched(POD, at, &live, &body), Ok(expected), "{case}");
    }
}

#[test]
fn maps_are_merged_and_null_deletes() {
    for (case, kind, at, live, body, expected) in [
        (
            "keys are added and changed",
            POD,
            "metadata",
            json!({"labels": {"a": "1", "b": "1"}}),
            json!({"labels": {"b": "2", "c": "3"}}),
            json!({"labels": {"a": "1", "b": "2", "c": "3"}}),
        ),
        (
            "null deletes a key",
            POD,
            "metadata",
            json!({"labels": {"a": "1", "b": "1"}}),
            json!({"labels": {"b": null, "z": null}}),
            json!({"labels": {"a": "1"}}),
        ),
        (
            "null deletes a whole map",
            POD,
            "metadata",
            json!({"labels": {"a": "1"}, "annotations": {"a": "1"}}),
            json!({"labels": null}),
            json!({"annotations": {"a": "1"}}),
        ),
        (
            "nulls of a new map are not kept",
            POD,
            "metadata",
            json!({}),
            json!({"labels": {"a": "1", "b": null}}),
            json!({"labels": {"a": "1"}}),
        ),
        (
            "a map can be replaced",
            POD,
            "metadata",
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"$patch": "replace", "b": "2"}}),
            json!({"labels": {"b": "2"}}),
        ),
        (
            "a map can be emptied",
            POD,
            "metadata",
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"$patch": "delete"}}),
            json!({}),
        ),
        (
            "a new map with a directive is not made",
            POD,
            "metadata",
            json!({}),
            json!({"labels": {"$patch": "replace", "b": "2"}}),
            json!({}),
        ),
        (
            "a struct with the strategy replace is replaced",
            ("policy/v1", "PodDisruptionBudget"),
            "spec",
            json!({"minAvailable": 1, "selector": {"matchLabels": {"a": "1"}}}),
            json!({"selector": {"matchLabels": {"b": "2"}}}),
            json!({"minAvailable": 1, "selector": {"matchLabels": {"b": "2"}}}),
        ),
    ] {
        assert_eq!(patched(kind, at, &live, &body), Ok(expected), "{case}");
    }
}

#[test]
fn only_the_keys_to_retain_are_kept() {
    let deployment = ("apps/v1", "Deployment");
    let spec = |strategy: Value| json!({"strategy": strategy, "selector": {}, "template": {"metadata": {}, "spec": {"containers": null}}});
    for (case, live, body, expected) in [
        (
            "a union changes its member",
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}),
            json!({"$retainKeys": ["type"], "type": "Recreate"}),
            Ok(json!({"type": "Recreate"})),
        ),
        (
            "what is retained is merged",
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}),
            json!({"$retainKeys": ["type", "rollingUpdate"], "rollingUpdate": {"maxUnavailable": 2}}),
            Ok(json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 2}})),
        ),
        (
            "every key of the patch must be retained",
            json!({"type": "Recreate"}),
            json!({"$retainKeys": ["rollingUpdate"], "type": "Recreate"}),
            Err("invalid patch format of retainKeys".to_owned()),
        ),
        (
            "the keys must be a list",
            json!({"type": "Recreate"}),
            json!({"$retainKeys": "type", "type": "Recreate"}),
            Err("invalid patch format of retainKeys".to_owned()),
        ),
    ] {
        let found = patched(deployment, "spec", &spec(live), &json!({"strategy": body}));
        assert_eq!(found.map(|mut spec| spec["strategy"].take()), expected, "{case}");
    }
    let volumes = json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]});
    let body =
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]});
    let found = patched(POD, "spec", &volumes, &body).unwrap();
    assert_eq!(found["volumes"], json!([{"name": "v", "configMap": {"name": "c"}}]));
}

#[test]
fn patches_that_cannot_be_applied_are_rejected() {
    for (case, at, live, body, expected) in [
        (
            "an item without its key",
            "spec",
            json!({"containers": [{"name": "a"}]}),
            json!({"containers": [{"image": "i"}]}),
            "map: map[image:i] does not contain declared merge key: name",
        ),
        (
            "a directive that does not exist",
            "metadata",
            json!({"labels": {"a": "1"}}),
            json!({"labels": {"$patch": "merge"}}),
            "unknown patch type: merge in map: map[$patch:merge]",
        ),
        (
            "a directive that lists do not have",
            "spec",
            json!({"containers": [{"name": "a"}]}),
            json!({"containers": [{"name": "a", "$patch": "merge"}]}),
            "merging lists cannot yet be specified in the patch",
        ),
        (
            "a list of values to delete without the name of the list",
            "metadata",
            json!({"finalizers": ["x/a"]}),
            json!({"$deleteFromPrimitiveList": ["x/a"]}),
            "invalid patch format of primitive list",
        ),
        (
            "an order without the name of the list",
            "metadata",
            json!({"finalizers": ["x/a"]}),
            json!({"$setElementOrder": ["x/a"]}),
            "invalid patch format of setElementOrder list",
        ),
        (
            "an order of a field that does not exist",
            "spec",
            json!({"containers": [{"name": "a"}]}),
            json!({"$setElementOrder/nope": [{"name": "a"}]}),
            "unable to find api field in struct PodSpec for the json field \"nope\"",
        ),
        (
            "items in another order than the one given",
            "metadata",
            json!({"finalizers": ["x/a", "x/b"]}),
            json!({"finalizers": ["x/b", "x/a"], "$setElementOrder/finalizers": ["x/a", "x/b"]}),
            "The order in patch list:\n[x/b x/a]\n doesn't match $setElementOrder list:\n[x/a x/b]\n",
        ),
    ] {
        assert_eq!(patched(POD, at, &live, &body), Err(expected.to_owned()), "{case}");
    }
}

/// Each of these would take minutes if items were compared with each other one by one.
#[test]
fn long_lists_cost_in_proportion() {
    const COUNT: usize = 20_000;
    let finalizers =
        |from: usize| -> Vec<String> { (from..COUNT).map(|i| format!("example.com/f{i}")).collect() };
    let containers = |image: &str| -> Vec<Value> {
        (0..COUNT).map(|i| json!({"name": format!("c{i}"), "image": image})).collect()
    };
    let (half, all) = (json!({"finalizers": finalizers(COUNT / 2)}), json!({"finalizers": finalizers(0)}));
    let merged = patched(POD, "metadata", &half, &all).unwrap();
    assert_eq!(merged["finalizers"].as_array().map(Vec::len), Some(COUNT));
    let cut = json!({"$deleteFromPrimitiveList/finalizers": finalizers(COUNT / 2)});
    let left = patched(POD, "metadata", &all, &cut).unwrap();
    assert_eq!(left["finalizers"].as_array().map(Vec::len), Some(COUNT / 2));
    let (old, new) = (json!({"containers": containers("1")}), json!({"containers": containers("2")}));
    let merged = patched(POD, "spec", &old, &new).unwrap();
    assert_eq!(merged["containers"][COUNT - 1]["image"], "2");
    assert_eq!(merged["containers"].as_array().map(Vec::len), Some(COUNT));
}
