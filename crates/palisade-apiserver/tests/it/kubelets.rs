//! What the kubelet of one node may do to the API: each attack is rejected, and its harmless twin is not.

use base64::Engine as _;
use palisade_apiserver::auth::UserInfo;
use serde_json::{Value, json};

use crate::rights::World;

const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces";

fn kubelet(node: &str) -> UserInfo {
    UserInfo::new(&format!("system:node:{node}"), &["system:nodes", "system:authenticated"])
}

fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": node, "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "i",
            "envFrom": [{"secretRef": {"name": format!("secret-of-{name}")}}]}]}})
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
}

/// Two nodes with a pod and a Secret each.
async fn world() -> World {
    let world = World::new(&json!([]), &json!([])).await;
    let account = json!({"metadata": {"name": "robot"}});
    world.admin("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    for (name, on) in [("mine", "one"), ("theirs", "two")] {
        world.admin("POST", "/api/v1/nodes", &node(on)).await;
        world.admin("POST", PODS, &pod(name, on)).await;
        let secret = json!({"metadata": {"name": format!("secret-of-{name}")}});
        world.admin("POST", "/api/v1/namespaces/default/secrets", &secret).await;
    }
    world
}

async fn uid(world: &World, path: &str) -> String {
    let answer = world.send(UserInfo::admin(), "GET", path, "application/json", &Value::Null).await;
    let object: Value = serde_json::from_str(&answer.text).expect("JSON");
    object["metadata"]["uid"].as_str().expect("uid").to_owned()
}

async fn code(world: &World, method: &str, path: &str, body: &Value) -> (u16, String) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let answer = world.send(kubelet("one"), method, path, kind, body).await;
    (answer.code, answer.text)
}

#[tokio::test]
async fn a_kubelet_reads_and_writes_what_is_its_own() {
    let world = world().await;
    let labels = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}});
    let csi = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": []}});
    let status = |label: bool| {
        let mut patch = json!({"status": {"message": "x"}});
        if label {
            patch["metadata"] = json!({"labels": {"app": "x"}});
        }
        patch
    };
    let none = Value::Null;
    let secrets = "/api/v1/namespaces/default/secrets";
    let (system, kube_system) =
        (format!("{LEASES}/kube-node-lease/leases"), format!("{LEASES}/kube-system/leases"));
    let nodes = "/api/v1/nodes";
    for (method, attack, attack_body, twin, twin_body) in [
        (
            "GET",
            format!("{secrets}/secret-of-theirs"),
            none.clone(),
            format!("{secrets}/secret-of-mine"),
            none.clone(),
        ),
        (
            "GET",
            secrets.to_owned(),
            none.clone(),
            format!("{secrets}?fieldSelector=metadata.name%3Dsecret-of-mine"),
            none.clone(),
        ),
        (
            "GET",
            PODS.to_owned(),
            none.clone(),
            format!("{PODS}?fieldSelector=spec.nodeName%3Done"),
            none.clone(),
        ),
        (
            "GET",
            format!("{PODS}?fieldSelector=spec.nodeName%21%3Dtwo"),
            none.clone(),
            format!("{PODS}/mine"),
            none.clone(),
        ),
        ("GET", format!("{nodes}/two"), none.clone(), format!("{nodes}/one"), none.clone()),
        ("PATCH", format!("{nodes}/two"), labels("team"), format!("{nodes}/one"), labels("team")),
        (
            "PATCH",
            format!("{nodes}/one"),
            labels("node-role.kubernetes.io/x"),
            format!("{nodes}/one"),
            labels("node.kubernetes.io/x"),
        ),
        (
            "PATCH",
            format!("{nodes}/one"),
            labels("node-restriction.kubernetes.io/x"),
            format!("{nodes}/one"),
            labels("example.com/x"),
        ),
        (
            "PATCH",
            format!("{nodes}/one"),
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
            format!("{nodes}/one"),
            json!({"spec": {"podCIDR": "10.0.0.0/24"}}),
        ),
        (
            "PATCH",
            format!("{nodes}/one"),
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}}),
            format!("{nodes}/one"),
            json!({}),
        ),
        (
            "PATCH",
            format!("{PODS}/theirs/status"),
            status(false),
            format!("{PODS}/mine/status"),
            status(false),
        ),
        ("PATCH", format!("{PODS}/mine/status"), status(true), format!("{PODS}/mine/status"), status(false)),
        ("POST", kube_system, lease("one"), system.clone(), lease("one")),
        (
            "POST",
            system.clone(),
            lease("two"),
            format!("{LEASES}/kube-node-lease/leases?dryRun=All"),
            lease("one"),
        ),
        (
            "POST",
            "/apis/storage.k8s.io/v1/csinodes".to_owned(),
            csi("two"),
            "/apis/storage.k8s.io/v1/csinodes".to_owned(),
            csi("one"),
        ),
        ("DELETE", format!("{PODS}/theirs"), none.clone(), format!("{PODS}/mine?dryRun=All"), none.clone()),
        ("DELETE", format!("{nodes}/two"), none.clone(), format!("{system}/one"), none.clone()),
    ] {
        let (found, text) = code(&world, method, &attack, &attack_body).await;
        assert_eq!(found, 403, "{method} {attack} {attack_body}: {text}");
        // A twin that was made before is a conflict, which is no question of rights.
        let (found, text) = code(&world, method, &twin, &twin_body).await;
        assert!(found < 300 || found == 409, "{method} {twin} {twin_body}: {found} {text}");
    }
}

#[tokio::test]
async fn a_kubelet_makes_no_pods_but_pictures_of_static_ones() {
    let world = world().await;
    let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "Node", "name": "one", "uid": uid, "controller": true}]);
    let uid = uid(&world, "/api/v1/nodes/one").await;
    let mirror = |uid: &str, change: &dyn Fn(&mut Value)| {
        let mut pod = json!({"metadata": {"name": "static-one", "ownerReferences": owner(uid),
                "annotations": {"kubernetes.io/config.mirror": "x"}},
            "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "i"}]}});
        change(&mut pod);
        pod
    };
    for (case, pod) in [
        ("no mirror", mirror(&uid, &|pod| pod["metadata"]["annotations"] = json!({}))),
        ("another node", mirror(&uid, &|pod| pod["spec"]["nodeName"] = "two".into())),
        ("no owner", mirror(&uid, &|pod| pod["metadata"]["ownerReferences"] = json!([]))),
        ("another owner", mirror("other", &|_| ())),
        ("an account", mirror(&uid, &|pod| pod["spec"]["serviceAccountName"] = "robot".into())),
        (
            "a secret",
            mirror(&uid, &|pod| {
                pod["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "secret-of-theirs"}}]);
            }),
        ),
    ] {
        let (found, text) = code(&world, "POST", PODS, &pod).await;
        assert_eq!(found, 403, "{case}: {text}");
    }
    let (found, text) = code(&world, "POST", PODS, &mirror(&uid, &|_| ())).await;
    assert_eq!(found, 201, "the harmless twin: {text}");
}

#[tokio::test]
async fn a_kubelet_gets_tokens_for_its_pods_alone() {
    let world = world().await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = |name: &str, uid: &str| json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}}});
    let (mine, theirs) =
        (uid(&world, &format!("{PODS}/mine")).await, uid(&world, &format!("{PODS}/theirs")).await);
    let mut audience = token("mine", &mine);
    audience["spec"]["audiences"] = json!(["vault"]);
    for (case, body) in [
        ("bound to nothing", json!({"spec": {}})),
        ("another node's pod", token("theirs", &theirs)),
        ("another pod of that name", token("mine", &theirs)),
        ("an audience that no volume names", audience),
    ] {
        let (found, text) = code(&world, "POST", path, &body).await;
        assert_eq!(found, 403, "{case}: {text}");
    }
    let other = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let (found, text) = code(&world, "POST", other, &token("mine", &mine)).await;
    assert_eq!(found, 403, "an account that no pod of the node uses: {text}");
    let (found, text) = code(&world, "POST", path, &token("mine", &mine)).await;
    assert_eq!(found, 201, "the harmless twin: {text}");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    let token = answer["status"]["token"].as_str().expect("token");
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(token.split('.').nth(1).expect("claims"))
        .expect("base64");
    let claims: Value = serde_json::from_slice(&claims).expect("JSON");
    assert_eq!(claims["kubernetes.io"]["node"]["name"], "one");
}
