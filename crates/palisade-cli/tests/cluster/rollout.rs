//! The rollout on a real Kubernetes that has no constraints: nothing breaks before `Restricted`.

use std::fmt::Write as _;

use palisade_testkit::kubernetes::{Cluster, Parts, Started};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{namespace, palisade, webhook_url};

/// The table in the documentation, which this test makes.
const DOCUMENTED: &str = include_str!("../../../../docs/rollout.md");
const MEMORY: &str = "palisade.dev/workload-levels";

/// What is rolled out: a sentence for the table, the kind, and the spec of its pods.
fn workloads() -> Vec<(&'static str, &'static str, Value)> {
    let container =
        |context: Value| json!([{"name": "c", "image": "localhost/busybox:1", "securityContext": context}]);
    let compliant = json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": container(json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}))});
    let root = json!({"containers": container(json!({}))});
    let with = |field: &str, value: Value| {
        let mut spec = root.clone();
        spec[field] = value;
        spec
    };
    let once = with("restartPolicy", json!("Never"));
    vec![
        ("Deployment with hostNetwork", "Deployment", with("hostNetwork", json!(true))),
        ("Deployment, compliant, runAsUser 1000", "Deployment", compliant),
        ("Deployment whose image runs as root", "Deployment", root.clone()),
        (
            "DaemonSet with a hostPath volume",
            "DaemonSet",
            with("volumes", json!([{"name": "v", "hostPath": {"path": "/var/log"}}])),
        ),
        (
            "StatefulSet with a privileged container",
            "StatefulSet",
            json!({"containers": container(json!({"privileged": true}))}),
        ),
        ("Job that runs as root", "Job", once.clone()),
        ("CronJob that runs as root", "CronJob", once),
        ("Pod with hostPID", "Pod", with("hostPID", json!(true))),
    ]
}

fn manifest(namespace: &str, kind: &str, pod: &Value) -> String {
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let selector = json!({"matchLabels": labels});
    let (api_version, spec) = match kind {
        "Pod" => ("v1", pod.clone()),
        "Job" => ("batch/v1", json!({"template": template})),
        "CronJob" => {
            ("batch/v1", json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}))
        }
        "StatefulSet" => {
            ("apps/v1", json!({"serviceName": "web", "selector": selector, "template": template}))
        }
        _ => ("apps/v1", json!({"selector": selector, "template": template})),
    };
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "web", "namespace": namespace}, "spec": spec}).to_string()
}

/// Makes a workload, and a run of it if it makes none by itself.
fn make(cluster: &Cluster, namespace: &str, kind: &str, pod: &Value) -> bool {
    let made = cluster.kubectl_with_input(&["create", "-f", "-"], &manifest(namespace, kind, pod));
    if kind == "CronJob" {
        let job = ["create", "job", "run", "--from=cronjob/web", "--namespace", namespace];
        let _ = cluster.kubectl(&job).expect_success();
    }
    made.code == 0
}

fn pods(cluster: &Cluster, namespace: &str) -> usize {
    cluster.get(&["pods", "--namespace", namespace])["items"].as_array().map_or(0, Vec::len)
}

fn remove(cluster: &Cluster, namespace: &str, kind: &str) {
    let kind = kind.to_lowercase();
    let _ = cluster
        .kubectl(&["delete", &kind, "web", "--namespace", namespace, "--cascade=foreground"])
        .expect_success();
    cluster.until("no pods left", || (pods(cluster, namespace) == 0).then_some(()));
}

/// Workloads whose pods Pod Security rejected, by namespace.
fn rejected(cluster: &Cluster, namespace: &str) -> bool {
    let events = cluster.get(&["events", "--namespace", namespace, "--field-selector=reason=FailedCreate"]);
    let events = events["items"].as_array().cloned().unwrap_or_default();
    events.iter().any(|event| {
        event["message"].as_str().is_some_and(|message| message.contains("violates PodSecurity"))
    })
}

fn start_controller(cluster: &mut Cluster) -> Started {
    let arguments = ["controller", "--install-crds", "--leader-elect=false", "--release", "n+1"];
    let mut command = palisade(cluster, &arguments);
    cluster.spawn("palisade-controller", &mut command)
}

fn request(cluster: &Cluster, mode: &str) {
    let patch = json!({"spec": {"enforcementMode": mode}}).to_string();
    let arguments = ["patch", "psaenforcementconfig", "cluster", "--type=merge", "-p", &patch];
    cluster.until("the request accepted", || (cluster.kubectl(&arguments).code == 0).then_some(()));
}

/// Waits for a mode, and unless it is on the way, until it is in force.
fn until_mode(cluster: &Cluster, mode: &str) {
    cluster.until(mode, || {
        let status = cluster.get(&["psaenforcementconfig", "cluster"])["status"].clone();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = conditions.iter().any(|own| own["type"] == "Ready" && own["status"] == "True");
        (status["enforcementMode"] == mode && (is_ready || mode == "Progressing")).then_some(())
    });
}

fn label(cluster: &Cluster, namespace: &str) -> String {
    let object = cluster.get(&["namespace", namespace]);
    object["metadata"]["labels"]["pod-security.kubernetes.io/enforce"].as_str().unwrap_or("none").to_owned()
}

#[test]
fn workloads_that_are_deleted_and_made_again_get_their_pods_in_every_state_of_the_rollout() {
    let Some(mut cluster) = Cluster::start(Parts::Controllers) else { return };
    // A node that does not exist: pods of DaemonSets are made for it.
    cluster.apply(r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "somewhere"}}"#);
    let mut controller = start_controller(&mut cluster);
    request(&cluster, "Legacy");
    until_mode(&cluster, "Legacy");
    // It applies the global configuration and reports; labels are enforced by the API server.
    let (url, listen) = (webhook_url(&cluster, 8443), format!("{}:8443", cluster.address()));
    let mut webhook = palisade(&cluster, &["webhook", "--register", "--url", &url, "--listen", &listen]);
    cluster.spawn("palisade-webhook", &mut webhook);
    let workloads: Vec<(String, &str, &str, Value)> = workloads()
        .into_iter()
        .enumerate()
        .map(|(number, (text, kind, pod))| (format!("team-{number}"), text, kind, pod))
        .collect();
    for (namespace, _, kind, pod) in &workloads {
        cluster.apply(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}).to_string(),
        );
        cluster.until("a workload made", || make(&cluster, namespace, kind, pod).then_some(()));
        cluster.until("its first pod", || (pods(&cluster, namespace) > 0).then_some(()));
    }
    // One that manages its own labels and needs what restricted rejects: it holds the rollout.
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own",
        "labels": {"security.openshift.io/scc.podSecurityLabelSync": "false"}}});
    cluster.apply(&own.to_string());
    cluster.until("a pod of its own", || make(&cluster, "own", "Pod", &workloads[7].3).then_some(()));

    let mut table =
        "| workload | needs | Legacy | Progressing | Restricted |\n| --- | --- | --- | --- | --- |\n"
            .to_owned();
    let mut rows: Vec<Vec<String>> = vec![Vec::new(); workloads.len()];
    for mode in ["Legacy", "Progressing", "Restricted"] {
        match mode {
            "Legacy" => until_mode(&cluster, mode),
            "Progressing" => {
                request(&cluster, "Restricted");
                until_mode(&cluster, mode);
                for (namespace, ..) in &workloads {
                    cluster.until("its label", || (label(&cluster, namespace) != "none").then_some(()));
                }
                let config = cluster.get(&["psaenforcementconfig", "cluster"]);
                assert_eq!(
                    config["status"]["enforcementMode"], "Progressing",
                    "the namespace \"own\" holds it"
                );
            }
            _ => {
                let enforce = ["label", "namespace", "own", "pod-security.kubernetes.io/enforce=privileged"];
                let _ = cluster.kubectl(&enforce).expect_success();
                until_mode(&cluster, mode);
            }
        }
        for (number, (namespace, text, kind, pod)) in workloads.iter().enumerate() {
            remove(&cluster, namespace, kind);
            if !text.contains("compliant") {
                // The controller has seen that nothing needs the level now, and keeps it.
                cluster.until("a remembered workload", || {
                    let annotations =
                        cluster.get(&["namespace", namespace])["metadata"]["annotations"].clone();
                    annotations[MEMORY].as_str().is_some_and(|text| text.contains(" until ")).then_some(())
                });
            }
            assert!(make(&cluster, namespace, kind, pod), "{mode}: {text}");
            cluster.until("its pods again", || (pods(&cluster, namespace) > 0).then_some(()));
            assert!(!rejected(&cluster, namespace), "{mode}: {text}");
            rows[number].push("pods made again".to_owned());
        }
        // Killed at any time, it goes on where it was.
        cluster.stop(controller, Signal::KILL);
        controller = start_controller(&mut cluster);
    }
    for ((namespace, text, ..), row) in workloads.iter().zip(&rows) {
        let _ = writeln!(table, "| {text} | {} | {} |", label(&cluster, namespace), row.join(" | "));
    }
    // What never ran is rejected once it is enforced, and loosens nothing.
    cluster.apply(r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}"#);
    cluster.until("its label", || (label(&cluster, "new") == "restricted").then_some(()));
    let _ = make(&cluster, "new", "Deployment", &workloads[0].3);
    cluster.until("rejected pods", || rejected(&cluster, "new").then_some(()));
    assert_eq!((pods(&cluster, "new"), label(&cluster, "new").as_str()), (0, "restricted"));
    let _ = writeln!(
        table,
        "| Deployment with hostNetwork, new in a namespace that is enforced | restricted | | | rejected |"
    );
    assert!(DOCUMENTED.contains(&table), "docs/rollout.md does not have this table:\n{table}");
}

#[test]
fn a_wave_stops_when_pods_are_rejected_and_the_administrator_takes_it_back_or_resumes_it() {
    let Some(mut cluster) = Cluster::start(Parts::Controllers) else { return };
    start_controller(&mut cluster);
    request(&cluster, "Legacy");
    until_mode(&cluster, "Legacy");
    for (namespace, wave) in [("dev", "first"), ("prod", "second")] {
        let labels = json!({"wave": wave});
        cluster.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}).to_string());
    }
    let wave = |name: &str, soak: &str| json!({"name": name, "soak": soak, "namespaceSelector": {"matchLabels": {"wave": name}}});
    let rollout = json!({"apiVersion": "palisade.dev/v1alpha1", "kind": "PodSecurityRollout", "metadata": {"name": "cluster"},
        "spec": {"waves": [wave("first", "1h"), wave("second", "0s")]}});
    cluster.apply(&rollout.to_string());
    request(&cluster, "Restricted");
    let state = |wave: usize| {
        cluster.get(&["podsecurityrollout", "cluster"])["status"]["waves"][wave]["state"].clone()
    };
    cluster.until("the first wave labelled", || (state(0) == "Soaking").then_some(()));
    assert_eq!(
        (label(&cluster, "dev"), label(&cluster, "prod")),
        ("restricted".to_owned(), "none".to_owned())
    );

    // Something new that the level of the namespace rejects.
    let _ = make(&cluster, "dev", "Deployment", &workloads()[0].2);
    cluster.until("the wave stopped", || (state(0) == "Stopped").then_some(()));
    let waves = |arguments: &[&str]| palisade_testkit::command::output(&mut palisade(&cluster, arguments));
    let shown = waves(&["rollout", "status"]);
    assert!(
        shown.out.contains("wave first: Stopped") && shown.out.contains("Deployment/web in namespace dev"),
        "{}",
        shown.out
    );

    let _ = waves(&["rollout", "rollback"]).expect_success();
    cluster.until("the label gone", || (label(&cluster, "dev") == "none").then_some(()));
    cluster.until("its pods", || (pods(&cluster, "dev") > 0).then_some(()));

    // Resumed, the namespace gets the level that what runs in it needs.
    let _ = waves(&["rollout", "resume"]).expect_success();
    cluster.until("the label that it needs", || (label(&cluster, "dev") == "privileged").then_some(()));
    assert_eq!(pods(&cluster, "dev"), 1);
    let _ = waves(&["rollout", "pause"]).expect_success();
    assert_eq!(cluster.get(&["podsecurityrollout", "cluster"])["spec"]["paused"], true);
}

/// The condition and events that kube-controller-manager writes reach the workload that its author wrote.
#[test]
fn workloads_whose_pods_are_rejected_get_an_event_with_the_message() {
    let Some(mut cluster) = Cluster::start(Parts::Controllers) else { return };
    cluster.apply(r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "somewhere"}}"#);
    let arguments = ["controller", "--leader-elect=false", "--controllers=rejected-pods"];
    let mut command = palisade(&cluster, &arguments);
    cluster.spawn("palisade-controller", &mut command);
    for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"] {
        let name = kind.to_lowercase();
        cluster.apply(&namespace(&name, "restricted").to_string());
        let pod = json!({"hostNetwork": true, "restartPolicy": if kind == "Job" { "Never" } else { "Always" },
            "containers": [{"name": "c", "image": "localhost/busybox:1"}]});
        assert!(make(&cluster, &name, kind, &pod), "{kind}");
        let event = cluster.until("an event on the workload", || {
            let events = cluster.get(&["events", "-n", &name, "--field-selector=reason=PodsRejected"]);
            events["items"].as_array()?.first().cloned()
        });
        let involved = &event["involvedObject"];
        assert_eq!((involved["kind"].as_str(), involved["name"].as_str()), (Some(kind), Some("web")));
        let own = cluster.get(&[&name, "web", "-n", &name]);
        assert_eq!(involved["uid"], own["metadata"]["uid"], "{kind}");
        let message = event["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with(
                r#"violates PodSecurity "restricted:latest": host namespaces (hostNetwork=true)"#
            ),
            "{kind}: {message}"
        );
    }
    let events = cluster.get(&["events", "-A", "--field-selector=reason=PodsRejected"]);
    assert_eq!(events["items"].as_array().map(Vec::len), Some(5), "{events}");
}
