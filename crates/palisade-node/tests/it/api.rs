//! The node's requests to an API server, and how it reads the responses.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use kube::{Client, client::Body};
use palisade_node::{
    api::{ApiError, PodChange, PodKey, PodSource, kube::KubeSource},
    events::{EventRecord, EventType},
};
use serde_json::{Value, json};

/// A request as the server saw it: method, path with query, body.
type Seen = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A server that answers by method and path; any other path is 404.
fn server(answers: Vec<(&'static str, &'static str, StatusCode, Value)>) -> (KubeSource, Seen) {
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let answers = Arc::new(answers);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answers) = (Arc::clone(&log), Arc::clone(&answers));
        async move {
            let method: Method = request.method().clone();
            let uri = request.uri().clone();
            let body = request.into_body().collect_bytes().await.unwrap_or_default();
            let sent = serde_json::from_slice(&body).unwrap_or(Value::Null);
            log.lock().unwrap().push((method.to_string(), uri.to_string(), sent));
            let known = answers.iter().find(|(m, path, _, _)| *m == method.as_str() && uri.path() == *path);
            let (code, answer) = match known {
                Some((_, _, code, answer)) => (*code, answer.clone()),
                None => (StatusCode::NOT_FOUND, failure(404)),
            };
            let response = Response::builder().status(code).body(Body::from(Bytes::from(answer.to_string())));
            Ok::<_, Infallible>(response.unwrap())
        }
    });
    (KubeSource::new(Client::new(service, "default"), "n1"), seen)
}

fn failure(code: u16) -> Value {
    let reason = if code == 404 { "NotFound" } else { "Other" };
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code})
}

fn pod() -> PodKey {
    PodKey { namespace: "ns".into(), name: "p".into(), uid: "u".into() }
}

fn calls(seen: &Seen) -> Vec<String> {
    seen.lock().unwrap().iter().map(|(method, path, _)| format!("{method} {path}")).collect()
}

#[tokio::test]
async fn fields_of_the_designs_survive_in_both_directions() {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u", "namespace": "ns"},
        "spec": {"securityContext": {"seccompProfile": {"type": "ConfigMap", "configMapProfile": "m/k"}}}});
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [object]});
    let (source, seen) = server(vec![
        ("GET", "/api/v1/pods", StatusCode::OK, list),
        ("PATCH", "/api/v1/namespaces/ns/pods/p/status", StatusCode::OK, object.clone()),
    ]);
    let PodChange::All(pods) = source.pods().next().await.unwrap() else { panic!("a list comes first") };
    assert_eq!(pods[0]["spec"]["securityContext"]["seccompProfile"]["configMapProfile"], "m/k");
    assert!(calls(&seen)[0].contains("fieldSelector=spec.nodeName%3Dn1"), "{:?}", calls(&seen));

    let status =
        json!({"phase": "Running", "containerStatuses": [{"securityContext": {"seccompProfileHash": "h"}}]});
    source.write_status(&pod(), status).await.unwrap();
    let (_, _, body) = seen.lock().unwrap().last().unwrap().clone();
    assert_eq!(body["status"]["containerStatuses"][0]["securityContext"]["seccompProfileHash"], "h");
    assert_eq!(body["metadata"]["uid"], "u", "another pod of the same name is not meant");
    assert!(body["status"].as_object().unwrap()["reason"].is_null(), "what is no longer reported is removed");
}

#[tokio::test]
async fn objects_are_read_whole() {
    let (source, _) = server(vec![
        (
            "GET",
            "/api/v1/namespaces/ns/configmaps/m",
            StatusCode::OK,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}, "binaryData": {"b": "AQI="}}),
        ),
        (
            "GET",
            "/api/v1/namespaces/ns/secrets/s",
            StatusCode::OK,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"t": "aHVzaA=="}}),
        ),
        ("GET", "/api/v1/namespaces/ns/configmaps/denied", StatusCode::FORBIDDEN, failure(403)),
    ]);
    let map = source.config_map("ns", "m").await.unwrap().unwrap();
    assert_eq!((map.data["k"].as_str(), map.binary_data["b"].as_slice()), ("v", &[1, 2][..]));
    assert_eq!(source.secret("ns", "s").await.unwrap().unwrap().data["t"], b"hush");
    assert_eq!(source.config_map("ns", "absent").await.unwrap(), None);
    assert_eq!(source.config_map("ns", "denied").await.unwrap_err(), ApiError::Other("no".into()));
}

#[tokio::test]
async fn events_grow_instead_of_multiplying() {
    let (source, seen) = server(vec![
        (
            "POST",
            "/api/v1/namespaces/ns/events",
            StatusCode::CREATED,
            json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}}),
        ),
        (
            "PATCH",
            "/api/v1/namespaces/ns/events/known",
            StatusCode::OK,
            json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}}),
        ),
    ]);
    let event = |name: &str, count| EventRecord {
        name: name.into(),
        pod: pod(),
        field_path: String::new(),
        kind: EventType::Warning,
        reason: "Failed".into(),
        message: "m".into(),
        count,
        first: jiff::Timestamp::UNIX_EPOCH,
        last: jiff::Timestamp::UNIX_EPOCH,
    };
    source.write_event(event("new", 1)).await.unwrap();
    source.write_event(event("known", 2)).await.unwrap();
    source.write_event(event("expired", 3)).await.unwrap();
    let found: Vec<_> = calls(&seen).iter().map(|call| call.split('?').next().unwrap().to_owned()).collect();
    assert_eq!(
        found,
        [
            "POST /api/v1/namespaces/ns/events",
            "PATCH /api/v1/namespaces/ns/events/known",
            "PATCH /api/v1/namespaces/ns/events/expired",
            "POST /api/v1/namespaces/ns/events",
        ]
    );
}

#[tokio::test]
async fn the_node_and_its_lease_are_made_where_they_are_missing() {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"a": "b"}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "now"}]}});
    let known = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "before"}]}});
    let (source, seen) = server(vec![
        ("GET", "/api/v1/nodes/n1", StatusCode::OK, known.clone()),
        ("PATCH", "/api/v1/nodes/n1", StatusCode::OK, known.clone()),
        ("PATCH", "/api/v1/nodes/n1/status", StatusCode::OK, known),
    ]);
    source.write_node(node.clone()).await.unwrap();
    let (_, _, body) = seen.lock().unwrap().last().unwrap().clone();
    assert_eq!(body["status"]["conditions"][0]["lastTransitionTime"], "before", "nothing changed since");

    let (source, seen) = server(vec![
        ("POST", "/api/v1/nodes", StatusCode::CREATED, node.clone()),
        ("PATCH", "/api/v1/nodes/n1/status", StatusCode::OK, node),
    ]);
    source
        .write_node(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {}}))
        .await
        .unwrap();
    assert_eq!(calls(&seen).len(), 3);

    let (source, seen) = server(vec![]);
    assert!(source.renew_lease("n1", 40).await.is_err());
    let found: Vec<_> = calls(&seen).iter().map(|call| call.split('?').next().unwrap().to_owned()).collect();
    assert_eq!(
        found,
        [
            "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1",
            "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            "POST /api/v1/namespaces",
        ]
    );
}

#[tokio::test]
async fn a_deletion_is_finished_for_this_pod_alone() {
    let (source, seen) =
        server(vec![("DELETE", "/api/v1/namespaces/ns/pods/p", StatusCode::CONFLICT, failure(409))]);
    assert!(matches!(source.finish_deletion(&pod()).await, Err(ApiError::Conflict(_))));
    let (_, _, body) = seen.lock().unwrap()[0].clone();
    assert_eq!((&body["gracePeriodSeconds"], &body["preconditions"]["uid"]), (&json!(0), &json!("u")));
}
