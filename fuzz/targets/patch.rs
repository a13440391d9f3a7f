#![no_main]
//! Any bytes as a patch of any type: the patched object can be defaulted, prepared and stored, or there is an error.

use libfuzzer_sys::fuzz_target;
use palisade_apimachinery::{
    FieldValidation,
    apply::{self, Manager},
    patch::{self, PatchType},
    rest::{self, Extra},
    scheme::LATEST,
};
use serde_json::{Value, json};

fn live() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1",
        "labels": {"a": "b"}, "finalizers": ["x/y"]},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": "v"}], "ports": [{"containerPort": 80, "protocol": "TCP"}]},
            {"name": "d", "image": "i"}], "tolerations": [{"key": "k", "operator": "Exists"}], "volumes": [{"name": "v", "emptyDir": {}}]}})
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, body)) = bytes.split_first() else { return };
    let patch_type = [PatchType::Json, PatchType::Merge, PatchType::Strategic][usize::from(first % 3)];
    let Some(kind) = LATEST.by_kind("", "v1", "Pod") else { return };
    let mut live = live();
    if kind.default(&mut live).is_err() {
        return;
    }
    let Ok(patched) = patch::patch(kind, &live, patch_type, body, FieldValidation::Strict) else { return };
    let mut object = patched.object;
    if kind.default(&mut object).is_err() {
        return;
    }
    let manager = Manager { name: "fuzz", subresource: "", now: "2026-01-02T03:04:05Z" };
    apply::on_update(kind, Some(&live), &mut object, &manager);
    let _ = rest::before_update(kind, &mut object, &live, "", &Extra::default());
});
