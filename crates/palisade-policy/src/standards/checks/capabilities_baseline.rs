//! A container may add only capabilities that runtimes give anyway.
//!
//! Implements: Pod Security Standards, Baseline, "Capabilities".

use std::sync::LazyLock;

use super::super::cel::{self, CONTAINERS, CelRules};
use super::{
    Check, CheckVersion, Edit, Finding, Level, Options, PodView, Remedy, Violation, called, message,
};

/// Capabilities that a container may add.
pub(crate) const ALLOWED: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// [`ALLOWED`] in words.
static LISTED: LazyLock<String> = LazyLock::new(|| match ALLOWED {
    [first @ .., last] => format!("{} or {last}", first.join(", ")),
    [] => String::new(),
});

pub(super) static CHECK: Check = Check {
    id: "capabilities_baseline",
    level: Level::Baseline,
    title: "Capabilities",
    why: "most capabilities beyond the runtime's defaults lead out of the container",
    versions: &[CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: cel_since_v1_0 }],
};

fn since_v1_0(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let added = added_outside(pod, ALLOWED, &LISTED);
    if added.containers.is_empty() {
        return None;
    }
    Some(Violation {
        check: CHECK.id,
        reason: "non-default capabilities",
        detail: added.detail(),
        findings: added.findings,
        masked: Vec::new(),
    })
}

/// Capabilities added although they are not in the list.
pub(super) struct Added<'p> {
    pub(super) containers: Vec<&'p str>,
    pub(super) capabilities: Vec<&'p str>,
    pub(super) findings: Vec<Finding>,
}

impl Added<'_> {
    pub(super) fn detail(&self) -> String {
        let capabilities = message::sorted_unique(self.capabilities.clone());
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            message::containers(&self.containers),
            message::quoted(&capabilities)
        )
    }
}

pub(super) fn added_outside<'p>(pod: &PodView<'p, '_>, list: &[&str], allowed: &'static str) -> Added<'p> {
    let mut added = Added { containers: Vec::new(), capabilities: Vec::new(), findings: Vec::new() };
    for container in pod.containers() {
        let Some(capabilities) =
            container.security_context().and_then(|context| context.capabilities.as_ref())
        else {
            continue;
        };
        let mut offends = false;
        for (index, capability) in capabilities.add.iter().enumerate() {
            if list.contains(&capability.as_str()) {
                continue;
            }
            offends = true;
            added.capabilities.push(capability.as_str());
            let path = container.path(pod).fields(&["securityContext", "capabilities", "add"]).index(index);
            added.findings.push(Finding {
                path: path.clone(),
                container: Some(container.name().to_owned()),
                value: Some(capability.as_str().to_owned()),
                summary: format!("{} adds the capability {capability}", called(&container)),
                allowed,
                remedy: Remedy::Edits(vec![Edit::Remove(path)]),
            });
        }
        if offends {
            added.containers.push(container.name());
        }
    }
    added
}

fn cel_since_v1_0(rules: &mut CelRules) -> String {
    let (names, detail) = cel_added_outside(rules, ALLOWED);
    cel::violation(&cel::some(&names), "non-default capabilities", &detail)
}

/// The names of the containers that add a capability outside the list, and the sentence about them.
pub(super) fn cel_added_outside(rules: &mut CelRules, allowed: &[&str]) -> (String, String) {
    const ADD: &str = "c.?securityContext.?capabilities.?add.orValue([])";
    let outside = format!("!(x in {})", cel::list(allowed));
    let names = rules.names_where("addingCapabilities", &format!("{ADD}.exists(x, {outside})"));
    let added = rules.flat(
        &format!("{CONTAINERS}.map(c, {ADD}.exists(x, {outside}), {ADD}.filter(x, {outside}))"),
        cel::BETWEEN_QUOTED,
    );
    let added = rules.define("addedCapabilities", added);
    let detail = format!(
        "{} + ' must not include ' + {} + ' in securityContext.capabilities.add'",
        cel::containers(&names),
        cel::quoted(&added)
    );
    (names, detail)
}
