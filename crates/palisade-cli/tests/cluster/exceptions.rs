//! Exceptions on a real API server, with the controllers that make pods.

use palisade_testkit::{
    command::output,
    kubernetes::{Cluster, Parts},
};
use serde_json::{Value, json};

use crate::support::{namespace, palisade, privileged_pod, start_webhook};

fn exception(name: &str, workload: &str, until: &str) -> Value {
    json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SecurityException", "metadata": {"name": name}, "spec": {
        "namespaces": ["web"], "workloads": [{"kind": "Deployment", "name": workload}],
        "allow": [{"control": "privileged", "field": "spec.containers[*].securityContext.privileged", "values": ["true"]}],
        "reason": "r", "owner": "o", "ticket": "t", "until": until,
    }})
}

fn deployment(name: &str) -> Value {
    let spec = privileged_pod(name)["spec"].clone();
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "web"}, "spec": {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
    }})
}

#[test]
fn an_exception_admits_the_pods_of_its_deployment_and_no_others() {
    let flags = ["--disable-admission-plugins=PodSecurity"];
    let Some(mut cluster) = Cluster::start_with(Parts::Controllers, &flags) else { return };
    cluster.apply(&output(&mut palisade(&cluster, &["install", "--components", "crds"])).expect_success());
    start_webhook(&mut cluster, 8443, &[]);
    cluster.apply(&namespace("web", "baseline").to_string());
    for object in [
        exception("current", "excepted", "2999-01-01T00:00:00Z"),
        exception("past", "late", "2020-01-01T00:00:00Z"),
    ] {
        cluster.until("the exception", || {
            let made = cluster.kubectl_with_input(&["apply", "-f", "-"], &object.to_string());
            (made.code == 0).then_some(())
        });
    }
    let rejected =
        cluster.kubectl_with_input(&["apply", "-f", "-"], &exception("endless", "web", "never").to_string());
    assert_eq!(rejected.code, 1, "{rejected:?}");
    for name in ["excepted", "late", "other"] {
        cluster.apply(&deployment(name).to_string());
    }
    let pods = |app: &str| {
        let selector = format!("app={app}");
        let listed =
            cluster.kubectl(&["get", "pods", "--namespace", "web", "--selector", &selector, "--output=name"]);
        listed.expect_success()
    };
    cluster.until("the pod of the exception", || (!pods("excepted").is_empty()).then_some(()));
    for name in ["late", "other"] {
        cluster.until("the rejection of the others", || {
            let path = format!("deployment/{name}");
            let shown =
                cluster.kubectl(&["get", &path, "--namespace", "web", "--output=json"]).expect_success();
            shown.contains("violates PodSecurity").then_some(())
        });
        assert_eq!(pods(name), "", "{name}");
    }
    let forged = {
        let mut pod = privileged_pod("excepted-7d9f-x");
        pod["metadata"]["labels"] = json!({"app": "excepted", "pod-template-hash": "7d9f"});
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "excepted-7d9f",
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "controller": true,
        }]);
        cluster.kubectl_with_input(&["create", "--namespace", "web", "-f", "-"], &pod.to_string())
    };
    assert!(forged.err.contains("violates PodSecurity"), "{forged:?}");
    let reviewed = output(&mut palisade(&cluster, &["exceptions", "--cluster", "-o", "json"]));
    let report: Value = serde_json::from_str(&reviewed.out).unwrap();
    assert_eq!(report["exceptions"][0]["name"], "current", "{report}");
    assert!(report["exceptions"][0]["used"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["exceptions"][1]["state"], "expired", "{report}");
}
