//! `palisade explain`: what every container will really run with, and why.
//!
//! A workload is explained by the pods it makes: the API server prepares and syncs them when they are created, then
//! the kubelet of the node decides what it tells the runtime. Either may be older or newer than the other.

mod notes;
mod table;

use std::{io::Write, path::Path, sync::Arc};

use palisade_base::field_path::{FieldPath, PathStep};
use palisade_model::{
    compat::Compat,
    effective::{EffectiveContext, effective_contexts},
    node::{Source as From, masked_paths, readonly_paths},
    pod::Pod,
    pod_view::{ContainerKind, PodView},
    prepare::Prepared,
    workload::{WorkloadKind, read_template},
};
use palisade_policy::standards::level::{Level, LevelVersion, Version};
use palisade_yaml::{Limits, parse};
use serde_json::{Value, json};

use crate::{
    Exit,
    args::{ApiVersion, ExplainArgs, ExplainFormat, FeatureGate},
    config::glob_matches,
    diagnostic::{Diagnostic, Severity},
    input::{Found, Input, discover},
    judge::{FileReport, Settings, decode, judge_text},
    manifest::{Object, objects},
    render::human,
    service,
    source_map::{Source, annotation_behind},
    terminal::Terminal,
};

/// What is said about one container.
struct Container {
    name: String,
    kind: ContainerKind,
    rows: Vec<Setting>,
    notes: Vec<String>,
}

/// One field of a container.
struct Setting {
    field: &'static str,
    value: String,
    json: Value,
    /// Where the value came from, in words.
    from: String,
    path: Option<String>,
    line: Option<usize>,
    /// Whether somebody set it.
    set: bool,
}

/// What is said about one object.
struct Explained {
    file: Arc<str>,
    line: usize,
    document: usize,
    kind: String,
    namespace: Option<String>,
    name: Option<String>,
    windows: bool,
    containers: Vec<Container>,
}

/// Runs the command.
pub fn run(args: &ExplainArgs, terminal: &mut Terminal) -> Exit {
    let (found, compat) = if let Some(words) = &args.input.live {
        let question = crate::live::object(&args.input.cluster, words, args.input.namespace.as_deref());
        match service::with_answer(question).and_then(std::convert::identity) {
            Ok((input, told)) => {
                (Found { inputs: vec![input], problems: Vec::new() }, compat(args, Some(told)))
            }
            Err(why) => return service::fail(terminal, &why, Exit::Incomplete),
        }
    } else {
        let excluded = |path: &Path| args.input.exclude.iter().any(|pattern| glob_matches(pattern, path));
        (discover(&args.input.paths, excluded), compat(args, None))
    };
    let mut explained = Vec::new();
    let mut problems: Vec<Diagnostic> = found.problems;
    let mut unreadable = problems.len();
    let mut skipped = 0;
    for input in &found.inputs {
        let mut report = explain(input, args, &compat, &mut explained);
        problems.append(&mut report.diagnostics);
        unreadable += report.errors;
        skipped += report.skipped;
    }
    let text = match args.output {
        ExplainFormat::Json => json_text(&explained, &problems, &compat),
        ExplainFormat::Table => table_text(&explained, &problems, &compat, terminal),
    };
    if let Err(error) = terminal.out.write_all(text.as_bytes()).and_then(|()| terminal.out.flush()) {
        return terminal.cannot_write(&error);
    }
    if let Some(skew) = notes::skew(&compat) {
        terminal.say(format!("warning: {skew}"));
    }
    if explained.is_empty() {
        let what = args
            .container
            .as_ref()
            .map_or_else(|| "no pod found".to_owned(), |name| format!("no container is called {name:?}"));
        terminal.say(format!(
            "error: {what}{}",
            if skipped > 0 { format!(" ({skipped} objects without one)") } else { String::new() }
        ));
        return Exit::Input;
    }
    if unreadable > 0 || problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Exit::Findings;
    }
    Exit::Clean
}

/// What was asked for wins over what the cluster tells, and that over the newest release.
fn compat(args: &ExplainArgs, told: Option<Compat>) -> Compat {
    let ApiVersion(compat) = args.apiserver.or(told.map(ApiVersion)).unwrap_or_default();
    let mut compat = FeatureGate::apply(&args.feature_gates, compat);
    if let Some(told) = told {
        compat.kubelet = told.kubelet;
    }
    if let Some(version) = args.kubelet {
        compat.kubelet = version;
    }
    compat.seccomp_default = args.seccomp_default;
    compat
}

fn explain(input: &Input, args: &ExplainArgs, compat: &Compat, explained: &mut Vec<Explained>) -> FileReport {
    let file = input.name();
    let bytes = match input.read() {
        Ok(bytes) => bytes,
        Err(problem) => return FileReport::unreadable(*problem),
    };
    let text = match decode(&file, &bytes) {
        Ok(text) => text,
        Err(problem) => return FileReport::unreadable(*problem),
    };
    // Everything but the standards: what is invalid or dead changes what really happens.
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let everything = LevelVersion::new(Level::Privileged, Version::Latest);
    let report = judge_text(&file, &text, &Settings::new(everything, *compat, today), &[]);
    let parsed = parse(&text, &Limits::default());
    let source = Source::new(&text);
    for document in &parsed.documents {
        for object in objects(document) {
            let Some(workload) = object.workload else { continue };
            // What cannot be read is among the problems already.
            let Ok(Some(pod)) = read_template(object.node, workload.path) else { continue };
            let containers = containers(pod, &object, workload, &source, args, compat);
            if containers.containers.is_empty() {
                continue;
            }
            explained.push(Explained {
                file: Arc::clone(&file),
                line: source.lines().position(object.source.head().start).line,
                document: object.source.id().document,
                kind: workload.kind.to_owned(),
                namespace: object.metadata("namespace").map(str::to_owned),
                name: object.name().map(str::to_owned),
                windows: containers.windows,
                containers: containers.containers,
            });
        }
    }
    report
}

struct Containers {
    containers: Vec<Container>,
    windows: bool,
}

fn containers(
    pod: Pod<'_>,
    object: &Object<'_>,
    workload: &'static WorkloadKind,
    source: &Source<'_>,
    args: &ExplainArgs,
    compat: &Compat,
) -> Containers {
    // A template becomes pods, and those are prepared and synced as any other.
    let pod = Prepared::future_pod(pod, workload.subject(), compat);
    let context = Context { object, source, pod: &pod, view: pod.view(), compat };
    let wanted = |effective: &EffectiveContext<'_>| {
        args.container.as_ref().is_none_or(|name| name == effective.container)
    };
    let found = effective_contexts(&pod)
        .iter()
        .filter(|effective| wanted(effective))
        .map(|effective| context.container(effective))
        .collect();
    Containers { containers: found, windows: pod.spec().is_windows() }
}

struct Context<'c, 's, 'p, 'a> {
    object: &'c Object<'c>,
    source: &'c Source<'s>,
    pod: &'p Prepared<'a>,
    view: PodView<'p, 'a>,
    compat: &'c Compat,
}

impl Context<'_, '_, '_, '_> {
    fn container(&self, effective: &EffectiveContext<'_>) -> Container {
        let mut rows: Vec<Setting> = effective
            .rows()
            .into_iter()
            .map(|row| self.line(row.field, row.value, row.json, &row.source))
            .collect();
        let unmasked = effective.proc_mount.value == "Unmasked" || effective.privileged.value;
        let because = if effective.privileged.value {
            &effective.privileged.source
        } else {
            &effective.proc_mount.source
        };
        for (field, paths) in [
            ("maskedPaths", masked_paths(self.compat.kubelet)),
            ("readonlyPaths", readonly_paths(self.compat.kubelet)),
        ] {
            let paths = if unmasked { Vec::new() } else { paths };
            let value = if paths.is_empty() { "-".to_owned() } else { format!("{} paths", paths.len()) };
            let why = From::Default("procMount is Default");
            rows.push(self.line(field, value, json!(paths), if unmasked { because } else { &why }));
        }
        Container {
            name: effective.container.to_owned(),
            kind: effective.kind,
            rows,
            notes: notes::of_container(self.pod, effective, self.compat),
        }
    }

    fn line(&self, field: &'static str, value: String, json: Value, source: &From) -> Setting {
        let Some(path) = source.path() else {
            return Setting {
                field,
                value,
                json,
                from: source.to_string(),
                path: None,
                line: None,
                set: false,
            };
        };
        // A field that is only there because of an annotation is explained by the annotation.
        let annotation = self
            .pod
            .synced()
            .iter()
            .any(|filled| filled == path)
            .then(|| annotation_behind(path, &self.view))
            .flatten()
            .map(|key| self.view.annotation_path(&key));
        let shown = annotation.as_ref().unwrap_or(path);
        let place = self.object.source.place(shown, None);
        let line = place.missing.is_none().then(|| self.source.lines().position(place.span.start).line);
        let mut from = short(shown);
        if annotation.is_some() {
            from.push_str(", copied by the API server");
        }
        Setting { field, value, json, from, path: Some(shown.to_string()), line, set: true }
    }
}

/// A path as short as it can be understood: the container is known, the template is as good as a pod.
fn short(path: &FieldPath) -> String {
    let steps = path.steps();
    let is = |step: &PathStep, name: &str| matches!(step, PathStep::Field(field) if field == name);
    if let Some(at) = steps.iter().position(|step| {
        ["containers", "initContainers", "ephemeralContainers"].iter().any(|list| is(step, list))
    }) && steps.len() > at + 2
    {
        let rest = FieldPath::from(steps.iter().skip(at + 2).cloned().collect::<Vec<_>>());
        return format!("container's {rest}");
    }
    if let Some(at) = steps.iter().position(|step| is(step, "annotations")) {
        let rest = FieldPath::from(steps.iter().skip(at + 1).cloned().collect::<Vec<_>>()).to_string();
        return format!("annotation {}", rest.trim_start_matches('[').trim_end_matches(']'));
    }
    let spec = steps.iter().rposition(|step| is(step, "spec")).map_or(0, |at| at + 1);
    format!("pod's {}", FieldPath::from(steps.iter().skip(spec).cloned().collect::<Vec<_>>()))
}

fn table_text(
    explained: &[Explained],
    problems: &[Diagnostic],
    compat: &Compat,
    terminal: &Terminal,
) -> String {
    let mut text = String::new();
    for object in explained {
        table::draw(object, compat, terminal.out_color, &mut text);
    }
    let style = human::Style { color: terminal.out_color, width: Terminal::width() };
    human::diagnostics(problems, style, &mut text);
    text
}

fn json_text(explained: &[Explained], problems: &[Diagnostic], compat: &Compat) -> String {
    let objects: Vec<Value> = explained
        .iter()
        .map(|object| {
            let containers: Vec<Value> = object
                .containers
                .iter()
                .map(|container| {
                    let fields: Vec<Value> = container
                        .rows
                        .iter()
                        .map(|row| {
                            json!({
                                "field": row.field, "value": row.json, "set": row.set, "from": row.from,
                                "path": row.path, "line": row.line,
                            })
                        })
                        .collect();
                    json!({
                        "name": container.name, "list": container.kind.field(), "fields": fields,
                        "notes": container.notes,
                    })
                })
                .collect();
            json!({
                "file": &*object.file, "document": object.document, "kind": object.kind,
                "namespace": object.namespace, "name": object.name, "containers": containers,
            })
        })
        .collect();
    let problems: Vec<Value> = problems
        .iter()
        .map(|problem| {
            json!({
                "code": problem.code.as_str(), "severity": problem.severity.as_str(), "file": &*problem.file,
                "line": problem.line(), "path": problem.path, "container": problem.container,
                "message": problem.summary, "help": problem.help,
            })
        })
        .collect();
    let whole = json!({
        "apiserver": compat.api.to_string(), "kubelet": compat.kubelet.to_string(),
        "objects": objects, "problems": problems,
    });
    format!("{whole:#}\n")
}
