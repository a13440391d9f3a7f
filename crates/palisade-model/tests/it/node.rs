//! What kubelets of every release make of profiles.

use palisade_base::version::KubeVersion;
use palisade_model::{
    compat::Compat,
    node::{
        ImageUser, join_clean, masked_paths, non_root_violation, readonly_paths, resolve_app_armor,
        resolve_seccomp,
    },
    prepare::Prepared,
};

use crate::pod;

fn kubelet(version: &str) -> Compat {
    let kubelet = match version {
        "designs" => KubeVersion::Designs,
        version => version.parse().unwrap(),
    };
    Compat { kubelet, ..Compat::designs() }
}

fn seccomp(json: &str, compat: &Compat) -> String {
    let pod = Prepared::stored(pod(json), compat);
    let container = pod.view().container("c").unwrap();
    let resolved = resolve_seccomp(&pod, &container, compat);
    let profile = match resolved.profile {
        Ok(profile) => profile.to_string(),
        Err(error) => format!("error: {error}"),
    };
    match resolved.ignored {
        Some(path) => format!("{profile} <- {}; ignored {path}", resolved.source),
        None => format!("{profile} <- {}", resolved.source),
    }
}

const EVERYTHING: &str = r#"{"metadata":{"annotations":{
    "container.seccomp.security.alpha.kubernetes.io/c":"localhost/ca.json",
    "seccomp.security.alpha.kubernetes.io/pod":"localhost/pa.json"}},
    "spec":{"securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"pf.json"}},
    "containers":[{"name":"c","securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"cf.json"}}}]}}"#;

#[test]
fn the_nearest_setting_that_the_release_reads_wins() {
    let without_container_field = EVERYTHING.replace(
        r#","securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"cf.json"}}}]"#,
        "}]",
    );
    let annotations_only = r#"{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"runtime/default"}},
        "spec":{"containers":[{"name":"c"}]}}"#;
    let cf = "spec.containers[0].securityContext.seccompProfile";
    let ca = "metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]";
    let pf = "spec.securityContext.seccompProfile";
    let pa = "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]";
    for (version, manifest, expected) in [
        ("v1.18", EVERYTHING, format!("Localhost ca.json <- {ca}")),
        ("v1.19", EVERYTHING, format!("Localhost cf.json <- {cf}")),
        ("v1.19", &without_container_field, format!("Localhost ca.json <- {ca}")),
        ("v1.20", &without_container_field, format!("Localhost pf.json <- {pf}; ignored {ca}")),
        ("v1.37", &without_container_field, format!("Localhost pf.json <- {pf}; ignored {ca}")),
        ("designs", &without_container_field, format!("Localhost pf.json <- {pf}; ignored {ca}")),
        ("v1.18", annotations_only, format!("RuntimeDefault <- {pa}")),
        // What annotations decide was decided when the pod was created; what is written later is ignored.
        (
            "designs",
            annotations_only,
            format!("Unconfined <- nothing set: a kubelet leaves the container unconfined; ignored {pa}"),
        ),
        (
            "v1.27",
            annotations_only,
            format!("Unconfined <- nothing set: a kubelet leaves the container unconfined; ignored {pa}"),
        ),
    ] {
        assert_eq!(seccomp(manifest, &kubelet(version)), expected, "{version}");
    }
}

#[test]
fn an_empty_localhost_profile_is_refused_since_the_fix_of_cve_2023_2431() {
    let manifest = r#"{"spec":{"containers":[{"name":"c","securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":""}}}]}}"#;
    let path = "spec.containers[0].securityContext.seccompProfile";
    for (version, refused) in [
        ("v1.20", false),
        ("v1.24.13", false),
        ("v1.24.14", true),
        ("v1.25.9", false),
        ("v1.25.10", true),
        ("v1.26.4", false),
        ("v1.26.5", true),
        ("v1.27.1", false),
        ("v1.27.2", true),
        ("v1.28.0", true),
        ("v1.37", true),
        ("designs", true),
    ] {
        let expected = if refused {
            format!("error: localhostProfile must be set if seccompProfile type is Localhost. <- {path}")
        } else {
            format!("Unconfined <- {path}")
        };
        assert_eq!(seccomp(manifest, &kubelet(version)), expected, "{version}");
    }
}

#[test]
fn seccomp_default_fills_only_unset_profiles() {
    let compat = Compat { seccomp_default: true, ..kubelet("v1.27") };
    let silent = r#"{"spec":{"containers":[{"name":"c"}]}}"#;
    let unconfined = r#"{"spec":{"securityContext":{"seccompProfile":{"type":"Unconfined"}},"containers":[{"name":"c"}]}}"#;
    assert_eq!(seccomp(silent, &compat), "RuntimeDefault <- the kubelet runs with --seccomp-default");
    assert_eq!(seccomp(unconfined, &compat), "Unconfined <- spec.securityContext.seccompProfile");
    let old = Compat { seccomp_default: true, ..kubelet("v1.21") };
    assert!(seccomp(silent, &old).starts_with("Unconfined"));
}

#[test]
fn a_kubelet_without_config_map_profiles_reports_it() {
    let field = r#"{"spec":{"securityContext":{"seccompProfile":{"type":"ConfigMap","configMapProfile":"web/block.json"}},"containers":[{"name":"c"}]}}"#;
    let annotation = r#"{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"configmap/web/block.json"}},"spec":{"containers":[{"name":"c"}]}}"#;
    for (version, manifest) in [("designs", field), ("v1.37", field), ("v1.18", annotation)] {
        let text = seccomp(manifest, &kubelet(version));
        assert!(
            text.starts_with("error: unknown seccomp profile option: configmap/web <-"),
            "{version}: {text}"
        );
    }
    let mut on = kubelet("designs");
    on.gates.seccomp_config_maps = true;
    assert_eq!(seccomp(field, &on), "ConfigMap web/block.json <- spec.securityContext.seccompProfile");
}

#[test]
fn app_armor_follows_field_annotation_pod() {
    let manifest = |annotation: &str, container: &str, of_pod: &str| {
        format!(
            r#"{{"metadata":{{"annotations":{{{annotation}}}}},"spec":{{"securityContext":{{{of_pod}}},
            "containers":[{{"name":"c","securityContext":{{{container}}}}}]}}}}"#
        )
    };
    let a = r#""container.apparmor.security.beta.kubernetes.io/c":"localhost/a""#;
    let empty = r#""container.apparmor.security.beta.kubernetes.io/c":"""#;
    let f = r#""appArmorProfile":{"type":"Unconfined"}"#;
    let p = r#""appArmorProfile":{"type":"RuntimeDefault"}"#;
    for (version, text, expected) in [
        ("v1.29", manifest(a, f, p), "Localhost a"),
        ("v1.29", manifest("", f, p), "runtime"),
        ("v1.30", manifest(a, f, p), "Unconfined"),
        ("v1.30", manifest(a, "", p), "Localhost a"),
        ("v1.37", manifest("", "", p), "RuntimeDefault"),
        ("v1.37", manifest(empty, "", ""), "runtime"),
        ("designs", manifest(empty, "", ""), "runtime"),
        ("designs", manifest(a, "", p), "RuntimeDefault"),
        ("designs", manifest(a, f, p), "Unconfined"),
        (
            "v1.37",
            manifest("", r#""appArmorProfile":{"type":"Localhost"}"#, ""),
            "missing localhost apparmor profile name",
        ),
        (
            "v1.37",
            manifest("", r#""appArmorProfile":{"type":"X"}"#, ""),
            "unknown apparmor profile type: \"X\"",
        ),
    ] {
        let pod = Prepared::stored(pod(&text), &kubelet(version));
        let container = pod.view().container("c").unwrap();
        let found = match resolve_app_armor(&pod, &container, &kubelet(version)).profile {
            None => "runtime".to_owned(),
            Some(Ok(profile)) => profile.to_string(),
            Some(Err(error)) => error.to_string(),
        };
        assert_eq!(found, expected, "{version} {text}");
    }
}

#[test]
fn paths_are_joined_as_the_kubelet_joins_them() {
    for (path, expected) in [
        ("a.json", "/var/lib/kubelet/seccomp/a.json"),
        ("a//./b.json", "/var/lib/kubelet/seccomp/a/b.json"),
        ("../../x", "/var/lib/x"),
        ("../../../../../../x", "/x"),
    ] {
        assert_eq!(join_clean("/var/lib/kubelet/seccomp", path), expected, "{path}");
    }
}

#[test]
fn masked_paths_grew_over_time() {
    let count = |version: &str| {
        let kubelet = kubelet(version).kubelet;
        (masked_paths(kubelet).len(), readonly_paths(kubelet).len())
    };
    assert_eq!(count("v1.26"), (9, 6));
    assert_eq!(count("v1.27"), (10, 5));
    assert_eq!(count("v1.31"), (11, 5));
    assert_eq!(count("v1.34"), (12, 5));
}

#[test]
fn root_is_refused_where_it_must_not_run() {
    let uid = ImageUser::Uid;
    let suffix = " (pod: \"p_ns(u)\", container: c)";
    for (version, non_root, user, image, expected) in [
        ("v1.31", false, Some(0), uid(0), None),
        ("v1.31", true, Some(7), uid(0), None),
        ("v1.31", true, None, uid(7), None),
        (
            "v1.31",
            true,
            Some(0),
            uid(7),
            Some(format!("container's runAsUser breaks non-root policy{suffix}")),
        ),
        ("v1.19", true, Some(0), uid(7), Some("container's runAsUser breaks non-root policy".to_owned())),
        (
            "v1.31",
            true,
            None,
            uid(0),
            Some(format!("container has runAsNonRoot and image will run as root{suffix}")),
        ),
        (
            "v1.31",
            true,
            None,
            ImageUser::Name("www".to_owned()),
            Some(format!(
                "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root{suffix}"
            )),
        ),
        ("v1.33", true, None, uid(-1), None),
        (
            "v1.34",
            true,
            None,
            uid(-1),
            Some(format!(
                "container has runAsNonRoot and image has an invalid user id (-1). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive{suffix}"
            )),
        ),
    ] {
        let found = non_root_violation(non_root, user, &image, "p_ns(u)", "c", kubelet(version).kubelet);
        assert_eq!(found, expected, "{version} {user:?} {image:?}");
    }
}
