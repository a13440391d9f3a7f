//! How many dry-run pod creates a second: `load HOST:PORT CA_FILE TOKEN [CONNECTIONS] [SECONDS]`.

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"app":"load"}},"spec":{
  "securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},
  "containers":[{"name":"c","image":"busybox","securityContext":{"allowPrivilegeEscalation":false,
    "capabilities":{"drop":["ALL"]}}}]}}"#;

type Failure = Box<dyn Error + Send + Sync>;

async fn client(
    address: String,
    token: String,
    tls: TlsConnector,
    until: Instant,
) -> Result<Vec<Duration>, Failure> {
    let stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    let stream = tls.connect(ServerName::try_from("localhost")?, stream).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut times = Vec::new();
    while Instant::now() < until {
        let request = Request::post("/api/v1/namespaces/default/pods?dryRun=All")
            .header("host", "localhost")
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from_static(POD.as_bytes())))?;
        let began = Instant::now();
        let response = sender.send_request(request).await?;
        let code = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if code != 201 {
            return Err(format!("{code}: {}", String::from_utf8_lossy(&body)).into());
        }
        times.push(began.elapsed());
    }
    Ok(times)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: load HOST:PORT CA_FILE TOKEN [CONNECTIONS] [SECONDS]";
    let (address, ca, token) =
        (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let connections: usize = arguments.next().map_or(Ok(16), |n| n.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |n| n.parse())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = TlsConnector::from(Arc::new(config));
    let began = Instant::now();
    let until = began + Duration::from_secs(seconds);
    let clients: Vec<_> = (0..connections)
        .map(|_| tokio::spawn(client(address.clone(), token.clone(), tls.clone(), until)))
        .collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await??);
    }
    let elapsed = began.elapsed();
    times.sort_unstable();
    let percentile = |p: usize| {
        times.get((times.len() * p / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    let rate = f64::from(u32::try_from(times.len())?) / elapsed.as_secs_f64();
    writeln!(
        std::io::stdout(),
        "{} requests in {elapsed:.1?}: {rate:.0}/s, p50 {:.2?}, p99 {:.2?}",
        times.len(),
        percentile(50),
        percentile(99)
    )?;
    Ok(())
}
