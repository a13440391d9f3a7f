//! A container may not lift its seccomp confinement.
//!
//! Implements: Pod Security Standards, Baseline, "Seccomp". Up to v1.18 the setting is an annotation, from v1.19
//! on a field; each version looks at its own form alone.

use palisade_base::{field_path::FieldPath, go::Quoted};
use palisade_model::{
    pod_view::ContainerRef,
    profile::{kind, seccomp},
    security_context::ProfileField,
};
use serde_json::json;

use super::super::cel::{self, CONTAINERS, CelRules, POD_CONTEXT};
use super::{
    Check, CheckVersion, Edit, Finding, Level, Options, PodView, Remedy, Violation, called, containers_where,
    message, names,
};

pub(super) static CHECK: Check = Check {
    id: "seccompProfile_baseline",
    level: Level::Baseline,
    title: "Seccomp",
    why: "an unconfined container can call everything the kernel offers",
    versions: &[
        CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: cel_since_v1_0 },
        CheckVersion { since: 19, overrides: &[], run: since_v1_19, cel: cel_since_v1_19 },
    ],
};

pub(super) const ALLOWED: &str = "RuntimeDefault or Localhost";
const ALLOWED_TYPES: &[&str] = &[kind::RUNTIME_DEFAULT, kind::LOCALHOST];
const ALLOWED_ANNOTATIONS: &[&str] = &["runtime/default", "docker/default"];
const ALLOWED_ANNOTATION_PREFIX: &str = "localhost/";

fn since_v1_0(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let is_bad =
        |value: &str| !(ALLOWED_ANNOTATIONS.contains(&value) || value.starts_with(ALLOWED_ANNOTATION_PREFIX));
    let annotations = &pod.metadata().annotations;
    let mut findings = Vec::new();
    let mut found = Vec::new();
    let mut look = |key: &str, container: Option<&str>| {
        let Some(value) = annotations.get(key).filter(|value| is_bad(value)) else { return };
        found.push(format!("{key}={}", Quoted(value)));
        findings.push(Finding {
            path: pod.annotation_path(key),
            container: container.map(str::to_owned),
            value: Some(value.to_owned()),
            summary: format!("annotation requests the seccomp profile \"{value}\""),
            allowed: "runtime/default or localhost/<path>",
            remedy: Remedy::set(pod.annotation_path(key), "runtime/default"),
        });
    };
    if !annotations.is_empty() {
        look(seccomp::POD_ANNOTATION, None);
        for container in pod.containers() {
            look(&seccomp::container_annotation(container.name()), Some(container.name()));
        }
    }
    if found.is_empty() {
        return None;
    }
    let found = message::sorted_unique(found);
    let detail = format!(
        "forbidden {} {}",
        message::plural("annotation", "annotations", found.len()),
        found.join(", ")
    );
    Some(Violation { check: CHECK.id, reason: "seccompProfile", detail, findings, masked: Vec::new() })
}

fn since_v1_19(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    explicitly_bad(pod, options, CHECK.id)
}

pub(super) fn is_allowed(profile: &ProfileField<'_>, options: Options) -> bool {
    allowed_types(options).any(|allowed| profile.kind.as_str() == allowed)
}

fn allowed_types(options: Options) -> impl Iterator<Item = &'static str> {
    ALLOWED_TYPES
        .iter()
        .copied()
        .chain(options.config_map_profiles.then_some(kind::CONFIG_MAP))
        .chain(options.oci_profiles.then_some(kind::OCI))
}

pub(super) fn of_container<'p, 'a>(container: &ContainerRef<'p, 'a>) -> Option<&'p ProfileField<'a>> {
    container.security_context().and_then(|context| context.seccomp_profile.as_ref())
}

pub(super) fn of_pod<'p, 'a>(pod: &PodView<'p, 'a>) -> Option<&'p ProfileField<'a>> {
    pod.security_context().and_then(|context| context.seccomp_profile.as_ref())
}

/// Profiles that are set, and set to what is not allowed.
pub(super) fn explicitly_bad(
    pod: &PodView<'_, '_>,
    options: Options,
    check: &'static str,
) -> Option<Violation> {
    let pod_profile = of_pod(pod).filter(|profile| !is_allowed(profile, options));
    let bad = containers_where(pod, |container| {
        of_container(container).is_some_and(|profile| !is_allowed(profile, options))
    });
    if pod_profile.is_none() && bad.is_empty() {
        return None;
    }
    let mut types = Vec::new();
    let mut findings = Vec::new();
    let mut add = |profile: &ProfileField<'_>,
                   path: FieldPath,
                   annotation: String,
                   container: Option<&str>,
                   who: String| {
        types.push(profile.kind.as_str().to_owned());
        findings.push(Finding {
            path: path.clone().field("type"),
            container: container.map(str::to_owned),
            value: Some(profile.kind.as_str().to_owned()),
            summary: format!("{who} requests the seccomp profile type \"{}\"", profile.kind),
            allowed: ALLOWED,
            remedy: Remedy::Edits(confine(pod, profile, &path, &annotation)),
        });
    };
    if let Some(profile) = pod_profile {
        let path = pod.path(&["spec", "securityContext", "seccompProfile"]);
        add(profile, path, seccomp::POD_ANNOTATION.to_owned(), None, "pod".to_owned());
    }
    for container in &bad {
        if let Some(profile) = of_container(container) {
            let path = container.path(pod).fields(&["securityContext", "seccompProfile"]);
            let annotation = seccomp::container_annotation(container.name());
            add(profile, path, annotation, Some(container.name()), called(container));
        }
    }
    let detail = format!(
        "{} must not set securityContext.seccompProfile.type to {}",
        message::setters(pod_profile.is_some(), &names(&bad)),
        message::quoted(&message::sorted_unique(types))
    );
    Some(Violation { check, reason: "seccompProfile", detail, findings, masked: Vec::new() })
}

/// Turns a profile into the runtime's own; an annotation of the same level would contradict it and goes.
fn confine(
    pod: &PodView<'_, '_>,
    profile: &ProfileField<'_>,
    path: &FieldPath,
    annotation: &str,
) -> Vec<Edit> {
    let mut edits = vec![Edit::Set(path.clone().field("type"), json!(kind::RUNTIME_DEFAULT))];
    for (field, set) in [
        ("localhostProfile", profile.localhost_profile.is_some()),
        ("configMapProfile", profile.config_map_profile.is_some()),
        ("oci", profile.oci.is_some()),
    ] {
        if set {
            edits.push(Edit::Remove(path.clone().field(field)));
        }
    }
    let value = pod.metadata().annotations.get(annotation);
    if value.is_some_and(|value| value != "runtime/default" && value != "docker/default") {
        edits.push(Edit::Remove(pod.annotation_path(annotation)));
    }
    edits
}

/// Whether the value of an annotation is forbidden.
pub(in crate::standards) fn cel_bad_annotation(value: &str) -> String {
    format!(
        "!({value} in {} || {value}.startsWith({}))",
        cel::list(ALLOWED_ANNOTATIONS),
        cel::text(ALLOWED_ANNOTATION_PREFIX)
    )
}

fn cel_since_v1_0(rules: &mut CelRules) -> String {
    let found = rules.define(
        "seccompAnnotations",
        format!(
            "([{}] + {CONTAINERS}.map(c, {} + c.name)).filter(k, k in variables.annotations && {})",
            cel::text(seccomp::POD_ANNOTATION),
            cel::text(&seccomp::container_annotation("")),
            cel_bad_annotation("variables.annotations[k]"),
        ),
    );
    let values =
        rules.sorted_unique(&format!("{found}.map(k, k + '=' + strings.quote(variables.annotations[k]))"));
    let values = rules.define("seccompAnnotationValues", values);
    let detail = format!(
        "{} + {values}.join(', ')",
        cel::plural("forbidden annotation ", "forbidden annotations ", &values)
    );
    cel::violation(&cel::some(&values), "seccompProfile", &detail)
}

fn cel_since_v1_19(rules: &mut CelRules) -> String {
    let (condition, detail) = cel_explicitly_bad(rules);
    cel::violation(&condition, "seccompProfile", &detail)
}

/// Whether profiles are set to what is not allowed, and the sentence about them.
pub(super) fn cel_explicitly_bad(rules: &mut CelRules) -> (String, String) {
    let bad = format!("{}.orValue(false)", cel_profile_where("c.?securityContext", true, rules.options()));
    let bad_pod = format!("{}.orValue(false)", cel_profile_where(POD_CONTEXT, true, rules.options()));
    let pod = rules.define("badSeccompPod", bad_pod);
    let names = rules.names_where("badSeccompContainers", &bad);
    let types = rules.sorted_unique(&format!(
        "({pod} ? [{POD_CONTEXT}.seccompProfile.?type.orValue('')] : []) + \
         {CONTAINERS}.map(c, {bad}, c.securityContext.seccompProfile.?type.orValue(''))"
    ));
    let detail = format!(
        "{} + ' must not set securityContext.seccompProfile.type to ' + {}",
        cel::setters(&pod, &names),
        cel::quoted(&types)
    );
    (format!("{pod} || {}", cel::some(&names)), detail)
}

/// The optional answer whether the profile of a security context is of a type that is forbidden, or of one that is allowed.
pub(in crate::standards) fn cel_profile_where(context: &str, forbidden: bool, options: Options) -> String {
    let types: Vec<&str> = allowed_types(options).collect();
    let not = if forbidden { "!" } else { "" };
    format!("{context}.?seccompProfile.optMap(p, {not}(p.?type.orValue('') in {}))", cel::list(&types))
}
