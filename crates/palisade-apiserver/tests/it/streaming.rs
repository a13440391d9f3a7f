//! Connections into containers: who may have one, what a node gets of it, and when it ends.

use std::sync::{Arc, Mutex};

use http::Uri;
use palisade_apiserver::stream_source::{
    StreamAddress, StreamAnswer, StreamError, StreamRequest, StreamSource, StreamTarget, Streams,
};
use palisade_apiserver::{Builder, Server};
use palisade_base::version::KubeVersion;
use palisade_testkit::client::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;

use crate::support::{admin, client, get, send, start, tls};
use crate::webhooks::{Hook, patch};

const SPDY: &str =
    "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A node whose runtime echoes, and keeps what it is requested.
struct Node {
    address: Uri,
    targets: Mutex<Vec<StreamTarget>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Node {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}/exec/secret", listener.local_addr().expect("an address"));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = kept.clone();
                tokio::spawn(echo(stream, kept));
            }
        });
        Arc::new(Self { address: address.parse().expect("a URI"), targets: Mutex::default(), heads })
    }

    fn targets(&self) -> Vec<StreamTarget> {
        std::mem::take(&mut self.targets.lock().expect("not poisoned"))
    }
}

async fn echo(mut stream: TcpStream, heads: Arc<Mutex<Vec<String>>>) {
    let head = read_head(&mut stream).await;
    let offered = |name: &str| {
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix(name).map(str::to_owned))
    };
    let upgrade = offered("upgrade: ").unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nSet-Cookie: secret\r\n\r\n"
    );
    heads.lock().expect("not poisoned").push(head);
    stream.write_all(answer.as_bytes()).await.expect("written");
    let (mut from, mut to) = stream.split();
    // The other end may be gone at any time.
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

async fn read_head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    String::from_utf8(head).expect("text")
}

impl StreamSource for Node {
    fn serves(&self, node: &str) -> bool {
        node == "here"
    }

    fn open(&self, request: StreamRequest) -> StreamAnswer<'_> {
        Box::pin(async move {
            if request.pod["metadata"]["name"] == "stopped" {
                return Err(StreamError { code: 500, message: "container not found (\"c\")".to_owned() });
            }
            let streams = match &request.target {
                StreamTarget::Exec { streams, .. } | StreamTarget::Attach { streams, .. } => *streams,
                StreamTarget::PortForward { .. } => Streams::default(),
            };
            self.targets.lock().expect("not poisoned").push(request.target);
            Ok(StreamAddress { uri: self.address.clone(), streams })
        })
    }
}

/// A server with a node, and pods on it.
async fn world(builder: Builder) -> (Server, Client, Arc<Node>) {
    let node = Node::start().await;
    let builder = builder.disable_plugins(["ServiceAccount".to_owned()]).stream_source(node.clone());
    let server = start(builder).await;
    let admin = admin(&server);
    for name in ["here", "elsewhere"] {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        assert_eq!(send(&admin, "POST", "/api/v1/nodes", &object).await.code, 201);
    }
    for (name, node) in [("web", "here"), ("stopped", "here"), ("far", "elsewhere"), ("pending", "")] {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        if !node.is_empty() {
            pod["spec"]["nodeName"] = node.into();
        }
        assert_eq!(send(&admin, "POST", "/api/v1/namespaces/default/pods", &pod).await.code, 201);
    }
    (server, admin, node)
}

fn path(pod: &str, rest: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{pod}/{rest}")
}

/// Requests another protocol; the head of the answer, and the connection.
async fn upgrade(server: &Server, method: &str, path: &str, headers: &str) -> (String, TlsStream<TcpStream>) {
    let mut stream = tls(server, None).await;
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("written");
    let head = read_head(&mut stream).await;
    (head, stream)
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn code(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status")
}

/// The token of a service account that a role lets do some verbs on `pods/exec`.
async fn account(admin: &Client, name: &str, verbs: &[&str]) -> String {
    account_in(admin, "default", name, verbs).await
}

async fn account_in(admin: &Client, namespace: &str, name: &str, verbs: &[&str]) -> String {
    let accounts = &format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let object = json!({"metadata": {"name": name}});
    assert_eq!(send(admin, "POST", accounts, &object).await.code, 201);
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let role = json!({"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": verbs}]});
    assert_eq!(send(admin, "POST", &format!("{rbac}/roles"), &role).await.code, 201);
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]});
    assert_eq!(send(admin, "POST", &format!("{rbac}/rolebindings"), &binding).await.code, 201);
    let made = send(admin, "POST", &format!("{accounts}/{name}/token"), &json!({"spec": {}})).await;
    made.body["status"]["token"].as_str().expect("a token").to_owned()
}

#[tokio::test]
async fn passes_bytes_on_and_nothing_about_the_user() {
    let (server, _, node) = world(Server::builder()).await;
    let headers = format!("{SPDY}{}Impersonate-User: eve\r\nCookie: a=b\r\n", bearer(&server.token));
    let (head, mut stream) = upgrade(
        &server,
        "POST",
        &path("web", "exec?command=sh&command=-c&stdout=true&container=c"),
        &headers,
    )
    .await;
    // The administrator may impersonate, eve may do nothing.
    assert_eq!(code(&head), 403, "{head}");
    drop(stream);
    let headers = format!("{SPDY}{}Cookie: a=b\r\n", bearer(&server.token));
    let exec = path("web", "exec?command=sh&command=-c&stdout=true&container=c");
    (_, stream) = {
        let (head, stream) = upgrade(&server, "POST", &exec, &headers).await;
        assert_eq!(code(&head), 101, "{head}");
        assert!(head.to_ascii_lowercase().contains("upgrade: spdy/3.1\r\n"), "{head}");
        assert!(!head.to_ascii_lowercase().contains("set-cookie"), "{head}");
        (head, stream)
    };
    stream.write_all(b"hello").await.expect("written");
    let mut echoed = [0; 5];
    stream.read_exact(&mut echoed).await.expect("echoed");
    assert_eq!(&echoed, b"hello");
    let heads = node.heads.lock().expect("not poisoned").join("").to_ascii_lowercase();
    assert!(heads.starts_with("post /exec/secret http/1.1\r\n"), "{heads}");
    for secret in ["authorization", "cookie", "impersonate", &server.token.to_ascii_lowercase()] {
        assert!(!heads.contains(secret), "{secret}: {heads}");
    }
    let streams = Streams { stdout: true, ..Streams::default() };
    let command = vec!["sh".to_owned(), "-c".to_owned()];
    assert_eq!(node.targets(), [StreamTarget::Exec { container: "c".to_owned(), command, streams }]);
    server.shutdown().await;
}

#[tokio::test]
async fn a_connection_ends_with_its_pod() {
    let (server, admin, _) = world(Server::builder()).await;
    let headers = format!("{SPDY}{}", bearer(&server.token));
    let (head, mut stream) = upgrade(&server, "POST", &path("web", "attach?stdin=1"), &headers).await;
    assert_eq!(code(&head), 101, "{head}");
    // Another pod's end is not this one's.
    assert_eq!(
        send(&admin, "DELETE", &path("far", "?gracePeriodSeconds=0").replace("/?", "?"), &Value::Null)
            .await
            .code,
        200
    );
    stream.write_all(b"x").await.expect("written");
    assert_eq!(stream.read_u8().await.expect("echoed"), b'x');
    assert_eq!(
        send(&admin, "DELETE", &path("web", "?gracePeriodSeconds=0").replace("/?", "?"), &Value::Null)
            .await
            .code,
        200
    );
    let mut rest = Vec::new();
    // A connection that is cut ends with an error or without a byte.
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok() && rest.is_empty(), "{ended:?} {rest:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn a_reader_runs_no_commands_over_a_websocket() {
    for (release, expected) in [(37, 403), (35, 403), (34, 101)] {
        let (server, admin, node) = world(Server::builder().version(KubeVersion::v1(release))).await;
        let exec = path("web", "exec?command=sh&stdout=true");
        let reader = bearer(&account(&admin, "reader", &["get", "list", "watch"]).await);
        let (head, _stream) = upgrade(&server, "GET", &exec, &format!("{WEBSOCKET}{reader}")).await;
        assert_eq!(code(&head), expected, "v1.{release}: {head}");
        assert_eq!(node.targets().is_empty(), expected == 403, "v1.{release}");
        let (head, _stream) = upgrade(&server, "POST", &exec, &format!("{SPDY}{reader}")).await;
        assert_eq!(code(&head), 403, "v1.{release}: {head}");
        let runner = bearer(&account(&admin, "runner", &["get", "create"]).await);
        let (head, _stream) = upgrade(&server, "GET", &exec, &format!("{WEBSOCKET}{runner}")).await;
        assert_eq!(code(&head), 101, "v1.{release}: {head}");
        let (head, _stream) = upgrade(&server, "GET", &exec, WEBSOCKET).await;
        assert_eq!(code(&head), 403, "nobody: {head}");
        server.shutdown().await;
    }
}

#[tokio::test]
async fn a_policy_that_denies_commands_is_honoured() {
    let (server, admin, node) = world(Server::builder()).await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"metadata": {"name": "no-shell"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]}]},
        "validations": [{"expression": "object.kind == 'PodExecOptions' && object.command[0] != 'sh' && request.name == 'web'",
            "message": "no shells"}]}});
    assert_eq!(
        send(&admin, "POST", &format!("{group}/validatingadmissionpolicies"), &policy).await.code,
        201
    );
    let binding = json!({"metadata": {"name": "no-shell"}, "spec": {"policyName": "no-shell", "validationActions": ["Deny"]}});
    assert_eq!(
        send(&admin, "POST", &format!("{group}/validatingadmissionpolicybindings"), &binding).await.code,
        201
    );
    let user = bearer(&server.token);
    for (what, method, protocol, expected) in [
        ("exec?command=sh&stdout=true", "POST", SPDY, 422),
        ("exec?command=sh&stdout=true", "GET", WEBSOCKET, 422),
        ("exec?command=ls&stdout=true", "POST", SPDY, 101),
        ("attach?stdin=true", "POST", SPDY, 101),
    ] {
        let (head, _stream) =
            upgrade(&server, method, &path("web", what), &format!("{protocol}{user}")).await;
        assert_eq!(code(&head), expected, "{method} {what}: {head}");
        assert_eq!(node.targets().len(), usize::from(expected == 101), "{method} {what}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn webhooks_judge_the_command_that_runs() {
    let (server, admin, node) = world(Server::builder()).await;
    let hook = Hook::start(|path, request| {
        if path.starts_with("/mutate") {
            let operations = json!([{"op": "add", "path": "/command/-", "value": "-x"}]);
            return (200, patch(&operations));
        }
        let allowed = request["object"]["command"] != json!(["sh", "-x"]);
        (200, json!({"allowed": allowed}))
    })
    .await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let webhook = |path: &str| {
        json!([{"name": "exec.example.com", "clientConfig": hook.url(path), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec"]}]}])
    };
    for (plural, path) in [("mutating", "/mutate"), ("validating", "/judge")] {
        let object = json!({"metadata": {"name": "exec"}, "webhooks": webhook(path)});
        assert_eq!(
            send(&admin, "POST", &format!("{group}/{plural}webhookconfigurations"), &object).await.code,
            201
        );
    }
    let user = bearer(&server.token);
    let (head, _stream) =
        upgrade(&server, "POST", &path("web", "exec?command=sh&stdout=1"), &format!("{SPDY}{user}")).await;
    assert_eq!((code(&head), node.targets()), (400, Vec::new()), "{head}");
    let received = hook.received();
    let request = &received.first().expect("a review")["request"];
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "PodExecOptions"}));
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "pods"}));
    let facts = ["subResource", "operation", "name", "namespace"]
        .map(|key| request[key].as_str().unwrap_or_default());
    assert_eq!(facts, ["exec", "CONNECT", "web", "default"]);
    assert_eq!(request["object"]["command"], json!(["sh"]));

    let (head, _stream) =
        upgrade(&server, "POST", &path("web", "exec?command=ls&stdout=1"), &format!("{SPDY}{user}")).await;
    assert_eq!(code(&head), 101, "{head}");
    let targets = node.targets();
    assert!(
        matches!(&targets[..], [StreamTarget::Exec { command, .. }] if command == &["ls", "-x"]),
        "{targets:?}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn rejects_what_is_no_connection_with_upstreams_reasons() {
    let (server, _, node) = world(Server::builder()).await;
    let user = bearer(&server.token);
    let exec = "exec?command=sh&stdout=true";
    for (case, pod, what, protocol, expected) in [
        ("no upgrade", "web", exec, "", (400, "Upgrade request required")),
        (
            "no streams",
            "web",
            "exec?command=sh",
            SPDY,
            (400, "you must specify at least 1 of stdin, stdout, stderr"),
        ),
        (
            "another container",
            "web",
            "exec?command=sh&stdout=1&container=x",
            SPDY,
            (400, "container x is not valid for pod web"),
        ),
        ("no pod", "gone", exec, SPDY, (404, "pods \\\"gone\\\" not found")),
        ("no node yet", "pending", exec, SPDY, (400, "pod pending does not have a host assigned")),
        ("no kubelet", "far", exec, SPDY, (501, "no kubelet answers for node")),
        ("not running", "stopped", exec, SPDY, (500, "container not found (\"c\")")),
        ("a port out of range", "web", "portforward?ports=70000", SPDY, (400, "port 70000 is out of range")),
    ] {
        let (head, mut stream) =
            upgrade(&server, "POST", &path(pod, what), &format!("{protocol}{user}")).await;
        let length = head
            .to_ascii_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or_default()];
        stream.read_exact(&mut body).await.expect("a body");
        let body = String::from_utf8_lossy(&body);
        assert!(code(&head) == expected.0 && body.contains(expected.1), "{case}: {head}{body}");
        assert!(node.targets().is_empty(), "{case}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_token_among_the_subprotocols_is_the_clients_alone() {
    use base64::Engine as _;
    let (server, _, node) = world(Server::builder()).await;
    let exec = path("web", "exec?command=sh&stdout=true");
    let token = |token: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token);
    let protocols = |token: &str| {
        format!(
            "{WEBSOCKET}Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{token}, v4.channel.k8s.io\r\n"
        )
    };
    for (case, headers, expected) in [
        ("another token", protocols(&token("x")), 401),
        ("no token", protocols("%"), 401),
        (
            "two tokens",
            format!(
                "{}Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA\r\n",
                protocols(&token(&server.token))
            ),
            401,
        ),
        ("the token", protocols(&token(&server.token)), 101),
    ] {
        let (head, _stream) = upgrade(&server, "GET", &exec, &headers).await;
        assert_eq!(code(&head), expected, "{case}: {head}");
    }
    let heads = node.heads.lock().expect("not poisoned").join("").to_ascii_lowercase();
    assert!(
        heads.contains("sec-websocket-protocol: v4.channel.k8s.io\r\n") && !heads.contains("bearer"),
        "{heads}"
    );
    server.shutdown().await;
}

#[tokio::test]
async fn a_connection_is_audited_when_it_begins_and_when_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.log");
    let (server, admin, _) = world(Server::builder().audit_log(&log)).await;
    let headers = format!("{SPDY}{}", bearer(&server.token));
    let stages = || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let own = events.filter(|event| event["objectRef"]["subresource"] == "exec");
        own.map(|event| (event["stage"].as_str().expect("a stage").to_owned(), event["auditID"].clone()))
            .collect::<Vec<_>>()
    };
    let (head, stream) =
        upgrade(&server, "POST", &path("web", "exec?command=sh&stdout=true"), &headers).await;
    assert_eq!(code(&head), 101, "{head}");
    palisade_testkit::eventually("the begin", || std::future::ready((stages().len() == 1).then_some(())))
        .await;
    assert_eq!(stages()[0].0, "ResponseStarted");
    drop(stream);
    palisade_testkit::eventually("the end", || std::future::ready((stages().len() == 2).then_some(()))).await;
    let stages = stages();
    assert_eq!((stages[1].0.as_str(), &stages[1].1), ("ResponseComplete", &stages[0].1));
    assert_eq!(get(&admin, &path("web", "exec?command=sh&stdout=1")).await.code, 400);
    server.shutdown().await;
}

#[tokio::test]
async fn who_may_not_create_a_pod_runs_no_commands_in_it_on_openshift() {
    let (server, admin, node) = world(Server::builder().openshift(true)).await;
    // `default` is one of the namespaces to which constraints do not apply.
    let shop = json!({"metadata": {"name": "shop"}});
    assert_eq!(send(&admin, "POST", "/api/v1/namespaces", &shop).await.code, 201);
    let namespace = |pod: &str, rest: &str| format!("/api/v1/namespaces/shop/pods/{pod}{rest}");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": {"nodeName": "here", "hostPID": true,
        "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}});
    assert_eq!(send(&admin, "POST", "/api/v1/namespaces/shop/pods", &pod).await.code, 201);
    let token = account_in(&admin, "shop", "runner", &["get", "create"]).await;
    let runner = bearer(&token);
    let exec = "/exec?command=sh&stdout=true";
    let (head, mut stream) =
        upgrade(&server, "POST", &namespace("root", exec), &format!("{SPDY}{runner}")).await;
    assert_eq!(code(&head), 403, "{head}");
    let mut body = vec![0; 300];
    stream.read_exact(&mut body).await.expect("a body");
    let body = String::from_utf8_lossy(&body);
    assert!(
        body.contains(
            "exec operation is not allowed because the pod's security context exceeds your permissions"
        ),
        "{body}"
    );
    assert!(node.targets().is_empty());
    // The harmless twins: a pod of their own kind, and a user who may create the other.
    let plain = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {"nodeName": "here",
        "containers": [{"name": "c", "image": "i"}]}});
    let own = client(&server, &token);
    assert_eq!(get(&own, &namespace("plain", "")).await.code, 403);
    assert_eq!(send(&admin, "POST", "/api/v1/namespaces/shop/pods", &plain).await.code, 201);
    let (head, _stream) =
        upgrade(&server, "POST", &namespace("plain", exec), &format!("{SPDY}{runner}")).await;
    assert_eq!(code(&head), 101, "{head}");
    let (head, _stream) =
        upgrade(&server, "POST", &namespace("root", exec), &format!("{SPDY}{}", bearer(&server.token))).await;
    assert_eq!(code(&head), 101, "{head}");
    server.shutdown().await;
}
