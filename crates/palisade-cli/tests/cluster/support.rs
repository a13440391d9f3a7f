//! What the tests of every area use: the binary beside a cluster, and pods to try.

use std::process::Command;

use palisade_testkit::kubernetes::{Cluster, Started};
use serde_json::{Value, json};

/// The binary, with the administrator's kubeconfig.
pub(crate) fn palisade(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = cluster.command(env!("CARGO_BIN_EXE_palisade"));
    command.args(arguments);
    command
}

/// The URL that a webhook beside a cluster registers; each cluster has an address of its own.
pub(crate) fn webhook_url(cluster: &Cluster, port: u16) -> String {
    format!("https://{}:{port}", cluster.address())
}

/// Starts `palisade webhook --register` beside a cluster and waits until the API server sends pods to it.
pub(crate) fn start_webhook(cluster: &mut Cluster, port: u16, more: &[&str]) -> Started {
    // An installation may have made it, with labels of its own.
    let _ = cluster.kubectl(&["create", "namespace", "palisade-system"]);
    let url = webhook_url(cluster, port);
    let listen = format!("{}:{port}", cluster.address());
    let mut command = palisade(cluster, &["webhook", "--register", "--url", &url, "--listen", &listen]);
    let started = cluster.spawn("palisade-webhook", command.args(more));
    until_registered(cluster);
    started
}

/// Waits until the API server sends pods to the webhook: its registration is there, and has reached the API server's cache.
pub(crate) fn until_registered(cluster: &Cluster) {
    let probe = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "palisade-probe",
        "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    cluster.apply(&probe.to_string());
    cluster.until("registration in effect", || {
        let validating = cluster.get(&["validatingwebhookconfiguration", "palisade"]);
        let mutating = cluster.get(&["mutatingwebhookconfiguration", "palisade"]);
        (validating["webhooks"].is_array() && mutating["webhooks"].is_array()).then_some(())
    });
    // A request that the webhook denies names the webhook; the API server's own plugin does not.
    cluster.until("a pod denied by the webhook", || {
        let mut pod = privileged_pod("probe");
        pod["metadata"]["namespace"] = json!("palisade-probe");
        let created =
            cluster.kubectl_with_input(&["create", "--dry-run=server", "-f", "-"], &pod.to_string());
        created.err.contains("admission webhook").then_some(())
    });
}

/// A namespace with a level that is enforced.
pub(crate) fn namespace(name: &str, level: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": level}}})
}

/// A pod that baseline rejects.
pub(crate) fn privileged_pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "localhost/busybox:1", "securityContext": {"privileged": true}}]}})
}

/// A pod that restricted admits, and that runs until it is deleted.
pub(crate) fn restricted_pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "localhost/busybox:1", "command": ["sleep", "3600"],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}})
}
