//! `palisade run`: one pod on the local runtime, without any API server, and what the kernel really enforces.
//!
//! The pod goes through the same worker as in a cluster (`palisade_node::run`); here manifests are read, the result is
//! shown, and everything is cleaned up.

use std::{io::Write as _, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use futures::StreamExt as _;
use palisade_node::{
    logs::{LogOptions, container_logs},
    run::{RunError, RunOutcome, RunReport, RunningPod},
};
use palisade_yaml::{Limits, parse};
use serde_json::{Value, json};

use crate::{
    Exit,
    args::{Emulated, FeatureGate},
    commands::{
        node::{RuntimeArgs, need_root, runtime_away},
        verify::{Format, human_text},
    },
    input::Input,
    judge::decode,
    manifest,
    service::{self, fail, stopped},
    terminal::Terminal,
};

/// `palisade run`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RunArgs {
    /// Manifests: one pod, and the ConfigMaps and Secrets it refers to; - for stdin
    #[arg(long, short = 'f', required = true, value_name = "FILE")]
    pub filename: Vec<PathBuf>,
    /// Which runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Behave exactly as the kubelet of this release, v1.19 to v1.37 [default: the designs]
    #[arg(long, value_name = "VERSION")]
    pub emulate_kubernetes: Option<Emulated>,
    /// Switches of the designs: AppArmor=false [default: SeccompConfigMaps=true]
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Seconds the pod may take until it runs
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
    /// Go on after the report: print the log as it grows until the pod ends or Ctrl-C
    #[arg(long)]
    pub follow: bool,
    /// Output: human or json
    #[arg(long, short, value_enum, default_value_t = Format::Human, value_name = "FORMAT", hide_possible_values = true)]
    pub output: Format,
}

const AFTER_HELP: &str = "\
The pod is started, compared with what the kernel says about its processes, shown with its log, and removed again.

Exit status: 0 it ran and everything declared is enforced, 1 it failed, did not start, or something is not enforced,
2 the manifest cannot be used, 3 the runtime does not answer.";

/// How long a pod runs at least before it is looked at.
const MOMENT: Duration = Duration::from_millis(500);

/// Runs the command.
pub fn run(args: &RunArgs, terminal: &mut Terminal) -> Exit {
    let (pod, objects) = match read(&args.filename) {
        Ok(read) => read,
        Err(why) => return fail(terminal, &why, Exit::Input),
    };
    let mut compat = args.emulate_kubernetes.unwrap_or_default().0;
    // There is nobody here whom the gate could protect: who runs the pod brought the ConfigMap.
    compat.gates.seccomp_config_maps |= compat.is_designs();
    let compat = FeatureGate::apply(&args.feature_gates, compat);
    let config = match args.runtime.config(compat) {
        Ok(config) => config,
        Err(why) => return fail(terminal, &why, Exit::Input),
    };
    if let Err(why) = need_root() {
        return fail(terminal, &why, Exit::Incomplete);
    }
    for warning in config.warnings() {
        terminal.say(format!("warning: {warning}"));
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(terminal, &format!("cannot start: {error}"), Exit::Incomplete),
    };
    service::log_to_stderr(terminal);
    runtime.block_on(async {
        if let Err(why) = args.runtime.load_profiles().await {
            return fail(terminal, &why, Exit::Incomplete);
        }
        let running = match RunningPod::start(config, pod, &objects).await {
            Ok(running) => running,
            Err(error @ RunError::Runtime(_)) => {
                return fail(terminal, &runtime_away(&error.to_string()), Exit::Incomplete);
            }
            Err(error) => return fail(terminal, &error.to_string(), Exit::Input),
        };
        for warning in &running.warnings {
            terminal.say(format!("warning: {warning}"));
        }
        let exit = show(args, &running, terminal).await;
        running.stop(None).await;
        exit
    })
}

async fn show(args: &RunArgs, running: &RunningPod, terminal: &mut Terminal) -> Exit {
    tokio::select! {
        _ = running.settled(Duration::from_secs(args.timeout)) => {}
        () = stopped() => return fail(terminal, "stopped before the pod ran", Exit::Incomplete),
    }
    if !args.follow {
        // A moment, so that its log has something to say.
        tokio::time::sleep(MOMENT).await;
    }
    let report = match running.report().await {
        Ok(report) => report,
        Err(error) => return fail(terminal, &error.to_string(), Exit::Incomplete),
    };
    let written = match args.output {
        Format::Json => print_json(running, &report, terminal).await,
        Format::Human => print_human(args, running, &report, terminal).await,
    };
    if let Err(error) = written {
        return terminal.cannot_write(&error);
    }
    let outcome = if args.follow { running.outcome() } else { report.outcome };
    let ran = matches!(outcome, RunOutcome::Running | RunOutcome::Succeeded);
    if ran && !report.verified.has_mismatch() { Exit::Clean } else { Exit::Findings }
}

async fn print_human(
    args: &RunArgs,
    running: &RunningPod,
    report: &RunReport,
    terminal: &mut Terminal,
) -> std::io::Result<()> {
    let key = &running.pod.key;
    for event in report.events.iter().filter(|event| event.kind.as_str() == "Warning") {
        terminal.say(format!("{} {}: {}", event.kind.as_str(), event.reason, event.message));
    }
    let out = &mut terminal.out;
    write_state(out, running, &report.status)?;
    // Where nothing runs, why it does not was just said.
    if report.verified.containers.iter().any(|container| container.skipped.is_none()) {
        writeln!(out, "\n{}", human_text(std::slice::from_ref(&report.verified)).trim_end())?;
    }
    out.flush()?;
    let several = running.pod.containers().count() > 1;
    for (_, container) in running.pod.containers() {
        let name = &container.name;
        let options = LogOptions { follow: args.follow && !several, ..LogOptions::default() };
        let node = running.node();
        let opened = container_logs(&node.config, Some(node.runtime.clone()), key, name, options);
        let Ok(mut pieces) = opened else { continue };
        let mut heading = true;
        loop {
            tokio::select! {
                piece = pieces.next() => match piece {
                    Some(Ok(piece)) => {
                        if std::mem::take(&mut heading) && !piece.is_empty() {
                            writeln!(out, "\nlog of {name}:")?;
                        }
                        out.write_all(&piece)?;
                        out.flush()?;
                    }
                    Some(Err(_)) | None => break,
                },
                () = stopped() => return Ok(()),
            }
        }
    }
    if args.follow {
        tokio::select! {
            _ = running.finished() => {}
            () = stopped() => {}
        }
        writeln!(out)?;
        write_state(out, running, &running.status())?;
    }
    Ok(())
}

fn write_state(out: &mut impl std::io::Write, running: &RunningPod, status: &Value) -> std::io::Result<()> {
    let key = &running.pod.key;
    let phase = status.get("phase").and_then(Value::as_str).unwrap_or("Unknown");
    writeln!(out, "pod {}/{} is {phase}", key.namespace, key.name)?;
    for line in waits(status) {
        writeln!(out, "  {line}")?;
    }
    out.flush()
}

/// What containers wait for, or how they ended.
fn waits(status: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let text =
        |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    if let (reason, message) = (text(status, "reason"), text(status, "message"))
        && !reason.is_empty()
    {
        lines.push(format!("{reason}: {message}"));
    }
    for list in ["initContainerStatuses", "containerStatuses"] {
        for container in status.get(list).and_then(Value::as_array).into_iter().flatten() {
            let name = text(container, "name");
            for (path, what) in [
                ("/state/waiting", "waits"),
                ("/state/terminated", "ended"),
                ("/lastState/terminated", "last ended"),
            ] {
                let Some(state) = container.pointer(path) else { continue };
                let code =
                    state.get("exitCode").map(|code| format!(" with exit code {code}")).unwrap_or_default();
                let message = text(state, "message");
                let message = if message.is_empty() { message } else { format!(": {}", message.trim_end()) };
                lines.push(format!("{name} {what}{code}: {}{message}", text(state, "reason")));
            }
        }
    }
    lines
}

async fn print_json(
    running: &RunningPod,
    report: &RunReport,
    terminal: &mut Terminal,
) -> std::io::Result<()> {
    let mut logs = serde_json::Map::new();
    let node = running.node();
    for (_, container) in running.pod.containers() {
        let opened =
            container_logs(&node.config, None, &running.pod.key, &container.name, LogOptions::default());
        let Ok(pieces) = opened else { continue };
        let pieces: Vec<_> = pieces.filter_map(|piece| async { piece.ok() }).collect().await;
        logs.insert(container.name.clone(), String::from_utf8_lossy(&pieces.concat()).into_owned().into());
    }
    let events: Vec<Value> = report
        .events
        .iter()
        .map(|event| {
            json!({"type": event.kind.as_str(), "reason": event.reason, "message": event.message,
                "count": event.count, "fieldPath": event.field_path})
        })
        .collect();
    let key = &running.pod.key;
    let value = json!({"namespace": key.namespace, "name": key.name, "status": report.status, "events": events,
        "kernel": report.verified, "logs": logs, "enforced": !report.verified.has_mismatch()});
    writeln!(terminal.out, "{value:#}")?;
    terminal.out.flush()
}

/// The pod of the manifests, and everything else in them.
fn read(files: &[PathBuf]) -> Result<(Value, Vec<Value>), String> {
    let mut pods = Vec::new();
    let mut others = Vec::new();
    for file in files {
        let input = if file.as_os_str() == "-" { Input::Stdin } else { Input::File(file.clone()) };
        let name: Arc<str> = input.name();
        let bytes = input.read().map_err(|problem| problem.summary.clone())?;
        let text = decode(&name, &bytes).map_err(|problem| problem.summary.clone())?;
        let parsed = parse(&text, &Limits::default());
        if let Some(error) = parsed.errors.first() {
            return Err(format!("{name}: {error}"));
        }
        for document in &parsed.documents {
            for object in manifest::objects(document) {
                let mut value = object.node.to_json().map_err(|error| format!("{name}: {error}"))?;
                if let Value::Object(fields) = &mut value {
                    fields.insert("kind".to_owned(), object.kind.into());
                }
                if object.kind == "Pod" { pods.push(value) } else { others.push(value) }
            }
        }
    }
    if pods.len() > 1 {
        return Err(format!("there are {} pods in the manifests: run one at a time", pods.len()));
    }
    let pod = pods
        .pop()
        .ok_or("there is no pod in the manifests: of a Deployment, run its pod template as a Pod")?;
    Ok((pod, others))
}
