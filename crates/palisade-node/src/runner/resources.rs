//! Amounts of CPU and memory, in the runtime's units.
//!
//! Implements: the kubelet's `generateLinuxContainerResources` and QoS classes (`pkg/kubelet/cm/helpers_linux.go`, `pkg/kubelet/qos/policy.go`).

use palisade_base::quantity::Quantity;
use serde_json::Value;

use crate::{
    cri::proto::LinuxContainerResources,
    pod::{Container, RunPod},
};

/// A quantity in thousandths; `None` if it is not one.
#[must_use]
pub fn milli(quantity: &Value) -> Option<i64> {
    match quantity {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
    .map(Quantity::milli)
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

/// A container's share of the node, as the runtime takes it.
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
            (json!("129e6"), Some(129_000_000_000)),
            (json!("129M"), Some(129_000_000_000)),
            (json!("1E3"), Some(1_000_000)),
            (json!("1e-3"), Some(1)),
            (json!("100n"), Some(1)),
            (json!("1Ei"), Some(i64::MAX)),
            (json!("+1"), Some(1000)),
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
