//! A container may not be privileged.
//!
//! Implements: Pod Security Standards, Baseline, "Privileged Containers".

use super::super::cel::{self, CelRules};
use super::{
    Check, CheckVersion, Finding, Level, Options, PodView, Remedy, Violation, called, containers_where,
    message, names,
};

pub(super) static CHECK: Check = Check {
    id: "privileged",
    level: Level::Baseline,
    title: "Privileged Containers",
    why: "a privileged container is root on the node",
    versions: &[CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: cel_since_v1_0 }],
};

fn since_v1_0(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let bad = containers_where(pod, |container| {
        container.security_context().is_some_and(|context| context.privileged == Some(true))
    });
    if bad.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not set securityContext.privileged=true", message::containers(&names(&bad)));
    let findings = bad
        .iter()
        .map(|container| {
            let path = container.path(pod).fields(&["securityContext", "privileged"]);
            Finding {
                path: path.clone(),
                container: Some(container.name().to_owned()),
                value: Some("true".to_owned()),
                summary: format!("{} is privileged", called(container)),
                allowed: "false, or no value",
                remedy: Remedy::set(path, false),
            }
        })
        .collect();
    Some(Violation { check: CHECK.id, reason: "privileged", detail, findings, masked: Vec::new() })
}

fn cel_since_v1_0(rules: &mut CelRules) -> String {
    let names = rules.names_where("privilegedContainers", "c.?securityContext.?privileged.orValue(false)");
    let detail = format!("{} + ' must not set securityContext.privileged=true'", cel::containers(&names));
    cel::violation(&cel::some(&names), "privileged", &detail)
}
