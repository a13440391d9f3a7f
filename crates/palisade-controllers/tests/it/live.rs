//! The embedded API server in this process, an instance that follows the configuration, and controllers that can be
//! killed at any write.
//!
//! Time stands still unless everyone waits, so nothing here takes longer than it computes.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Request, Response};
use http_body::Body as _;
use kube::Client;
use palisade_admission::configuration::PodSecurityConfiguration;
use palisade_apiserver::{Builder, Router, Server, http::Body};
use palisade_controllers::{
    api::{Api, ApiError, NAMESPACES, Patch, Resource},
    instance::Instance,
    runner::{Options, Runner},
};
use palisade_policy::{
    enforcement::{
        instances::{APISERVER, Configuration, NAMESPACE},
        level::LevelSource,
        mode::Release,
    },
    scc::built_in,
    standards::level::Level,
};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
};
use tower::Service;

pub(crate) const CONFIG: Resource = Resource::new("config.openshift.io", "v1alpha1", "psaenforcementconfigs");
const PODS: Resource = Resource::new("", "v1", "pods");
const ROLE_BINDINGS: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "rolebindings");

/// When a client is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kill {
    /// The write does not reach the server.
    Before(usize),
    /// It does, and the response is lost.
    After(usize),
}

/// Counts the writes of a client, and ends it at one of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fate {
    writes: Arc<AtomicUsize>,
    kill: Option<Kill>,
    killed: Arc<Notify>,
}

impl Fate {
    pub(crate) fn with(kill: Option<Kill>) -> Self {
        Self { kill, ..Self::default() }
    }

    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }
}

/// The server as a client sees it whose fate is known.
#[derive(Clone)]
struct Interrupted {
    router: Router,
    fate: Fate,
}

impl Service<Request<kube::client::Body>> for Interrupted {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        if request.method() == Method::GET {
            return self.router.call(request);
        }
        let number = self.fate.writes.fetch_add(1, Ordering::SeqCst);
        let (fate, answer) = (self.fate.clone(), self.router.call(request));
        Box::pin(async move {
            match fate.kill {
                Some(Kill::Before(at)) if at == number => {}
                Some(Kill::After(at)) if at == number => {
                    let _ = answer.await;
                }
                _ => return answer.await,
            }
            fate.killed.notify_one();
            std::future::pending().await
        })
    }
}

/// The server as seen through a line that can be cut. Once mended, every watch gets "too old resource version".
#[derive(Clone)]
struct Severable {
    router: Router,
    cut: watch::Receiver<bool>,
    reported: Arc<Mutex<BTreeSet<String>>>,
}

impl Service<Request<kube::client::Body>> for Severable {
    type Response = Response<Pieces>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let Self { mut router, mut cut, reported } = self.clone();
        Box::pin(async move {
            if *cut.borrow() {
                reported.lock().unwrap().clear();
                return Err(std::io::Error::other("cut"));
            }
            let uri = request.uri().to_string();
            let is_forgotten = cut.has_changed().unwrap() && uri.contains("watch=true");
            if is_forgotten && reported.lock().unwrap().insert(request.uri().path().to_owned()) {
                let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                                  "reason": "Expired", "message": "too old resource version"});
                let (sender, pieces) = tokio::sync::mpsc::channel(1);
                sender.try_send(http_body::Frame::data(gone.to_string().into())).unwrap();
                return Ok(Response::builder().status(410).body(Pieces(pieces)).unwrap());
            }
            let answer = router.call(request).await.unwrap_or_else(|never| match never {});
            // A watch ends with the line.
            let (parts, body) = answer.into_parts();
            let (sender, pieces) = tokio::sync::mpsc::channel(16);
            tokio::spawn(async move {
                let mut body = std::pin::pin!(body);
                loop {
                    tokio::select! {
                        biased;
                        () = async { let _ = cut.wait_for(|cut| *cut).await; } => return,
                        frame = std::future::poll_fn(|context| body.as_mut().poll_frame(context)) => match frame {
                            Some(Ok(frame)) => if sender.send(frame).await.is_err() { return },
                            _ => return,
                        },
                    }
                }
            });
            Ok(Response::from_parts(parts, Pieces(pieces)))
        })
    }
}

struct Pieces(tokio::sync::mpsc::Receiver<http_body::Frame<bytes::Bytes>>);

impl http_body::Body for Pieces {
    type Data = bytes::Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}

/// A cluster of one API server that follows the configuration.
pub(crate) struct Live {
    pub(crate) router: Router,
    pub(crate) api: Api,
    stop: watch::Sender<bool>,
}

/// Controllers at work.
pub(crate) struct Controllers {
    pub(crate) runner: Arc<Runner>,
    task: JoinHandle<()>,
    _stop: watch::Sender<bool>,
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Live {
    pub(crate) async fn start() -> Self {
        let live = Self::of(Server::builder().openshift(true)).await;
        live.instance("one");
        live
    }

    /// OpenShift, but without the admission plugin that gives namespaces their ranges.
    pub(crate) async fn plain_allocation() -> Self {
        let plugin = "security.openshift.io/NamespaceSecurityAllocation".to_owned();
        let live = Self::of(Server::builder().openshift(true).disable_plugins([plugin])).await;
        live.instance("one");
        live
    }

    /// Plain Kubernetes.
    pub(crate) async fn plain() -> Self {
        let live = Self::of(Server::builder()).await;
        live.instance("one");
        live
    }

    async fn of(builder: Builder) -> Self {
        let router = builder.router().unwrap();
        let api = Api::new(Client::new(router.clone(), "default"));
        let (stop, _) = watch::channel(false);
        let live = Self { router, api, stop };
        live.api.get("/version").await.unwrap();
        live
    }

    /// An instance that applies the configuration, and reports.
    pub(crate) fn instance(&self, identity: &str) {
        let running = Configuration::of(Level::Privileged);
        let instance = Instance { component: APISERVER, identity: identity.to_owned(), running };
        let plugin = self.router.api().pod_security.clone();
        let apply = move |value: &Value| {
            let configuration: PodSecurityConfiguration =
                serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
            let (defaults, exemptions) = configuration.resolve().map_err(|error| error.to_string())?;
            plugin.configure(defaults, exemptions);
            Ok(())
        };
        tokio::spawn(instance.run(self.api.clone(), apply, self.stop.subscribe()));
    }

    pub(crate) fn controllers(&self, release: Release, gate: Option<bool>) -> Controllers {
        self.interrupted_controllers(release, gate, &Fate::default())
    }

    pub(crate) fn interrupted_controllers(
        &self,
        release: Release,
        gate: Option<bool>,
        fate: &Fate,
    ) -> Controllers {
        let levels = LevelSource::Constraints;
        self.run(Options { release, gate, levels, ..Options::default() }, fate)
    }

    pub(crate) fn run(&self, options: Options, fate: &Fate) -> Controllers {
        let interrupted = Interrupted { router: self.router.clone(), fate: fate.clone() };
        let runner = Runner::new(Client::new(interrupted, "default"), options);
        let (stop, shutdown) = watch::channel(false);
        let task = tokio::spawn(Arc::clone(&runner).run(shutdown));
        Controllers { runner, task, _stop: stop }
    }

    /// A client whose line to the server can be cut and mended.
    pub(crate) fn severable(&self) -> (Api, watch::Sender<bool>) {
        let (sender, cut) = watch::channel(false);
        let service = Severable { router: self.router.clone(), cut, reported: Arc::default() };
        (Api::new(Client::new(service, "default")), sender)
    }

    /// Returns when nothing has been written for a while.
    pub(crate) async fn settle(&self) {
        for _ in 0..1000 {
            let before = self.router.api().store.revision();
            tokio::time::sleep(Duration::from_millis(900)).await;
            if self.router.api().store.revision() == before {
                return;
            }
        }
        panic!("never settles");
    }

    /// Runs controllers until nothing moves; if they are killed, they are started anew.
    pub(crate) async fn phase(&self, release: Release, gate: Option<bool>, fate: &Fate) {
        let first = self.interrupted_controllers(release, gate, fate);
        let killed = tokio::select! {
            () = self.settle() => false,
            () = fate.killed.notified() => true,
        };
        drop(first);
        if killed {
            let again = Fate { kill: None, ..fate.clone() };
            let _second = self.interrupted_controllers(release, gate, &again);
            self.settle().await;
        }
    }

    pub(crate) async fn namespace(&self, name: &str, labels: Value) {
        let object = json!({"metadata": {"name": name, "labels": labels}});
        self.create(NAMESPACES, None, object).await;
    }

    pub(crate) async fn pod(&self, namespace: &str, name: &str, security_context: Value) {
        let container = json!({"name": "app", "image": "i", "securityContext": security_context});
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
        self.create(PODS, Some(namespace), pod).await;
    }

    pub(crate) async fn try_pod(&self, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let container = json!({"name": "app", "image": "i", "securityContext": {"privileged": true}});
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
        self.api.create(&PODS.collection(Some(namespace)), "test", &pod).await
    }

    pub(crate) async fn grant(&self, namespace: &str, constraint: &str) {
        let binding = json!({"metadata": {"name": constraint},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": built_in::cluster_role(constraint)},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}]});
        self.create(ROLE_BINDINGS, Some(namespace), binding).await;
    }

    pub(crate) async fn create(&self, resource: Resource, namespace: Option<&str>, object: Value) {
        self.api.create(&resource.collection(namespace), "test", &object).await.unwrap();
    }

    /// What `kubectl label` does.
    pub(crate) async fn label(&self, namespace: &str, key: &str, value: Value) {
        let change = json!({"metadata": {"labels": {key: value}}});
        let path = NAMESPACES.object(None, namespace);
        self.api.patch(&path, "kubectl-label", Patch::Merge, &change).await.unwrap();
    }

    /// What `kubectl patch psaenforcementconfig cluster` does.
    pub(crate) async fn request_mode(&self, mode: &str) {
        let change = json!({"spec": {"enforcementMode": mode}});
        self.api.patch(&CONFIG.object(None, "cluster"), "kubectl", Patch::Merge, &change).await.unwrap();
    }

    pub(crate) async fn config(&self) -> Value {
        self.api.get(&CONFIG.object(None, "cluster")).await.unwrap().unwrap()
    }

    /// The modes of spec and status.
    pub(crate) async fn mode(&self) -> (String, String) {
        let config = self.config().await;
        let text = |pointer: &str| {
            config.pointer(pointer).map_or("<none>", |mode| mode.as_str().unwrap()).to_owned()
        };
        (text("/spec/enforcementMode"), text("/status/enforcementMode"))
    }

    /// Name, reason and state of each violating namespace.
    pub(crate) async fn violating(&self) -> Vec<String> {
        let config = self.config().await;
        let list = config["status"]["violatingNamespaces"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        list.iter()
            .map(|own| format!("{} {}: {}", text(&own["state"]), text(&own["name"]), text(&own["reason"])))
            .collect()
    }

    async fn whole_condition(&self, kind: &str) -> Value {
        let config = self.config().await;
        let conditions = config["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|condition| condition["type"] == kind).unwrap().clone()
    }

    pub(crate) async fn condition(&self, kind: &str) -> (String, String) {
        let found = self.whole_condition(kind).await;
        (found["status"].as_str().unwrap().to_owned(), found["reason"].as_str().unwrap().to_owned())
    }

    pub(crate) async fn message(&self, kind: &str) -> String {
        self.whole_condition(kind).await["message"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn get_namespace(&self, name: &str) -> Value {
        self.api.get(&NAMESPACES.object(None, name)).await.unwrap().unwrap()
    }

    pub(crate) async fn enforce_label(&self, name: &str) -> Option<String> {
        let namespace = self.get_namespace(name).await;
        let label = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
        label.as_str().map(str::to_owned)
    }

    pub(crate) async fn list(&self, resource: Resource, namespace: Option<&str>) -> Vec<Value> {
        let list = self.api.get(&resource.collection(namespace)).await.unwrap().unwrap();
        list["items"].as_array().unwrap().clone()
    }

    /// The level that the global configuration requests.
    pub(crate) async fn requested(&self) -> Option<String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/pod-security-configuration");
        let object = self.api.get(&path).await.unwrap()?;
        object["metadata"]["annotations"]["palisade.dev/pod-security-enforce"].as_str().map(str::to_owned)
    }

    /// The events: object, reason, message.
    pub(crate) async fn reported(&self) -> BTreeSet<(String, String, String)> {
        let events = self.list(palisade_controllers::api::EVENTS, Some("default")).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        events
            .iter()
            .map(|event| {
                (text(&event["involvedObject"]["name"]), text(&event["reason"]), text(&event["message"]))
            })
            .collect()
    }
}
