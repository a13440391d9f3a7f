//! Remedies applied to the object make it pass, unless there is no automatic fix.

use palisade_base::field_path::{FieldPath, PathStep};
use palisade_model::{
    compat::Compat,
    prepare::{Prepared, Subject},
    validation::validate_create,
};
use palisade_policy::standards::{
    evaluator::Evaluator,
    finding::{Edit, Remedy},
    level::{Level, LevelVersion, Version},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::pod;

/// Applies edits to JSON; removals from the back so that indices stay right.
fn apply(object: &mut Value, edits: &[Edit]) {
    let mut removals = Vec::new();
    for edit in edits {
        match edit {
            Edit::Set(path, value) => *place(object, path) = value.clone(),
            Edit::Append(path, value) => place(object, path).as_array_mut().unwrap().push(value.clone()),
            Edit::Remove(path) => removals.push(path.clone()),
        }
    }
    removals.sort();
    removals.dedup();
    for path in removals.iter().rev() {
        let parent = place(object, &path.parent().unwrap());
        match path.steps().last().unwrap() {
            PathStep::Index(index) => {
                parent.as_array_mut().unwrap().remove(*index);
            }
            step => {
                parent.as_object_mut().unwrap().remove(name(step));
            }
        }
    }
}

fn name(step: &PathStep) -> &str {
    match step {
        PathStep::Field(name) => name,
        PathStep::Key(key) => key,
        PathStep::Index(_) => unreachable!(),
    }
}

fn place<'v>(object: &'v mut Value, path: &FieldPath) -> &'v mut Value {
    path.steps().iter().fold(object, |here, step| match step {
        PathStep::Index(index) => &mut here[*index],
        step => {
            if here.is_null() {
                *here = Value::Object(Map::new());
            }
            here.as_object_mut().unwrap().entry(name(step)).or_insert(Value::Null)
        }
    })
}

/// Judges, applies every remedy, and judges again until nothing changes; true if it ends allowed.
fn fix(object: &mut Value, policy: LevelVersion) -> (bool, bool) {
    let evaluator = Evaluator::default();
    let mut manual = false;
    for _ in 0..4 {
        let text = object.to_string();
        let pod = Prepared::new(pod(&text), Subject::Pod, &Compat::kubernetes(37));
        let outcome = evaluator.evaluate(policy, &pod);
        if outcome.allowed() {
            return (true, manual);
        }
        let mut edits = Vec::new();
        for finding in outcome.violations.into_iter().flat_map(|violation| violation.findings) {
            match finding.remedy {
                Remedy::Edits(own) => edits.extend(own),
                Remedy::Manual(_) => manual = true,
            }
        }
        apply(object, &edits);
    }
    (false, manual)
}

/// What an API server refuses in the pod.
fn problems(object: &Value) -> Vec<String> {
    let text = object.to_string();
    let fixed = Prepared::new(pod(&text), Subject::Pod, &Compat::kubernetes(37));
    validate_create(&fixed).iter().map(ToString::to_string).collect()
}

fn context() -> impl Strategy<Value = Value> {
    let flag = || prop_oneof![Just(Value::Null), Just(json!(true)), Just(json!(false))];
    let user = prop_oneof![Just(Value::Null), Just(json!(0)), Just(json!(7))];
    let seccomp = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!({"type": "Unconfined", "localhostProfile": "x"})),
        Just(json!({"type": "RuntimeDefault"})),
        Just(json!({"type": "Localhost", "localhostProfile": "x"})),
    ];
    let names = || {
        prop::collection::vec(
            prop_oneof![Just("ALL"), Just("CHOWN"), Just("NET_BIND_SERVICE"), Just("SYS_ADMIN")],
            0..3,
        )
    };
    let se_linux = prop_oneof![
        Just(Value::Null),
        Just(json!({"user": "u", "type": "spc_t", "level": "s0"})),
        Just(json!({"role": "r"}))
    ];
    (flag(), flag(), flag(), user, seccomp, names(), names(), se_linux).prop_map(
        |(privileged, escalation, non_root, user, seccomp, add, drop, se_linux)| {
            json!({"privileged": privileged, "allowPrivilegeEscalation": escalation, "runAsNonRoot": non_root, "runAsUser": user,
                "seccompProfile": seccomp, "capabilities": {"add": add, "drop": drop}, "seLinuxOptions": se_linux,
                "appArmorProfile": {"type": "Unconfined"}, "procMount": "Default"})
        },
    )
}

proptest! {
    #[test]
    fn fixed_pods_pass_and_are_valid(
        contexts in prop::collection::vec(prop_oneof![Just(Value::Null), context()], 1..4),
        of_pod in prop_oneof![Just(Value::Null), context()],
        annotation in prop_oneof![Just(None), Just(Some("unconfined")), Just(Some("runtime/default")), Just(Some("localhost/a.json"))],
        minor in 0_u64..=37,
        baseline in any::<bool>(),
    ) {
        let mut of_pod = of_pod;
        if let Some(fields) = of_pod.as_object_mut() {
            for only_of_containers in ["privileged", "allowPrivilegeEscalation", "capabilities", "procMount"] {
                fields.remove(only_of_containers);
            }
        }
        let containers: Vec<Value> = contexts
            .iter()
            .enumerate()
            .map(|(index, context)| json!({"name": format!("c{index}"), "image": "i", "securityContext": context, "ports": [{"containerPort": 80, "hostPort": 80 + index}]}))
            .collect();
        let mut object = json!({"metadata": {"name": "p"}, "spec": {"securityContext": of_pod, "containers": containers}});
        if let Some(value) = annotation {
            object["metadata"]["annotations"] = json!({"container.seccomp.security.alpha.kubernetes.io/c0": value});
        }
        let before = problems(&object);
        let level = if baseline { Level::Baseline } else { Level::Restricted };
        let policy = LevelVersion::new(level, Version::v1(minor));
        let (allowed, manual) = fix(&mut object, policy);
        prop_assert!(allowed && !manual, "{policy}: {object}");
        let again = object.clone();
        fix(&mut object, policy);
        prop_assert_eq!(&object, &again, "fixing twice changes nothing");
        // Versions from v1.23 on require nothing that an API server refuses: a valid pod stays valid.
        if level == Level::Restricted && minor >= 23 && before.is_empty() {
            let problems = problems(&object);
            prop_assert!(problems.is_empty(), "{problems:?} {object}");
        }
    }
}
