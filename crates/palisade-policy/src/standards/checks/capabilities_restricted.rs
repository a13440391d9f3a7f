//! A container must drop all capabilities and may take back only `NET_BIND_SERVICE`.
//!
//! Implements: Pod Security Standards, Restricted, "Capabilities".

use serde_json::json;

use super::super::cel::{self, CelRules};
use super::{
    Check, CheckVersion, Edit, Finding, Level, Options, PodView, Remedy, Violation, called,
    capabilities_baseline::{added_outside, cel_added_outside},
    containers_where, message, names,
};

pub(super) static CHECK: Check = Check {
    id: "capabilities_restricted",
    level: Level::Restricted,
    title: "Capabilities",
    why: "a process without capabilities cannot use root's powers even if it becomes root",
    versions: &[
        CheckVersion {
            since: 22,
            overrides: &["capabilities_baseline"],
            run: since_v1_22,
            cel: cel_since_v1_22,
        },
        CheckVersion {
            since: 25,
            overrides: &["capabilities_baseline"],
            run: since_v1_25,
            cel: cel_since_v1_25,
        },
    ],
};

/// The one capability that may be added.
pub(in crate::standards) const ALLOWED: &[&str] = &["NET_BIND_SERVICE"];
/// What must be dropped.
const ALL: &str = "ALL";

fn since_v1_22(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let keeping = containers_where(pod, |container| {
        container
            .security_context()
            .and_then(|context| context.capabilities.as_ref())
            .is_none_or(|capabilities| !capabilities.drop.iter().any(|capability| *capability == ALL))
    });
    let added = added_outside(pod, ALLOWED, "NET_BIND_SERVICE alone");
    if keeping.is_empty() && added.containers.is_empty() {
        return None;
    }
    let mut details = Vec::with_capacity(2);
    let mut findings = Vec::new();
    if !keeping.is_empty() {
        let who = message::containers(&names(&keeping));
        details.push(format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
        for container in &keeping {
            let path = container.path(pod).fields(&["securityContext", "capabilities", "drop"]);
            let drops = container
                .security_context()
                .and_then(|context| context.capabilities.as_ref())
                .map_or(&[][..], |capabilities| &capabilities.drop);
            let misspelt = drops.iter().position(|name| name.as_str().eq_ignore_ascii_case(ALL));
            let edit = match misspelt {
                Some(index) => Edit::Set(path.clone().index(index), json!(ALL)),
                None if drops.is_empty() => Edit::Set(path.clone(), json!([ALL])),
                None => Edit::Append(path.clone(), json!(ALL)),
            };
            findings.push(Finding {
                path,
                container: Some(container.name().to_owned()),
                value: None,
                summary: format!("{} does not drop all capabilities", called(container)),
                allowed: "a drop list with ALL",
                remedy: windows_or(pod, vec![edit]),
            });
        }
    }
    if !added.containers.is_empty() {
        details.push(added.detail());
        findings.extend(added.findings);
    }
    Some(Violation {
        check: CHECK.id,
        reason: "unrestricted capabilities",
        detail: details.join("; "),
        findings,
        masked: Vec::new(),
    })
}

fn since_v1_25(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    if pod.spec().is_windows() { None } else { since_v1_22(pod, options) }
}

/// Linux settings cannot be added to a pod that is declared for Windows.
pub(super) fn windows_or(pod: &PodView<'_, '_>, edits: Vec<Edit>) -> Remedy {
    if pod.spec().is_windows() {
        Remedy::Manual(
            "a pod for Windows cannot carry this setting; policy versions from v1.25 on do not require it",
        )
    } else {
        Remedy::Edits(edits)
    }
}

fn cel_since_v1_22(rules: &mut CelRules) -> String {
    let keeping = rules.names_where(
        "keepingCapabilities",
        &format!("!({} in c.?securityContext.?capabilities.?drop.orValue([]))", cel::text(ALL)),
    );
    let (adding, added) = cel_added_outside(rules, ALLOWED);
    let kept =
        format!("{} + ' must set securityContext.capabilities.drop=[\"{ALL}\"]'", cel::containers(&keeping));
    let detail =
        format!("((size({keeping}) > 0 ? [{kept}] : []) + (size({adding}) > 0 ? [{added}] : [])).join('; ')");
    let condition = format!("{} || {}", cel::some(&keeping), cel::some(&adding));
    cel::violation(&condition, "unrestricted capabilities", &detail)
}

fn cel_since_v1_25(rules: &mut CelRules) -> String {
    let rule = cel_since_v1_22(rules);
    cel::unless("variables.isWindows", &rule)
}
