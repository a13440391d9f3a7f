//! The way to a webhook and back: HTTPS with the webhook's own CA, connections that are kept.
//!
//! Implements: Dynamic Admission Control, "Contacting the webhook". Nothing routes the addresses of services here, so a
//! service is reached through its endpoints or its external name.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#contacting-the-webhook>

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use palisade_apimachinery::rest::path::Get as _;
use palisade_base::go;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use thiserror::Error;
use tokio::net::TcpStream;

use super::errors;
use crate::meta;
use crate::storage::Store;

/// An answer may be this long; it holds a patch, and objects are no longer than this.
const MAX_ANSWER: usize = 2 * crate::api::MAX_BODY;
/// As long as Go keeps an idle connection.
const IDLE: Duration = Duration::from_secs(90);

/// A connection pool for each way webhooks are registered.
#[derive(Debug)]
pub(crate) struct Clients {
    store: Store,
    known: Mutex<HashMap<String, Weak<Endpoint>>>,
}

impl Clients {
    pub(super) fn new(store: Store) -> Self {
        Self { store, known: Mutex::default() }
    }

    /// The place a `clientConfig` describes. Webhooks that are registered anew keep their connections.
    pub(super) fn endpoint(&self, config: &Value) -> Arc<Endpoint> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, endpoint| endpoint.strong_count() > 0);
        let key = config.to_string();
        if let Some(endpoint) = known.get(&key).and_then(Weak::upgrade) {
            return endpoint;
        }
        let endpoint = Arc::new(Endpoint::read(config, &self.store));
        known.insert(key, Arc::downgrade(&endpoint));
        endpoint
    }
}

type Pool = Client<HttpsConnector<Dial>, Full<Bytes>>;

/// Where a webhook is.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Without the query, as messages show it.
    url: String,
    /// The connections, or why there can be none.
    pool: Result<Pool, Arc<ClientConfigError>>,
}

/// Why a `clientConfig` leads nowhere.
#[derive(Debug, Error)]
pub(crate) enum ClientConfigError {
    /// It names no host.
    #[error("parse {}: invalid URL", go::quote(.0))]
    Url(String),
    /// The name of a service is not a DNS name.
    #[error(transparent)]
    ServerName(#[from] InvalidDnsNameError),
    /// `caBundle` is not base64.
    #[error(transparent)]
    CaBundle(#[from] base64::DecodeError),
    /// `caBundle` has no certificate.
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    NoCertificates,
    /// The TLS library offers no protocol.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// Why there is no answer, worded as upstream does.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    /// There can be none: what is registered makes no sense.
    #[error("could not get REST client: {0}")]
    Client(Arc<ClientConfigError>),
    /// It did not arrive, or was an error.
    #[error("failed to call webhook: {0}")]
    Call(String),
}

impl CallError {
    /// The failure alone, for other calls than those of admission.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Client(_) => self.to_string(),
            Self::Call(why) => why.clone(),
        }
    }
}

/// Why a service has no address to connect to, worded as upstream does.
#[derive(Debug, Error)]
enum ServiceError {
    /// There is none.
    #[error("service {} not found", go::quote(.0))]
    NotFound(String),
    /// It has no such port.
    #[error("no service port {port} found for service {}", go::quote(.name))]
    NoPort { name: String, port: u16 },
    /// Nothing that is ready serves the port.
    #[error("no endpoints available for service {}", go::quote(.0))]
    NoEndpoints(String),
}

impl Endpoint {
    fn read(config: &Value, store: &Store) -> Self {
        if let Some(service) = config.child("service") {
            let (namespace, name) = (service.text("namespace"), service.text("name"));
            let port = service.int("port").and_then(|p| u16::try_from(p).ok()).unwrap_or(443);
            let path = service.text("path");
            let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
            let host = format!("{name}.{namespace}.svc");
            let target = Target::Service {
                store: store.clone(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                port,
            };
            let pool = pool(config.text("caBundle"), target, Some(&host));
            return Self { url: format!("https://{host}:{port}{path}"), pool: pool.map_err(Arc::new) };
        }
        let url = config.text("url");
        let parsed: Result<Uri, _> = url.parse();
        let pool = match &parsed {
            Ok(uri) if uri.host().is_some() => {
                let target = Target::Address {
                    host: uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
                    port: uri.port_u16().unwrap_or(443),
                };
                pool(config.text("caBundle"), target, None)
            }
            _ => Err(ClientConfigError::Url(url.to_owned())),
        };
        let needs_path = parsed.is_ok_and(|uri| uri.path() == "/" && !url.ends_with('/'));
        Self {
            url: if needs_path { format!("{url}/") } else { url.to_owned() },
            pool: pool.map_err(Arc::new),
        }
    }

    /// Sends the review, and waits for the answer no longer than `timeout`.
    pub(crate) async fn post(&self, body: Vec<u8>, timeout: Duration) -> Result<Bytes, CallError> {
        let pool = self.pool.as_ref().map_err(|why| CallError::Client(why.clone()))?;
        let url = format!("{}?timeout={}s", self.url, timeout.as_secs());
        let failed = |why: &str| CallError::Call(format!("Post {}: {why}", go::quote(&url)));
        let request = Request::post(&url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| failed(&error.to_string()))?;
        let answer = async {
            let response =
                pool.request(request).await.map_err(|error| failed(&errors::request_error(&error)))?;
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| failed(&errors::request_error(&*error)))?.to_bytes();
            if (200..300).contains(&code) {
                Ok(body)
            } else {
                Err(CallError::Call(errors::unexpected_answer(code, &body)))
            }
        };
        match tokio::time::timeout(timeout, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(failed("context deadline exceeded")),
        }
    }
}

fn pool(ca_bundle: &str, target: Target, server_name: Option<&str>) -> Result<Pool, ClientConfigError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(ca_bundle)?)
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_only();
    let connector = match server_name {
        None => connector,
        Some(name) => {
            let name = ServerName::try_from(name.to_owned())?;
            connector.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
    };
    let connector = connector.enable_all_versions().wrap_connector(Dial(Arc::new(target)));
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector))
}

/// The webhook's own CAs, or those of the machine if it names none.
fn roots(ca_bundle: &str) -> Result<RootCertStore, ClientConfigError> {
    let mut roots = RootCertStore::empty();
    if ca_bundle.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    }
    let pem = STANDARD.decode(ca_bundle)?;
    let (added, _) =
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if added == 0 {
        return Err(ClientConfigError::NoCertificates);
    }
    Ok(roots)
}

/// What a connection leads to.
#[derive(Debug)]
enum Target {
    Address { host: String, port: u16 },
    Service { store: Store, namespace: String, name: String, port: u16 },
}

impl Target {
    /// Host and port to connect to now.
    fn address(&self) -> Result<(String, u16), ServiceError> {
        match self {
            Self::Address { host, port } => Ok((host.clone(), *port)),
            Self::Service { store, namespace, name, port } => service_address(store, namespace, name, *port),
        }
    }
}

fn service_address(
    store: &Store,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<(String, u16), ServiceError> {
    let key = meta::key(true, namespace, name);
    let Some(service) = store.bucket("services").get(&key) else {
        return Err(ServiceError::NotFound(name.to_owned()));
    };
    let service = Value::Object(service.parse());
    let spec = service.get("spec").unwrap_or(&Value::Null);
    if spec.text("type") == "ExternalName" {
        return Ok((spec.text("externalName").to_owned(), port));
    }
    let Some(offered) = spec.list("ports").iter().find(|p| p.int("port") == Some(i64::from(port))) else {
        return Err(ServiceError::NoPort { name: name.to_owned(), port });
    };
    let unavailable = || ServiceError::NoEndpoints(name.to_owned());
    let endpoints = store.bucket("endpoints").get(&key).ok_or_else(unavailable)?;
    let endpoints = Value::Object(endpoints.parse());
    for subset in endpoints.list("subsets") {
        let address = subset.list("addresses").iter().map(|a| a.text("ip")).find(|ip| !ip.is_empty());
        let named = subset.list("ports").iter().find(|p| p.text("name") == offered.text("name"));
        let port = named.and_then(|p| p.int("port")).and_then(|p| u16::try_from(p).ok());
        if let (Some(address), Some(port)) = (address, port) {
            return Ok((address.to_owned(), port));
        }
    }
    Err(unavailable())
}

/// Opens connections.
#[derive(Debug, Clone)]
struct Dial(Arc<Target>);

impl tower::Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let target = self.0.clone();
        Box::pin(async move {
            let (host, port) = target.address().map_err(io::Error::other)?;
            let found = tokio::net::lookup_host((host.as_str(), port)).await;
            let found: Vec<_> = found.map(Iterator::collect).unwrap_or_default();
            let mut problem = format!("dial tcp: lookup {host}: no such host");
            for address in found {
                match TcpStream::connect(address).await {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return Ok(TokioIo::new(stream));
                    }
                    Err(error) => problem = errors::dial_error(&address.to_string(), &error),
                }
            }
            Err(io::Error::other(problem))
        })
    }
}
