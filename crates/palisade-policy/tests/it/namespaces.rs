//! Namespaces: labels, exemptions, and the pods already there.

use palisade_model::{compat::Compat, metadata::StringMap, prepare::Prepared};
use palisade_policy::standards::{
    evaluator::Evaluator,
    level::{Level, LevelVersion, Version},
    namespace::{ExistingPods, Limit, NamespaceVerdict, create, update},
    policy::{Exemptions, Policy},
};

use crate::pod;

fn labels(text: &str) -> StringMap<'static> {
    text.split(',')
        .filter_map(|label| label.split_once('='))
        .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}").into(), value.to_owned().into()))
        .collect()
}

fn verdict_text(verdict: NamespaceVerdict) -> String {
    match verdict {
        NamespaceVerdict::Invalid(problems) => format!("invalid: {}", problems.len()),
        NamespaceVerdict::Allowed(warnings) => format!("allowed: {}", warnings.join("; ")),
        NamespaceVerdict::CheckPods(policy) => format!("check {policy}"),
    }
}

#[test]
fn an_update_looks_at_pods_only_when_it_gets_stricter() {
    for (old, new, expected) in [
        ("", "", "allowed: "),
        ("", "enforce=baseline", "check baseline:latest"),
        ("enforce=restricted", "enforce=baseline", "allowed: "),
        ("enforce=restricted", "enforce=privileged", "allowed: "),
        (
            "enforce=baseline,enforce-version=v1.20",
            "enforce=baseline,enforce-version=v1.21",
            "check baseline:v1.21",
        ),
        ("enforce=baseline", "enforce=baseline,enforce-version=v1.37", "check baseline:v1.37"),
        ("", "warn=restricted,audit=restricted", "allowed: "),
        ("", "enforce=nope", "invalid: 1"),
        ("enforce=nope", "enforce=nope", "allowed: "),
        ("enforce=nope", "enforce=nope,warn=nope", "invalid: 2"),
        ("enforce=nope", "enforce=other", "invalid: 1"),
        ("enforce=nope", "enforce=baseline", "allowed: "),
    ] {
        let verdict = update("ns", &labels(new), &labels(old), &Policy::default(), &Exemptions::default());
        assert_eq!(verdict_text(verdict), expected, "{old} -> {new}");
    }
}

#[test]
fn warns_that_labels_of_exempt_namespaces_have_no_effect() {
    let exemptions = Exemptions { namespaces: vec!["ns".to_owned()], ..Exemptions::default() };
    let text = |p: &str| {
        format!("allowed: namespace \"ns\" is exempt from Pod Security, and the policy ({p}) will be ignored")
    };
    for (new, expected) in [
        ("", "allowed: ".to_owned()),
        ("enforce=privileged", "allowed: ".to_owned()),
        (
            "enforce=restricted,enforce-version=v1.0,audit=restricted,warn=baseline",
            text("enforce=restricted:v1.0, audit=restricted:latest, warn=baseline:latest"),
        ),
        ("enforce=baseline", text("enforce=baseline:latest")),
    ] {
        let verdict = create("ns", &labels(new), &Policy::default(), &exemptions);
        assert_eq!(verdict_text(verdict), expected, "{new}");
        assert_eq!(verdict_text(create("other", &labels(new), &Policy::default(), &exemptions)), "allowed: ");
    }
}

fn named(name: &str, controller: Option<&str>, runtime_class: Option<&str>, bad: bool) -> String {
    let owners = controller.map_or_else(String::new, |uid| {
        format!(r#","ownerReferences":[{{"uid":"other"}},{{"uid":"{uid}","controller":true}}]"#)
    });
    let class = runtime_class.map_or_else(String::new, |class| format!(r#","runtimeClassName":"{class}""#));
    format!(r#"{{"metadata":{{"name":"{name}"{owners}}},"spec":{{"hostPID":{bad}{class}}}}}"#)
}

fn warnings(pods: &[String], limit: Limit, expire_after: usize) -> Vec<String> {
    let stored = |json| Prepared::stored(pod(json), &Compat::kubernetes(37));
    let parsed: Vec<Prepared<'_>> = pods.iter().map(|json| stored(json)).collect();
    let evaluator = Evaluator::default();
    let exemptions = Exemptions { runtime_classes: vec!["kata".to_owned()], ..Exemptions::default() };
    let policy = LevelVersion::new(Level::Baseline, Version::Latest);
    let mut looked = 0;
    ExistingPods::new(&evaluator, &exemptions, policy, limit).warnings("ns", &parsed, || {
        looked += 1;
        looked == expire_after
    })
}

const HEAD: &str =
    "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"";

#[test]
fn existing_pods_are_grouped_by_reason() {
    let pods = [
        named("c", None, None, true),
        named("a", None, None, true),
        named("b", None, None, true),
        named("fine", None, None, false),
        named("exempt", None, Some("kata"), true),
    ];
    assert_eq!(warnings(&pods, Limit::None, 0), [HEAD, "a (and 2 other pods): host namespaces"]);
    assert_eq!(warnings(&pods[..2], Limit::None, 0), [HEAD, "a (and 1 other pod): host namespaces"]);
    assert_eq!(warnings(&pods[..1], Limit::None, 0), [HEAD, "c: host namespaces"]);
    assert!(warnings(&pods[3..], Limit::None, 0).is_empty());
}

#[test]
fn there_is_no_cap_unless_configured() {
    let pods: Vec<String> = (1..=5).map(|i| named(&format!("pod{i}"), None, None, true)).collect();
    let first = |checked: usize| {
        format!("new PodSecurity enforce level only checked against the first {checked} of 5 existing pods")
    };
    assert_eq!(warnings(&pods, Limit::None, 0), [HEAD, "pod1 (and 4 other pods): host namespaces"]);
    assert_eq!(
        warnings(&pods, Limit::Pods(4), 0),
        [first(4).as_str(), HEAD, "pod1 (and 3 other pods): host namespaces"]
    );
    assert_eq!(
        warnings(&pods, Limit::None, 2),
        [first(2).as_str(), HEAD, "pod1 (and 1 other pod): host namespaces"]
    );
}

#[test]
fn replicas_of_a_controller_come_last() {
    let pods = [
        named("r1", Some("x"), None, true),
        named("r2", Some("x"), None, true),
        named("s1", Some("y"), None, true),
        named("single", None, None, true),
    ];
    // With a limit of three, the second replica is the one left out.
    let text = warnings(&pods, Limit::Pods(3), 0);
    assert_eq!(text[2], "r1 (and 2 other pods): host namespaces");
    assert_eq!(warnings(&pods, Limit::Pods(1), 0)[2], "r1: host namespaces");
}
