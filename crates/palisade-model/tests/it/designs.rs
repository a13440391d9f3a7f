//! The designs' own behaviour, where it differs from what was shipped.

use palisade_base::field_error::aggregate;
use palisade_model::{
    compat::{Compat, FeatureGates},
    effective::effective_contexts,
    lower::{Lowering, lower},
    pod_view::PodView,
    prepare::{Prepared, Subject},
    validation::{validate_create, validate_update},
    warnings::warnings,
};
use serde_json::{Value, json};

use crate::pod;

/// Prepares, syncs and validates a pod; the security part of what would be stored, or the problems.
fn create(json: &Value, compat: &Compat) -> Result<Value, String> {
    let text = json.to_string();
    let typed = Prepared::new(pod(&text), Subject::Pod, compat);
    let mut stored = json.clone();
    typed.changes().iter().for_each(|change| change.apply(&mut stored));
    let problems = validate_create(&typed);
    if problems.is_empty() { Ok(stored) } else { Err(aggregate(&problems)) }
}

fn with_config_maps() -> Compat {
    Compat {
        gates: FeatureGates { seccomp_config_maps: true, ..FeatureGates::default() },
        ..Compat::designs()
    }
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

fn with_artifacts() -> Compat {
    let gates = FeatureGates { security_profile_oci_artifact: true, ..FeatureGates::default() };
    Compat { gates, ..Compat::designs() }
}

fn artifact(repository: &str) -> String {
    format!("{repository}@sha256:{}", "0123456789abcdef".repeat(4))
}

#[test]
fn profiles_from_registries_live_behind_their_gate() {
    let reference = artifact("registry.example.com/team/web");
    let profile = json!({"type": "OCI", "oci": {"reference": reference}});
    let field =
        json!({"spec": {"containers": [{"name": "c", "securityContext": {"seccompProfile": profile}}]}});
    let annotation = json!({"metadata": {"annotations":
        {"seccomp.security.alpha.kubernetes.io/pod": format!("oci://{reference}")}}, "spec": {"containers": [{"name": "c"}]}});
    let both = Compat {
        gates: FeatureGates { seccomp_config_maps: true, ..with_artifacts().gates },
        ..with_artifacts()
    };
    for (compat, types) in [
        (Compat::designs(), "\"Localhost\", \"RuntimeDefault\", \"Unconfined\""),
        (with_config_maps(), "\"ConfigMap\", \"Localhost\", \"RuntimeDefault\", \"Unconfined\""),
        // No release has it, whatever the gate is.
        (
            Compat { gates: both.gates, ..Compat::kubernetes(37) },
            "\"Localhost\", \"RuntimeDefault\", \"Unconfined\"",
        ),
    ] {
        let text = format!(
            "spec.containers[0].securityContext.seccompProfile.type: Unsupported value: \"OCI\": supported values: {types}"
        );
        assert_eq!(create(&field, &compat).unwrap_err(), text);
        let refused = create(&annotation, &compat).unwrap_err();
        assert!(refused.ends_with("must be a valid seccomp profile"), "{refused}");
    }
    for compat in [with_artifacts(), both] {
        let stored = create(&field, &compat).unwrap();
        let key = "container.seccomp.security.alpha.kubernetes.io/c";
        assert_eq!(stored["metadata"]["annotations"], json!({key: format!("oci://{reference}")}));
        let stored = create(&annotation, &compat).unwrap();
        assert_eq!(stored["spec"]["securityContext"]["seccompProfile"], profile);
    }
}

#[test]
fn references_to_registries_are_validated() {
    let create = |profile: Value| {
        create(&json!({"spec": {"securityContext": {"seccompProfile": profile}}}), &with_artifacts())
    };
    let path = "spec.securityContext.seccompProfile";
    let good = artifact("registry.example.com/team/web");
    let tagged = format!("registry.example.com/team/web:v1@{}", good.split_once('@').unwrap().1);
    let pinned = "<registry>/<repository>@sha256:<digest>";
    let base = |base: Value| json!({"type": "OCI", "oci": {"reference": good, "baseProfile": base}});
    for (profile, expected) in [
        (json!({"type": "OCI"}), format!("{path}.oci: Required value: must be set when seccomp type is OCI")),
        (
            json!({"type": "OCI", "oci": {}}),
            format!("{path}.oci.reference: Required value: must name an artifact by its digest"),
        ),
        (
            json!({"type": "OCI", "oci": {"reference": "registry.example.com/team/web:latest"}}),
            format!(
                "{path}.oci.reference: Invalid value: \"registry.example.com/team/web:latest\": must be pinned by digest, not by tag: {pinned}"
            ),
        ),
        (
            json!({"type": "OCI", "oci": {"reference": tagged}}),
            format!(
                "{path}.oci.reference: Invalid value: \"{tagged}\": must be pinned by digest, not by tag: {pinned}"
            ),
        ),
        (
            json!({"type": "OCI", "oci": {"reference": "registry.example.com/team/web"}}),
            format!(
                "{path}.oci.reference: Invalid value: \"registry.example.com/team/web\": must be pinned by digest: {pinned}"
            ),
        ),
        (
            json!({"type": "RuntimeDefault", "oci": {"reference": good}}),
            format!(
                "{path}.oci.reference: Invalid value: \"{good}\": can only be set when seccomp type is OCI"
            ),
        ),
        (base(json!({})), format!("{path}.oci.baseProfile.type: Required value: must be set")),
        (
            base(json!({"type": "Unconfined"})),
            format!(
                "{path}.oci.baseProfile.type: Unsupported value: \"Unconfined\": supported values: \"Localhost\", \"RuntimeDefault\""
            ),
        ),
        (
            base(json!({"type": "Localhost"})),
            format!(
                "{path}.oci.baseProfile.localhostProfile: Required value: must be set when the base profile's type is Localhost"
            ),
        ),
        (
            base(json!({"type": "Localhost", "localhostProfile": "../x"})),
            format!(
                "{path}.oci.baseProfile.localhostProfile: Invalid value: \"../x\": must not contain '..'"
            ),
        ),
        (
            base(json!({"type": "Localhost", "localhostProfile": "palisade/x.json"})),
            format!(
                "{path}.oci.baseProfile.localhostProfile: Invalid value: \"palisade/x.json\": must not be in the folder of published profiles"
            ),
        ),
        (
            base(json!({"type": "RuntimeDefault", "localhostProfile": "x"})),
            format!(
                "{path}.oci.baseProfile.localhostProfile: Invalid value: \"x\": can only be set when the base profile's type is Localhost"
            ),
        ),
    ] {
        assert_eq!(create(profile.clone()).unwrap_err(), expected, "{profile}");
    }
    for (profile, annotation) in [
        (json!({"type": "OCI", "oci": {"reference": good}}), format!("oci://{good}")),
        (base(json!({"type": "RuntimeDefault"})), format!("oci://{good},runtime/default")),
        (
            base(json!({"type": "Localhost", "localhostProfile": "team/base.json"})),
            format!("oci://{good},localhost/team/base.json"),
        ),
    ] {
        let stored = create(profile).unwrap();
        let key = "seccomp.security.alpha.kubernetes.io/pod";
        assert_eq!(stored["metadata"]["annotations"], json!({key: annotation}));
    }
}

#[test]
fn a_base_profile_is_not_lost_to_an_annotation_without_it() {
    let good = artifact("registry.example.com/team/web");
    let with_base =
        json!({"type": "OCI", "oci": {"reference": good, "baseProfile": {"type": "RuntimeDefault"}}});
    for (annotation, expected) in [
        (format!("oci://{good},runtime/default"), None),
        (
            format!("oci://{good}"),
            Some(
                "spec.securityContext.seccompProfile.oci: Forbidden: seccomp profile in annotation and field must match",
            ),
        ),
        (
            "runtime/default".to_owned(),
            Some(
                "spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match",
            ),
        ),
    ] {
        let pod = json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": annotation}},
            "spec": {"securityContext": {"seccompProfile": with_base}}});
        assert_eq!(create(&pod, &with_artifacts()).err().as_deref(), expected, "{annotation}");
    }
}

#[test]
fn a_privileged_container_has_no_profile_from_a_registry() {
    let oci = json!({"type": "OCI", "oci": {"reference": artifact("registry.example.com/team/web")}});
    let pod = |of_pod: &Value, context: Value| json!({"spec": {"securityContext": {"seccompProfile": of_pod}, "containers": [{"name": "c", "securityContext": context}]}});
    let default = json!({"type": "RuntimeDefault"});
    for (of_pod, context, allowed) in [
        (&oci, json!({"privileged": true}), false),
        (&default, json!({"privileged": true, "seccompProfile": oci}), false),
        (&oci, json!({"privileged": true, "seccompProfile": default}), true),
        (&oci, json!({"privileged": false}), true),
    ] {
        let found = create(&pod(of_pod, context.clone()), &with_artifacts());
        assert_eq!(found.is_ok(), allowed, "{context}: {found:?}");
    }
}

#[test]
fn a_node_without_the_gate_reports_profiles_from_registries() {
    let reference = artifact("registry.example.com/team/web");
    let text = json!({"spec": {"securityContext": {"seccompProfile": {"type": "OCI", "oci": {"reference": reference}}},
        "containers": [{"name": "c"}]}})
    .to_string();
    let resolved = |compat: &Compat| {
        let prepared = Prepared::stored(pod(&text), compat);
        effective_contexts(&prepared)
            .remove(0)
            .seccomp
            .profile
            .map(|p| p.to_string())
            .map_err(|e| e.to_string())
    };
    assert_eq!(resolved(&with_artifacts()), Ok(format!("OCI {reference}")));
    assert_eq!(resolved(&Compat::designs()), Err("unknown seccomp profile option: OCI".to_owned()));
    // Kubelets of releases leave a container unconfined whose profile type they do not support.
    assert_eq!(resolved(&Compat::kubernetes(37)), Ok("Unconfined".to_owned()));
    let new = Prepared::changed(pod(&text), &pod(&text), Subject::Pod, &Compat::designs());
    let old = Prepared::stored(pod(&text), &Compat::designs());
    assert_eq!(validate_update(&new, &old, &[]), [], "a pod in use outlives the gate");
    assert_eq!(new.spec(), old.spec());
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
    let typed = pod(json);
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
}

#[test]
fn the_projection_is_stored_with_the_pod() {
    let json = json!({"spec": {"securityContext": {"hostNetwork": true, "containerDefaults":
        {"privileged": true, "seccompProfile": {"type": "RuntimeDefault"}, "windowsOptions": {"hostProcess": false}}},
        "containers": [{"name": "a", "ports": [{"containerPort": 80}]}, {"name": "b", "securityContext": {"privileged": false}}]}});
    let stored = create(&json, &Compat::designs()).unwrap();
    assert_eq!(
        stored,
        json!({"metadata": {"annotations": {"container.seccomp.security.alpha.kubernetes.io/a": "runtime/default",
                "container.seccomp.security.alpha.kubernetes.io/b": "runtime/default"}},
            "spec": {"hostNetwork": true, "securityContext": {"hostNetwork": true, "containerDefaults":
                {"privileged": true, "seccompProfile": {"type": "RuntimeDefault"}, "windowsOptions": {"hostProcess": false}}},
            "containers": [
                {"name": "a", "ports": [{"containerPort": 80, "hostPort": 80}], "securityContext":
                    {"privileged": true, "seccompProfile": {"type": "RuntimeDefault"}, "windowsOptions": {"hostProcess": false}}},
                {"name": "b", "securityContext":
                    {"privileged": false, "seccompProfile": {"type": "RuntimeDefault"}, "windowsOptions": {"hostProcess": false}}}]}})
    );
    // Preparing what is stored changes nothing more, whichever way it is read.
    let text = stored.to_string();
    assert_eq!(Prepared::new(pod(&text), Subject::Pod, &Compat::designs()).changes(), []);
    assert_eq!(Prepared::stored(pod(&text), &Compat::designs()).changes(), []);
}

#[test]
fn a_pod_that_was_stored_without_the_projection_can_still_be_changed() {
    let stored = r#"{"spec":{"securityContext":{"containerDefaults":{"privileged":true}},"containers":[{"name":"c"}]}}"#;
    let debugged = r#"{"spec":{"securityContext":{"containerDefaults":{"privileged":true}},"containers":[{"name":"c"}],
        "ephemeralContainers":[{"name":"d"}]}}"#;
    let same = Prepared::changed(pod(stored), &pod(stored), Subject::Pod, &Compat::designs());
    assert_eq!(same.changes(), []);
    let new = Prepared::changed(pod(debugged), &pod(stored), Subject::Pod, &Compat::designs());
    let written: Vec<String> = new.changes().iter().map(|change| change.at.to_string()).collect();
    assert_eq!(written, ["spec.ephemeralContainers[0].securityContext.privileged"]);
    // However it is stored, it is judged and run as what it means.
    for container in new.view().containers() {
        assert_eq!(container.security_context().unwrap().privileged, Some(true), "{}", container.name());
    }
}

#[test]
fn a_container_annotation_is_nearer_than_the_defaults_and_those_than_the_pods_annotation() {
    let json = json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "localhost/pod",
            "container.seccomp.security.alpha.kubernetes.io/a": "unconfined"}},
        "spec": {"securityContext": {"containerDefaults": {"seccompProfile": {"type": "RuntimeDefault"}}},
        "containers": [{"name": "a"}, {"name": "b"}]}});
    let stored = create(&json, &Compat::designs()).unwrap();
    let profile = |index: usize| {
        stored["spec"]["containers"][index]["securityContext"]["seccompProfile"]["type"].clone()
    };
    assert_eq!((profile(0), profile(1)), (json!("Unconfined"), json!("RuntimeDefault")));
}

#[test]
fn mistakes_in_container_defaults_are_rejected_once() {
    for (defaults, expected) in [
        (
            json!({"runAsUser": -5}),
            "runAsUser: Invalid value: -5: must be between 0 and 2147483647, inclusive",
        ),
        (
            json!({"procMount": "Bogus"}),
            "procMount: Unsupported value: \"Bogus\": supported values: \"Default\", \"Unmasked\"",
        ),
        (
            json!({"seccompProfile": {"type": "Bogus"}}),
            "seccompProfile.type: Unsupported value: \"Bogus\": supported values: \"Localhost\", \"RuntimeDefault\", \"Unconfined\"",
        ),
        (
            json!({"appArmorProfile": {"type": "Localhost"}}),
            "appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost",
        ),
        (
            json!({"runWithSupplementalGroups": [-1]}),
            "runWithSupplementalGroups[0]: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ),
    ] {
        let pod = json!({"spec": {"securityContext": {"containerDefaults": defaults}, "containers": [{"name": "a"}, {"name": "b"}]}});
        let error = create(&pod, &Compat::designs()).unwrap_err();
        assert_eq!(error, format!("spec.securityContext.containerDefaults.{expected}"), "{defaults}");
    }
    // What contradicts only a container's own setting is reported for that container.
    let pod = json!({"spec": {"securityContext": {"containerDefaults": {"privileged": true}},
        "containers": [{"name": "a"}, {"name": "b", "securityContext": {"allowPrivilegeEscalation": false}}]}});
    let error = create(&pod, &Compat::designs()).unwrap_err();
    assert!(error.starts_with("spec.containers[1].securityContext: Invalid value"), "{error}");
}

#[test]
fn host_fields_of_the_security_context_count_for_sysctls_and_user_namespaces() {
    let pod = json!({"spec": {"securityContext": {"hostNetwork": true, "sysctls": [{"name": "net.core.somaxconn", "value": "1"}]},
        "hostUsers": false, "containers": [{"name": "a"}]}});
    let error = create(&pod, &Compat::designs()).unwrap_err();
    assert!(error.contains("may not be specified when 'hostNetwork' is true"), "{error}");
    assert!(error.contains("spec.hostNetwork: Forbidden: when `hostUsers` is false"), "{error}");
}

#[test]
fn processes_are_shared_in_the_pod_or_with_the_node() {
    let both =
        json!({"spec": {"hostPID": true, "shareProcessNamespace": true, "containers": [{"name": "a"}]}});
    let detail = "Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled";
    for (compat, field) in [
        (Compat::designs(), "spec.shareProcessNamespace"),
        (Compat::kubernetes(37), "spec.shareProcessNamespace"),
        (Compat::kubernetes(36), "spec.securityContext.shareProcessNamespace"),
        (Compat::kubernetes(24), "spec.securityContext.shareProcessNamespace"),
    ] {
        assert_eq!(create(&both, &compat).unwrap_err(), format!("{field}: {detail}"));
    }
    let one =
        json!({"spec": {"hostPID": true, "shareProcessNamespace": false, "containers": [{"name": "a"}]}});
    assert!(create(&one, &Compat::designs()).is_ok());
}

#[test]
fn a_profile_in_use_outlives_its_gate() {
    let stored = r#"{"spec":{"securityContext":{"seccompProfile":{"type":"ConfigMap","configMapProfile":"a/b"}},"containers":[{"name":"c"}]}}"#;
    let off = Compat::designs();
    let new = Prepared::changed(pod(stored), &pod(stored), Subject::Pod, &off);
    let old = Prepared::stored(pod(stored), &off);
    assert_eq!(validate_update(&new, &old, &[]), []);
    assert_eq!(new.spec(), old.spec());
    // The node still refuses it: the gate is its own.
    let resolved = effective_contexts(&old).remove(0).seccomp.profile;
    assert_eq!(resolved.unwrap_err().to_string(), "unknown seccomp profile option: configmap/a");
    // A new pod still cannot use it, and neither can one that did not.
    assert_ne!(validate_create(&Prepared::new(pod(stored), Subject::Pod, &off)), []);
    let without = r#"{"spec":{"containers":[{"name":"c"}]}}"#;
    let new = Prepared::changed(pod(stored), &pod(without), Subject::Pod, &off);
    assert_ne!(validate_update(&new, &Prepared::stored(pod(without), &off), &[]), []);
}

#[test]
fn templates_are_left_alone_and_judged_as_the_pods_they_become() {
    let template = r#"{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined",
        "container.seccomp.security.alpha.kubernetes.io/c":"unconfined"}},
        "spec":{"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"},"seccompProfile":{"type":"RuntimeDefault"}},
        "containers":[{"name":"c"}]}}"#;
    let subject = Subject::Template(&["spec", "template"]);
    let read = Prepared::new(pod(template), subject, &Compat::designs());
    assert_eq!((validate_create(&read), read.changes()), (Vec::new(), &[][..]));
    let container = read.spec().containers[0].security_context.as_ref().unwrap();
    assert_eq!(container.seccomp_profile.as_ref().unwrap().kind, "Unconfined");
    assert_eq!(container.app_armor_profile.as_ref().unwrap().kind, "Unconfined");
    assert_eq!(
        warnings(&read),
        [
            "spec.template.metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: deprecated since v1.19, \
             support will be dropped in v1.23; use the \"seccompProfile\" field instead",
            "spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated, \
             support will be dropped in v1.30; use the \"appArmorProfile\" field instead"
        ]
    );
}
