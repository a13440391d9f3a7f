//! A thousand watchers at once, each of which sees every event once and in order.

use std::time::{Duration, Instant};

use palisade_apiserver::{Builder, Server};
use serde_json::{Value, json};

use crate::support::{admin, config_map, get, send, start};

/// Without service accounts, namespaces are empty.
fn plain() -> Builder {
    Server::builder().controllers(false).disable_plugins(["ServiceAccount".to_owned()])
}

const WATCHERS: usize = 1000;
const WRITES: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watchers_see_every_event_once_and_in_order() {
    let server = start(plain()).await;
    let client = admin(&server);
    let path = "/api/v1/namespaces/default/configmaps";
    send(&client, "POST", path, &config_map("w", "start")).await;
    let list = get(&client, path).await;
    let version = list.body["metadata"]["resourceVersion"].as_str().expect("version").to_owned();
    let watch = format!("{path}?watch=true&resourceVersion={version}&timeoutSeconds=600");
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        watchers.push(client.watch(&watch).await.expect("watch"));
    }
    let reading: Vec<_> = watchers
        .into_iter()
        .map(|watch| tokio::spawn(watch.collect(WRITES, Duration::from_mins(1))))
        .collect();
    let began = Instant::now();
    for n in 0..WRITES {
        // A hundred writes a second.
        let due = began + Duration::from_millis(10) * u32::try_from(n).expect("small");
        tokio::time::sleep_until(due.into()).await;
        let answer =
            send(&client, "PATCH", &format!("{path}/w"), &json!({"data": {"k": n.to_string()}})).await;
        assert_eq!(answer.code, 200);
    }
    let expected: Vec<Value> = (0..WRITES).map(|n| n.to_string().into()).collect();
    for reader in reading {
        let events = reader.await.expect("joined");
        let seen: Vec<Value> = events.iter().map(|e| e["object"]["data"]["k"].clone()).collect();
        assert_eq!(seen, expected);
        assert!(events.iter().all(|e| e["type"] == "MODIFIED"));
    }
    server.shutdown().await;
}

#[tokio::test]
async fn objects_that_begin_or_cease_to_match_appear_and_go() {
    let server = start(plain()).await;
    let client = admin(&server);
    let path = "/api/v1/namespaces/default/configmaps";
    let watch = client.watch(&format!("{path}?watch=true&labelSelector=x%3D1")).await.expect("watch");
    send(&client, "POST", path, &config_map("a", "1")).await;
    let labelled = |value: Value| json!({"metadata": {"labels": {"x": value}}});
    for value in [json!("1"), json!("1"), json!("2"), json!(null)] {
        send(&client, "PATCH", &format!("{path}/a"), &labelled(value)).await;
    }
    send(&client, "DELETE", &format!("{path}/a"), &Value::Null).await;
    let events = watch.collect(2, Duration::from_secs(5)).await;
    let kinds: Vec<&str> = events.iter().filter_map(|e| e["type"].as_str()).collect();
    assert_eq!(kinds, ["ADDED", "DELETED"]);
    assert_eq!(events[1]["object"]["metadata"]["labels"]["x"], "1", "the last state that matched");
    assert_ne!(
        events[0]["object"]["metadata"]["resourceVersion"],
        events[1]["object"]["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn a_watch_ends_after_its_timeout_and_rejects_expired_versions() {
    let directory = tempfile::tempdir().expect("directory");
    let server = start(plain().data_dir(directory.path())).await;
    let client = admin(&server);
    let path = "/api/v1/namespaces/default/configmaps";
    send(&client, "POST", path, &config_map("a", "1")).await;
    let began = Instant::now();
    let watch = format!("{path}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true");
    let events = client.watch(&watch).await.expect("watch").collect(100, Duration::from_secs(5)).await;
    assert!((1..4).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    let kinds: Vec<&str> = events.iter().filter_map(|e| e["type"].as_str()).collect();
    assert_eq!(kinds, ["ADDED", "BOOKMARK"]);
    server.shutdown().await;
    drop(client);
    // A new process has no history.
    let server = start(plain().data_dir(directory.path())).await;
    let watch = admin(&server).watch(&format!("{path}?watch=true&resourceVersion=2")).await.expect("watch");
    let events = watch.collect(1, Duration::from_secs(5)).await;
    assert_eq!(events[0]["type"], "ERROR");
    assert_eq!(
        (&events[0]["object"]["code"], &events[0]["object"]["reason"]),
        (&json!(410), &json!("Expired"))
    );
    let message = events[0]["object"]["message"].as_str().expect("message");
    assert!(message.starts_with("too old resource version: 2 ("), "{message}");
}
