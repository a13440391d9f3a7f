//! The `proxy` subresources: who may use them, where they lead, and what the two ends get of each other.

use std::sync::{Arc, Mutex};

use palisade_apiserver::Server;
use palisade_testkit::client::Client;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::rights::{World, rule};
use crate::support::{admin, client, get, send, start, tls};

/// A kubelet that answers HTTP/1.1, and keeps the heads of requests.
struct Kubelet {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Kubelet {
    async fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(["kubelet".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a pair");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, kept) = (acceptor.clone(), kept.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        answer(stream, &kept).await;
                    }
                });
            }
        });
        Self { port, heads }
    }

    fn head(&self) -> String {
        self.heads.lock().expect("not poisoned").pop().expect("a request")
    }
}

async fn answer(mut stream: TlsStream<TcpStream>, heads: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    let head = String::from_utf8(head).expect("text");
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let mut body = vec![0; length.parse().expect("a length")];
    stream.read_exact(&mut body).await.expect("a body");
    let (path, page) = (head.split(' ').nth(1).unwrap_or_default().to_owned(), "<a href=\"/x\">y</a>");
    heads.lock().expect("not poisoned").push(head);
    let answer = match path.as_str() {
        "/page" => format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n{page}",
            page.len()
        ),
        "/moved" => "HTTP/1.1 302 Found\r\nLocation: /else/where?a=b\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "/stream" => {
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".to_owned()
        }
        "/broken" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_owned(),
        _ => format!(
            "HTTP/1.1 418 Teapot\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nAccess-Control-Allow-Origin: *\r\n\
             Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{}",
            body.len(),
            String::from_utf8(body).expect("text")
        ),
    };
    stream.write_all(answer.as_bytes()).await.expect("written");
    if path == "/stream" {
        let (mut from, mut to) = tokio::io::split(stream);
        // The other end may be gone at any time.
        let _ = tokio::io::copy(&mut from, &mut to).await;
        return;
    }
    let _ = stream.shutdown().await;
}

async fn world() -> (Server, Client, Kubelet) {
    let kubelet = Kubelet::start().await;
    let builder = Server::builder().loopback_kubelets(true).disable_plugins(["ServiceAccount".to_owned()]);
    let server = start(builder).await;
    let admin = admin(&server);
    add_node(&admin, kubelet.port).await;
    (server, admin, kubelet)
}

/// Adds a node that states a kubelet at this port of the machine of the server.
async fn add_node(admin: &Client, port: u16) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    assert_eq!(send(admin, "POST", "/api/v1/nodes", &node).await.code, 201);
    let status = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}});
    assert_eq!(send(admin, "PATCH", "/api/v1/nodes/n/status", &status).await.code, 200);
}

#[tokio::test]
async fn a_node_that_states_the_address_of_the_server_gets_nothing_of_its_rights() {
    for proxied in [false, true] {
        let builder = Server::builder().loopback_kubelets(proxied);
        let server = start(builder).await;
        let admin = admin(&server);
        let url = server.url();
        let port = url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        add_node(&admin, port).await;
        for path in ["n/proxy/api/v1/secrets".to_owned(), format!("https:n:{port}/proxy/api/v1/secrets")] {
            let answer = get(&admin, &format!("/api/v1/nodes/{path}")).await;
            let expected = if proxied { (401, "Unauthorized") } else { (400, "address not allowed") };
            assert_eq!(answer.code, expected.0, "{path}: {}", answer.body);
            assert!(answer.body.to_string().contains(expected.1), "{path}: {}", answer.body);
        }
        server.shutdown().await;
    }
}

/// What a client gets: the code, the headers as they are, and the body.
#[derive(Debug)]
struct Received {
    code: u16,
    head: String,
    text: String,
}

impl Received {
    fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

/// Sends a request as the administrator, and reads the answer to its end.
async fn exchange(server: &Server, method: &str, path: &str, headers: &str, body: &str) -> Received {
    let mut stream = tls(server, None).await;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         Content-Length: {}\r\n{headers}\r\n{body}",
        server.token,
        body.len()
    );
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut answer = Vec::new();
    // An answer that breaks off ends with an error or too early.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).expect("text");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    Received { code, head: head.to_owned(), text: text.to_owned() }
}

#[tokio::test]
async fn passes_requests_on_without_the_users_credentials() {
    let (server, _, kubelet) = world().await;
    for (method, sent) in [("GET", ""), ("POST", "hello"), ("PUT", "x"), ("DELETE", ""), ("PATCH", "y")] {
        let path = "/api/v1/nodes/n/proxy/a%20b/../c/?timeout=soon&q=1%2F2";
        let headers = "Cookie: k=v\r\nX-Remote-User: root\r\nKeep-Alive: 5\r\n";
        let answer = exchange(&server, method, path, headers, sent).await;
        assert_eq!((answer.code, answer.text.as_str()), (418, sent), "{method}");
        assert_eq!(answer.header("set-cookie"), ["a=b", "c=d"], "{method}");
        assert_eq!(answer.header("access-control-allow-origin"), [""; 0], "{method}");
        let head = kubelet.head().to_ascii_lowercase();
        let expected = format!("{} /c/?timeout=soon&q=1%2f2 http/1.1\r\n", method.to_ascii_lowercase());
        assert!(head.starts_with(&expected), "{head}");
        assert!(head.contains("x-forwarded-uri: /api/v1/nodes/n/proxy/c/\r\n"), "{head}");
        assert!(head.contains("x-forwarded-for: 127.0.0.1\r\n") && head.contains("cookie: k=v"), "{head}");
        for secret in ["authorization", "x-remote-user", "keep-alive", &server.token.to_ascii_lowercase()] {
            assert!(!head.contains(secret), "{secret}: {head}");
        }
    }
    let path = format!("/api/v1/nodes/n:{}/proxy/x", kubelet.port);
    let named = exchange(&server, "GET", &path, "", "").await;
    assert_eq!(named.code, 418);
    server.shutdown().await;
}

#[tokio::test]
async fn answers_lead_back_through_the_proxy() {
    let (server, _, kubelet) = world().await;
    let of_node = async |method: &str, path: &str| {
        exchange(&server, method, &format!("/api/v1/nodes/n/proxy{path}"), "", "").await
    };
    let page = of_node("GET", "/page").await;
    assert_eq!(page.text, "<a href=\"/api/v1/nodes/n/proxy/x\">y</a>");
    assert_eq!(page.header("content-type"), ["text/html; charset=utf-8"]);
    let moved = of_node("GET", "/moved").await;
    assert_eq!((moved.code, moved.header("location")), (302, vec!["/api/v1/nodes/n/proxy/else/where?a=b"]));
    kubelet.heads.lock().expect("not poisoned").clear();
    for method in ["GET", "HEAD"] {
        let folder = of_node(method, "?method=x").await;
        let expected = (301, vec!["/api/v1/nodes/n/proxy/?method=x"]);
        assert_eq!((folder.code, folder.header("location")), expected, "{method}");
    }
    assert!(kubelet.heads.lock().expect("not poisoned").is_empty());
    assert_eq!(of_node("POST", "").await.code, 418);
    let broken = of_node("GET", "/broken").await;
    let length = broken.header("content-length");
    assert_eq!((length, broken.text.as_str()), (vec!["100"], "half"), "half an answer is no whole one");
    server.shutdown().await;
}

#[tokio::test]
async fn upgraded_connections_go_through_and_end_with_their_node() {
    let (server, admin, kubelet) = world().await;
    let mut stream = tls(&server, None).await;
    let request = format!(
        "GET /api/v1/nodes/n/proxy/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Connection: Upgrade\r\nUpgrade: echo\r\nSec-WebSocket-Protocol: a, base64url.bearer.authorization.k8s.io.eA\r\n\r\n",
        server.token
    );
    stream.write_all(request.as_bytes()).await.expect("written");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: echo\r\n"), "{head}");
    let received = kubelet.head().to_ascii_lowercase();
    assert!(received.contains("upgrade: echo\r\n"), "{received}");
    assert!(received.contains("sec-websocket-protocol: a\r\n"), "{received}");
    assert!(!received.contains("bearer"), "{received}");
    stream.write_all(b"hello").await.expect("written");
    let mut echoed = [0; 5];
    stream.read_exact(&mut echoed).await.expect("echoed");
    assert_eq!(&echoed, b"hello");
    assert_eq!(send(&admin, "DELETE", "/api/v1/nodes/n", &Value::Null).await.code, 200);
    let mut rest = Vec::new();
    // A connection that is cut ends with an error or without a byte.
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok() && rest.is_empty(), "{ended:?} {rest:?}");
    server.shutdown().await;
}

#[tokio::test]
async fn needs_the_verb_of_the_method_on_the_subresource() {
    let reads =
        json!([rule(&["get"], "", &["pods/proxy", "services/proxy"]), rule(&["create"], "", &["pods"])]);
    let world = World::new(&json!([rule(&["*"], "", &["nodes"])]), &reads).await;
    let ns = "/api/v1/namespaces/default";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "i"}]}});
    world.admin("POST", &format!("{ns}/pods"), &pod).await;
    world.admin("POST", "/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await;
    for (method, path, expected) in [
        ("GET", format!("{ns}/pods/p/proxy/"), "address not allowed"),
        ("HEAD", format!("{ns}/pods/p/proxy/"), ""),
        ("GET", format!("{ns}/pods/a:b:c:d/proxy/"), "invalid pod request"),
        ("GET", format!("{ns}/pods/none/proxy/"), "pods \\\"none\\\" not found"),
        ("GET", format!("{ns}/services/none:web/proxy/"), "endpoints \\\"none\\\" not found"),
        ("GET", format!("{ns}/services/none:80/proxy/"), "services \\\"none\\\" not found"),
        ("POST", format!("{ns}/pods/p/proxy/"), "forbidden"),
        ("DELETE", format!("{ns}/pods/https:p:443/proxy/x"), "forbidden"),
        ("OPTIONS", format!("{ns}/pods/p/proxy/"), "forbidden"),
        ("GET", "/api/v1/namespaces/other/pods/p/proxy/".to_owned(), "forbidden"),
        ("GET", "/api/v1/nodes/n/proxy/pods".to_owned(), "forbidden"),
    ] {
        let answer = world.mallory(method, &path, &Value::Null).await;
        assert!(answer.code >= 400 && answer.text.contains(expected), "{method} {path}: {}", answer.text);
    }
    let admin = palisade_apiserver::auth::UserInfo::admin;
    let answer = world.send(admin(), "GET", "/api/v1/nodes/n/proxy/pods", "", &Value::Null).await;
    assert!(answer.code == 501 && answer.text.contains("no kubelet answers"), "{}", answer.text);
    let answer = world.send(admin(), "GET", &format!("{ns}/pods/p/proxy/%ff"), "", &Value::Null).await;
    assert!(answer.code == 400 && answer.text.contains("not UTF-8"), "{}", answer.text);
}

#[tokio::test]
async fn a_policy_judges_the_path() {
    let (server, admin, kubelet) = world().await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"metadata": {"name": "no-run"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["nodes/proxy"]}]},
        "validations": [{"expression": "object.kind == 'NodeProxyOptions' && !object.path.startsWith('/run')", "message": "no commands"}]}});
    let policies = format!("{group}/validatingadmissionpolicies");
    assert_eq!(send(&admin, "POST", &policies, &policy).await.code, 201);
    let binding = json!({"metadata": {"name": "no-run"}, "spec": {"policyName": "no-run", "validationActions": ["Deny"]}});
    let bindings = format!("{group}/validatingadmissionpolicybindings");
    assert_eq!(send(&admin, "POST", &bindings, &binding).await.code, 201);
    let denied = send(&admin, "POST", "/api/v1/nodes/n/proxy/run/ns/pod/c", &Value::Null).await;
    assert_eq!(denied.code, 422, "{}", denied.body);
    assert!(kubelet.heads.lock().expect("not poisoned").is_empty());
    assert_eq!(get(&admin, "/api/v1/nodes/n/proxy/healthz").await.code, 418);
    let reader = client(&server, "nobody");
    assert_eq!(get(&reader, "/api/v1/nodes/n/proxy/healthz").await.code, 401);
    server.shutdown().await;
}
