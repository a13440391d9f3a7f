//! `/healthz`, `/livez`, `/readyz` and `/metrics` of a component, beside its other paths or on a plain HTTP port.
//!
//! Implements: the endpoints of upstream's webhook and controllers, with their texts and status codes. The API server has
//! more checks, which can be requested one by one, and has them in its `health.rs`.

use std::{io, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use crate::connection::{Limits, Service, serve};

/// A response of known size.
pub type Reply = Response<Full<Bytes>>;

/// What a component reports about itself.
pub trait Status: Send + Sync + 'static {
    /// All metrics, in Prometheus' text format.
    fn metrics(&self) -> String;
    /// What it waits for before it is ready.
    fn waits_for(&self) -> Option<String>;

    /// The response to a request for health or metrics; `None` for any other path.
    fn report(&self, method: &Method, path: &str) -> Option<Reply> {
        Some(match path {
            "/healthz" | "/healthz/ping" | "/livez" => text(StatusCode::OK, "ok"),
            "/readyz" | "/readyz/informer-sync" => match self.waits_for() {
                None => text(StatusCode::OK, "ok"),
                Some(what) => error(StatusCode::INTERNAL_SERVER_ERROR, &format!("not ready: {what}")),
            },
            "/metrics" if method == Method::GET => {
                reply(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.metrics())
            }
            _ => return None,
        })
    }
}

/// Serves only what a component reports about itself.
#[derive(Debug)]
pub struct StatusOnly<S>(pub Arc<S>);

impl<S: Status> Service for StatusOnly<S> {
    type Peer = ();
    type Body = Full<Bytes>;

    fn peer(&self, _: Option<SocketAddr>, _: &[CertificateDer<'_>]) {}

    async fn respond(self: &Arc<Self>, request: Request<Incoming>, (): &()) -> Reply {
        let report = self.0.report(request.method(), request.uri().path());
        report.unwrap_or_else(|| error(StatusCode::NOT_FOUND, "404 page not found"))
    }
}

/// Serves a component's status in plain HTTP until the task is dropped with the runtime; returns the address at once.
pub async fn listen(
    address: SocketAddr,
    status: Arc<impl Status>,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        let (_running, stop) = watch::channel(false);
        serve(listener, None, Limits::default(), Arc::new(StatusOnly(status)), stop).await;
    });
    Ok((address, task))
}

/// A response with a content type.
#[must_use]
pub fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// A text.
#[must_use]
pub fn text(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    reply(status, "text/plain; charset=utf-8", text)
}

/// A text with a status, as Go's `http.Error` sends it.
#[must_use]
pub fn error(status: StatusCode, message: &str) -> Reply {
    text(status, format!("{message}\n"))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::Status;

    struct Fixed(bool);

    impl Status for Fixed {
        fn metrics(&self) -> String {
            "a 1\n".to_owned()
        }

        fn waits_for(&self) -> Option<String> {
            (!self.0).then(|| "the watches".to_owned())
        }
    }

    #[test]
    fn reports_health_readiness_and_metrics() {
        for (method, path, is_ready, status) in [
            (Method::GET, "/metrics", false, Some(200)),
            (Method::POST, "/metrics", false, None),
            (Method::GET, "/healthz", false, Some(200)),
            (Method::GET, "/readyz", false, Some(500)),
            (Method::GET, "/readyz", true, Some(200)),
            (Method::GET, "/", true, None),
        ] {
            let reply = Fixed(is_ready).report(&method, path);
            assert_eq!(reply.map(|reply| reply.status().as_u16()), status, "{method} {path}");
        }
    }
}
