//! What probes and hooks do: run a command in a container, connect to a port, send an HTTP request.
//!
//! Implements: `pkg/probe/{exec,http,tcp,grpc}` with the words users see. A certificate is not checked, as upstream does not:
//! a probe checks whether the container answers, not who it is.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
    time::Duration,
};

use palisade_model::profile::recording::Phase;
use prost::Message;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    cri::client::{Runtime, RuntimeError},
    lifecycle::{HttpGet, PortRef},
    pod::Container,
    recording::Recordings,
};

/// Where a handler finds its container.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) runtime: Runtime,
    /// The runtime's id.
    pub(super) id: String,
    /// The pod's address.
    pub(super) ip: String,
    /// The release, for the user agent.
    pub(super) minor: u16,
    /// What records its commands.
    pub(super) recordings: Recordings,
    /// What they are recorded as.
    pub(super) phase: Phase,
}

/// The result of a probe or hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// All is well.
    Success,
    /// It is not, with this output.
    Failure(String),
    /// The probe could not be run.
    Unknown(String),
}

/// Why a request or connection failed, in Go's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// No port has this number.
    #[error("invalid port number: {0}")]
    PortNumber(i32),
    /// The container names no such port.
    #[error("couldn't find port: {port:?} in container {container:?}")]
    PortName { port: String, container: String },
    /// No connection.
    #[error("dial tcp {address}: {}", go_reason(.source))]
    Dial { address: String, source: io::Error },
    /// No connection in time.
    #[error("dial tcp {address}: i/o timeout")]
    DialTimeout { address: String },
    /// Not a name that TLS can be used with.
    #[error(transparent)]
    ServerName(#[from] InvalidDnsNameError),
    /// The TLS library offers no protocol.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The connection broke, or what came is not HTTP.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A request failed.
    #[error("Get \"{url}\": {source}")]
    Get { url: String, source: Box<Self> },
    /// No answer in time.
    #[error("Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    GetTimeout { url: String },
}

/// A command that ended otherwise than well.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecError {
    /// It ended with another status than 0.
    #[error("exited with {code}: {stderr}")]
    Exit { code: i32, stderr: String, output: String },
    /// It took too long.
    #[error("timed out")]
    TimedOut,
    /// It was never run.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl ExecError {
    /// As the kubelet words it for a command with this limit.
    pub(super) fn described(&self, command: &str, timeout: Duration) -> String {
        match self {
            Self::Exit { .. } => format!("command '{command}' {self}"),
            Self::TimedOut => format!("command {command:?} timed out after {}s", timeout.as_secs()),
            Self::Runtime(error) => error.to_string(),
        }
    }

    /// What it wrote before it ended.
    pub(super) fn output(&self) -> &str {
        match self {
            Self::Exit { output, .. } => output,
            Self::TimedOut | Self::Runtime(_) => "",
        }
    }
}

impl Target {
    /// Runs a command in the container.
    pub(super) async fn exec(&self, command: &[String], timeout: Duration) -> Result<(), ExecError> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let _executing = self.recordings.executing(&self.id, self.phase);
        match self.runtime.exec_sync(&self.id, &words, timeout).await {
            Ok(answer) if answer.exit_code == 0 => Ok(()),
            Ok(answer) => {
                let stderr = String::from_utf8_lossy(&answer.stderr).into_owned();
                let output = format!("{}{stderr}", String::from_utf8_lossy(&answer.stdout));
                Err(ExecError::Exit { code: answer.exit_code, stderr, output })
            }
            Err(error) if error.code == "DeadlineExceeded" || error.message.contains("timeout") => {
                Err(ExecError::TimedOut)
            }
            Err(error) => Err(ExecError::Runtime(error)),
        }
    }

    /// Sends an HTTP request; the status code of the answer.
    pub(super) async fn http_get(
        &self,
        container: &Container,
        get: &HttpGet,
        timeout: Duration,
    ) -> Result<u16, ConnectError> {
        let port = port(container, &get.port)?;
        let host = if get.host.is_empty() { &self.ip } else { &get.host };
        let scheme = if get.scheme == "HTTPS" { "https" } else { "http" };
        let path = if get.path.starts_with('/') { get.path.clone() } else { format!("/{}", get.path) };
        let address = join(host, port);
        let url = format!("{scheme}://{address}{path}");
        let exchange = async {
            let stream = TcpStream::connect((host.as_str(), port))
                .await
                .map_err(|source| ConnectError::Dial { address: address.clone(), source })?;
            let request = request(get, &path, &address, self.minor);
            if scheme == "http" {
                return Ok(talk(stream, &request).await?);
            }
            let name = ServerName::try_from(host.clone())?;
            let connector = tokio_rustls::TlsConnector::from(unchecked()?);
            let stream = connector.connect(name, stream).await?;
            Ok(talk(stream, &request).await?)
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(Ok(code)) => Ok(code),
            Ok(Err(error)) => Err(ConnectError::Get { url, source: Box::new(error) }),
            Err(_) => Err(ConnectError::GetTimeout { url }),
        }
    }

    /// Whether the port accepts connections.
    pub(super) async fn connect(
        &self,
        container: &Container,
        host: &str,
        wanted: &PortRef,
        timeout: Duration,
    ) -> Result<(), ConnectError> {
        let port = port(container, wanted)?;
        let host = if host.is_empty() { self.ip.as_str() } else { host };
        let address = join(host, port);
        match tokio::time::timeout(timeout, TcpStream::connect((host, port))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(source)) => Err(ConnectError::Dial { address, source }),
            Err(_) => Err(ConnectError::DialTimeout { address }),
        }
    }

    /// Checks the health of a gRPC server.
    pub(super) async fn grpc(&self, port: u16, service: &str, timeout: Duration) -> Answer {
        let address = join(&self.ip, port);
        let seconds = timeout.as_secs();
        let late = format!(
            "timeout: failed to connect service {address:?} within {seconds}s: context deadline exceeded"
        );
        let Ok(endpoint) = tonic::transport::Endpoint::from_shared(format!("http://{address}")) else {
            return Answer::Unknown(format!("{address:?} is no address"));
        };
        let exchange = async {
            let channel = endpoint.connect().await.map_err(|_| Answer::Failure(late.clone()))?;
            let mut client = tonic::client::Grpc::new(channel);
            client.ready().await.map_err(|_| Answer::Failure(late.clone()))?;
            let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
            let codec = tonic_prost::ProstCodec::<HealthRequest, HealthResponse>::default();
            let request = tonic::Request::new(HealthRequest { service: service.to_owned() });
            let answer = client.unary(request, path, codec).await;
            answer.map_err(|status| {
                Answer::Failure(format!("rpc error: code = {:?} desc = {}", status.code(), status.message()))
            })
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(Ok(answer)) => match answer.into_inner().status {
                1 => Answer::Success,
                status => {
                    let word = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
                    let word = usize::try_from(status).ok().and_then(|at| word.get(at)).unwrap_or(&"UNKNOWN");
                    Answer::Failure(format!("service unhealthy (responded with {word:?})"))
                }
            },
            Ok(Err(answer)) => answer,
            Err(_) => Answer::Failure(late),
        }
    }
}

/// `grpc.health.v1.HealthCheckRequest`
#[derive(Clone, PartialEq, Message)]
struct HealthRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`
#[derive(Clone, PartialEq, Message)]
struct HealthResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// A port by number, or by the name the container gives it.
fn port(container: &Container, wanted: &PortRef) -> Result<u16, ConnectError> {
    match wanted {
        PortRef::Number(number) => u16::try_from(*number).map_err(|_| ConnectError::PortNumber(*number)),
        PortRef::Name(name) => {
            let named = container.ports.iter().find(|port| port.name == *name);
            // A number in quotes is a number.
            let number = named.map(|port| port.container_port).or_else(|| name.parse().ok());
            number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| ConnectError::PortName {
                port: name.clone(),
                container: container.name.clone(),
            })
        }
    }
}

fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Go's words for a connection that does not come about.
fn go_reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    }
}

fn request(get: &HttpGet, path: &str, address: &str, minor: u16) -> String {
    let has = |name: &str| get.http_headers.iter().any(|header| header.name.eq_ignore_ascii_case(name));
    let mut text = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
    for (name, value) in
        [("Host", address), ("User-Agent", &format!("kube-probe/1.{minor}")), ("Accept", "*/*")]
    {
        if !has(name) {
            text.push_str(&format_header(name, value));
        }
    }
    for header in &get.http_headers {
        text.push_str(&format_header(&header.name, &header.value));
    }
    text.push_str("\r\n");
    text
}

/// A header on a line of its own, and never on two: a line break would let its value add others.
fn format_header(name: &str, value: &str) -> String {
    let plain = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    format!("{}: {}\r\n", plain(name), plain(value))
}

/// Sends a request and reads the status code of the answer.
async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> io::Result<u16> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let mut piece = [0_u8; 256];
    while !answer.contains(&b'\n') && answer.len() < 4096 {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            break;
        }
        answer.extend_from_slice(piece.get(..read).unwrap_or_default());
    }
    let line = String::from_utf8_lossy(&answer).into_owned();
    let mut words = line.lines().next().unwrap_or_default().split(' ');
    let code =
        words.next().filter(|word| word.starts_with("HTTP/1.")).and_then(|_| words.next()?.parse().ok());
    match (answer.is_empty(), code) {
        (_, Some(code)) => Ok(code),
        (true, None) => Err(io::Error::other("EOF")),
        (false, None) => {
            let line = line.lines().next().unwrap_or_default();
            Err(io::Error::other(format!(
                "net/http: HTTP/1.x transport connection broken: malformed HTTP response {line:?}"
            )))
        }
    }
}

fn unchecked() -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Takes every certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    fn target(ip: &str) -> Target {
        let runtime = Runtime::new("/nonexistent", Duration::from_secs(1)).unwrap();
        Target {
            runtime,
            id: String::new(),
            ip: ip.to_owned(),
            minor: 31,
            recordings: Recordings::default(),
            phase: Phase::Probe,
        }
    }

    /// A server that answers every connection with the same bytes and keeps what it was sent.
    async fn server(answer: &'static [u8]) -> (u16, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = vec![0; 4096];
            let read = stream.read(&mut received).await.unwrap();
            stream.write_all(answer).await.unwrap();
            String::from_utf8_lossy(&received[..read]).into_owned()
        });
        (port, task)
    }

    #[tokio::test]
    async fn probes_send_what_the_kubelet_sends() {
        let (number, received) = server(b"HTTP/1.0 503 no\r\n\r\n").await;
        let container: Container =
            serde_json::from_value(json!({"name": "c", "ports": [{"name": "web", "containerPort": number}]}))
                .unwrap();
        let get: HttpGet = serde_json::from_value(
            json!({"path": "ready?x=1", "port": "web", "httpHeaders": [{"name": "X-A", "value": "b\r\nEvil: 1"}]}),
        )
        .unwrap();
        let answer = target("127.0.0.1").http_get(&container, &get, Duration::from_secs(5)).await;
        assert_eq!(answer.unwrap(), 503);
        let received = received.await.unwrap();
        assert!(received.starts_with("GET /ready?x=1 HTTP/1.1\r\n"), "{received}");
        assert!(
            received.contains("User-Agent: kube-probe/1.31\r\n") && received.contains("X-A: bEvil: 1\r\n"),
            "{received}"
        );
    }

    #[tokio::test]
    async fn errors_have_the_texts_of_go() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let free = listener.local_addr().unwrap().port();
        drop(listener);
        let target = target("127.0.0.1");
        let container = Container { name: "c".into(), ..Container::default() };
        let patience = Duration::from_secs(5);
        let get = HttpGet { port: PortRef::Number(i32::from(free)), ..HttpGet::default() };
        let refused = format!("dial tcp 127.0.0.1:{free}: connect: connection refused");
        assert_eq!(
            target.http_get(&container, &get, patience).await.unwrap_err().to_string(),
            format!("Get \"http://127.0.0.1:{free}/\": {refused}")
        );
        let error = target.connect(&container, "", &get.port, patience).await.unwrap_err();
        assert_eq!(error.to_string(), refused);
        let unnamed = PortRef::Name("nope".into());
        assert_eq!(
            target.connect(&container, "", &unnamed, patience).await.unwrap_err().to_string(),
            "couldn't find port: \"nope\" in container \"c\""
        );
        let (port, _task) = server(b"hello\r\n").await;
        let get = HttpGet { port: PortRef::Number(i32::from(port)), ..HttpGet::default() };
        let error = target.http_get(&container, &get, patience).await.unwrap_err().to_string();
        assert!(error.ends_with("malformed HTTP response \"hello\""), "{error}");
        let late = target.grpc(free, "", Duration::from_secs(1)).await;
        assert!(
            matches!(late, Answer::Failure(text) if text.starts_with("timeout: failed to connect service"))
        );
    }
}
