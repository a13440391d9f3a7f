//! Which request gets which answer.
//!
//! Implements: the server of upstream's Pod Security webhook: `/healthz`, `/readyz`, `/metrics`, and reviews at any other
//! path, with its texts and its order of refusals; `/mutate` besides. The body comes before the content type: so does it
//! there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::{
    body::{self, BodyError},
    timeout,
};
use crate::{
    answer::{Answerer, Route},
    options::Limits,
};

/// The API server waits no longer than this for any webhook.
const LONGEST: Duration = Duration::from_secs(30);

/// Answers requests.
#[derive(Debug)]
pub struct Routes {
    answerer: Arc<Answerer>,
    limits: Limits,
    stopping: AtomicBool,
}

type Reply = Response<Full<Bytes>>;

impl Routes {
    /// Answers with an answerer.
    #[must_use]
    pub const fn new(answerer: Arc<Answerer>, limits: Limits) -> Self {
        Self { answerer, limits, stopping: AtomicBool::new(false) }
    }

    /// From now on nobody shall be sent here any more; who comes is still served.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// The limits of the server.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> &crate::metrics::Metrics {
        &self.answerer.metrics
    }

    /// Answers one request.
    pub async fn serve(&self, request: Request<Incoming>) -> Reply {
        let route = match request.uri().path() {
            "/mutate" => Route::Mutate,
            "/validate" => Route::Validate,
            other => match self.other(other, request.method()) {
                Some(reply) => return reply,
                None => Route::Validate,
            },
        };
        self.review(route, request).await
    }

    /// Health and metrics, without reviews: what is served in plain HTTP.
    #[must_use]
    pub fn serve_plain(&self, request: &Request<Incoming>) -> Reply {
        self.other(request.uri().path(), request.method())
            .unwrap_or_else(|| text(StatusCode::NOT_FOUND, "404 page not found"))
    }

    fn other(&self, path: &str, method: &Method) -> Option<Reply> {
        Some(match path {
            "/healthz" | "/healthz/ping" | "/livez" => plain("ok"),
            "/readyz" | "/readyz/informer-sync" => match self.waits_for() {
                None => plain("ok"),
                Some(what) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("not ready: {what}")),
            },
            "/metrics" if method == Method::GET => {
                let current = self.answerer.configuration.current();
                // swallowed: a metric; without a configuration every review of a pod is rejected
                let revision = current.as_ref().ok().map(|configured| configured.document.revision.as_str());
                let facts = &self.answerer.facts;
                let ready = self.waits_for().is_none();
                let body = self.answerer.metrics.write(revision, facts.known_namespaces(), ready);
                let mut reply = Response::new(Full::from(body));
                let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                reply.headers_mut().insert(header::CONTENT_TYPE, kind);
                reply
            }
            _ => return None,
        })
    }

    fn waits_for(&self) -> Option<String> {
        if self.stopping.load(Ordering::Acquire) {
            return Some("the webhook is stopping".to_owned());
        }
        if let Some(what) = self.answerer.facts.waits_for() {
            return Some(format!("{what} are not known yet"));
        }
        self.answerer.configuration.current().err()
    }

    async fn review(&self, route: Route, request: Request<Incoming>) -> Reply {
        let asked = timeout::in_query(request.uri().query());
        let time = asked.filter(|time| !time.is_zero()).unwrap_or(self.limits.review).min(LONGEST);
        // Part of the time goes into the way back.
        let deadline = Instant::now() + time - time / 10;
        let (head, body) = request.into_parts();
        let body = match body::read(body, self.limits.body, self.limits.body_time.min(time)).await {
            Ok(body) => body,
            Err(error) => return self.refuse_body(error),
        };
        let content_type = head.headers.get(header::CONTENT_TYPE);
        if content_type.is_none_or(|kind| kind != "application/json") {
            return text(StatusCode::BAD_REQUEST, "unable to process a request with a non-json content type");
        }
        match self.answerer.answer(route, &body, deadline).await {
            Ok(answer) => {
                let mut reply = Response::new(Full::from(answer));
                let kind = HeaderValue::from_static("application/json");
                reply.headers_mut().insert(header::CONTENT_TYPE, kind);
                reply
            }
            Err(error) => text(StatusCode::BAD_REQUEST, &error.to_string()),
        }
    }

    fn refuse_body(&self, error: BodyError) -> Reply {
        let (status, why) = match error {
            BodyError::Empty => (StatusCode::BAD_REQUEST, "request body is empty".to_owned()),
            BodyError::Unreadable => {
                (StatusCode::BAD_REQUEST, "unable to read the body from the incoming request".to_owned())
            }
            BodyError::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("request entity is too large; limit is {} bytes", self.limits.body),
            ),
            BodyError::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body did not come in time".to_owned()),
        };
        let mut reply = text(status, &why);
        if !matches!(error, BodyError::Empty) {
            // What is left of the body will not be read.
            reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        reply
    }
}

/// A text with a status, as Go's `http.Error` sends it.
fn text(status: StatusCode, text: &str) -> Reply {
    let mut reply = plain(&format!("{text}\n"));
    *reply.status_mut() = status;
    reply
}

fn plain(text: &str) -> Reply {
    let mut reply = Response::new(Full::from(text.to_owned()));
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    reply
}
