//! One bad record never stops the server: it is set aside, reported, kept, and removed by who may.

use std::path::Path;

use palisade_apiserver::{Builder, Server};
use redb::{ReadableDatabase as _, ReadableTable as _};
use serde_json::{Value, json};

use crate::support::{admin, client, config_map, get, send, start};

const OBJECTS: redb::TableDefinition<'_, &str, &[u8]> = redb::TableDefinition::new("objects");
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const SET_ASIDE: &str = "/palisade/set-aside";

fn builder(directory: &Path) -> Builder {
    Server::builder().controllers(false).data_dir(directory)
}

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// A record as the store writes it.
fn record(object: &Value) -> Vec<u8> {
    let mut record = 2_u32.to_le_bytes().to_vec();
    record.extend_from_slice(b"[]");
    record.extend_from_slice(object.to_string().as_bytes());
    record
}

/// Writes records behind the server's back, as an earlier version or a bad disk would have.
fn tamper(directory: &Path, records: &[(&str, Vec<u8>)]) {
    let database = redb::Database::open(directory.join("objects.redb")).expect("database");
    let transaction = database.begin_write().expect("transaction");
    {
        let mut table = transaction.open_table(OBJECTS).expect("table");
        for (key, record) in records {
            table.insert(*key, record.as_slice()).expect("written");
        }
    }
    transaction.commit().expect("committed");
}

fn stored_keys(directory: &Path) -> Vec<String> {
    let database = redb::Database::open(directory.join("objects.redb")).expect("database");
    let table = database.begin_read().expect("transaction").open_table(OBJECTS).expect("table");
    table.iter().expect("rows").map(|row| row.expect("row").0.value().to_owned()).collect()
}

async fn text(client: &palisade_testkit::client::Client, path: &str) -> String {
    let answer = get(client, path).await;
    assert_eq!(answer.code, 200, "{path}: {}", answer.body);
    answer.body.as_str().map_or_else(|| answer.body.to_string(), str::to_owned)
}

#[tokio::test]
async fn null_metadata_of_custom_resources_survives_a_restart() {
    let directory = tempfile::tempdir().expect("directory");
    let server = start(builder(directory.path())).await;
    let client = admin(&server);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&client, "POST", path, &definition()).await.code, 201);
    let nulls = "labels: null\n  annotations: null\n  ownerReferences: null\n  finalizers: null\n  managedFields: null\n  \
                 creationTimestamp: null\n";
    let headers = [("content-type", "application/apply-patch+yaml".to_owned())];
    let applied = format!("apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: applied\n  {nulls}");
    let answer =
        client.request("PATCH", &format!("{WIDGETS}/applied?fieldManager=x"), &headers, applied).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.code, 201, "{}", answer.body);
    let created = json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "created", "labels": null, "annotations": {"a": null}, "finalizers": null}});
    assert_eq!(send(&client, "POST", WIDGETS, &created).await.code, 201);
    let nulled = json!([{"op": "add", "path": "/metadata/labels", "value": null}]).to_string();
    let headers = [("content-type", "application/json-patch+json".to_owned())];
    let answer =
        client.request("PATCH", &format!("{WIDGETS}/created"), &headers, nulled).await.expect("an answer");
    assert!(answer.code == 200 || answer.code == 422, "{}", answer.body);
    server.shutdown().await;
    drop(client);
    let server = start(builder(directory.path())).await;
    let client = admin(&server);
    for name in ["applied", "created"] {
        let widget = get(&client, &format!("{WIDGETS}/{name}")).await;
        assert_eq!(widget.code, 200, "{}", widget.body);
        assert_eq!(widget.body["metadata"].get("labels"), None, "{}", widget.body);
    }
    assert!(server.api.store.set_aside().is_empty());
    assert!(!text(&client, "/readyz?verbose").await.contains("set-aside"), "nothing to report");
}

#[tokio::test]
async fn what_cannot_be_read_is_set_aside_until_it_is_removed() {
    let directory = tempfile::tempdir().expect("directory");
    let server = start(builder(directory.path())).await;
    let client = admin(&server);
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(send(&client, "POST", maps, &config_map("good", "1")).await.code, 201);
    server.shutdown().await;
    drop(client);
    let meta =
        |name: &str| json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": "7"});
    let whole = record(&json!({"metadata": meta("cut"), "data": {"k": "v"}}));
    let mut nulls = meta("nulls");
    nulls["labels"] = Value::Null;
    nulls["annotations"] = json!({"a": null});
    let pod = json!({"metadata": meta("p"), "spec": {"containers": [{"name": "c", "image": "i",
        "securityContext": {"runAsUser": 1.5}}]}});
    let mut bad_labels = meta("labels");
    bad_labels["labels"] = json!({"a": 1});
    tamper(
        directory.path(),
        &[
            ("configmaps\0default/cut", whole[..whole.len() - 5].to_vec()),
            ("configmaps\0default/empty", Vec::new()),
            ("configmaps\0default/fields", b"\xff\xff\xff\xff{}".to_vec()),
            ("configmaps\0default/labels", record(&json!({"metadata": bad_labels}))),
            ("configmaps\0default/nulls", record(&json!({"metadata": nulls, "data": {"k": "v"}}))),
            ("configmaps\0default/none", record(&json!({"data": {}}))),
            ("no resource", record(&json!({"metadata": meta("x")}))),
            ("pods\0default/p", record(&pod)),
            ("gadgets.gone.example.com\0default/g", record(&json!({"metadata": meta("g")}))),
        ],
    );
    let server = start(builder(directory.path())).await;
    let client = admin(&server);
    assert_eq!(get(&client, &format!("{maps}/good")).await.body["data"]["k"], "1");
    let nulls = get(&client, &format!("{maps}/nulls")).await;
    assert_eq!((nulls.code, nulls.body["metadata"].get("labels")), (200, None), "{}", nulls.body);
    assert_eq!(nulls.body["metadata"]["annotations"]["a"], "");
    let list = get(&client, SET_ASIDE).await;
    assert_eq!(list.code, 200, "{}", list.body);
    let items = list.body["items"].as_array().expect("items").clone();
    let mut seen: Vec<String> = items
        .iter()
        .map(|i| format!("{} {} {}", i["state"], i["resource"], i["name"]).replace('"', ""))
        .collect();
    seen.sort();
    assert_eq!(
        seen,
        [
            "Unreadable  no resource",
            "Unreadable configmaps cut",
            "Unreadable configmaps empty",
            "Unreadable configmaps fields",
            "Unreadable configmaps labels",
            "Unreadable configmaps none",
            "Unreadable pods p",
            "Unserved gadgets.gone.example.com g",
        ]
    );
    assert!(items.iter().all(|i| i["reason"].as_str().is_some_and(|why| !why.is_empty())), "{items:?}");
    // Reported.
    let ready = text(&client, "/readyz?verbose").await;
    assert!(ready.contains("set-aside-records ok: 7 unreadable, 1 of kinds not served"), "{ready}");
    assert_eq!(text(&client, "/readyz").await, "ok");
    let metrics = text(&client, "/metrics").await;
    assert!(metrics.contains("palisade_storage_set_aside_records{state=\"Unreadable\"} 7"), "{metrics}");
    // For administrators only.
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = send(&client, "POST", token, &request).await;
    let unprivileged = self::client(&server, token.body["status"]["token"].as_str().expect("a token"));
    assert_eq!(get(&unprivileged, SET_ASIDE).await.code, 403);
    // What is written under the same name does not replace it.
    assert_eq!(send(&client, "POST", maps, &config_map("cut", "2")).await.code, 201);
    drop(unprivileged);
    server.shutdown().await;
    drop(client);
    assert!(!stored_keys(directory.path()).iter().any(|key| key.ends_with("/empty")), "moved");

    let server = start(builder(directory.path())).await;
    let client = admin(&server);
    let list = get(&client, SET_ASIDE).await;
    assert_eq!(list.body["items"].as_array().map(Vec::len), Some(8), "kept: {}", list.body);
    assert_eq!(get(&client, &format!("{maps}/cut")).await.body["data"]["k"], "2");
    for item in list.body["items"].as_array().expect("items") {
        let path = format!("{SET_ASIDE}/{}", item["id"].as_str().expect("id"));
        assert_eq!(get(&client, &path).await.code, 200);
        assert_eq!(send(&client, "DELETE", &path, &Value::Null).await.code, 200);
        assert_eq!(send(&client, "DELETE", &path, &Value::Null).await.code, 404);
    }
    assert_eq!(get(&client, SET_ASIDE).await.body["items"], json!([]));
    server.shutdown().await;
    drop(client);
    let server = start(builder(directory.path())).await;
    let client = admin(&server);
    assert_eq!(get(&client, SET_ASIDE).await.body["items"], json!([]), "gone for good");
    assert_eq!(get(&client, &format!("{maps}/good")).await.code, 200);
}

/// Everything the server itself stores can be read again, in every mode.
#[tokio::test]
async fn nothing_of_the_servers_own_is_set_aside() {
    for openshift in [false, true] {
        let directory = tempfile::tempdir().expect("directory");
        let build = || {
            let compat = palisade_model::compat::Compat::designs();
            Server::builder().data_dir(directory.path()).openshift(openshift).compat(compat)
        };
        let server = start(build()).await;
        server.shutdown().await;
        let server = start(build()).await;
        let found = server.api.store.set_aside();
        assert!(found.is_empty(), "{found:?}");
        server.shutdown().await;
    }
}
