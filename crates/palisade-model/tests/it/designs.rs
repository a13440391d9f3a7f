//! The designs' own behaviour, where it differs from what was shipped.

use palisade_model::{
    compat::{Compat, FeatureGates},
    lower::{Lowering, absorb, lower},
    pod_view::PodView,
    prepare::{Subject, prepare_for_create},
    problem::aggregate,
    sync::sync,
    validation::validate_create,
};
use serde_json::{Value, json};

use crate::pod;

/// Prepares, syncs and validates a pod; the security part of what would be stored, or the problems.
fn create(json: &Value, compat: &Compat) -> Result<Value, String> {
    let text = json.to_string();
    let mut typed = pod(&text);
    let mut stored = json.clone();
    let changes = prepare_for_create(&mut typed, Subject::Pod, compat)
        .into_iter()
        .chain(sync(&mut typed, compat).changes);
    changes.for_each(|change| change.apply(&mut stored));
    let problems = validate_create(&PodView::of_pod(&typed), compat);
    if problems.is_empty() { Ok(stored) } else { Err(aggregate(&problems)) }
}

fn with_config_maps() -> Compat {
    Compat { gates: FeatureGates { seccomp_config_maps: true, app_armor: true }, ..Compat::designs() }
}

#[test]
fn annotations_and_fields_are_synced_both_ways() {
    let pod = json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/a": ""}}, "spec": {
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "a"}, {"name": "b", "securityContext": {"appArmorProfile": {"type": "Unconfined"}}}]}});
    let stored = create(&pod, &Compat::designs()).unwrap();
    assert_eq!(
        stored["metadata"]["annotations"],
        json!({
            "seccomp.security.alpha.kubernetes.io/pod": "runtime/default",
            "container.apparmor.security.beta.kubernetes.io/a": "",
            "container.apparmor.security.beta.kubernetes.io/b": "unconfined",
        })
    );
    // The design gives the empty annotation a meaning.
    let context = &stored["spec"]["containers"][0]["securityContext"];
    assert_eq!(*context, json!({"appArmorProfile": {"type": "RuntimeDefault"}}));
}

#[test]
fn config_map_profiles_live_behind_their_gate() {
    let field = json!({"spec": {"containers": [{"name": "c", "securityContext":
        {"seccompProfile": {"type": "ConfigMap", "configMapProfile": "web/block.json"}}}]}});
    let annotation = json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "configmap/web/block.json"}},
        "spec": {"containers": [{"name": "c"}]}});
    assert_eq!(
        create(&field, &Compat::designs()).unwrap_err(),
        "spec.containers[0].securityContext.seccompProfile.type: Unsupported value: \"ConfigMap\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\""
    );
    assert_eq!(
        create(&annotation, &Compat::designs()).unwrap_err(),
        "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"configmap/web/block.json\": must be a valid seccomp profile"
    );
    let stored = create(&field, &with_config_maps()).unwrap();
    assert_eq!(
        stored["metadata"]["annotations"],
        json!({"container.seccomp.security.alpha.kubernetes.io/c": "configmap/web/block.json"})
    );
    let stored = create(&annotation, &with_config_maps()).unwrap();
    assert_eq!(
        stored["spec"]["securityContext"]["seccompProfile"],
        json!({"type": "ConfigMap", "configMapProfile": "web/block.json"})
    );
}

#[test]
fn config_map_references_are_validated() {
    let create = |profile: Value| {
        create(&json!({"spec": {"securityContext": {"seccompProfile": profile}}}), &with_config_maps())
    };
    let path = "spec.securityContext.seccompProfile";
    for (profile, expected) in [
        (
            json!({"type": "ConfigMap"}),
            format!("{path}.configMapProfile: Required value: must be set when seccomp type is ConfigMap"),
        ),
        (
            json!({"type": "ConfigMap", "configMapProfile": "../x"}),
            format!("{path}.configMapProfile: Invalid value: \"../x\": must be <ConfigMap name>/<key>"),
        ),
        (
            json!({"type": "RuntimeDefault", "configMapProfile": "a/b"}),
            format!(
                "{path}.configMapProfile: Invalid value: \"a/b\": can only be set when seccomp type is ConfigMap"
            ),
        ),
        (
            json!({"type": "Nope"}),
            format!(
                "{path}.type: Unsupported value: \"Nope\": supported values: \"ConfigMap\", \"Localhost\", \"RuntimeDefault\", \"Unconfined\""
            ),
        ),
    ] {
        assert_eq!(create(profile.clone()).unwrap_err(), expected, "{profile}");
    }
}

#[test]
fn a_reference_in_annotation_and_field_must_be_the_same() {
    let pod = json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "configmap/a/b"}},
        "spec": {"securityContext": {"seccompProfile": {"type": "ConfigMap", "configMapProfile": "a/c"}}}});
    assert_eq!(
        create(&pod, &with_config_maps()).unwrap_err(),
        "spec.securityContext.seccompProfile.configMapProfile: Forbidden: seccomp profile in annotation and field must match"
    );
}

#[test]
fn without_the_app_armor_gate_settings_are_cleared() {
    let compat =
        Compat { gates: FeatureGates { app_armor: false, ..FeatureGates::default() }, ..Compat::designs() };
    let pod = json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined", "x": "y"}},
        "spec": {"securityContext": {"appArmorProfile": {"type": "Unconfined"}},
        "containers": [{"name": "c", "securityContext": {"appArmorProfile": {"type": "Bad"}}}]}});
    let stored = create(&pod, &compat).unwrap();
    assert_eq!(
        stored,
        json!({"metadata": {"annotations": {"x": "y"}}, "spec": {"securityContext": {},
        "containers": [{"name": "c", "securityContext": {}}]}})
    );
}

#[test]
fn unsupported_runtime_profiles_are_refused_in_the_designs_words() {
    let pod = json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "runtime/default-audit"}},
        "spec": {"containers": [{"name": "c"}]}});
    assert_eq!(
        create(&pod, &Compat::designs()).unwrap_err(),
        "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Invalid value: \"runtime/default-audit\": must be a valid AppArmor profile"
    );
}

#[test]
fn the_proposal_is_lowered_to_v1_fields() {
    let json = r#"{"spec":{"securityContext":{"hostNetwork":true,"hostIPC":false,"runAsGroup":9,
        "containerDefaults":{"runAsUser":2,"runAsGroup":3,"privileged":true,"capabilities":{"drop":["ALL"]},"runWithSupplementalGroups":[6]}},
        "containers":[{"name":"a"},{"name":"b","securityContext":{"privileged":false,"runWithSupplementalGroups":[7]}}]}}"#;
    let mut typed = pod(json);
    let steps: Vec<String> = lower(&PodView::of_pod(&typed))
        .iter()
        .map(|step| match step {
            Lowering::Set(path, value) => format!("set {path} {value}"),
            Lowering::Remove(path) => format!("remove {path}"),
            Lowering::Impossible(path, _) => format!("impossible {path}"),
        })
        .collect();
    assert_eq!(
        steps,
        [
            "set spec.hostNetwork true",
            "remove spec.securityContext.hostNetwork",
            "remove spec.securityContext.hostIPC",
            "set spec.securityContext.runAsUser 2",
            "impossible spec.securityContext.runAsGroup",
            "set spec.securityContext.supplementalGroups [6]",
            "set spec.containers[0].securityContext.capabilities {\"drop\":[\"ALL\"]}",
            "set spec.containers[0].securityContext.privileged true",
            "set spec.containers[1].securityContext.capabilities {\"drop\":[\"ALL\"]}",
            "remove spec.securityContext.containerDefaults",
            "impossible spec.containers[1].securityContext.runWithSupplementalGroups",
        ]
    );
    absorb(&mut typed);
    assert_eq!(typed.spec.host_network, Some(true));
    assert_eq!(typed.spec.containers[0].security_context.as_ref().unwrap().privileged, Some(true));
    assert_eq!(typed.spec.containers[1].security_context.as_ref().unwrap().privileged, Some(false));
}
