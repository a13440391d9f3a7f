//! `palisade verify`: declared security against what the kernel enforces, for running containers of this machine.
//!
//! What a pod declares comes from the API server where a cluster is named, and otherwise from what the node wrote down
//! at the runtime when it made the pod. The comparison is `palisade_node::verify`'s. With `--can` nothing is compared: the filters
//! of running containers are read back from the kernel and evaluated for a system call (`palisade_node::reach`).

mod can;

use clap::{Args, ValueEnum};
use palisade_model::{compat::Compat, profile::call_pattern::CallPattern, server_version::kubelet_of};
use palisade_node::{
    api::{PodSource, kube::KubeSource},
    cri::client::{Runtime, RuntimeError},
    node::NodeConfig,
    pod::RunPod,
    verify::{ContainerReport, PodReport, declared_pods, summary, unverified_containers, verify_pod},
};
use serde_json::{Value, json};

use crate::{
    args::{Emulated, FeatureGate},
    cluster::ClusterArgs,
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
    /// Find out whether containers can make a system call, such as 'socket(AF_ALG, *, *)', from the seccomp filters that the kernel has
    #[arg(long, value_name = "CALL", value_parser = CallPattern::parse)]
    pub can: Option<CallPattern>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Which runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Release of the kubelet, v1.19 to v1.37 [default: that of the node, and without an API server v1.37 with Palisade's
    /// extensions]
    #[arg(long, value_name = "VERSION")]
    pub emulate_kubernetes: Option<Emulated>,
    /// Feature gates: AppArmor=false [default: SeccompConfigMaps=true,SecurityProfileOCIArtifact=true]
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Output: human or json
    #[arg(long, short, value_enum, default_value_t = Format::Human, value_name = "FORMAT", hide_possible_values = true)]
    pub output: Format,
}

const AFTER_HELP: &str = "\
Exit status: 0 everything declared is enforced, 1 something is not, or a running container could not be compared, 2 no such pod or
wrong usage, 3 runtime or cluster unreachable.

With --can: 0 no container can make the call, 1 one can, or it is undecided. An argument is a number, a constant (AF_*, SOCK_*, CLONE_*,
PR_* and others), several of them joined with |, * for any value, &FLAGS for any value with these bits, or VALUE/MASK. Seccomp alone is
evaluated: capabilities and Linux security modules may deny the call as well. Root without a seccomp filter of its own is required.

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
    let config = args.runtime.config(gated(args, args.emulate_kubernetes.unwrap_or_default().0))?;
    if let Some(pattern) = &args.can {
        return can::run(args, &config, pattern, terminal);
    }
    let Verified { reports, unverified } = service::block_on(collect(args, config))?;
    let text = match args.output {
        Format::Json => json_text(&reports, &unverified),
        Format::Human => human_text(&reports, unverified.len()),
    };
    terminal.print(text)?;
    for container in &unverified {
        terminal.report(format!("error: {container}"));
    }
    let compared = reports.iter().flat_map(|report| &report.containers).any(ContainerReport::is_compared);
    // A named pod must have been compared; a node may have no pods.
    let nothing = !compared && args.pod.is_some();
    let enforced = reports.iter().all(PodReport::is_enforced) && unverified.is_empty() && !nothing;
    Ok(if enforced { Exit::Clean } else { Exit::Findings })
}

/// Profiles from ConfigMaps and registries are verified unless their gates are set.
fn gated(args: &VerifyArgs, mut compat: Compat) -> Compat {
    compat.gates.seccomp_config_maps = true;
    compat.gates.security_profile_oci_artifact = true;
    FeatureGate::apply(&args.feature_gates, compat)
}

/// What was compared, and what runs without having been.
#[derive(Debug, Default)]
struct Verified {
    reports: Vec<PodReport>,
    unverified: Vec<String>,
}

async fn collect(args: &VerifyArgs, mut config: NodeConfig) -> Result<Verified, Failure> {
    let runtime = Runtime::new(&config.runtime_endpoint, config.runtime_timeout).map_err(Failure::input)?;
    let no_answer =
        |error: RuntimeError| runtime_away(format!("the container runtime does not respond: {error}"));
    // A runtime that hangs is found out sooner by this than by a list.
    runtime.version().await.map_err(no_answer)?;
    let noted = declared_pods(&runtime).await.map_err(no_answer)?;
    let source = source(args, &mut config).await?;
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
            // swallowed: the containers of such a pod are reported as not compared
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
    for pod in &pods {
        let api = source.as_ref().map(|source| source as &dyn PodSource);
        reports.push(verify_pod(&config, &runtime, api, pod).await.map_err(no_answer)?);
    }
    let known: Vec<_> = pods.iter().map(|pod| &pod.key).zip(&reports).collect();
    let mut unverified = unverified_containers(&runtime, &known).await.map_err(no_answer)?;
    if args.pod.is_some() {
        unverified.retain(|(of, _)| known.iter().any(|(key, _)| key.uid == of.uid));
    }
    let unverified = unverified.into_iter().map(|(_, text)| text).collect();
    Ok(Verified { reports, unverified })
}

/// The API server, if one was named. It reports its own release and that of the node's kubelet, which decide what a pod declares.
async fn source(args: &VerifyArgs, config: &mut NodeConfig) -> Result<Option<KubeSource>, Failure> {
    let named = args.cluster.kubeconfig.is_some()
        || args.cluster.context.is_some()
        || std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
    if !named {
        return Ok(None);
    }
    let cluster = args.cluster.connect().await?;
    let server = cluster.compat().await?;
    let source = KubeSource::new(cluster.client, &config.node_name);
    if args.emulate_kubernetes.is_none() {
        let node = source.read_node(&config.node_name).await.map_err(|error| {
            Failure::incomplete(format!("cannot read Node {:?}: {error}", config.node_name))
        })?;
        let seccomp_default = config.compat.seccomp_default;
        config.compat = gated(args, Compat { seccomp_default, ..on_node(server, node.as_ref()) });
    }
    Ok(Some(source))
}

/// Whose rules decide about the pods of a node: those of the API server, and of the kubelet that the Node reports.
fn on_node(server: Compat, node: Option<&Value>) -> Compat {
    let version = node.and_then(|node| node.pointer("/status/nodeInfo/kubeletVersion"));
    let kubelet = version.and_then(Value::as_str).and_then(kubelet_of).unwrap_or(server.kubelet);
    Compat { kubelet, ..server }
}

fn json_text(reports: &[PodReport], unverified: &[String]) -> String {
    let mismatches = reports.iter().filter(|report| report.has_mismatch()).count();
    let stale = reports.iter().flat_map(|report| &report.containers).filter(|c| c.stale_profile.is_some());
    let summary = json!({"pods": reports.len(), "mismatches": mismatches, "stale": stale.count(),
        "unverified": unverified.len()});
    let value: Value = json!({"pods": reports, "unverified": unverified, "summary": summary});
    format!("{value:#}\n")
}

/// The table of one or more pods, and a summary with the number of containers that were not compared.
#[must_use]
pub fn human_text(reports: &[PodReport], unverified: usize) -> String {
    let header = ["POD", "CONTAINER", "CHECK", "DECLARED", "KERNEL", "VERDICT"].map(str::to_owned);
    let rows: Vec<[String; 6]> = reports.iter().flat_map(PodReport::lines).collect();
    if rows.is_empty() {
        return "nothing was compared: no known pod of this node has running containers\n".to_owned();
    }
    let mut text = String::new();
    table(&header, &rows, &mut text);
    format!("{text}\n{}\n", summary(reports, unverified))
}

#[cfg(test)]
mod tests {
    use palisade_base::version::KubeVersion;

    use super::*;

    #[test]
    fn the_kubelet_of_the_node_decides_what_its_pods_declare() {
        let server = Compat::kubernetes(27);
        for (case, node, expected) in [
            ("no such node", None, server.kubelet),
            ("before its first status", Some(json!({"metadata": {"name": "n"}})), server.kubelet),
            (
                "an older kubelet, which reads AppArmor annotations",
                Some(json!({"status": {"nodeInfo": {"kubeletVersion": "v1.24.17"}}})),
                KubeVersion::Release { minor: 24, patch: 17 },
            ),
        ] {
            let compat = on_node(server, node.as_ref());
            assert_eq!((compat.kubelet, compat.api), (expected, server.api), "{case}");
        }
    }
}
