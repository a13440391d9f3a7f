//! `palisade explain`: what every container will really run with, and why.
//!
//! A workload is explained by the pods it makes: the API server prepares and syncs them when they are created, then
//! the kubelet of the node decides what it passes to the runtime. Either may be older or newer than the other.

mod notes;
mod table;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use palisade_base::{
    field_path::{FieldPath, PathStep},
    version::{KubeVersion, NEWEST_MINOR},
};
use palisade_model::{
    compat::Compat,
    effective::{EffectiveContext, effective_contexts},
    node::{Source as From, masked_paths, readonly_paths},
    pod::Pod,
    pod_view::{ContainerKind, PodView},
    prepare::Prepared,
    workload::{WorkloadKind, read_template},
};
use palisade_node::{
    kernel::process::capability_names,
    verify::{ALL_CAPABILITIES, declared_capabilities, shown_capabilities},
};
use palisade_policy::standards::level::{Level, LevelVersion, Version};
use palisade_yaml::{Limits, parse};
use serde_json::{Value, json};

use crate::{
    args::{ApiVersion, FeatureGate, TableFormat, ValueError},
    cluster::ClusterArgs,
    config::glob_matches,
    diagnostic::{Diagnostic, Severity},
    failure::{Exit, Failure},
    input::{Found, Input, discover},
    judge::{FileReport, Settings, decode, judge_text},
    manifest::{Object, objects},
    render::human,
    service,
    source_map::{Source, annotation_behind},
    terminal::Terminal,
};

/// What `explain` explains.
#[derive(Debug, Args)]
pub struct ExplainInputArgs {
    /// Files, folders (searched for .yaml, .yml and .json), or - for stdin
    #[arg(required_unless_present = "live", conflicts_with = "live", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Exclude paths that match, such as `vendor/**` or `*.tmpl.yaml`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// An object of a cluster instead of files: NAMESPACE/POD, KIND/NAME or NAMESPACE/KIND/NAME. The versions are those of its API server and kubelet
    #[arg(long, value_name = "OBJECT")]
    pub live: Option<String>,
    /// With --live: which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// With --live: namespace of an object without one [default: the namespace of the context]
    #[arg(long, short, value_name = "NAMESPACE", requires = "live")]
    pub namespace: Option<String>,
}

/// `palisade explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Where to look.
    #[command(flatten)]
    pub input: ExplainInputArgs,
    /// Release of the kubelet: v1.18 to v1.37 [default: that of the API server]
    #[arg(long, value_name = "VERSION", value_parser = kubelet_version)]
    pub kubelet: Option<KubeVersion>,
    /// Release of the API server: v1.19 to v1.37, or `extended` for Palisade's extensions [default: v1.37]
    #[arg(long, value_name = "VERSION")]
    pub apiserver: Option<ApiVersion>,
    /// Feature gates: SeccompConfigMaps=true, SecurityProfileOCIArtifact=true, AppArmor=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Only containers of this name
    #[arg(long, short, value_name = "NAME")]
    pub container: Option<String>,
    /// Only what a field or an annotation sets
    #[arg(long)]
    pub set_only: bool,
    /// The kubelet runs with --seccomp-default
    #[arg(long)]
    pub seccomp_default: bool,
    /// Output: table or json
    #[arg(long, short, value_enum, default_value_t = TableFormat::Table, value_name = "FORMAT", hide_possible_values = true)]
    pub output: TableFormat,
}

/// The last kubelet without the seccomp fields.
const OLDEST_KUBELET: u16 = 18;

pub(crate) fn kubelet_version(text: &str) -> Result<KubeVersion, ValueError> {
    let version: KubeVersion = text.parse()?;
    if (OLDEST_KUBELET..=NEWEST_MINOR).contains(&version.minor()) {
        Ok(version)
    } else {
        Err(ValueError::UnknownRelease { oldest: OLDEST_KUBELET, also: "" })
    }
}

/// The settings of one container.
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) kind: ContainerKind,
    pub(crate) rows: Vec<Setting>,
    pub(crate) notes: Vec<String>,
}

/// One field of a container.
pub(crate) struct Setting {
    pub(crate) field: &'static str,
    pub(crate) value: String,
    json: Value,
    /// Where the value came from, in words.
    pub(crate) from: String,
    path: Option<String>,
    pub(crate) line: Option<usize>,
    /// Whether a field or annotation sets it.
    pub(crate) set: bool,
}

/// The settings of one object.
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
pub fn run(args: &ExplainArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let (found, compat) = if let Some(words) = &args.input.live {
        let question = crate::live::object(&args.input.cluster, words, args.input.namespace.as_deref());
        let (input, announced) = service::block_on(question)?;
        (Found { inputs: vec![input], problems: Vec::new() }, compat(args, Some(announced)))
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
        TableFormat::Json => json_text(&explained, &problems, &compat),
        TableFormat::Table => table_text(&explained, &problems, &compat, terminal),
    };
    terminal.print(text)?;
    if let Some(skew) = notes::skew(&compat) {
        terminal.report(format!("warning: {skew}"));
    }
    if explained.is_empty() {
        let what = args
            .container
            .as_ref()
            .map_or_else(|| "no pod found".to_owned(), |name| format!("no container is named {name:?}"));
        let others = if skipped > 0 {
            format!(" ({skipped} objects of kinds that are not checked)")
        } else {
            String::new()
        };
        return Err(Failure::input(what + &others));
    }
    if unreadable > 0 || problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Ok(Exit::Findings);
    }
    Ok(Exit::Clean)
}

/// Options win over what the cluster announces, and that over the newest release.
fn compat(args: &ExplainArgs, announced: Option<Compat>) -> Compat {
    let ApiVersion(compat) = args.apiserver.or(announced.map(ApiVersion)).unwrap_or_default();
    let mut compat = FeatureGate::apply(&args.feature_gates, compat);
    if let Some(announced) = announced {
        compat.kubelet = announced.kubelet;
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
            let only = args.container.as_deref();
            let mut containers = containers(pod, &object, workload, &source, only, compat);
            if args.set_only {
                for container in &mut containers.containers {
                    container.rows.retain(|row| row.set);
                }
            }
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

/// The settings of the containers of an object.
pub(crate) struct Containers {
    pub(crate) containers: Vec<Container>,
    windows: bool,
}

/// Explains the containers of an object, or the one of that name.
pub(crate) fn containers(
    pod: Pod<'_>,
    object: &Object<'_>,
    workload: &'static WorkloadKind,
    source: &Source<'_>,
    only: Option<&str>,
    compat: &Compat,
) -> Containers {
    // A template becomes pods, and those are prepared and synced as any other.
    let pod = Prepared::future_pod(pod, workload.subject(), compat);
    let context = Context { object, source, pod: &pod, view: pod.view(), compat };
    let wanted = |effective: &EffectiveContext<'_>| only.is_none_or(|name| name == effective.container);
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
        if !self.pod.spec().is_windows() {
            let behind =
                rows.iter().position(|row| row.field == "capabilities").map_or(rows.len(), |at| at + 1);
            rows.insert(behind, self.capability_set(effective));
        }
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

    /// The most that a container has: what containerd and Docker give by default, with what is added and without what is dropped.
    fn capability_set(&self, effective: &EffectiveContext<'_>) -> Setting {
        let (set, source) = if effective.privileged.value {
            (ALL_CAPABILITIES, &effective.privileged.source)
        } else {
            (declared_capabilities(effective), &effective.capabilities.source)
        };
        let default = From::Default("the default of containerd and Docker");
        let source = if source.path().is_some() { source } else { &default };
        let value = shown_capabilities(set, ALL_CAPABILITIES);
        self.line("effectiveCapabilities", value, json!(capability_names(set)), source)
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
