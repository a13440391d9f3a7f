//! Which sysctls a pod may set.
//!
//! Implements: `forbiddenSysctls`, `allowedUnsafeSysctls` and the kubelet's safe sysctls, in that order.

use palisade_base::{field_error::FieldError, field_path::FieldPath, go::Quoted};
use palisade_model::security_context::Sysctl;

use crate::scc::constraint::Constraint;

/// Safe on every kernel that Kubernetes runs on.
const SAFE: [&str; 9] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
];

/// Safe since a kernel that made them a namespace's own: major and minor version.
const SAFE_SINCE: [(&str, (u32, u32)); 3] = [
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

/// Whether a sysctl is safe on a kernel.
#[must_use]
pub fn is_safe(name: &str, kernel: (u32, u32)) -> bool {
    SAFE.contains(&name) || SAFE_SINCE.iter().any(|&(own, since)| own == name && kernel >= since)
}

fn matches(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    })
}

pub(in crate::scc) fn validate(
    constraint: &Constraint,
    kernel: (u32, u32),
    sysctls: &[Sysctl<'_>],
    problems: &mut Vec<FieldError>,
) {
    for (index, sysctl) in sysctls.iter().enumerate() {
        let name = sysctl.name.as_str();
        let detail = if matches(&constraint.forbidden_sysctls, name) {
            format!("sysctl {} is not allowed", Quoted(name))
        } else if is_safe(name, kernel) || matches(&constraint.allowed_unsafe_sysctls, name) {
            continue;
        } else {
            format!("unsafe sysctl {} is not allowed", Quoted(name))
        };
        let at = FieldPath::of(&["spec", "securityContext", "sysctls"]).index(index);
        problems.push(FieldError::forbidden(at.clone(), detail).called(format!("pod.{at}")));
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::security_context::Sysctl;
    use serde_json::json;

    use super::{Constraint, validate};

    #[test]
    fn forbidden_comes_before_safe_and_safe_before_allowed() {
        let constraint = Constraint::read(&json!({
            "forbiddenSysctls": ["kernel.shm_rmid_forced", "net.core.*"],
            "allowedUnsafeSysctls": ["net.core.somaxconn", "kernel.msg*"],
        }))
        .unwrap();
        for (name, kernel, expected) in [
            ("kernel.shm_rmid_forced", (6, 0), Some("sysctl \"kernel.shm_rmid_forced\" is not allowed")),
            ("net.core.somaxconn", (6, 0), Some("sysctl \"net.core.somaxconn\" is not allowed")),
            ("kernel.msgmax", (6, 0), None),
            ("kernel.sem", (6, 0), Some("unsafe sysctl \"kernel.sem\" is not allowed")),
            ("net.ipv4.tcp_rmem", (4, 15), None),
            ("net.ipv4.tcp_rmem", (4, 14), Some("unsafe sysctl \"net.ipv4.tcp_rmem\" is not allowed")),
        ] {
            let mut problems = Vec::new();
            let sysctl = Sysctl { name: name.into(), value: "1".into() };
            validate(&constraint, kernel, &[sysctl], &mut problems);
            assert_eq!(problems.first().map(|problem| &*problem.detail), expected, "{name}");
            assert!(problems.iter().all(|problem| problem.field() == "pod.spec.securityContext.sysctls[0]"));
        }
    }
}
