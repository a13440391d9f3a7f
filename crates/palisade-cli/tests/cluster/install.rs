//! `palisade install` for real: the image in the node's containerd, the manifests applied, the pods running with the rights that
//! the manifests grant.

use std::{env, fs, path::PathBuf, time::Instant};

use palisade_testkit::{
    command::output,
    kubernetes::{Cluster, Parts},
};
use serde_json::{Value, json};

use crate::support::{namespace, palisade, privileged_pod, restricted_pod};

/// The image that `cargo xtask cluster` makes of the binary under test.
const IMAGE: &str = "localhost/palisade:test";

/// What an earlier `palisade install --image localhost/palisade:test` printed. Replaced when there is a release.
const EARLIER: &str = include_str!("data/earlier-manifests.yaml");

/// Every service account of the installation.
pub(crate) const OWN_USERS: &str = "system:serviceaccount:palisade-system:";

/// A cluster with the image on its node. Only the webhook enforces: the API server's own plugin is off.
pub(crate) fn cluster_with_image() -> Option<Cluster> {
    let cluster = Cluster::start_with(Parts::Node, &["--disable-admission-plugins=PodSecurity"])?;
    let archive = env::var_os("PALISADE_TEST_IMAGE").expect("the image: run cargo xtask cluster");
    cluster.import_image(&PathBuf::from(archive));
    Some(cluster)
}

/// The manifests for this node, whose kubelet and containerd have folders of their own: an administrator sets `node.rootDir`,
/// `node.runtimeSocketDir` and `node.runtimeSocket` of the chart.
fn for_this_node(cluster: &Cluster, manifests: &str) -> String {
    let socket = cluster.runtime_socket();
    let (folder, name) = (socket.parent().unwrap(), socket.file_name().unwrap());
    manifests
        .replace("/var/lib/kubelet", cluster.path("kubelet").to_str().unwrap())
        .replace("path: /run/containerd", &format!("path: {}", folder.display()))
        .replace("runtime/containerd.sock", &format!("runtime/{}", name.to_str().unwrap()))
}

pub(crate) fn install(cluster: &Cluster, more: &[&str]) -> String {
    let arguments = [&["install", "--image", IMAGE], more].concat();
    for_this_node(cluster, &output(&mut palisade(cluster, &arguments)).expect_success())
}

pub(crate) fn until_rolled_out(cluster: &Cluster) {
    for workload in
        ["deployment/palisade-webhook", "deployment/palisade-controller", "daemonset/palisade-node"]
    {
        let status = ["-n", "palisade-system", "rollout", "status", workload, "--timeout=1s"];
        cluster.until(workload, || (cluster.kubectl(&status).code == 0).then_some(()));
    }
}

fn create(cluster: &Cluster, namespace: &str, pod: &Value) -> palisade_testkit::command::CommandOutput {
    cluster.kubectl_with_input(&["create", "--namespace", namespace, "-f", "-"], &pod.to_string())
}

/// Waits until the agent reports a healthy node. A machine that hides its first process cannot be compared with, which is then
/// reported as unknown.
fn until_node_reports(cluster: &Cluster) {
    let compared = fs::read_link("/proc/1/ns/ipc").is_ok();
    let expected = [
        ("ProfilesReady", "True"),
        ("ProfilesIntact", "True"),
        ("RuntimeAnswers", "True"),
        ("DeclarationsEnforced", if compared { "True" } else { "Unknown" }),
    ];
    cluster.until("a report of a healthy node", || {
        let report = cluster.get(&["nodesecurityreport", "node1"]);
        let conditions = report["status"]["conditions"].as_array()?;
        let holds = |(kind, status): (&str, &str)| {
            conditions.iter().any(|found| found["type"] == kind && found["status"] == status)
        };
        expected.into_iter().all(holds).then_some(())
    });
}

#[test]
fn an_upgrade_from_earlier_manifests_keeps_enforcing_with_the_rights_they_grant() {
    let Some(cluster) = cluster_with_image() else { return };
    cluster.apply(&for_this_node(&cluster, EARLIER));
    until_rolled_out(&cluster);
    cluster.apply(&namespace("web", "restricted").to_string());
    let rejected = create(&cluster, "web", &privileged_pod("before"));
    assert!(rejected.err.contains("admission webhook"), "{rejected:?}");

    cluster.apply(&install(&cluster, &["--cluster"]));
    let applied = cluster.audit().len();
    // While the replicas are replaced, no pod that violates the level is admitted and no other one is rejected.
    let mut tried = 0;
    for workload in
        ["deployment/palisade-webhook", "deployment/palisade-controller", "daemonset/palisade-node"]
    {
        let status = ["-n", "palisade-system", "rollout", "status", workload, "--timeout=1s"];
        cluster.until(workload, || {
            let good = format!("good-{tried}");
            tried += 1;
            let rejected = create(&cluster, "web", &privileged_pod("bad"));
            assert!(rejected.err.contains("admission webhook"), "{rejected:?}");
            let admitted = create(&cluster, "web", &restricted_pod(&good));
            assert_eq!(admitted.code, 0, "{admitted:?}");
            cluster.kubectl(&["delete", "pod", "-n", "web", &good, "--wait=false"]);
            (cluster.kubectl(&status).code == 0).then_some(())
        });
    }
    until_node_reports(&cluster);
    let policy = cluster.get(&["validatingadmissionpolicybinding", "palisade-node"]);
    assert_eq!(policy["spec"]["policyName"], "palisade-node", "an agent is bound to its node");

    let service = "kubernetes.io/service-name=palisade-webhook";
    let endpoints = cluster.get(&["endpointslices", "-n", "palisade-system", "-l", service]);
    let endpoints = endpoints["items"][0]["endpoints"].as_array().cloned().unwrap_or_default();
    let ready = endpoints.iter().filter(|endpoint| endpoint["conditions"]["ready"] == true).count();
    assert_eq!(ready, 2, "{endpoints:?}");
    let secret = cluster.get(&["secret", "-n", "palisade-system", "palisade-webhook-certificates"]);
    assert!(secret["data"].is_object(), "{secret}");
    // The earlier roles do not know the kinds that came later; components go on without them until the new roles are applied.
    let mut forbidden = cluster.forbidden(OWN_USERS);
    forbidden.retain(|request| !request.contains(" list /api"));
    assert_eq!(forbidden, [""; 0], "requests that the earlier rights do not allow");
    assert_eq!(
        cluster.forbidden_after(applied, OWN_USERS),
        [""; 0],
        "requests that the new rights do not allow"
    );
    let user = "--as=system:serviceaccount:palisade-system:palisade-webhook";
    let granted = cluster.kubectl(&["auth", "can-i", "list", "securityexceptions.palisade.dev", user]);
    assert_eq!(granted.out.trim(), "yes", "{granted:?}");
    println!("{tried} pods rejected and {tried} admitted during the upgrade");
}

/// The commands of docs/install.md, "In a minute", typed by a newcomer.
#[test]
fn a_newcomer_sees_the_first_rejected_pod() {
    let Some(cluster) = cluster_with_image() else { return };
    let began = Instant::now();
    cluster.apply(&install(&cluster, &[]));
    let policy = cluster.get(&["validatingadmissionpolicybinding", "palisade-node"]);
    assert_eq!(policy["spec"]["policyName"], "palisade-node", "the release is that of the cluster");
    let shell = |line: &str| {
        let mut command = cluster.command("sh");
        let path = format!(
            "{}:{}",
            cluster.binary("kubectl").parent().unwrap().display(),
            env::var("PATH").unwrap()
        );
        output(command.arg("-c").arg(line).env("PATH", path))
    };
    let waited =
        shell("kubectl -n palisade-system rollout status deployment/palisade-webhook --timeout=180s");
    assert_eq!(waited.code, 0, "{waited:?}\n{}", cluster.kubectl(&["describe", "pods", "-A"]).out);
    let _ = shell("kubectl create namespace demo").expect_success();
    let _ =
        shell("kubectl label namespace demo pod-security.kubernetes.io/enforce=baseline").expect_success();
    let rejected = shell("kubectl -n demo run first --image=localhost/busybox:1 --privileged");
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!(rejected.code, 1, "{rejected:?}");
    assert!(rejected.err.contains(r#"violates PodSecurity "baseline:latest": privileged"#), "{rejected:?}");
    println!("from install to the first rejected pod: {seconds:.1} s");
    println!("{}", json!({"secondsToFirstRejection": seconds}));

    let first = cluster.kubectl(&[
        "run",
        "second",
        "-n",
        "demo",
        "--image=localhost/busybox:1",
        "--",
        "sleep",
        "3600",
    ]);
    assert_eq!(first.code, 0, "{first:?}");
    cluster.until("a compliant pod that runs", || {
        (cluster.get(&["pod", "second", "-n", "demo"])["status"]["phase"] == "Running").then_some(())
    });
    until_node_reports(&cluster);
    assert_eq!(cluster.forbidden(OWN_USERS), [""; 0], "requests that the manifests' rights do not allow");
}

/// A command that is not run by this test would be a lie in the documentation.
#[test]
fn the_documentation_has_the_commands_that_were_typed() {
    let docs = include_str!("../../../../docs/install.md");
    for line in [
        "kubectl -n palisade-system rollout status deployment/palisade-webhook",
        "kubectl create namespace demo",
        "kubectl label namespace demo pod-security.kubernetes.io/enforce=baseline",
        "kubectl -n demo run first --image=",
    ] {
        assert!(docs.contains(line), "{line}");
    }
}
