//! The difference of two JSON values, as a patch.
//!
//! Implements: RFC 6902, as far as an API server needs it to follow a mutating webhook: `add`, `replace` and `remove`. A
//! parent that is missing comes whole, in one operation. Lists are compared item by item; one that has grown or
//! shrunk is replaced, since nothing here changes the length of a list.

use serde_json::{Map, Value, json};

use palisade_base::field_path::{FieldPath, PathStep};

/// The operations that make `after` of `before`; none if they are equal.
#[must_use]
pub fn difference(before: &Value, after: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    compare(before, after, &mut Vec::new(), &mut operations);
    operations
}

/// The same in bytes; empty if there is nothing to do.
#[must_use]
pub fn to_bytes(before: &Value, after: &Value) -> Vec<u8> {
    let operations = difference(before, after);
    if operations.is_empty() { Vec::new() } else { Value::Array(operations).to_string().into_bytes() }
}

fn compare(before: &Value, after: &Value, path: &mut Vec<PathStep>, operations: &mut Vec<Value>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => compare_maps(before, after, path, operations),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                path.push(PathStep::Index(index));
                compare(before, after, path, operations);
                path.pop();
            }
        }
        _ if before == after => {}
        _ => operations.push(json!({"op": "replace", "path": pointer(path), "value": after})),
    }
}

fn compare_maps(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    path: &mut Vec<PathStep>,
    operations: &mut Vec<Value>,
) {
    for (key, value) in before {
        path.push(PathStep::Key(key.clone()));
        match after.get(key) {
            Some(changed) => compare(value, changed, path, operations),
            None => operations.push(json!({"op": "remove", "path": pointer(path)})),
        }
        path.pop();
    }
    for (key, value) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
        path.push(PathStep::Key(key.clone()));
        operations.push(json!({"op": "add", "path": pointer(path), "value": value}));
        path.pop();
    }
}

fn pointer(path: &[PathStep]) -> String {
    FieldPath::from(path.to_vec()).to_pointer()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::difference;

    #[test]
    fn says_no_more_than_it_must() {
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
                    {"op": "remove", "path": "/metadata/annotations/d~1e"},
                    {"op": "add", "path": "/metadata/annotations/f~0~1", "value": "3"}
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
            assert_eq!(Value::Array(difference(&before, &after)), expected, "{case}");
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
            let operations: json_patch::Patch = serde_json::from_value(Value::Array(difference(&before, &after))).unwrap();
            json_patch::patch(&mut made, &operations).unwrap();
            prop_assert_eq!(made, after);
        }
    }
}
