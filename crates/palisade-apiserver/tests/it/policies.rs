//! Policies about profiles: `ProfilePolicy` and PodSecurityPolicy, from being written to what they admit.
#![allow(clippy::needless_pass_by_value, reason = "values read better at the place of use")]

use http::Request;
use http_body_util::{BodyExt as _, Full};
use palisade_apiserver::auth::UserInfo;
use palisade_apiserver::{Builder, Router, Server};
use palisade_base::version::KubeVersion;
use palisade_model::compat::Compat;
use serde_json::{Value, json};
use tower::Service as _;

const PROFILE_POLICIES: &str = "/apis/palisade.dev/v1alpha1/profilepolicies";
const POD_SECURITY_POLICIES: &str = "/apis/policy/v1beta1/podsecuritypolicies";
const PODS: &str = "/api/v1/namespaces/team/pods";
const ALLOWED: &str = "seccomp.security.alpha.kubernetes.io/allowedProfileNames";
const DEFAULT: &str = "seccomp.security.alpha.kubernetes.io/defaultProfileName";

async fn send(router: &Router, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let (kind, accept) = match method {
        "PATCH" => ("application/merge-patch+json", "application/json"),
        "TABLE" => ("application/json", "application/json;as=Table;g=meta.k8s.io;v=v1"),
        _ => ("application/json", "application/json"),
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder()
        .method(if method == "TABLE" { "GET" } else { method })
        .uri(path)
        .header("content-type", kind)
        .header("accept", accept)
        .body(Full::new(bytes::Bytes::from(body)))
        .expect("request");
    let response = router.clone().call(request).await.expect("an answer");
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("body").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn extended() -> Builder {
    Server::builder().compat(Compat::designs())
}

/// A server with a namespace `team` where alice may edit.
async fn cluster(builder: Builder) -> (Router, Router) {
    let admin = builder.router().expect("router");
    let namespace = json!({"metadata": {"name": "team", "labels": {"team": "a"}}});
    assert_eq!(send(&admin, "POST", "/api/v1/namespaces", &namespace).await.0, 201);
    let account = json!({"metadata": {"name": "default"}});
    send(&admin, "POST", "/api/v1/namespaces/team/serviceaccounts", &account).await;
    bind(&admin, "edit").await;
    let alice = admin.as_user(UserInfo::new("alice", &["system:authenticated"]));
    (admin, alice)
}

async fn bind(admin: &Router, role: &str) {
    let binding = json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings";
    let (code, body) = send(admin, "POST", path, &binding).await;
    assert_eq!(code, 201, "{body}");
}

#[allow(clippy::needless_pass_by_value, reason = "json! values are made to be given away")]
fn pod(name: &str, seccomp: Value) -> Value {
    let context = if seccomp.is_null() { json!({}) } else { json!({"seccompProfile": seccomp}) };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"securityContext": context, "containers": [{"name": "c", "image": "i"}]}})
}

#[allow(clippy::needless_pass_by_value, reason = "json! values are made to be given away")]
fn profile_policy(spec: Value) -> Value {
    json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "ProfilePolicy", "metadata": {"name": "p"}, "spec": spec})
}

#[allow(clippy::needless_pass_by_value, reason = "json! values are made to be given away")]
fn psp(annotations: Value, change: Value) -> Value {
    let any = json!({"rule": "RunAsAny"});
    let mut policy = json!({"apiVersion": "policy/v1beta1", "kind": "PodSecurityPolicy",
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"seLinux": any, "runAsUser": any, "supplementalGroups": any, "fsGroup": any}});
    for (key, value) in change.as_object().expect("fields") {
        policy["spec"][key] = value.clone();
    }
    policy
}

#[tokio::test]
async fn profile_policies_that_cannot_be_applied_are_rejected_when_written() {
    let (admin, _) = cluster(extended()).await;
    let definition = serde_json::from_str(palisade_policy::resources::PROFILE_POLICIES).expect("JSON");
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&admin, "POST", path, &definition).await.0, 201);
    let contradiction = json!({"seccomp": {"defaultProfile": {"type": "Unconfined"}, "allowedProfiles": {"types": ["RuntimeDefault"]}}});
    let (code, body) = send(&admin, "POST", PROFILE_POLICIES, &profile_policy(contradiction.clone())).await;
    assert_eq!(code, 422, "{body}");
    assert_eq!(
        body["message"],
        "ProfilePolicy.palisade.dev \"p\" is invalid: spec.seccomp.defaultProfile: Invalid value: \"Unconfined\": must be allowed by allowedProfiles, which has RuntimeDefault"
    );
    for spec in [
        json!({"seccomp": {"defaultProfile": {"type": "Localhost"}}}),
        json!({"seccomp": {"defaultProfile": {"type": "Localhost", "localhostProfile": "../x"}}}),
        json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
    ] {
        let (code, body) = send(&admin, "POST", PROFILE_POLICIES, &profile_policy(spec)).await;
        assert_eq!(code, 422, "{body}");
    }
    let good = json!({"seccomp": {"defaultProfile": {"type": "RuntimeDefault"}, "allowedProfiles": {"types": ["RuntimeDefault"]}}});
    assert_eq!(send(&admin, "POST", PROFILE_POLICIES, &profile_policy(good)).await.0, 201);
    let path = format!("{PROFILE_POLICIES}/p");
    let (code, body) = send(&admin, "PATCH", &path, &json!({"spec": contradiction})).await;
    assert_eq!(code, 422, "an update is a write as well: {body}");
    let (code, body) = send(&admin, "POST", PODS, &pod("p", Value::Null)).await;
    assert_eq!(
        (code, &body["spec"]["securityContext"]["seccompProfile"]["type"]),
        (201, &json!("RuntimeDefault"))
    );
}

#[tokio::test]
async fn pod_security_policies_are_served_with_extensions_and_up_to_v1_24() {
    let emulated = |minor| Server::builder().version(KubeVersion::v1(minor));
    for (case, builder, served) in [
        ("extended", extended(), true),
        ("v1.19", emulated(19), true),
        ("v1.24", emulated(24), true),
        ("v1.25", emulated(25), false),
        ("v1.37", emulated(37), false),
    ] {
        let router = builder.router().expect("router");
        assert_eq!(
            send(&router, "GET", POD_SECURITY_POLICIES, &Value::Null).await.0 == 200,
            served,
            "{case}"
        );
        let (code, list) = send(&router, "GET", "/apis/policy/v1beta1", &Value::Null).await;
        let listed = code == 200
            && list["resources"]
                .as_array()
                .expect("resources")
                .iter()
                .any(|r| r["name"] == "podsecuritypolicies");
        assert_eq!(listed, served, "{case}: {list}");
    }
    let router = extended().router().expect("router");
    let (_, groups) = send(&router, "GET", "/apis/policy", &Value::Null).await;
    assert_eq!(groups["preferredVersion"]["version"], "v1", "{groups}");
    let (code, _) =
        send(&router, "POST", POD_SECURITY_POLICIES, &psp(json!({}), json!({"privileged": true}))).await;
    assert_eq!(code, 201);
    let (_, stored) = send(&router, "GET", &format!("{POD_SECURITY_POLICIES}/p"), &Value::Null).await;
    assert_eq!(stored["spec"]["allowPrivilegeEscalation"], true, "defaulted");
    let (_, table) = send(&router, "TABLE", POD_SECURITY_POLICIES, &Value::Null).await;
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().expect("columns").iter().map(|c| &c["name"]).collect();
    assert_eq!(
        json!(columns),
        json!([
            "Name",
            "Priv",
            "Caps",
            "SELinux",
            "RunAsUser",
            "FSGroup",
            "SupGroup",
            "ReadOnlyRootFs",
            "Volumes"
        ])
    );
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["p", true, "", "RunAsAny", "RunAsAny", "RunAsAny", "RunAsAny", false, ""])
    );
}

#[tokio::test]
async fn pod_security_policies_are_validated() {
    let strategy = |default: Value, types: Value| json!({"seccomp": {"defaultProfile": default, "allowedProfiles": {"types": types, "localhostProfiles": ["a/*"]}}});
    let runtime = json!({"type": "RuntimeDefault"});
    for (case, policy, extended_code, release_code) in [
        ("bogus name", psp(json!({ALLOWED: "runtime/bogus"}), json!({})), 422, 422),
        ("bogus default", psp(json!({DEFAULT: "bogus", ALLOWED: "*"}), json!({})), 422, 422),
        ("path", psp(json!({ALLOWED: "localhost/../x"}), json!({})), 422, 422),
        (
            "AppArmor",
            psp(json!({"apparmor.security.beta.kubernetes.io/allowedProfileNames": "bogus"}), json!({})),
            422,
            422,
        ),
        ("no rule", json!({"metadata": {"name": "p"}, "spec": {}}), 422, 422),
        (
            "default not allowed",
            psp(json!({DEFAULT: "unconfined", ALLOWED: "runtime/default"}), json!({})),
            422,
            201,
        ),
        (
            "names",
            psp(json!({DEFAULT: "runtime/default", ALLOWED: "runtime/default,localhost/a,*"}), json!({})),
            201,
            201,
        ),
        // No release has the field, so none looks at it.
        (
            "field default",
            psp(json!({}), strategy(json!({"type": "Unconfined"}), json!(["RuntimeDefault"]))),
            422,
            201,
        ),
        (
            "field type",
            psp(json!({}), strategy(runtime.clone(), json!(["RuntimeDefault", "Bogus"]))),
            422,
            201,
        ),
        (
            "field name",
            psp(
                json!({}),
                strategy(json!({"type": "Localhost", "localhostProfile": "b"}), json!(["Localhost"])),
            ),
            422,
            201,
        ),
        ("field", psp(json!({}), strategy(runtime.clone(), json!(["RuntimeDefault"]))), 201, 201),
        (
            "mismatch",
            psp(json!({ALLOWED: "unconfined"}), strategy(runtime, json!(["RuntimeDefault"]))),
            422,
            201,
        ),
    ] {
        for (builder, expected) in
            [(extended(), extended_code), (Server::builder().version(KubeVersion::v1(24)), release_code)]
        {
            let router = builder.router().expect("router");
            let (code, body) = send(&router, "POST", POD_SECURITY_POLICIES, &policy).await;
            assert_eq!(code, expected, "{case}: {body}");
        }
    }
}

#[tokio::test]
async fn pods_need_a_policy_they_may_use_once_there_is_one() {
    let (admin, alice) = cluster(extended()).await;
    let unconfined = json!({"type": "Unconfined"});
    let (code, body) = send(&alice, "POST", PODS, &pod("before", unconfined.clone())).await;
    assert_eq!(code, 201, "without policies nothing is locked: {body}");
    let policy = psp(
        json!({}),
        json!({"seccomp": {"defaultProfile": {"type": "RuntimeDefault"}, "allowedProfiles": {"types": ["RuntimeDefault"]}}}),
    );
    assert_eq!(send(&admin, "POST", POD_SECURITY_POLICIES, &policy).await.0, 201);
    let (code, body) = send(&alice, "POST", PODS, &pod("p", Value::Null)).await;
    assert_eq!(code, 403, "{body}");
    assert!(
        body["message"].as_str().expect("text").contains("no providers available to validate pod request"),
        "{body}"
    );
    let role = json!({"metadata": {"name": "use-p"}, "rules": [{"apiGroups": ["policy"],
        "resources": ["podsecuritypolicies"], "resourceNames": ["p"], "verbs": ["use"]}]});
    assert_eq!(send(&admin, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.0, 201);
    bind(&admin, "use-p").await;
    let (code, body) = send(&alice, "POST", PODS, &pod("p", Value::Null)).await;
    assert_eq!(
        (code, &body["spec"]["securityContext"]["seccompProfile"]["type"]),
        (201, &json!("RuntimeDefault")),
        "{body}"
    );
    assert_eq!(body["metadata"]["annotations"]["kubernetes.io/psp"], "p");
    let (code, body) = send(&alice, "POST", PODS, &pod("q", unconfined.clone())).await;
    assert_eq!(code, 403, "{body}");
    let debugging = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i", "securityContext": {"seccompProfile": unconfined}}]}});
    let (code, body) = send(&admin, "PATCH", &format!("{PODS}/p/ephemeralcontainers"), &debugging).await;
    assert_eq!(code, 403, "{body}");
    let debugging = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}});
    let (code, body) = send(&admin, "PATCH", &format!("{PODS}/p/ephemeralcontainers"), &debugging).await;
    assert_eq!(code, 200, "{body}");
}
