//! A container may not request the user ID 0.
//!
//! Implements: Pod Security Standards, Restricted, "Running as Non-root user".

use super::super::cel::{self, CelRules, POD_CONTEXT};
use super::{
    Check, CheckVersion, Finding, Level, Options, PodView, Remedy, Violation, called, containers_where,
    message, names,
};

pub(super) static CHECK: Check = Check {
    id: "runAsUser",
    level: Level::Restricted,
    title: "Running as Non-root user",
    why: "root inside a container is root on the node once it gets out",
    versions: &[
        CheckVersion { since: 23, overrides: &[], run: since_v1_23, cel: cel_since_v1_23 },
        CheckVersion { since: 35, overrides: &[], run: since_v1_35, cel: cel_since_v1_35 },
    ],
};

fn since_v1_23(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let pod_is_root = pod.security_context().is_some_and(|context| context.run_as_user == Some(0));
    let bad = containers_where(pod, |container| {
        container.security_context().is_some_and(|context| context.run_as_user == Some(0))
    });
    if !pod_is_root && bad.is_empty() {
        return None;
    }
    let detail = format!("{} must not set runAsUser=0", message::setters(pod_is_root, &names(&bad)));
    let finding =
        |path: palisade_base::field_path::FieldPath, container: Option<&str>, who: String| Finding {
            path: path.clone(),
            container: container.map(str::to_owned),
            value: Some("0".to_owned()),
            summary: format!("{who} runs as root"),
            allowed: "any user ID but 0, or no value",
            remedy: Remedy::remove(path),
        };
    let mut findings = Vec::new();
    if pod_is_root {
        findings.push(finding(pod.path(&["spec", "securityContext", "runAsUser"]), None, "pod".to_owned()));
    }
    findings.extend(bad.iter().map(|container| {
        let path = container.path(pod).fields(&["securityContext", "runAsUser"]);
        finding(path, Some(container.name()), called(container))
    }));
    Some(Violation { check: CHECK.id, reason: "runAsUser=0", detail, findings, masked: Vec::new() })
}

fn since_v1_35(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    if pod.spec().has_user_namespace() { None } else { since_v1_23(pod, options) }
}

fn cel_since_v1_23(rules: &mut CelRules) -> String {
    let pod = rules.define("userZeroPod", format!("{POD_CONTEXT}.?runAsUser.orValue(1) == 0"));
    let names = rules.names_where("userZeroContainers", "c.?securityContext.?runAsUser.orValue(1) == 0");
    let detail = format!("{} + ' must not set runAsUser=0'", cel::setters(&pod, &names));
    cel::violation(&format!("{pod} || {}", cel::some(&names)), "runAsUser=0", &detail)
}

fn cel_since_v1_35(rules: &mut CelRules) -> String {
    let rule = cel_since_v1_23(rules);
    cel::unless("variables.hasUserNamespace", &rule)
}
