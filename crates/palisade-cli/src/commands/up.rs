//! `palisade up`: the embedded API server, until it is told to stop.
//!
//! The server itself is `palisade-apiserver`; here its options are read, its place is announced, and its Pod Security
//! configuration is kept up to date with its file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use palisade_admission::configuration::PodSecurityConfiguration;
use palisade_apiserver::{Server, pod_security::PodSecurityPlugin, server::SnapshotReport};
use palisade_controllers::{
    config_observer,
    runner::{Options, ROLLOUT},
};
use palisade_model::compat::Compat;
use palisade_node::{kubelet, node::NodeConfig};
use palisade_policy::standards::policy::{Exemptions, Policy};
use palisade_serve::file_watch;
use palisade_yaml::{Limits, parse};
use serde_json::Value;

use crate::{
    Exit,
    args::{Emulated, FeatureGate, UpArgs},
    commands::{
        node::{self, NodeLogs},
        openshift::Rollout,
    },
    service::{self, fail, stopped, with_causes},
    terminal::Terminal,
};

/// Serves until interrupted.
#[must_use]
pub fn run(args: &UpArgs, terminal: &Terminal) -> Exit {
    service::run(terminal, serve(args, terminal))
}

async fn serve(args: &UpArgs, terminal: &Terminal) -> Exit {
    if args.runtime.is_given() && !args.node {
        return fail(terminal, "the options of a node need --node", Exit::Input);
    }
    if args.rollout.is_given() && !args.openshift {
        return fail(terminal, "the options of the rollout need --openshift", Exit::Input);
    }
    let rollout = match args.rollout.options(&args.feature_gates, &ROLLOUT) {
        Ok(options) => options,
        Err(why) => return fail(terminal, &why, Exit::Input),
    };
    let follows = rollout.controllers.contains(config_observer::apply::NAME);
    if args.openshift && follows && args.admission_config.is_some() {
        let why = "the config observer writes the configuration of Pod Security: leave --admission-config out, or \
                   name --controllers without config-observer";
        return fail(terminal, why, Exit::Input);
    }
    let compat = FeatureGate::apply(&args.feature_gates, args.emulate_kubernetes.unwrap_or_default().0);
    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(|| PathBuf::from("palisade.kubeconfig"));
    let mut builder = Server::builder().listen(args.listen).kubeconfig(&kubeconfig);
    if let Some(Emulated(emulated)) = args.emulate_kubernetes {
        builder = builder.version(emulated.api);
    }
    builder = builder.compat(compat).disable_plugins(args.disable_admission_plugins.iter().cloned());
    builder = builder.openshift(args.openshift).enable_plugins(args.enable_admission_plugins.iter().cloned());
    if let Some(directory) = &args.data_dir {
        builder = builder.data_dir(directory);
    }
    if let Some(file) = &args.audit_log {
        builder = builder.audit_log(file);
    }
    for file in &args.snapshot {
        builder = builder.snapshot(file);
    }
    if let Some(file) = &args.admission_config {
        match read_configuration(file) {
            Ok((defaults, exemptions)) => builder = builder.pod_security(defaults, exemptions),
            Err(why) => return fail(terminal, &why, Exit::Input),
        }
    }
    let node = match node_config(args, compat) {
        Ok(node) => node,
        Err((why, exit)) => return fail(terminal, &why, exit),
    };
    if let Some(config) = &node {
        if let Err(why) = args.runtime.load_profiles().await {
            return fail(terminal, &why, Exit::Incomplete);
        }
        match NodeLogs::new(config.clone()) {
            Ok(logs) => builder = builder.log_source(Arc::new(logs)),
            Err(error) => return fail(terminal, &error.to_string(), Exit::Input),
        }
    }
    let server = match builder.start().await {
        Ok(server) => server,
        Err(error) => return fail(terminal, &with_causes(&error), Exit::Incomplete),
    };
    for report in &server.snapshots {
        report_snapshot(report, terminal);
    }
    report_set_aside(&server, terminal);
    let rollout = Options { compat: Some(compat), ..rollout };
    let rollout = if args.openshift {
        // Without an observer in this process there may be one elsewhere, unless a file decides.
        Some(Rollout::start(&server, rollout, args.admission_config.is_none()).await)
    } else {
        None
    };
    let shown =
        args.emulate_kubernetes.map_or_else(|| "the designs".to_owned(), |version| version.to_string());
    let announced = format!(
        "palisade is up on {}, speaking {shown}\n\n  export KUBECONFIG={}\n  kubectl label --overwrite namespace default \
         pod-security.kubernetes.io/enforce=restricted\n  kubectl run web --image=nginx --privileged --dry-run=server  # rejected\n\n\
         Stop it with Ctrl-C.\n",
        server.url(),
        absolute(&kubeconfig).display()
    );
    terminal.say_text(&announced);
    let reloading =
        args.admission_config.clone().map(|file| tokio::spawn(reload(file, server.api.pod_security.clone())));
    let client = kube::Client::new(server.router(), "default");
    let scheduling = tokio::spawn(palisade_controllers::scheduler::run(client.clone()));
    match node.map(|config| node::node(config, client)) {
        None => stopped().await,
        Some(Err(error)) => return fail(terminal, &error.to_string(), Exit::Input),
        Some(Ok(node)) => {
            let (name, endpoint) = (&node.config.node_name, &node.config.runtime_endpoint);
            terminal.say(format!("Node {name} runs pods on {endpoint}."));
            kubelet::run(node.clone(), stopped()).await;
            if args.data_dir.is_none() {
                // Nobody will know of these pods any more.
                terminal.say("stopping the pods of the node");
                kubelet::remove_pods(&node).await;
            }
        }
    }
    scheduling.abort();
    if let Some(rollout) = rollout {
        rollout.stop().await;
    }
    if let Some(task) = reloading {
        task.abort();
    }
    server.shutdown().await;
    Exit::Clean
}

/// Prints what of a snapshot is not there; nothing is left out silently.
fn report_snapshot(report: &SnapshotReport, terminal: &Terminal) {
    if report.is_complete() {
        return;
    }
    let path = report.path.display();
    for ((api_version, kind), count) in &report.unserved {
        terminal.say(format!("{path}: not loaded: {count} of {kind} ({api_version}), which is not served"));
    }
    for why in &report.rejected {
        terminal.say(format!("{path}: not loaded: {why}"));
    }
}

/// Prints how many records of the data directory cannot be read.
fn report_set_aside(server: &Server, terminal: &Terminal) {
    let records = server.api.store.set_aside();
    if !records.is_empty() {
        terminal.say(format!(
            "{} records of the data directory cannot be read and are set aside; list them with: kubectl get --raw \
             /palisade/set-aside",
            records.len()
        ));
    }
}

/// The settings of the node, if one is wanted, or why there can be none.
fn node_config(args: &UpArgs, compat: Compat) -> Result<Option<NodeConfig>, (String, Exit)> {
    if !args.node {
        return Ok(None);
    }
    let config = args.runtime.config(compat).map_err(|why| (why, Exit::Input))?;
    node::need_root().map_err(|why| (why, Exit::Incomplete))?;
    Ok(Some(config))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Reads a `PodSecurityConfiguration` from a file.
fn read_configuration(file: &Path) -> Result<(Policy, Exemptions), String> {
    let fail = |why: String| format!("{}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| fail(error.to_string()))?;
    let value = pod_security_configuration(&text).map_err(fail)?;
    let configuration: PodSecurityConfiguration =
        serde_json::from_value(value).map_err(|error| fail(error.to_string()))?;
    configuration.resolve().map_err(|error| fail(error.to_string()))
}

/// The `PodSecurityConfiguration` in a text, bare or inside an `AdmissionConfiguration`.
pub fn pod_security_configuration(text: &str) -> Result<Value, String> {
    let parsed = parse(text, &Limits::default());
    if let Some(error) = parsed.errors.first() {
        return Err(error.to_string());
    }
    let document = parsed.documents.first().ok_or_else(|| "there is no document in it".to_owned())?;
    let value = document.root().to_json().map_err(|error| error.to_string())?;
    if value.get("kind").and_then(Value::as_str) != Some("AdmissionConfiguration") {
        return Ok(value);
    }
    let plugins = value.get("plugins").and_then(Value::as_array);
    let own = plugins
        .into_iter()
        .flatten()
        .find(|plugin| plugin.get("name").and_then(Value::as_str) == Some("PodSecurity"));
    own.and_then(|plugin| plugin.get("configuration"))
        .cloned()
        .ok_or_else(|| "it configures no PodSecurity plugin".to_owned())
}

/// Applies the file again whenever it changes; a file that cannot be read changes nothing and is reported.
async fn reload(file: PathBuf, plugin: Arc<PodSecurityPlugin>) {
    file_watch::follow(std::slice::from_ref(&file), || {
        match read_configuration(&file) {
            Ok((defaults, exemptions)) => {
                plugin.configure(defaults, exemptions);
                tracing::info!(file = %file.display(), "Pod Security configuration applied");
            }
            Err(why) => {
                tracing::error!(why, "Pod Security configuration not applied; the last one stays in force");
            }
        }
        true
    })
    .await;
}
