#![no_main]
//! Any JSON as a configuration: applying it twice changes nothing, another manager may apply the same, and without a conflict
//! if the object has every field of it. A field that is empty is left out of the object and stays owned: there Kubernetes reports a
//! conflict as well.

use libfuzzer_sys::fuzz_target;
use palisade_apimachinery::{
    apply::{self, Manager},
    scheme::LATEST,
};
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut config) = serde_json::from_slice::<Value>(bytes) else { return };
    let Some(fields) = config.as_object_mut() else { return };
    fields.insert("apiVersion".into(), "v1".into());
    fields.insert("kind".into(), "Pod".into());
    let Some(kind) = LATEST.by_kind("", "v1", "Pod") else { return };
    let manager = |name| Manager { name, subresource: "", now: "2026-01-02T03:04:05Z" };
    let Ok(made) = apply::apply(kind, None, &config, &manager("a"), false) else { return };
    let Ok(again) = apply::apply(kind, Some(&made), &config, &manager("a"), false) else {
        panic!("what was applied cannot be applied again");
    };
    assert_eq!(made.get("spec"), again.get("spec"), "applying twice changed the object");
    let Ok(forced) = apply::apply(kind, Some(&made), &config, &manager("b"), true) else {
        panic!("what was applied cannot be applied by another manager");
    };
    assert_eq!(made.get("spec"), forced.get("spec"), "applying the same changed the object");
    if contains(&made, &config) {
        let joined = apply::apply(kind, Some(&made), &config, &manager("b"), false);
        assert!(joined.is_ok(), "applying the same is no conflict");
    }
});

/// Whether an object has every field of a configuration.
fn contains(object: &Value, config: &Value) -> bool {
    match (object, config) {
        (Value::Object(object), Value::Object(config)) => {
            config.iter().all(|(key, value)| object.get(key).is_some_and(|found| contains(found, value)))
        }
        (Value::Array(object), Value::Array(config)) => {
            object.len() == config.len() && object.iter().zip(config).all(|(found, value)| contains(found, value))
        }
        (found, value) => found.is_number() && value.is_number() || found == value,
    }
}
