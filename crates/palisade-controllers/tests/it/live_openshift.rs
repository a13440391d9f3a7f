//! The rollout beside the parts that OpenShift has itself: it recognises them, leaves them alone, and names whom it waits for.

use palisade_controllers::{
    api::{CUSTOM_RESOURCE_DEFINITIONS, Patch, Resource},
    runner::Options,
};
use palisade_policy::enforcement::mode::Release;
use serde_json::{Value, json};

use crate::live::{CONFIG, Fate, Live};

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const FEATURE_GATES: Resource = Resource::new("config.openshift.io", "v1", "featuregates");
const KUBE_APISERVERS: Resource = Resource::new("operator.openshift.io", "v1", "kubeapiservers");

async fn define(live: &Live, resource: Resource, kind: &str) {
    let Resource { group, version, plural } = resource;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let singular = kind.to_lowercase();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")}, "spec": {"group": group, "scope": "Cluster",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    live.create(CUSTOM_RESOURCE_DEFINITIONS, None, definition).await;
}

fn feature_gate(enabled: bool) -> Value {
    let named = json!([{"name": "OpenShiftPodSecurityAdmission"}]);
    let gates = if enabled {
        json!({"version": "1", "enabled": named})
    } else {
        json!({"version": "1", "disabled": named})
    };
    json!({"apiVersion": "config.openshift.io/v1", "kind": "FeatureGate", "metadata": {"name": "cluster"},
           "status": {"featureGates": [gates]}})
}

/// `generation` is that of the object once it is written.
fn kube_apiserver(level: &str, generation: u64) -> Value {
    json!({"apiVersion": "operator.openshift.io/v1", "kind": "KubeAPIServer", "metadata": {"name": "cluster"},
        "spec": {"observedConfig": {"admission": {"pluginConfig": {"PodSecurity": {"configuration": {"defaults": {"enforce": level}}}}}}},
        "status": {"observedGeneration": generation, "latestAvailableRevision": 2, "nodeStatuses": [{"currentRevision": 2}]}})
}

async fn state(live: &Live) -> (String, String) {
    let config = live.api.get(&CONFIG.object(None, "cluster")).await.unwrap().unwrap();
    let conditions = config["status"]["conditions"].as_array().unwrap();
    let progressing = conditions.iter().find(|own| own["type"] == "Progressing").unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&config["status"]["enforcementMode"]), text(&progressing["message"]))
}

#[tokio::test(start_paused = true)]
async fn on_openshift_progressing_names_the_component_and_ends_without_our_label_syncer() {
    let live = Live::start().await;
    define(&live, FEATURE_GATES, "FeatureGate").await;
    define(&live, KUBE_APISERVERS, "KubeAPIServer").await;
    live.namespace("fine", json!({})).await;
    live.namespace("agents", json!({})).await;
    live.grant("agents", "privileged").await;
    live.create(FEATURE_GATES, None, feature_gate(false)).await;
    live.create(KUBE_APISERVERS, None, kube_apiserver("privileged", 1)).await;
    let (gate_path, force) = (FEATURE_GATES.object(None, "cluster"), Patch::Apply { force: true });

    // The object decides, not the option.
    let options = Options { release: Release::Enforce, gate: Some(true), ..Options::default() };
    let _controllers = live.run(options, &Fate::default());
    live.settle().await;
    assert_eq!(state(&live).await.0, "");
    let labels = live.get_namespace("fine").await["metadata"]["labels"].clone();
    assert!(
        labels.get("pod-security.kubernetes.io/warn").is_none(),
        "OpenShift has a label syncer: {labels}"
    );

    live.api.patch(&gate_path, "test", force, &feature_gate(true)).await.unwrap();
    live.settle().await;
    let (mode, waits) = state(&live).await;
    assert_eq!(mode, "Progressing");
    assert!(
        waits.contains("waiting for the label syncer of OpenShift") && waits.ends_with(": agents"),
        "{waits}"
    );

    // OpenShift's label syncer does its part; what needs restricted does not have to wait for its label.
    live.label("agents", ENFORCE, json!("privileged")).await;
    live.settle().await;
    let (mode, waits) = state(&live).await;
    assert_eq!(mode, "Progressing");
    assert!(waits.contains("kube-apiserver cluster enforces privileged"), "{waits}");

    let (path, enforcing) = (KUBE_APISERVERS.object(None, "cluster"), kube_apiserver("restricted", 2));
    live.api.patch(&path, "test", force, &enforcing).await.unwrap();
    live.settle().await;
    assert_eq!(state(&live).await, ("Restricted".to_owned(), String::new()));

    // The gate is the break-glass.
    live.api.patch(&gate_path, "test", force, &feature_gate(false)).await.unwrap();
    live.settle().await;
    assert_eq!(state(&live).await.0, "");
}
