//! Connections to what answers for a pod: a runtime's streaming server, a kubelet, or the pod itself.
//!
//! A request is made on a connection of its own, because an upgraded connection never comes back to a pool. The bytes of
//! clients go through unread; memory for one is what two copy buffers hold.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use palisade_apimachinery::Status;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::http::Reply;

/// How long a connection and the answer to a request may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is kept of an answer that is no upgrade.
const MOST_REFUSAL: usize = 64 << 10;

/// Where a request goes.
#[derive(Debug, Clone)]
pub(super) struct Backend {
    /// Host and port, in the order in which they are tried.
    pub(super) addresses: Vec<(String, u16)>,
    /// For HTTPS.
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    /// Path and query.
    pub(super) target: String,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub(super) enum TransportError {
    /// No address can be connected to.
    #[error("error dialing backend: {0}")]
    Dial(#[source] io::Error),
    /// The address is no host name.
    #[error("error dialing backend: {0}")]
    Name(#[from] InvalidDnsNameError),
    /// The path cannot be requested.
    #[error("error dialing backend: {0}")]
    Target(#[from] http::Error),
    /// The connection broke.
    #[error("error sending request: {0}")]
    Http(#[from] hyper::Error),
    /// Nothing was answered in time.
    #[error("error dialing backend: timed out")]
    TimedOut,
    /// The address has a form that is not supported.
    #[error("error dialing backend: {0:?} is not an http address")]
    Address(String),
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A connection to a backend.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// What a backend answers to an upgrade.
pub(super) enum Upgrade {
    /// It switched protocols.
    Switched {
        /// Its headers.
        headers: HeaderMap,
        /// The connection.
        io: TokioIo<Upgraded>,
    },
    /// It did not: its answer for the client.
    Refused(Reply),
}

impl Backend {
    /// The backend of an `http` address.
    pub(super) fn of_uri(uri: &Uri) -> Result<Self, TransportError> {
        let unsupported = || {
            TransportError::Address(format!(
                "{}://{}",
                uri.scheme_str().unwrap_or_default(),
                uri.host().unwrap_or_default()
            ))
        };
        let (Some("http"), Some(host)) = (uri.scheme_str(), uri.host()) else { return Err(unsupported()) };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        Ok(Self { addresses: vec![(host, uri.port_u16().unwrap_or(80))], tls: None, target })
    }

    async fn dial(&self) -> Result<(Box<dyn Connection>, String), TransportError> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for (host, port) in &self.addresses {
            let stream = match TcpStream::connect((host.as_str(), *port)).await {
                Ok(stream) => stream,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            // Only the delay of small pieces depends on it.
            let _ = stream.set_nodelay(true);
            let authority = authority(host, *port);
            let Some(tls) = &self.tls else { return Ok((Box::new(stream), authority)) };
            let name = ServerName::try_from(host.clone())?;
            match TlsConnector::from(tls.clone()).connect(name, stream).await {
                Ok(stream) => return Ok((Box::new(stream), authority)),
                Err(error) => last = error,
            }
        }
        Err(TransportError::Dial(last))
    }

    /// Host and port of the backend, as requests name it.
    pub(super) fn authority(&self) -> String {
        self.addresses.first().map(|(host, port)| authority(host, *port)).unwrap_or_default()
    }

    /// Sends a request without a body; it must be answered in time.
    pub(super) async fn send(
        &self,
        method: &Method,
        headers: HeaderMap,
    ) -> Result<Response<Incoming>, TransportError> {
        let answered = self.exchange(method, headers, Bytes::new());
        tokio::time::timeout(PATIENCE, answered).await.unwrap_or(Err(TransportError::TimedOut))
    }

    /// Sends a request. The answer may take as long as the client waits; the connection lives as long as the response and what
    /// it is upgraded to.
    pub(super) async fn exchange(
        &self,
        method: &Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, TransportError> {
        let dialed = tokio::time::timeout(PATIENCE, self.dial()).await;
        let (stream, authority) = dialed.unwrap_or(Err(TransportError::TimedOut))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a backend ended");
            }
        });
        let mut request = Request::builder().method(method).uri(&self.target).body(Full::new(body))?;
        *request.headers_mut() = headers;
        if !request.headers().contains_key(header::HOST) {
            let host = HeaderValue::from_str(&authority).map_err(http::Error::from)?;
            request.headers_mut().insert(header::HOST, host);
        }
        Ok(sender.send_request(request).await?)
    }

    /// Requests another protocol.
    pub(super) async fn upgrade(
        &self,
        method: &Method,
        headers: HeaderMap,
    ) -> Result<Upgrade, TransportError> {
        let mut response = self.send(method, headers).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upgraded = hyper::upgrade::on(&mut response);
            let io =
                tokio::time::timeout(PATIENCE, upgraded).await.map_err(|_| TransportError::TimedOut)??;
            return Ok(Upgrade::Switched { headers: response.headers().clone(), io: TokioIo::new(io) });
        }
        let code = response.status().as_u16();
        // A success that is no upgrade is none.
        Ok(Upgrade::Refused(Reply::text(
            if code < 400 { 502 } else { code },
            text(response.into_body()).await,
        )))
    }
}

/// The answer to a client whose request a node refused.
pub(super) async fn refusal(code: u16, body: Incoming) -> Box<Status> {
    let text = text(body).await;
    match code {
        400 => Status::bad_request(text),
        404 => Status::generic(404, "NotFound", text),
        _ => Status::internal(text),
    }
}

async fn text(body: Incoming) -> String {
    match tokio::time::timeout(PATIENCE, Limited::new(body, MOST_REFUSAL).collect()).await {
        Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Ok(Err(_)) | Err(_) => "the node did not finish its answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_plain_addresses_of_streaming_servers_only() {
        for (uri, expected) in [
            ("http://127.0.0.1:4321/exec/token?a=b", Some(("127.0.0.1", 4321, "/exec/token?a=b"))),
            ("http://[::1]:80/attach/t", Some(("::1", 80, "/attach/t"))),
            ("https://127.0.0.1:1/x", None),
            ("/exec/token", None),
        ] {
            let backend = Backend::of_uri(&uri.parse().expect("a URI")).ok();
            let found = backend.as_ref().map(|backend| {
                let (host, port) = backend.addresses.first().expect("an address");
                (host.as_str(), *port, backend.target.as_str())
            });
            assert_eq!(found, expected, "{uri}");
        }
    }

    #[test]
    fn errors_do_not_show_the_secret_of_an_address() {
        let error = Backend::of_uri(&"https://127.0.0.1:1/exec/secret".parse().expect("a URI"))
            .expect_err("not http");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
