//! Measures `palisade webhook` from outside: reviews over TLS on sixteen connections, beside an embedded API server.
//!
//! Usage: `reviews PALISADE [REVIEWS]`. Prints lines of four columns separated by tabs: what, measured, target, met. The
//! processors are shared by the webhook, this program and the (idle) API server.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a measurement that fails must fail visibly"
)]

use std::{
    fs,
    io::Read as _,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use palisade_apiserver::Server;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const CONNECTIONS: usize = 16;
const WARM_UP: usize = 20_000;

/// The webhook, ended with this program.
struct Webhook {
    child: Child,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Webhook {
    fn status(&self, key: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// Seconds of processor time so far.
    fn cpu(&self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id())).unwrap_or_default();
        let own: u64 = text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let threads: u64 = tasks
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|task| {
                let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
                text.split_whitespace().next()?.parse::<u64>().ok()
            })
            .sum();
        Duration::from_nanos(own.max(threads)).as_secs_f64()
    }
}

fn body(namespace: &str) -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "web", "namespace": namespace, "operation": "CREATE", "dryRun": false,
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["system:serviceaccounts", "system:authenticated"]},
            "object": {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "web", "namespace": namespace, "labels": {"app": "web"}},
                "spec": {
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "web", "image": "registry.example/shop/web:1.4.2",
                        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
                        "env": [{"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}}],
                        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                    }],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
            "oldObject": null,
        },
    })
    .to_string()
}

async fn connect(address: &str, ca: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// One review: written in one piece, read until the answer is whole.
async fn exchange(stream: &mut TlsStream<TcpStream>, request: &[u8], buffer: &mut Vec<u8>) -> bool {
    if stream.write_all(request).await.is_err() || stream.flush().await.is_err() {
        return false;
    }
    buffer.clear();
    let (mut head, mut length) = (0_usize, usize::MAX);
    while buffer.len() < head.saturating_add(length) {
        if stream.read_buf(buffer).await.unwrap_or(0) == 0 {
            return false;
        }
        if length == usize::MAX
            && let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n")
        {
            let text = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
            head = end + 4;
            length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0);
        }
    }
    buffer.windows(14).any(|window| window == b"\"allowed\":true")
}

async fn load(address: &str, ca: &str, path: &str, reviews: usize) -> (Duration, Vec<u32>, usize) {
    let body = body("shop");
    let request = format!(
        "POST {path}?timeout=10s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (request, left) = (Arc::new(request), Arc::new(AtomicUsize::new(reviews)));
    let mut tasks = Vec::new();
    let began = Instant::now();
    for _ in 0..CONNECTIONS {
        let mut stream = connect(address, ca).await.expect("a connection");
        let (request, left) = (request.clone(), left.clone());
        tasks.push(tokio::spawn(async move {
            let (mut times, mut buffer, mut lost) = (Vec::new(), Vec::with_capacity(4096), 0);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                let began = Instant::now();
                if !exchange(&mut stream, request.as_bytes(), &mut buffer).await {
                    lost += 1;
                    break;
                }
                times.push(u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
            (times, lost)
        }));
    }
    let (mut times, mut lost) = (Vec::with_capacity(reviews), 0);
    for task in tasks {
        let (own, own_lost) = task.await.unwrap();
        times.extend(own);
        lost += own_lost;
    }
    times.sort_unstable();
    (began.elapsed(), times, lost)
}

fn line(what: &str, figure: &str, target: &str, met: bool) {
    println!("{what}\t{figure}\t{target}\t{met}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let palisade = arguments.get(1).expect("usage: load PALISADE [REVIEWS]").clone();
    let reviews: usize = arguments.get(2).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(measure(&palisade, reviews));
}

async fn measure(palisade: &str, reviews: usize) {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let server = Server::builder().kubeconfig(&kubeconfig).start().await.unwrap();
    let client = {
        let read = kube::config::Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default())
            .await
            .unwrap();
        kube::Client::try_from(config).unwrap()
    };
    let make = async |object: Value| {
        let body = object.to_string().into_bytes();
        let request = http::Request::post("/api/v1/namespaces")
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        client.request::<Value>(request).await.unwrap();
    };
    for name in ["shop", "palisade-system"] {
        let labels = if name == "shop" {
            json!({"pod-security.kubernetes.io/enforce": "restricted"})
        } else {
            json!({})
        };
        make(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}))
            .await;
    }
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let child = Command::new(palisade)
        .args(["webhook", "--listen", &address, "--shutdown-delay=0s", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("palisade starts");
    let mut webhook = Webhook { child };
    let ca = loop {
        let request =
            http::Request::get("/api/v1/namespaces/palisade-system/secrets/palisade-webhook-certificates")
                .body(Vec::new())
                .unwrap();
        if let Ok(secret) = client.request::<Value>(request).await
            && let Some(text) = secret["data"]["ca.crt"].as_str()
            && secret["data"]["tls.crt"].is_string()
        {
            use base64::Engine as _;
            let pem = base64::prelude::BASE64_STANDARD.decode(text).unwrap();
            let pem = String::from_utf8(pem).unwrap();
            if connect(&address, &pem).await.is_ok() {
                break pem;
            }
        }
        if let Ok(Some(status)) = webhook.child.try_wait() {
            let mut output = String::new();
            let _ = webhook.child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut output));
            panic!("the webhook ended with {status}: {output}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    load(&address, &ca, "/validate", WARM_UP).await;
    let resident = webhook.status("VmRSS:");
    for path in ["/validate", "/mutate"] {
        let before = webhook.cpu();
        let count = if path == "/validate" { reviews } else { reviews / 10 };
        let (took, times, lost) = load(&address, &ca, path, count).await;
        assert_eq!(lost, 0, "lost reviews");
        let number = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let cpu = (webhook.cpu() - before) / number * 1e3;
        let at = |share: usize| times.get(times.len().saturating_sub(1) * share / 1000).copied().unwrap_or(0);
        let (median, late) = (f64::from(at(500)) / 1e3, f64::from(at(990)) / 1e3);
        let rate = number / took.as_secs_f64();
        let what = format!("webhook {path} over TLS, {CONNECTIONS} connections, {count} reviews");
        let figure =
            format!("{cpu:.4} ms CPU a review, median {median:.2} ms, p99 {late:.2} ms, {rate:.0} reviews/s");
        line(&what, &figure, "0.06 ms CPU, p99 6 ms", cpu <= 0.06 && late < 6.0);
    }
    let (now, peak) = (webhook.status("VmRSS:"), webhook.status("VmHWM:"));
    let growth = now.saturating_sub(resident);
    line(
        "webhook memory after all of them",
        &format!(
            "{:.1} MB resident, {:.1} MB at most, grown by {growth} KiB since the first {WARM_UP}",
            megabytes(now),
            megabytes(peak)
        ),
        "25 MB, no growth",
        peak < 25 * 1024 && growth < 1024,
    );
    drop(webhook);
    server.shutdown().await;
}

fn megabytes(kibibytes: u64) -> f64 {
    f64::from(u32::try_from(kibibytes).unwrap_or(u32::MAX)) / 1024.0
}
