//! `palisade verify`: declared security against what the kernel enforces, for running containers of this machine.
//!
//! What a pod declares comes from the API server where a cluster is named, and otherwise from what the node wrote down
//! at the runtime when it made the pod. The comparison is `palisade_node::verify`'s.

use std::io::Write as _;

use clap::{Args, ValueEnum};
use palisade_node::{
    api::{PodSource, kube::KubeSource},
    cri::client::Runtime,
    node::NodeConfig,
    pod::RunPod,
    verify::{PodReport, declared_pods, summary, verify_pod},
};
use serde_json::{Value, json};

use crate::{
    Exit,
    args::{Emulated, FeatureGate},
    cluster::ClusterArgs,
    commands::{
        node::{RuntimeArgs, runtime_away},
        rollout::text::table,
    },
    service::{self, fail},
    terminal::Terminal,
};

/// `palisade verify`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct VerifyArgs {
    /// Only this pod, as NAMESPACE/NAME; default/ may be left out
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub pod: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Which runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// The kubelet behaves as this release, v1.19 to v1.37 [default: the designs]
    #[arg(long, value_name = "VERSION")]
    pub emulate_kubernetes: Option<Emulated>,
    /// Switches of the designs: AppArmor=false [default: SeccompConfigMaps=true]
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Output: human or json
    #[arg(long, short, value_enum, default_value_t = Format::Human, value_name = "FORMAT", hide_possible_values = true)]
    pub output: Format,
}

const AFTER_HELP: &str = "\
Exit status: 0 everything declared is enforced, 1 something is not, 2 no such pod or wrong usage, 3 the runtime or the cluster
does not answer.

Pods come from the API server if --kubeconfig, --context or KUBECONFIG names one, otherwise from what the node noted at the
runtime. Only the API server knows whether a ConfigMap holds another profile by now.";

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// Runs the command.
pub fn run(args: &VerifyArgs, terminal: &mut Terminal) -> Exit {
    let mut compat = args.emulate_kubernetes.unwrap_or_default().0;
    // Whoever looks wants to see profiles from ConfigMaps for what they are, unless the gate is named.
    compat.gates.seccomp_config_maps = true;
    let compat = FeatureGate::apply(&args.feature_gates, compat);
    let config = match args.runtime.config(compat) {
        Ok(config) => config,
        Err(why) => return fail(terminal, &why, Exit::Input),
    };
    let mut reports = Vec::new();
    let exit = service::ask(terminal, async {
        match collect(args, &config).await {
            Ok(found) => {
                reports = found;
                Exit::Clean
            }
            Err((why, exit)) => fail(terminal, &why, exit),
        }
    });
    if exit != Exit::Clean {
        return exit;
    }
    let text = match args.output {
        Format::Json => json_text(&reports),
        Format::Human => human_text(&reports),
    };
    if let Err(error) = terminal.out.write_all(text.as_bytes()).and_then(|()| terminal.out.flush()) {
        return terminal.cannot_write(&error);
    }
    if reports.iter().any(PodReport::has_mismatch) { Exit::Findings } else { Exit::Clean }
}

async fn collect(args: &VerifyArgs, config: &NodeConfig) -> Result<Vec<PodReport>, (String, Exit)> {
    let runtime = Runtime::new(&config.runtime_endpoint, config.runtime_timeout)
        .map_err(|error| (error.to_string(), Exit::Input))?;
    let no_answer = |error: palisade_node::cri::client::RuntimeError| {
        (runtime_away(&format!("the container runtime does not answer: {error}")), Exit::Incomplete)
    };
    // A runtime that hangs is found out sooner by this than by a list.
    runtime.version().await.map_err(no_answer)?;
    let noted = declared_pods(&runtime).await.map_err(no_answer)?;
    let source = source(args, config).await.map_err(|why| (why, Exit::Incomplete))?;
    let mut pods: Vec<RunPod> = match &source {
        None => {
            for (key, _) in noted.iter().filter(|(_, pod)| pod.is_none()) {
                tracing::warn!(pod = %key, "only its API server knows what it declares");
            }
            noted.into_iter().filter_map(|(_, pod)| pod).collect()
        }
        Some(source) => {
            let all = source
                .list()
                .await
                .map_err(|error| (format!("the API server does not answer: {error}"), Exit::Incomplete))?;
            let here = |pod: &RunPod| noted.iter().any(|(key, _)| key.uid == pod.key.uid);
            all.into_iter().filter_map(|object| RunPod::from_object(object).ok()).filter(here).collect()
        }
    };
    if let Some(wanted) = &args.pod {
        let (namespace, name) = wanted.split_once('/').unwrap_or(("default", wanted));
        pods.retain(|pod| pod.key.namespace == namespace && pod.key.name == name);
        if pods.is_empty() {
            return Err((format!("no pod {namespace}/{name} runs here"), Exit::Input));
        }
    }
    pods.sort_by(|a, b| a.key.cmp(&b.key));
    let mut reports = Vec::new();
    for pod in &pods {
        let api = source.as_ref().map(|source| source as &dyn PodSource);
        reports.push(verify_pod(config, &runtime, api, pod).await.map_err(no_answer)?);
    }
    Ok(reports)
}

/// The API server, if one was named.
async fn source(args: &VerifyArgs, config: &NodeConfig) -> Result<Option<KubeSource>, String> {
    let named = args.cluster.kubeconfig.is_some()
        || args.cluster.context.is_some()
        || std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
    if !named {
        return Ok(None);
    }
    Ok(Some(KubeSource::new(args.cluster.connect().await?, &config.node_name)))
}

fn json_text(reports: &[PodReport]) -> String {
    let mismatches = reports.iter().filter(|report| report.has_mismatch()).count();
    let stale = reports.iter().flat_map(|report| &report.containers).filter(|c| c.stale_profile.is_some());
    let value: Value = json!({"pods": reports,
        "summary": {"pods": reports.len(), "mismatches": mismatches, "stale": stale.count()}});
    format!("{value:#}\n")
}

/// The table of one or more pods.
#[must_use]
pub fn human_text(reports: &[PodReport]) -> String {
    let header = ["POD", "CONTAINER", "CHECK", "DECLARED", "KERNEL", "VERDICT"].map(str::to_owned);
    let rows: Vec<[String; 6]> = reports.iter().flat_map(PodReport::lines).collect();
    if rows.is_empty() {
        return "no pods run here\n".to_owned();
    }
    let mut text = String::new();
    table(&header, &rows, &mut text);
    format!("{text}\n{}\n", summary(reports))
}
