//! In which order constraints are tried, and why one comes before another.
//!
//! Implements: OpenShift, "About security context constraints", "SCC prioritization": higher priority first, then
//! the more restrictive one by a fixed score, then the name.

use std::cmp::Ordering;

use super::constraint::{ANY, Constraint};

const PRIVILEGED: i64 = 1_600_000;
const HOST_PORTS: i64 = 800_000;
const HOST_NETWORK: i64 = 400_000;
const HOST_VOLUMES: i64 = 200_000;
const OTHER_VOLUMES: i64 = 100_000;

/// Weights above those of the strategies, heaviest first, with what their absence forbids. Each outweighs the sum
/// of all that follow, which is what lets a reason be read off two sums.
const FORBIDS: [(i64, &str); 5] = [
    (PRIVILEGED, "forbids privileged"),
    (HOST_PORTS, "forbids host ports"),
    (HOST_NETWORK, "forbids host networking"),
    (HOST_VOLUMES, "forbids host volume mounts"),
    (OTHER_VOLUMES, "forbids non-trivial volume mounts"),
];

/// One step of a strategy; the score of capabilities stays below it.
const STRATEGY_STEP: i64 = 10_000;

/// How much a constraint allows: fewer points, more restrictive.
#[must_use]
pub fn points(constraint: &Constraint) -> i64 {
    let mut points = 0;
    if constraint.allow_privileged_container {
        points += PRIVILEGED;
    }
    if constraint.allow_host_ports {
        points += HOST_PORTS;
    }
    if constraint.allow_host_network {
        points += HOST_NETWORK;
    }
    points
        + volume_points(constraint)
        + strategy_points(&constraint.se_linux_context.kind)
        + strategy_points(&constraint.run_as_user.kind)
        + capability_points(constraint)
}

fn volume_points(constraint: &Constraint) -> i64 {
    const TRIVIAL: [&str; 6] = ["secret", "configMap", "emptyDir", "downwardAPI", "projected", "none"];
    let volumes = constraint.volumes();
    if volumes.iter().any(|volume| volume == "hostPath" || volume == ANY) {
        HOST_VOLUMES
    } else if volumes.iter().any(|volume| !TRIVIAL.contains(&volume.as_str())) {
        OTHER_VOLUMES
    } else {
        0
    }
}

fn strategy_points(kind: &str) -> i64 {
    match kind {
        "RunAsAny" => 4 * STRATEGY_STEP,
        "MustRunAsNonRoot" => 3 * STRATEGY_STEP,
        "MustRunAsRange" => 2 * STRATEGY_STEP,
        "MustRunAs" => STRATEGY_STEP,
        _ => 0,
    }
}

fn capability_points(constraint: &Constraint) -> i64 {
    // Here, and nowhere else, capabilities are compared without regard to case.
    let has = |list: &[String], name: &str| list.iter().any(|own| own.eq_ignore_ascii_case(name));
    let count = |list: &[String]| i64::try_from(list.len()).unwrap_or(i64::MAX);
    let allowed = &constraint.allowed_capabilities;
    let dropped = &constraint.required_drop_capabilities;
    let added = count(&constraint.default_add_capabilities).saturating_mul(300);
    let allowed =
        if has(allowed, ANY) || has(allowed, "ALL") { 4000 } else { count(allowed).saturating_mul(10) };
    let dropped = if has(dropped, "ALL") { 3000 } else { count(dropped).saturating_mul(50) };
    5000_i64.saturating_add(added).saturating_add(allowed).saturating_sub(dropped).clamp(0, STRATEGY_STEP - 1)
}

/// The place of a constraint among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank<'s> {
    priority: i32,
    points: i64,
    name: &'s str,
}

impl<'s> Rank<'s> {
    /// The rank of a constraint.
    #[must_use]
    pub fn of(constraint: &'s Constraint) -> Self {
        Self {
            priority: constraint.priority.unwrap_or(0),
            points: points(constraint),
            name: constraint.name(),
        }
    }

    /// Why this one stands where it stands, seen from the other: a clause that follows its name.
    #[must_use]
    pub fn reason_over(&self, other: &Self) -> &'static str {
        match self.priority.cmp(&other.priority) {
            Ordering::Greater => return "has higher priority",
            Ordering::Less => return "has lower priority",
            Ordering::Equal => {}
        }
        match self.points.cmp(&other.points) {
            Ordering::Less => less_points(self.points, other.points),
            Ordering::Greater => less_points(other.points, self.points),
            Ordering::Equal => "ordered by name",
        }
    }
}

impl PartialOrd for Rank<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .priority
            .cmp(&self.priority)
            .then(self.points.cmp(&other.points))
            .then_with(|| self.name.cmp(other.name))
    }
}

/// What the constraint with fewer points does not allow.
fn less_points(mut fewer: i64, mut more: i64) -> &'static str {
    for (weight, forbids) in FORBIDS {
        if more >= weight {
            if fewer < weight {
                return forbids;
            }
            fewer -= weight;
            more -= weight;
        }
    }
    if fewer / STRATEGY_STEP < more / STRATEGY_STEP {
        "permits less runAs strategies"
    } else if fewer % STRATEGY_STEP < more % STRATEGY_STEP {
        "permits less capabilities"
    } else {
        "is equally restrictive"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Constraint, Rank, points};

    fn constraint(name: &str, mut fields: Value) -> Constraint {
        fields["metadata"] = json!({"name": name});
        Constraint::read(&fields).unwrap()
    }

    #[test]
    fn scores_every_part() {
        for (case, fields, expected) in [
            ("no fields", json!({}), 5000),
            (
                "all of the host",
                json!({"allowPrivilegedContainer": true, "allowHostPorts": true,
                "allowHostNetwork": true, "volumes": ["*"]}),
                3_005_000,
            ),
            ("host volumes", json!({"volumes": ["secret", "hostPath"]}), 205_000),
            ("trivial volumes", json!({"volumes": ["secret", "projected", "none"]}), 5000),
            ("other volumes", json!({"volumes": ["secret", "csi"]}), 105_000),
            (
                "strategies",
                json!({"runAsUser": {"type": "MustRunAsRange"},
                "seLinuxContext": {"type": "RunAsAny"}}),
                65_000,
            ),
            ("an unknown strategy", json!({"runAsUser": {"type": "Whatever"}}), 5000),
            (
                "capabilities",
                json!({"allowedCapabilities": ["A", "B"], "defaultAddCapabilities": ["C"],
                "requiredDropCapabilities": ["D", "E", "F"]}),
                5170,
            ),
            (
                "all of them, in any case",
                json!({"allowedCapabilities": ["all"],
                "requiredDropCapabilities": ["All"]}),
                6000,
            ),
            (
                "never above its part",
                json!({"allowedCapabilities": ["*"],
                "defaultAddCapabilities": ["A", "B", "C", "D", "E"]}),
                9999,
            ),
        ] {
            assert_eq!(points(&constraint("x", fields)), expected, "{case}");
        }
    }

    #[test]
    fn reports_why() {
        let base = || constraint("b", json!({}));
        for (first, second, reason) in [
            (constraint("z", json!({"priority": 1, "allowHostPorts": true})), base(), "has higher priority"),
            (base(), constraint("a", json!({"allowPrivilegedContainer": true})), "forbids privileged"),
            (base(), constraint("a", json!({"volumes": ["nfs"]})), "forbids non-trivial volume mounts"),
            (
                constraint("a", json!({"volumes": ["nfs"]})),
                constraint("a", json!({"volumes": ["*"]})),
                "forbids host volume mounts",
            ),
            (
                base(),
                constraint("a", json!({"runAsUser": {"type": "RunAsAny"}})),
                "permits less runAs strategies",
            ),
            (base(), constraint("a", json!({"allowedCapabilities": ["X"]})), "permits less capabilities"),
            (constraint("a", json!({})), base(), "ordered by name"),
        ] {
            let (first, second) = (Rank::of(&first), Rank::of(&second));
            assert!(first < second, "{reason}");
            assert_eq!(first.reason_over(&second), reason);
        }
    }
}
