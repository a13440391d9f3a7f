//! `palisade dashboard` beside a server, as a client and as a real browser see it.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
};

use palisade_apiserver::Server;
use palisade_cli::dashboard::page::{DashboardState, STYLE, UnknownPart, page};
use palisade_model::compat::Compat;
use serde_json::{Value, json};

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

/// What Chromium prints about a page.
pub(crate) fn browse(profile: &Path, size: &str, mode: &str, url: &str) -> String {
    browse_with(profile, size, &[mode], url)
}

/// A picture of a page, with a setting of Chromium.
pub(crate) fn screenshot(profile: &Path, setting: &str, shot: &Path, url: &str) {
    let mode = format!("--screenshot={}", shot.display());
    browse_with(profile, "1180,1400", &[setting, &mode], url);
}

fn browse_with(profile: &Path, size: &str, modes: &[&str], url: &str) -> String {
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--hide-scrollbars",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={size}"))
        .args(modes)
        .arg(url)
        .output()
        .expect("chromium is installed by `cargo xtask setup`");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn blocked_namespace() -> Value {
    json!({"name": "shop", "level": "restricted", "complies": "privileged", "blocks": true, "unjudged": [], "undecided": null,
        "commands": ["kubectl label namespace shop pod-security.kubernetes.io/enforce=privileged"],
        "blockers": [{"kind": "DaemonSet", "name": "log-shipper", "causes": [
            {"summary": "host namespaces (hostNetwork=true)", "path": "spec.template.spec.hostNetwork"},
            {"summary": "hostPath volumes (volume \"logs\")", "path": "spec.template.spec.volumes[0].hostPath"}]}]})
}

/// Each state that the page can show, its name, and texts that must be visible in it.
fn states() -> Vec<(&'static str, DashboardState, Vec<&'static str>)> {
    let state = |rollout, exceptions, nodes| DashboardState {
        server: "https://10.0.0.1:6443".to_owned(),
        read_at: "2026-01-01T00:00:00Z".to_owned(),
        rollout,
        exceptions,
        nodes,
    };
    let ready = |name: &str, level: &str| {
        json!({"name": name, "level": level, "complies": "restricted", "blocks": false,
        "undecided": null, "unjudged": []})
    };
    let node = |name: &str, status: &str, drift: Value| {
        json!({"metadata": {"name": name}, "status": {
        "runtime": {"name": "containerd", "version": "v2.3.4"}, "profiles": {"count": 3, "wanted": 3, "missing": []},
        "verified": {"containers": 42}, "driftCount": drift.as_array().unwrap().len(), "drift": drift, "tampering": [],
        "conditions": [{"type": "DeclarationsEnforced", "status": status, "message": "the container runtime does not respond: containers cannot be compared"}]}})
    };
    let nothing = || Ok(json!({"exceptions": []}));
    vec![
        (
            "ready",
            state(
                Ok(
                    json!({"spec": {"enforcementMode": "Restricted"}, "status": {"enforcementMode": "Restricted", "conditions": [
                    {"type": "Upgradeable", "status": "True", "message": "nothing blocks the next release"}]},
                    "namespaces": [ready("web", "restricted"), ready("billing", "baseline")]}),
                ),
                nothing(),
                Ok(vec![node("node-1", "True", json!([]))]),
            ),
            vec!["ready", "Restricted", "none"],
        ),
        (
            "blocked",
            state(
                Ok(
                    json!({"spec": {"enforcementMode": "Restricted"}, "status": {"enforcementMode": "Legacy", "conditions": [
                    {"type": "Upgradeable", "status": "False", "message": "1 namespace would violate its level: shop"}]},
                    "namespaces": [ready("web", "restricted"), blocked_namespace(), {"name": "legacy", "level": null, "complies": null, "blocks": false,
                        "undecided": "not everything in it can be judged", "unjudged": [{"kind": "Pod", "name": "odd", "reason": "it cannot be decoded"}]}]}),
                ),
                Ok(json!({"exceptions": [
                    {"name": "log-shipper", "state": "used", "owner": "team-observability", "ticket": "SEC-1041", "until": "2026-12-31T00:00:00Z", "broad": []},
                    {"name": "forgotten", "state": "expired", "owner": "team-shop", "ticket": "SEC-7", "until": "2025-01-01T00:00:00Z", "broad": []},
                    {"name": "everything", "state": "broad", "owner": "team-shop", "ticket": "SEC-8", "until": "2026-06-01T00:00:00Z", "broad": ["selects every namespace"]}]})),
                Ok(vec![
                    node("node-1", "True", json!([])),
                    node(
                        "node-2",
                        "False",
                        json!([{"namespace": "shop", "pod": "web-1", "container": "app", "check": "seccomp", "declared": "RuntimeDefault", "kernel": "Unconfined"}]),
                    ),
                    node("node-3", "Unknown", json!([])),
                ]),
            ),
            vec![
                "blocked by 1",
                "spec.template.spec.hostNetwork",
                "kubectl label namespace shop",
                "undecided",
                "expired",
                "not known",
                "Unconfined",
            ],
        ),
        (
            "waves",
            state(
                Ok(json!({"waves": [
                    {"name": "dev", "state": "Done", "labelled": 12, "namespaces": 12},
                    {"name": "staging", "state": "Stopped", "labelled": 3, "namespaces": 8, "rejected": [{"workload": "Deployment/cart", "namespace": "staging-shop",
                        "message": "pods \"cart-x\" is forbidden: violates PodSecurity \"restricted:latest\": privileged"}]},
                    {"name": "production", "state": "Pending", "labelled": 0, "namespaces": 40}], "namespaces": [ready("web", "restricted")]})),
                nothing(),
                Ok(Vec::new()),
            ),
            vec!["dev", "Done", "Stopped", "Deployment/cart", "3 of 8 namespaces labelled"],
        ),
        (
            "unknown",
            state(
                Err(UnknownPart("namespaces is forbidden".to_owned())),
                Err(UnknownPart("securityexceptions is forbidden".to_owned())),
                Err(UnknownPart("nodesecurityreports is forbidden".to_owned())),
            ),
            vec!["Not known: namespaces is forbidden", "?"],
        ),
    ]
}

/// `SCREENSHOTS` is a folder that keeps the pictures.
#[test]
fn every_state_of_the_page_is_drawn_by_a_real_browser() {
    let project = Project::new();
    let (profile, shot) = (project.path("profile"), project.path("state.png"));
    let draw = |url: &str| {
        browse(&profile, "1180,1400", &format!("--screenshot={}", shot.display()), url);
        fs::read(&shot).unwrap()
    };
    let blank = draw("about:blank");
    let mut drawn = BTreeSet::from([blank.clone()]);
    project.file("page.css", STYLE);
    for (name, state, texts) in states() {
        project.file("page.html", page(&state));
        let url = format!("file://{}", project.path("page.html").display());
        let shown = browse(&profile, "1180,1400", "--dump-dom", &url);
        for text in texts {
            assert!(shown.contains(text), "{name}: {text} in {shown}");
        }
        let image = draw(&url);
        assert!(
            image.starts_with(b"\x89PNG") && image.len() > 3 * blank.len(),
            "{name}: {} bytes",
            image.len()
        );
        if let Some(folder) = std::env::var_os("SCREENSHOTS") {
            fs::write(Path::new(&folder).join(format!("{name}.png")), &image).unwrap();
        }
        assert!(drawn.insert(image), "{name} looks like another state");
    }
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
        let browse = |mode: String| browse(&profile, "1100,900", &mode, &url);
        let shown = browse("--dump-dom".to_owned());
        assert!(shown.contains("<title>Palisade</title>"), "{shown}");
        assert!(shown.contains("<td>log-shipper</td>"), "{shown}");
        browse(format!("--screenshot={}", shot.display()));
        let image = fs::read(&shot).unwrap();
        assert!(image.starts_with(b"\x89PNG") && image.len() > 10_000, "{} bytes", image.len());
        if let Some(folder) = std::env::var_os("SCREENSHOTS") {
            fs::copy(&shot, Path::new(&folder).join("dashboard.png")).unwrap();
        }
    });
    server.shutdown().await;
}
