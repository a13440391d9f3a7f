//! Properties that hold whatever clients send.

use palisade_apimachinery::apply::{self, FieldSet, Managed, Manager};
use palisade_apimachinery::patch::{self, PatchType};
use palisade_apimachinery::rest::{self, CreateContext, Extra};
use palisade_apimachinery::scheme::LATEST;
use palisade_apimachinery::selector::{FieldSelector, parse_labels};
use palisade_apimachinery::{FieldValidation, Kind};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const NOW: &str = "2026-01-02T03:04:05Z";

fn kind(group: &str, name: &str) -> &'static Kind {
    LATEST.by_kind(group, "v1", name).unwrap()
}

fn manager(name: &str) -> Manager<'_> {
    Manager { name, subresource: "", now: NOW }
}

/// A ConfigMap configuration that sets some of a few keys to one of two values, and labels likewise.
fn config() -> impl Strategy<Value = Value> {
    // Owning an empty map is a special case of its own: Go does not write it, so it comes back as added every time.
    let entries = || proptest::collection::btree_map("[abc]", "[xy]", 1..3);
    (entries(), entries()).prop_map(|(data, labels)| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n", "labels": labels},
               "data": data})
    })
}

fn stored(mut object: Value) -> Value {
    object["metadata"]["uid"] = "u".into();
    object["metadata"]["resourceVersion"] = "1".into();
    object
}

/// Paths two configurations both set, to different values.
fn disagreements(a: &Value, b: &Value) -> Vec<String> {
    let mut out = Vec::new();
    for (pointer, path) in [("/data", ".data"), ("/metadata/labels", ".metadata.labels")] {
        let (Some(a), Some(b)) = (a.pointer(pointer), b.pointer(pointer)) else { continue };
        for (key, value) in a.as_object().unwrap() {
            if b.get(key).is_some_and(|other| other != value) {
                out.push(format!("{path}.{key}"));
            }
        }
    }
    out.sort();
    out
}

/// Any JSON, small.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z$/]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let keys = prop_oneof![
            Just("spec".to_owned()),
            Just("containers".to_owned()),
            Just("metadata".to_owned()),
            Just("finalizers".to_owned()),
            Just("labels".to_owned()),
            Just("name".to_owned()),
            Just("env".to_owned()),
            Just("$patch".to_owned()),
            Just("$retainKeys".to_owned()),
            Just("$setElementOrder/containers".to_owned()),
            Just("$deleteFromPrimitiveList/finalizers".to_owned()),
            "[a-z]{1,4}".prop_map(String::from),
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((keys, inner), 0..4)
                .prop_map(|list| Value::Object(list.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "finalizers": ["a.b/c"]},
           "spec": {"containers": [{"name": "a", "image": "i", "env": [{"name": "X", "value": "1"}]},
                                   {"name": "b", "image": "i", "ports": [{"containerPort": 80}]}],
                    "tolerations": [{"key": "k", "operator": "Exists"}]}})
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_second_manager_conflicts_exactly_where_the_sets_overlap(first in config(), second in config()) {
        let kind = kind("", "ConfigMap");
        let live = stored(apply::apply(kind, None, &first, &manager("one"), false).unwrap());
        let expected = disagreements(&second, &first);
        match apply::apply(kind, Some(&live), &second, &manager("two"), false) {
            Ok(object) => {
                prop_assert!(expected.is_empty(), "{expected:?} should conflict");
                // Nothing of the first manager is lost.
                for (key, value) in first["data"].as_object().unwrap() {
                    prop_assert_eq!(&object["data"][key], value);
                }
            }
            Err(status) => {
                let mut found: Vec<String> =
                    status.details.unwrap().causes.into_iter().map(|c| c.field).collect();
                found.sort();
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn force_takes_fields_over_and_no_field_has_two_values(first in config(), second in config()) {
        let kind = kind("", "ConfigMap");
        let live = stored(apply::apply(kind, None, &first, &manager("one"), false).unwrap());
        let object = apply::apply(kind, Some(&live), &second, &manager("two"), true).unwrap();
        for (key, value) in second["data"].as_object().unwrap() {
            prop_assert_eq!(&object["data"][key], value);
        }
        let managed = Managed::decode(&object).unwrap();
        let disputed = disagreements(&second, &first);
        for entry in managed.entries.iter().filter(|e| e.manager == "one") {
            entry.set.for_each(&mut |path| {
                let text = apply::path_text(path);
                assert!(!disputed.contains(&text), "{text} still belongs to the first");
            });
        }
    }

    #[test]
    fn applying_again_changes_nothing(config in config()) {
        let kind = kind("", "ConfigMap");
        let live = stored(apply::apply(kind, None, &config, &manager("one"), false).unwrap());
        let later = Manager { name: "one", subresource: "", now: "2030-01-01T00:00:00Z" };
        let again = apply::apply(kind, Some(&live), &config, &later, false).unwrap();
        prop_assert_eq!(again, live);
    }

    #[test]
    fn giving_everything_up_removes_it(config in config()) {
        let kind = kind("", "ConfigMap");
        let live = stored(apply::apply(kind, None, &config, &manager("one"), false).unwrap());
        let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n"}});
        let object = apply::apply(kind, Some(&live), &nothing, &manager("one"), false).unwrap();
        prop_assert!(object.get("data").is_none() && object["metadata"].get("labels").is_none(), "{}", object);
    }

    #[test]
    fn patches_never_panic(body in any_json(), junk in ".{0,20}") {
        let kind = kind("", "Pod");
        for patch_type in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
            for text in [body.to_string(), junk.clone()] {
                let _ = patch::patch(kind, &pod(), patch_type, text.as_bytes(), FieldValidation::Strict);
            }
        }
        let _ = apply::apply(kind, Some(&stored(pod())), &body, &manager("x"), true);
        let _ = FieldSet::decode(&body);
        let _ = parse_labels(&junk);
        let _ = FieldSelector::parse(kind, &junk);
    }

    #[test]
    fn strategic_merge_is_idempotent(image in "[a-z]{1,5}", name in "[abc]", variable in "[XY]") {
        let kind = kind("", "Pod");
        let body = json!({"spec": {"containers": [{"name": name, "image": image,
                          "env": [{"name": variable, "value": "9"}]}]}}).to_string();
        let once = patch::patch(kind, &pod(), PatchType::Strategic, body.as_bytes(), FieldValidation::Warn).unwrap();
        let twice =
            patch::patch(kind, &once.object, PatchType::Strategic, body.as_bytes(), FieldValidation::Warn).unwrap();
        prop_assert_eq!(once.object, twice.object);
    }

    #[test]
    fn writes_never_panic(spec in any_json(), metadata in any_json()) {
        for kind in LATEST.kinds() {
            let object = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "spec": spec,
                                "rules": spec, "subjects": spec, "webhooks": spec, "template": spec});
            let Ok(decoded) = kind.decode(object.to_string().as_bytes(), FieldValidation::Ignore) else { continue };
            let mut object = decoded.object;
            kind.default(&mut object).expect("defaults");
            apply::on_update(kind, None, &mut object, &manager("m"));
            let context = CreateContext { namespace: "n", now: NOW, uid: "u", suffix: "bcdfg" };
            let _ = rest::before_create(kind, &mut object, &context, &Extra::default());
            let old = stored(object.clone());
            for subresource in ["", "status"] {
                let _ = rest::before_update(kind, &mut object.clone(), &old, subresource, &Extra::default());
            }
            let _ = palisade_apimachinery::table::table(kind, &[object], 0);
        }
    }
}
