//! Fail fast: workloads whose pods would be rejected, on the embedded API server with its own admission.

use palisade_apiserver::Server;
use palisade_webhook::{Options, fail_fast::FailFastMode};
use serde_json::{Value, json};

use crate::support::{Caller, about, cluster, eventually, options, start};

fn deployment(spec: &Value) -> Value {
    let mut template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (key, value) in spec.as_object().unwrap() {
        template["spec"][key] = value.clone();
    }
    json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
}

#[tokio::test]
async fn a_workload_is_answered_with_what_its_pods_would_meet() {
    let cluster = cluster(Server::builder().disable_plugins(["ServiceAccount".to_owned()])).await;
    for (name, mode) in
        [("default-mode", None), ("warned", Some("warn")), ("refused", Some("refuse")), ("off", Some("off"))]
    {
        cluster.namespace(name, &[("enforce", "baseline")]).await;
        if let Some(mode) = mode {
            let label = json!({"metadata": {"labels": {"palisade.dev/fail-fast": mode}}});
            cluster.send("PATCH", &format!("/api/v1/namespaces/{name}"), &label).await.unwrap();
        }
    }
    let webhook = start(&cluster, Options { fail_fast: Some(FailFastMode::Warn), ..options() }).await;
    let caller = Caller::of(&webhook);
    let look = async |namespace: &str, object: &Value| {
        let request = about("apps", "deployments", "Deployment", namespace, object);
        caller.review("/validate", &request).await
    };
    let rejected = "pods of this Deployment would be rejected: pods \"web-";
    let violated = "violates PodSecurity \"baseline:latest\": host namespaces";
    // What Pod Security itself warns about a workload is another matter.
    let met = |response: &Value| -> Option<String> {
        let warnings = response["warnings"].as_array().into_iter().flatten();
        let texts = warnings.chain([&response["status"]["message"]]).filter_map(Value::as_str);
        texts.filter(|text| text.contains("pods of this Deployment")).map(str::to_owned).next()
    };
    let bad = deployment(&json!({"hostPID": true}));
    for (namespace, allowed, reported) in
        [("default-mode", true, true), ("warned", true, true), ("refused", false, true), ("off", true, false)]
    {
        eventually("the label", async || {
            let response = look(namespace, &bad).await;
            response["allowed"] == allowed && met(&response).is_some() == reported
        })
        .await;
        if let Some(text) = met(&look(namespace, &bad).await) {
            assert!(text.starts_with(rejected) && text.contains(violated), "{text}");
        }
        let response = look(namespace, &deployment(&json!({}))).await;
        assert_eq!((&response["allowed"], met(&response)), (&json!(true), None), "{namespace}: {response}");
    }
    // No pods for now, an update that leaves the template, a ReplicaSet that the controller of Deployments makes.
    let mut idle = bad.clone();
    idle["spec"]["replicas"] = json!(0);
    let response = look("refused", &idle).await;
    assert_eq!((&response["allowed"], met(&response).is_some()), (&json!(true), true), "{response}");
    let mut update = about("apps", "deployments", "Deployment", "refused", &bad);
    update["operation"] = json!("UPDATE");
    update["oldObject"] = bad.clone();
    assert_eq!(caller.review("/validate", &update).await["allowed"], true);
    let mut owned = bad.clone();
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": true}]);
    let mut request = about("apps", "replicasets", "ReplicaSet", "refused", &owned);
    let made_up = caller.review("/validate", &request).await;
    assert_eq!(made_up["allowed"], false, "an owner that a user writes: {made_up}");
    request["userInfo"]["username"] = json!("system:serviceaccount:kube-system:deployment-controller");
    assert_eq!(caller.review("/validate", &request).await["allowed"], true);
    // What is missing may be applied next.
    let later = deployment(&json!({"priorityClassName": "comes-later"}));
    let response = look("refused", &later).await;
    assert_eq!(response["allowed"], true, "{response}");
    let pods = cluster.get("/api/v1/namespaces/refused/pods").await.unwrap();
    assert_eq!(pods["items"], json!([]), "nothing was created");
}
