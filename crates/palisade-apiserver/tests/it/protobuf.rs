//! Responses in protobuf, as clients written in Go request them.

use http::Request;
use http_body_util::{BodyExt as _, Full};
use palisade_apiserver::http::protobuf;
use palisade_apiserver::{Router, Server};
use serde_json::{Value, json};
use tower::Service as _;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn router() -> Router {
    let builder = Server::builder().disable_plugins(["ServiceAccount".to_owned()]);
    builder.router().expect("router")
}

/// A response: code, media type, body.
async fn request(
    router: &Router,
    (method, path): (&str, &str),
    accept: &str,
    body: Value,
) -> (u16, String, Vec<u8>) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", "application/json")
        .body(Full::new(bytes::Bytes::from(body)))
        .expect("request");
    let response = router.clone().call(request).await.expect("response");
    let code = response.status().as_u16();
    let media = response.headers()["content-type"].to_str().expect("text").to_owned();
    let body = response.into_body().collect().await.expect("body").to_bytes();
    (code, media, body.to_vec())
}

async fn create(router: &Router, path: &str, object: Value) {
    let (code, _, body) = request(router, ("POST", path), "application/json", object).await;
    assert_eq!(code, 201, "{}", String::from_utf8_lossy(&body));
}

#[tokio::test]
async fn objects_and_errors_are_sent_in_protobuf() {
    let router = router();
    create(&router, MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let one = format!("{MAPS}/a");
    let (code, media, body) = request(&router, ("GET", &one), PROTOBUF, Value::Null).await;
    assert_eq!((code, media.as_str()), (200, PROTOBUF));
    let read = protobuf::decode(&body).expect("an object");
    assert_eq!((&read["kind"], &read["data"]), (&json!("ConfigMap"), &json!({"k": "v"})));

    let body = json!({"metadata": {"name": "b"}});
    let (code, media, _) = request(&router, ("POST", MAPS), PROTOBUF, body).await;
    assert_eq!((code, media.as_str()), (201, PROTOBUF));

    let missing = format!("{MAPS}/none");
    let (code, media, body) = request(&router, ("GET", &missing), PROTOBUF, Value::Null).await;
    let status = protobuf::decode(&body).expect("a status");
    assert_eq!((code, media.as_str(), &status["reason"]), (404, PROTOBUF, &json!("NotFound")));

    let (code, _, body) = request(&router, ("DELETE", &one), PROTOBUF, Value::Null).await;
    let status = protobuf::decode(&body).expect("a status");
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
}

#[tokio::test]
async fn lists_tables_and_metadata_have_the_form_that_was_requested() {
    let router = router();
    create(&router, MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let partial = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let table =
        format!("{PROTOBUF};as=Table;g=meta.k8s.io;v=v1, application/json;as=Table;g=meta.k8s.io;v=v1");
    for (case, path, accept, expected, contains) in [
        ("a list", MAPS, PROTOBUF, (200, PROTOBUF), "ConfigMapList"),
        ("metadata", MAPS, partial.as_str(), (200, PROTOBUF), "PartialObjectMetadataList"),
        ("a table", MAPS, table.as_str(), (200, "application/json"), "\"Table\""),
        (
            "a watch",
            "/api/v1/configmaps?watch=1&timeoutSeconds=1",
            PROTOBUF,
            (200, protobuf::WATCH_MEDIA_TYPE),
            "ADDED",
        ),
    ] {
        let (code, media, body) = request(&router, ("GET", path), accept, Value::Null).await;
        assert_eq!((code, media.as_str()), expected, "{case}");
        assert!(String::from_utf8_lossy(&body).contains(contains), "{case}: {body:?}");
    }
}

#[tokio::test]
async fn a_watch_is_a_sequence_of_frames() {
    let router = router();
    for name in ["a", "b"] {
        create(&router, MAPS, json!({"metadata": {"name": name}, "data": {"k": "v"}})).await;
    }
    let path = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&\
                sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let (_, _, body) = request(&router, ("GET", path), PROTOBUF, Value::Null).await;
    let (mut rest, mut frames) = (&body[..], Vec::new());
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (frame, after) = after.split_at(usize::try_from(u32::from_be_bytes(*length)).expect("small"));
        let start = frame.windows(4).position(|bytes| bytes == b"k8s\0").expect("an object");
        let object = protobuf::decode(&frame[start..]).expect("an object");
        frames.push(object["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        rest = after;
    }
    assert_eq!(frames[..3], ["a", "b", ""], "two objects and a bookmark");
}

#[tokio::test]
async fn custom_resources_have_no_protobuf_form() {
    let router = router();
    let definition = json!({"metadata": {"name": "as.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"plural": "as", "kind": "A"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    create(&router, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let path = "/apis/example.com/v1/as";
    let partial = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    for (accept, expected) in [
        (PROTOBUF.to_owned(), (406, PROTOBUF)),
        (format!("{PROTOBUF}, */*"), (200, "application/json")),
        (partial, (200, PROTOBUF)),
    ] {
        let (code, media, _) = request(&router, ("GET", path), &accept, Value::Null).await;
        assert_eq!((code, media.as_str()), expected, "{accept}");
    }
}
