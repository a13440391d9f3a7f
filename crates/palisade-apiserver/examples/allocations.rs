//! Allocations of the requests behind `kubectl apply` of a pod, from the bytes of the request to those of the response.
//!
//! `cargo xtask bench` reads what is printed. The server runs in this thread, in memory, and enforces restricted.

use std::io::Write as _;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use palisade_apiserver::{Router, Server};
use serde_json::{Value, json};
use tower::Service as _;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, image: &str) -> Value {
    let container = json!({"name": "web", "image": image, "ports": [{"containerPort": 8080}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container]}});
    pod["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": pod.to_string()});
    pod
}

async fn send(router: &Router, method: &str, path: &str, kind: &str, body: Bytes) -> Result<(), Failure> {
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let response = router.clone().call(request.body(Full::new(body))?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if status.is_success() {
        return Ok(());
    }
    Err(format!("{method} {path}: {status}: {}", String::from_utf8_lossy(&body)).into())
}

fn main() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let builder = Server::builder().controllers(false).disable_plugins(["ServiceAccount".to_owned()]);
    let router = builder.router()?;
    let run = |method: &str, path: &str, kind: &str, body: &Value| -> Result<u64, Failure> {
        let body = Bytes::from(body.to_string());
        let mut result = Ok(());
        let counted = allocation_counter::measure(|| {
            result = runtime.block_on(send(&router, method, path, kind, body));
        });
        result.map(|()| counted.count_total)
    };
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    run("PATCH", "/api/v1/namespaces/default", "application/merge-patch+json", &label)?;
    let mut figures = [u64::MAX; 3];
    for round in 0..20 {
        let (name, applied) = (format!("web-{round}"), format!("{PODS}/applied-{round}"));
        let change = json!({"spec": {"containers": [{"name": "web", "image": "nginx:2"}]}});
        let counts = [
            run("POST", PODS, "application/json", &pod(&name, "nginx:1"))?,
            run("PATCH", &format!("{PODS}/{name}"), "application/strategic-merge-patch+json", &change)?,
            run(
                "PATCH",
                &format!("{applied}?fieldManager=kubectl"),
                "application/apply-patch+yaml",
                &pod(&format!("applied-{round}"), "nginx:1"),
            )?,
        ];
        for (figure, count) in figures.iter_mut().zip(counts) {
            *figure = count.min(*figure);
        }
    }
    let [created, patched, applied] = figures;
    writeln!(
        std::io::stdout(),
        "a pod through kubectl apply, bytes to bytes\t{created} allocations to create, {patched} to patch, \
         {applied} server-side\t\ttrue"
    )?;
    Ok(())
}
