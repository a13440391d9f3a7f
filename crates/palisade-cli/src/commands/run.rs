//! `palisade run`: one pod on the local runtime, without any API server, and what the kernel really enforces.
//!
//! The pod goes through the same worker as in a cluster (`palisade_node::run`); here manifests are read, the result is
//! shown, and everything is cleaned up.

use std::{io::Write as _, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use futures::StreamExt as _;
use palisade_model::compat::Compat;
use palisade_node::{
    logs::{LogOptions, container_logs},
    profiles::baseline::Bounds,
    run::{RunError, RunOutcome, RunReport, RunningPod},
    verify::{ContainerReport, PodReport},
};
use palisade_policy::standards::level::LevelVersion;
use palisade_yaml::{Limits, parse};
use serde_json::{Value, json};

use crate::{
    args::{Emulated, FeatureGate},
    commands::{
        node::{RuntimeArgs, need_root, runtime_away},
        recording::RecordingFiles,
        verify::{Format, human_text},
    },
    diagnostic::Severity,
    failure::{Exit, Failure},
    input::Input,
    judge::{Settings, decode, judge_text},
    manifest,
    service::{self, stopped},
    terminal::Terminal,
};

/// `palisade run`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RunArgs {
    /// Manifests: one pod, the ConfigMaps and Secrets it refers to, and SyscallGuards; - for stdin
    #[arg(long, short = 'f', required = true, value_name = "FILE")]
    pub filename: Vec<PathBuf>,
    /// Which runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Behave exactly as the kubelet of this release, v1.19 to v1.37 [default: v1.37 with Palisade's extensions]
    #[arg(long, value_name = "VERSION")]
    pub emulate_kubernetes: Option<Emulated>,
    /// Feature gates: AppArmor=false [default: SeccompConfigMaps=true,SecurityProfileOCIArtifact=true]
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Seconds to wait until the pod runs
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
    /// Continue after the report: print the log until the pod ends or Ctrl-C
    #[arg(long)]
    pub follow: bool,
    /// Record the system calls of the pod until it ends or Ctrl-C, and write a seccomp profile that allows them
    /// [default FILE: POD.seccomp.json]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub record: Option<Option<PathBuf>>,
    /// Seconds to record
    #[arg(long, value_name = "SECONDS", requires = "record")]
    pub record_for: Option<u64>,
    /// Output: human or json
    #[arg(long, short, value_enum, default_value_t = Format::Human, value_name = "FORMAT", hide_possible_values = true)]
    pub output: Format,
}

const AFTER_HELP: &str = "\
Starts the pod, compares it with what the kernel enforces, prints its log, and removes it.

Exit status: 0 the pod ran and everything declared is enforced, 1 it failed, did not start, something is not enforced, or a
running container could not be compared, or a recording is lossy, 2 the manifest cannot be used or an API server would reject it, 3 runtime unreachable.
A container that ends before it is compared is reported and does not change the exit status.";

/// How long a pod runs at least before it is looked at.
const MOMENT: Duration = Duration::from_millis(500);

/// Runs the command.
pub fn run(args: &RunArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut compat = args.emulate_kubernetes.unwrap_or_default().0;
    // The gates protect nothing here: the profile is chosen by the same user as the pod.
    compat.gates.seccomp_config_maps |= compat.is_designs();
    compat.gates.security_profile_oci_artifact |= compat.is_designs();
    let compat = FeatureGate::apply(&args.feature_gates, compat);
    let (pod, objects) = read(&args.filename, &compat, terminal)?;
    let config = args.runtime.config(compat)?;
    need_root()?;
    for warning in config.warnings() {
        terminal.report(format!("warning: {warning}"));
    }
    let runtime = service::started(tokio::runtime::Builder::new_multi_thread().worker_threads(2))?;
    service::log_to_stderr(terminal);
    runtime.block_on(async {
        args.runtime.load_profiles().await?;
        let files =
            args.record.as_ref().map(|file| RecordingFiles::beside(&profile_file(file.as_ref(), &pod)));
        let Some(files) = files else {
            let running = RunningPod::start(config, pod, &objects).await.map_err(start_failure)?;
            let exit = show(args, &running, terminal).await;
            running.stop(None).await;
            return exit;
        };
        let recorder = files.start(&config.root_dir.join("recorder"))?;
        let started = RunningPod::start_recorded(config, pod, &objects, Arc::clone(&recorder)).await;
        let running = match started {
            Ok(running) => running,
            Err(error) => {
                files.discard();
                return Err(start_failure(error));
            }
        };
        let exit = show(args, &running, terminal).await;
        if exit.is_ok() {
            until_recorded(args, &running).await;
        }
        let features = running.node().features();
        // The pod's end is a part of the recording.
        running.stop(None).await;
        let default = match Bounds::of_usual_container(&features).runtime_default() {
            Ok(default) => Some(default),
            Err(error) => {
                terminal.report(format!("warning: {error}"));
                None
            }
        };
        let written = files.write(&recorder.finish(), default.as_ref(), terminal);
        Ok(exit?.max(written?))
    })
}

/// The file of the profile: beside nothing else of the same pod.
fn profile_file(file: Option<&PathBuf>, pod: &Value) -> PathBuf {
    let name = || pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("pod");
    // The name of a pod is a file name, once the pod is valid; until then it must not lead elsewhere.
    file.cloned().unwrap_or_else(|| PathBuf::from(format!("{}.seccomp.json", name().replace('/', "_"))))
}

fn start_failure(error: RunError) -> Failure {
    match error {
        RunError::Runtime(_) => runtime_away(error),
        error => Failure::input(error),
    }
}

/// Waits until the pod ends, the time is over, or Ctrl-C.
async fn until_recorded(args: &RunArgs, running: &RunningPod) {
    let time = async {
        match args.record_for {
            Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = running.finished() => {}
        () = time => {}
        () = stopped() => {}
    }
}

async fn show(args: &RunArgs, running: &RunningPod, terminal: &mut Terminal) -> Result<Exit, Failure> {
    for warning in &running.warnings {
        terminal.report(format!("warning: {warning}"));
    }
    tokio::select! {
        _ = running.settled(Duration::from_secs(args.timeout)) => {}
        () = stopped() => return Err(Failure::incomplete("interrupted before the pod ran")),
    }
    if !args.follow {
        // The first lines of the log take a moment.
        tokio::time::sleep(MOMENT).await;
    }
    let report = running.report().await.map_err(Failure::incomplete)?;
    for container in &report.verified.containers {
        if container.skipped.is_some() && container.id.is_some() {
            let name = &container.container;
            terminal.report(format!("warning: container {name:?} ended before it was compared"));
        }
    }
    let written = match args.output {
        Format::Json => print_json(running, &report, terminal).await,
        Format::Human => print_human(args, running, &report, terminal).await,
    };
    written.map_err(Failure::output)?;
    let outcome = if args.follow { running.outcome() } else { report.outcome };
    let ran = matches!(outcome, RunOutcome::Running | RunOutcome::Succeeded);
    Ok(if ran && report.verified.is_enforced() { Exit::Clean } else { Exit::Findings })
}

async fn print_human(
    args: &RunArgs,
    running: &RunningPod,
    report: &RunReport,
    terminal: &mut Terminal,
) -> std::io::Result<()> {
    let key = &running.pod.key;
    for event in report.events.iter().filter(|event| event.kind.as_str() == "Warning") {
        terminal.report(format!("{} {}: {}", event.kind.as_str(), event.reason, event.message));
    }
    let out = &mut terminal.out;
    write_state(out, running, &report.status)?;
    // Where nothing runs, the reason is printed already.
    if report
        .verified
        .containers
        .iter()
        .any(|container| container.pid.is_some() || container.unverified.is_some())
    {
        writeln!(out, "\n{}", human_text(std::slice::from_ref(&report.verified), 0).trim_end())?;
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
        "kernel": report.verified, "logs": logs, "enforced": enforced(&report.verified)});
    writeln!(terminal.out, "{value:#}")?;
    terminal.out.flush()
}

/// Whether the kernel enforces what the containers declare; `None` if none of them was compared.
fn enforced(report: &PodReport) -> Option<bool> {
    let compared = report.containers.iter().any(ContainerReport::is_compared);
    (compared || !report.is_enforced()).then(|| report.is_enforced())
}

/// Reports what an API server would drop from a manifest or reject; a pod that loses a part of its security is not run.
fn check(file: &Arc<str>, text: &str, compat: &Compat, terminal: &mut Terminal) -> Result<(), Failure> {
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let settings = Settings::new(LevelVersion::PRIVILEGED, *compat, today);
    let mut errors = Vec::new();
    for finding in judge_text(file, text, &settings, &[]).diagnostics {
        let place = finding.at.as_ref().map(|at| format!(":{}:{}", at.line, at.column)).unwrap_or_default();
        let help = finding.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        let text = format!("{file}{place}: {}{help}", finding.summary);
        if finding.severity == Severity::Error {
            errors.push(text);
        } else {
            terminal.report(format!("warning: {text}"));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Failure::input(errors.join("\n"))) }
}

/// The pod of the manifests, and everything else in them.
fn read(files: &[PathBuf], compat: &Compat, terminal: &mut Terminal) -> Result<(Value, Vec<Value>), Failure> {
    let mut pods = Vec::new();
    let mut others = Vec::new();
    for file in files {
        let input = if file.as_os_str() == "-" { Input::Stdin } else { Input::File(file.clone()) };
        let name: Arc<str> = input.name();
        let bytes = input.read()?;
        let text = decode(&name, &bytes)?;
        let parsed = parse(&text, &Limits::default());
        let unreadable = |error: &dyn std::fmt::Display| Failure::input(format!("{name}: {error}"));
        if let Some(error) = parsed.errors.first() {
            return Err(unreadable(error));
        }
        check(&name, &text, compat, terminal)?;
        for document in &parsed.documents {
            for object in manifest::objects(document) {
                if object.kind == "Pod" && object.workload.is_none() {
                    let version = object.api_version;
                    return Err(unreadable(&format!(
                        "no API server has Pod of apiVersion {version:?}: write v1"
                    )));
                }
                let mut value = object.node.to_json().map_err(|error| unreadable(&error))?;
                if let Value::Object(fields) = &mut value {
                    fields.insert("kind".to_owned(), object.kind.into());
                }
                if object.kind == "Pod" { pods.push(value) } else { others.push(value) }
            }
        }
    }
    if pods.len() > 1 {
        let message = format!("the manifests have {} pods: run one at a time", pods.len());
        return Err(Failure::input(message));
    }
    let pod = pods.pop().ok_or_else(|| {
        Failure::input("the manifests have no pod: to run the pod template of a workload, write it as a Pod")
    })?;
    Ok((pod, others))
}
