//! The webhook in front of a real API server.

use std::path::Path;

use palisade_testkit::{
    command::output,
    kubernetes::{Cluster, Parts},
    outage_cases,
};
use rustix::process::Signal;

use crate::support::{namespace, palisade, privileged_pod, restricted_pod, start_webhook};

#[test]
fn the_webhook_rejects_a_privileged_pod_and_admits_a_compliant_one() {
    // Without the API server's own plugin, so that only the webhook can reject.
    let flags = ["--disable-admission-plugins=PodSecurity"];
    let Some(mut cluster) = Cluster::start_with(Parts::Api, &flags) else { return };
    let crds = output(&mut palisade(&cluster, &["install", "--components", "crds"]));
    cluster.apply(&crds.expect_success());
    start_webhook(&mut cluster, 8443, &[]);
    cluster.apply(&namespace("web", "restricted").to_string());
    let create = |pod: serde_json::Value| {
        cluster.kubectl_with_input(&["create", "--namespace", "web", "-f", "-"], &pod.to_string())
    };
    let rejected = create(privileged_pod("privileged"));
    assert_eq!(rejected.code, 1, "{rejected:?}");
    assert!(
        rejected.err.contains(r#"violates PodSecurity "restricted:latest": privileged"#),
        "{}",
        rejected.err
    );
    assert_eq!(create(restricted_pod("compliant")).expect_success(), "pod/compliant created\n");
}

/// No replica answers: only what would have been judged waits.
#[test]
fn a_cluster_goes_on_while_no_replica_of_the_webhook_responds() {
    let flags = ["--disable-admission-plugins=PodSecurity"];
    let Some(mut cluster) = Cluster::start_with(Parts::Controllers, &flags) else { return };
    let crds = output(&mut palisade(&cluster, &["install", "--components", "crds"]));
    cluster.apply(&crds.expect_success());
    let webhook = start_webhook(&mut cluster, 8443, &[]);
    for (_, mut object) in outage_cases::objects() {
        if !matches!(object["kind"].as_str(), Some("Namespace" | "ProfilePolicy")) {
            object["metadata"]["namespace"] = outage_cases::NAMESPACE.into();
        }
        cluster.until("the object", || {
            let made = cluster.kubectl_with_input(&["apply", "-f", "-"], &object.to_string());
            (made.code == 0).then_some(())
        });
    }
    cluster.stop(webhook, Signal::KILL);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = cluster.client().await;
        for case in outage_cases::cases() {
            let kind =
                if case.method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let body = if case.body.is_null() { Vec::new() } else { case.body.to_string().into_bytes() };
            let request = http::Request::builder()
                .method(case.method)
                .uri(&case.path)
                .header("content-type", kind)
                .body(body)
                .unwrap();
            let sent = client.request_text(request).await.map_err(|error| error.to_string());
            match (&sent, case.passes) {
                (Ok(_), true) => {}
                (Err(error), false) if error.contains("failed calling webhook") => {}
                _ => panic!("{}: {sent:?}", case.name),
            }
        }
    });
    cluster.until("the end of the namespace", || {
        cluster.get(&["namespace", outage_cases::NAMESPACE]).is_null().then_some(())
    });
}

/// Creates pods as a dry run, without a pause, until all are answered; those that failed.
async fn creates(client: kube::Client, count: usize) -> Vec<String> {
    let pod = restricted_pod("p").to_string().into_bytes();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (client, pod) = (client.clone(), pod.clone());
        tasks.spawn(async move {
            let mut failures = Vec::new();
            for _ in 0..count / 8 {
                let request = http::Request::post("/api/v1/namespaces/web/pods?dryRun=All")
                    .header("content-type", "application/json")
                    .body(pod.clone())
                    .unwrap();
                if let Err(error) = client.request_text(request).await {
                    failures.push(error.to_string());
                }
            }
            failures
        });
    }
    tasks.join_all().await.concat()
}

#[test]
fn no_create_fails_when_the_certificate_secret_is_deleted() {
    let flags = ["--disable-admission-plugins=PodSecurity,ServiceAccount"];
    let Some(mut cluster) = Cluster::start_with(Parts::Api, &flags) else { return };
    let crds = output(&mut palisade(&cluster, &["install", "--components", "crds"]));
    cluster.apply(&crds.expect_success());
    start_webhook(&mut cluster, 8443, &["--rotation-overlap=2s"]);
    cluster.apply(&namespace("web", "restricted").to_string());
    // swallowed: a count that is none is the default
    let count = std::env::var("PALISADE_CREATES").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let secret = ["secret", "palisade-webhook-certificates", "-n", "palisade-system"];
    let authorities = || cluster.get(&secret)["data"]["ca.crt"].clone();
    let before = authorities();
    let client = runtime.block_on(cluster.client());
    let creating = runtime.spawn(creates(client, count));
    let mut deleted = 0;
    while !creating.is_finished() {
        let arguments: Vec<&str> = ["delete", "--ignore-not-found"].iter().chain(&secret).copied().collect();
        let _ = cluster.kubectl(&arguments).expect_success();
        deleted += 1;
        cluster.until("the Secret, restored", || (authorities() == before).then_some(()));
    }
    let failures = runtime.block_on(creating).unwrap();
    assert_eq!(failures, [""; 0], "of {count} creates, {deleted} deletions");
    assert!(deleted > 0);
}

/// One command, while the webhook runs: nothing waits for it, and it does not come back.
#[test]
fn uninstall_leaves_a_cluster_that_admits_pods() {
    let flags = ["--disable-admission-plugins=PodSecurity"];
    let Some(mut cluster) = Cluster::start_with(Parts::Controllers, &flags) else { return };
    let printed =
        |cluster: &Cluster, arguments: &[&str]| output(&mut palisade(cluster, arguments)).expect_success();
    cluster.apply(&printed(&cluster, &["install", "--fail-fast=warn", "--kubernetes-version=v1.37"]));
    start_webhook(&mut cluster, 8443, &[]);
    let removed = printed(&cluster, &["uninstall"]);
    assert!(
        removed.starts_with("clusterrolebinding.rbac.authorization.k8s.io/palisade-webhook deleted\n"),
        "{removed}"
    );
    cluster.until("the end of the namespace", || {
        cluster.get(&["namespace", "palisade-system"]).is_null().then_some(())
    });
    let pod = restricted_pod("after").to_string();
    cluster.until("a pod admitted without the webhook", || {
        (cluster.kubectl_with_input(&["create", "-f", "-"], &pod).code == 0).then_some(())
    });
    for kind in [
        "mutatingwebhookconfiguration",
        "validatingwebhookconfiguration",
        "validatingadmissionpolicy",
        "clusterrole",
    ] {
        let left = cluster.kubectl(&["get", kind, "-l", "app.kubernetes.io/name=palisade", "-o", "name"]);
        assert_eq!(left.expect_success(), "", "{kind}");
    }
    assert!(cluster.get(&["validatingwebhookconfiguration", "palisade"]).is_null());
    assert_eq!(printed(&cluster, &["uninstall"]), "", "a second time there is nothing left");
}

/// Upstream's own tests of Pod Security Admission, with the webhook in the place of the plugin.
#[test]
fn upstreams_pod_security_tests_pass_with_the_webhook_instead_of_the_plugin() {
    let Some(mut cluster) = Cluster::start_with(Parts::Api, &["--disable-admission-plugins=PodSecurity"])
    else {
        return;
    };
    start_webhook(&mut cluster, 8443, &[]);
    println!("{}", run_pod_security_suite(&cluster));
}

/// The same tests on the embedded API server, with its own plugin.
#[test]
fn upstreams_pod_security_tests_pass_on_palisade_up() {
    for mode in [&[][..], &["--emulate-kubernetes=v1.37"]] {
        let palisade = Path::new(env!("CARGO_BIN_EXE_palisade"));
        let started = Cluster::start_on(palisade, Parts::Api, |kubeconfig: &Path, listen: &str, _: &Path| {
            let own = [
                "up".to_owned(),
                format!("--listen={listen}"),
                format!("--kubeconfig={}", kubeconfig.display()),
            ];
            own.into_iter().chain(mode.iter().map(|&option| option.to_owned())).collect()
        });
        let Some(cluster) = started else { return };
        println!("palisade up {}: {}", mode.concat(), run_pod_security_suite(&cluster));
    }
}

/// Runs them; how many there are. None may fail.
fn run_pod_security_suite(cluster: &Cluster) -> String {
    let suite = cluster.binary("pod-security.test");
    let mut command = cluster.command(suite);
    let ran = output(command.args(["-test.v", "-test.timeout=20m"]).current_dir(cluster.path("")));
    let count = |word: &str| ran.out.lines().filter(|line| line.trim_start().starts_with(word)).count();
    let (passed, failed, skipped) = (count("--- PASS"), count("--- FAIL"), count("--- SKIP"));
    let failures: Vec<_> = ran
        .out
        .lines()
        .filter(|line| !line.contains("--- PASS") && !line.contains("=== "))
        .take(40)
        .collect();
    assert!(ran.code == 0 && failed == 0 && passed > 700, "{failures:#?}\n{}", ran.err);
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}
