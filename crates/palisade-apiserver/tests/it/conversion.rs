//! Custom resources in several versions, with and without a webhook, and HorizontalPodAutoscalers in both of theirs.

use palisade_apiserver::Server;
use palisade_testkit::client::Client;
use palisade_testkit::eventually;
use serde_json::{Value, json};

use crate::support::{admin, get, send, start};
use crate::webhooks::Hook;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn version(name: &str, storage: bool, properties: &Value, fields: &[&str]) -> Value {
    let fields: Vec<Value> = fields.iter().map(|path| json!({"jsonPath": path})).collect();
    json!({
        "name": name, "served": true, "storage": storage, "selectableFields": fields,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    })
}

fn definition(versions: &[Value], conversion: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "places.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": versions, "conversion": conversion,
            "names": {"plural": "places", "singular": "place", "kind": "Place", "listKind": "PlaceList"},
        },
    })
}

/// One version has an address, the other its two parts.
fn versions(storage: &str) -> [Value; 2] {
    let text = json!({"type": "string"});
    [
        version("v1", storage == "v1", &json!({"hostPort": text}), &[".hostPort"]),
        version("v2", storage == "v2", &json!({"host": text, "port": text}), &[".host", ".port"]),
    ]
}

fn webhook(hook: &Hook, path: &str) -> Value {
    json!({"strategy": "Webhook", "webhook": {"clientConfig": hook.url(path), "conversionReviewVersions": ["v1"]}})
}

async fn define(client: &Client, definition: &Value) {
    let path = format!("{DEFINITIONS}/places.example.com");
    let stored = get(client, &path).await;
    let answer = if stored.code == 200 {
        let mut changed = stored.body;
        changed["spec"] = definition["spec"].clone();
        send(client, "PUT", &path, &changed).await
    } else {
        send(client, "POST", DEFINITIONS, definition).await
    };
    assert!(answer.code < 300, "{}", answer.body);
}

fn places(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/places")
}

fn place(version: &str, name: &str, fields: &Value) -> Value {
    let mut place =
        json!({"apiVersion": format!("example.com/{version}"), "kind": "Place", "metadata": {"name": name}});
    for (key, value) in fields.as_object().into_iter().flatten() {
        place[key] = value.clone();
    }
    place
}

/// Converts as the suite's own webhook does; some paths break a rule.
fn convert(path: &str, request: &Value) -> (u16, Value) {
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let objects = request["objects"].as_array().cloned().unwrap_or_default();
    let converted = objects.into_iter().map(|mut object| {
        if wanted == "example.com/v2" {
            let address = object["hostPort"].as_str().unwrap_or_default().to_owned();
            let (host, port) = address.split_once(':').unwrap_or((&address, ""));
            (object["host"], object["port"]) = (host.into(), port.into());
            object.as_object_mut().expect("an object").remove("hostPort");
        } else {
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            object["hostPort"] = format!("{}:{}", text("host"), text("port")).into();
            let fields = object.as_object_mut().expect("an object");
            fields.remove("host");
            fields.remove("port");
        }
        object["apiVersion"] = wanted.into();
        object["unknown"] = "dropped".into();
        object["metadata"]["generation"] = 99.into();
        object["metadata"]["labels"] = json!({"converted-to": wanted.rsplit('/').next()});
        if path.starts_with("/renames") {
            object["metadata"]["name"] = "another".into();
        }
        if path.starts_with("/mistypes") {
            object["hostPort"] = 7.into();
        }
        object
    });
    let converted: Vec<Value> = converted.collect();
    let result = if path.starts_with("/fails") {
        json!({"status": "Failure", "message": "no such place"})
    } else {
        json!({"status": "Success"})
    };
    (200, json!({"convertedObjects": converted, "result": result}))
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[tokio::test]
async fn a_webhook_converts_what_is_read_and_what_is_stored() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let hook = Hook::start(convert).await;
    define(&client, &definition(&versions("v1"), &webhook(&hook, "/convert"))).await;
    let made = place("v2", "a", &json!({"host": "h", "port": "80"}));
    let answer = send(&client, "POST", &places("v2"), &made).await;
    assert_eq!((answer.code, &answer.body["host"]), (201, &json!("h")), "{}", answer.body);
    assert_eq!(answer.body["metadata"]["generation"], 1, "only labels and annotations are taken");
    let in_v1 = get(&client, &format!("{}/a", places("v1"))).await.body;
    assert_eq!((&in_v1["hostPort"], &in_v1["apiVersion"]), (&json!("h:80"), &json!("example.com/v1")));
    assert_eq!(in_v1.get("unknown"), None, "what the schema does not have is dropped");
    assert_eq!(in_v1["metadata"]["labels"]["converted-to"], "v1");

    // From now on, objects are stored in the other version; what is there stays as it is.
    define(&client, &definition(&versions("v2"), &webhook(&hook, "/convert"))).await;
    let second = send(&client, "POST", &places("v1"), &place("v1", "b", &json!({"hostPort": "i:81"}))).await;
    assert_eq!((second.code, &second.body["hostPort"]), (201, &json!("i:81")), "{}", second.body);
    let all = get(&client, &places("v2")).await.body;
    assert_eq!(names(&all), ["a", "b"]);
    assert_eq!((&all["items"][0]["port"], &all["items"][1]["port"]), (&json!("80"), &json!("81")));
    for (version, selector, expected) in [
        ("v1", "hostPort%3Dh:80", &["a"][..]),
        ("v1", "hostPort!%3Dh:80", &["b"]),
        ("v2", "host%3Di,port%3D81", &["b"]),
        ("v2", "host%3Di,port%3D80", &[]),
    ] {
        let list = get(&client, &format!("{}?fieldSelector={selector}", places(version))).await.body;
        assert_eq!(names(&list), expected, "{version} {selector}");
    }
    let unknown = get(&client, &format!("{}?fieldSelector=host%3Di", places("v1"))).await;
    assert_eq!((unknown.code, &unknown.body["message"]), (400, &json!("field label not supported: host")));

    let changed = send(&client, "PATCH", &format!("{}/a", places("v1")), &json!({"hostPort": "j:82"})).await;
    assert_eq!((changed.code, &changed.body["hostPort"]), (200, &json!("j:82")), "{}", changed.body);
    assert_eq!(get(&client, &format!("{}/a", places("v2"))).await.body["host"], "j");
    let gone =
        send(&client, "DELETE", &format!("{}?fieldSelector=host%3Dj", places("v2")), &Value::Null).await;
    assert_eq!(names(&gone.body), ["a"]);
    assert_eq!(names(&get(&client, &places("v1")).await.body), ["b"]);
    server.shutdown().await;
}

#[tokio::test]
async fn failures_of_the_webhook_are_reported_and_nothing_is_stored() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let hook = Hook::start(convert).await;
    for (path, expected) in [
        ("/fails", "conversion webhook for example.com/v2, Kind=Place failed: no such place"),
        (
            "/renames",
            "conversion webhook for example.com/v2, Kind=Place returned invalid object: must have the same name: a != another",
        ),
        (
            "/mistypes",
            "conversion webhook for example.com/v2, Kind=Place returned an object that does not fit example.com/v1: hostPort: Invalid value: \"integer\": hostPort in body must be of type string: \"integer\"",
        ),
    ] {
        define(&client, &definition(&versions("v1"), &webhook(&hook, path))).await;
        let answer = send(&client, "POST", &places("v2"), &place("v2", "a", &json!({"host": "h"}))).await;
        assert_eq!((answer.code, answer.body["message"].as_str()), (500, Some(expected)), "{path}");
        assert_eq!(names(&get(&client, &places("v1")).await.body), [""; 0], "{path}: nothing is stored");
    }
    let nowhere = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://127.0.0.1:1/x"}, "conversionReviewVersions": ["v1"]}});
    define(&client, &definition(&versions("v1"), &nowhere)).await;
    let stored = send(&client, "POST", &places("v1"), &place("v1", "a", &json!({"hostPort": "h:1"}))).await;
    assert_eq!(stored.code, 201, "the stored version needs no webhook");
    for (method, path, body) in [
        ("GET", format!("{}/a", places("v2")), Value::Null),
        ("GET", places("v2"), Value::Null),
        ("PATCH", format!("{}/a", places("v2")), json!({"host": "x"})),
    ] {
        let answer = send(&client, method, &path, &body).await;
        let message = answer.body["message"].as_str().unwrap_or_default();
        let start = "conversion webhook for example.com/v1, Kind=Place failed: Post \"https://127.0.0.1:1/x?timeout=30s\": ";
        assert!(answer.code == 500 && message.starts_with(start), "{method} {path}: {}", answer.body);
    }
    let deleted = send(&client, "DELETE", &format!("{}/a", places("v1")), &Value::Null).await;
    assert_eq!(deleted.code, 200);
    server.shutdown().await;
}

#[tokio::test]
async fn an_object_is_read_by_the_schema_of_now() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let text = json!({"type": "string"});
    let first = version("v1", true, &json!({"a": text, "old": text}), &[]);
    define(&client, &definition(&[first], &json!({"strategy": "None"}))).await;
    send(&client, "POST", &places("v1"), &place("v1", "x", &json!({"a": "1", "old": "2"}))).await;
    let with_default = json!({"a": text, "b": {"type": "string", "default": "B"}});
    define(
        &client,
        &definition(&[version("v1", true, &with_default, &[".b"])], &json!({"strategy": "None"})),
    )
    .await;
    let read = get(&client, &format!("{}/x", places("v1"))).await.body;
    assert_eq!((&read["a"], &read["b"]), (&json!("1"), &json!("B")), "defaults are set when it is read");
    assert_eq!(read.get("old"), None, "fields that are gone are not sent");
    let selected = get(&client, &format!("{}?fieldSelector=b%3DB", places("v1"))).await.body;
    assert_eq!(names(&selected), ["x"]);
    assert_eq!(selected["items"][0]["b"], "B");

    // Without a webhook, another version has what its schema has.
    let both = [
        version("v1", true, &with_default, &[]),
        version("v2", false, &json!({"b": text, "c": {"type": "string", "default": "C"}}), &[".b"]),
    ];
    define(&client, &definition(&both, &json!({"strategy": "None"}))).await;
    let read = get(&client, &format!("{}/x", places("v2"))).await.body;
    assert_eq!((&read["apiVersion"], &read["b"]), (&json!("example.com/v2"), &json!("B")));
    assert_eq!((read.get("a"), read.get("c")), (None, None));
    let written = send(&client, "POST", &places("v2"), &place("v2", "y", &json!({"b": "1"}))).await;
    assert_eq!((written.code, &written.body["b"]), (201, &json!("1")));
    assert_eq!(get(&client, &format!("{}/y", places("v1"))).await.body["b"], "1");
    server.shutdown().await;
}

#[tokio::test]
async fn a_patch_cannot_make_another_kind_of_an_object() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    define(&client, &definition(&versions("v1"), &json!({"strategy": "None"}))).await;
    send(&client, "POST", &places("v1"), &place("v1", "a", &json!({"hostPort": "h:1"}))).await;
    let custom = format!("{}/a", places("v1"));
    let root = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt".to_owned();
    for (path, change, code, expected) in [
        (
            &custom,
            json!({"kind": "Other"}),
            422,
            "Other.example.com \"a\" is invalid: kind: Invalid value: \"Other\": must be Place",
        ),
        (
            &custom,
            json!({"apiVersion": "x/v1"}),
            422,
            "Place.x \"a\" is invalid: apiVersion: Invalid value: \"x/v1\": must be example.com/v1",
        ),
        (
            &custom,
            json!({"apiVersion": null}),
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
        (
            &root,
            json!({"apiVersion": null}),
            400,
            "the name of the object (kube-root-ca.crt based on URL) was undeterminable: name must be provided",
        ),
        (
            &root,
            json!({"metadata": {"uid": "z"}}),
            422,
            "ConfigMap \"kube-root-ca.crt\" is invalid: metadata.uid: Invalid value: \"z\": field is immutable",
        ),
    ] {
        let answer = send(&client, "PATCH", path, &change).await;
        assert_eq!((answer.code, answer.body["message"].as_str()), (code, Some(expected)), "{change}");
    }
    let missing = send(&client, "PATCH", &custom, &json!({"kind": null})).await;
    let message = missing.body["message"].as_str().unwrap_or_default();
    assert!(missing.code == 422 && message.contains("Object 'Kind' is missing in '{"), "{message}");
    server.shutdown().await;
}

#[tokio::test]
async fn watches_are_in_the_version_that_is_watched() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let hook = Hook::start(convert).await;
    define(&client, &definition(&versions("v1"), &webhook(&hook, "/convert"))).await;
    let path = format!("{}?watch=true&timeoutSeconds=2&fieldSelector=host%3Dh", places("v2"));
    let watch = tokio::spawn({
        let client = admin(&server);
        async move { client.request("GET", &path, &[], String::new()).await.expect("an answer").body }
    });
    let started = async || (server_watches(&client).await > 0).then_some(());
    eventually("the watch has begun", started).await;
    for (name, host) in [("a", "h:80"), ("b", "i:80")] {
        send(&client, "POST", &places("v1"), &place("v1", name, &json!({"hostPort": host}))).await;
    }
    send(&client, "PATCH", &format!("{}/a", places("v1")), &json!({"hostPort": "i:80"})).await;
    let body = watch.await.expect("a watch");
    let text = body.as_str().unwrap_or_default();
    let events: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let seen: Vec<_> = events
        .iter()
        .map(|e| (e["type"].as_str(), e["object"]["metadata"]["name"].as_str(), e["object"]["host"].as_str()))
        .collect();
    let expected = [(Some("ADDED"), Some("a"), Some("h")), (Some("DELETED"), Some("a"), Some("h"))];
    assert_eq!(seen, expected, "{text}");
    server.shutdown().await;
}

async fn server_watches(client: &Client) -> u64 {
    let metrics = get(client, "/metrics").await.body;
    let line = metrics
        .as_str()
        .unwrap_or_default()
        .lines()
        .find(|line| line.starts_with("apiserver_longrunning_requests"));
    line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .map_or(0, |count| u64::from(count > 0.0))
}

#[tokio::test]
async fn autoscalers_are_one_object_in_two_versions() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let path =
        |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    let v1 = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3, "targetCPUUtilizationPercentage": 60},
    });
    let made = send(&client, "POST", &path("v1"), &v1).await;
    assert_eq!((made.code, &made.body["apiVersion"]), (201, &json!("autoscaling/v1")), "{}", made.body);
    assert_eq!(made.body["spec"]["minReplicas"], 1);
    let in_v2 = get(&client, &format!("{}/a", path("v2"))).await.body;
    assert_eq!(in_v2["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60, "{in_v2}");
    let memory = json!({"spec": {"metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 5}}}]}});
    assert_eq!(send(&client, "PATCH", &format!("{}/a", path("v2")), &memory).await.code, 200);
    let in_v1 = get(&client, &format!("{}/a", path("v1"))).await.body;
    assert_eq!(in_v1["spec"].get("targetCPUUtilizationPercentage"), None);
    let kept = in_v1["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].as_str();
    assert!(kept.is_some_and(|kept| kept.contains("memory")), "{in_v1}");
    let changed =
        send(&client, "PATCH", &format!("{}/a", path("v1")), &json!({"spec": {"maxReplicas": 9}})).await;
    assert_eq!((changed.code, &changed.body["spec"]["maxReplicas"]), (200, &json!(9)), "{}", changed.body);
    let in_v2 = get(&client, &format!("{}/a", path("v2"))).await.body;
    assert_eq!(in_v2["spec"]["metrics"][0]["resource"]["name"], "memory", "{in_v2}");
    assert_eq!(in_v2["metadata"].get("annotations"), None);
    let list = get(&client, &path("v1")).await.body;
    assert_eq!((&list["kind"], names(&list)), (&json!("HorizontalPodAutoscalerList"), vec!["a"]));
    let broken = json!({"metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": "{"}}});
    assert_eq!(send(&client, "PATCH", &format!("{}/a", path("v1")), &broken).await.code, 422);
    let gone = send(&client, "DELETE", &format!("{}/a", path("v1")), &Value::Null).await;
    assert_eq!(gone.code, 200);
    assert_eq!(names(&get(&client, &path("v2")).await.body), [""; 0]);
    server.shutdown().await;
}
