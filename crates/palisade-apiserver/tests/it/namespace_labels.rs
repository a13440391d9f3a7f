//! A dry run of a stricter level: what it reports of pods, of templates without pods, and of what cannot be decoded.

use http::Request;
use kube::{Client, client::Body};
use palisade_apimachinery::crd;
use palisade_apiserver::storage::{Expect, Write};
use palisade_apiserver::{Server, Store};
use palisade_base::version::KubeVersion;
use palisade_model::compat::Compat;
use serde_json::{Value, json};

struct Cluster {
    client: Client,
    store: Store,
}

impl Cluster {
    fn new(compat: Compat) -> Self {
        let store = Store::in_memory();
        let version = KubeVersion::v1(compat.api_minor());
        let builder = Server::builder().version(version).compat(compat).store(store.clone());
        let router = builder.disable_plugins(["ServiceAccount".to_owned()]).router().expect("router");
        Self { client: Client::new(router, "default"), store }
    }

    async fn create(&self, path: &str, object: &Value) {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(object).expect("JSON")).expect("request");
        self.client.request::<Value>(request).await.expect("created");
    }

    /// Stores what no request could: an object that only a custom kind without rules can read.
    async fn store(&self, bucket: &str, name: &str, object: &Value) {
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({"spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": anything}}]}});
        let text = definition.to_string().into();
        let read = crd::Definition::read(&text, KubeVersion::LATEST, None).expect("a definition");
        let object = read.kinds[0].read(object.clone()).expect("readable");
        let key = format!("default/{name}");
        let write = Write::store(self.store.bucket(bucket), &key, Expect::Absent, object, Vec::new());
        self.store.commit(write).await.expect("stored");
    }

    /// The warnings of `kubectl label --dry-run=server namespace default pod-security.kubernetes.io/enforce=LEVEL`.
    async fn label(&self, level: &str) -> Vec<String> {
        let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
        let request = Request::patch("/api/v1/namespaces/default?dryRun=All")
            .header("content-type", "application/merge-patch+json")
            .body(Body::from(serde_json::to_vec(&labels).expect("JSON")))
            .expect("request");
        let response = self.client.send(request).await.expect("an answer");
        assert!(response.status().is_success(), "{response:?}");
        let warnings = response.headers().get_all("warning").into_iter();
        warnings
            .map(|value| {
                let text = value.to_str().expect("text");
                let text = text.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"'));
                text.expect("a warning").replace("\\\"", "\"")
            })
            .collect()
    }
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const HEADER: &str = r#"existing pod templates in namespace "default" violate the new PodSecurity enforce level "baseline:latest""#;

fn workload(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": spec}}})
}

fn host_network() -> Value {
    json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]})
}

fn plain() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}]})
}

#[tokio::test]
async fn templates_without_pods_are_warned_about_and_marked() {
    let cluster = Cluster::new(Compat::designs());
    cluster.create(DEPLOYMENTS, &workload("fine", &plain())).await;
    assert_eq!(cluster.label("baseline").await, [""; 0]);
    for name in ["web", "api"] {
        cluster.create(DEPLOYMENTS, &workload(name, &host_network())).await;
    }
    let nightly = json!({"metadata": {"name": "nightly"}, "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}}}}});
    cluster.create("/apis/batch/v1/namespaces/default/cronjobs", &nightly).await;
    assert_eq!(
        cluster.label("baseline").await,
        [
            HEADER,
            "cronjobs.batch/nightly: hostPath volumes",
            "deployments.apps/api (and 1 other template): host namespaces",
        ]
    );
    // Pods come first, in upstream's words, and apart.
    let pod = json!({"metadata": {"name": "p"}, "spec": host_network()});
    cluster.create("/api/v1/namespaces/default/pods", &pod).await;
    let warnings = cluster.label("baseline").await;
    assert_eq!(
        warnings[..3],
        [
            r#"existing pods in namespace "default" violate the new PodSecurity enforce level "baseline:latest""#,
            "p: host namespaces",
            HEADER,
        ]
    );
}

/// The node runs the extensions' fields, so that a stricter level counts them.
#[tokio::test]
async fn fields_of_the_extensions_are_seen_in_pods_and_templates() {
    let cluster = Cluster::new(Compat::designs());
    for (name, context) in [
        ("defaults", json!({"containerDefaults": {"privileged": true}})),
        ("host", json!({"hostNetwork": true})),
    ] {
        let spec = json!({"securityContext": context, "containers": [{"name": "c", "image": "i"}]});
        cluster.create(DEPLOYMENTS, &workload(name, &spec)).await;
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        cluster.create("/api/v1/namespaces/default/pods", &pod).await;
    }
    let warnings = cluster.label("baseline").await;
    for line in ["defaults: ", "host: ", "deployments.apps/defaults: ", "deployments.apps/host: "] {
        assert!(warnings.iter().any(|warning| warning.starts_with(line)), "{line}: {warnings:#?}");
    }
}

#[tokio::test]
async fn what_cannot_be_decoded_is_a_warning() {
    let cluster = Cluster::new(Compat::designs());
    let odd = json!({"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": "very"}}]});
    for (name, spec) in [("odd", odd.clone()), ("none", json!(7))] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec});
        cluster.store("pods", name, &pod).await;
    }
    let without = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "without", "namespace": "default", "uid": "w"}});
    cluster.store("pods", "without", &without).await;
    let mut broken = workload("broken", &odd);
    broken["metadata"]["namespace"] = json!("default");
    broken["metadata"]["uid"] = json!("b");
    cluster.store("deployments.apps", "broken", &broken).await;
    let empty = json!({"metadata": {"name": "empty", "namespace": "default", "uid": "e"}, "spec": {}});
    cluster.store("statefulsets.apps", "empty", &empty).await;
    let warnings = cluster.label("baseline").await;
    for line in [
        "odd: pod cannot be decoded: ",
        "none: pod cannot be decoded: ",
        "without: pod cannot be decoded: ",
        "deployments.apps/broken: template cannot be decoded: ",
        "statefulsets.apps/empty: template cannot be decoded: ",
    ] {
        assert!(warnings.iter().any(|warning| warning.starts_with(line)), "{line}: {warnings:#?}");
    }
}

#[tokio::test]
async fn a_controller_that_does_not_exist_hides_no_template() {
    let cluster = Cluster::new(Compat::designs());
    let mut old = workload("old", &host_network());
    old["spec"]["replicas"] = json!(0);
    old["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
        "uid": "made-up", "controller": true}]);
    cluster.create(REPLICA_SETS, &old).await;
    assert_eq!(cluster.label("baseline").await, [HEADER, "replicasets.apps/old: host namespaces"]);
}

#[tokio::test]
async fn an_emulated_release_looks_at_pods_only() {
    for minor in [25, 37] {
        let cluster = Cluster::new(Compat::kubernetes(minor));
        cluster.create(DEPLOYMENTS, &workload("web", &host_network())).await;
        assert_eq!(cluster.label("baseline").await, [""; 0], "v1.{minor}");
    }
}
