//! Reports of namespaces, written with the rights of the manifests into a kind that others installed; and the end of it all.

use palisade_testkit::{command::output, kubernetes::Cluster};
use serde_json::{Value, json};

use crate::{
    install::{OWN_USERS, cluster_with_image, install, until_rolled_out},
    support::{namespace, palisade, privileged_pod},
};

const OPEN_REPORTS: &str = include_str!("../../../../tests/data/reports/openreports.json");
const REPORT: [&str; 4] = ["reports.openreports.io", "-n", "shop", "palisade-pod-security"];
const FIELD: &str = "spec.template.spec.containers[0].securityContext.privileged";

/// A Deployment whose pod was admitted before its namespace got a level.
fn privileged_deployment() -> Value {
    let labels = json!({"app": "agent"});
    let mut template = privileged_pod("agent");
    template["metadata"] = json!({"labels": labels});
    template["spec"]["terminationGracePeriodSeconds"] = json!(0);
    template["spec"]["containers"][0]["command"] = json!(["sleep", "3600"]);
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "agent", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": template["metadata"], "spec": template["spec"]}}})
}

/// What the leading controller exports.
fn metrics(cluster: &Cluster) -> String {
    let pods =
        cluster.get(&["pods", "-n", "palisade-system", "-l", "app.kubernetes.io/component=controller"]);
    let names = pods["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap());
    let read = names.map(|name| {
        let path = format!("/api/v1/namespaces/palisade-system/pods/{name}:8080/proxy/metrics");
        cluster.kubectl(&["get", "--raw", &path]).out
    });
    read.filter(|text| text.contains("palisade_controller_leader 1")).collect()
}

#[test]
fn reports_name_what_violates_and_uninstall_removes_everything() {
    let Some(cluster) = cluster_with_image() else { return };
    cluster.apply(OPEN_REPORTS);
    cluster.apply(&namespace("shop", "privileged").to_string());
    cluster.apply(&privileged_deployment().to_string());
    cluster.until("a pod that runs", || {
        (cluster.get(&["deployment", "-n", "shop", "agent"])["status"]["readyReplicas"] == 1).then_some(())
    });
    cluster.apply(&install(&cluster, &["--cluster"]));
    until_rolled_out(&cluster);
    cluster.apply(&namespace("shop", "baseline").to_string());

    let counts = || {
        let summary = cluster.get(&REPORT)["summary"].clone();
        (summary["fail"].as_u64(), summary["skip"].as_u64())
    };
    cluster.until("a violation in the report", || (counts() == (Some(1), Some(0))).then_some(()));
    let report = cluster.get(&REPORT);
    let first = &report["results"][0];
    assert_eq!(first["resources"][0]["kind"], "Deployment", "{report}");
    assert_eq!(
        (&first["rule"], &first["properties"]["field"]),
        (&json!("privileged"), &json!(FIELD)),
        "{report}"
    );
    let metrics = metrics(&cluster);
    let series =
        metrics.lines().find(|line| line.starts_with("palisade_pod_security_violation{namespace=\"shop\""));
    assert!(
        series.is_some_and(|series| series.contains(FIELD) && series.contains("name=\"agent\"")),
        "{metrics}"
    );

    cluster.apply(
        &json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SecurityException", "metadata": {"name": "agent"}, "spec": {
            "namespaces": ["shop"], "workloads": [{"kind": "Deployment", "name": "agent"}],
            "allow": [{"control": "privileged", "field": "spec.containers[*].securityContext.privileged", "values": ["true"]}],
            "reason": "r", "owner": "o", "ticket": "t", "until": "2999-01-01T00:00:00Z"}})
        .to_string(),
    );
    cluster.until("the finding skipped", || (counts() == (Some(0), Some(1))).then_some(()));
    assert_eq!(cluster.forbidden(OWN_USERS), [""; 0], "requests that the manifests' rights do not allow");

    let removed = output(&mut palisade(&cluster, &["uninstall"])).expect_success();
    assert!(removed.contains("reports.openreports.io deleted"), "{removed}");
    assert!(removed.contains("daemonset.apps/palisade-node deleted"), "{removed}");
    cluster.until("nothing left", || {
        let all = "deployments,daemonsets,services,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,\
                   validatingwebhookconfigurations,validatingadmissionpolicies,reports.openreports.io";
        let left = cluster.kubectl(&["get", all, "-A", "-o", "name"]).out;
        let namespace = cluster.get(&["namespace", "palisade-system"]);
        (!left.contains("palisade") && namespace.is_null()).then_some(())
    });
    // Nothing waits for a webhook that is gone.
    let created = cluster
        .kubectl_with_input(&["create", "-n", "shop", "-f", "-"], &privileged_pod("after").to_string());
    assert_eq!(created.code, 0, "{created:?}");
    let again = output(&mut palisade(&cluster, &["uninstall"])).expect_success();
    assert_eq!(again, "", "a second run finds nothing");
}
