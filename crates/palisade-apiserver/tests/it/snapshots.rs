//! A snapshot is restored as it was.

use std::path::Path;

use palisade_apiserver::{Builder, Server};
use palisade_testkit::eventually;
use serde_json::{Value, json};

use crate::support::{admin, get, send, start};

const NS: &str = "/api/v1/namespaces/shop";

/// What a controller made: metadata as a server stores it.
fn meta(name: &str, uid: &str, owner: Option<(&str, &str, &str, &str)>) -> Value {
    let mut meta = json!({"name": name, "namespace": "shop", "uid": uid, "resourceVersion": "5000", "generation": 3,
        "creationTimestamp": "2024-05-06T07:08:09Z", "labels": {"app": "web"}});
    if let Some((api_version, kind, name, uid)) = owner {
        meta["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
            "controller": true, "blockOwnerDeletion": true}]);
    }
    meta
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}})
}

fn dump() -> Value {
    let selector = json!({"matchLabels": {"app": "web"}});
    let running = json!({"phase": "Running", "podIP": "10.0.0.7", "startTime": "2024-05-06T07:08:10Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2024-05-06T07:08:11Z"}]});
    let mut terminating = meta("leaving", "u-leaving", None);
    terminating["deletionTimestamp"] = json!("2024-05-07T00:00:00Z");
    terminating["deletionGracePeriodSeconds"] = json!(0);
    terminating["finalizers"] = json!(["example.com/wait"]);
    let pod_spec = json!({"nodeName": "n1", "containers": [{"name": "c", "image": "web:1",
        "securityContext": {"privileged": true}}]});
    let mut job_labels = meta("import", "u-job", None);
    job_labels["labels"] =
        json!({"batch.kubernetes.io/controller-uid": "u-job", "batch.kubernetes.io/job-name": "import"});
    let job_pods = json!({"metadata": {"labels": job_labels["labels"]},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta("w", "u-widget", Some(("apps/v1", "Deployment", "web", "u-deployment"))),
            "spec": {"size": 3}, "status": {"ready": true}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta("web-1", "u-pod", Some(("apps/v1", "ReplicaSet", "web-a", "u-set"))),
            "spec": pod_spec, "status": running},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta("web-a", "u-set", Some(("apps/v1", "Deployment", "web", "u-deployment"))),
            "spec": {"replicas": 1, "selector": selector, "template": template()}, "status": {"replicas": 1, "readyReplicas": 1}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("web", "u-deployment", None),
            "spec": {"replicas": 1, "selector": selector, "template": template()},
            "status": {"replicas": 1, "observedGeneration": 3, "readyReplicas": 1}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": job_labels,
            "spec": {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u-job"}}, "template": job_pods,
                "completions": 1, "parallelism": 1},
            "status": {"succeeded": 1, "startTime": "2024-05-06T07:08:09Z", "completionTime": "2024-05-06T07:09:09Z"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": terminating, "data": {"k": "v"}},
        {"apiVersion": "unserved.example.com/v1", "kind": "Gadget", "metadata": meta("g", "u-gadget", None)},
        {"apiVersion": "unserved.example.com/v1", "kind": "Gadget", "metadata": meta("h", "u-gadget-2", None)},
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta("unreadable", "u-bad", None),
            "spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"runAsUser": 0.5}}]}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "manifest", "namespace": "shop"}, "data": {"k": "v"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "u-shop",
            "creationTimestamp": "2024-01-01T00:00:00Z", "resourceVersion": "4000"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "uid": "u-default",
            "creationTimestamp": "2024-01-01T00:00:00Z", "labels": {"team": "a"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com", "uid": "u-definition", "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}},
    ]})
}

fn builder(dump: &Path) -> Builder {
    Server::builder().snapshot(dump)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uids_owners_times_and_statuses_stay() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("dump.json");
    std::fs::write(&file, dump().to_string()).expect("written");
    let data = folder.path().join("data");
    let server = start(builder(&file).data_dir(&data)).await;
    let report = server.snapshots.first().expect("a report").clone();
    assert_eq!(report.loaded, 10, "{report:?}");
    assert_eq!(report.unserved.get(&("unserved.example.com/v1".to_owned(), "Gadget".to_owned())), Some(&2));
    assert_eq!(report.rejected.len(), 1, "{report:?}");
    assert!(report.rejected[0].starts_with("Pod shop/unreadable: "), "{report:?}");
    let client = admin(&server);
    // The garbage collector has been at work when it has taken what has no owner.
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "u-none"}]);
    let orphan = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "orphan", "ownerReferences": owner}});
    assert_eq!(send(&client, "POST", &format!("{NS}/configmaps"), &orphan).await.code, 201);
    let path = format!("{NS}/configmaps/orphan");
    let collected = async || (get(&client, &path).await.code == 404).then_some(());
    eventually("the orphan is collected", collected).await;
    for (path, uid, pointer, expected) in [
        (
            "/apis/apps/v1/namespaces/shop/deployments/web".to_owned(),
            "u-deployment",
            "/status/readyReplicas",
            json!(1),
        ),
        ("/apis/apps/v1/namespaces/shop/replicasets/web-a".to_owned(), "u-set", "/status/replicas", json!(1)),
        (format!("{NS}/pods/web-1"), "u-pod", "/status/phase", json!("Running")),
        (format!("{NS}/pods/web-1"), "u-pod", "/status/podIP", json!("10.0.0.7")),
        (format!("{NS}/pods/web-1"), "u-pod", "/spec/nodeName", json!("n1")),
        (format!("{NS}/pods/web-1"), "u-pod", "/metadata/ownerReferences/0/uid", json!("u-set")),
        (format!("{NS}/pods/web-1"), "u-pod", "/metadata/creationTimestamp", json!("2024-05-06T07:08:09Z")),
        (format!("{NS}/pods/web-1"), "u-pod", "/metadata/generation", json!(3)),
        ("/apis/batch/v1/namespaces/shop/jobs/import".to_owned(), "u-job", "/status/succeeded", json!(1)),
        (
            "/apis/example.com/v1/namespaces/shop/widgets/w".to_owned(),
            "u-widget",
            "/status/ready",
            json!(true),
        ),
        (
            format!("{NS}/configmaps/leaving"),
            "u-leaving",
            "/metadata/deletionTimestamp",
            json!("2024-05-07T00:00:00Z"),
        ),
        (NS.to_owned(), "u-shop", "/status/phase", json!("Active")),
        ("/api/v1/namespaces/default".to_owned(), "u-default", "/metadata/labels/team", json!("a")),
    ] {
        let answer = get(&client, &path).await;
        assert_eq!(answer.code, 200, "{path}: {}", answer.body);
        assert_eq!(answer.body["metadata"]["uid"], uid, "{path}");
        assert_eq!(answer.body.pointer(pointer), Some(&expected), "{path} {pointer}: {}", answer.body);
        let version: u64 = answer.body["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|v| v.parse().ok())
            .expect("version");
        assert!(version > 5000, "{path} has {version}, which the dump may have used");
    }
    let manifest = get(&client, &format!("{NS}/configmaps/manifest")).await;
    assert_eq!(manifest.body["metadata"]["uid"].as_str().map(str::len), Some(36), "{}", manifest.body);
    assert_eq!(get(&client, &format!("{NS}/pods/unreadable")).await.code, 404);
    // An existing pod is judged as any other: a change of the namespace's level reports it.
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    let labelled = send(&client, "PATCH", &format!("{NS}?dryRun=All"), &label).await;
    assert!(labelled.warnings.iter().any(|w| w.contains("web-1")), "{:?}", labelled.warnings);
    // What happened since stays: a second start with the same file changes nothing.
    assert_eq!(
        send(&client, "PATCH", &format!("{NS}/configmaps/manifest"), &json!({"data": {"k": "2"}})).await.code,
        200
    );
    server.shutdown().await;
    drop(client);
    let server = start(builder(&file).data_dir(&data)).await;
    let report = server.snapshots.first().expect("a report").clone();
    assert_eq!((report.loaded, report.kept), (0, 10), "{report:?}");
    let client = admin(&server);
    assert_eq!(get(&client, &format!("{NS}/configmaps/manifest")).await.body["data"]["k"], "2");
    server.shutdown().await;
}

#[tokio::test]
async fn lists_of_the_api_itself_are_dumps_too() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("pods.json");
    let pod = json!({"metadata": meta("p", "u-pod", None), "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Succeeded"}});
    std::fs::write(&file, json!({"kind": "PodList", "apiVersion": "v1", "items": [pod]}).to_string())
        .expect("written");
    let server = start(builder(&file).controllers(false)).await;
    let pod = get(&admin(&server), &format!("{NS}/pods/p")).await;
    assert_eq!(pod.body["status"]["phase"], "Succeeded", "{}", pod.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_object_is_reported() {
    let folder = tempfile::tempdir().expect("folder");
    let config_map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    for (case, text, loaded, rejected) in [
        ("an object", config_map.to_owned(), 1, &[][..]),
        ("an empty file", "# nothing\n".to_owned(), 0, &["it has no Kubernetes objects"]),
        ("a text", format!("{config_map}---\nroot:x:0\n"), 1, &["not a Kubernetes object: \"root:x:0\""]),
        (
            "items of a list",
            "apiVersion: v1\nkind: List\nitems: [7, {a: b}]\n".to_owned(),
            0,
            &["not a Kubernetes object: 7", "not a Kubernetes object: {\"a\":\"b\"}"],
        ),
    ] {
        let file = folder.path().join("dump.yaml");
        std::fs::write(&file, text).expect("written");
        let server = start(builder(&file)).await;
        let report = server.snapshots.first().expect("a report");
        assert_eq!(report.loaded, loaded, "{case}: {report:?}");
        assert_eq!(report.rejected, rejected, "{case}");
        server.shutdown().await;
    }
}
