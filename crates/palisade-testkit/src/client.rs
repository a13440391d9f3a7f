//! A plain HTTPS client: no user agent, nothing added, every header as given.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

/// Why a request got no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The network.
    #[error("cannot reach the server")]
    Connect(#[from] std::io::Error),
    /// TLS.
    #[error("TLS handshake with the server failed")]
    Tls(#[from] rustls::Error),
    /// HTTP.
    #[error("HTTP request to the server failed")]
    Http(#[from] hyper::Error),
    /// A request that cannot be written.
    #[error("cannot write the request")]
    Request(#[from] http::Error),
    /// A CA certificate that cannot be read.
    #[error("cannot read the CA certificate")]
    Certificate,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status code.
    pub code: u16,
    /// Media type, without parameters.
    pub content_type: String,
    /// The body: JSON, or text.
    pub body: Value,
    /// The texts of the warnings.
    pub warnings: Vec<String>,
}

/// A client of one server as one user.
pub struct Client {
    address: String,
    token: String,
    connector: TlsConnector,
    connection: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of `host:port` that trusts a CA and shows a bearer token.
    pub fn new(address: &str, ca: &str, token: &str) -> Result<Self, ClientError> {
        let mut roots = rustls::RootCertStore::empty();
        let certificate =
            CertificateDer::from_pem_slice(ca.as_bytes()).map_err(|_| ClientError::Certificate)?;
        roots.add(certificate)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            address: address.to_owned(),
            token: token.to_owned(),
            connector: TlsConnector::from(Arc::new(config)),
            connection: Mutex::new(None),
        })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(|_| ClientError::Certificate)?;
        let stream = self.connector.connect(name, stream).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // An error shows at the request that meets it.
            let _ = connection.await;
        });
        Ok(sender)
    }

    fn build(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: String,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder().method(method).uri(path.replace(' ', "%20"));
        request = request.header("host", &self.address);
        request = request.header("authorization", format!("Bearer {}", self.token));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        Ok(request.body(Full::new(Bytes::from(body)))?)
    }

    /// Sends a request and reads the whole answer.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: String,
    ) -> Result<Answer, ClientError> {
        let request = self.build(method, path, headers, body)?;
        let mut slot = self.connection.lock().await;
        if slot.as_ref().is_none_or(SendRequest::is_closed) {
            *slot = Some(self.connect().await?);
        }
        let Some(connection) = slot.as_mut() else { return Err(ClientError::Certificate) };
        connection.ready().await?;
        let response = connection.send_request(request).await?;
        let (code, content_type, warnings) = head(&response);
        let bytes = response.into_body().collect().await?.to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Answer { code, content_type, body, warnings })
    }

    /// Opens a watch.
    pub async fn watch(&self, path: &str) -> Result<Watch, ClientError> {
        let mut connection = self.connect().await?;
        let request = self.build("GET", path, &[], String::new())?;
        let response = connection.send_request(request).await?;
        Ok(Watch { body: response.into_body(), _connection: connection })
    }
}

fn head(response: &Response<Incoming>) -> (u16, String, Vec<String>) {
    let headers = response.headers();
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let content_type = headers.get("content-type").map(text).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim().to_owned();
    let warnings = headers.get_all("warning").iter().map(|value| warning_text(&text(value))).collect();
    (response.status().as_u16(), content_type, warnings)
}

/// `299 - "text"` without its quotes.
fn warning_text(header: &str) -> String {
    let quoted = header.split_once('"').map_or(header, |(_, rest)| rest);
    let quoted = quoted.strip_suffix('"').unwrap_or(quoted);
    let mut text = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        text.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    text
}

/// An open watch.
#[derive(Debug)]
pub struct Watch {
    body: Incoming,
    _connection: SendRequest<Full<Bytes>>,
}

impl Watch {
    /// The events that have come: waits for as many as are expected, and a moment longer for one too many.
    pub async fn collect(mut self, expected: usize, patience: Duration) -> Vec<Value> {
        let mut buffer = Vec::new();
        let mut events = Vec::new();
        loop {
            let wait = if events.len() >= expected { Duration::from_millis(100) } else { patience };
            let Ok(Some(Ok(frame))) = tokio::time::timeout(wait, self.body.frame()).await else {
                return events;
            };
            if let Ok(data) = frame.into_data() {
                buffer.extend_from_slice(&data);
            }
            while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                events.extend(serde_json::from_slice::<Value>(&line).ok());
            }
        }
    }
}
