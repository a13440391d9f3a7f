//! Profiles in ConfigMaps with a stock API server: what users write, what is stored, what the nodes are given.

use palisade_apiserver::Server;
use palisade_base::version::KubeVersion;
use palisade_model::compat::FeatureGates;
use palisade_policy::resources;
use palisade_webhook::Options;
use serde_json::{Value, json};

use crate::support::{
    Caller, Cluster, about, cluster, install, operations, options, patched, pod, pod_request, registered,
    start,
};

const PROFILE: &str = r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#;
const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/c";

fn hash() -> String {
    palisade_base::sha256::hex(PROFILE.as_bytes())
}

async fn with_profiles(cluster: &Cluster) {
    cluster.namespace("shop", &[("enforce", "restricted")]).await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"},
        "data": {"block.json": PROFILE, "broken.json": "{", "other.json": r#"{"foo":1}"#, "list.json": "[]",
            "action.json": r#"{"defaultAction":"NOPE"}"#,
            "key.json": r#"{"defaultAction":"SCMP_ACT_ERRNO","foo":1}"#,
            "notify.json": r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["mount"],"action":"SCMP_ACT_NOTIFY"}]}"#},
        "binaryData": {"bytes.json": "e30="},
    });
    cluster.make("/api/v1/namespaces/shop/configmaps", &map).await;
}

fn annotated(entries: &[(&str, &str)]) -> Value {
    let mut object = pod(
        "p",
        &json!({
            "securityContext": {"runAsNonRoot": true},
            "containers": [{"name": "c", "image": "busybox", "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
        }),
    );
    for (key, value) in entries {
        object["metadata"]["annotations"][*key] = json!(value);
    }
    object
}

#[tokio::test]
async fn a_pod_runs_with_the_profile_of_its_namespace() {
    for minor in [24, 37] {
        let builder = Server::builder().version(KubeVersion::v1(minor));
        let cluster = cluster(builder.disable_plugins(["ServiceAccount".to_owned()])).await;
        with_profiles(&cluster).await;
        install(&cluster, resources::PUBLISHED_PROFILES).await;
        let _webhook = start(&cluster, registered()).await;
        let object = annotated(&[(POD, "configmap/web/block.json")]);
        let dry = "/api/v1/namespaces/shop/pods?dryRun=All";
        let stored = cluster.make(dry, &object).await;
        let path = format!("palisade/{}.json", hash());
        let profile = json!({"type": "Localhost", "localhostProfile": path});
        assert_eq!(stored["spec"]["securityContext"]["seccompProfile"], profile, "v1.{minor}");
        let stored = cluster.make("/api/v1/namespaces/shop/pods", &object).await;
        assert_eq!(stored["spec"]["securityContext"]["seccompProfile"], profile);
        let annotations = &stored["metadata"]["annotations"];
        assert_eq!(annotations[POD], format!("localhost/{path}"));
        assert_eq!(
            annotations["seccomp.palisade.dev/pod"],
            format!("configmap/web/block.json@sha256:{}", hash())
        );
        // A workload keeps the reference, and its pods get the profile when they are made.
        let template = json!({"metadata": {"labels": {"a": "b"}, "annotations": {CONTAINER: "configmap/web/block.json"}}, "spec": object["spec"]});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        });
        let stored = cluster.make("/apis/apps/v1/namespaces/shop/deployments", &deployment).await;
        let kept = &stored["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(*kept, json!({"container.seccomp.palisade.dev/c": "configmap/web/block.json"}));
        let mut made = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "d-1", "annotations": kept}, "spec": object["spec"]});
        let stored = cluster.make("/api/v1/namespaces/shop/pods", &made).await;
        assert_eq!(stored["spec"]["containers"][0]["securityContext"]["seccompProfile"], profile);
        // One profile cannot pass for another.
        made["metadata"] = json!({"name": "d-2", "annotations": {
            "seccomp.palisade.dev/pod": format!("configmap/web/block.json@sha256:{}", "0".repeat(64))}});
        made["spec"]["securityContext"]["seccompProfile"] =
            json!({"type": "Localhost", "localhostProfile": format!("palisade/{}.json", "0".repeat(64))});
        let refused = cluster.send("POST", "/api/v1/namespaces/shop/pods", &made).await.unwrap_err();
        assert!(refused.contains("holds other bytes now"), "{refused}");
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_in_the_designs_words() {
    let cluster = cluster(Server::builder()).await;
    with_profiles(&cluster).await;
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    let at = format!("metadata.annotations[{POD}]");
    for (value, why) in [
        (
            "configmap/none/x.json",
            "configmap \"none\" not found in namespace \"shop\": it holds seccomp profile configmap/none/x.json",
        ),
        ("configmap/web/none.json", "couldn't find key none.json in ConfigMap shop/web"),
        (
            "configmap/web/bytes.json",
            "key bytes.json of ConfigMap shop/web is in binaryData: a seccomp profile is text and belongs in data",
        ),
        (
            "configmap/web/broken.json",
            "seccomp profile configmap/web/broken.json is not valid JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            "configmap/web/other.json",
            "seccomp profile configmap/web/other.json is not a seccomp profile: has neither defaultAction nor syscalls: a runtime applies no profile at all",
        ),
        (
            "configmap/web/list.json",
            "seccomp profile configmap/web/list.json is not a seccomp profile: is not a JSON object",
        ),
        (
            "configmap/web/action.json",
            "seccomp profile configmap/web/action.json is not a seccomp profile: defaultAction: \"NOPE\" is not an action",
        ),
        (
            "configmap/web/key.json",
            "seccomp profile configmap/web/key.json is not a seccomp profile: foo: is not a key of a profile: remove it, or write one of architectures, defaultAction, defaultErrnoRet, flags, syscalls",
        ),
        (
            "configmap/web/notify.json",
            "seccomp profile configmap/web/notify.json leaves system calls to a listener: syscalls[0].action: use SCMP_ACT_ERRNO or SCMP_ACT_LOG, and no listenerPath or listenerMetadata",
        ),
    ] {
        let object = annotated(&[(POD, value)]);
        let response = caller.review("/mutate", &pod_request("shop", "CREATE", &object)).await;
        assert_eq!(response["status"]["code"], 422, "{value}");
        assert_eq!(
            response["status"]["message"],
            format!("Pod \"p\" is invalid: {at}: Invalid value: \"{value}\": {why}")
        );
        // A template is only warned about: its pods may come later than its ConfigMap.
        let template = json!({"metadata": {"annotations": {POD: value}}, "spec": object["spec"]});
        let deployment = json!({"metadata": {"name": "d"}, "spec": {"template": template}});
        let request = about("apps", "deployments", "Deployment", "shop", &deployment);
        let response = caller.review("/mutate", &request).await;
        assert_eq!(
            response["warnings"],
            json!([format!("seccomp profile {value}: {why}; pods will be refused")])
        );
    }
    // What is no reference at all is for the API server to refuse.
    let object = annotated(&[(POD, "configmap/web")]);
    let response = caller.review("/mutate", &pod_request("shop", "CREATE", &object)).await;
    assert_eq!(operations(&response), json!([]));
    // The field may not have another value.
    let mut object = annotated(&[(CONTAINER, "configmap/web/block.json")]);
    object["spec"]["containers"][0]["securityContext"]["seccompProfile"] = json!({"type": "RuntimeDefault"});
    let response = caller.review("/mutate", &pod_request("shop", "CREATE", &object)).await;
    assert_eq!(
        response["status"]["message"],
        "Pod \"p\" is invalid: spec.containers[0].securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"
    );
}

#[tokio::test]
async fn reviews_publish_nothing_and_a_second_call_changes_nothing() {
    let cluster = cluster(Server::builder()).await;
    with_profiles(&cluster).await;
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    let object = annotated(&[(POD, "configmap/web/block.json"), (CONTAINER, "runtime/default")]);
    install(&cluster, resources::PUBLISHED_PROFILES).await;
    let response = caller.review("/mutate", &pod_request("shop", "CREATE", &object)).await;
    assert_eq!(response["allowed"], true, "{response}");
    let once = patched(&object, &response);
    assert_eq!(
        once["spec"]["containers"][0]["securityContext"]["seccompProfile"],
        json!({"type": "RuntimeDefault"})
    );
    let response = caller.review("/mutate", &pod_request("shop", "CREATE", &once)).await;
    assert_eq!(operations(&response), json!([]), "{response}");
    assert_eq!(caller.review("/validate", &pod_request("shop", "CREATE", &once)).await["allowed"], true);
    // Without the mutating webhook's work the pod is not let through.
    let own = annotated(&[("seccomp.palisade.dev/pod", "configmap/web/block.json")]);
    let response = caller.review("/validate", &pod_request("shop", "CREATE", &own)).await;
    assert_eq!(response["status"]["code"], 422, "{response}");
    // Whether these pods are ever stored is not known here: another plugin may reject them, and the reviews may be forged.
    let published = "/apis/palisade.dev/v1alpha1/publishedprofiles";
    assert_eq!(cluster.get(published).await.unwrap()["items"], json!([]));
    let calls = cluster.calls.lock().unwrap().clone();
    assert!(!calls.iter().any(|call| call.contains("publishedprofiles")), "{calls:?}");
}

#[tokio::test]
async fn without_the_gate_references_are_rejected_and_no_config_map_is_read() {
    let cluster = cluster(Server::builder()).await;
    with_profiles(&cluster).await;
    let webhook = start(&cluster, Options { gates: FeatureGates::default(), ..options() }).await;
    let caller = Caller::of(&webhook);
    for (key, value) in [
        (POD, "configmap/web/block.json"),
        (CONTAINER, "configmap/web/block.json"),
        ("seccomp.palisade.dev/pod", "configmap/web/block.json"),
    ] {
        let object = annotated(&[(key, value)]);
        let why = format!(
            "metadata.annotations[{key}]: Invalid value: \"{value}\": profiles from ConfigMaps are disabled: \
             enable the feature gate SeccompConfigMaps of the webhook"
        );
        let response = caller.review("/mutate", &pod_request("shop", "CREATE", &object)).await;
        assert_eq!(response["status"]["code"], 422, "{key}");
        assert_eq!(response["status"]["message"], format!("Pod \"p\" is invalid: {why}"));
        let template = json!({"metadata": {"annotations": {key: value}}, "spec": object["spec"]});
        let deployment = json!({"metadata": {"name": "d"}, "spec": {"template": template}});
        let request = about("apps", "deployments", "Deployment", "shop", &deployment);
        let response = caller.review("/mutate", &request).await;
        assert_eq!(response["warnings"], json!([format!("spec.template.{why}; pods will be refused")]));
        assert_eq!(operations(&response), json!([]), "a template is left as it is");
    }
    let calls = cluster.calls.lock().unwrap().clone();
    let read =
        calls.iter().any(|call| call.starts_with("get /configmaps") || call.contains("publishedprofiles"));
    assert!(!read, "{calls:?}");
}
