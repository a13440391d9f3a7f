//! `palisade rollout status` and `plan`: which namespaces would suffer if Pod Security were enforced, why, and what
//! to do about it, on a cluster, or from manifests or a dump of one.
//!
//! The answers are `palisade-controllers`'; here objects are read and the answers drawn. What manifests leave out is
//! assumed as a new OpenShift cluster has it: the built-in constraints and their grants, the `default` service account,
//! the ranges of namespaces.

use std::{
    fmt::Write as _,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use palisade_controllers::{
    api::Api,
    cluster::{Blocker, Cluster, Seen},
    observe::Observed,
    readiness::report::{NamespaceReport, report, report_with_times},
};
use palisade_model::workload::workload_kind;
use palisade_policy::{
    enforcement::classify::{Class, Reason},
    standards::{evaluator::Evaluator, level::Level},
};
use palisade_yaml::{Limits, parse};
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::{
    Exit,
    args::ExplainFormat,
    cluster::ClusterArgs,
    config::glob_matches,
    input::{Input, discover},
    judge::decode,
    manifest::objects,
    service::fail,
    terminal::Terminal,
};

/// `palisade rollout …`
#[derive(Debug, Subcommand)]
pub enum RolloutCommand {
    /// The level every namespace needs, and what in it would be refused
    Status(RolloutArgs),
    /// The commands that would let everything go on running, with the reasons as comments
    Plan(RolloutArgs),
}

/// What both commands of `palisade rollout` take.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct RolloutArgs {
    /// Files, folders (searched for .yaml, .yml and .json), or - for stdin; without any, a cluster is asked
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Leave out paths that match, such as `vendor/**` or `*.tmpl.yaml`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Namespace of objects that name none [default: default]
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Output: table or json
    #[arg(long, short, value_enum, default_value_t = ExplainFormat::Table, value_name = "FORMAT", hide_possible_values = true)]
    pub output: ExplainFormat,
}

const AFTER_HELP: &str = "\
Exit status: 0 nothing blocks enforcement, 1 something does, 2 something could not be read or wrong usage,
3 the cluster could not be asked.

A cluster is asked for everything the rollout depends on, once. From a dump of one:
    kubectl get -A -o yaml ns,sa,pods,deploy,ds,sts,rs,jobs,cronjobs,roles,rolebindings,\\
        clusterroles,clusterrolebindings,scc | palisade rollout status -";

/// How long a cluster may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);

/// Runs the command.
pub fn run(command: &RolloutCommand, terminal: &mut Terminal) -> Exit {
    let (RolloutCommand::Status(args) | RolloutCommand::Plan(args)) = command;
    let is_cluster_named = args.cluster.kubeconfig.is_some() || args.cluster.context.is_some();
    let (answer, problems) = match (args.paths.is_empty(), is_cluster_named) {
        (false, true) => return fail(terminal, "either paths or a cluster, not both", Exit::Input),
        (true, _) => match ask(args) {
            Ok(answer) => (answer, Vec::new()),
            Err((why, exit)) => return fail(terminal, &why, exit),
        },
        (false, false) => {
            let Reading { mut cluster, problems, used, .. } = read(args);
            cluster.assume_what_manifests_leave_out();
            for problem in &problems {
                terminal.say(format!("error: {problem}"));
            }
            if used == 0 {
                return fail(terminal, "no namespace, workload or pod found", Exit::Input);
            }
            (Answer { namespaces: report(&cluster).collect(), config: Value::Null }, problems)
        }
    };
    let namespaces = &answer.namespaces;
    let text = match (command, args.output) {
        (RolloutCommand::Status(_), ExplainFormat::Table) => status_text(&answer),
        (RolloutCommand::Plan(_), ExplainFormat::Table) => plan_text(namespaces),
        (_, ExplainFormat::Json) => json_text(&answer),
    };
    if let Err(error) = terminal.out.write_all(text.as_bytes()).and_then(|()| terminal.out.flush()) {
        return terminal.cannot_write(&error);
    }
    if !problems.is_empty() {
        // What could not be read may be what stands in the way.
        return Exit::Input;
    }
    if namespaces.iter().any(|namespace| namespace.class.is_some()) { Exit::Findings } else { Exit::Clean }
}

/// What is known, from wherever it comes.
struct Answer {
    namespaces: Vec<NamespaceReport>,
    /// The `PSAEnforcementConfig`; null where there is none.
    config: Value,
}

/// Asks a cluster.
fn ask(args: &RolloutArgs) -> Result<Answer, (String, Exit)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| (format!("cannot start: {error}"), Exit::Incomplete))?;
    runtime.block_on(async {
        let client = args.cluster.connect().await.map_err(|why| (why, Exit::Incomplete))?;
        let observed = Observed::new(Evaluator::default());
        let _watches = observed.watch(&Api::new(client));
        let failing = async {
            let mut changes = observed.subscribe();
            loop {
                if let Some(why) = observed.lock().failing() {
                    return why;
                }
                if changes.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            () = observed.synced() => {}
            why = failing => return Err((why, Exit::Incomplete)),
            () = tokio::time::sleep(ANSWER_WITHIN) => {
                let why = format!("the cluster has not answered within {} s", ANSWER_WITHIN.as_secs());
                return Err((why, Exit::Incomplete));
            }
        }
        let state = observed.lock();
        let namespaces = report_with_times(&state.cluster, &state.config);
        Ok(Answer { namespaces, config: state.config.clone() })
    })
}

/// Reads manifests.
fn read(args: &RolloutArgs) -> Reading<'_> {
    let excluded = |path: &Path| args.exclude.iter().any(|pattern| glob_matches(pattern, path));
    let found = discover(&args.paths, excluded);
    let mut reading = Reading::new(args);
    reading.problems.extend(found.problems.iter().map(|problem| problem.summary.clone()));
    for input in &found.inputs {
        reading.input(input);
    }
    reading
}

/// What was read so far.
struct Reading<'a> {
    args: &'a RolloutArgs,
    cluster: Cluster,
    problems: Vec<String>,
    used: usize,
}

impl<'a> Reading<'a> {
    fn new(args: &'a RolloutArgs) -> Self {
        let mut cluster = Cluster::new(Evaluator::default());
        // The input's own constraints replace those of the same name.
        cluster.add_openshift_defaults();
        Self { args, cluster, problems: Vec::new(), used: 0 }
    }

    fn input(&mut self, input: &Input) {
        let file = input.name();
        let bytes = match input.read() {
            Ok(bytes) => bytes,
            Err(problem) => return self.problems.push(problem.summary),
        };
        let text = match decode(&file, &bytes) {
            Ok(text) => text,
            Err(problem) => return self.problems.push(problem.summary),
        };
        let parsed = parse(&text, &Limits::default());
        self.problems.extend(parsed.errors.iter().map(|error| format!("{file}: {error}")));
        for document in &parsed.documents {
            for object in objects(document) {
                match object.node.to_json() {
                    Ok(value) => {
                        let value = self.complete(value, object.api_version, object.kind);
                        match self.cluster.observe(&value) {
                            Seen::Used => self.used += 1,
                            Seen::Irrelevant => {}
                            Seen::Unreadable => {
                                let name = object.name().unwrap_or("without a name");
                                let what = format!("{} {name} cannot be read", object.kind);
                                self.problems.push(format!("{file}: {what}"));
                            }
                        }
                    }
                    Err(error) => self.problems.push(format!("{file}: {error}")),
                }
            }
        }
    }

    /// Items of a list need not say what they are, nor manifests where they go.
    fn complete(&self, mut value: Value, api_version: &str, kind: &str) -> Value {
        let is_namespaced = workload_kind(api_version, kind).is_some()
            || matches!(kind, "Pod" | "ServiceAccount" | "Role" | "RoleBinding");
        let Value::Object(object) = &mut value else { return value };
        object.insert("apiVersion".to_owned(), api_version.into());
        object.insert("kind".to_owned(), kind.into());
        if let Some(Value::Object(metadata)) = object.get_mut("metadata")
            && is_namespaced
            && metadata.get("namespace").and_then(Value::as_str).is_none_or(str::is_empty)
        {
            let namespace = self.args.namespace.as_deref().unwrap_or("default");
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        value
    }
}

fn level_text(level: Option<Level>) -> String {
    level.map_or_else(|| "own label".to_owned(), |level| level.to_string())
}

fn reason_text(namespace: &NamespaceReport) -> &'static str {
    match namespace.class {
        None => "-",
        Some(class) => class.reason().map_or("run-level zero namespace", Reason::as_str),
    }
}

/// What the cluster says of itself, in a few lines.
fn config_text(config: &Value, text: &mut String) {
    if config.is_null() {
        return;
    }
    let mode = |part: &str| match config[part]["enforcementMode"].as_str() {
        None | Some("") => "not set".to_owned(),
        Some(mode) => mode.to_owned(),
    };
    let _ = writeln!(text, "PSAEnforcementConfig cluster: wanted {}, mode {}", mode("spec"), mode("status"));
    for condition in config["status"]["conditions"].as_array().into_iter().flatten() {
        let part = |key: &str| condition[key].as_str().unwrap_or_default();
        let _ = write!(text, "  {}={} {}", part("type"), part("status"), part("reason"));
        let _ = match part("message") {
            "" => writeln!(text),
            message => writeln!(text, ": {message}"),
        };
    }
    text.push('\n');
}

fn status_text(answer: &Answer) -> String {
    let namespaces = &answer.namespaces;
    let header = ["NAMESPACE", "HELD TO", "COMPLIES", "BLOCKERS", "REASON"].map(str::to_owned);
    let rows: Vec<[String; 5]> = namespaces
        .iter()
        .map(|namespace| {
            [
                namespace.name.clone(),
                level_text(namespace.level),
                namespace.complies.to_string(),
                namespace.blockers.len().to_string(),
                reason_text(namespace).to_owned(),
            ]
        })
        .collect();
    let mut text = String::new();
    config_text(&answer.config, &mut text);
    table(&header, &rows, &mut text);
    for namespace in namespaces.iter().filter(|namespace| !namespace.blockers.is_empty()) {
        let _ = write!(text, "\nnamespace {}", namespace.name);
        if let Some(level) = namespace.level {
            let _ = write!(text, ", held to {level}");
        }
        if let Some(since) = &namespace.since {
            let _ = write!(text, ", violating since {since}");
        }
        text.push('\n');
        for blocker in &namespace.blockers {
            draw_blocker(blocker, &mut text);
        }
        for (constraint, fields) in &namespace.because {
            let _ = writeln!(text, "  its service accounts may use {constraint}: {}", fields.join(", "));
        }
        if let Some(reason) = namespace.class.and_then(Class::reason) {
            let _ = writeln!(text, "  fix: {}", reason.remedy());
        }
    }
    let blocking = namespaces.iter().filter(|namespace| namespace.class.is_some()).count();
    let all = namespaces.len();
    let _ = match blocking {
        0 => writeln!(text, "\nnothing blocks enforcement in {all} namespaces"),
        _ => writeln!(text, "\n{blocking} of {all} namespaces block enforcement"),
    };
    text
}

fn draw_blocker(blocker: &Blocker, text: &mut String) {
    let _ = write!(text, "  {} {}", blocker.kind, blocker.name);
    if let Some((kind, name)) = &blocker.owner {
        let _ = write!(text, " of {kind} {name}");
    }
    if let Some(constraint) = &blocker.constraint {
        let through = if blocker.is_by_user { " through a user" } else { "" };
        let _ = write!(text, ", admitted by {constraint}{through}");
    }
    text.push('\n');
    let rows: Vec<[String; 3]> = blocker
        .causes
        .iter()
        .map(|cause| [cause.path.clone(), cause.check.to_owned(), format!("allowed: {}", cause.allowed)])
        .collect();
    let mut causes = String::new();
    rows_text(&rows, &mut causes);
    for line in causes.lines() {
        let _ = writeln!(text, "    {line}");
    }
}

fn plan_text(namespaces: &[NamespaceReport]) -> String {
    let mut text = String::new();
    for namespace in namespaces {
        let Some(class) = namespace.class else { continue };
        let _ = writeln!(text, "# {}: {}", namespace.name, reason_text(namespace));
        for blocker in &namespace.blockers {
            let paths: Vec<&str> = blocker.causes.iter().map(|cause| cause.path.as_str()).collect();
            let _ = writeln!(text, "#   {} {}: {}", blocker.kind, blocker.name, paths.join(", "));
        }
        if let Some(reason) = class.reason() {
            let _ = writeln!(text, "#   better: {}", reason.remedy());
        }
        let _ = writeln!(text, "{}\n", namespace.label_command());
    }
    if text.is_empty() {
        let _ = writeln!(text, "# nothing blocks enforcement in {} namespaces", namespaces.len());
    }
    text
}

fn json_text(answer: &Answer) -> String {
    let namespaces = &answer.namespaces;
    let shown: Vec<Value> = namespaces
        .iter()
        .map(|namespace| {
            let blockers: Vec<Value> = namespace.blockers.iter().map(blocker_json).collect();
            let because: Vec<Value> = namespace
                .because
                .iter()
                .map(|(constraint, fields)| json!({"constraint": constraint, "fields": fields}))
                .collect();
            json!({
                "name": namespace.name,
                "level": namespace.level.map(|level| level.to_string()),
                "complies": namespace.complies.to_string(),
                "blocks": namespace.class.is_some(),
                "reason": namespace.class.and_then(Class::reason).map(Reason::as_str),
                "condition": namespace.class.map(Class::condition),
                "remedy": namespace.class.and_then(Class::reason).map(Reason::remedy),
                "since": namespace.since,
                "command": namespace.class.map(|_| namespace.label_command()),
                "because": because,
                "blockers": blockers,
            })
        })
        .collect();
    let blocking = namespaces.iter().filter(|namespace| namespace.class.is_some()).count();
    let mut all = json!({"violatingNamespaceCount": blocking, "namespaces": shown});
    if !answer.config.is_null() {
        all["spec"] = answer.config["spec"].clone();
        all["status"] = answer.config["status"].clone();
    }
    format!("{all:#}\n")
}

fn blocker_json(blocker: &Blocker) -> Value {
    let causes: Vec<Value> = blocker
        .causes
        .iter()
        .map(|cause| {
            json!({"check": cause.check, "path": cause.path, "summary": cause.summary, "allowed": cause.allowed})
        })
        .collect();
    json!({
        "kind": blocker.kind,
        "name": blocker.name,
        "owner": blocker.owner.as_ref().map(|(kind, name)| json!({"kind": kind, "name": name})),
        "constraint": blocker.constraint,
        "throughUser": blocker.is_by_user,
        "causes": causes,
    })
}

pub(crate) fn table<const N: usize>(header: &[String; N], rows: &[[String; N]], text: &mut String) {
    let all: Vec<[String; N]> = std::iter::once(header).chain(rows).cloned().collect();
    rows_text(&all, text);
}

/// Columns as wide as their widest cell; the last one is not filled up.
fn rows_text<const N: usize>(rows: &[[String; N]], text: &mut String) {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let fill = width.saturating_sub(cell.width()) + 2;
            line.push_str(cell);
            line.push_str(&" ".repeat(fill));
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}
