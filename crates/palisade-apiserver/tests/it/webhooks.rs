//! Admission webhooks, against webhook servers with certificates of their own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use palisade_apiserver::Server;
use palisade_apiserver::http::tls::Authority;
use palisade_testkit::client::{Answer, Client};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::{admin, config_map, get, send, start};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

type Decide = dyn Fn(&str, &Value) -> (u16, Value) + Send + Sync;

/// A webhook server; the reviews it receives are kept.
pub(crate) struct Hook {
    address: SocketAddr,
    ca: String,
    received: Arc<Mutex<Vec<(String, Value)>>>,
    connections: Arc<Mutex<usize>>,
}

impl Hook {
    /// Starts a server that answers each path and request with what `decide` makes of it.
    pub(crate) async fn start(decide: impl Fn(&str, &Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let authority = Authority::open(None).expect("authority");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listener");
        let address = listener.local_addr().expect("address");
        let config = authority.server_config(address.ip()).expect("TLS");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let received = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let decide: Arc<Decide> = Arc::new(decide);
        let (log, count) = (received.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, decide, log) = (acceptor.clone(), decide.clone(), log.clone());
                *count.lock().expect("count") += 1;
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(request, decide.clone(), log.clone()));
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, ca: STANDARD.encode(&authority.certificate), received, connections }
    }

    pub(crate) fn url(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.address), "caBundle": self.ca})
    }

    pub(crate) fn received(&self) -> Vec<Value> {
        self.received.lock().expect("log").iter().map(|(_, review)| review.clone()).collect()
    }

    fn paths(&self) -> Vec<String> {
        self.received.lock().expect("log").iter().map(|(path, _)| path.clone()).collect()
    }
}

async fn answer(
    request: hyper::Request<hyper::body::Incoming>,
    decide: Arc<Decide>,
    log: Arc<Mutex<Vec<(String, Value)>>>,
) -> Result<hyper::Response<Full<Bytes>>, std::convert::Infallible> {
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    log.lock().expect("log").push((path.clone(), review.clone()));
    if path.starts_with("/slow") {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let (code, mut response) = decide(&path, &review["request"]);
    let body = if code == 200 && response.is_object() {
        response["uid"] = review["request"]["uid"].clone();
        json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).to_string()
    } else {
        response.as_str().unwrap_or_default().to_owned()
    };
    let answer = hyper::Response::builder().status(code).body(Full::new(body.into()));
    Ok(answer.expect("an answer"))
}

pub(crate) fn patch(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}

fn rule(resources: &[&str]) -> Value {
    json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources})
}

/// A webhook for config maps, with changes.
fn webhook(name: &str, client: &Value, change: &Value) -> Value {
    let mut webhook = json!({
        "name": name, "clientConfig": client, "rules": [rule(&["configmaps"])], "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    });
    for (key, value) in change.as_object().into_iter().flatten() {
        webhook[key] = value.clone();
    }
    webhook
}

async fn register(client: &Client, path: &str, name: &str, webhooks: &[Value]) {
    let kind =
        if path == MUTATING { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": webhooks,
    });
    let made = send(client, "POST", path, &configuration).await;
    assert_eq!(made.code, 201, "{}", made.body);
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

async fn server() -> (Server, Client) {
    let server = start(Server::builder().controllers(false)).await;
    let client = admin(&server);
    (server, client)
}

#[tokio::test]
async fn a_webhook_receives_the_whole_review() {
    let (_server, client) = server().await;
    let hook = Hook::start(|_, _| (200, json!({"allowed": true, "warnings": ["careful"]}))).await;
    register(&client, VALIDATING, "v", &[webhook("a.b.c", &hook.url("/v"), &json!({}))]).await;
    let made =
        send(&client, "POST", &format!("{MAPS}?fieldManager=me&dryRun=All"), &config_map("a", "1")).await;
    assert_eq!((made.code, made.warnings), (201, vec!["careful".to_owned()]));
    let review = hook.received().remove(0);
    assert_eq!(
        (&review["kind"], &review["apiVersion"]),
        (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
    );
    assert_eq!(hook.paths(), ["/v?timeout=10s"]);
    let mut request = review["request"].clone();
    let object = request["object"].take();
    assert_eq!((&object["kind"], &object["metadata"]["name"]), (&json!("ConfigMap"), &json!("a")));
    assert!(
        object["metadata"]["uid"].is_string() && object["metadata"]["managedFields"].is_array(),
        "{object}"
    );
    assert!(request["uid"].as_str().is_some_and(|uid| uid.len() == 36));
    request["uid"] = Value::Null;
    let gvk = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let gvr = json!({"group": "", "version": "v1", "resource": "configmaps"});
    assert_eq!(
        request,
        json!({
            "uid": null, "kind": gvk, "resource": gvr, "requestKind": gvk, "requestResource": gvr,
            "name": "a", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
            "object": null, "oldObject": null, "dryRun": true,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me",
                        "dryRun": ["All"]},
        })
    );
    send(&client, "POST", MAPS, &config_map("b", "1")).await;
    send(&client, "PATCH", &format!("{MAPS}/b"), &json!({"data": {"k": "2"}})).await;
    send(&client, "DELETE", &format!("{MAPS}/b"), &Value::Null).await;
    let received = hook.received();
    let update = &received[2]["request"];
    assert_eq!(update["operation"], "UPDATE");
    assert_eq!(
        (&update["object"]["data"]["k"], &update["oldObject"]["data"]["k"]),
        (&json!("2"), &json!("1"))
    );
    assert_eq!(update["options"]["kind"], "UpdateOptions");
    let delete = &received[3]["request"];
    assert_eq!((&delete["operation"], &delete["object"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(delete["oldObject"]["data"]["k"], "2");
    assert_eq!(delete["options"]["kind"], "DeleteOptions");
    assert_eq!(*hook.connections.lock().expect("count"), 1, "connections are kept");
}

#[tokio::test]
async fn patches_of_webhooks_are_applied_without_an_owner() {
    let (_server, client) = server().await;
    let hook = Hook::start(|path, _| match path.split('?').next() {
        Some("/label") => {
            (200, patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}])))
        }
        Some("/deny") => {
            (200, json!({"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": "no"}}))
        }
        Some("/broken") => (200, patch(&json!([{"op": "remove", "path": "/nope/nope"}]))),
        _ => (200, json!({"allowed": true})),
    })
    .await;
    register(&client, MUTATING, "m", &[webhook("label.b.c", &hook.url("/label"), &json!({}))]).await;
    let made = send(&client, "POST", MAPS, &config_map("a", "1")).await;
    assert_eq!(made.code, 201, "{}", made.body);
    assert_eq!(made.body["metadata"]["labels"], json!({"a": "1"}));
    let owned = made.body["metadata"]["managedFields"].to_string();
    assert!(!owned.contains("f:labels"), "{owned}");
    let deleted = send(&client, "DELETE", &format!("{MAPS}/a"), &Value::Null).await;
    assert_eq!(deleted.code, 500);
    assert_eq!(
        message(&deleted),
        "Internal error occurred: admission webhook \"label.b.c\" attempted to modify the object, which is not \
         supported for this operation"
    );
    register(&client, MUTATING, "n", &[webhook("deny.b.c", &hook.url("/deny"), &json!({}))]).await;
    let denied = send(&client, "POST", MAPS, &config_map("b", "1")).await;
    assert_eq!((denied.code, denied.body["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(message(&denied), "admission webhook \"deny.b.c\" denied the request: no");
    assert_eq!(send(&client, "DELETE", &format!("{MUTATING}/n"), &Value::Null).await.code, 200);
    assert_eq!(send(&client, "DELETE", &format!("{MUTATING}/m"), &Value::Null).await.code, 200);
    register(&client, MUTATING, "o", &[webhook("broken.b.c", &hook.url("/broken"), &json!({}))]).await;
    let broken = send(&client, "POST", MAPS, &config_map("c", "1")).await;
    assert_eq!((broken.code, broken.body["reason"].as_str()), (500, Some("InternalError")));
}

#[tokio::test]
async fn webhooks_see_what_others_changed() {
    let (_server, client) = server().await;
    let hook = Hook::start(|path, request| {
        let count = request["object"]["data"].as_object().map_or(0, serde_json::Map::len);
        match path.split('?').next() {
            // Counts what it sees, once.
            Some("/first") => {
                (200, patch(&json!([{"op": "add", "path": "/data/seen", "value": count.to_string()}])))
            }
            _ => (200, patch(&json!([{"op": "add", "path": "/data/second", "value": "x"}]))),
        }
    })
    .await;
    for (policy, seen) in [("Never", "1"), ("IfNeeded", "3")] {
        let first = webhook("first.b.c", &hook.url("/first"), &json!({"reinvocationPolicy": policy}));
        let second = webhook("second.b.c", &hook.url("/second"), &json!({}));
        register(&client, MUTATING, "m", &[first, second]).await;
        let made = send(&client, "POST", MAPS, &config_map(&policy.to_lowercase(), "1")).await;
        assert_eq!(made.body["data"]["seen"], seen, "{policy}: {}", made.body);
        send(&client, "DELETE", &format!("{MUTATING}/m"), &Value::Null).await;
    }
}

#[tokio::test]
async fn failures_follow_their_policy() {
    let (_server, client) = server().await;
    let hook = Hook::start(|path, _| match path.split('?').next() {
        Some("/teapot") => (418, json!("short and stout")),
        Some("/oops") => (500, json!("oops")),
        Some("/missing") => (404, json!("")),
        Some("/text") => (200, json!("not JSON")),
        _ => (200, json!({"allowed": true})),
    })
    .await;
    let other = Hook::start(|_, _| (200, json!({"allowed": true}))).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("port").local_addr().expect("address");
    let foreign = json!({"url": format!("https://{}/x", hook.address), "caBundle": other.ca});
    let service = |name: &str| json!({"service": {"name": name, "namespace": "default", "path": "/x"}, "caBundle": hook.ca});
    let external = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ext"},
                          "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let made = send(&client, "POST", "/api/v1/namespaces/default/services", &external).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let url = format!("https://{}", hook.address);
    for (case, config, expected) in [
        (
            "connection refused",
            json!({"url": format!("https://{free}/x"), "caBundle": hook.ca}),
            format!(
                "failed to call webhook: Post \"https://{free}/x?timeout=1s\": dial tcp {free}: connect: connection refused"
            ),
        ),
        (
            "a foreign certificate",
            foreign,
            format!(
                "failed to call webhook: Post \"{url}/x?timeout=1s\": tls: failed to verify certificate: x509: \
                 certificate signed by unknown authority"
            ),
        ),
        (
            "too slow",
            hook.url("/slow"),
            format!("failed to call webhook: Post \"{url}/slow?timeout=1s\": context deadline exceeded"),
        ),
        (
            "an error",
            hook.url("/oops"),
            "failed to call webhook: an error on the server (\"oops\") has prevented the request from succeeding"
                .to_owned(),
        ),
        (
            "nothing there",
            hook.url("/missing"),
            "failed to call webhook: the server could not find the requested resource".to_owned(),
        ),
        (
            "a teapot",
            hook.url("/teapot"),
            "failed to call webhook: the server responded with the status code 418 but did not return more information"
                .to_owned(),
        ),
        (
            "not JSON",
            hook.url("/text"),
            "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'o' in literal \
             null (expecting 'u')"
                .to_owned(),
        ),
        (
            "no service",
            service("nope"),
            "failed to call webhook: Post \"https://nope.default.svc:443/x?timeout=1s\": service \"nope\" not found"
                .to_owned(),
        ),
    ] {
        let failing = webhook("f.b.c", &config, &json!({"timeoutSeconds": 1}));
        register(&client, VALIDATING, "v", std::slice::from_ref(&failing)).await;
        let refused = send(&client, "POST", MAPS, &config_map("a", "1")).await;
        assert_eq!((refused.code, refused.body["reason"].as_str()), (500, Some("InternalError")), "{case}");
        assert_eq!(
            message(&refused),
            format!("Internal error occurred: failed calling webhook \"f.b.c\": {expected}"),
            "{case}"
        );
        let lenient = json!({"webhooks": [{"failurePolicy": "Ignore"}]});
        let mut webhooks = failing;
        webhooks["failurePolicy"] = lenient["webhooks"][0]["failurePolicy"].clone();
        let changed = send(&client, "PATCH", &format!("{VALIDATING}/v"), &json!({"webhooks": [webhooks]})).await;
        assert_eq!(changed.code, 200, "{case}: {}", changed.body);
        let dry = send(&client, "POST", &format!("{MAPS}?dryRun=All"), &config_map("a", "1")).await;
        assert_eq!(dry.code, 201, "{case}: {}", dry.body);
        send(&client, "DELETE", &format!("{VALIDATING}/v"), &Value::Null).await;
    }
    let metrics = get(&client, "/metrics").await.body;
    let metrics = metrics.as_str().unwrap_or_default();
    assert!(
        metrics.contains("apiserver_admission_webhook_fail_open_count{name=\"f.b.c\",type=\"validating\"} 8"),
        "{metrics}"
    );
}

#[tokio::test]
async fn webhooks_choose_what_they_hear_of() {
    let (_server, client) = server().await;
    let hook = Hook::start(|_, _| (200, json!({"allowed": false}))).await;
    let labelled = json!({"metadata": {"labels": {"team": "a"}}});
    for (case, change, refused) in [
        ("everything", json!({}), true),
        ("another resource", json!({"rules": [rule(&["pods"])]}), false),
        ("only subresources", json!({"rules": [rule(&["configmaps/*"])]}), true),
        ("every resource", json!({"rules": [rule(&["*"])]}), true),
        (
            "the cluster's",
            json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "scope": "Cluster"}]}),
            false,
        ),
        (
            "another operation",
            json!({"rules": [{"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]}),
            false,
        ),
        ("labels it has not", json!({"objectSelector": {"matchLabels": {"a": "b"}}}), false),
        ("its namespace", json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}), true),
        ("another namespace", json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}), false),
        (
            "a condition that holds",
            json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'a'"}]}),
            true,
        ),
        (
            "a condition that does not",
            json!({"matchConditions": [{"name": "c", "expression": "request.operation != 'CREATE'"}]}),
            false,
        ),
        (
            "a condition that cannot be evaluated",
            json!({"matchConditions": [{"name": "c", "expression": "object.nope == 1"}]}),
            true,
        ),
        (
            "the same, ignored",
            json!({"failurePolicy": "Ignore", "matchConditions": [{"name": "c", "expression": "object.nope == 1"}]}),
            false,
        ),
    ] {
        assert_eq!(send(&client, "PATCH", "/api/v1/namespaces/default", &labelled).await.code, 200, "{case}");
        register(&client, VALIDATING, "v", &[webhook("a.b.c", &hook.url("/"), &change)]).await;
        let answer = send(&client, "POST", &format!("{MAPS}?dryRun=All"), &config_map("a", "1")).await;
        assert_eq!(answer.code >= 400, refused, "{case}: {}", answer.body);
        // What registers webhooks stays editable, whatever they answer.
        assert_eq!(
            send(&client, "DELETE", &format!("{VALIDATING}/v"), &Value::Null).await.code,
            200,
            "{case}"
        );
    }
    let answer = send(
        &client,
        "POST",
        VALIDATING,
        &json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "v"}, "webhooks": [webhook("a.b.c", &hook.url("/"),
                &json!({"matchConditions": [{"name": "c", "expression": "object.("}]}))]}),
    )
    .await;
    assert_eq!(answer.code, 422);
    assert!(message(&answer).contains("webhooks[0].matchConditions[0].expression: Invalid value: \"object.(\": compilation failed: ERROR"), "{}", message(&answer));
}

#[tokio::test]
async fn dry_runs_stay_without_effect() {
    let (_server, client) = server().await;
    let hook = Hook::start(|_, _| (200, json!({"allowed": true}))).await;
    register(&client, VALIDATING, "v", &[webhook("a.b.c", &hook.url("/"), &json!({}))]).await;
    // Nothing can be registered that has side effects any more, but older objects may have been.
    let configuration = get(&client, &format!("{VALIDATING}/v")).await.body;
    assert_eq!(configuration["webhooks"][0]["matchPolicy"], "Equivalent");
    let dry = send(&client, "POST", &format!("{MAPS}?dryRun=All"), &config_map("a", "1")).await;
    assert_eq!(dry.code, 201);
    assert_eq!(get(&client, &format!("{MAPS}/a")).await.code, 404);
    assert_eq!(hook.received()[0]["request"]["dryRun"], true);
}

#[tokio::test]
async fn scale_and_eviction_are_sent_as_their_own_kinds() {
    let (_server, client) = server().await;
    let hook = Hook::start(|_, _| (200, json!({"allowed": true}))).await;
    let all = json!({"rules": [rule(&["deployments/scale", "pods/eviction"])]});
    register(&client, VALIDATING, "v", &[webhook("a.b.c", &hook.url("/"), &all)]).await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(send(&client, "POST", deployments, &deployment).await.code, 201);
    let scaled =
        send(&client, "PATCH", &format!("{deployments}/d/scale"), &json!({"spec": {"replicas": 3}})).await;
    assert_eq!(scaled.code, 200, "{}", scaled.body);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(send(&client, "POST", "/api/v1/namespaces/default/pods", &pod).await.code, 201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let evicted = send(&client, "POST", "/api/v1/namespaces/default/pods/p/eviction", &eviction).await;
    assert_eq!(evicted.code, 201, "{}", evicted.body);
    let received = hook.received();
    let scale = &received[0]["request"];
    assert_eq!(scale["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(scale["subResource"], "scale");
    assert_eq!(
        (&scale["object"]["spec"]["replicas"], &scale["oldObject"]["spec"]["replicas"]),
        (&json!(3), &json!(1))
    );
    let eviction = &received[1]["request"];
    assert_eq!((&eviction["object"]["kind"], &eviction["operation"]), (&json!("Eviction"), &json!("CREATE")));
    assert_eq!(received.len(), 2);
}
