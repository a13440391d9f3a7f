//! The scheduler on the embedded API server, in this process.

use std::time::Duration;

use kube::Client;
use palisade_apiserver::Server;
use palisade_controllers::scheduler;
use serde_json::{Value, json};

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
    tokio::time::timeout(Duration::from_mins(1), looking).await.unwrap()
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    pod["spec"]["containers"] = json!([{"name": "c", "image": "i"}]);
    pod
}

#[tokio::test(start_paused = true)]
async fn pods_wait_without_events_until_a_node_has_a_lease() {
    let builder = Server::builder().disable_plugins(["ServiceAccount".to_owned()]);
    let client = Client::new(builder.router().unwrap(), "default");
    let scheduling = tokio::spawn(scheduler::run(client.clone()));
    let pods = "/api/v1/namespaces/default/pods";
    send(&client, "POST", pods, &pod("plain", json!({}))).await;
    send(&client, "POST", pods, &pod("picky", json!({"nodeSelector": {"disk": "ssd"}}))).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    send(&client, "POST", "/api/v1/nodes", &node).await;
    let ready = json!({"status": {"allocatable": {"pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    send(&client, "PATCH", "/api/v1/nodes/n1/status", &ready).await;
    // A Node alone may be a test of the API: no event is recorded. The clock is paused and advances when all tasks wait.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let events = send(&client, "GET", "/api/v1/namespaces/default/events", &Value::Null).await;
    assert_eq!(events["items"], json!([]));
    assert!(
        send(&client, "GET", &format!("{pods}/plain"), &Value::Null).await["spec"].get("nodeName").is_none()
    );

    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1"},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 40, "renewTime": now}});
    send(&client, "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &lease).await;
    let bound = until(&client, &format!("{pods}/plain"), |pod| pod["spec"]["nodeName"] == "n1").await;
    let condition = |pod: &Value| {
        let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == "PodScheduled").unwrap_or_default()
    };
    assert_eq!(condition(&bound)["status"], "True");
    let waits = until(&client, &format!("{pods}/picky"), |pod| condition(pod)["status"] == "False").await;
    let why = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/1 nodes are \
               available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(
        (&condition(&waits)["reason"], &condition(&waits)["message"]),
        (&json!("Unschedulable"), &json!(why))
    );
    let events = until(&client, "/api/v1/namespaces/default/events", |list| {
        list["items"].as_array().is_some_and(|items| items.len() == 2)
    })
    .await;
    let mut messages: Vec<_> =
        events["items"].as_array().unwrap().iter().map(|event| event["message"].clone()).collect();
    messages.sort_by_key(ToString::to_string);
    assert_eq!(messages, [json!(why), json!("Successfully assigned default/plain to n1")]);

    // The node becomes what the pod requests.
    send(&client, "PATCH", "/api/v1/nodes/n1", &json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    until(&client, &format!("{pods}/picky"), |pod| pod["spec"]["nodeName"] == "n1").await;
    scheduling.abort();
}
