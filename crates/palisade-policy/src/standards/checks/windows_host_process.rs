//! A Windows container may not be a process of the host.
//!
//! Implements: Pod Security Standards, Baseline, "HostProcess".

use super::super::cel::{self, CelRules, POD_CONTEXT};
use super::{
    Check, CheckVersion, Finding, Level, Options, PodView, Remedy, Violation, called, containers_where,
    message, names,
};

pub(super) static CHECK: Check = Check {
    id: "windowsHostProcess",
    level: Level::Baseline,
    title: "HostProcess",
    why: "a host process has the privileges of the Windows node",
    versions: &[CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: cel_since_v1_0 }],
};

fn since_v1_0(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let of_pod = pod
        .security_context()
        .and_then(|context| context.windows_options.as_ref())
        .is_some_and(|options| options.host_process == Some(true));
    let bad = containers_where(pod, |container| {
        container
            .security_context()
            .and_then(|context| context.windows_options.as_ref())
            .is_some_and(|options| options.host_process == Some(true))
    });
    if !of_pod && bad.is_empty() {
        return None;
    }
    let who = message::setters(of_pod, &names(&bad));
    let detail = format!("{who} must not set securityContext.windowsOptions.hostProcess=true");
    let finding = |path, container: Option<&str>, who: String| Finding {
        path,
        container: container.map(str::to_owned),
        value: Some("true".to_owned()),
        summary: format!("{who} runs as a process of the Windows host"),
        allowed: "false, or no value",
        remedy: Remedy::Manual(
            "a host process exists to manage the node; it cannot do so as a plain container",
        ),
    };
    let fields = &["securityContext", "windowsOptions", "hostProcess"];
    let mut findings = Vec::new();
    if of_pod {
        findings.push(finding(pod.path(&["spec"]).fields(fields), None, "pod".to_owned()));
    }
    findings.extend(bad.iter().map(|container| {
        finding(container.path(pod).fields(fields), Some(container.name()), called(container))
    }));
    Some(Violation { check: CHECK.id, reason: "hostProcess", detail, findings, masked: Vec::new() })
}

fn cel_since_v1_0(rules: &mut CelRules) -> String {
    let bad = |context: &str| format!("{context}.?windowsOptions.?hostProcess.orValue(false)");
    let pod = rules.define("hostProcessPod", bad(POD_CONTEXT));
    let names = rules.names_where("hostProcessContainers", &bad("c.?securityContext"));
    let detail = format!(
        "{} + ' must not set securityContext.windowsOptions.hostProcess=true'",
        cel::setters(&pod, &names)
    );
    cel::violation(&format!("{pod} || {}", cel::some(&names)), "hostProcess", &detail)
}
