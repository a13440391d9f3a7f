//! Measures the readiness of a large cluster: 10,000 namespaces with 100 pods and a Deployment each. One line a figure,
//! fields separated by tabs: what, figure, target, whether it is met.
//!
//! What is measured, and what is not: *reading* is from the bytes of a watch to the index, which judges each pod as it comes,
//! on one core; it depends on how large pods are (here 1.9 kB). *The first full evaluation* begins when every object has
//! been received and read: judging a million pods (measured again by itself, because the index has done it while reading),
//! the verdicts of all namespaces, the status, and the labels of all namespaces. *A single change* is from the bytes of one
//! pod to the new status; the median counts, since the worst of a hundred is what the rest of the machine makes of it.

use std::{
    error::Error,
    io::Write as _,
    time::{Duration, Instant},
};

use palisade_base::version::NEWEST_MINOR;
use palisade_controllers::{
    cluster::Cluster,
    label_syncer::plan::{all_labels, namespace_labels},
    readiness::plan::{Observed, ReadinessPlan, plan},
};
use palisade_model::{compat::Compat, prepare::Prepared, workload::workload_kind};
use palisade_policy::{
    enforcement::{
        conditions::Troubles,
        mode::Release,
        state::{EnforceLabels, Instances},
    },
    standards::{
        evaluator::Evaluator,
        level::{Level, LevelVersion, Version},
    },
};
use serde_json::{Value, json};

const NAMESPACES: usize = 10_000;
const PODS: usize = 100;
/// One namespace in so many violates.
const VIOLATING: usize = 100;
const ROUNDS: usize = 5;

/// A pod as people deploy it and as admission leaves it.
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME","namespace":"SPACE","uid":"9c6f7e3a-8f1e-4a3e-9d53-0f1a2b3c4d5e","resourceVersion":"123456","labels":{"app":"web","pod-template-hash":"5d8f7c9b4"},"annotations":{"openshift.io/scc":"restricted-v2","security.openshift.io/validated-scc-subject-type":"user","prometheus.io/scrape":"true"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d8f7c9b4","uid":"9c6f7e3a-8f1e-4a3e-9d53-0f1a2b3c4d5e","controller":true}]},"spec":{"serviceAccountName":"web","nodeName":"node-17","securityContext":{"runAsNonRoot":true,"runAsUser":10001,"fsGroup":10001,"seccompProfile":{"type":"RuntimeDefault"}},"initContainers":[{"name":"migrate","image":"registry.example/shop/migrate:1.4.2","command":["/migrate"],"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}],"containers":[{"name":"web","image":"registry.example/shop/web:1.4.2","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"DATABASE_URL","valueFrom":{"secretKeyRef":{"name":"db","key":"url"}}}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"memory":"256Mi"}},"readinessProbe":{"httpGet":{"path":"/ready","port":8080}},"livenessProbe":{"httpGet":{"path":"/healthz","port":8080}},"securityContext":{"allowPrivilegeEscalation":false,"PRIVILEGED":true,"capabilities":{"drop":["ALL"]}},"volumeMounts":[{"name":"tmp","mountPath":"/tmp"},{"name":"config","mountPath":"/etc/web"}]},{"name":"proxy","image":"registry.example/mesh/proxy:2.1.0","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}],"volumes":[{"name":"tmp","emptyDir":{}},{"name":"config","configMap":{"name":"web"}},{"name":"token","projected":{"sources":[]}}]},"status":{"phase":"Running","podIP":"10.0.0.1","startTime":"2026-01-01T00:00:00Z"}}"#;

type Failure = Box<dyn Error>;

fn pod(namespace: &str, name: &str, violates: bool) -> String {
    let field = if violates { "privileged" } else { "readOnlyRootFilesystem" };
    POD.replacen("NAME", name, 1).replacen("SPACE", namespace, 1).replacen("PRIVILEGED", field, 1)
}

fn name(index: usize) -> String {
    format!("team-{index:05}")
}

fn main() -> Result<(), Failure> {
    let mut cluster = Cluster::new(Compat::kubernetes(NEWEST_MINOR));
    cluster.add_openshift_defaults();
    let before = resident()?;
    let reading = fill(&mut cluster)?;
    let memory = resident()?.saturating_sub(before);
    let pods = NAMESPACES * PODS;
    print_figure(
        "10,000 namespaces, 1,000,000 pods: from the bytes of the watches to the index, on one core",
        &format!(
            "{:.1} s, {:.1} us a pod of {} bytes",
            reading.as_secs_f64(),
            micros(reading) / count(pods),
            POD.len()
        ),
        "",
        true,
    )?;
    let judging = judge_all()?;
    let mut planned = None;
    let planning = best(|| planned = Some(evaluate(&cluster, &Value::Null)));
    let (first, labels) = planned.ok_or("nothing was planned")?;
    let violating =
        first.status.as_ref().map_or(0, |status| status["violatingNamespaceCount"].as_u64().unwrap_or(0));
    if violating != u64::try_from(NAMESPACES / VIOLATING)? || labels != NAMESPACES {
        return Err(format!("{violating} namespaces violate and {labels} are to be labelled").into());
    }
    let evaluation = judging + planning;
    print_figure(
        "the first full evaluation: every pod judged, every verdict, the status, all labels",
        &format!(
            "{:.0} ms, of which judging {:.0} ms, planning {:.1} ms",
            millis(evaluation),
            millis(judging),
            millis(planning)
        ),
        "2 s",
        evaluation < Duration::from_secs(2),
    )?;
    let config = json!({"spec": {}, "status": first.status});
    let (worst, typical) = single_changes(&mut cluster, &config)?;
    print_figure(
        "a single pod changes: from its bytes to the new status",
        &format!("{:.3} ms, the worst of 99 {:.2} ms", millis(typical), millis(worst)),
        "5 ms",
        typical < Duration::from_millis(5),
    )?;
    let mut constraint = palisade_policy::scc::built_in::objects()
        .find(|object| object["metadata"]["name"] == "restricted-v2")
        .ok_or("there is no restricted-v2")?;
    constraint["allowPrivilegeEscalation"] = json!(true);
    let began = Instant::now();
    cluster.set_constraint(&constraint);
    let writes = all_labels(&cluster, EnforceLabels::Remove).count();
    print_figure(
        "a constraint changes that all namespaces depend on: every level and template anew",
        &format!("{:.0} ms, {writes} namespaces to label", millis(began.elapsed())),
        "",
        true,
    )?;
    print_figure(
        "memory for 10,000 namespaces, 1,000,000 pods, 10,000 Deployments",
        &format!("{} MB, {} bytes a pod", memory / 1024, memory * 1024 / u64::try_from(pods)?),
        "500 MB",
        memory < 500 * 1024,
    )
}

/// Everything that exists arrives; the time it takes to read the pods.
fn fill(cluster: &mut Cluster) -> Result<Duration, Failure> {
    let deployment = workload_kind("apps/v1", "Deployment").ok_or("there is no Deployment")?;
    let mut reading = Duration::ZERO;
    for index in 0..NAMESPACES {
        let namespace = name(index);
        let range = format!("{}/10000", 1_000_000_000 + index * 10_000);
        cluster.set_namespace(&json!({"metadata": {"name": namespace, "uid": format!("{index:036}"),
            "resourceVersion": "1", "annotations": {"openshift.io/sa.scc.uid-range": range,
            "openshift.io/sa.scc.supplemental-groups": range, "openshift.io/sa.scc.mcs": "s0:c1,c0"}}}));
        cluster.set_service_account(&namespace, "default");
        let container = json!({"name": "web", "image": "registry.example/shop/web:1.4.2"});
        cluster.set_workload(
            deployment,
            &json!({"metadata": {"name": "web", "namespace": namespace},
            "spec": {"template": {"spec": {"containers": [container]}}}}),
        );
        let violates = index % VIOLATING == 0;
        let texts: Vec<String> = (0..PODS)
            .map(|pod_index| pod(&namespace, &format!("web-5d8f7c9b4-{pod_index:05}"), violates))
            .collect();
        let began = Instant::now();
        for text in &texts {
            cluster.set_pod(text)?;
        }
        reading += began.elapsed();
    }
    Ok(reading)
}

/// Judges as many pods as there are, already read.
fn judge_all() -> Result<Duration, Failure> {
    let evaluator = Evaluator::default();
    let (good, bad) = (pod("a", "good", false), pod("a", "bad", true));
    let read = |json| serde_json::from_str(json).map(|pod| Prepared::stored(pod, &Compat::designs()));
    let (good, bad) = (read(&good)?, read(&bad)?);
    let at = |level, pod: &Prepared<'_>| evaluator.evaluate(LevelVersion::new(level, Version::Latest), pod);
    Ok(best(|| {
        for index in 0..NAMESPACES * PODS {
            let is_bad = index % VIOLATING == 0;
            let pod = std::hint::black_box(if is_bad { &bad } else { &good });
            if !at(Level::Restricted, pod).allowed() {
                std::hint::black_box(at(Level::Baseline, pod));
            }
        }
    }))
}

fn evaluate(cluster: &Cluster, config: &Value) -> (ReadinessPlan, usize) {
    (status(cluster, config), all_labels(cluster, EnforceLabels::Remove).count())
}

fn status(cluster: &Cluster, config: &Value) -> ReadinessPlan {
    let observed = Observed {
        release: Release::Evaluate,
        gate: false,
        config,
        is_config_served: true,
        remembered: &[],
        instances: Instances::None,
        requested: Level::Privileged,
        has_synced: true,
        troubles: Troubles::default(),
        rollout: None,
        now: "2026-01-01T00:00:00Z",
    };
    plan(&observed, cluster)
}

/// The worst and the median time of a change, each to a pod of another namespace.
fn single_changes(cluster: &mut Cluster, config: &Value) -> Result<(Duration, Duration), Failure> {
    cluster.take_touched();
    let mut times = Vec::new();
    for index in 1..100 {
        let text = pod(&name(index), "web-5d8f7c9b4-00000", index % 2 == 0);
        let began = Instant::now();
        cluster.set_pod(&text)?;
        let planned = status(cluster, config);
        let touched = cluster.take_touched();
        let labels: usize = touched
            .iter()
            .filter_map(|name| cluster.namespace(name))
            .map(|namespace| namespace_labels(namespace, EnforceLabels::Remove).len())
            .sum();
        std::hint::black_box((planned, labels));
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let worst = times.last().copied().unwrap_or_default();
    Ok((worst, times.get(times.len() / 2).copied().unwrap_or_default()))
}

fn best(mut call: impl FnMut()) -> Duration {
    let round = |call: &mut dyn FnMut()| {
        let began = Instant::now();
        call();
        began.elapsed()
    };
    (0..ROUNDS).map(|_| round(&mut call)).min().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The resident size of this process, in KiB.
fn resident() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no size")?.parse()?)
}

fn print_figure(what: &str, figure: &str, target: &str, met: bool) -> Result<(), Failure> {
    Ok(writeln!(std::io::stdout(), "{what}\t{figure}\t{target}\t{met}")?)
}
