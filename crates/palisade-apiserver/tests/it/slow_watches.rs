//! What a watch holds for a client that does not read is bounded, whatever version it starts at.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use palisade_apiserver::http::Body;
use palisade_apiserver::{Router, Store, router};
use serde_json::{Value, json};
use tower::Service as _;

use crate::support::config_map;

const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// A piece that does not fit waits alone: the bound, and the largest object.
const BOUND: usize = (128 << 10) + (110 << 10);

async fn call(router: &Router, method: &str, path: &str, body: &Value) -> (u16, Body) {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let request = request.body(Full::new(body)).expect("a request");
    let response = router.clone().call(request).await.expect("an answer");
    (response.status().as_u16(), response.into_body())
}

async fn write(router: &Router, method: &str, path: &str, body: &Value) {
    let (code, _) = call(router, method, path, body).await;
    assert!((200..300).contains(&code), "{method} {path}: {code}");
}

async fn watch(router: &Router, query: &str) -> Body {
    let (code, body) = call(router, "GET", &format!("{PATH}?watch=true&{query}"), &Value::Null).await;
    assert_eq!(code, 200, "{query}");
    body
}

/// What waits for the client; false if the stream has ended.
fn waiting(body: &mut Body) -> (usize, bool) {
    let mut bytes = 0;
    loop {
        match Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => bytes += frame.into_data().map_or(0, |data| data.len()),
            Poll::Ready(_) => return (bytes, false),
            Poll::Pending => return (bytes, true),
        }
    }
}

/// Many large objects, each written twice: 20 MB of history.
async fn filled() -> Router {
    let router = router(Store::in_memory()).expect("a router");
    for n in 0..100 {
        let path = format!("{PATH}/m{n:03}");
        write(&router, "POST", PATH, &config_map(&format!("m{n:03}"), &"x".repeat(100 << 10))).await;
        write(&router, "PATCH", &path, &json!({"data": {"k": "y".repeat(100 << 10)}})).await;
    }
    router
}

#[tokio::test(start_paused = true)]
async fn holds_little_for_who_does_not_read() {
    let router = filled().await;
    for query in [
        "",
        "resourceVersion=0",
        "resourceVersion=1",
        "resourceVersion=1&labelSelector=!x",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
    ] {
        let mut body = watch(&router, query).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (bytes, open) = waiting(&mut body);
        assert!(open && bytes > 100 << 10, "{query:?}: {bytes}");
        assert!(bytes <= BOUND, "{query:?}: {bytes} bytes wait for a client that does not read");
    }
}

#[tokio::test(start_paused = true)]
async fn ends_watches_that_take_nothing() {
    let router = filled().await;
    let mut over = watch(&router, "resourceVersion=1&timeoutSeconds=1").await;
    let mut old = watch(&router, "resourceVersion=1").await;
    let mut new = watch(&router, "").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (bytes, open) = waiting(&mut over);
    assert!(!open && bytes <= BOUND, "a watch ends after its time, read or not: {bytes} {open}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    for stalled in [&mut old, &mut new] {
        let (bytes, open) = waiting(stalled);
        assert!(!open && bytes <= BOUND, "{bytes} {open}");
    }
    let (_, metrics) = call(&router, "GET", "/metrics", &Value::Null).await;
    let metrics = metrics.collect().await.expect("text").to_bytes();
    let metrics = String::from_utf8_lossy(&metrics);
    let expected = "apiserver_terminated_watchers_total{group=\"\",resource=\"configmaps\"} 2";
    assert!(metrics.contains(expected), "{metrics}");
}

/// Slow is not wrong: the state at the beginning, then every change once and in order.
#[tokio::test(start_paused = true)]
async fn slow_readers_miss_nothing() {
    let router = filled().await;
    let query =
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=2";
    let mut body = watch(&router, query).await;
    let first = body.frame().await.expect("a piece").expect("a piece").into_data().expect("data");
    // While the state is still on its way: one object ahead of the reader changes, one goes, one comes.
    write(&router, "PATCH", &format!("{PATH}/m050"), &json!({"data": {"k": "late"}})).await;
    write(&router, "DELETE", &format!("{PATH}/m060"), &Value::Null).await;
    write(&router, "POST", PATH, &config_map("m100", "")).await;
    let mut text = first.to_vec();
    while let Some(frame) = body.frame().await {
        text.extend_from_slice(&frame.expect("a piece").into_data().expect("data"));
    }
    let events: Vec<Value> = serde_json::Deserializer::from_slice(&text)
        .into_iter()
        .map(|event| event.expect("an event"))
        .collect();
    let end = events.iter().position(|e| e["type"] == "BOOKMARK").expect("the end of the state");
    let (state, changes) = events.split_at(end);
    let state: BTreeMap<&str, usize> = state
        .iter()
        .filter(|e| e["object"]["metadata"]["name"] != "kube-root-ca.crt")
        .map(|e| {
            let name = e["object"]["metadata"]["name"].as_str().expect("name");
            (name, e["object"]["data"]["k"].as_str().expect("data").len())
        })
        .collect();
    assert_eq!(state.len(), 100);
    assert!(state.values().all(|length| *length == 100 << 10), "as it was: {state:?}");
    let changes: Vec<String> = changes
        .iter()
        .filter(|e| e["type"] != "BOOKMARK")
        .map(|e| format!("{} {}", e["type"], e["object"]["metadata"]["name"]).replace('"', ""))
        .collect();
    assert_eq!(changes, ["MODIFIED m050", "DELETED m060", "ADDED m100"]);
}
