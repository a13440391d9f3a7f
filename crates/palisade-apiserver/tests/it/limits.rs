//! Limit ranges and quotas of namespaces.

use palisade_apiserver::Server;
use palisade_testkit::client::Client;
use palisade_testkit::eventually;
use serde_json::{Value, json};

use crate::support::{admin, get, send, start};

const PODS: &str = "/api/v1/namespaces/default/pods";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

async fn server() -> Server {
    start(Server::builder().disable_plugins(["ServiceAccount".to_owned()])).await
}

fn pod(name: &str, resources: &Value) -> Value {
    json!({"metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
}

async fn create(client: &Client, path: &str, object: &Value) -> Value {
    let answer = send(client, "POST", path, object).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body
}

async fn rejected(client: &Client, path: &str, object: &Value) -> String {
    let answer = send(client, "POST", path, object).await;
    assert_eq!(answer.code, 403, "{}", answer.body);
    answer.body["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn containers_get_the_defaults_of_limit_ranges_and_stay_within_them() {
    let server = server().await;
    let client = admin(&server);
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "500m"}, "default": {"cpu": "200m"},
            "defaultRequest": {"cpu": "100m"}},
        {"type": "Pod", "max": {"memory": "1Gi"}}]}});
    create(&client, RANGES, &range).await;
    let memory = json!({"limits": {"memory": "1Gi"}});
    let made = create(&client, PODS, &pod("a", &memory)).await;
    let resources = &made["spec"]["containers"][0]["resources"];
    assert_eq!(
        (&resources["requests"]["cpu"], &resources["limits"]["cpu"]),
        (&json!("100m"), &json!("200m"))
    );
    let note = made["metadata"]["annotations"]["kubernetes.io/limit-ranger"].as_str().unwrap_or_default();
    assert_eq!(note, "LimitRanger plugin set: cpu request for container c; cpu limit for container c");
    for (case, resources, expected) in [
        (
            "more than a container may have",
            json!({"limits": {"cpu": "2", "memory": "1Gi"}}),
            "maximum cpu usage per Container is 500m, but limit is 2",
        ),
        (
            "less than a container must have",
            json!({"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi"}}),
            "minimum cpu usage per Container is 50m, but request is 10m",
        ),
        (
            "more than a pod may have",
            json!({"limits": {"memory": "2Gi"}}),
            "maximum memory usage per Pod is 1Gi, but limit is 2Gi",
        ),
        ("a pod without a limit", json!({}), "maximum memory usage per Pod is 1Gi.  No limit is specified"),
    ] {
        let message = rejected(&client, PODS, &pod("b", &resources)).await;
        assert!(message.ends_with(expected), "{case}: {message}");
    }
}

#[tokio::test]
async fn quotas_bound_what_is_created_and_count_what_is_used() {
    let server = server().await;
    let client = admin(&server);
    let quota = json!({"metadata": {"name": "q"},
        "spec": {"hard": {"pods": "2", "requests.cpu": "1", "count/configmaps": "3"}}});
    create(&client, QUOTAS, &quota).await;
    let small = json!({"requests": {"cpu": "400m"}});
    create(&client, PODS, &pod("a", &small)).await;
    assert_eq!(
        rejected(&client, PODS, &pod("b", &json!({}))).await,
        "pods \"b\" is forbidden: failed quota: q: must specify requests.cpu for: c"
    );
    assert_eq!(
        rejected(&client, PODS, &pod("b", &json!({"requests": {"cpu": "700m"}}))).await,
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=700m, used: requests.cpu=400m, limited: \
         requests.cpu=1"
    );
    create(&client, PODS, &pod("b", &small)).await;
    let tiny = json!({"requests": {"cpu": "1m"}});
    assert_eq!(
        rejected(&client, PODS, &pod("c", &tiny)).await,
        "pods \"c\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    );
    let counted = async |pods: &str| {
        let found = get(&client, &format!("{QUOTAS}/q")).await.body;
        (found["status"]["used"]["pods"] == pods).then_some(())
    };
    eventually("both pods are counted", async || counted("2").await).await;
    assert_eq!(send(&client, "DELETE", &format!("{PODS}/a"), &Value::Null).await.code, 200);
    eventually("one is left", async || counted("1").await).await;
    create(&client, PODS, &pod("c", &tiny)).await;
}

#[tokio::test]
async fn requests_at_one_time_do_not_exceed_a_quota_together() {
    let server = server().await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "3"}}});
    let client = admin(&server);
    create(&client, QUOTAS, &quota).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let before = get(&client, maps).await.body["items"].as_array().map_or(0, Vec::len);
    let clients: Vec<Client> = (0..12).map(|_| admin(&server)).collect();
    let requests = clients.iter().enumerate().map(async |(i, client)| {
        send(client, "POST", maps, &json!({"metadata": {"name": format!("m{i}")}})).await.code
    });
    let codes = futures::future::join_all(requests).await;
    let made = codes.iter().filter(|code| **code == 201).count();
    assert!(made + before <= 3, "{made} created beside {before}: {codes:?}");
    let stored = get(&client, maps).await.body["items"].as_array().map_or(0, Vec::len);
    assert_eq!(stored, made + before);
}
