//! `palisade dashboard` beside a server, as a client and as a real browser see it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
};

use palisade_apiserver::Server;
use palisade_model::compat::Compat;
use serde_json::json;

use crate::support::{Project, Running, kubectl};

/// An object whose texts would be markup, if they were not escaped.
fn objects() -> String {
    let exception = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "SecurityException", "metadata": {"name": "log-shipper"}, "spec": {
        "namespaces": ["shop"], "workloads": [{"kind": "Pod", "name": "web"}],
        "allow": [{"control": "privileged", "field": "spec.containers[*].securityContext.privileged", "values": ["true"]}],
        "reason": "r", "owner": "<script>document.title='hostile'</script>", "ticket": "<img src=x onerror=alert(1)>",
        "until": "2999-01-01T00:00:00Z",
    }});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    json!({"apiVersion": "v1", "kind": "List", "items": [namespace, exception]}).to_string()
}

fn send(port: u16, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_the_cluster_to_who_has_the_address() {
    let project = Project::new();
    let kubeconfig = project.path("kubeconfig");
    let server = Server::builder().compat(Compat::designs()).kubeconfig(&kubeconfig).start().await.unwrap();
    tokio::task::block_in_place(|| {
        kubectl(&kubeconfig, &["create", "-f", "-"], &objects());
        let running = Running::start(project.command().args(["dashboard", "--kubeconfig"]).arg(&kubeconfig));
        let rest = running.line("http://127.0.0.1:");
        let (port, path) = rest.split_once('/').unwrap();
        let (port, path): (u16, String) = (port.parse().unwrap(), format!("/{path}"));
        let own = format!("127.0.0.1:{port}");

        let page = send(port, &own, &path);
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
        assert!(page.contains("<td>shop</td>") && page.contains("<td>log-shipper</td>"), "{page}");
        assert!(page.contains("&lt;script&gt;document.title") && !page.contains("<script"), "{page}");
        assert!(!page.contains("<img"), "{page}");
        assert!(send(port, "rebound.example", &path).starts_with("HTTP/1.1 421"));
        assert!(send(port, &own, "/").starts_with("HTTP/1.1 404"));
        assert!(send(port, &own, &format!("/{}/", "0".repeat(32))).starts_with("HTTP/1.1 404"));

        let url = format!("http://127.0.0.1:{port}{path}");
        let shot = project.path("page.png");
        let profile = project.path("profile");
        let browse = |mode: String| {
            let output = Command::new("chromium")
                .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
                .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
                .arg(format!("--user-data-dir={}", profile.display()))
                .args(["--window-size=1100,900", &mode, &url])
                .output()
                .expect("chromium is installed by `cargo xtask setup`");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let shown = browse("--dump-dom".to_owned());
        assert!(shown.contains("<title>Palisade</title>"), "{shown}");
        assert!(shown.contains("<td>log-shipper</td>"), "{shown}");
        browse(format!("--screenshot={}", shot.display()));
        let image = fs::read(&shot).unwrap();
        assert!(image.starts_with(b"\x89PNG") && image.len() > 10_000, "{} bytes", image.len());
        if let Some(folder) = std::env::var_os("SCREENSHOTS") {
            fs::copy(&shot, std::path::Path::new(&folder).join("dashboard.png")).unwrap();
        }
    });
    server.shutdown().await;
}
