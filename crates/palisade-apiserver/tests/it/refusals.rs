//! What upstream refuses and in which words, where no recording looks.

use palisade_apiserver::Server;
use serde_json::{Value, json};

use crate::support::{admin, send, start};

async fn server() -> Server {
    start(Server::builder().controllers(false).disable_plugins(["ServiceAccount".to_owned()])).await
}

/// Creates an object in a dry run; the message without its beginning, up to the first colon after `is invalid`.
async fn refusal(server: &Server, path: &str, object: &Value) -> String {
    let answer = send(&admin(server), "POST", path, object).await;
    let message = answer.body["message"].as_str().unwrap_or_default();
    let (_, why) = message.split_once("is invalid: ").unwrap_or(("", message));
    format!("{} {why}", answer.code)
}

#[tokio::test]
async fn workloads() {
    let server = server().await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let workload = |kind: &str, name: &str, spec: Value| {
        let mut spec = spec;
        spec["template"] = template.clone();
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
    };
    let mismatch = "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`";
    for (case, resource, object, expected) in [
        (
            "no selector selects nothing",
            "deployments",
            workload("Deployment", "x", json!({})),
            format!("422 [spec.selector: Required value, {mismatch}]"),
        ),
        (
            "not even in a daemon set, whose message does not list it",
            "daemonsets",
            workload("DaemonSet", "x", json!({})),
            format!("422 {mismatch}"),
        ),
        (
            "a selector that cannot be used",
            "replicasets",
            workload(
                "ReplicaSet",
                "x",
                json!({"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "No"}]}}),
            ),
            "422 [spec.selector.matchExpressions[0].operator: Invalid value: \"No\": not a valid selector operator, \
             spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"},\"matchExpressions\":[{\"key\":\"k\",\"operator\":\"No\"}]}: \
             invalid label selector]"
                .to_owned(),
        ),
        (
            "an unknown strategy, as the internal type prints it",
            "deployments",
            workload("Deployment", "x", json!({"selector": selector, "strategy": {"type": "No"}})),
            "422 spec.strategy: Unsupported value: {\"Type\":\"No\",\"RollingUpdate\":null}: supported values: \
             \"Recreate\", \"RollingUpdate\""
                .to_owned(),
        ),
        (
            "a daemon set that may not lose a pod",
            "daemonsets",
            workload(
                "DaemonSet",
                "x",
                json!({"selector": selector, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}),
            ),
            "422 spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"
                .to_owned(),
        ),
        (
            "claims that are neither kept nor deleted",
            "statefulsets",
            workload(
                "StatefulSet",
                "x",
                json!({"selector": selector, "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "No", "whenScaled": "Delete"}}),
            ),
            "422 spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: \"No\": supported values: \
             \"Retain\", \"Delete\""
                .to_owned(),
        ),
    ] {
        let path = format!("/apis/apps/v1/namespaces/default/{resource}?dryRun=All");
        assert_eq!(refusal(&server, &path, &object).await, expected, "{case}");
    }
    let dotted = workload("StatefulSet", "x.y", json!({"selector": selector}));
    let answer = refusal(&server, "/apis/apps/v1/namespaces/default/statefulsets?dryRun=All", &dotted).await;
    assert!(answer.starts_with("422 metadata.name: Invalid value: \"x.y\""), "{answer}");
}

#[tokio::test]
async fn definitions() {
    let server = server().await;
    let definition = |group: &str, change: &Value| {
        let mut spec = json!({
            "group": group, "names": {"kind": "Foo", "plural": "foos"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        });
        for (pointer, value) in change.as_object().into_iter().flatten() {
            match pointer.strip_prefix('/') {
                Some(_) => {
                    let (parent, key) = pointer.rsplit_once('/').expect("a place");
                    spec.pointer_mut(parent).expect("a place")[key] = value.clone();
                }
                None => spec[pointer] = value.clone(),
            }
        }
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": format!("foos.{group}")}, "spec": spec})
    };
    for (group, change, expected) in [
        ("ex.com", json!({}), "201 "),
        (
            "ex.com",
            json!({"/versions/0/storage": false}),
            "422 spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\
             \"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\
             \"SelectableFields\":null}]: must have exactly one version marked as storage version",
        ),
        (
            "ex.com",
            json!({"/versions/0/subresources": {"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".status.r"}}}),
            "422 spec.subresources.scale.specReplicasPath: Invalid value: \".x\": should be a json path under .spec",
        ),
        (
            "ex.com",
            json!({"conversion": {"strategy": "Webhook"}}),
            "422 [spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook, \
             spec.conversion.conversionReviewVersions: Required value]",
        ),
        (
            "ex.com",
            json!({"preserveUnknownFields": true}),
            "422 spec.preserveUnknownFields: Invalid value: true: must be false",
        ),
        (
            "x.k8s.io",
            json!({}),
            "422 metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval \
             annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ),
    ] {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
        assert_eq!(refusal(&server, path, &definition(group, &change)).await, expected, "{change}");
    }
}

#[tokio::test]
async fn references_and_taints_are_shown_in_the_order_of_their_types() {
    let server = server().await;
    let owner =
        |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "1", "controller": true});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                       "metadata": {"name": "a", "ownerReferences": [owner("x"), owner("y")]}});
    let answer = refusal(&server, "/api/v1/namespaces/default/configmaps?dryRun=All", &object).await;
    let shown = r#"[{"apiVersion":"v1","kind":"Pod","name":"x","uid":"1","controller":true},"#;
    assert!(answer.contains(shown), "{answer}");
    let taint = json!({"key": "k", "effect": "NoSchedule"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": [taint, taint]}});
    assert_eq!(
        refusal(&server, "/api/v1/nodes?dryRun=All", &node).await,
        "422 metadata.taints[1]: Duplicate value: {\"Key\":\"k\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}"
    );
}
