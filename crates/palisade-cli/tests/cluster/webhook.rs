//! The webhook in front of a real API server.

use palisade_testkit::kubernetes::{Cluster, Parts};
use rustix::process::Signal;

use crate::outage_cases;
use crate::support::{namespace, palisade, privileged_pod, restricted_pod, start_webhook};

#[test]
fn the_webhook_rejects_a_privileged_pod_and_admits_a_compliant_one() {
    // Without the API server's own plugin, so that only the webhook can reject.
    let flags = ["--disable-admission-plugins=PodSecurity"];
    let Some(mut cluster) = Cluster::start_with(Parts::Api, &flags) else { return };
    let crds =
        palisade_testkit::command::output(&mut palisade(&cluster, &["install", "--components", "crds"]));
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
    let crds =
        palisade_testkit::command::output(&mut palisade(&cluster, &["install", "--components", "crds"]));
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
