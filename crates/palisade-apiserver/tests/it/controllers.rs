//! What happens by itself: dependents follow their owners, namespaces are emptied, definitions take their objects along.

use std::time::{Duration, Instant};

use palisade_apiserver::Server;
use palisade_testkit::client::Client;
use palisade_testkit::eventually;
use serde_json::{Value, json};

use crate::support::{admin, config_map, get, send, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Waits until a path answers with a code.
async fn until(client: &Client, path: &str, code: u16) -> Value {
    let answered = async || {
        let answer = get(client, path).await;
        (answer.code == code).then_some(answer.body)
    };
    eventually(&format!("{path} answers {code}"), answered).await
}

async fn owner_and_dependent(client: &Client, owner: &str, dependent: &str) {
    let made = send(client, "POST", MAPS, &config_map(owner, "1")).await;
    let uid = &made.body["metadata"]["uid"];
    let mut map = config_map(dependent, "1");
    map["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": true}]);
    assert_eq!(send(client, "POST", MAPS, &map).await.code, 201);
}

#[tokio::test]
async fn dependents_follow_their_owners() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    owner_and_dependent(&client, "back", "back-dependent").await;
    owner_and_dependent(&client, "fore", "fore-dependent").await;
    owner_and_dependent(&client, "orphan", "orphan-dependent").await;
    let delete = |name: &str, policy: &str| format!("{MAPS}/{name}?propagationPolicy={policy}");
    assert_eq!(send(&client, "DELETE", &delete("back", "Background"), &Value::Null).await.code, 200);
    let fore = send(&client, "DELETE", &delete("fore", "Foreground"), &Value::Null).await;
    assert_eq!(fore.body["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let orphan = send(&client, "DELETE", &delete("orphan", "Orphan"), &Value::Null).await;
    assert_eq!(orphan.body["metadata"]["finalizers"], json!(["orphan"]));
    for gone in ["back", "back-dependent", "fore", "fore-dependent", "orphan"] {
        until(&client, &format!("{MAPS}/{gone}"), 404).await;
    }
    let kept = get(&client, &format!("{MAPS}/orphan-dependent")).await;
    assert_eq!((kept.code, &kept.body["metadata"]["ownerReferences"]), (200, &Value::Null));
    // An object with an owner that does not exist is removed as well.
    let mut lost = config_map("lost", "1");
    lost["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "11111111-1111-4111-8111-111111111111",
    }]);
    send(&client, "POST", MAPS, &lost).await;
    until(&client, &format!("{MAPS}/lost"), 404).await;
    server.shutdown().await;
}

fn owned_by(name: &str, owners: &[(&str, &Value)]) -> Value {
    let mut map = config_map(name, "1");
    let reference = |(name, uid): &(&str, &Value)| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true});
    map["metadata"]["ownerReferences"] = owners.iter().map(reference).collect();
    map
}

#[tokio::test]
async fn a_circle_of_owners_holds_up_no_deletion() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    for policy in ["Foreground", "Background"] {
        let names = [format!("{policy}-a"), format!("{policy}-b"), format!("{policy}-c")];
        let names = names.each_ref().map(|name| name.to_lowercase());
        let mut uids = Vec::new();
        for name in &names {
            uids.push(
                send(&client, "POST", MAPS, &config_map(name, "1")).await.body["metadata"]["uid"].clone(),
            );
        }
        for (at, name) in names.iter().enumerate() {
            let owner = (at + 2) % 3;
            let map = owned_by(name, &[(&names[owner], &uids[owner])]);
            assert_eq!(send(&client, "PUT", &format!("{MAPS}/{name}"), &map).await.code, 200);
        }
        let first = format!("{MAPS}/{}?propagationPolicy={policy}", names[0]);
        assert_eq!(send(&client, "DELETE", &first, &Value::Null).await.code, 200);
        for name in &names {
            until(&client, &format!("{MAPS}/{name}"), 404).await;
        }
    }
    server.shutdown().await;
}

#[tokio::test]
async fn an_owner_that_goes_leaves_dependents_of_others() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let mut uids = Vec::new();
    for name in ["goes", "stays"] {
        uids.push(send(&client, "POST", MAPS, &config_map(name, "1")).await.body["metadata"]["uid"].clone());
    }
    let both = owned_by("both", &[("goes", &uids[0]), ("stays", &uids[1])]);
    assert_eq!(send(&client, "POST", MAPS, &both).await.code, 201);
    send(&client, "DELETE", &format!("{MAPS}/goes?propagationPolicy=Foreground"), &Value::Null).await;
    until(&client, &format!("{MAPS}/goes"), 404).await;
    let owners = get(&client, &format!("{MAPS}/both")).await.body["metadata"]["ownerReferences"].clone();
    assert_eq!(owners.as_array().map(Vec::len), Some(1), "{owners}");
    assert_eq!(owners[0]["name"], "stays");
    server.shutdown().await;
}

#[tokio::test]
async fn the_certificate_of_the_authority_is_published_again() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let path = format!("{MAPS}/kube-root-ca.crt");
    let made = get(&client, &path).await.body;
    let published = async |case: &str| {
        let answered = async || {
            let answer = get(&client, &path).await;
            (answer.code == 200 && answer.body["data"] == made["data"]).then_some(answer.body)
        };
        eventually(case, answered).await
    };
    assert_eq!(send(&client, "DELETE", &path, &Value::Null).await.code, 200);
    let again = published("made again").await;
    assert_ne!(again["metadata"]["uid"], made["metadata"]["uid"]);
    let mut changed = again.clone();
    changed["data"] = json!({"ca.crt": "forged", "more": "1"});
    changed["metadata"]["annotations"] = json!({"a": "b"});
    assert_eq!(send(&client, "PUT", &path, &changed).await.code, 200);
    let restored = published("written again").await;
    assert_eq!(restored["metadata"]["uid"], again["metadata"]["uid"]);
    assert_eq!(restored["metadata"]["annotations"]["a"], "b");
    assert_ne!(restored["metadata"]["annotations"]["kubernetes.io/description"], Value::Null);
    server.shutdown().await;
}

#[tokio::test]
async fn a_namespace_goes_with_its_content() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    send(&client, "POST", "/api/v1/namespaces", &namespace).await;
    assert_eq!(get(&client, "/api/v1/namespaces/n/serviceaccounts/default").await.code, 200, "at once");
    send(&client, "POST", "/api/v1/namespaces/n/configmaps", &config_map("a", "1")).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(send(&client, "POST", "/api/v1/namespaces/n/pods", &pod).await.code, 201);
    let terminating = send(&client, "DELETE", "/api/v1/namespaces/n", &Value::Null).await;
    assert_eq!(terminating.body["status"]["phase"], "Terminating");
    let refused = send(&client, "POST", "/api/v1/namespaces/n/configmaps", &config_map("b", "1")).await;
    assert_eq!(refused.code, 403);
    until(&client, "/api/v1/namespaces/n", 404).await;
    for path in ["configmaps", "pods", "serviceaccounts"] {
        let list = get(&client, &format!("/api/v1/namespaces/n/{path}")).await;
        assert_eq!(list.body["items"], json!([]), "{path}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn namespaces_are_left_to_a_controller_manager_that_leads() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let now = palisade_base::time::rfc3339_micro(jiff::Timestamp::now().as_microsecond());
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "kube-controller-manager"},
        "spec": {"holderIdentity": "elsewhere", "leaseDurationSeconds": 3600, "renewTime": now}});
    assert_eq!(send(&client, "POST", leases, &lease).await.code, 201);
    for name in ["left", "taken"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        assert_eq!(send(&client, "POST", "/api/v1/namespaces", &namespace).await.code, 201);
    }
    assert_eq!(send(&client, "DELETE", "/api/v1/namespaces/left", &Value::Null).await.code, 200);
    // What only this server does goes on: an address that appears shows that the controllers had a turn.
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    let made = send(&client, "POST", "/api/v1/namespaces/taken/services", &service).await;
    let address = made.body["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    until(&client, &format!("/apis/networking.k8s.io/v1/ipaddresses/{address}"), 200).await;
    let account = get(&client, "/api/v1/namespaces/taken/serviceaccounts/default").await;
    assert_eq!(account.code, 404, "accounts are the controller manager's");
    assert_eq!(get(&client, "/api/v1/namespaces/left").await.body["status"]["phase"], "Terminating");

    let freed = json!({"spec": {"holderIdentity": ""}});
    let path = format!("{leases}/kube-controller-manager");
    assert_eq!(send(&client, "PATCH", &path, &freed).await.code, 200);
    until(&client, "/api/v1/namespaces/left", 404).await;
    until(&client, "/api/v1/namespaces/taken/serviceaccounts/default", 200).await;
    server.shutdown().await;
}

#[tokio::test]
async fn pods_leave_a_namespace_before_anything_else() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    send(&client, "POST", "/api/v1/namespaces", &namespace).await;
    send(&client, "POST", "/api/v1/namespaces/n/configmaps", &config_map("a", "1")).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(send(&client, "POST", "/api/v1/namespaces/n/pods", &pod).await.code, 201);
    send(&client, "DELETE", "/api/v1/namespaces/n", &Value::Null).await;
    let path = "/api/v1/namespaces/n/pods/p";
    let deleting = async || {
        let pod = get(&client, path).await.body;
        pod["metadata"]["deletionTimestamp"].is_string().then_some(())
    };
    eventually("the pod is being deleted", deleting).await;
    assert_eq!(get(&client, "/api/v1/namespaces/n/configmaps/a").await.code, 200, "it waits for the pod");
    let free = json!({"metadata": {"finalizers": null}});
    assert_eq!(send(&client, "PATCH", path, &free).await.code, 200);
    until(&client, "/api/v1/namespaces/n", 404).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_definition_takes_its_objects_along() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                    "properties": {"n": {"type": "integer", "maximum": 3}}}}}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&client, "POST", definitions, &definition).await.code, 201);
    let things = "/apis/example.com/v1/namespaces/default/things";
    until(&client, things, 200).await;
    let thing = |n: i64| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"n": n, "dropped": 1},
        })
    };
    assert_eq!(send(&client, "POST", things, &thing(4)).await.code, 422);
    let made = send(&client, "POST", things, &thing(3)).await;
    assert_eq!((made.code, &made.body["spec"]), (201, &json!({"n": 3})));
    let unversioned = send(&client, "PUT", &format!("{things}/t"), &thing(2)).await;
    assert_eq!(unversioned.code, 422, "{}", unversioned.body);
    send(&client, "DELETE", &format!("{definitions}/things.example.com"), &Value::Null).await;
    until(&client, &format!("{definitions}/things.example.com"), 404).await;
    until(&client, things, 404).await;
    send(&client, "POST", definitions, &definition).await;
    assert_eq!(until(&client, things, 200).await["items"], json!([]), "nothing comes back");
    server.shutdown().await;
}

#[tokio::test]
async fn audit_metrics_and_health() {
    let directory = tempfile::tempdir().expect("directory");
    let log = directory.path().join("audit.log");
    let server = start(Server::builder().audit_log(&log)).await;
    let client = admin(&server);
    send(&client, "POST", MAPS, &config_map("a", "1")).await;
    let headers = [("impersonate-user", "bob".to_owned())];
    client.request("GET", MAPS, &headers, String::new()).await.expect("an answer");
    let metrics = get(&client, "/metrics").await.body;
    let metrics = metrics.as_str().expect("text").to_owned();
    let line = "apiserver_request_total{code=\"201\",component=\"apiserver\",group=\"\",resource=\"configmaps\",\
                scope=\"namespace\",subresource=\"\",verb=\"POST\",version=\"v1\"} 1";
    assert!(metrics.contains(line), "{metrics}");
    let verbose = get(&client, "/readyz?verbose").await.body;
    assert!(verbose.as_str().is_some_and(|t| t.ends_with("readyz check passed\n")), "{verbose}");
    assert_eq!(get(&client, "/livez/ping").await.body, "ok");
    server.shutdown().await;
    let complete = async || std::fs::read_to_string(&log).ok().filter(|text| text.contains("\"bob\""));
    let text = eventually("the last request is in the log", complete).await;
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let created = events.iter().find(|e| e["verb"] == "create").expect("recorded");
    assert_eq!(created["objectRef"]["resource"], "configmaps");
    assert_eq!(created["responseStatus"]["code"], 201);
    assert_eq!(created["user"]["username"], "kubernetes-admin");
    let refused = events.iter().find(|e| e["impersonatedUser"]["username"] == "bob").expect("recorded");
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
}

#[tokio::test]
async fn events_of_either_form_are_shown_in_both() {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    let (core, new) =
        ("/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events");
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "type": "Warning",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "why", "reason": "Failed",
        "action": "Starting", "reportingController": "palisade.dev/x", "reportingInstance": "x-1",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    assert_eq!(send(&client, "POST", new, &event).await.code, 201);
    let seen = get(&client, &format!("{core}?fieldSelector=involvedObject.name%3Dp")).await.body;
    let seen = &seen["items"][0];
    assert_eq!(
        (&seen["message"], &seen["reportingComponent"]),
        (&json!("why"), &json!("palisade.dev/x")),
        "{seen}"
    );
    assert_eq!(seen["involvedObject"]["kind"], "Pod");
    let changed = send(&client, "PATCH", &format!("{core}/e"), &json!({"count": 2})).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    let seen = get(&client, &format!("{new}/e")).await.body;
    assert_eq!((&seen["deprecatedCount"], &seen["note"]), (&json!(2), &json!("why")), "{seen}");
    assert_eq!(send(&client, "DELETE", &format!("{core}/e"), &Value::Null).await.code, 200);
    assert_eq!(get(&client, &format!("{new}/e")).await.code, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_dumps_are_loaded_at_once() {
    let folder = tempfile::tempdir().expect("folder");
    let item = |n: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}"), "namespace": "dumped"}});
    let mut items = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dumped"}})];
    items.extend((0..5_000).map(item));
    let dump = folder.path().join("dump.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    std::fs::write(&dump, list.to_string()).expect("written");
    let began = Instant::now();
    let data = folder.path().join("data");
    let server = start(Server::builder().controllers(false).data_dir(&data).snapshot(&dump)).await;
    // Each on its own would wait for the disk 5,000 times.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let client = admin(&server);
    // Every namespace has one besides, for its service accounts.
    let others = "fieldSelector=metadata.name!%3Dkube-root-ca.crt";
    let listed = get(&client, &format!("/api/v1/namespaces/dumped/configmaps?{others}")).await.body;
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(5_000));
}
