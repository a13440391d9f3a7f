//! `palisade uninstall`, in every state that an installation can be in.

use std::process::{Command, Stdio};

use palisade_apiserver::Server;

use crate::{install::installed, permissions::Running, support::kubectl};

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_removes_what_is_there_and_nothing_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let server = Server::builder().kubeconfig(&kubeconfig).start().await.unwrap();
    let uninstall = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
            .args(["uninstall", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let get = |what: &[&str]| {
        let arguments: Vec<&str> =
            ["get", "--ignore-not-found", "-o", "name"].iter().chain(what).copied().collect();
        kubectl(&kubeconfig, &arguments, "").0
    };
    let configurations = "mutatingwebhookconfiguration,validatingwebhookconfiguration";
    let (text, _) = installed(&["--components", "webhook,controller,node,crds"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (listen, url) = (format!("127.0.0.1:{port}"), format!("https://127.0.0.1:{port}"));
    for state in ["running", "stopped", "without its Deployment"] {
        let until = async |what: &str, holds: &dyn Fn() -> bool| {
            for _ in 0..600 {
                if holds() {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            panic!("{state}: {what}");
        };
        // A namespace that is still ending takes nothing.
        until("no namespace", &|| get(&["namespace", "palisade-system"]).is_empty()).await;
        kubectl(&kubeconfig, &["apply", "-f", "-"], &text);
        let webhook = Running(
            Command::new(env!("CARGO_BIN_EXE_palisade"))
                .args(["webhook", "--listen", &listen, "--register", "--url", &url, "--kubeconfig"])
                .arg(&kubeconfig)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        until("registered", &|| get(&[configurations]).lines().count() == 2).await;
        let webhook = if state == "running" {
            Some(webhook)
        } else {
            webhook.stop();
            None
        };
        if state == "without its Deployment" {
            kubectl(&kubeconfig, &["delete", "deployment", "palisade-webhook", "-n", "palisade-system"], "");
        }
        let planned = uninstall(&["--dry-run"]);
        assert_eq!(get(&[configurations]).lines().count(), 2, "a dry run deletes nothing");
        let removed = uninstall(&[]);
        assert_eq!(removed.lines().count(), planned.lines().count(), "{planned}{removed}");
        assert_eq!(get(&[configurations]), "", "{state}");
        for what in ["clusterrole", "clusterrolebinding"] {
            assert_eq!(get(&[what, "-l", "app.kubernetes.io/name=palisade"]), "", "{state}");
        }
        until("the namespace to end", &|| get(&["namespace", "palisade-system"]).is_empty()).await;
        // Pods are admitted, and a webhook that still runs has made nothing again.
        kubectl(&kubeconfig, &["run", "p", "--image=i", "--dry-run=server"], "");
        assert_eq!(get(&[configurations]), "", "{state}");
        assert_ne!(get(&["crd", "-l", "app.kubernetes.io/name=palisade"]), "", "CRDs stay");
        assert_eq!(uninstall(&[]), "", "{state}: a second time there is nothing left");
        drop(webhook);
    }
    let removed = uninstall(&["--components", "webhook,controller,node,crds"]);
    assert!(
        removed
            .contains("customresourcedefinition.apiextensions.k8s.io/profilepolicies.palisade.dev deleted"),
        "{removed}"
    );
    server.shutdown().await;
}
