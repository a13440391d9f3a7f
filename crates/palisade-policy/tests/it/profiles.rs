//! Allowed and default profiles.

use palisade_model::{compat::Compat, metadata::StringMap, prepare::Prepared};
use palisade_policy::profiles::{
    pod_security_policy::ProfileStrategies,
    policy::{ProfilePolicy, config_map_baseline, tenant_baseline},
};
use serde_json::{Value, json};

use crate::pod;

fn policy(spec: Value) -> ProfilePolicy {
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

fn violations(policy: &ProfilePolicy, object: &Value) -> Vec<String> {
    let text = object.to_string();
    let pod = pod(&text);
    policy
        .violations(&Prepared::stored(pod, &Compat::designs()))
        .into_iter()
        .map(|v| v.at.to_string())
        .collect()
}

#[test]
fn annotations_and_fields_are_both_checked() {
    let policy =
        policy(json!({"seccomp": {"allowedProfiles": {"types": ["RuntimeDefault", "Localhost", "ConfigMap"],
        "localhostProfiles": ["operator/*", "a.json"], "configMaps": ["web-*"]}}}));
    let container = |profile: Value| json!({"spec": {"containers": [{"name": "c", "securityContext": {"seccompProfile": profile}}]}});
    let path = "spec.containers[0].securityContext.seccompProfile";
    for (profile, refused) in [
        (json!({"type": "RuntimeDefault"}), false),
        (json!({"type": "Unconfined"}), true),
        (json!({"type": "Localhost", "localhostProfile": "operator/x.json"}), false),
        (json!({"type": "Localhost", "localhostProfile": "a.json"}), false),
        (json!({"type": "Localhost", "localhostProfile": "b.json"}), true),
        (json!({"type": "Localhost", "localhostProfile": "operator/../b.json"}), true),
        (json!({"type": "Localhost", "localhostProfile": "operator/..x/b.json"}), false),
        (json!({"type": "ConfigMap", "configMapProfile": "web-1/k"}), false),
        (json!({"type": "ConfigMap", "configMapProfile": "db/k"}), true),
        (json!({"type": "Nonsense"}), true),
    ] {
        let expected: &[&str] = if refused { &[path] } else { &[] };
        assert_eq!(violations(&policy, &container(profile.clone())), expected, "{profile}");
    }
    // After an update annotation and field may differ, and which counts depends on the node.
    let diverged = json!({"metadata": {"annotations": {"container.seccomp.security.alpha.kubernetes.io/c": "unconfined"}},
        "spec": {"containers": [{"name": "c", "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}]}});
    assert_eq!(
        violations(&policy, &diverged),
        ["metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]"]
    );
    // An annotation confines nothing: it became the field when the pod was created, or it came later.
    for key in
        ["container.seccomp.security.alpha.kubernetes.io/c", "seccomp.security.alpha.kubernetes.io/pod"]
    {
        let annotated = json!({"metadata": {"annotations": {key: "runtime/default"}}, "spec": {"containers": [{"name": "c"}]}});
        assert_eq!(violations(&policy, &annotated), [path], "{key}");
    }
    // Ephemeral containers never get a field from an annotation.
    let debugger = json!({"metadata": {"annotations": {"container.seccomp.security.alpha.kubernetes.io/d": "runtime/default"}},
        "spec": {"containers": [{"name": "c", "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}],
            "ephemeralContainers": [{"name": "d"}]}});
    assert_eq!(
        violations(&policy, &debugger),
        ["spec.ephemeralContainers[0].securityContext.seccompProfile"]
    );
    // A container that names nothing runs unconfined, which is not in the set.
    assert_eq!(violations(&policy, &json!({"spec": {"containers": [{"name": "c"}]}})), [path]);
}

#[test]
fn an_unnamed_app_armor_profile_is_the_runtimes() {
    let strict = policy(
        json!({"appArmor": {"allowedProfiles": {"types": ["Localhost"], "localhostProfiles": ["*"]}}}),
    );
    let usual = policy(json!({"appArmor": {"allowedProfiles": {"types": ["RuntimeDefault"]}}}));
    let silent = json!({"spec": {"containers": [{"name": "c"}]}});
    assert_eq!(violations(&strict, &silent).len(), 1);
    assert_eq!(violations(&usual, &silent).len(), 0);
    // The annotation of a container is its profile where there is no field, and means nothing for an ephemeral container.
    let annotated = |list: &str| json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "localhost/p"}}, "spec": {list: [{"name": "c"}]}});
    assert_eq!(violations(&strict, &annotated("containers")).len(), 0);
    assert_eq!(violations(&strict, &annotated("ephemeralContainers")).len(), 1);
}

#[test]
fn only_the_pods_field_is_defaulted_and_only_where_a_container_needs_it() {
    let policy =
        policy(json!({"seccomp": {"defaultProfile": {"type": "Localhost", "localhostProfile": "d.json"}}}));
    let defaults = |object: Value| {
        let text = object.to_string();
        let pod = pod(&text);
        let changes = policy.defaults(&Prepared::stored(pod, &Compat::designs()));
        changes
            .iter()
            .map(|change| format!("{} {}", change.at, change.to.to_json().unwrap()))
            .collect::<Vec<_>>()
    };
    let expected =
        [r#"spec.securityContext.seccompProfile {"localhostProfile":"d.json","type":"Localhost"}"#];
    let own = json!({"name": "a", "securityContext": {"seccompProfile": {"type": "Unconfined"}}});
    assert_eq!(defaults(json!({"spec": {"containers": [{"name": "c"}]}})), expected);
    assert_eq!(defaults(json!({"spec": {"containers": [own, {"name": "c"}]}})), expected);
    assert!(defaults(json!({"spec": {"containers": [own]}})).is_empty());
    assert!(
        defaults(json!({"spec": {"securityContext": {"seccompProfile": {}}, "containers": [{"name": "c"}]}}))
            .is_empty()
    );
    let annotated = json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}}, "spec": {"containers": [{"name": "c"}]}});
    assert!(defaults(annotated).is_empty());
    assert!(defaults(json!({"spec": {"os": {"name": "windows"}, "containers": [{"name": "c"}]}})).is_empty());
}

#[test]
fn a_default_that_is_not_allowed_is_a_mistake() {
    let bad = policy(
        json!({"seccomp": {"defaultProfile": {"type": "Unconfined"}, "allowedProfiles": {"types": ["RuntimeDefault"]}}}),
    );
    assert_eq!(
        problems(&bad),
        [
            "spec.seccomp.defaultProfile: Invalid value: \"Unconfined\": must be allowed by allowedProfiles, which has RuntimeDefault"
        ]
    );
}

#[test]
fn profiles_from_registries_are_allowed_by_their_repository() {
    let allowing = |repositories: Value| {
        policy(json!({"seccomp": {"allowedProfiles": {"types": ["OCI"], "ociRepositories": repositories}}}))
    };
    let of = |repository: &str| {
        let reference = format!("{repository}@sha256:{}", "0".repeat(64));
        json!({"spec": {"containers": [{"name": "c", "securityContext": {"seccompProfile": {"type": "OCI", "oci": {"reference": reference}}}}]}})
    };
    for (patterns, repository, allowed) in [
        (json!(["registry.example.com/team/web"]), "registry.example.com/team/web", true),
        (json!(["registry.example.com/team/web"]), "registry.example.com/team/web2", false),
        (json!(["registry.example.com/team/web"]), "registry.example.com:5000/team/web", false),
        (json!(["registry.example.com/team/*"]), "registry.example.com/team/web", true),
        (json!(["registry.example.com/team/*"]), "registry.example.com/teammate/web", false),
        (json!(["registry.example.com/*"]), "registry.example.com/a/b", true),
        (json!(["registry.example.com/*"]), "registry.example.com.evil.org/a/b", false),
        (json!(["*"]), "registry.example.org/a", true),
        (json!([]), "registry.example.com/team/web", false),
    ] {
        let found = violations(&allowing(patterns.clone()), &of(repository));
        assert_eq!(found.is_empty(), allowed, "{patterns} {repository}: {found:?}");
    }
    // A type that is not listed is not allowed, whatever the repositories are.
    let other = policy(
        json!({"seccomp": {"allowedProfiles": {"types": ["RuntimeDefault"], "ociRepositories": ["*"]}}}),
    );
    assert_eq!(violations(&other, &of("registry.example.com/a")).len(), 1);
    for (pattern, problem) in [
        ("registry.example.com*", "must begin with a registry and a slash"),
        ("registry.example.com", "must begin with a registry and a slash"),
        ("registry.example.com/", "must begin with a registry and a slash"),
        ("/team/*", "must begin with a registry and a slash"),
        ("*.example.com/team", "only the end may be *"),
        ("registry.example.com/*/web", "only the end may be *"),
        ("oci://registry.example.com/web", "only the end may be *"),
        ("registry.example.com/web@sha256:00", "without tag and digest"),
        ("", "must begin with a registry and a slash"),
    ] {
        let found = problems(&allowing(json!([pattern])));
        assert!(found.len() == 1 && found[0].contains(problem), "{pattern}: {found:?}");
    }
    for pattern in ["*", "registry.example.com/*", "registry.example.com:5000/a", "localhost/team/*"] {
        assert_eq!(problems(&allowing(json!([pattern]))), [""; 0], "{pattern}");
    }
}

#[test]
fn a_baseline_bounds_every_profile_that_a_tenant_brings() {
    let file = json!({"type": "Localhost", "localhostProfile": "team/base.json"});
    let with = |types: Value, baseline: Option<&Value>| {
        let mut rules = json!({"allowedProfiles": {"types": types}});
        if let Some(baseline) = baseline {
            rules["baseline"] = baseline.clone();
        }
        policy(json!({"seccomp": rules}))
    };
    let stated = |policies: &[&ProfilePolicy]| tenant_baseline(policies).map(|baseline| baseline.to_string());
    let oci = with(json!(["OCI"]), Some(&file));
    let maps = with(json!(["ConfigMap"]), None);
    assert_eq!(stated(&[&oci]).as_deref(), Some("localhost/team/base.json"));
    assert_eq!(stated(&[&oci, &maps]).as_deref(), Some("runtime/default,localhost/team/base.json"));
    assert_eq!(config_map_baseline(&[&oci]), None, "ConfigMaps are not listed");
    assert_eq!(stated(&[&with(json!(["RuntimeDefault"]), Some(&file))]), None);
}

fn problems(policy: &ProfilePolicy) -> Vec<String> {
    policy.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn rules_that_cannot_be_applied_are_problems() {
    let seccomp = "spec.seccomp";
    for (spec, expected) in [
        (
            json!({"seccomp": {"defaultProfile": {"type": "Bogus"}}}),
            "spec.seccomp.defaultProfile.type: Unsupported value",
        ),
        (json!({"seccomp": {"defaultProfile": {}}}), "spec.seccomp.defaultProfile.type: Unsupported value"),
        // Every pod of a namespace would depend on the registry.
        (
            json!({"seccomp": {"defaultProfile": {"type": "OCI"}}}),
            "spec.seccomp.defaultProfile.type: Unsupported value",
        ),
        (
            json!({"appArmor": {"allowedProfiles": {"types": ["OCI"]}}}),
            "spec.appArmor.allowedProfiles.types[0]: Unsupported value",
        ),
        (
            json!({"appArmor": {"defaultProfile": {"type": "ConfigMap", "configMapProfile": "a/b"}}}),
            "spec.appArmor.defaultProfile.type: Unsupported value",
        ),
        (
            json!({"seccomp": {"defaultProfile": {"type": "Localhost"}}}),
            "spec.seccomp.defaultProfile.localhostProfile: Required value",
        ),
        (
            json!({"seccomp": {"defaultProfile": {"type": "Localhost", "localhostProfile": "../x"}}}),
            "must not contain '..'",
        ),
        (
            json!({"seccomp": {"defaultProfile": {"type": "Localhost", "localhostProfile": "/x"}}}),
            "must be a relative path",
        ),
        (
            json!({"seccomp": {"defaultProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}}}),
            "Forbidden: may only be set when type is Localhost",
        ),
        (
            json!({"seccomp": {"defaultProfile": {"type": "ConfigMap", "configMapProfile": "a"}}}),
            "must be <name>/<key> of a ConfigMap",
        ),
        (
            json!({"seccomp": {"allowedProfiles": {"types": ["RuntimeDefault", "runtimeDefault"]}}}),
            "spec.seccomp.allowedProfiles.types[1]: Unsupported value",
        ),
        (
            json!({"seccomp": {"allowedProfiles": {"types": ["Localhost"], "localhostProfiles": ["/abs*"]}}}),
            "must be a relative path",
        ),
        (
            json!({"seccomp": {"defaultProfile": {"type": "Localhost", "localhostProfile": "b"}, "allowedProfiles": {"types": ["Localhost"], "localhostProfiles": ["a*"]}}}),
            seccomp,
        ),
        (
            json!({"seccomp": {"defaultProfile": {"type": "RuntimeDefault"}, "allowedProfiles": {}}}),
            "which has none",
        ),
        (
            json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Nope"}]}}),
            "not a valid selector operator",
        ),
        (
            json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
            "matchExpressions[0].values: Required value",
        ),
        (
            json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}}),
            "matchExpressions[0].values: Forbidden",
        ),
        (
            json!({"namespaceSelector": {"matchExpressions": [{"operator": "Exists"}]}}),
            "matchExpressions[0].key: Required value",
        ),
        // A selector that nothing can match would switch the policy off.
        (
            json!({"namespaceSelector": {"matchLabels": {"team": "a "}}}),
            "spec.namespaceSelector.matchLabels[team]: Invalid value: \"a \"",
        ),
        (
            json!({"namespaceSelector": {"matchLabels": {"Team/a/b": "a"}}}),
            "spec.namespaceSelector.matchLabels: Invalid value: \"Team/a/b\"",
        ),
        (
            json!({"namespaceSelector": {"matchExpressions": [{"key": "env ", "operator": "Exists"}]}}),
            "matchExpressions[0].key: Invalid value: \"env \"",
        ),
        (
            json!({"namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod", "-"]}]}}),
            "matchExpressions[0].values[1]: Invalid value: \"-\"",
        ),
    ] {
        let found = problems(&policy(spec.clone()));
        assert!(found.len() == 1 && found[0].contains(expected), "{spec}: {found:?}");
    }
    for spec in [
        json!({}),
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a-b", "x_Y.z": ""}}}),
        json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": [""]}]}}),
        json!({"seccomp": {"defaultProfile": {"type": "RuntimeDefault"}}}),
        json!({"seccomp": {"allowedProfiles": {"types": ["Localhost"], "localhostProfiles": ["*"]}}}),
        json!({"seccomp": {"defaultProfile": {"type": "ConfigMap", "configMapProfile": "web-1/k.json"}, "allowedProfiles": {"types": ["ConfigMap"], "configMaps": ["web-*"]}}}),
        json!({"appArmor": {"defaultProfile": {"type": "Localhost", "localhostProfile": "p"}, "allowedProfiles": {"types": ["Localhost"], "localhostProfiles": ["p"]}}}),
    ] {
        assert_eq!(problems(&policy(spec.clone())), Vec::<String>::new(), "{spec}");
    }
}

#[test]
fn selectors_pick_namespaces() {
    let with = |selector: Value| policy(json!({"namespaceSelector": selector}));
    let labels: StringMap<'_> =
        [("team".into(), "a".into()), ("env".into(), "prod".into())].into_iter().collect();
    for (selector, selected) in [
        (json!({}), true),
        (json!({"matchLabels": {"team": "a"}}), true),
        (json!({"matchLabels": {"team": "b"}}), false),
        (json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod", "stage"]}]}), true),
        (json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}), false),
        (json!({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["prod"]}]}), true),
        (json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}), true),
        (json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]}), true),
        (json!({"matchExpressions": [{"key": "team", "operator": "Nope"}]}), false),
    ] {
        assert_eq!(with(selector.clone()).selects(&labels), selected, "{selector}");
    }
    assert!(policy(json!({})).selects(&labels));
}

fn psp(annotations: &Value, spec: Value) -> ProfileStrategies {
    ProfileStrategies::read(&json!({"metadata": {"name": "p", "annotations": annotations}, "spec": spec}))
        .unwrap()
}

const ALLOWED: &str = "seccomp.security.alpha.kubernetes.io/allowedProfileNames";
const DEFAULT: &str = "seccomp.security.alpha.kubernetes.io/defaultProfileName";

#[test]
fn pod_security_policy_of_a_release_uses_upstreams_words() {
    let problems = |strategies: &ProfileStrategies, object: &Value| {
        let text = object.to_string();
        let pod = pod(&text);
        let problems = strategies.violations(&Prepared::stored(pod, &Compat::kubernetes(24)));
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let silent = json!({"spec": {"containers": [{"name": "c"}]}});
    let unconfined = json!({"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}, "containers": [{"name": "c"}]}});
    let nothing = psp(&json!({}), json!({}));
    let list = psp(&json!({ALLOWED: "runtime/default,localhost/a"}), json!({}));
    let any = psp(&json!({ALLOWED: "*"}), json!({}));
    let pod_key = "pod.metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]";
    let container_key = "pod.metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]";
    assert!(problems(&nothing, &silent).is_empty());
    assert_eq!(
        problems(&nothing, &unconfined),
        [
            format!("{pod_key}: Forbidden: seccomp may not be set"),
            format!("{container_key}: Forbidden: seccomp may not be set")
        ]
    );
    let text = "is not an allowed seccomp profile. Valid values are runtime/default,localhost/a";
    assert_eq!(
        problems(&list, &unconfined),
        [
            format!("{pod_key}: Forbidden: unconfined {text}"),
            format!("{container_key}: Forbidden: unconfined {text}")
        ]
    );
    // The value is empty, and so the sentence begins with a blank.
    assert_eq!(problems(&list, &silent)[0], format!("{pod_key}: Forbidden:  {text}"));
    assert!(problems(&any, &unconfined).is_empty());
    let docker =
        json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "docker/default"}}});
    assert!(problems(&list, &docker).is_empty());
    let armored = psp(
        &json!({"apparmor.security.beta.kubernetes.io/allowedProfileNames": "runtime/default"}),
        json!({}),
    );
    let key = "pod.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]";
    assert_eq!(problems(&armored, &silent), [format!("{key}: Forbidden: AppArmor profile must be set")]);
    let localhost = json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "localhost/x"}}, "spec": {"containers": [{"name": "c"}]}});
    assert_eq!(
        problems(&armored, &localhost),
        [format!(
            "{key}: Forbidden: localhost/x is not an allowed profile. Allowed values: \"runtime/default\""
        )]
    );
}

#[test]
fn a_release_defaults_annotations_and_the_designs_default_fields() {
    let strategies = psp(&json!({DEFAULT: "runtime/default", ALLOWED: "*"}), json!({}));
    let pod = pod(r#"{"spec":{"containers":[{"name":"c"}]}}"#);
    let changes = |compat: &Compat| {
        let changes = strategies.defaults(&Prepared::stored(pod.clone(), compat));
        changes
            .iter()
            .map(|change| format!("{} {}", change.at, change.to.to_json().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        changes(&Compat::kubernetes(24)),
        [r#"metadata.annotations[seccomp.security.alpha.kubernetes.io/pod] "runtime/default""#]
    );
    assert_eq!(
        changes(&Compat::designs()),
        [r#"spec.securityContext.seccompProfile {"type":"RuntimeDefault"}"#]
    );
}

#[test]
fn field_and_annotations_of_a_policy_must_match() {
    let field = json!({"seccomp": {"defaultProfile": {"type": "RuntimeDefault"}, "allowedProfiles": {"types": ["RuntimeDefault"]}}});
    let same = psp(&json!({DEFAULT: "runtime/default", ALLOWED: "runtime/default"}), field.clone());
    let other = psp(&json!({DEFAULT: "runtime/default", ALLOWED: "runtime/default,unconfined"}), field);
    assert!(same.problems(&Compat::designs()).is_empty());
    assert_eq!(
        other.problems(&Compat::designs())[0].to_string(),
        "spec.seccomp: Forbidden: seccomp in annotations and field must match"
    );
    // A default that is not allowed is the design's mistake, not a release's.
    let unusable = psp(&json!({DEFAULT: "unconfined", ALLOWED: "runtime/default"}), json!({}));
    assert_eq!(
        unusable.problems(&Compat::designs())[0].to_string(),
        format!(
            "metadata.annotations[{DEFAULT}]: Invalid value: \"unconfined\": must be allowed by allowedProfiles, which has RuntimeDefault"
        )
    );
    assert!(unusable.problems(&Compat::kubernetes(24)).is_empty());
    let broken = psp(&json!({ALLOWED: "runtime/x,*,localhost/../y"}), json!({}));
    assert_eq!(
        broken.problems(&Compat::designs()).iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            format!(
                "metadata.annotations[{ALLOWED}]: Invalid value: \"runtime/x\": must be a valid seccomp profile"
            ),
            format!("metadata.annotations[{ALLOWED}]: Invalid value: \"../y\": must not contain '..'"),
        ]
    );
}
