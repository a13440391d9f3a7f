//! A container may not lift the masks of /proc, unless the pod has a user namespace of its own.
//!
//! Implements: Pod Security Standards, Baseline, "/proc Mount Type".

use super::super::cel::{self, CONTAINERS, CelRules};
use super::{
    Check, CheckVersion, Finding, Level, Options, PodView, Remedy, Violation, called, containers_where,
    message, names,
};

pub(super) static CHECK: Check = Check {
    id: "procMount",
    level: Level::Baseline,
    title: "/proc Mount Type",
    why: "parts of /proc reach into the kernel of the node",
    versions: &[
        CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: cel_unmasked },
        CheckVersion { since: 35, overrides: &[], run: since_v1_35, cel: cel_since_v1_35 },
    ],
};

pub(in crate::standards) const ALLOWED: &str = "Default";

fn since_v1_0(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    unmasked(pod, CHECK.id)
}

fn since_v1_35(pod: &PodView<'_, '_>, options: Options) -> Option<Violation> {
    if pod.spec().has_user_namespace() { None } else { since_v1_0(pod, options) }
}

pub(super) fn unmasked(pod: &PodView<'_, '_>, check: &'static str) -> Option<Violation> {
    let bad = containers_where(pod, |container| {
        container
            .security_context()
            .and_then(|context| context.proc_mount.as_ref())
            .is_some_and(|mount| *mount != ALLOWED)
    });
    if bad.is_empty() {
        return None;
    }
    let mount = |container: &palisade_model::pod_view::ContainerRef<'_, '_>| {
        container
            .security_context()
            .and_then(|context| context.proc_mount.as_ref())
            .map(|mount| mount.as_str().to_owned())
            .unwrap_or_default()
    };
    let values = message::sorted_unique(bad.iter().map(mount).collect());
    let detail = format!(
        "{} must not set securityContext.procMount to {}",
        message::containers(&names(&bad)),
        message::quoted(&values)
    );
    let findings = bad
        .iter()
        .map(|container| {
            let path = container.path(pod).fields(&["securityContext", "procMount"]);
            Finding {
                path: path.clone(),
                container: Some(container.name().to_owned()),
                value: Some(mount(container)),
                summary: format!("{} sees an unmasked /proc", called(container)),
                allowed: "Default, or no value",
                remedy: Remedy::set(path, ALLOWED),
            }
        })
        .collect();
    Some(Violation { check, reason: "procMount", detail, findings, masked: Vec::new() })
}

fn cel_since_v1_35(rules: &mut CelRules) -> String {
    let rule = cel_unmasked(rules);
    cel::unless("variables.hasUserNamespace", &rule)
}

pub(super) fn cel_unmasked(rules: &mut CelRules) -> String {
    let allowed = cel::text(ALLOWED);
    let bad = format!("c.?securityContext.?procMount.orValue({allowed}) != {allowed}");
    let names = rules.names_where("unmaskedContainers", &bad);
    let values = rules.sorted_unique(&format!("{CONTAINERS}.map(c, {bad}, c.securityContext.procMount)"));
    let detail = format!(
        "{} + ' must not set securityContext.procMount to ' + {}",
        cel::containers(&names),
        cel::quoted(&values)
    );
    cel::violation(&cel::some(&names), "procMount", &detail)
}
