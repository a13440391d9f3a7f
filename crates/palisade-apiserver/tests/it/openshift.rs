//! The server as an OpenShift one: constraints choose, default and refuse.

use std::sync::Arc;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use palisade_apiserver::admission_chain::{Notes, Plugin, Request as Admission};
use palisade_apiserver::auth::UserInfo;
use palisade_apiserver::{Builder, Router, Server, StartError};
use serde_json::{Value, json};
use tower::Service as _;

const SCC: &str = "/apis/security.openshift.io/v1/securitycontextconstraints";

struct Answer {
    code: u16,
    warnings: Vec<String>,
    body: Value,
}

impl Answer {
    fn annotation(&self, key: &str) -> &str {
        self.body["metadata"]["annotations"][key].as_str().unwrap_or_default()
    }

    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

async fn send(router: &Router, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(
            "content-type",
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" },
        )
        .body(Full::new(bytes::Bytes::from(body)))
        .expect("request");
    let response = router.clone().call(request).await.expect("an answer");
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().expect("text").to_owned()).collect();
    let bytes = response.into_body().collect().await.expect("body").to_bytes();
    Answer { code, warnings, body: serde_json::from_slice(&bytes).unwrap_or_default() }
}

fn openshift() -> Router {
    Server::builder().openshift(true).router().expect("router")
}

/// An OpenShift server with a namespace `team` where alice may edit, and a service account `strong`.
async fn cluster(builder: Builder) -> (Router, Router) {
    let admin = builder.openshift(true).router().expect("router");
    let namespace = json!({"metadata": {"name": "team"}});
    assert_eq!(send(&admin, "POST", "/api/v1/namespaces", &namespace).await.code, 201);
    let account = json!({"metadata": {"name": "strong"}});
    let made = send(&admin, "POST", "/api/v1/namespaces/team/serviceaccounts", &account).await;
    assert_eq!(made.code, 201, "{}", made.body);
    bind(
        &admin,
        "alice",
        "edit",
        &json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}),
    )
    .await;
    let alice = admin.as_user(UserInfo::new("alice", &["system:authenticated"]));
    (admin, alice)
}

async fn bind(admin: &Router, name: &str, role: &str, subject: &Value) {
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings";
    let made = send(admin, "POST", path, &binding).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]},
    });
    change(&mut pod);
    pod
}

async fn create(user: &Router, pod: &Value) -> Answer {
    send(user, "POST", "/api/v1/namespaces/team/pods", pod).await
}

#[tokio::test]
async fn a_users_pod_gets_what_restricted_v2_writes() {
    let (admin, alice) = cluster(Server::builder()).await;
    let namespace = send(&admin, "GET", "/api/v1/namespaces/team", &Value::Null).await;
    let ids = namespace.annotation("openshift.io/sa.scc.uid-range");
    let first: i64 = ids.split('/').next().and_then(|id| id.parse().ok()).expect("a range");
    assert!(first >= 1_000_000_000 && ids.ends_with("/10000"), "{ids}");

    let made = create(&alice, &pod("plain", |_| {})).await;
    assert_eq!((made.code, made.warnings.as_slice()), (201, &[][..]), "{}", made.body);
    assert_eq!(made.annotation("openshift.io/scc"), "restricted-v2");
    assert_eq!(made.annotation("security.openshift.io/validated-scc-subject-type"), "user");
    let spec = &made.body["spec"];
    let mut context = spec["containers"][0]["securityContext"].clone();
    assert_eq!(context["capabilities"].take(), json!({"drop": ["ALL"]}));
    assert_eq!(
        context,
        json!({"allowPrivilegeEscalation": false, "capabilities": null, "runAsNonRoot": true, "runAsUser": first})
    );
    assert_eq!(spec["securityContext"]["fsGroup"], first);
    assert_eq!(spec["securityContext"]["seccompProfile"], json!({"type": "RuntimeDefault"}));
    let level = namespace.annotation("openshift.io/sa.scc.mcs");
    assert_eq!(spec["securityContext"]["seLinuxOptions"], json!({"level": level}));

    // What admission wrote is what its second look expects, and a label is a change like any other.
    let path = "/api/v1/namespaces/team/pods/plain";
    let labelled = send(&alice, "PATCH", path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(labelled.code, 200, "{}", labelled.body);
    assert_eq!(labelled.annotation("openshift.io/scc"), "restricted-v2");
}

#[tokio::test]
async fn a_privileged_pod_is_refused_in_upstreams_words() {
    let (_, alice) = cluster(Server::builder()).await;
    let privileged = pod("strong", |pod| {
        pod["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    });
    let refused = create(&alice, &privileged).await;
    assert_eq!((refused.code, refused.body["reason"].as_str()), (403, Some("Forbidden")));
    let message = refused.message();
    assert!(
        message.starts_with(
            "pods \"strong\" is forbidden: unable to validate against any security context constraint: \
             [provider \"anyuid\": Forbidden: not usable by user or serviceaccount, "
        ),
        "{message}"
    );
    for part in [
        "provider restricted-v2: .containers[0].privileged: Invalid value: true: Privileged containers are not allowed",
        "provider \"privileged\": Forbidden: not usable by user or serviceaccount]",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn pods_of_a_service_account_get_its_constraint() {
    let (admin, alice) = cluster(Server::builder()).await;
    let strong = |name| {
        pod(name, |pod| {
            pod["spec"]["serviceAccountName"] = json!("strong");
            pod["spec"]["hostNetwork"] = json!(true);
        })
    };
    assert_eq!(create(&alice, &strong("early")).await.code, 403);
    let account = json!({"kind": "ServiceAccount", "name": "strong", "namespace": "team"});
    bind(&admin, "strong", "system:openshift:scc:privileged", &account).await;
    let made = create(&alice, &strong("late")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.annotation("openshift.io/scc"), "privileged");
    assert_eq!(made.annotation("security.openshift.io/validated-scc-subject-type"), "serviceaccount");

    let required = pod("required", |pod| {
        pod["spec"]["serviceAccountName"] = json!("strong");
        pod["metadata"]["annotations"] = json!({"openshift.io/required-scc": "privileged"});
    });
    let made = create(&alice, &required).await;
    assert_eq!((made.code, made.annotation("openshift.io/scc")), (201, "privileged"), "{}", made.body);
    let missing = pod("missing", |pod| {
        pod["metadata"]["annotations"] = json!({"openshift.io/required-scc": "nowhere"});
    });
    assert_eq!(
        create(&alice, &missing).await.message(),
        "pods \"missing\" is forbidden: failed to retrieve the required SCC \"nowhere\": \
         securitycontextconstraints.security.openshift.io \"nowhere\" not found"
    );
}

#[tokio::test]
async fn a_malformed_constraint_is_skipped_and_reported() {
    let (admin, alice) = cluster(Server::builder()).await;
    // Stored by everyone's rules; only when it is to be used does the id turn out to be missing.
    let malformed = json!({
        "apiVersion": "security.openshift.io/v1", "kind": "SecurityContextConstraints",
        "metadata": {"name": "broken"}, "priority": 99,
        "allowHostDirVolumePlugin": false, "allowHostIPC": false, "allowHostNetwork": false, "allowHostPID": false,
        "allowHostPorts": false, "allowPrivilegedContainer": false, "readOnlyRootFilesystem": false,
        "allowedCapabilities": null, "defaultAddCapabilities": null, "requiredDropCapabilities": null,
        "runAsUser": {"type": "MustRunAs"}, "seLinuxContext": {"type": "RunAsAny"},
        "fsGroup": {"type": "RunAsAny"}, "supplementalGroups": {"type": "RunAsAny"},
        "volumes": ["secret"], "groups": ["system:authenticated"],
    });
    let stored = send(&admin, "POST", SCC, &malformed).await;
    assert_eq!(stored.code, 201, "{}", stored.body);
    let made = create(&alice, &pod("plain", |_| {})).await;
    assert_eq!((made.code, made.annotation("openshift.io/scc")), (201, "restricted-v2"), "{}", made.body);
    assert_eq!(made.warnings.len(), 1, "{:?}", made.warnings);
    assert!(
        made.warnings[0].contains("SecurityContextConstraints \\\"broken\\\" is skipped: "),
        "{:?}",
        made.warnings
    );
    assert_eq!(send(&admin, "DELETE", &format!("{SCC}/broken"), &Value::Null).await.code, 200);
    assert!(create(&alice, &pod("quiet", |_| {})).await.warnings.is_empty());
}

#[tokio::test]
async fn constraint_objects_are_completed_and_judged() {
    let admin = openshift();
    let resources = send(&admin, "GET", "/apis/security.openshift.io/v1", &Value::Null).await;
    assert_eq!(resources.body["resources"][0]["shortNames"], json!(["scc"]), "{}", resources.body);
    let builtin = send(&admin, "GET", &format!("{SCC}/restricted-v2"), &Value::Null).await;
    let own = |change: &dyn Fn(&mut Value)| {
        let mut own = builtin.body.clone();
        own["metadata"] = json!({"name": "own"});
        change(&mut own);
        own
    };
    let refused =
        send(&admin, "POST", SCC, &own(&|own| own["defaultAllowPrivilegeEscalation"] = json!(true))).await;
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert_eq!(
        refused.message(),
        "SecurityContextConstraints.security.openshift.io \"own\" is invalid: defaultAllowPrivilegeEscalation: \
         Invalid value: true: Cannot set DefaultAllowPrivilegeEscalation to true without also setting \
         AllowPrivilegeEscalation to true"
    );
    let gaps = own(&|own| {
        for field in ["users", "groups"] {
            own[field] = Value::Null;
        }
        own["volumes"] = json!(["hostPath", "secret"]);
    });
    let made = send(&admin, "POST", SCC, &gaps).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!([&made.body["users"], &made.body["groups"]], [&json!([]), &json!([])]);
    assert_eq!(made.body["volumes"], json!(["secret"]), "folders of the node are not allowed");
}

#[tokio::test]
async fn namespaces_never_share_ranges() {
    let admin = openshift();
    let mut seen = Vec::new();
    for (name, own, query) in [
        ("a", Value::Null, ""),
        ("dry", Value::Null, "?dryRun=All"),
        ("own", json!({"openshift.io/sa.scc.uid-range": "1000050000/10000"}), ""),
        ("b", Value::Null, ""),
        ("c", Value::Null, ""),
    ] {
        let namespace = json!({"metadata": {"name": name, "annotations": own}});
        let made = send(&admin, "POST", &format!("/api/v1/namespaces{query}"), &namespace).await;
        assert_eq!(made.code, 201, "{}", made.body);
        if query.is_empty() {
            seen.push(made.annotation("openshift.io/sa.scc.uid-range").to_owned());
        }
    }
    // The system's four come first.
    assert_eq!(seen, ["1000040000/10000", "1000050000/10000", "1000060000/10000", "1000070000/10000"]);
}

#[tokio::test]
async fn early_namespaces_are_left_alone_with_a_word() {
    let admin = openshift();
    let made = send(&admin, "POST", "/api/v1/namespaces/kube-system/pods", &pod("p", |_| {})).await;
    assert_eq!((made.code, made.annotation("openshift.io/scc")), (201, ""), "{}", made.body);
    assert_eq!(
        made.warnings,
        [
            "299 - \"Admission plugin \\\"security.openshift.io/SecurityContextConstraint\\\" skipped due to request \
          namespace \\\"kube-system\\\".\""
        ]
    );
}

/// Keeps what the plugins before it noted for the audit log.
#[derive(Default)]
struct Listener(std::sync::Mutex<Vec<(String, String)>>);

impl Plugin for Listener {
    fn name(&self) -> &'static str {
        "Listener"
    }

    fn validate(
        &self,
        _: &Admission<'_>,
        _: Option<&Value>,
        notes: &mut Notes,
    ) -> Result<(), Box<palisade_apimachinery::Status>> {
        self.0.lock().expect("lock").extend(notes.audit.iter().cloned());
        Ok(())
    }
}

#[tokio::test]
async fn the_audit_log_records_why_a_constraint_was_chosen() {
    let listener = Arc::new(Listener::default());
    let (_, alice) = cluster(Server::builder().plugin(listener.clone())).await;
    assert_eq!(create(&alice, &pod("plain", |_| {})).await.code, 201);
    let noted = listener.0.lock().expect("lock").clone();
    let value = |key: &str| {
        let found = noted.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    };
    assert_eq!(
        value("securitycontextconstraints.admission.openshift.io/reason"),
        "\"restricted-v2\" is the only one not too restrictive and not denied",
        "{noted:?}"
    );
    assert_eq!(value("securityserviceconstraints.admission.openshift.io/denied"), "anyuid");
    assert_eq!(value("securitycontextconstraints.admission.openshift.io/chosen"), "restricted-v2");
}

#[tokio::test]
async fn a_plain_server_knows_nothing_of_it_and_one_plugin_can_be_had_alone() {
    let plain = Server::builder().router().expect("router");
    assert_eq!(send(&plain, "GET", SCC, &Value::Null).await.code, 404);
    let namespace = json!({"metadata": {"name": "team"}});
    let made = send(&plain, "POST", "/api/v1/namespaces", &namespace).await;
    assert_eq!(made.annotation("openshift.io/sa.scc.uid-range"), "");

    let names = ["security.openshift.io/ValidateSecurityContextConstraints".to_owned()];
    let one = Server::builder().enable_plugins(names).router().expect("router");
    assert_eq!(send(&one, "GET", &format!("{SCC}/anyuid"), &Value::Null).await.code, 200);
    let made = send(&one, "POST", "/api/v1/namespaces", &namespace).await;
    assert_eq!(made.annotation("openshift.io/sa.scc.uid-range"), "");

    let config = "/apis/config.openshift.io/v1alpha1/psaenforcementconfigs/cluster";
    let config = send(&openshift(), "GET", config, &Value::Null).await;
    assert_eq!((config.code, &config.body["spec"]["enforcementMode"]), (200, &json!("")));
    let unknown = Server::builder().enable_plugins(["Nonsense".to_owned()]).router();
    assert!(matches!(unknown, Err(StartError::UnknownPlugin(name)) if name == "Nonsense"));
}
