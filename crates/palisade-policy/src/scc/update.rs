//! Updates of pods that constraints do not look at.
//!
//! Implements: OpenShift's SCC admission: an update is of no interest if the spec is the same and only owner
//! references, finalizers, managed fields or the network plugin's annotation differ: garbage collection and the
//! network write those on pods of everyone.

use serde_json::{Map, Value};

const IGNORED_METADATA: [&str; 5] =
    ["annotations", "ownerReferences", "finalizers", "managedFields", "selfLink"];
const IGNORED_ANNOTATION: &str = "k8s.ovn.org/pod-networks";

/// Whether a field of the spec has the value that the API server reads from an absent one.
fn is_empty_value(field: &str, value: &Value) -> bool {
    match field {
        "hostNetwork" | "hostPID" | "hostIPC" => value == &Value::Bool(false),
        "securityContext" | "nodeSelector" | "overhead" => value.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Whether nothing that matters differs between two versions of a pod.
#[must_use]
pub fn is_insignificant(old: &Value, new: &Value) -> bool {
    let fields =
        |pod: &Value, part: &str| pod.get(part).and_then(Value::as_object).cloned().unwrap_or_default();
    let spec = |pod: &Value| {
        let mut spec = fields(pod, "spec");
        spec.retain(|field, value| !is_empty_value(field, value));
        spec
    };
    let metadata = |pod: &Value| {
        let mut metadata = fields(pod, "metadata");
        metadata.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
        metadata
    };
    let (old_metadata, new_metadata) = (metadata(old), metadata(new));
    let annotations = |metadata: &Map<String, Value>| {
        metadata.get("annotations").and_then(Value::as_object).cloned().unwrap_or_default()
    };
    same_fields(&spec(old), &spec(new), &[])
        && same_fields(&annotations(&old_metadata), &annotations(&new_metadata), &[IGNORED_ANNOTATION])
        && same_fields(&old_metadata, &new_metadata, &IGNORED_METADATA)
}

/// Equality as the API server sees it: null and the empty list are the same as nothing.
fn same(old: Option<&Value>, new: Option<&Value>) -> bool {
    let something = |value: &&Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    match (old.filter(something), new.filter(something)) {
        (None, None) => true,
        (Some(Value::Object(old)), Some(Value::Object(new))) => same_fields(old, new, &[]),
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(Some(old), Some(new)))
        }
        (old, new) => old == new,
    }
}

fn same_fields(old: &Map<String, Value>, new: &Map<String, Value>, ignored: &[&str]) -> bool {
    old.keys()
        .chain(new.keys().filter(|key| !old.contains_key(key.as_str())))
        .filter(|key| !ignored.contains(&key.as_str()))
        .all(|key| same(old.get(key), new.get(key)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_insignificant;

    #[test]
    fn only_housekeeping_is_ignored() {
        let pod =
            |metadata, spec| json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}});
        let old =
            pod(json!({"name": "p", "annotations": {"a": "1"}}), json!({"nodeName": "n", "volumes": []}));
        for (case, new, expected) in [
            ("nothing", old.clone(), true),
            (
                "owners and finalizers",
                pod(
                    json!({"name": "p", "annotations": {"a": "1"}, "ownerReferences": [{"name": "o"}],
                           "finalizers": ["f"], "managedFields": [{}]}),
                    json!({"nodeName": "n", "tolerations": null}),
                ),
                true,
            ),
            (
                "the network's annotation",
                pod(
                    json!({"name": "p", "annotations": {"a": "1", "k8s.ovn.org/pod-networks": "{}"}}),
                    json!({"nodeName": "n"}),
                ),
                true,
            ),
            (
                "another annotation",
                pod(json!({"name": "p", "annotations": {"a": "2"}}), json!({"nodeName": "n"})),
                false,
            ),
            ("no annotations any more", pod(json!({"name": "p"}), json!({"nodeName": "n"})), false),
            (
                "a label",
                pod(
                    json!({"name": "p", "annotations": {"a": "1"}, "labels": {"l": ""}}),
                    json!({"nodeName": "n"}),
                ),
                false,
            ),
            (
                "the spec",
                pod(json!({"name": "p", "annotations": {"a": "1"}}), json!({"nodeName": "m"})),
                false,
            ),
            (
                "an empty security context is none",
                pod(
                    json!({"name": "p", "annotations": {"a": "1"}}),
                    json!({"nodeName": "n", "securityContext": {}, "hostPID": false}),
                ),
                true,
            ),
            (
                "an empty label is not",
                pod(
                    json!({"name": "p", "annotations": {"a": "1"}}),
                    json!({"nodeName": "n", "securityContext": {"seLinuxOptions": {}}}),
                ),
                false,
            ),
        ] {
            assert_eq!(is_insignificant(&old, &new), expected, "{case}");
        }
    }
}
