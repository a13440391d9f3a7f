//! `palisade rollout status` and `plan`: which namespaces would suffer if Pod Security were enforced, why, and what
//! to do about it, from manifests or a dump of a cluster.
//!
//! The answers are `palisade-controllers`'; here objects are read and the answers drawn. What manifests leave out is
//! assumed as a new OpenShift cluster has it: the built-in constraints and their grants, the `default` service account,
//! the ranges of namespaces.

use std::{fmt::Write as _, io::Write, path::Path};

use palisade_controllers::{
    cluster::{Blocker, Cluster, Seen},
    readiness::report::{NamespaceReport, report},
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
    args::{ExplainFormat, RolloutArgs, RolloutCommand},
    config::glob_matches,
    input::{Input, discover},
    judge::decode,
    manifest::objects,
    terminal::Terminal,
};

/// Runs the command.
pub fn run(command: &RolloutCommand, terminal: &mut Terminal) -> Exit {
    let (RolloutCommand::Status(args) | RolloutCommand::Plan(args)) = command;
    let excluded = |path: &Path| args.input.exclude.iter().any(|pattern| glob_matches(pattern, path));
    let found = discover(&args.input.paths, excluded);
    let mut reading = Reading::new(args);
    reading.problems.extend(found.problems.iter().map(|problem| problem.summary.clone()));
    for input in &found.inputs {
        reading.input(input);
    }
    let Reading { mut cluster, problems, used, .. } = reading;
    cluster.assume_what_manifests_leave_out();
    for problem in &problems {
        terminal.say(format!("error: {problem}"));
    }
    if used == 0 {
        terminal.say("error: no namespace, workload or pod found");
        return Exit::Input;
    }
    let namespaces: Vec<NamespaceReport> = report(&cluster).collect();
    let text = match (command, args.output) {
        (RolloutCommand::Status(_), ExplainFormat::Table) => status_text(&namespaces),
        (RolloutCommand::Plan(_), ExplainFormat::Table) => plan_text(&namespaces),
        (_, ExplainFormat::Json) => json_text(&namespaces),
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

fn status_text(namespaces: &[NamespaceReport]) -> String {
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
    table(&header, &rows, &mut text);
    for namespace in namespaces.iter().filter(|namespace| !namespace.blockers.is_empty()) {
        let _ = write!(text, "\nnamespace {}", namespace.name);
        if let Some(level) = namespace.level {
            let _ = write!(text, ", held to {level}");
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

fn json_text(namespaces: &[NamespaceReport]) -> String {
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
                "command": namespace.class.map(|_| namespace.label_command()),
                "because": because,
                "blockers": blockers,
            })
        })
        .collect();
    let blocking = namespaces.iter().filter(|namespace| namespace.class.is_some()).count();
    format!("{:#}\n", json!({"violatingNamespaceCount": blocking, "namespaces": shown}))
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
