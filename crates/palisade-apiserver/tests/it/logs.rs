//! The log of a pod, where a node in this process has it.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use palisade_apiserver::Server;
use palisade_apiserver::log_source::{LogAnswer, LogError, LogRequest, LogSource};
use serde_json::json;
use tokio::sync::mpsc;

use crate::support::{admin, get, send, start};

/// A node that keeps what it is requested.
#[derive(Default)]
struct Node {
    requests: Mutex<Vec<LogRequest>>,
}

impl LogSource for Node {
    fn serves(&self, node: &str) -> bool {
        node == "here"
    }

    fn open(&self, request: LogRequest) -> LogAnswer<'_> {
        Box::pin(async move {
            if request.previous {
                return Err(LogError(
                    "previous terminated container \"c\" in pod \"p\" not found".to_owned(),
                ));
            }
            self.requests.lock().expect("not poisoned").push(request);
            let (sender, receiver) = mpsc::channel(2);
            for line in ["one\n", "two\n"] {
                sender.send(Bytes::from_static(line.as_bytes())).await.expect("a receiver");
            }
            Ok(receiver)
        })
    }
}

#[tokio::test]
async fn a_log_comes_from_the_node_that_has_it() {
    let node = Arc::new(Node::default());
    let builder = Server::builder().disable_plugins(["ServiceAccount".to_owned()]).log_source(node.clone());
    let server = start(builder).await;
    let client = admin(&server);
    for name in ["here", "elsewhere"] {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        assert_eq!(send(&client, "POST", "/api/v1/nodes", &object).await.code, 201);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(send(&client, "POST", "/api/v1/namespaces/default/pods", &pod).await.code, 201);
    }
    let log = |pod: &str, query: &str| format!("/api/v1/namespaces/default/pods/{pod}/log{query}");
    let answer = get(&client, &log("here", "?follow=true&tailLines=5&timestamps=true&limitBytes=9")).await;
    assert_eq!((answer.code, answer.body.as_str()), (200, Some("one\ntwo\n")));
    let requests = node.requests.lock().expect("not poisoned").pop().expect("a question");
    assert_eq!(
        (requests.container.as_str(), requests.tail_lines, requests.limit_bytes),
        ("c", Some(5), Some(9))
    );
    assert!(requests.follow && requests.timestamps && requests.since.is_none());
    assert_eq!(requests.pod.pointer("/metadata/name"), Some(&json!("here")));
    assert_eq!(get(&client, &log("elsewhere", "")).await.code, 501);
    let invalid = "PodLogOptions \"here\" is invalid: ";
    for (query, code, message) in [
        ("?previous=true", 400, "previous terminated container \"c\" in pod \"p\" not found".to_owned()),
        ("?container=x", 400, "container x is not valid for pod here".to_owned()),
        (
            "?tailLines=-1",
            422,
            format!("{invalid}tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ),
        ("?limitBytes=0", 422, format!("{invalid}limitBytes: Invalid value: 0: must be greater than 0")),
        ("?sinceSeconds=0", 422, format!("{invalid}sinceSeconds: Invalid value: 0: must be greater than 0")),
        ("?tailLines=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned()),
    ] {
        let answer = get(&client, &log("here", query)).await;
        assert_eq!((answer.code, answer.body["message"].as_str()), (code, Some(message.as_str())), "{query}");
    }
    server.shutdown().await;
}
