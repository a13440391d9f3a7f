//! One request from beginning to end: who, may they, what, and the record of it.
//!
//! Implements the order of upstream's handler chain: authentication, audit, impersonation, authorisation, dispatch.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::request::Parts;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use palisade_apimachinery::Status;
use palisade_apimachinery::status::GroupName;
use palisade_base::version::KubeVersion;
use palisade_model::compat::Compat;
use palisade_serve::body::{self, BodyError, BodyLimits};
use palisade_serve::{Limits, Service};
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;

use crate::admission_chain::{Chain, Cluster, ObjectRules};
use crate::audit::{AuditLog, LaterEvent, Record, Stage};
use crate::auth::authenticate::Authenticator;
use crate::auth::rbac::{Attributes, Authorizer};
use crate::auth::{UserInfo, impersonate};
use crate::dispatch;
use crate::health::Health;
use crate::http::compress::compress;
use crate::http::tls::{ClientVerifier, PeerCertificate};
use crate::http::{Body, Query, Reply, RequestInfo, negotiate};
use crate::meta;
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::render;
use crate::storage::{Object, Range, Store};

/// Bodies may have this many bytes, as upstream.
pub const MAX_BODY: usize = 3 << 20;
const BODY: BodyLimits = BodyLimits { most: MAX_BODY, drained: MAX_BODY, time: Duration::from_mins(1) };

/// Upstream's number of streams, and headers that hold tokens and impersonation.
pub(crate) const LIMITS: Limits = Limits {
    connections: 16_384,
    handshake: Duration::from_secs(5),
    headers: Duration::from_secs(100),
    header_bytes: 64 << 10,
    streams: 1000,
    drain: Duration::from_secs(10),
};

/// The other end of a connection.
#[derive(Debug, Default)]
pub struct Peer {
    /// The user in its client certificate.
    pub certificate: Option<PeerCertificate>,
    /// Its address.
    pub address: Option<SocketAddr>,
    /// Who it is where no credentials are given, for clients in this process.
    pub trusted: Option<UserInfo>,
}

/// Everything that answers requests.
pub struct Api {
    /// Objects.
    pub store: Store,
    /// Resources.
    pub registry: Registry,
    /// The user.
    pub authenticator: Authenticator,
    /// May they.
    pub authorizer: Authorizer,
    /// Admission plugins.
    pub chain: Chain,
    /// Admission policies.
    pub policies: crate::admission_policies::AdmissionPolicies,
    /// Admission webhooks.
    pub webhooks: crate::webhooks::Webhooks,
    /// Rules about objects that cannot be switched off.
    pub rules: Arc<dyn ObjectRules>,
    /// Pod Security Admission, whose configuration may be replaced.
    pub pod_security: Arc<crate::pod_security::PodSecurityPlugin>,
    /// The emulated release.
    pub version: KubeVersion,
    /// Whose rules apply to the security of pods.
    pub compat: Compat,
    /// Counters.
    pub metrics: Metrics,
    /// The audit log, if it is wanted.
    pub audit: Option<AuditLog>,
    /// Whether the server is up.
    pub health: Health,
    /// The address for clients.
    pub address: String,
    /// The CA certificate pods are given, as PEM.
    pub ca: String,
    /// What signs the certificates of `certificates.k8s.io`; nothing in a server without TLS.
    pub(crate) authority: Option<palisade_serve::certificate::Pair>,
    /// Whether an OpenShift cluster is served.
    pub openshift: bool,
    /// Where the logs of pods come from, if a node runs in this process.
    pub logs: Option<Arc<dyn crate::log_source::LogSource>>,
    /// What was admitted by quotas and is not stored yet; none if quotas are not enforced.
    pub(crate) quotas: crate::plugins::quota::Pending,
    /// Whether quotas are enforced.
    pub(crate) enforces_quotas: bool,
    /// Addresses and ports of Services on their way into the store.
    pub(crate) services: crate::services::Allocator,
    /// Where streams into containers lead, if a node runs in this process.
    pub streams: Option<Arc<dyn crate::stream_source::StreamSource>>,
    /// The client of kubelets in other processes.
    pub(crate) kubelets: Option<Arc<rustls::ClientConfig>>,
    /// Whether requests are proxied to kubelets on loopback.
    pub(crate) loopback_kubelets: bool,
    /// Connections that are no longer requests.
    pub(crate) sessions: Arc<tokio::sync::Semaphore>,
    pub(crate) verifier: Option<ClientVerifier>,
    pub(crate) stop: watch::Receiver<bool>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api")
            .field("version", &self.version)
            .field("chain", &self.chain)
            .finish_non_exhaustive()
    }
}

/// What is known about a request once it is clear who requests what.
#[derive(Debug)]
pub struct Call<'a> {
    /// The server.
    pub api: &'a Arc<Api>,
    /// Method, headers.
    pub parts: &'a Parts,
    /// What is requested.
    pub info: &'a RequestInfo,
    /// Parameters.
    pub query: &'a Query,
    /// The user, after impersonation.
    pub user: &'a UserInfo,
    /// The address of the client.
    pub address: Option<SocketAddr>,
    /// The body.
    pub body: Bytes,
}

impl Api {
    /// Answers a request.
    pub async fn handle<B>(self: &Arc<Self>, request: Request<B>, peer: &Peer) -> Response<Body>
    where
        B: http_body::Body,
        B::Data: Buf,
    {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let audit_id = audit_id(&parts);
        let mut seen = Seen::default();
        let reply = match self.answer(&parts, &info, &query, body, peer, &mut seen).await {
            Ok(reply) => reply,
            Err(status) => Reply::error(status),
        };
        let mut reply = if reply.status.is_some() && negotiate::prefers_protobuf(&parts.headers) {
            render::error_in_protobuf(reply)
        } else {
            reply
        };
        self.metrics.request(&info, reply.code, started.elapsed());
        let session = reply.session.take();
        let mut end = None;
        if let Some(audit) = &self.audit {
            let record = Record {
                id: &audit_id,
                parts: &parts,
                info: &info,
                user: seen.user.as_ref(),
                impersonated: seen.impersonated.as_ref(),
                address: peer.address,
                reply: &reply,
                reason: &seen.reason,
            };
            if session.is_some() {
                audit.record(&record, Stage::ResponseStarted);
                end = Some(LaterEvent::of(&record));
            } else {
                audit.record(&record, Stage::ResponseComplete);
            }
        }
        if let Some(session) = session {
            let api = self.clone();
            tokio::spawn(async move {
                session.run().await;
                if let (Some(audit), Some(end)) = (&api.audit, end) {
                    audit.record_end(end);
                }
            });
        }
        compress(reply, &parts.headers).into_response(&audit_id)
    }

    async fn answer<B>(
        self: &Arc<Self>,
        parts: &Parts,
        info: &RequestInfo,
        query: &Query,
        body: B,
        peer: &Peer,
        seen: &mut Seen,
    ) -> Result<Reply, Box<Status>>
    where
        B: http_body::Body,
        B::Data: Buf,
    {
        let user = self.authenticator.authenticate(&parts.headers, peer, meta::unix_now())?;
        seen.user = Some(user.clone());
        let impersonated = impersonate::impersonated(&parts.headers, &user, &self.authorizer)?;
        seen.impersonated.clone_from(&impersonated);
        let user = impersonated.unwrap_or(user);
        seen.reason = self.authorize(&user, &Attributes::of(info.verb, info))?;
        let wants_body = !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let body = if wants_body { read_body(body).await? } else { Bytes::new() };
        dispatch::dispatch(Call { api: self, parts, info, query, user: &user, address: peer.address, body })
            .await
    }

    /// Why the user may do this, or the rejection.
    pub(crate) fn authorize(
        &self,
        user: &UserInfo,
        attributes: &Attributes<'_>,
    ) -> Result<String, Box<Status>> {
        let decision = self.authorizer.authorize(user, attributes);
        if decision.allowed {
            return Ok(decision.reason);
        }
        let resource = GroupName::new(attributes.group, attributes.resource);
        let refusal = attributes.refusal(user);
        let refusal =
            if decision.reason.is_empty() { refusal } else { format!("{refusal}: {}", decision.reason) };
        Err(Status::forbidden(resource, attributes.name, &refusal))
    }
}

/// What the audit log needs of a request that may have ended early.
#[derive(Debug, Default)]
struct Seen {
    user: Option<UserInfo>,
    impersonated: Option<UserInfo>,
    reason: String,
}

fn audit_id(parts: &Parts) -> String {
    let given = parts.headers.get("audit-id").and_then(|id| id.to_str().ok());
    given.filter(|id| !id.is_empty() && id.len() <= 64).map_or_else(meta::new_uid, str::to_owned)
}

async fn read_body<B: http_body::Body<Data: Buf>>(body: B) -> Result<Bytes, Box<Status>> {
    body::read(body, BODY).await.map_err(|error| match error {
        BodyError::Unreadable => Status::bad_request("unexpected EOF"),
        BodyError::TooLarge => Status::request_entity_too_large(&format!("limit is {MAX_BODY}")),
        BodyError::TooSlow => Status::timeout("request did not complete within the allotted timeout", 0),
    })
}

impl Service for Api {
    type Peer = Peer;
    type Body = Body;

    fn peer(&self, address: Option<SocketAddr>, certificates: &[CertificateDer<'_>]) -> Peer {
        let certificate = match &self.verifier {
            Some(verifier) => verifier.verify(certificates),
            None if certificates.is_empty() => None,
            None => Some(PeerCertificate::Invalid),
        };
        Peer { certificate, address, trusted: None }
    }

    async fn respond(self: &Arc<Self>, request: Request<Incoming>, peer: &Peer) -> Response<Body> {
        self.handle(request, peer).await
    }
}

impl Cluster for Api {
    fn get(&self, group_resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.store.bucket(group_resource).get(&meta::key(!namespace.is_empty(), namespace, name))
    }

    fn list(&self, group_resource: &str, namespace: &str) -> Vec<Arc<Object>> {
        let range = if namespace.is_empty() { Range::All } else { Range::Namespace(namespace.to_owned()) };
        self.store.bucket(group_resource).list(&range).objects
    }

    fn authorized(&self, user: &UserInfo, attributes: &Attributes<'_>) -> bool {
        self.authorizer.authorize(user, attributes).allowed
    }
}
