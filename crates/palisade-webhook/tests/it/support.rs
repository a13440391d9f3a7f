//! Clusters, webhooks and callers for the tests.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::{
    Client, Config,
    client::{ClientBuilder, ConfigExt as _},
    config::{KubeConfigOptions, Kubeconfig},
};
use palisade_apiserver::{Builder, Server};
use palisade_model::compat::{Compat, FeatureGates};
use palisade_webhook::{
    Options, Webhook,
    certificates::Trust,
    options::{
        CertificateSource, ConfigurationSource, Endpoint, FailurePolicy, Limits, Managed, Registration,
    },
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The namespace of the webhooks in the tests.
pub(crate) const OWN: &str = "palisade-system";

/// Calls to the API server: `verb group/resource namespace`.
pub(crate) type Calls = Arc<Mutex<BTreeSet<String>>>;

/// An API server and a client of it.
pub(crate) struct Cluster {
    pub(crate) server: Server,
    /// The administrator's.
    pub(crate) client: Client,
    /// The webhook's.
    pub(crate) webhook_client: Client,
    /// What the webhook has called.
    pub(crate) calls: Calls,
    /// While true, nothing that the webhook writes arrives.
    pub(crate) read_only: Arc<AtomicBool>,
}

pub(crate) async fn cluster(builder: Builder) -> Cluster {
    let server = builder.start().await.unwrap();
    let cluster = cluster_of(server).await;
    cluster.namespace(OWN, &[]).await;
    cluster
}

pub(crate) async fn cluster_of(server: Server) -> Cluster {
    let (calls, read_only) = (Calls::default(), Arc::new(AtomicBool::new(false)));
    let client = client_of(&server.kubeconfig, &Calls::default(), &Arc::default()).await;
    let webhook_client = client_of(&server.kubeconfig, &calls, &read_only).await;
    Cluster { server, client, webhook_client, calls, read_only }
}

/// A client from a kubeconfig that notes every call.
pub(crate) async fn client_of(kubeconfig: &str, calls: &Calls, read_only: &Arc<AtomicBool>) -> Client {
    let read = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    let (calls, read_only) = (calls.clone(), read_only.clone());
    let layer = tower::util::MapRequestLayer::new(move |mut request: Request<kube::client::Body>| {
        calls.lock().unwrap().extend(call_of(request.method().as_str(), request.uri()));
        if read_only.load(Ordering::Relaxed) && request.method() != Method::GET {
            // This is not served, so nothing is written.
            *request.uri_mut() = "/apis/absent/v1/nothing/at-all".parse().unwrap();
        }
        request
    });
    ClientBuilder::try_from(config).unwrap().with_layer(&layer).build()
}

/// A request in the words of RBAC.
fn call_of(method: &str, uri: &http::Uri) -> Option<String> {
    let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let (group, rest) = match parts.split_first()? {
        (&"api", rest) => ("", rest.get(1..)?),
        (&"apis", rest) => (*rest.first()?, rest.get(2..)?),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let watch = uri.query().unwrap_or_default().contains("watch=");
    let verb = match (method, rest.len()) {
        ("GET", 1) if watch => "watch",
        ("GET", 1) => "list",
        ("GET", _) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", _) => "delete",
        _ => method,
    };
    Some(format!("{verb} {group}/{} {namespace}", rest.first()?))
}

impl Cluster {
    /// Sends an object and expects it to be taken.
    pub(crate) async fn make(&self, path: &str, object: &Value) -> Value {
        let answer = self.send("POST", path, object).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) async fn send(&self, method: &str, path: &str, object: &Value) -> Result<Value, String> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if object.is_null() { Vec::new() } else { object.to_string().into_bytes() };
        let request =
            Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        self.client.request::<Value>(request).await.map_err(|error| error.to_string())
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        self.send("GET", path, &Value::Null).await.ok()
    }

    /// Makes a namespace with Pod Security labels.
    pub(crate) async fn namespace(&self, name: &str, labels: &[(&str, &str)]) {
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), json!(value)))
            .collect();
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.make("/api/v1/namespaces", &object).await;
    }
}

/// Installs one of our resources.
pub(crate) async fn install(cluster: &Cluster, definition: &str) {
    let definition: Value = serde_json::from_str(definition).unwrap();
    cluster.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let path =
        format!("/apis/palisade.dev/v1alpha1/{}", definition["spec"]["names"]["plural"].as_str().unwrap());
    eventually("the definition", async || cluster.get(&path).await.is_some()).await;
}

/// Reads a configuration as JSON: what YAML means is the command line's business.
pub(crate) fn read_json(text: &str) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
    Ok(serde_json::from_str(text)?)
}

/// Options for a webhook on a free port.
pub(crate) fn options() -> Options {
    Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        metrics_listen: None,
        namespace: OWN.to_owned(),
        identity: "one".to_owned(),
        emulate: None,
        gates: FeatureGates { seccomp_config_maps: true, ..FeatureGates::default() },
        constraints: palisade_policy::scc::mode::ConstraintMode::Off,
        fail_fast: None,
        clients: None,
        configuration: ConfigurationSource::default(),
        read_configuration: read_json,
        certificate: CertificateSource::Managed(Managed::new(vec![
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
        ])),
        registration: None,
        limits: Limits::default(),
        shutdown_delay: Duration::ZERO,
    }
}

/// Options for a webhook that registers itself at its own address.
pub(crate) fn registered() -> Options {
    let listen = free_address();
    Options {
        listen,
        registration: Some(Registration {
            name: "palisade".to_owned(),
            endpoint: Endpoint::Url(format!("https://{listen}")),
            excluded_namespaces: vec!["kube-system".to_owned()],
            service_account: None,
            mutate: FailurePolicy::Fail,
            validate: FailurePolicy::Fail,
            timeout_seconds: 5,
        }),
        ..options()
    }
}

pub(crate) fn emulating(minor: u16) -> Options {
    Options { emulate: Some(Compat::kubernetes(minor)), ..options() }
}

/// A port that was free a moment ago.
pub(crate) fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Starts a webhook and waits until its caches are filled and it has its certificate.
pub(crate) async fn start(cluster: &Cluster, options: Options) -> Webhook {
    let registers = options.registration.is_some();
    let mut webhook = Webhook::start(options, cluster.webhook_client.clone()).await.unwrap();
    webhook.ready.wait_for(|ready| *ready).await.unwrap();
    webhook.trust.wait_for(|trust| !trust.authorities.is_empty()).await.unwrap();
    // Trust goes before use: until then a provisional certificate is served.
    let caller = Caller::of(&webhook);
    eventually("a trusted certificate", async || caller.connect().await.is_ok()).await;
    if registers {
        eventually("the registration", async || {
            cluster.get(MUTATING).await.is_some() && cluster.get(VALIDATING).await.is_some()
        })
        .await;
    }
    webhook
}

pub(crate) const MUTATING: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/palisade";
pub(crate) const VALIDATING: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/palisade";

/// Waits for something to come true.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..1000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not within 20 seconds");
}

/// A caller of the webhook.
pub(crate) struct Caller {
    address: SocketAddr,
    connector: TlsConnector,
}

impl Caller {
    /// Trusts what the API server trusts.
    pub(crate) fn of(webhook: &Webhook) -> Self {
        let trust = webhook.trust.borrow().clone();
        Self::trusting(webhook.address, &trust, &[])
    }

    pub(crate) fn trusting(address: SocketAddr, trust: &Trust, protocols: &[&[u8]]) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for pem in &trust.authorities {
            roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Self { address, connector: TlsConnector::from(Arc::new(config)) }
    }

    /// Trusts what the API server trusts, and presents a certificate of its own.
    pub(crate) fn with_certificate(webhook: &Webhook, pair: &palisade_serve::certificate::Pair) -> Self {
        use rustls::pki_types::PrivateKeyDer;
        let mut roots = rustls::RootCertStore::empty();
        for pem in &webhook.trust.borrow().authorities {
            roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        }
        let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_client_auth_cert(chain, key)
                .unwrap();
        Self { address: webhook.address, connector: TlsConnector::from(Arc::new(config)) }
    }

    /// Accepts any certificate, as a kubelet's probe does.
    pub(crate) fn trusting_anyone(address: SocketAddr) -> Self {
        let mut config = Config::new(http::Uri::from_static("https://localhost"));
        config.root_cert = Some(Vec::new());
        config.accept_invalid_certs = true;
        Self { address, connector: TlsConnector::from(Arc::new(config.rustls_client_config().unwrap())) }
    }

    pub(crate) async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        self.connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<(u16, String), String> {
        let stream = self.connect().await.map_err(|error| error.to_string())?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let response = if is_http2 {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .map_err(|e| e.to_string())?;
            tokio::spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
            tokio::spawn(connection);
            sender.send_request(request).await
        };
        read(response.map_err(|error| error.to_string())?).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> (u16, String) {
        self.send(post(path, "application/json", body)).await.unwrap()
    }

    pub(crate) async fn page(&self, path: &str) -> (u16, String) {
        let uri = format!("https://localhost{path}");
        self.send(Request::get(uri).body(Full::default()).unwrap()).await.unwrap()
    }

    /// Requests a review; the response.
    pub(crate) async fn review(&self, path: &str, request: &Value) -> Value {
        let (code, text) = self.post(path, review(request)).await;
        assert_eq!(code, 200, "{text}");
        let answered: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answered["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answered["kind"], "AdmissionReview");
        assert_eq!(answered["response"]["uid"], request["uid"]);
        answered["response"].clone()
    }
}

/// One request after the other on the same connection.
pub(crate) struct KeepAlive(http1::SendRequest<Full<Bytes>>);

impl KeepAlive {
    pub(crate) async fn open(caller: &Caller) -> Result<Self, String> {
        let stream = caller.connect().await.map_err(|error| error.to_string())?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    pub(crate) async fn post(&mut self, path: &str, body: String) -> Result<(u16, String), String> {
        self.0.ready().await.map_err(|error| error.to_string())?;
        let sent = self.0.send_request(post(path, "application/json", body)).await;
        read(sent.map_err(|error| error.to_string())?).await
    }
}

async fn read(response: Response<hyper::body::Incoming>) -> Result<(u16, String), String> {
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    Ok((code, String::from_utf8_lossy(&body).into_owned()))
}

pub(crate) fn post(path: &str, content_type: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("https://localhost{path}"))
        .header("host", "localhost")
        .header("content-type", content_type)
        .body(Full::new(body.into()))
        .unwrap()
}

/// The bytes of a review.
pub(crate) fn review(request: &Value) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

/// A request about a pod.
pub(crate) fn pod_request(namespace: &str, operation: &str, object: &Value) -> Value {
    json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "name": object["metadata"]["name"], "namespace": namespace, "operation": operation,
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": object, "oldObject": null, "dryRun": false, "options": null,
    })
}

/// A request about another kind.
pub(crate) fn about(group: &str, resource: &str, kind: &str, namespace: &str, object: &Value) -> Value {
    let mut request = pod_request(namespace, "CREATE", object);
    request["kind"] = json!({"group": group, "version": "v1", "kind": kind});
    request["resource"] = json!({"group": group, "version": "v1", "resource": resource});
    request
}

/// A pod with a container, and the other fields of its spec.
pub(crate) fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// Applies the patch of a response.
pub(crate) fn patched(object: &Value, response: &Value) -> Value {
    use base64::Engine as _;
    let mut object = object.clone();
    if let Some(patch) = response["patch"].as_str() {
        assert_eq!(response["patchType"], "JSONPatch");
        let bytes = base64::prelude::BASE64_STANDARD.decode(patch).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&bytes).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}

/// The operations of a response's patch.
pub(crate) fn operations(response: &Value) -> Value {
    use base64::Engine as _;
    let Some(patch) = response["patch"].as_str() else { return json!([]) };
    serde_json::from_slice(&base64::prelude::BASE64_STANDARD.decode(patch).unwrap()).unwrap()
}
