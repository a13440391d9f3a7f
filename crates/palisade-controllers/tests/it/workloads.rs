//! The workload controllers on the embedded API server, in this process.

use std::{sync::Arc, time::Duration};

use kube::Client;
use palisade_apiserver::{Server, auth::UserInfo};
use palisade_controllers::workloads::{
    self,
    selection::{NAMES, Selection},
};
use serde_json::{Value, json};
use tower::ServiceBuilder;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind).body(body);
    client.request(request.unwrap()).await.unwrap()
}

async fn until(client: &Client, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let looking = async {
        loop {
            let found = send(client, "GET", path, &Value::Null).await;
            if wanted(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), looking)
        .await
        .unwrap_or_else(|_| panic!("{path} does not change"))
}

fn count(list: &Value) -> usize {
    list["items"].as_array().map_or(0, Vec::len)
}

fn set(name: &str, replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

/// A server with the controllers, and its administrator.
fn cluster() -> (Client, tokio::task::JoinHandle<()>) {
    let router = Server::builder().disable_plugins(["ServiceAccount".to_owned()]).router().unwrap();
    let admin = Client::new(router.clone(), "default");
    let client = move |account: &str| match account {
        "" => Client::new(router.clone(), "default"),
        name => Client::new(router.as_user(UserInfo::service_account("kube-system", name, "")), "default"),
    };
    let running = tokio::spawn(workloads::run(client, Selection::default()));
    (admin, running)
}

#[tokio::test]
async fn a_replica_set_has_as_many_pods_as_it_wants() {
    let (client, running) = cluster();
    send(&client, "POST", SETS, &set("web", 100)).await;
    let pods = until(&client, PODS, |pods| count(pods) == 100).await;
    assert_eq!(pods["items"][0]["metadata"]["ownerReferences"][0]["name"], "web");
    until(&client, &format!("{SETS}/web"), |set| set["status"]["replicas"] == 100).await;
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let chosen = pods["items"][7]["metadata"]["name"].as_str().unwrap().to_owned();
    send(&client, "PATCH", &format!("{PODS}/{chosen}/status"), &ready).await;
    until(&client, &format!("{SETS}/web"), |set| set["status"]["availableReplicas"] == 1).await;
    send(&client, "PATCH", &format!("{SETS}/web"), &json!({"spec": {"replicas": 1}})).await;
    let left = until(&client, PODS, |pods| count(pods) == 1).await;
    assert_eq!(left["items"][0]["metadata"]["name"], chosen.as_str(), "the one that is ready stays");
    running.abort();
}

fn deployment(image: &str, replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

/// Reports every pod as ready.
async fn run_pods(client: &Client) {
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let pods = send(client, "GET", PODS, &Value::Null).await;
    for pod in pods["items"].as_array().unwrap() {
        let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
        // It may have been deleted since it was listed.
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        let _ = client.request::<Value>(request.body(ready.to_string().into_bytes()).unwrap()).await;
    }
}

#[tokio::test]
async fn a_deployment_replaces_its_replica_set_and_keeps_the_old_one() {
    let (client, running) = cluster();
    send(&client, "POST", DEPLOYMENTS, &deployment("a", 4)).await;
    until(&client, PODS, |pods| count(pods) == 4).await;
    let path = format!("{DEPLOYMENTS}/web");
    let is_complete = |one: &Value| {
        let progress = one["status"]["conditions"].as_array().into_iter().flatten();
        let mut progress = progress.filter(|condition| condition["type"] == "Progressing");
        one["status"]["observedGeneration"] == one["metadata"]["generation"]
            && progress.any(|condition| condition["reason"] == "NewReplicaSetAvailable")
    };
    run_pods(&client).await;
    let first = until(&client, &path, is_complete).await;
    assert_eq!(first["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");

    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "b"}]}}}});
    send(&client, "PATCH", &path, &image).await;
    let rolling = async {
        loop {
            run_pods(&client).await;
            let found = send(&client, "GET", &path, &Value::Null).await;
            if is_complete(&found)
                && found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
            {
                return;
            }
            assert!(
                count(&send(&client, "GET", PODS, &Value::Null).await) <= 5,
                "more than the surge allows"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), rolling).await.expect("the rollout completes");
    let pods = until(&client, PODS, |pods| count(pods) == 4).await;
    let images = pods["items"].as_array().unwrap().iter().map(|pod| &pod["spec"]["containers"][0]["image"]);
    assert!(images.into_iter().all(|image| image == "b"));
    assert_eq!(count(&send(&client, "GET", SETS, &Value::Null).await), 2, "the old one is the history");
    running.abort();
}

#[tokio::test]
async fn a_deployment_reports_why_its_pods_are_rejected() {
    let (client, running) = cluster();
    let enforce = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    send(&client, "PATCH", "/api/v1/namespaces/default", &enforce).await;
    send(&client, "POST", DEPLOYMENTS, &deployment("a", 3)).await;
    let failure = |one: &Value| {
        let mut conditions = one["status"]["conditions"].as_array().into_iter().flatten().cloned();
        conditions.find(|condition| condition["type"] == "ReplicaFailure")
    };
    let failed = until(&client, &format!("{DEPLOYMENTS}/web"), |one| failure(one).is_some()).await;
    let failed = failure(&failed).unwrap();
    assert_eq!(failed["reason"], "FailedCreate");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("violates PodSecurity \"restricted:latest\""), "{message}");
    running.abort();
}

#[tokio::test]
async fn orphans_that_fit_are_adopted_and_pods_that_fit_no_longer_are_released() {
    let (client, running) = cluster();
    let orphan = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "orphan", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    send(&client, "POST", PODS, &orphan).await;
    send(&client, "POST", SETS, &set("web", 1)).await;
    let path = format!("{PODS}/orphan");
    until(&client, &path, |pod| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet").await;
    send(&client, "PATCH", &path, &json!({"metadata": {"labels": {"app": "other"}}})).await;
    until(&client, &path, |pod| pod["metadata"].get("ownerReferences").is_none()).await;
    until(&client, PODS, |pods| count(pods) == 2).await;
    running.abort();
}

#[tokio::test]
async fn rejected_pods_are_reported_with_the_message_of_admission() {
    let (client, running) = cluster();
    let enforce = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    send(&client, "PATCH", "/api/v1/namespaces/default", &enforce).await;
    send(&client, "POST", SETS, &set("web", 3)).await;
    let failed = until(&client, &format!("{SETS}/web"), |set| !set["status"]["conditions"].is_null()).await;
    let condition = &failed["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("ReplicaFailure"), &json!("FailedCreate"))
    );
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("violates PodSecurity \"restricted:latest\""), "{message}");
    let events = until(&client, "/api/v1/namespaces/default/events", |events| count(events) > 0).await;
    let event =
        events["items"].as_array().unwrap().iter().find(|event| event["reason"] == "FailedCreate").unwrap();
    assert!(event["message"].as_str().unwrap().starts_with("Error creating: pods \"web-"), "{event}");
    assert_eq!(event["source"]["component"], "replicaset-controller");
    running.abort();
}

#[tokio::test]
async fn controllers_pause_while_kube_controller_manager_leads() {
    let router = Server::builder().disable_plugins(["ServiceAccount".to_owned()]).router().unwrap();
    let client = Client::new(router.clone(), "default");
    // Each controller at work has a handle.
    let handle = Arc::new(());
    let factory = {
        let handle = handle.clone();
        move |account: &str| {
            let held = (!account.is_empty()).then(|| handle.clone());
            let service =
                ServiceBuilder::new().map_request(move |request: http::Request<kube::client::Body>| {
                    let _ = &held;
                    request
                });
            Client::new(service.service(router.clone()), "default")
        }
    };
    let (at_work, paused) = (2 + NAMES.len(), 2);
    let is_eventually = async |handles: usize| {
        let looking = async {
            while Arc::strong_count(&handle) != handles {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), looking).await.expect("the controllers start and stop");
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let held = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kube-controller-manager"},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}});
    let running = tokio::spawn(workloads::run(factory, Selection::default()));

    send(&client, "POST", SETS, &set("first", 1)).await;
    until(&client, PODS, |pods| count(pods) == 1).await;
    is_eventually(at_work).await;
    send(&client, "POST", leases, &held).await;
    is_eventually(paused).await;
    send(&client, "POST", SETS, &set("later", 1)).await;
    assert_eq!(count(&send(&client, "GET", PODS, &Value::Null).await), 1);

    let released = json!({"spec": {"holderIdentity": ""}});
    send(&client, "PATCH", &format!("{leases}/kube-controller-manager"), &released).await;
    until(&client, PODS, |pods| count(pods) == 2).await;
    is_eventually(at_work).await;
    running.abort();
}
