//! A container must forbid its processes to gain privileges.
//!
//! Implements: Pod Security Standards, Restricted, "Privilege Escalation".

use serde_json::json;

use super::super::cel::{self, CelRules};
use super::{
    Check, CheckVersion, Edit, Finding, Level, Options, PodView, Violation, called,
    capabilities_restricted::windows_or, containers_where, message, names,
};

pub(super) static CHECK: Check = Check {
    id: "allowPrivilegeEscalation",
    level: Level::Restricted,
    title: "Privilege Escalation",
    why: "without it a set-user-ID program inside the image makes its caller root",
    versions: &[
        CheckVersion { since: 8, overrides: &[], run: since_v1_8, cel: cel_since_v1_8 },
        CheckVersion { since: 25, overrides: &[], run: since_v1_25, cel: cel_since_v1_25 },
    ],
};

fn since_v1_8(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let bad = containers_where(pod, |container| {
        container.security_context().is_none_or(|context| context.allow_privilege_escalation != Some(false))
    });
    if bad.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must set securityContext.allowPrivilegeEscalation=false",
        message::containers(&names(&bad))
    );
    let findings = bad
        .iter()
        .map(|container| {
            let path = container.path(pod).fields(&["securityContext", "allowPrivilegeEscalation"]);
            let set = container.security_context().and_then(|context| context.allow_privilege_escalation);
            Finding {
                path: path.clone(),
                container: Some(container.name().to_owned()),
                value: set.map(|value| value.to_string()),
                summary: format!("{} may gain privileges", called(container)),
                allowed: "false",
                remedy: windows_or(pod, vec![Edit::Set(path, json!(false))]),
            }
        })
        .collect();
    Some(Violation {
        check: CHECK.id,
        reason: "allowPrivilegeEscalation != false",
        detail,
        findings,
        masked: Vec::new(),
    })
}

fn since_v1_25(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    if pod.spec().is_windows() { None } else { since_v1_8(pod, options) }
}

fn cel_since_v1_8(rules: &mut CelRules) -> String {
    let names = rules
        .names_where("escalating", "c.?securityContext.?allowPrivilegeEscalation.orValue(true) != false");
    let detail =
        format!("{} + ' must set securityContext.allowPrivilegeEscalation=false'", cel::containers(&names));
    cel::violation(&cel::some(&names), "allowPrivilegeEscalation != false", &detail)
}

fn cel_since_v1_25(rules: &mut CelRules) -> String {
    let rule = cel_since_v1_8(rules);
    cel::unless("variables.isWindows", &rule)
}
