//! A pod may set only sysctls that are its own.
//!
//! Implements: Pod Security Standards, Baseline, "Sysctls".

use super::super::cel::{self, CelRules, POD_CONTEXT};
use super::{Check, CheckVersion, Finding, Level, PodView, Remedy, Violation};

pub(super) static CHECK: Check = Check {
    id: "sysctls",
    level: Level::Baseline,
    title: "Sysctls",
    why: "a sysctl outside the pod's namespaces changes the whole node",
    versions: &[
        CheckVersion {
            since: 0,
            overrides: &[],
            run: |pod, _| evaluate(pod, SINCE_V1_0),
            cel: |rules| cel_rule(rules, SINCE_V1_0),
        },
        CheckVersion {
            since: 27,
            overrides: &[],
            run: |pod, _| evaluate(pod, SINCE_V1_27),
            cel: |rules| cel_rule(rules, SINCE_V1_27),
        },
        CheckVersion {
            since: 29,
            overrides: &[],
            run: |pod, _| evaluate(pod, SINCE_V1_29),
            cel: |rules| cel_rule(rules, SINCE_V1_29),
        },
        CheckVersion {
            since: 32,
            overrides: &[],
            run: |pod, _| evaluate(pod, SINCE_V1_32),
            cel: |rules| cel_rule(rules, SINCE_V1_32),
        },
        CheckVersion {
            since: 37,
            overrides: &[],
            run: |pod, _| evaluate(pod, ALLOWED),
            cel: |rules| cel_rule(rules, ALLOWED),
        },
    ],
};

/// In the order they were allowed; each version allows a longer part of the list.
const ALLOWED: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
];
const SINCE_V1_32: &[&str] = ALLOWED.split_at(12).0;
const SINCE_V1_29: &[&str] = ALLOWED.split_at(10).0;
const SINCE_V1_27: &[&str] = ALLOWED.split_at(6).0;
/// Sysctls of the first version of the standards.
pub(crate) const SINCE_V1_0: &[&str] = ALLOWED.split_at(5).0;

/// The sysctls that a version of the check allows.
pub(in crate::standards) const fn allowed_since(since: u16) -> &'static [&'static str] {
    match since {
        0..27 => SINCE_V1_0,
        27..29 => SINCE_V1_27,
        29..32 => SINCE_V1_29,
        32..37 => SINCE_V1_32,
        37.. => ALLOWED,
    }
}

fn evaluate(pod: &PodView<'_, '_>, allowed: &[&str]) -> Option<Violation> {
    let sysctls = pod.security_context().map_or(&[][..], |context| context.sysctls.as_slice());
    let bad: Vec<_> =
        sysctls.iter().enumerate().filter(|(_, sysctl)| !allowed.contains(&sysctl.name.as_str())).collect();
    if bad.is_empty() {
        return None;
    }
    let detail = bad.iter().map(|(_, sysctl)| sysctl.name.as_str()).collect::<Vec<_>>().join(", ");
    let findings = bad
        .iter()
        .map(|(index, sysctl)| {
            let entry = pod.path(&["spec", "securityContext", "sysctls"]).index(*index);
            Finding {
                path: entry.clone().field("name"),
                container: None,
                value: Some(sysctl.name.as_str().to_owned()),
                summary: format!("pod sets the sysctl {}", sysctl.name),
                allowed: "a sysctl of the safe list of this policy version",
                remedy: Remedy::remove(entry),
            }
        })
        .collect();
    Some(Violation { check: CHECK.id, reason: "forbidden sysctls", detail, findings, masked: Vec::new() })
}

fn cel_rule(rules: &mut CelRules, allowed: &[&str]) -> String {
    let names = rules.define(
        "forbiddenSysctls",
        format!("{POD_CONTEXT}.?sysctls.orValue([]).map(s, !(s.name in {}), s.name)", cel::list(allowed)),
    );
    cel::violation(&cel::some(&names), "forbidden sysctls", &format!("{names}.join(', ')"))
}
