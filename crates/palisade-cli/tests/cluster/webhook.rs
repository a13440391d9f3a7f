//! The webhook in front of a real API server.

use palisade_testkit::kubernetes::{Cluster, Parts};

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
