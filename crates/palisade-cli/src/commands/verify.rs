//! `palisade verify`: declared security against what the kernel enforces, for running containers of this machine.
//!
//! What a pod declares comes from the API server where a cluster is named, and otherwise from what the node wrote down
//! at the runtime when it made the pod. The comparison is `palisade_node::verify`'s.

use clap::{Args, ValueEnum};
use palisade_node::{
    api::{PodKey, PodSource, kube::KubeSource},
    cri::{
        client::{Runtime, RuntimeError},
        proto::ContainerState,
    },
    node::NodeConfig,
    pod::RunPod,
    runner::observed::labels,
    verify::{PodReport, declared_pods, summary, verify_pod},
};
use serde_json::{Value, json};

use crate::{
    args::{Emulated, FeatureGate},
    cluster::{ClusterArgs, ClusterError},
    commands::{
        node::{RuntimeArgs, runtime_away},
        rollout::text::table,
    },
    failure::{Exit, Failure},
    service,
    terminal::Terminal,
};

/// `palisade verify`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct VerifyArgs {
    /// Verify only this pod: NAMESPACE/NAME, or NAME in the namespace default
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub pod: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Which runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Release of the kubelet, v1.19 to v1.37 [default: v1.37 with Palisade's extensions]
    #[arg(long, value_name = "VERSION")]
    pub emulate_kubernetes: Option<Emulated>,
    /// Feature gates: AppArmor=false [default: SeccompConfigMaps=true]
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Output: human or json
    #[arg(long, short, value_enum, default_value_t = Format::Human, value_name = "FORMAT", hide_possible_values = true)]
    pub output: Format,
}

const AFTER_HELP: &str = "\
Exit status: 0 everything declared is enforced, 1 something is not, or a running container could not be compared, 2 no such pod or
wrong usage, 3 runtime or cluster unreachable.

Pods are read from the API server if --kubeconfig, --context or KUBECONFIG is set, otherwise from the annotations of the
pod sandboxes. A ConfigMap whose profile has changed since is only found with an API server.";

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// Runs the command.
pub fn run(args: &VerifyArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut compat = args.emulate_kubernetes.unwrap_or_default().0;
    // Profiles from ConfigMaps are verified unless the gate is set.
    compat.gates.seccomp_config_maps = true;
    let compat = FeatureGate::apply(&args.feature_gates, compat);
    let config = args.runtime.config(compat)?;
    let Verified { reports, unverified } = service::block_on(collect(args, &config))?;
    let text = match args.output {
        Format::Json => json_text(&reports, &unverified),
        Format::Human => human_text(&reports),
    };
    terminal.print(text)?;
    for container in &unverified {
        terminal.report(format!("error: {container}"));
    }
    let compared =
        reports.iter().flat_map(|report| &report.containers).any(|report| report.skipped.is_none());
    // A named pod must have been compared; a node may have no pods.
    let nothing = !compared && args.pod.is_some();
    let enforced = !reports.iter().any(PodReport::has_mismatch) && unverified.is_empty() && !nothing;
    Ok(if enforced { Exit::Clean } else { Exit::Findings })
}

/// What was compared, and what runs without having been.
#[derive(Debug, Default)]
struct Verified {
    reports: Vec<PodReport>,
    unverified: Vec<String>,
}

/// A container that the runtime runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RunningContainer {
    pod: PodKey,
    name: String,
    id: String,
}

/// The running containers that no comparison covers: those of unknown pods, those that a pod does not name, and
/// those whose process could not be read. `compared` holds the identity of the pod and the name of the container.
fn unverified(
    mut running: Vec<RunningContainer>,
    compared: &[(String, String)],
    known: &[PodKey],
) -> Vec<String> {
    let mut left = compared.to_vec();
    running.sort();
    let mut found = Vec::new();
    for container in running {
        let RunningContainer { pod, name, id } = container;
        // Of two containers with the same name only one was compared.
        if let Some(at) = left.iter().position(|(uid, compared)| *uid == pod.uid && *compared == name) {
            left.swap_remove(at);
            continue;
        }
        let short = id.get(..12).unwrap_or(&id);
        let of = format!("{}/{}", pod.namespace, pod.name);
        found.push(if pod.uid.is_empty() {
            format!("container {short} runs without a pod")
        } else if known.iter().any(|key| key.uid == pod.uid) {
            format!("container {name:?} ({short}) of pod {of} runs and could not be compared")
        } else {
            format!("container {name:?} ({short}) runs for pod {of}, which is not a known pod of this node")
        });
    }
    found
}

async fn running_containers(runtime: &Runtime) -> Result<Vec<RunningContainer>, RuntimeError> {
    let containers = runtime.list_containers(&[]).await?;
    let running = containers.into_iter().filter(|container| container.state() == ContainerState::Running);
    let read = running.map(|container| {
        let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
        RunningContainer {
            pod: PodKey {
                namespace: label(labels::POD_NAMESPACE),
                name: label(labels::POD_NAME),
                uid: label(labels::POD_UID),
            },
            name: label(labels::CONTAINER_NAME),
            id: container.id.clone(),
        }
    });
    Ok(read.collect())
}

async fn collect(args: &VerifyArgs, config: &NodeConfig) -> Result<Verified, Failure> {
    let runtime = Runtime::new(&config.runtime_endpoint, config.runtime_timeout).map_err(Failure::input)?;
    let no_answer =
        |error: RuntimeError| runtime_away(format!("the container runtime does not respond: {error}"));
    // A runtime that hangs is found out sooner by this than by a list.
    runtime.version().await.map_err(no_answer)?;
    let noted = declared_pods(&runtime).await.map_err(no_answer)?;
    let source = source(args, config).await?;
    let mut pods: Vec<RunPod> = match &source {
        None => {
            for (key, _) in noted.iter().filter(|(_, pod)| pod.is_none()) {
                tracing::warn!(pod = %key, "what this pod declares is only known to its API server");
            }
            noted.into_iter().filter_map(|(_, pod)| pod).collect()
        }
        Some(source) => {
            let all = source.list().await.map_err(|error| {
                Failure::incomplete(format!("cannot list the pods of this node: {error}"))
            })?;
            let here = |pod: &RunPod| noted.iter().any(|(key, _)| key.uid == pod.key.uid);
            all.into_iter().filter_map(|object| RunPod::from_object(object).ok()).filter(here).collect()
        }
    };
    if let Some(wanted) = &args.pod {
        let (namespace, name) = wanted.split_once('/').unwrap_or(("default", wanted));
        pods.retain(|pod| pod.key.namespace == namespace && pod.key.name == name);
        if pods.is_empty() {
            return Err(Failure::input(format!("no pod {namespace}/{name} runs on this node")));
        }
    }
    pods.sort_by(|a, b| a.key.cmp(&b.key));
    let mut reports = Vec::new();
    let mut compared = Vec::new();
    for pod in &pods {
        let api = source.as_ref().map(|source| source as &dyn PodSource);
        let report = verify_pod(config, &runtime, api, pod).await.map_err(no_answer)?;
        let done = report.containers.iter().filter(|container| container.skipped.is_none());
        compared.extend(done.map(|container| (pod.key.uid.clone(), container.container.clone())));
        reports.push(report);
    }
    let mut running = running_containers(&runtime).await.map_err(no_answer)?;
    let known: Vec<PodKey> = pods.iter().map(|pod| pod.key.clone()).collect();
    if args.pod.is_some() {
        running.retain(|container| known.iter().any(|key| key.uid == container.pod.uid));
    }
    Ok(Verified { reports, unverified: unverified(running, &compared, &known) })
}

/// The API server, if one was named.
async fn source(args: &VerifyArgs, config: &NodeConfig) -> Result<Option<KubeSource>, ClusterError> {
    let named = args.cluster.kubeconfig.is_some()
        || args.cluster.context.is_some()
        || std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
    if !named {
        return Ok(None);
    }
    let cluster = args.cluster.connect().await?;
    // Its own errors do not name the address.
    cluster.compat().await?;
    Ok(Some(KubeSource::new(cluster.client, &config.node_name)))
}

fn json_text(reports: &[PodReport], unverified: &[String]) -> String {
    let mismatches = reports.iter().filter(|report| report.has_mismatch()).count();
    let stale = reports.iter().flat_map(|report| &report.containers).filter(|c| c.stale_profile.is_some());
    let summary = json!({"pods": reports.len(), "mismatches": mismatches, "stale": stale.count(),
        "unverified": unverified.len()});
    let value: Value = json!({"pods": reports, "unverified": unverified, "summary": summary});
    format!("{value:#}\n")
}

/// The table of one or more pods.
#[must_use]
pub fn human_text(reports: &[PodReport]) -> String {
    let header = ["POD", "CONTAINER", "CHECK", "DECLARED", "KERNEL", "VERDICT"].map(str::to_owned);
    let rows: Vec<[String; 6]> = reports.iter().flat_map(PodReport::lines).collect();
    if rows.is_empty() {
        return "nothing was compared: no known pod of this node has running containers\n".to_owned();
    }
    let mut text = String::new();
    table(&header, &rows, &mut text);
    format!("{text}\n{}\n", summary(reports))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_running_container_is_compared_or_reported() {
        let key =
            |uid: &str, name: &str| PodKey { namespace: "shop".into(), name: name.into(), uid: uid.into() };
        let running = |uid: &str, name: &str, id: &str| RunningContainer {
            pod: key(uid, "web"),
            name: name.into(),
            id: id.into(),
        };
        let compared = [("1".to_owned(), "c".to_owned())];
        for (case, containers, expected) in [
            ("compared", vec![running("1", "c", "aa")], &[][..]),
            ("nothing runs", vec![], &[]),
            (
                "twice, and one of them compared",
                vec![running("1", "c", "aa"), running("1", "c", "bb")],
                &["container \"c\" (bb) of pod shop/web runs and could not be compared"],
            ),
            (
                "another node's pod",
                vec![running("2", "c", "0123456789abcdef")],
                &[
                    "container \"c\" (0123456789ab) runs for pod shop/web, which is not a known pod of this node",
                ],
            ),
            ("without a pod", vec![running("", "", "aa")], &["container aa runs without a pod"]),
        ] {
            assert_eq!(unverified(containers, &compared, &[key("1", "web")]), expected, "{case}");
        }
    }
}
