//! Profiles in ConfigMaps with a stock API server: what users write, what is stored, what the nodes are given.

use palisade_apiserver::{Builder, Server};
use palisade_base::version::KubeVersion;
use palisade_model::{
    compat::FeatureGates,
    profile::baseline::{Baseline, published_sha256},
};
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

/// A policy that allows profiles from ConfigMaps in a namespace.
pub(crate) fn policy(namespace: &str, baseline: &Value) -> Value {
    let mut policy = json!({
        "apiVersion": "palisade.dev/v1alpha1", "kind": "ProfilePolicy", "metadata": {"name": namespace},
        "spec": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "seccomp": {"allowedProfiles": {"types": ["ConfigMap", "RuntimeDefault", "Unconfined"], "configMaps": ["*"]}},
        },
    });
    if !baseline.is_null() {
        policy["spec"]["seccomp"]["baseline"] = baseline.clone();
    }
    policy
}

pub(crate) async fn allow(cluster: &Cluster, policy: &Value) {
    cluster.make("/apis/palisade.dev/v1alpha1/profilepolicies", policy).await;
}

/// An API server that has no rules for policies of its own.
fn builder() -> Builder {
    Server::builder().disable_plugins(["ServiceAccount".to_owned(), "ProfilePolicy".to_owned()])
}

async fn with_profiles(cluster: &Cluster) {
    install(cluster, resources::PROFILE_POLICIES).await;
    allow(cluster, &policy("shop", &Value::Null)).await;
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
        let cluster = cluster(builder().version(KubeVersion::v1(minor))).await;
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

#[tokio::test]
async fn a_namespace_without_a_policy_that_allows_them_has_no_profiles_from_config_maps() {
    let cluster = cluster(builder()).await;
    with_profiles(&cluster).await;
    let mut others = policy("limited", &Value::Null);
    others["spec"]["seccomp"]["allowedProfiles"] =
        json!({"types": ["RuntimeDefault", "Localhost"], "localhostProfiles": ["*"]});
    allow(&cluster, &others).await;
    let mut armored = policy("armored", &Value::Null);
    armored["spec"] = json!({"namespaceSelector": armored["spec"]["namespaceSelector"], "appArmor": {}});
    allow(&cluster, &armored).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"block.json": PROFILE}});
    for namespace in ["limited", "armored", "bare"] {
        cluster.namespace(namespace, &[]).await;
        cluster.make(&format!("/api/v1/namespaces/{namespace}/configmaps"), &map).await;
    }
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    let object = annotated(&[(POD, "configmap/web/block.json")]);
    let mutated = caller.review("/mutate", &pod_request("shop", "CREATE", &object)).await;
    assert_eq!(mutated["allowed"], true, "{mutated}");
    let rewritten = patched(&object, &mutated);
    let response = caller.review("/validate", &pod_request("shop", "CREATE", &rewritten)).await;
    assert_eq!(response["allowed"], true, "{response}");
    for namespace in ["limited", "armored", "bare"] {
        // As a user writes it, and as somebody writes it who knows what the webhook makes of it.
        for (path, object) in [("/mutate", &object), ("/mutate", &rewritten), ("/validate", &rewritten)] {
            let response = caller.review(path, &pod_request(namespace, "CREATE", object)).await;
            assert_eq!(response["status"]["code"], 422, "{namespace} {path} {response}");
            let message = response["status"]["message"].as_str().unwrap();
            assert!(message.contains("no ProfilePolicy allows profiles from ConfigMaps"), "{message}");
        }
        let template =
            json!({"metadata": {"annotations": {POD: "configmap/web/block.json"}}, "spec": object["spec"]});
        let request = about(
            "apps",
            "deployments",
            "Deployment",
            namespace,
            &json!({"metadata": {"name": "d"}, "spec": {"template": template}}),
        );
        let response = caller.review("/validate", &request).await;
        let warned = response["warnings"].to_string();
        assert!(
            warned.contains("pods of this workload will be rejected") && warned.contains("ProfilePolicy"),
            "{warned}"
        );
    }
}

#[tokio::test]
async fn the_policies_choose_the_baseline_and_the_pod_cannot() {
    let cluster = cluster(builder()).await;
    with_profiles(&cluster).await;
    let file = json!({"type": "Localhost", "localhostProfile": "team/base.json"});
    allow(&cluster, &policy("team", &file)).await;
    cluster.namespace("team", &[("enforce", "restricted")]).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"block.json": PROFILE}});
    cluster.make("/api/v1/namespaces/team/configmaps", &map).await;
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    let baseline = "localhost/team/base.json";
    let published = published_sha256(&hash(), &Baseline::parse(baseline).unwrap());
    assert_ne!(published, hash());
    for stated in
        [None, Some("localhost/other.json"), Some("runtime/default"), Some("nonsense"), Some(baseline)]
    {
        let mut object = annotated(&[(POD, "configmap/web/block.json")]);
        if let Some(stated) = stated {
            object["metadata"]["annotations"]["seccomp.palisade.dev/baseline"] = json!(stated);
        }
        let response = caller.review("/mutate", &pod_request("team", "CREATE", &object)).await;
        let after = patched(&object, &response);
        let annotations = &after["metadata"]["annotations"];
        assert_eq!(annotations["seccomp.palisade.dev/baseline"], baseline, "{stated:?}");
        assert_eq!(
            annotations["seccomp.palisade.dev/pod"],
            format!("configmap/web/block.json@sha256:{}", hash())
        );
        let profile = json!({"type": "Localhost", "localhostProfile": format!("palisade/{published}.json")});
        assert_eq!(after["spec"]["securityContext"]["seccompProfile"], profile);
        let again = caller.review("/mutate", &pod_request("team", "CREATE", &after)).await;
        assert_eq!(operations(&again), json!([]), "a second call changes nothing");
        assert_eq!(caller.review("/validate", &pod_request("team", "CREATE", &after)).await["allowed"], true);

        // In a namespace with the default of the runtime, the annotation goes.
        let response = caller.review("/mutate", &pod_request("shop", "CREATE", &object)).await;
        let after = patched(&object, &response);
        assert!(after["metadata"]["annotations"].get("seccomp.palisade.dev/baseline").is_none(), "{after}");
        let path = format!("palisade/{}.json", hash());
        assert_eq!(after["spec"]["securityContext"]["seccompProfile"]["localhostProfile"], path.as_str());
    }
    // Pods that the mutating webhook has not seen, or that were changed after it.
    let own = format!("configmap/web/block.json@sha256:{}", hash());
    let written = |baseline: Option<&str>, file: &str| {
        let mut object = annotated(&[("seccomp.palisade.dev/pod", &own)]);
        if let Some(baseline) = baseline {
            object["metadata"]["annotations"]["seccomp.palisade.dev/baseline"] = json!(baseline);
        }
        object["spec"]["securityContext"]["seccompProfile"] =
            json!({"type": "Localhost", "localhostProfile": format!("palisade/{file}.json")});
        object
    };
    let weak = "localhost/weak.json";
    let weaker = published_sha256(&hash(), &Baseline::parse(weak).unwrap());
    for (case, namespace, object, allowed) in [
        ("as required", "team", written(Some(baseline), &published), true),
        ("the default of the runtime", "shop", written(None, &hash()), true),
        ("the default of the runtime instead", "team", written(None, &hash()), false),
        ("a baseline of the tenant's own", "team", written(Some(weak), &weaker), false),
        ("a baseline of the tenant's own", "shop", written(Some(weak), &weaker), false),
        ("the baseline of another namespace", "shop", written(Some(baseline), &published), false),
        ("the file without the annotation", "team", written(None, &published), false),
        ("the annotation without the file", "team", written(Some(baseline), &hash()), false),
    ] {
        let response = caller.review("/validate", &pod_request(namespace, "CREATE", &object)).await;
        assert_eq!(response["allowed"], allowed, "{case} in {namespace}: {response}");
    }
}

#[tokio::test]
async fn a_pod_refers_to_no_more_profiles_than_its_namespace_may_have() {
    let cluster = cluster(builder()).await;
    with_profiles(&cluster).await;
    let data: serde_json::Map<String, Value> =
        (0..33).map(|n| (format!("{n}.json"), json!(PROFILE))).collect();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "many"}, "data": data});
    cluster.make("/api/v1/namespaces/shop/configmaps", &map).await;
    let webhook = start(&cluster, options()).await;
    let caller = Caller::of(&webhook);
    for (count, allowed) in [(32, true), (33, false)] {
        let containers: Vec<Value> =
            (0..count).map(|n| json!({"name": format!("c{n}"), "image": "i"})).collect();
        let mut object = pod("p", &json!({"containers": containers}));
        for n in 0..count {
            let key = format!("container.seccomp.security.alpha.kubernetes.io/c{n}");
            object["metadata"]["annotations"][key] = json!(format!("configmap/many/{n}.json"));
        }
        let response = caller.review("/mutate", &pod_request("shop", "CREATE", &object)).await;
        assert_eq!(response["allowed"], allowed, "{count}: {response}");
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert_eq!(message.contains("33 profiles in ConfigMaps, of at most 32"), !allowed, "{message}");
    }
}
