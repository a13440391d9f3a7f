//! Every container must have a seccomp profile.
//!
//! Implements: Pod Security Standards, Restricted, "Seccomp".

use palisade_base::field_path::FieldPath;
use palisade_model::profile::{kind, seccomp};
use serde_json::{Value, json};

use super::super::cel::{self, CelRules, POD_CONTEXT};
use super::{
    Check, CheckVersion, Edit, Finding, Level, Options, PodView, Remedy, Violation,
    capabilities_restricted::windows_or,
    containers_where, message, names,
    seccomp_profile_baseline::{
        ALLOWED, cel_explicitly_bad, cel_profile_where, explicitly_bad, is_allowed, of_container, of_pod,
    },
};

pub(super) static CHECK: Check = Check {
    id: "seccompProfile_restricted",
    level: Level::Restricted,
    title: "Seccomp",
    why: "without a profile a container can call everything the kernel offers",
    versions: &[
        CheckVersion {
            since: 19,
            overrides: &["seccompProfile_baseline"],
            run: since_v1_19,
            cel: cel_since_v1_19,
        },
        CheckVersion {
            since: 25,
            overrides: &["seccompProfile_baseline"],
            run: since_v1_25,
            cel: cel_since_v1_25,
        },
    ],
};

fn since_v1_19(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    let pod_profile = of_pod(pod);
    let pod_is_good = pod_profile.is_some_and(|profile| is_allowed(profile, options));
    let silent =
        |container: &palisade_model::pod_view::ContainerRef<'_, '_>| of_container(container).is_none();
    if let Some(mut violation) = explicitly_bad(pod, options, CHECK.id) {
        // Containers without a value are not named by upstream here, yet would be next time.
        let silent = containers_where(pod, silent);
        if pod_profile.is_none() && !silent.is_empty() {
            violation.masked.push(unset(pod, &silent));
        }
        if !violation.masked.is_empty()
            && let Some(Finding { remedy: Remedy::Edits(edits), .. }) = violation.findings.first_mut()
        {
            edits.extend(profile_for_all(pod));
        }
        if pod.spec().is_windows() {
            for finding in &mut violation.findings {
                finding.remedy = windows_or(pod, Vec::new());
            }
        }
        return Some(violation);
    }
    if pod_is_good {
        return None;
    }
    let bad = containers_where(pod, silent);
    if bad.is_empty() {
        return None;
    }
    let who = message::containers(&names(&bad));
    let findings = vec![unset(pod, &bad)];
    let detail = format!(
        "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
    );
    Some(Violation { check: CHECK.id, reason: "seccompProfile", detail, findings, masked: Vec::new() })
}

/// The finding for containers that neither have a profile nor get one from the pod.
fn unset(pod: &PodView<'_, '_>, silent: &[palisade_model::pod_view::ContainerRef<'_, '_>]) -> Finding {
    Finding {
        path: pod.path(&["spec", "securityContext", "seccompProfile", "type"]),
        container: None,
        value: None,
        summary: format!("{} may run without a seccomp profile", message::containers(&names(silent))),
        allowed: ALLOWED,
        remedy: windows_or(pod, profile_for_all(pod)),
    }
}

fn since_v1_25(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    if pod.spec().is_windows() { None } else { since_v1_19(pod, options) }
}

/// One profile for the pod. Where annotations already have the required value, they become the fields: an API server
/// refuses a field that contradicts its annotation, and newer ones ignore the annotation.
fn profile_for_all(pod: &PodView<'_, '_>) -> Vec<Edit> {
    let mut edits = Vec::new();
    let path = pod.path(&["spec", "securityContext", "seccompProfile"]);
    edits.extend(from_annotation_or(pod, seccomp::POD_ANNOTATION, &path, true));
    for container in pod.containers().filter(|container| of_container(container).is_none()) {
        let annotation = seccomp::container_annotation(container.name());
        let path = container.path(pod).fields(&["securityContext", "seccompProfile"]);
        edits.extend(from_annotation_or(pod, &annotation, &path, false));
    }
    edits
}

fn from_annotation_or(pod: &PodView<'_, '_>, annotation: &str, path: &FieldPath, default: bool) -> Vec<Edit> {
    let value = pod.metadata().annotations.get(annotation);
    let localhost = value.and_then(|value| value.strip_prefix("localhost/")).filter(|file| !file.is_empty());
    let runtime_default = || json!({"type": kind::RUNTIME_DEFAULT});
    let profile: Option<Value> = match (localhost, value) {
        (Some(file), _) => Some(json!({"type": kind::LOCALHOST, "localhostProfile": file})),
        (None, Some("runtime/default" | "docker/default")) => Some(runtime_default()),
        _ if default => Some(runtime_default()),
        _ => None,
    };
    let mut edits = Vec::new();
    if let Some(profile) = profile {
        edits.push(Edit::Set(path.clone(), profile));
    }
    if value.is_some() {
        edits.push(Edit::Remove(pod.annotation_path(annotation)));
    }
    edits
}

fn cel_since_v1_19(rules: &mut CelRules) -> String {
    let reason = "seccompProfile";
    let (condition, detail) = cel_explicitly_bad(rules);
    let good = format!("{}.orValue(false)", cel_profile_where(POD_CONTEXT, false, rules.options()));
    let silent =
        rules.names_where("silentSeccompContainers", "!c.?securityContext.?seccompProfile.hasValue()");
    let required = format!(
        "'pod or ' + {} + ' must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"'",
        cel::containers(&silent)
    );
    let implicit = cel::violation(&format!("!{good} && {}", cel::some(&silent)), reason, &required);
    cel::violation_or(&condition, reason, &detail, &format!("({implicit})"))
}

fn cel_since_v1_25(rules: &mut CelRules) -> String {
    let rule = cel_since_v1_19(rules);
    cel::unless("variables.isWindows", &rule)
}
