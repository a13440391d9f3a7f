#![no_main]
//! Any JSON as a configuration: applying it twice changes nothing, and another manager may apply the same without conflict.

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
    assert!(apply::apply(kind, Some(&made), &config, &manager("b"), false).is_ok(), "applying the same is no conflict");
});
