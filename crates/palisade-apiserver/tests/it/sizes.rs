//! Objects that are too large to be stored are rejected on every way into the store, and cost little until then.

use palisade_apiserver::Server;
use palisade_testkit::client::Client;
use palisade_testkit::eventually;
use serde_json::{Value, json};

use crate::support::{admin, get, start};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OBJECTS: &str = "/apis/example.com/v1/namespaces/default/larges";
const TOO_LARGE: (u16, &str) = (500, "etcdserver: request is too large");

async fn send(client: &Client, method: &str, path: &str, content_type: &str, body: &Value) -> (u16, String) {
    let headers = [("content-type", content_type.to_owned())];
    let answer = client.request(method, path, &headers, body.to_string()).await.expect("an answer");
    (answer.code, answer.body["message"].as_str().unwrap_or_default().to_owned())
}

/// Items of this kind are two bytes in a request and ten thousand in storage.
async fn define(client: &Client) {
    let item =
        json!({"type": "object", "properties": {"d": {"type": "string", "default": "x".repeat(10_000)}}});
    let schema = json!({"type": "object", "properties": {
        "text": {"type": "string"},
        "items": {"type": "array", "items": item},
        "status": {"type": "object", "properties": {"text": {"type": "string"}}},
    }});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "larges.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "larges", "kind": "Large"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                               "schema": {"openAPIV3Schema": schema}}]},
    });
    assert_eq!(send(client, "POST", DEFINITIONS, "application/json", &definition).await.0, 201);
    eventually("the kind is served", || async { (get(client, OBJECTS).await.code == 200).then_some(()) })
        .await;
}

fn object(name: &str, fields: &Value) -> Value {
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Large", "metadata": {"name": name}});
    for (field, value) in fields.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

#[tokio::test]
async fn objects_too_large_for_storage_are_rejected_on_every_write_path() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    define(&client).await;
    let stored =
        send(&client, "POST", OBJECTS, "application/json", &object("a", &json!({"text": "x"}))).await;
    assert_eq!(stored.0, 201, "{}", stored.1);
    let own = format!("{OBJECTS}/a");
    let (apply, status) = (format!("{OBJECTS}/a?fieldManager=m&force=true"), format!("{own}/status"));
    let create = format!("{OBJECTS}/b?fieldManager=m");
    for (case, large) in [
        ("by itself", json!({"text": "x".repeat(1_600_000)})),
        ("by its defaults", json!({"items": vec![json!({}); 100_000]})),
    ] {
        let merge = "application/merge-patch+json";
        let mut replaced = object("a", &large);
        replaced["metadata"]["resourceVersion"] =
            get(&client, &own).await.body["metadata"]["resourceVersion"].clone();
        let added: Vec<Value> = large
            .as_object()
            .into_iter()
            .flatten()
            .map(|(field, value)| json!({"op": "add", "path": format!("/{field}"), "value": value}))
            .collect();
        for (way, method, path, content_type, body) in [
            ("create", "POST", OBJECTS, "application/json", object("b", &large)),
            ("update", "PUT", own.as_str(), "application/json", replaced),
            ("merge patch", "PATCH", own.as_str(), merge, large.clone()),
            ("JSON patch", "PATCH", own.as_str(), "application/json-patch+json", added.into()),
            ("apply", "PATCH", apply.as_str(), "application/apply-patch+yaml", object("a", &large)),
            (
                "create by apply",
                "PATCH",
                create.as_str(),
                "application/apply-patch+yaml",
                object("b", &large),
            ),
        ] {
            let (code, message) = send(&client, method, path, content_type, &body).await;
            assert_eq!((code, message.as_str()), TOO_LARGE, "{way}, {case}");
        }
    }
    let large = json!({"status": {"text": "x".repeat(1_600_000)}});
    let (code, message) = send(&client, "PATCH", &status, "application/merge-patch+json", &large).await;
    assert_eq!((code, message.as_str()), TOO_LARGE, "status");
    let found = get(&client, OBJECTS).await.body;
    let names: Vec<&Value> =
        found["items"].as_array().unwrap().iter().map(|o| &o["metadata"]["name"]).collect();
    assert_eq!(names, [&json!("a")], "nothing of all that was stored");
    // The harmless twins.
    for (case, fields) in [
        ("large", json!({"text": "x".repeat(1_500_000)})),
        ("with defaults", json!({"items": vec![json!({}); 100]})),
    ] {
        let name = case.replace(' ', "-");
        let (code, message) =
            send(&client, "POST", OBJECTS, "application/json", &object(&name, &fields)).await;
        assert_eq!(code, 201, "{case}: {message}");
    }
}

#[tokio::test]
async fn built_in_kinds_are_measured_as_upstream_stores_them() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    let pod = |name: &str, variables: usize| {
        let variables: Vec<Value> =
            (0..variables).map(|at| json!({"name": format!("A{at}"), "value": "x".repeat(1_000)})).collect();
        json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "i", "env": variables}]}})
    };
    let path = "/api/v1/namespaces/default/pods";
    let (code, message) = send(&client, "POST", path, "application/json", &pod("large", 2_000)).await;
    assert_eq!((code, message.as_str()), TOO_LARGE);
    let (code, message) = send(&client, "POST", path, "application/json", &pod("small", 1_400)).await;
    assert_eq!(code, 201, "{message}");
    let one = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
    let role = json!({"metadata": {"name": "many-rules"}, "rules": vec![one; 40_000]});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let (code, message) = send(&client, "POST", path, "application/json", &role).await;
    assert_eq!(code, 201, "two megabytes of JSON, one of protobuf: {message}");
    // A million of containers in three bytes each would take a gigabyte before the first is validated.
    let empty =
        format!(r#"{{"metadata":{{"name":"x"}},"spec":{{"containers":[{}{{}}]}}}}"#, "{},".repeat(1_000_000));
    let headers = [("content-type", "application/json".to_owned())];
    let answer =
        client.request("POST", "/api/v1/namespaces/default/pods", &headers, empty).await.expect("an answer");
    assert_eq!(answer.code, 400, "{}", answer.body["message"]);
}
