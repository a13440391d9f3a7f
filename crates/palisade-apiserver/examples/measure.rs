//! Measures a `palisade` binary as a user would see it: `measure PALISADE`. One line a figure, fields separated by tabs:
//! what, figure, target, whether it is met. `measure PALISADE definitions [FOLDER]` measures custom resource definitions
//! alone, those of a folder of JSON files if one is given; `measure PALISADE kubernetes SCRIPT` compares with a kube-apiserver that
//! the script starts; `measure PALISADE deployment` measures the controllers.

mod definitions;
mod kubernetes;

use std::error::Error;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio_rustls::TlsConnector;

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME","namespace":"default","labels":{"app":"load"}},"spec":{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"c","image":"busybox","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}"#;
const CONNECTIONS: usize = 16;
const LOAD: Duration = Duration::from_secs(5);
const PODS: usize = 100_000;
const WATCHERS: usize = 1_000;
const SILENT_FEW: usize = 20;
const WRITES: usize = 500;
const PAUSE: Duration = Duration::from_millis(10);

type Failure = Box<dyn Error + Send + Sync>;

/// A running server, ended when dropped.
struct Up {
    child: Child,
    address: String,
    tls: TlsConnector,
    ready: Duration,
    _folder: tempfile::TempDir,
}

impl Drop for Up {
    fn drop(&mut self) {
        // What has ended already need not be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Up {
    async fn start(palisade: &Path, more: &[&str]) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let began = Instant::now();
        let child = Command::new(palisade)
            .args(["up", "--listen", &address, "--kubeconfig"])
            .arg(&kubeconfig)
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut up = Self { child, address, tls: anonymous()?, ready: Duration::ZERO, _folder: folder };
        let deadline = began + Duration::from_mins(2);
        loop {
            if let Ok(200) = up.readyz().await {
                up.ready = began.elapsed();
                break;
            }
            if Instant::now() > deadline {
                return Err("the server does not get ready".into());
            }
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        up.tls = administrator(&std::fs::read_to_string(&kubeconfig)?)?;
        Ok(up)
    }

    async fn readyz(&self) -> Result<u16, Failure> {
        let mut connection = self.connect().await?;
        let request = Request::get("/readyz").header("host", "localhost").body(Full::default())?;
        Ok(connection.send_request(request).await?.status().as_u16())
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        connect(&self.address, &self.tls).await
    }

    /// Resident memory in MB.
    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib: f64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN);
        kib / 1024.0
    }
}

async fn connect(address: &str, tls: &TlsConnector) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let stream = tls.connect(ServerName::try_from("localhost")?, stream).await?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn builder() -> Result<rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier>, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?)
}

/// Before the kubeconfig is there, the server's CA is unknown; only `/readyz` is requested this way.
fn anonymous() -> Result<TlsConnector, Failure> {
    let config = builder()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn administrator(kubeconfig: &str) -> Result<TlsConnector, Failure> {
    let value = |key: &str| -> Result<Vec<u8>, Failure> {
        let (_, text) =
            kubeconfig.split_once(&format!("{key}:")).ok_or_else(|| format!("no {key} in the kubeconfig"))?;
        let is_base64 = |sign: char| sign.is_ascii_alphanumeric() || "+/=".contains(sign);
        let text: String =
            text.trim_start_matches([' ', '"']).chars().take_while(|sign| is_base64(*sign)).collect();
        Ok(base64::engine::general_purpose::STANDARD.decode(text)?)
    };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&value("certificate-authority-data")?)?)?;
    let chain = vec![CertificateDer::from_pem_slice(&value("client-certificate-data")?)?];
    let key = PrivateKeyDer::from_pem_slice(&value("client-key-data")?)?;
    let config = builder()?.with_root_certificates(roots).with_client_auth_cert(chain, key)?;
    Ok(TlsConnector::from(Arc::new(config)))
}

#[derive(Debug)]
struct AnyCertificate;

impl rustls::client::danger::ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

fn request(
    method: &str,
    path: &str,
    content_type: &str,
    body: String,
) -> Result<Request<Full<Bytes>>, http::Error> {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", content_type)
        .body(Full::new(Bytes::from(body)))
}

async fn send(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<(u16, http::HeaderMap, Bytes), Failure> {
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let (code, headers) = (response.status().as_u16(), response.headers().clone());
    Ok((code, headers, response.into_body().collect().await?.to_bytes()))
}

/// Dry-run pod creates: how many a second, and the slowest of a hundred.
async fn load(up: &Up) -> Result<(f64, Duration), Failure> {
    let until = Instant::now() + LOAD;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut sender = up.connect().await?;
        clients.push(tokio::spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < until {
                let path = "/api/v1/namespaces/default/pods?dryRun=All";
                let create = request("POST", path, "application/json", POD.replace("NAME", "p"))?;
                let began = Instant::now();
                let (code, _, body) = send(&mut sender, create).await?;
                if code != 201 {
                    return Err(Failure::from(format!("{code}: {}", String::from_utf8_lossy(&body))));
                }
                times.push(began.elapsed());
            }
            Ok(times)
        }));
    }
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await??);
    }
    times.sort_unstable();
    let slow = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    Ok((f64::from(u32::try_from(times.len())?) / LOAD.as_secs_f64(), slow))
}

/// The warnings for a stricter level on a namespace with very many pods.
async fn label(palisade: &Path) -> Result<(Duration, usize), Failure> {
    let up = Up::start(palisade, &[]).await?;
    let mut clients = Vec::new();
    for client in 0..CONNECTIONS {
        let mut sender = up.connect().await?;
        clients.push(tokio::spawn(async move {
            for index in (client..PODS).step_by(CONNECTIONS) {
                let pod = POD.replace("NAME", &format!("p{index}"));
                let refused = pod.replace("\"drop\":[\"ALL\"]", "\"add\":[\"NET_ADMIN\"]");
                let body = if index % 3 == 0 { refused } else { pod };
                let path = "/api/v1/namespaces/default/pods";
                let (code, _, body) =
                    send(&mut sender, request("POST", path, "application/json", body)?).await?;
                if code != 201 {
                    return Err(Failure::from(format!("{code}: {}", String::from_utf8_lossy(&body))));
                }
            }
            Ok(())
        }));
    }
    for client in clients {
        client.await??;
    }
    let mut sender = up.connect().await?;
    let path = "/api/v1/namespaces/default?dryRun=All";
    let body = r#"{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}"#;
    let began = Instant::now();
    let (code, headers, _) =
        send(&mut sender, request("PATCH", path, "application/merge-patch+json", body.into())?).await?;
    if code != 200 {
        return Err(format!("the label dry run was answered with {code}").into());
    }
    Ok((began.elapsed(), headers.get_all("warning").iter().count()))
}

/// Many watchers, each of which must see every write once and in order.
async fn watchers(up: &Up) -> Result<usize, Failure> {
    let path = "/api/v1/namespaces/kube-public/configmaps";
    let open = Arc::new(Barrier::new(WATCHERS + 1));
    let mut watching = Vec::new();
    for _ in 0..WATCHERS {
        let (address, tls, open) = (up.address.clone(), up.tls.clone(), open.clone());
        watching.push(tokio::spawn(async move {
            let mut sender = connect(&address, &tls).await?;
            let watch = format!("{path}?watch=true&labelSelector=measure");
            let response =
                sender.send_request(request("GET", &watch, "application/json", String::new())?).await?;
            open.wait().await;
            let mut body = response.into_body();
            let (mut text, mut seen) = (Vec::new(), 0_usize);
            while seen < WRITES {
                let Some(frame) = body.frame().await else {
                    return Err(Failure::from("a watch ended early"));
                };
                text.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    let event: serde_json::Value = serde_json::from_slice(&line)?;
                    if event["object"]["metadata"]["name"] != format!("m{seen}") {
                        return Err(Failure::from(format!(
                            "{} instead of m{seen}",
                            event["object"]["metadata"]["name"]
                        )));
                    }
                    seen += 1;
                }
            }
            Ok(seen)
        }));
    }
    open.wait().await;
    let mut sender = up.connect().await?;
    for index in 0..WRITES {
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"m{index}","labels":{{"measure":"1"}}}}}}"#
        );
        let (code, _, _) = send(&mut sender, request("POST", path, "application/json", body)?).await?;
        if code != 201 {
            return Err(format!("a write was answered with {code}").into());
        }
        tokio::time::sleep(PAUSE).await;
    }
    let mut events = 0;
    for watcher in watching {
        events += watcher.await??;
    }
    Ok(events)
}

/// Watches that never read: how much the server grows, with so many of them, by what they could be sent.
async fn silent_watches(palisade: &Path) -> Result<Vec<(usize, f64)>, Failure> {
    let up = Up::start(palisade, &[]).await?;
    let mut sender = up.connect().await?;
    let path = "/api/v1/namespaces/kube-public/configmaps";
    // Large and small objects, each written twice: as much history as is kept.
    for (count, length) in [(300, 90 << 10), (3000, 1 << 10)] {
        for index in 0..count {
            let data = "x".repeat(length);
            let name = format!("s{length}-{index}");
            let body = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"k":"{data}"}}}}"#
            );
            let (code, _, _) = send(&mut sender, request("POST", path, "application/json", body)?).await?;
            let changed = format!(r#"{{"data":{{"k":"{}"}}}}"#, "y".repeat(length));
            let named = format!("{path}/{name}");
            let merge = "application/merge-patch+json";
            let (patched, _, _) = send(&mut sender, request("PATCH", &named, merge, changed)?).await?;
            if (code, patched) != (201, 200) {
                return Err(format!("writes were answered with {code} and {patched}").into());
            }
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = up.memory();
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut open = Vec::new();
    let mut grown = Vec::new();
    for target in [SILENT_FEW, WATCHERS] {
        while open.len() < target {
            let mut sender = up.connect().await?;
            let query = if open.len() % 2 == 0 { "resourceVersion=1000" } else { initial };
            let watch = format!("{path}?watch=true&{query}");
            let watch = request("GET", &watch, "application/json", String::new())?;
            let response = sender.send_request(watch).await?;
            open.push((sender, response));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        grown.push((target, up.memory() - before));
    }
    Ok(grown)
}

/// The time from a Deployment to its last pod, without a node.
async fn deployment(palisade: &Path, print: definitions::Print<'_>) -> Result<(), Failure> {
    const REPLICAS: usize = 100;
    let up = Up::start(palisade, &[]).await?;
    let mut sender = up.connect().await?;
    let mut times = Vec::new();
    for round in 0..7 {
        let template = format!(
            r#"{{"metadata":{{"labels":{{"app":"d{round}"}}}},"spec":{{"containers":[{{"name":"c","image":"busybox"}}]}}}}"#
        );
        let body = format!(
            r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"d{round}"}},"spec":{{"replicas":{REPLICAS},"selector":{{"matchLabels":{{"app":"d{round}"}}}},"template":{template}}}}}"#
        );
        let watch = format!("/api/v1/namespaces/default/pods?watch=true&labelSelector=app%3Dd{round}");
        let mut watcher = up.connect().await?;
        let response =
            watcher.send_request(request("GET", &watch, "application/json", String::new())?).await?;
        let began = Instant::now();
        let path = "/apis/apps/v1/namespaces/default/deployments";
        let (code, _, _) = send(&mut sender, request("POST", path, "application/json", body)?).await?;
        if code != 201 {
            return Err(format!("the Deployment was answered with {code}").into());
        }
        let mut body = response.into_body();
        let mut added = 0;
        while added < REPLICAS {
            let Some(frame) = body.frame().await else { return Err("the watch ended early".into()) };
            let frame = frame?;
            let text = frame.data_ref().map_or(&[][..], |data| data);
            added += text.windows(15).filter(|bytes| *bytes == br#"{"type":"ADDED""#).count();
        }
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let worst = times.last().copied().unwrap_or_default();
    let shown =
        format!("median {:.0} ms, worst {:.0} ms", median.as_secs_f64() * 1e3, worst.as_secs_f64() * 1e3);
    let met = worst < Duration::from_secs(1);
    Ok(print("a Deployment of 100 pods, until all are created", shown, "1 s", met)?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let usage = "usage: measure PALISADE [definitions [FOLDER] | deployment | kubernetes SCRIPT]";
    let palisade = std::env::args().nth(1).ok_or(usage)?;
    let palisade = Path::new(&palisade);
    let mut out = std::io::stdout();
    let mut line = |what: &str, figure: String, target: &str, met: bool| {
        writeln!(out, "{what}\t{figure}\t{target}\t{met}")
    };
    if let Some(part) = std::env::args().nth(2) {
        let folder = std::env::args().nth(3);
        return match part.as_str() {
            "definitions" => {
                definitions::measure(palisade, folder.as_deref().map(Path::new), &mut line).await
            }
            "deployment" => deployment(palisade, &mut line).await,
            "kubernetes" => {
                let script = folder.ok_or(usage)?;
                kubernetes::measure(palisade, Path::new(&script), &mut line).await
            }
            _ => Err(usage.into()),
        };
    }
    let mut ready = Vec::new();
    for _ in 0..7 {
        ready.push(Up::start(palisade, &[]).await?.ready);
    }
    ready.sort_unstable();
    let median = ready.get(ready.len() / 2).copied().unwrap_or_default();
    let shown = format!("{:.0} ms", median.as_secs_f64() * 1e3);
    line("palisade up, from start to /readyz", shown, "50 ms", median < Duration::from_millis(50))?;

    let up = Up::start(palisade, &[]).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle = up.memory();
    line("palisade up, resident when idle", format!("{idle:.0} MB"), "30 MB", idle < 30.0)?;
    let (rate, slow) = load(&up).await?;
    let shown = format!("{rate:.0} req/s, p99 {:.1} ms, {:.0} MB", slow.as_secs_f64() * 1e3, up.memory());
    line("dry-run pod create over TLS, the load on the same cores", shown, "6,000 req/s", rate > 6_000.0)?;
    let events = watchers(&up).await?;
    let shown = format!("{events} events, each once and in order");
    line("1,000 watches while 100 writes/s go through", shown, "all", events == WATCHERS * WRITES)?;
    drop(up);
    for (watches, grown) in silent_watches(palisade).await? {
        // A connection has buffers of its own on either side of TLS.
        let target = if watches == SILENT_FEW { 50.0 } else { 1_000.0 };
        let what = format!("{watches} watches that do not read, of 57 MB of objects: growth");
        line(&what, format!("{grown:.0} MB"), &format!("{target:.0} MB"), grown < target)?;
    }
    let (time, warnings) = label(palisade).await?;
    let shown = format!("{:.0} ms, {warnings} warnings", time.as_secs_f64() * 1e3);
    let met = time < Duration::from_secs(1) && warnings >= 2;
    line("label dry run on a namespace with 100,000 pods", shown, "1 s", met)?;
    deployment(palisade, &mut line).await?;
    definitions::measure(palisade, None, &mut line).await
}
