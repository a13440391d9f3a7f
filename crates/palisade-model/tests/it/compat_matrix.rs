//! The decision table of the seccomp and AppArmor sync, for every release.

use palisade_base::field_error::aggregate;
use palisade_model::{
    compat::Compat,
    prepare::{Prepared, Subject},
    validation::validate_create,
    warnings::warnings,
};

use crate::pod;

/// What becomes of a pod: the changes made, the warnings given, the problems found.
fn outcome(json: &str, minor: u16) -> String {
    let compat = Compat::kubernetes(minor);
    let pod = Prepared::new(pod(json), Subject::Pod, &compat);
    let problems = validate_create(&pod);
    let mut parts: Vec<String> = pod
        .changes()
        .iter()
        .map(|change| format!("{} := {}", change.at, change.to.to_json().unwrap_or_default()))
        .collect();
    parts.extend(pod.warnings().iter().map(|warning| format!("warning {warning}")));
    if problems.is_empty() {
        parts.extend(warnings(&pod).iter().map(|warning| format!("warning {warning}")));
    } else {
        parts.push(format!("refused {}", aggregate(&problems)));
    }
    parts.join(" | ")
}

const SP: &str = "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]";

#[test]
fn seccomp_field_alone() {
    let json = r#"{"spec":{"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"c"}]}}"#;
    for minor in 19..=37 {
        let expected = if minor <= 24 { format!("{SP} := \"runtime/default\"") } else { String::new() };
        assert_eq!(outcome(json, minor), expected, "v1.{minor}");
    }
}

#[test]
fn seccomp_annotation_alone() {
    let json = r#"{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"docker/default"}},"spec":{"containers":[{"name":"c"}]}}"#;
    for minor in 19..=37 {
        let expected = if minor <= 26 {
            "spec.securityContext.seccompProfile := {\"type\":\"RuntimeDefault\"}".to_owned()
        } else {
            format!("warning {SP}: non-functional in v1.27+; use the \"seccompProfile\" field instead")
        };
        assert_eq!(outcome(json, minor), expected, "v1.{minor}");
    }
}

#[test]
fn seccomp_annotation_that_names_nothing() {
    let json = r#"{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"localhost/"}},"spec":{"containers":[{"name":"c"}]}}"#;
    for (minor, text) in [
        (19, ""),
        (21, ""),
        (22, "deprecated since v1.19; use"),
        (23, "deprecated since v1.19, non-functional in v1.25+; use"),
        (24, "deprecated since v1.19, non-functional in v1.25+; use"),
        (25, "deprecated since v1.19, non-functional in a future release; use"),
        (27, "non-functional in v1.27+; use"),
    ] {
        let expected = if text.is_empty() {
            String::new()
        } else {
            format!("warning {SP}: {text} the \"seccompProfile\" field instead")
        };
        assert_eq!(outcome(json, minor), expected, "v1.{minor}");
    }
}

#[test]
fn an_escaping_annotation_is_reported_at_its_place_and_at_its_copy() {
    let json = r#"{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"localhost/../x"}},"spec":{"containers":[{"name":"c"}]}}"#;
    let annotation = r#"metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: "../x": must not contain '..'"#;
    let field = r#"spec.securityContext.seccompProfile.localhostProfile: Invalid value: "../x": must not contain '..'"#;
    assert!(outcome(json, 26).ends_with(&format!("refused [{annotation}, {field}]")));
    assert_eq!(outcome(json, 27), format!("refused {annotation}"));
}

#[test]
fn app_armor_annotation_over_a_different_pod_field() {
    let json = r#"{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined"}},
        "spec":{"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"c"}]}}"#;
    let key = "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]";
    for minor in 19..=37 {
        let expected = if minor < 30 {
            String::new()
        } else {
            format!(
                "spec.containers[0].securityContext.appArmorProfile := {{\"type\":\"Unconfined\"}} | warning {key}: deprecated since v1.30; use the \"appArmorProfile\" field instead"
            )
        };
        assert_eq!(outcome(json, minor), expected, "v1.{minor}");
    }
}

#[test]
fn app_armor_pod_field_alone() {
    let json = r#"{"spec":{"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"a"},{"name":"b"}]}}"#;
    let key =
        |name: &str| format!("metadata.annotations[container.apparmor.security.beta.kubernetes.io/{name}]");
    for minor in 30..=37 {
        let expected = if minor <= 33 {
            format!("{} := \"runtime/default\" | {} := \"runtime/default\"", key("a"), key("b"))
        } else {
            String::new()
        };
        assert_eq!(outcome(json, minor), expected, "v1.{minor}");
    }
}

#[test]
fn refused_values_are_printed_in_go_before_v1_34_and_in_json_since() {
    let json = r#"{"spec":{"securityContext":{"seccompProfile":{"type":"Unconfined","localhostProfile":"p<q"}},
        "containers":[{"name":"c","securityContext":{"privileged":true,"allowPrivilegeEscalation":false}}]}}"#;
    let go = outcome(json, 33);
    assert!(
        go.contains(r#"core.SeccompProfile{Type:"Unconfined", LocalhostProfile:(*string)(0xPTR)}: can only"#),
        "{go}"
    );
    assert!(
        go.contains("core.SecurityContext{Capabilities:(*core.Capabilities)(nil), Privileged:(*bool)(0xPTR)"),
        "{go}"
    );
    let json = outcome(json, 34);
    assert!(json.contains(r#"{"Type":"Unconfined","LocalhostProfile":"p\u003cq"}: can only"#), "{json}");
    assert!(json.contains(r#"{"Capabilities":null,"Privileged":true,"SELinuxOptions":null,"#), "{json}");
}
