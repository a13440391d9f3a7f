//! Amounts of CPU and memory, as the runtime wants them.
//!
//! Implements: Kubernetes quantities as far as pods use them, and the kubelet's `generateLinuxContainerResources` and
//! QoS classes (`pkg/kubelet/cm/helpers_linux.go`, `pkg/kubelet/qos/policy.go`).

use serde_json::Value;

use crate::{
    cri::proto::LinuxContainerResources,
    pod::{Container, RunPod},
};

/// A quantity in thousandths; `None` if it is not one.
#[must_use]
pub fn milli(quantity: &Value) -> Option<i64> {
    let text = match quantity {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let amount: f64 = digits.parse().ok()?;
    let factor = match suffix {
        "m" => 0.001,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        "Ti" => 1_099_511_627_776.0,
        "Pi" => 1_125_899_906_842_624.0,
        _ => return None,
    };
    let milli = (amount * factor * 1000.0).ceil();
    // A conversion of a float saturates; quantities beyond are nonsense anyway.
    #[allow(clippy::cast_possible_truncation, reason = "saturates, as wanted")]
    let whole = milli as i64;
    Some(whole)
}

/// The classes of service, by which the kernel chooses whom to kill first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the API's own")]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// The class of a pod.
#[must_use]
pub fn qos_class(pod: &RunPod) -> QosClass {
    let containers = || pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let amount = |map: &std::collections::BTreeMap<String, Value>, name: &str| {
        map.get(name).and_then(milli).filter(|&milli| milli > 0)
    };
    let nothing = containers().all(|container| {
        ["cpu", "memory"].iter().all(|name| {
            amount(&container.resources.requests, name).is_none()
                && amount(&container.resources.limits, name).is_none()
        })
    });
    if nothing {
        return QosClass::BestEffort;
    }
    let guaranteed = containers().all(|container| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = amount(&container.resources.limits, name);
            let request = amount(&container.resources.requests, name);
            limit.is_some() && (request.is_none() || request == limit)
        })
    });
    if guaranteed { QosClass::Guaranteed } else { QosClass::Burstable }
}

/// What the runtime is told about a container's share of the node.
#[must_use]
pub fn linux_resources(pod: &RunPod, container: &Container, node_memory: i64) -> LinuxContainerResources {
    const PERIOD: i64 = 100_000;
    let get = |map: &std::collections::BTreeMap<String, Value>, name: &str| map.get(name).and_then(milli);
    let limits = &container.resources.limits;
    let requests = &container.resources.requests;
    let cpu_limit = get(limits, "cpu").unwrap_or_default();
    let cpu_request = get(requests, "cpu").or_else(|| get(limits, "cpu")).unwrap_or_default();
    let memory_limit = get(limits, "memory").unwrap_or_default() / 1000;
    let memory_request = get(requests, "memory").or_else(|| get(limits, "memory")).unwrap_or_default() / 1000;
    LinuxContainerResources {
        cpu_shares: (cpu_request.saturating_mul(1024) / 1000).clamp(2, 262_144),
        cpu_period: if cpu_limit > 0 { PERIOD } else { 0 },
        cpu_quota: if cpu_limit > 0 { (cpu_limit.saturating_mul(PERIOD) / 1000).max(1000) } else { 0 },
        memory_limit_in_bytes: memory_limit,
        oom_score_adj: match qos_class(pod) {
            QosClass::Guaranteed => -997,
            QosClass::BestEffort => 1000,
            QosClass::Burstable if node_memory <= 0 => 999,
            QosClass::Burstable => {
                let share = memory_request.saturating_mul(1000) / node_memory;
                (1000 - share).clamp(3, 999)
            }
        },
        ..LinuxContainerResources::default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_have_many_spellings() {
        for (quantity, expected) in [
            (json!("100m"), Some(100)),
            (json!("0.5"), Some(500)),
            (json!(2), Some(2000)),
            (json!("1Gi"), Some(1_073_741_824_000)),
            (json!("1k"), Some(1_000_000)),
            (json!("x"), None),
            (json!("1X"), None),
            (json!(null), None),
            (json!(""), None),
        ] {
            assert_eq!(milli(&quantity), expected, "{quantity}");
        }
    }

    #[test]
    fn classes_and_amounts_follow_the_kubelet() {
        for (case, resources, class, shares, quota, oom) in [
            ("nothing", json!({}), QosClass::BestEffort, 2, 0, 1000),
            (
                "equal limits and requests",
                json!({"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}),
                QosClass::Guaranteed,
                512,
                50_000,
                -997,
            ),
            (
                "requests only",
                json!({"requests": {"cpu": "1", "memory": "1Gi"}}),
                QosClass::Burstable,
                1024,
                0,
                750,
            ),
            ("tiny quota", json!({"limits": {"cpu": "1m"}}), QosClass::Burstable, 2, 1000, 999),
        ] {
            let pod = RunPod::from_object(json!({"metadata": {"name": "p"}, "spec": {"containers":
                [{"name": "c", "image": "i", "resources": resources}]}}))
            .unwrap();
            assert_eq!(qos_class(&pod), class, "{case}");
            let found = linux_resources(&pod, &pod.spec.containers[0], 4 << 30);
            assert_eq!(
                (found.cpu_shares, found.cpu_quota, found.oom_score_adj),
                (shares, quota, oom),
                "{case}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_quantity_makes_it_panic(text in ".{0,24}") {
            let value = Value::String(text);
            let _ = milli(&value);
        }
    }
}
