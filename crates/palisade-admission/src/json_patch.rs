//! The difference of two JSON values, as a patch that an API server applies after a mutating webhook.

use serde_json::Value;

/// The patch that makes `after` of `before`, as JSON; empty if they are equal.
#[must_use]
pub fn to_bytes(before: &Value, after: &Value) -> Vec<u8> {
    let patch = json_patch::diff(before, after);
    if patch.is_empty() { Vec::new() } else { patch.to_string().into_bytes() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::to_bytes;

    fn difference(before: &Value, after: &Value) -> Value {
        let patch = to_bytes(before, after);
        if patch.is_empty() { json!([]) } else { serde_json::from_slice(&patch).unwrap() }
    }

    #[test]
    fn contains_only_what_changes() {
        for (case, before, after, expected) in [
            ("nothing", json!({"a": [1, {"b": null}]}), json!({"a": [1, {"b": null}]}), json!([])),
            (
                "missing parents come whole",
                json!({"metadata": {"name": "p"}}),
                json!({"metadata": {"name": "p", "annotations": {"x/y~z": "1", "b": "2"}}}),
                json!([{"op": "add", "path": "/metadata/annotations", "value": {"x/y~z": "1", "b": "2"}}]),
            ),
            (
                "keys are escaped",
                json!({"metadata": {"annotations": {"a/b~c": "1", "d/e": "x"}}}),
                json!({"metadata": {"annotations": {"a/b~c": "2", "f~/": "3"}}}),
                json!([
                    {"op": "replace", "path": "/metadata/annotations/a~1b~0c", "value": "2"},
                    {"op": "add", "path": "/metadata/annotations/f~0~1", "value": "3"},
                    {"op": "remove", "path": "/metadata/annotations/d~1e"}
                ]),
            ),
            (
                "a null parent is replaced",
                json!({"metadata": {"annotations": null}}),
                json!({"metadata": {"annotations": {"a": "1"}}}),
                json!([{"op": "replace", "path": "/metadata/annotations", "value": {"a": "1"}}]),
            ),
            (
                "inside lists",
                json!({"c": [{"n": "a"}, {"n": "b"}]}),
                json!({"c": [{"n": "a"}, {"n": "b", "s": {"t": 1}}]}),
                json!([{"op": "add", "path": "/c/1/s", "value": {"t": 1}}]),
            ),
        ] {
            assert_eq!(difference(&before, &after), expected, "{case}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3i64).prop_map(Value::from),
            "[a/~]{0,3}".prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c/~]{1,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn applied_to_one_it_makes_the_other(before in value(), after in value()) {
            let mut made = before.clone();
            let operations: json_patch::Patch = serde_json::from_value(difference(&before, &after)).unwrap();
            json_patch::patch(&mut made, &operations).unwrap();
            prop_assert_eq!(made, after);
        }
    }
}
