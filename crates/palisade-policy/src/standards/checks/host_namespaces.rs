//! A pod may not join the node's network, PID or IPC namespace.
//!
//! Implements: Pod Security Standards, Baseline, "Host Namespaces".

use super::super::cel::{self, CelRules};
use super::{Check, CheckVersion, Finding, Level, Options, PodView, Remedy, Violation};

pub(super) static CHECK: Check = Check {
    id: "hostNamespaces",
    level: Level::Baseline,
    title: "Host Namespaces",
    why: "sharing one lets a container see or disturb everything else on the node",
    versions: &[CheckVersion { since: 0, overrides: &[], run: since_v1_0, cel: cel_since_v1_0 }],
};

/// The fields, in upstream's order.
pub(in crate::standards) const FIELDS: [&str; 3] = ["hostNetwork", "hostPID", "hostIPC"];

fn since_v1_0(pod: &PodView<'_, '_>, _: Options) -> Option<Violation> {
    let spec = pod.spec();
    let [network, pid, ipc] = FIELDS;
    let fields = [
        (
            network,
            spec.host_network,
            "remove `hostNetwork` only if the workload does not need the node's network",
        ),
        (pid, spec.host_pid, "remove `hostPID` only if the workload does not need the node's processes"),
        (ipc, spec.host_ipc, "remove `hostIPC` only if the workload does not need the node's IPC objects"),
    ];
    let joined = || fields.iter().filter(|(_, joins, _)| *joins == Some(true));
    joined().next()?;
    let detail = joined().map(|(field, ..)| format!("{field}=true")).collect::<Vec<_>>().join(", ");
    let findings = joined()
        .map(|&(field, _, remedy)| Finding {
            path: pod.path(&["spec", field]),
            container: None,
            value: Some("true".to_owned()),
            summary: format!("pod sets {field}"),
            allowed: "false, or no value",
            remedy: Remedy::Manual(remedy),
        })
        .collect();
    Some(Violation { check: CHECK.id, reason: "host namespaces", detail, findings, masked: Vec::new() })
}

fn cel_since_v1_0(rules: &mut CelRules) -> String {
    let lists =
        FIELDS.map(|field| format!("(variables.spec.?{field}.orValue(false) ? ['{field}=true'] : [])"));
    let joined = rules.define("hostNamespacesJoined", lists.join(" + "));
    cel::violation(&cel::some(&joined), "host namespaces", &format!("{joined}.join(', ')"))
}
