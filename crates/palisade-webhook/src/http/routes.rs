//! Which request gets which answer.
//!
//! Implements: the server of upstream's Pod Security webhook: `/healthz`, `/readyz`, `/metrics`, and reviews at any other
//! path, with its texts and its order of refusals; `/mutate` besides. The body comes before the content type: so does it
//! there.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use palisade_serve::{
    Service,
    body::{self, BodyError, BodyLimits},
    certificate,
    status::{Reply, Status, error, reply},
};
use rustls::pki_types::CertificateDer;
use tokio::{sync::watch, time::Instant};

use super::timeout;
use crate::{
    answer::{Answerer, Route},
    metrics::REFUSED_CONNECTIONS,
    options::Limits,
};

/// The API server waits no longer than this for any webhook.
const LONGEST: Duration = Duration::from_secs(30);

/// Answers requests.
#[derive(Debug)]
pub struct Routes {
    answerer: Arc<Answerer>,
    limits: Limits,
    callable: watch::Receiver<bool>,
    clients: Option<Vec<String>>,
    stopping: AtomicBool,
}

impl Routes {
    /// Answers with an answerer. `callable` is whether the API server is seen to trust what is served,
    /// `clients` the names that a verified certificate must have one of to send reviews; `None`: no certificate is needed.
    #[must_use]
    pub const fn new(
        answerer: Arc<Answerer>,
        limits: Limits,
        callable: watch::Receiver<bool>,
        clients: Option<Vec<String>>,
    ) -> Self {
        Self { answerer, limits, callable, clients, stopping: AtomicBool::new(false) }
    }

    /// Fails the readiness check from now on; requests are still served.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    async fn review(&self, route: Route, request: Request<Incoming>) -> Reply {
        let requested = timeout::in_query(request.uri().query());
        let time = requested.filter(|time| !time.is_zero()).unwrap_or(self.limits.review).min(LONGEST);
        // Part of the time goes into the way back.
        let deadline = Instant::now() + time - time / 10;
        let limits = BodyLimits {
            most: self.limits.body.saturating_sub(1),
            drained: 0,
            time: self.limits.body_time.min(time),
        };
        let (head, body) = request.into_parts();
        let body = match body::read(body, limits).await {
            Ok(body) if body.is_empty() => return error(StatusCode::BAD_REQUEST, "request body is empty"),
            Ok(body) => body,
            Err(failure) => return self.refuse_body(failure),
        };
        let content_type = head.headers.get(header::CONTENT_TYPE);
        if content_type.is_none_or(|kind| kind != "application/json") {
            return error(
                StatusCode::BAD_REQUEST,
                "unable to process a request with a non-json content type",
            );
        }
        match self.answerer.answer(route, &body, deadline).await {
            Ok(answer) => reply(StatusCode::OK, "application/json", answer),
            Err(unreadable) => error(StatusCode::BAD_REQUEST, &unreadable.to_string()),
        }
    }

    fn refuse_body(&self, failure: BodyError) -> Reply {
        let (status, why) = match failure {
            BodyError::Unreadable => {
                (StatusCode::BAD_REQUEST, "unable to read the body from the incoming request".to_owned())
            }
            BodyError::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("request entity is too large; limit is {} bytes", self.limits.body),
            ),
            BodyError::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body did not come in time".to_owned()),
        };
        let mut reply = error(status, &why);
        // What is left of the body will not be read.
        reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        reply
    }
}

impl Status for Routes {
    fn metrics(&self) -> String {
        let current = self.answerer.configuration.current();
        // swallowed: a metric; without a configuration every review of a pod is rejected
        let revision = current.as_ref().ok().map(|configured| configured.document.revision.as_str());
        let ready = self.waits_for().is_none();
        self.answerer.metrics.text(revision, self.answerer.facts.known_namespaces(), ready)
    }

    fn waits_for(&self) -> Option<String> {
        if self.stopping.load(Ordering::Acquire) {
            return Some("the webhook is stopping".to_owned());
        }
        if let Some(what) = self.answerer.facts.waits_for() {
            return Some(format!("{what} are not known yet"));
        }
        if let Err(why) = self.answerer.configuration.current() {
            return Some(why.to_string());
        }
        (!*self.callable.borrow())
            .then(|| "the certificate is not trusted by the webhook configurations yet".to_owned())
    }
}

impl Service for Routes {
    /// Whether the client may send reviews.
    type Peer = bool;
    type Body = Full<Bytes>;

    fn peer(&self, _: Option<SocketAddr>, certificates: &[CertificateDer<'_>]) -> bool {
        // TLS has verified the chain.
        let Some(names) = &self.clients else { return true };
        certificates.first().is_some_and(|certificate| {
            // swallowed: a certificate that cannot be read authenticates no client
            names.is_empty()
                || certificate::about_der(certificate).is_ok_and(|about| {
                    names.iter().any(|name| *name == about.subject || about.names.contains(name))
                })
        })
    }

    async fn respond(self: &Arc<Self>, request: Request<Incoming>, trusted: &bool) -> Reply {
        let route = match request.uri().path() {
            "/mutate" => Route::Mutate,
            "/validate" => Route::Validate,
            other => match self.report(request.method(), other) {
                Some(reply) => return reply,
                None => Route::Validate,
            },
        };
        if !trusted {
            return error(StatusCode::FORBIDDEN, "reviews require a client certificate of the API server");
        }
        self.review(route, request).await
    }

    fn refused_connection(&self) {
        self.answerer.metrics.count(&REFUSED_CONNECTIONS);
    }
}
