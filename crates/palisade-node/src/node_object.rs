//! The node object: what this node is and what it supports, for the scheduler, for people and for policies.
//!
//! Implements: `core/v1` Node as far as a kubelet fills it, and labels of our own for seccomp and AppArmor, so that a pod
//! can request a node that can confine it (`nodeSelector`).

use std::{collections::BTreeMap, path::Path};

use jiff::Timestamp;
use palisade_model::server_version::kubelet_version;
use serde_json::{Value, json};

use crate::{
    cri::proto::{RuntimeCondition, RuntimeHandler},
    kernel::probe::NodeFeatures,
    node::Node,
    runner::status::seconds,
};

/// Prefix of the labels for what the node supports.
pub const LABEL_PREFIX: &str = "node.palisade.dev/";

/// The labels for what a node supports.
#[must_use]
pub fn labels(features: &NodeFeatures, config_map_profiles: bool) -> BTreeMap<String, String> {
    let runtime_confines = features.app_armor && features.runtime_disables_app_armor != Some(true);
    let mut labels = BTreeMap::new();
    let mut label = |name: &str, value: String| labels.insert(format!("{LABEL_PREFIX}{name}"), value);
    label("seccomp", features.seccomp().to_string());
    label("seccomp-configmaps", (config_map_profiles && features.seccomp()).to_string());
    label("apparmor", runtime_confines.to_string());
    label("selinux", features.selinux.to_string());
    for action in &features.seccomp_actions {
        // The kernel's words for actions are label-safe: lower case and underscores.
        label(&format!("seccomp-action.{action}"), "true".to_owned());
    }
    labels
}

/// This machine, as Go names it.
#[must_use]
pub fn machine() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The node object.
#[must_use]
pub fn node_object(node: &Node, answered: bool, conditions: &[RuntimeCondition], now: Timestamp) -> Value {
    let features = node.features();
    let config = &node.config;
    let designs = matches!(config.compat.kubelet, palisade_base::version::KubeVersion::Designs);
    let mut all = labels(&features, designs && config.compat.gates.seccomp_config_maps);
    for (key, value) in [
        ("kubernetes.io/hostname", config.node_name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", machine()),
    ] {
        all.insert(key.to_owned(), value.to_owned());
    }
    let holds = |kind: &str| conditions.iter().find(|condition| condition.r#type == kind);
    let runtime_ready = answered && holds("RuntimeReady").is_none_or(|condition| condition.status);
    let network_ready = holds("NetworkReady").is_none_or(|condition| condition.status);
    let condition = |kind: &str, status: bool, reason: &str, message: &str| {
        json!({"type": kind, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
            "lastHeartbeatTime": seconds(now), "lastTransitionTime": seconds(now)})
    };
    let ready = if runtime_ready {
        condition("Ready", true, "KubeletReady", "the agent is posting ready status")
    } else {
        condition("Ready", false, "KubeletNotReady", "container runtime is down")
    };
    let network = if network_ready {
        condition("NetworkUnavailable", false, "RuntimeNetworkReady", "the runtime's network is ready")
    } else {
        condition(
            "NetworkUnavailable",
            true,
            "NoNetwork",
            "the runtime has no network: pods need hostNetwork",
        )
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut capacity =
        json!({"cpu": cpus.to_string(), "memory": format!("{}Ki", node.memory() / 1024), "pods": "110"});
    if let (Some(bytes), Value::Object(fields)) = (storage(&config.root_dir), &mut capacity) {
        fields.insert("ephemeral-storage".to_owned(), format!("{}Ki", bytes / 1024).into());
    }
    let version = kubelet_version(config.compat.kubelet);
    let mut object = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": config.node_name, "labels": all, "annotations": {
            "node.palisade.dev/features": serde_json::to_string(&features).unwrap_or_default()}},
        "status": {"capacity": capacity, "allocatable": capacity,
            "conditions": [ready, network,
                condition("MemoryPressure", false, "KubeletHasSufficientMemory", "enough memory available"),
                condition("DiskPressure", false, "KubeletHasNoDiskPressure", "enough disk available"),
                condition("PIDPressure", false, "KubeletHasSufficientPID", "enough process ids available")],
            "addresses": [{"type": "InternalIP", "address": config.host_ip},
                {"type": "Hostname", "address": config.node_name}],
            "nodeInfo": {"kernelVersion": features.kernel, "osImage": os_image(), "operatingSystem": "linux",
                "architecture": machine(), "kubeletVersion": version, "kubeProxyVersion": "",
                "containerRuntimeVersion": format!("{}://{}", features.runtime_name, features.runtime_version),
                "machineID": "", "systemUUID": "", "bootID": ""}}});
    if let Some(Value::Object(status)) = object.get_mut("status") {
        status.extend(runtime_features(&features, config.compat.kubelet.minor()));
    }
    object
}

/// What the runtime and its handlers support, as a kubelet of a release reports it.
fn runtime_features(features: &NodeFeatures, minor: u16) -> Vec<(String, Value)> {
    let of_handler = |handler: &RuntimeHandler| {
        let features = handler.features.clone().unwrap_or_default();
        json!({"name": handler.name, "features": {"recursiveReadOnlyMounts": features.recursive_read_only_mounts,
            "userNamespaces": features.user_namespaces}})
    };
    let mut fields = Vec::new();
    if minor >= 30 && !features.handlers.is_empty() {
        let handlers: Vec<Value> = features.handlers.iter().map(of_handler).collect();
        fields.push(("runtimeHandlers".to_owned(), handlers.into()));
    }
    if minor >= 31 {
        let policy = features.supplemental_groups_policy;
        fields.push(("features".to_owned(), json!({"supplementalGroupsPolicy": policy})));
    }
    fields
}

/// The object without what changes at every heartbeat.
#[must_use]
pub fn without_times(node: &Value) -> Value {
    let mut node = node.clone();
    for condition in
        node.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten()
    {
        if let Value::Object(fields) = condition {
            fields.remove("lastHeartbeatTime");
            fields.remove("lastTransitionTime");
        }
    }
    node
}

/// Size of the file system that holds what pods write, or will once the folder is there.
pub(crate) fn storage(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let found = rustix::fs::statvfs(there).ok()?;
    Some(found.f_blocks.saturating_mul(found.f_frsize))
}

fn os_image() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_features_are_reported_since_their_release() {
        use crate::cri::proto::RuntimeHandlerFeatures;
        let with = RuntimeHandlerFeatures { user_namespaces: true, ..Default::default() };
        let handlers = vec![RuntimeHandler { name: String::new(), features: Some(with) }];
        let full = NodeFeatures { supplemental_groups_policy: true, handlers, ..Default::default() };
        let handlers =
            json!([{"name": "", "features": {"recursiveReadOnlyMounts": false, "userNamespaces": true}}]);
        for (case, features, minor, expected) in [
            ("before both", &full, 29, json!({})),
            ("handlers", &full, 30, json!({"runtimeHandlers": handlers})),
            (
                "both",
                &full,
                31,
                json!({"runtimeHandlers": handlers, "features": {"supplementalGroupsPolicy": true}}),
            ),
            (
                "an old runtime",
                &NodeFeatures::default(),
                37,
                json!({"features": {"supplementalGroupsPolicy": false}}),
            ),
        ] {
            let found: serde_json::Map<String, Value> =
                runtime_features(features, minor).into_iter().collect();
            assert_eq!(Value::Object(found), expected, "{case}");
        }
    }

    #[test]
    fn storage_is_that_of_the_folder_that_will_hold_it() {
        let temp = tempfile::tempdir().unwrap();
        let size = storage(temp.path()).unwrap();
        assert!(size > 0);
        assert_eq!(storage(&temp.path().join("not/there/yet")), Some(size));
        assert_eq!(storage(Path::new("")), None);
    }

    #[test]
    fn labels_name_what_can_be_enforced() {
        let mut features =
            NodeFeatures { seccomp_actions: vec!["log".into()], app_armor: true, ..Default::default() };
        let found = |features: &NodeFeatures, key: &str| {
            labels(features, true)[&format!("node.palisade.dev/{key}")].clone()
        };
        assert_eq!(found(&features, "seccomp"), "true");
        assert_eq!(found(&features, "seccomp-action.log"), "true");
        assert_eq!(found(&features, "apparmor"), "true");
        features.runtime_disables_app_armor = Some(true);
        assert_eq!(found(&features, "apparmor"), "false", "a runtime that does not apply it is no support");
        features.seccomp_actions.clear();
        assert_eq!(found(&features, "seccomp-configmaps"), "false");
    }
}
