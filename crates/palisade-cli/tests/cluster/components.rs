//! Kubernetes' own controller manager, scheduler and kubelet on `palisade up`, at work.
//!
//! `PALISADE_WORK_SECONDS` is how long they work, 30 by default. They do the same work on a real kube-apiserver before: what they report
//! there as well, such as what a controller may not create any more in a namespace that is being deleted, is not the API server's.

use std::{
    collections::BTreeMap,
    env,
    path::Path,
    time::{Duration, Instant},
};

use palisade_testkit::kubernetes::{Cluster, Parts};
use serde_json::{Value, json};

const COMPONENTS: [&str; 3] = ["kube-controller-manager", "kube-scheduler", "kubelet"];

/// An error that occurs so often after the first round is one that repeats.
const REPEATS: usize = 3;

/// What controllers report on kube-apiserver too, though not in every run: they create in a namespace that is being deleted until their
/// own object goes.
const USUAL: &str = "because it is being terminated";

/// What both API servers refuse: that, a pod that is gone to its kubelet, and the account of a namespace that comes a moment after it.
const USUAL_REFUSALS: [&str; 3] =
    [USUAL, "no relationship found between node 'node1' and this object", "error looking up service account"];

fn on_palisade() -> Option<Cluster> {
    Cluster::start_on(
        Path::new(env!("CARGO_BIN_EXE_palisade")),
        Parts::Node,
        |kubeconfig: &Path, listen: &str, folder: &Path| {
            let folder = folder.display();
            [
                "up".to_owned(),
                "--emulate-kubernetes=v1.37".to_owned(),
                "--controllers=none".to_owned(),
                format!("--listen={listen}"),
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--data-dir={folder}/data"),
                format!("--audit-log={folder}/logs/audit.log"),
            ]
            .into()
        },
    )
}

fn pod(command: &str) -> Value {
    json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "localhost/busybox:1", "command": ["sh", "-c", command]}],
    })
}

fn workloads(round: usize) -> Vec<Value> {
    let sleeps = || pod(&format!("echo round {round}; exec sleep 3600"));
    let template = |app: &str, spec: Value| json!({"metadata": {"labels": {"app": app}}, "spec": spec});
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let ends = {
        let mut spec = pod("echo done");
        spec["restartPolicy"] = json!("Never");
        spec
    };
    vec![
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "deployment"},
            "spec": {"replicas": 2, "selector": selector("deployment"), "template": template("deployment", sleeps())}}),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set"},
            "spec": {"replicas": 2, "serviceName": "set", "selector": selector("set"), "template": template("set", sleeps())}}),
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "daemons"},
            "spec": {"selector": selector("daemons"), "template": template("daemons", sleeps())}}),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"},
            "spec": {"completions": 2, "parallelism": 2, "template": {"spec": ends}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "set"},
            "spec": {"selector": {"app": "set"}, "ports": [{"port": 80}]}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"},
            "spec": {"minAvailable": 1, "selector": selector("deployment")}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"round": round.to_string()}}),
    ]
}

fn in_namespace<'a>(namespace: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["-n", namespace], arguments].concat()
}

/// What people do with workloads, from a namespace's creation to its end.
fn work(cluster: &Cluster, round: usize) {
    let namespace = format!("round-{round}");
    let _ = cluster.kubectl(&["create", "namespace", &namespace]).expect_success();
    for object in workloads(round) {
        let _ = cluster
            .kubectl_with_input(&in_namespace(&namespace, &["apply", "-f", "-"]), &object.to_string())
            .expect_success();
    }
    for workload in ["deployment/deployment", "statefulset/set", "daemonset/daemons"] {
        let status = in_namespace(&namespace, &["rollout", "status", workload, "--timeout=1s"]);
        cluster.until(workload, || (cluster.kubectl(&status).code == 0).then_some(()));
    }
    let complete = in_namespace(&namespace, &["wait", "--for=condition=Complete", "job/job", "--timeout=1s"]);
    cluster.until("the Job", || (cluster.kubectl(&complete).code == 0).then_some(()));

    let logs =
        cluster.kubectl(&in_namespace(&namespace, &["logs", "deployment/deployment"])).expect_success();
    assert!(logs.contains(&format!("round {round}")), "{logs}");
    let said = cluster
        .kubectl(&in_namespace(&namespace, &["exec", "set-0", "--", "echo", "through the kubelet"]))
        .expect_success();
    assert_eq!(said.trim(), "through the kubelet");
    let endpoints = in_namespace(&namespace, &["endpointslices", "-l", "kubernetes.io/service-name=set"]);
    cluster.until("two endpoints", || {
        let slices = cluster.get(&endpoints);
        (slices["items"][0]["endpoints"].as_array()?.len() == 2).then_some(())
    });

    let _ = cluster
        .kubectl(&in_namespace(&namespace, &["set", "env", "deployment/deployment", "CHANGED=yes"]))
        .expect_success();
    let _ = cluster
        .kubectl(&in_namespace(&namespace, &["scale", "statefulset/set", "--replicas=1"]))
        .expect_success();
    for workload in ["deployment/deployment", "statefulset/set"] {
        let status = in_namespace(&namespace, &["rollout", "status", workload, "--timeout=1s"]);
        cluster.until(workload, || (cluster.kubectl(&status).code == 0).then_some(()));
    }
    let _ = cluster
        .kubectl(&in_namespace(&namespace, &["rollout", "undo", "deployment/deployment"]))
        .expect_success();
    let _ = cluster.kubectl(&["delete", "namespace", &namespace, "--wait=false"]).expect_success();
    cluster.until("the namespace gone", || cluster.get(&["namespace", &namespace]).is_null().then_some(()));
}

/// The lines of klog's level `E`, without times, processes, numbers and names that are made up.
fn errors(log: &str) -> BTreeMap<String, (usize, String)> {
    let is_error =
        |line: &&str| line.starts_with('E') && line.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for line in log.lines().filter(is_error) {
        let text = line.split_once(']').map_or(line, |(_, text)| text);
        // What is left of a word with digits is no name: uids, addresses, times, pods of this round.
        let words = text.split(|sign: char| !(sign.is_alphanumeric() || "-._:/".contains(sign)));
        let shape: Vec<_> = words
            .filter(|word| !word.is_empty() && !word.contains(|sign: char| sign.is_ascii_digit()))
            .collect();
        let entry = found.entry(shape.join(" ")).or_insert((0, line.to_owned()));
        entry.0 += 1;
    }
    found
}

/// Errors by component and shape: how often, and the first line.
type Reported = BTreeMap<(&'static str, String), (usize, String)>;

/// Works on a cluster for some time; what the components report, and how many rounds there were.
fn errors_at_work(cluster: &Cluster, seconds: u64) -> (Reported, usize) {
    // What components say while everything starts is not what repeats.
    work(cluster, 0);
    let before = COMPONENTS.map(|name| cluster.log(name).len());
    let (began, mut rounds) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        rounds += 1;
        work(cluster, rounds);
    }
    let mut found = Reported::new();
    for (name, start) in COMPONENTS.into_iter().zip(before) {
        let all = cluster.log(name);
        let errors = errors(all.get(start..).unwrap_or_default());
        found.extend(errors.into_iter().map(|(shape, counted)| ((name, shape), counted)));
    }
    (found, rounds)
}

#[test]
fn kubernetes_own_components_work_on_palisade_up_without_an_error_that_repeats() {
    let seconds: u64 = env::var("PALISADE_WORK_SECONDS").map_or(30, |text| text.parse().expect("seconds"));
    let Some(real) = Cluster::start(Parts::Node) else { return };
    let (usual, rounds) = errors_at_work(&real, seconds);
    drop(real);
    println!("kube-apiserver: {rounds} rounds, {} errors of different shapes", usual.len());
    let Some(cluster) = on_palisade() else { return };
    let (found, rounds) = errors_at_work(&cluster, seconds);
    println!("palisade up: {rounds} rounds, {} errors of different shapes", found.len());
    let mut repeated = Vec::new();
    for ((name, shape), (count, line)) in found {
        let known = usual.get(&(name, shape)).map_or(0, |(count, _)| *count);
        println!("{name}: {count} times, {known} times on kube-apiserver: {line}");
        if count >= REPEATS && known == 0 && !line.contains(USUAL) {
            repeated.push(format!("{name}: {count} times: {line}"));
        }
    }
    assert_eq!(repeated, [""; 0]);
    let mut forbidden = cluster.forbidden("system:");
    forbidden.retain(|line| !USUAL_REFUSALS.iter().any(|usual| line.contains(usual)));
    assert_eq!(forbidden, [""; 0], "requests of components that are forbidden");
}

#[test]
fn errors_of_one_shape_are_one_error() {
    let log = "I1119 02:00:00.000000 1 a.go:1] \"fine\"\n\
        E1119 02:00:01.000000 1 b.go:2] \"cannot sync\" pod=\"round-1/x-5d8f\" err=\"gone\"\n\
        E1119 02:00:02.000000 1 b.go:2] \"cannot sync\" pod=\"round-2/x-9a1c\" err=\"gone\"\n";
    let found = errors(log);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found.values().next().map(|(count, _)| *count), Some(2));
}
