//! A profile from a ConfigMap of a tenant, on a stock API server and a stock kubelet: it reaches the container, and only restricts.

use palisade_testkit::kubernetes::Cluster;
use serde_json::{Value, json};

use crate::{
    install::{cluster_with_image, install, until_rolled_out},
    support::{namespace, restricted_pod},
};

const NAMESPACE: &str = "tenant";

/// Allows everything but one call that no program makes: without the runtime's default, the container would be unconfined.
const ALLOW_ALL: &str =
    r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["acct"],"action":"SCMP_ACT_ERRNO"}]}"#;

/// Documents that are no profile, or none that confines, and what is reported.
const REJECTED: [(&str, &str, &str); 2] = [
    ("foo.json", r#"{"foo":1}"#, "is not a seccomp profile"),
    ("unconfined.json", r#"{"defaultAction":"SCMP_ACT_ALLOW"}"#, "confines nothing"),
];

/// Allows everything but new folders.
const NO_FOLDERS: &str = r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}"#;

fn pod(name: &str, key: Option<&str>) -> Value {
    let mut pod = restricted_pod(name);
    pod["metadata"]["namespace"] = json!(NAMESPACE);
    pod["spec"]["containers"][0]["command"] = json!(["sleep", "3600"]);
    if let Some(key) = key {
        let profile = format!("configmap/profiles/{key}");
        pod["metadata"]["annotations"] = json!({"seccomp.security.alpha.kubernetes.io/pod": profile});
        // The profile is decided by the annotation alone.
        if let Some(context) = pod["spec"]["securityContext"].as_object_mut() {
            context.remove("seccompProfile");
        }
    }
    pod
}

fn until_running(cluster: &Cluster, name: &str) {
    cluster.until(&format!("the pod {name}"), || {
        let pod = cluster.get(&["pod", "-n", NAMESPACE, name]);
        (pod["status"]["phase"] == "Running").then_some(())
    });
}

/// Whether the command succeeds in the pod, and what it printed as an error.
fn run_in(cluster: &Cluster, pod: &str, command: &[&str]) -> (bool, String) {
    let output = cluster.kubectl(&[&["exec", "-n", NAMESPACE, pod, "--"], command].concat());
    (output.code == 0, output.err)
}

#[test]
fn a_profile_of_a_tenant_that_allows_everything_allows_no_more_than_the_runtimes_default() {
    let Some(cluster) = cluster_with_image() else { return };
    cluster.apply(&install(&cluster, &["--cluster", "--feature-gates=SeccompConfigMaps=true"]));
    until_rolled_out(&cluster);
    cluster.apply(&namespace(NAMESPACE, "restricted").to_string());
    let account = ["get", "serviceaccount", "-n", NAMESPACE, "default"];
    cluster.until("service account", || (cluster.kubectl(&account).code == 0).then_some(()));
    let mut profiles = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "profiles", "namespace": NAMESPACE},
        "data": {"all.json": ALLOW_ALL, "no-folders.json": NO_FOLDERS},
    });
    for (key, document, _) in REJECTED {
        profiles["data"][key] = json!(document);
    }
    cluster.apply(&profiles.to_string());

    // Nobody has allowed such profiles in the namespace.
    let rejected =
        cluster.kubectl_with_input(&["create", "-f", "-"], &pod("early", Some("all.json")).to_string());
    assert_ne!(rejected.code, 0, "{rejected:?}");
    assert!(rejected.err.contains("ProfilePolicy"), "{rejected:?}");
    cluster.apply(
        &json!({
            "apiVersion": "palisade.dev/v1alpha1", "kind": "ProfilePolicy", "metadata": {"name": "tenants"},
            "spec": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                "seccomp": {"allowedProfiles": {"types": ["RuntimeDefault", "ConfigMap"], "configMaps": ["*"]}},
            },
        })
        .to_string(),
    );
    cluster.until("the policy in every replica", || {
        let admitted = (0..4).all(|_| {
            let dry = ["create", "--dry-run=server", "-f", "-"];
            cluster.kubectl_with_input(&dry, &pod("all", Some("all.json")).to_string()).code == 0
        });
        admitted.then_some(())
    });
    for (key, _, reason) in REJECTED {
        let rejected =
            cluster.kubectl_with_input(&["create", "-f", "-"], &pod("rejected", Some(key)).to_string());
        assert!(rejected.code != 0 && rejected.err.contains(reason), "{key}: {rejected:?}");
    }

    for (name, key) in [("all", Some("all.json")), ("no-folders", Some("no-folders.json")), ("default", None)]
    {
        cluster.apply(&pod(name, key).to_string());
    }
    for name in ["all", "no-folders", "default"] {
        until_running(&cluster, name);
        // What the runtime's default denies, the profile cannot give back.
        let (allowed, message) = run_in(&cluster, name, &["unshare", "-U", "true"]);
        assert!(!allowed && message.contains("not permitted"), "{name}: {message}");
    }
    assert!(run_in(&cluster, "all", &["mkdir", "/tmp/folder"]).0, "what both allow works");
    assert!(run_in(&cluster, "default", &["mkdir", "/tmp/folder"]).0);
    assert!(!run_in(&cluster, "no-folders", &["mkdir", "/tmp/folder"]).0, "what the tenant forbids does not");

    let report = cluster.until("the profiles in the node's report", || {
        let report = cluster.get(&["nodesecurityreport", "node1"]);
        let applied = report["status"]["profiles"]["applied"].as_array()?.clone();
        (applied.len() == 2).then_some(applied)
    });
    for profile in report {
        let (source, applied) = (&profile["source"], &profile["applied"]);
        assert!(source.is_string() && applied.is_string() && source != applied, "{profile}");
    }
}
