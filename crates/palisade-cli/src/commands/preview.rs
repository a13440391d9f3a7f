//! `palisade preview`: what an upgrade changes for these manifests, or for a cluster.
//!
//! Each object is judged twice, as on the old and on the new cluster, and what differs is listed with its place: rejections, fields
//! and annotations that come to life or die, warnings, and the settings that containers end up with. What cannot be read by
//! either is not known to stay the same, and the exit status is 2.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, ValueEnum};
use palisade_base::{field_path::FieldPath, version::KubeVersion};
use palisade_model::{
    compat::Compat,
    effective::effective_contexts,
    pod_view::PodView,
    prepare::Prepared,
    profile::{
        ProfileRef,
        architecture::Architecture,
        filter::{DifferenceKind, Filter},
        runtime_default::RuntimeDefault,
        syscalls::Syscall,
    },
    workload::read_template,
};
use palisade_node::{kernel::process::capability_names, verify::declared_capabilities};
use palisade_policy::standards::{
    level::{Level, LevelVersion, Version},
    policy::Policy,
};
use palisade_yaml::{Limits, parse};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::{
    args::{ApiVersion, FeatureGate, policy_version},
    cluster::ClusterArgs,
    commands::{explain::kubelet_version, profile::combine::machine},
    config::glob_matches,
    diagnostic::{Code, Diagnostic, ObjectId, Severity},
    failure::{Exit, Failure},
    input::{Found, Input, discover},
    judge::{FileReport, Settings, Verdict, decode, judge_text},
    live::{LiveArgs, workloads},
    manifest::{Object, objects},
    overlays::not_built,
    parallel::{Progress, default_jobs, in_order},
    preview::{AnswerChange, ContainerChange, StoredChange, answer_changes, container_changes},
    render::human,
    server_side::{Asked, Reason, ServerSide},
    service,
    source_map::Source,
    terminal::Terminal,
};

/// `palisade preview`
#[derive(Debug, Args)]
pub struct PreviewArgs {
    /// Files, folders (searched for .yaml, .yml and .json), or - for stdin
    #[arg(required_unless_present = "cluster", conflicts_with = "cluster", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The release before the upgrade: v1.19 to v1.37, or `extended` for Palisade's extensions
    #[arg(long, value_name = "VERSION")]
    pub from: ApiVersion,
    /// The release after the upgrade
    #[arg(long, value_name = "VERSION")]
    pub to: ApiVersion,
    /// Release of the kubelets before the upgrade: v1.18 to v1.37 [default: that of --from]
    #[arg(long, value_name = "VERSION", value_parser = kubelet_version)]
    pub from_kubelet: Option<KubeVersion>,
    /// Release of the kubelets after the upgrade [default: that of --to]
    #[arg(long, value_name = "VERSION", value_parser = kubelet_version)]
    pub to_kubelet: Option<KubeVersion>,
    /// Runtime before the upgrade, such as containerd@1.7, whose default seccomp profile is compared
    #[arg(long, value_name = "RUNTIME", requires = "to_runtime")]
    pub from_runtime: Option<String>,
    /// Runtime after the upgrade
    #[arg(long, value_name = "RUNTIME", requires = "from_runtime")]
    pub to_runtime: Option<String>,
    /// With --to-runtime: architecture of the nodes
    #[arg(long, value_name = "ARCH", default_value = "amd64", value_parser = machine)]
    pub architecture: Architecture,
    /// Feature gates before the upgrade: SeccompConfigMaps=true, SecurityProfileOCIArtifact=true, AppArmor=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub from_feature_gates: Vec<FeatureGate>,
    /// Feature gates after the upgrade
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub to_feature_gates: Vec<FeatureGate>,
    /// Level of the Pod Security Standards that is enforced
    #[arg(long, short, value_name = "LEVEL", default_value_t = Level::Restricted)]
    pub level: Level,
    /// Version of the standards before the upgrade: v1.0 to v1.37, or latest, which is that of the API server
    #[arg(long, value_name = "VERSION", value_parser = policy_version, default_value = "latest")]
    pub from_policy_version: Version,
    /// Version of the standards after the upgrade
    #[arg(long, value_name = "VERSION", value_parser = policy_version, default_value = "latest")]
    pub to_policy_version: Version,
    /// Exclude paths that match, such as `vendor/**` or `*.tmpl.yaml`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// The pods and workloads of a cluster instead of files
    #[arg(long)]
    pub cluster: bool,
    /// Which cluster.
    #[command(flatten)]
    pub connection: ClusterArgs,
    /// With --cluster: all namespaces instead of that of --namespace or of the context
    #[arg(long, short = 'A', requires = "cluster", conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Namespace of objects that do not set one; with --cluster the one that is listed
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Output: human or json
    #[arg(long, short, value_enum, default_value_t = PreviewFormat::Human, value_name = "FORMAT", hide_possible_values = true)]
    pub output: PreviewFormat,
}

/// How a preview is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PreviewFormat {
    /// With excerpts of the source.
    Human,
    /// For programs.
    Json,
}

/// A cluster before or after the upgrade.
struct Side {
    compat: Compat,
    settings: Settings,
    server: ServerSide,
    runtime: Option<RuntimeDefault>,
}

impl Side {
    fn new(
        args: &PreviewArgs,
        release: ApiVersion,
        kubelet: Option<KubeVersion>,
        gates: &[FeatureGate],
        version: Version,
        runtime: Option<&String>,
    ) -> Result<Self, Failure> {
        let mut compat = FeatureGate::apply(gates, release.0);
        if let Some(kubelet) = kubelet {
            compat.kubelet = kubelet;
        }
        let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
        // The latest version is that of the API server.
        let version = match version {
            Version::Latest => Version::Minor(u64::from(compat.api_minor())),
            Version::Minor(minor) => Version::Minor(minor),
        };
        let mut settings = Settings::new(LevelVersion::new(args.level, version), compat, today);
        settings.namespace.clone_from(&args.namespace);
        let runtime = runtime.map(|name| RuntimeDefault::named(name)).transpose().map_err(Failure::input)?;
        Ok(Self { compat, settings, server: ServerSide::new(compat), runtime })
    }

    /// `v1.28`, with the kubelet if it is another.
    fn name(&self) -> String {
        let Compat { api, kubelet, .. } = self.compat;
        if api == kubelet { api.to_string() } else { format!("{api} with kubelet {kubelet}") }
    }
}

/// Something that is not as it was.
struct Change {
    kind: &'static str,
    finding: Diagnostic,
    before: Value,
    after: Value,
}

/// The changes of one file.
struct Changes {
    verdicts: Vec<Verdict>,
    found: Vec<Change>,
    problems: Vec<Diagnostic>,
}

/// Runs the command.
pub fn run(args: &PreviewArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let from = Side::new(
        args,
        args.from,
        args.from_kubelet,
        &args.from_feature_gates,
        args.from_policy_version,
        args.from_runtime.as_ref(),
    )?;
    let to = Side::new(
        args,
        args.to,
        args.to_kubelet,
        &args.to_feature_gates,
        args.to_policy_version,
        args.to_runtime.as_ref(),
    )?;
    let found = inputs(args)?;
    if found.inputs.is_empty() && found.problems.is_empty() {
        return Err(Failure::input(
            "no manifests found: folders are searched for .yaml, .yml and .json files",
        ));
    }
    let mut files = Vec::new();
    let mut problems = found.problems;
    let work = |input: &Input| {
        let is_named = args.paths.iter().any(|path| matches!(input, Input::File(named) if named == path));
        changes_of(input, is_named, &from, &to, args.architecture)
    };
    in_order(&found.inputs, default_jobs(), &Progress::new(true), work, |result| match result {
        Ok(mut changes) => {
            problems.append(&mut changes.problems);
            files.push(changes);
        }
        Err(problem) => problems.push(*problem),
    });
    let objects: usize = files.iter().map(|file| file.verdicts.len()).sum();
    let changed: usize = files.iter().map(|file| file.found.len()).sum();
    let text = match args.output {
        PreviewFormat::Human => human_text(&files, &problems, terminal),
        PreviewFormat::Json => json_text(&files, &problems, &from, &to),
    };
    terminal.print(text)?;
    let counted =
        |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    terminal.report(format!(
        "{} from {} to {} for {}{}",
        counted(changed, "change"),
        from.name(),
        to.name(),
        counted(objects, "object"),
        if problems.is_empty() {
            String::new()
        } else {
            format!("; {} not compared", counted(problems.len(), "input"))
        }
    ));
    if objects == 0 && problems.is_empty() {
        terminal.report("error: nothing was compared: the input has no pods or workloads");
    }
    Ok(if objects == 0 || !problems.is_empty() {
        Exit::Input
    } else if changed > 0 {
        Exit::Findings
    } else {
        Exit::Clean
    })
}

fn inputs(args: &PreviewArgs) -> Result<Found, Failure> {
    if !args.cluster {
        let excluded = |path: &Path| args.exclude.iter().any(|pattern| glob_matches(pattern, path));
        return Ok(discover(&args.paths, excluded));
    }
    let live = LiveArgs {
        cluster: true,
        connection: args.connection.clone(),
        all_namespaces: args.all_namespaces,
        owned: true,
    };
    let listed = service::block_on(workloads(&live, args.namespace.as_deref()))?;
    if listed.objects.is_empty() {
        return Err(Failure::input("nothing was compared: no pods or workloads found"));
    }
    // What a workload controls is made again from its template.
    let own = listed.objects.into_iter().filter(|object| object.controller.is_none());
    let mut inputs: Vec<Input> = own.map(|object| object.input).collect();
    inputs.sort();
    Ok(Found { inputs, problems: Vec::new() })
}

fn changes_of(
    input: &Input,
    is_named: bool,
    from: &Side,
    to: &Side,
    machine: Architecture,
) -> Result<Changes, Box<Diagnostic>> {
    let file = input.name();
    let bytes = input.read()?;
    let text = decode(&file, &bytes)?;
    let report = |side: &Side| {
        let mut report = judge_text(&file, &text, &side.settings, &[]);
        if !is_named {
            report.set_aside(&bytes);
        }
        report.name_foreign(is_named);
        report
    };
    let (before, after) = (report(from), report(to));
    let mut found = Changes { verdicts: after.verdicts.clone(), found: Vec::new(), problems: Vec::new() };
    if let Some(problem) = not_built(&file, &text) {
        found.problems.push(Diagnostic::unchecked(Code::of("kustomize/not-supported"), &file, problem));
    }
    compare_reports(&before, &after, from, to, &mut found);
    let parsed = parse(&text, &Limits::default());
    let source = Source::new(&text);
    for document in &parsed.documents {
        for object in objects(document) {
            let sides = Sides { file: &file, source: &source, object: &object, from, to, machine };
            sides.compare(&mut found);
        }
    }
    found.found.sort_by(|a, b| {
        (a.finding.object.as_ref(), a.finding.order(), &a.finding.summary).cmp(&(
            b.finding.object.as_ref(),
            b.finding.order(),
            &b.finding.summary,
        ))
    });
    let titles: BTreeMap<&ObjectId, String> =
        before.verdicts.iter().chain(&after.verdicts).map(|verdict| (&verdict.id, verdict.title())).collect();
    for change in &mut found.found {
        change.finding.subject = change.finding.object.as_ref().and_then(|id| titles.get(id).cloned());
    }
    // An object that only one of the two can read is an object all the same.
    let known: BTreeSet<&ObjectId> = after.verdicts.iter().map(|verdict| &verdict.id).collect();
    found.verdicts.extend(before.verdicts.iter().filter(|verdict| !known.contains(&verdict.id)).cloned());
    Ok(found)
}

/// What makes two findings of two releases the same one; their words differ by release.
type FindingKey<'f> =
    (Option<&'f ObjectId>, &'f Code, Option<&'f str>, Option<&'f str>, Option<&'f str>, &'f [String]);

fn key(finding: &Diagnostic) -> FindingKey<'_> {
    let line = finding.path.is_none().then_some(finding.summary.as_str());
    (
        finding.object.as_ref(),
        &finding.code,
        finding.path.as_deref().or(line),
        finding.container.as_deref(),
        finding.value.as_deref(),
        &finding.containers,
    )
}

/// Findings of one release that the other does not have.
fn compare_reports(before: &FileReport, after: &FileReport, from: &Side, to: &Side, found: &mut Changes) {
    let keys = |report: &'_ FileReport| -> BTreeSet<String> {
        report.diagnostics.iter().map(|finding| format!("{:?}", key(finding))).collect()
    };
    let (old, new) = (keys(before), keys(after));
    for finding in &after.diagnostics {
        let is_known = old.contains(&format!("{:?}", key(finding)));
        if is_known {
            if finding.is_unchecked || finding.object.is_none() && finding.severity == Severity::Error {
                found.problems.push(finding.clone());
            }
            continue;
        }
        let mut finding = finding.clone();
        finding.because.push(format!("{} does not report it", from.name()));
        found.found.push(Change { kind: "new", before: Value::Null, after: json!(finding.summary), finding });
    }
    for finding in &before.diagnostics {
        if new.contains(&format!("{:?}", key(finding))) {
            continue;
        }
        let mut gone = finding.clone();
        let summary = std::mem::take(&mut gone.summary);
        gone.summary = format!("no longer on {}: {summary}", to.name());
        gone.severity = Severity::Warning;
        gone.because.clear();
        (gone.help, gone.fix) = (None, None);
        found.found.push(Change { kind: "gone", before: json!(summary), after: Value::Null, finding: gone });
    }
}

/// Versions of workloads that API servers from v1.19 on have stopped to serve, and the last release that did.
const LAST_SERVED: &[(&str, &str, u16)] = &[("batch/v1beta1", "CronJob", 24)];

/// An object on both clusters.
struct Sides<'s, 'd, 't> {
    file: &'s Arc<str>,
    source: &'s Source<'t>,
    object: &'s Object<'d>,
    from: &'s Side,
    to: &'s Side,
    machine: Architecture,
}

impl Sides<'_, '_, '_> {
    fn compare(&self, found: &mut Changes) {
        let Some(workload) = self.object.workload else { return };
        let Ok(mut value) = Value::deserialize(self.object.node) else {
            // swallowed: what cannot be read is among the findings of both
            return;
        };
        // Items of a typed list need not carry them.
        if let Value::Object(fields) = &mut value {
            fields.entry("apiVersion").or_insert_with(|| self.object.api_version.into());
            fields.entry("kind").or_insert_with(|| self.object.kind.into());
        }
        let namespace = self.object.metadata("namespace").unwrap_or("default");
        let asked = Asked { object: &value, api_version: self.object.api_version, workload, namespace };
        let mut changes = Vec::new();
        self.compare_served(&asked, &mut changes);
        // swallowed: as above
        let pod = read_template(self.object.node, workload.path).ok().flatten();
        let prepared =
            |side: &Side| pod.clone().map(|pod| Prepared::future_pod(pod, workload.subject(), &side.compat));
        let pods = (prepared(self.from), prepared(self.to));
        let view = pods.0.as_ref().map(Prepared::view);
        let view = view.as_ref();
        // Pod Security is among the findings, each with its field.
        let policy = Policy::default();
        let (before, after) =
            (self.from.server.answer(&asked, &policy), self.to.server.answer(&asked, &policy));
        for change in answer_changes(&before, &after) {
            changes.extend(self.of_answer(change, workload.path, view, found));
        }
        if let (Some(before), Some(after)) = &pods {
            for change in container_changes(before, &self.from.compat, after, &self.to.compat) {
                changes.push(self.of_container(change, view));
            }
            self.compare_runtimes(after, &mut changes);
        }
        for change in &mut changes {
            change.finding.object = Some(self.object.source.id().clone());
        }
        found.found.append(&mut changes);
    }

    fn finding(&self, code: &'static str, severity: Severity, summary: String) -> Diagnostic {
        let mut finding = Diagnostic::error(Code::of(code), self.file, summary);
        finding.severity = severity;
        finding.at(self.source.label(self.object.source.head(), ""))
    }

    /// The same with the place of a field, or of the annotation that stands in for it.
    fn finding_at(
        &self,
        code: &'static str,
        path: Option<&FieldPath>,
        view: Option<&PodView<'_, '_>>,
        summary: String,
    ) -> Diagnostic {
        let mut finding = self.finding(code, Severity::Warning, summary);
        if let Some(path) = path {
            let span = self.object.source.place(path, view).span;
            finding.at = Some(self.source.label(span, ""));
            finding.path = Some(path.to_string());
        }
        finding
    }

    fn compare_served(&self, asked: &Asked<'_>, changes: &mut Vec<Change>) {
        let serves =
            |side: &Side| match LAST_SERVED.iter().find(|(version, ..)| *version == asked.api_version) {
                Some(&(_, kind, last)) if kind == asked.workload.kind => side.compat.api_minor() <= last,
                _ => side.server.serves(asked),
            };
        let (before, after) = (serves(self.from), serves(self.to));
        if before == after {
            return;
        }
        let what = format!("{} of {}", asked.workload.kind, asked.api_version);
        let (severity, summary) = if before {
            (Severity::Error, format!("{} does not serve {what}", self.to.name()))
        } else {
            (Severity::Warning, format!("{} serves {what}", self.to.name()))
        };
        let finding = self.finding("preview/served", severity, summary);
        changes.push(Change { kind: "served", finding, before: json!(before), after: json!(after) });
    }

    fn of_answer(
        &self,
        change: AnswerChange,
        template: &[&'static str],
        view: Option<&PodView<'_, '_>>,
        found: &Changes,
    ) -> Option<Change> {
        // What the check of the object found has its place already.
        let is_reported = |reason: &Reason| {
            let id = Some(self.object.source.id());
            let mut own = found.found.iter().filter(|change| change.finding.object.as_ref() == id);
            !reason.field.is_empty()
                && own.any(|change| change.finding.path.as_deref() == Some(&reason.field))
        };
        let (from, to) = (self.from.name(), self.to.name());
        let words = |reason: &Reason| {
            if reason.field.is_empty() {
                reason.message.clone()
            } else {
                format!("{}: {}", reason.field, reason.message)
            }
        };
        Some(match change {
            AnswerChange::Refused(reason) => {
                if is_reported(&reason) {
                    return None;
                }
                let summary = format!("an API server of {to} rejects it: {}", words(&reason));
                let finding = self.finding("preview/refused", Severity::Error, summary);
                Change { kind: "refused", finding, before: Value::Null, after: json!(words(&reason)) }
            }
            AnswerChange::NoLongerRefused(reason) => {
                if is_reported(&reason) {
                    return None;
                }
                let summary =
                    format!("an API server of {to} accepts what one of {from} rejects: {}", words(&reason));
                let finding = self.finding("preview/refused", Severity::Warning, summary);
                Change { kind: "admitted", finding, before: json!(words(&reason)), after: Value::Null }
            }
            AnswerChange::Warned(text) => {
                let summary = format!("an API server of {to} warns: {text}");
                let finding = self.finding("preview/warning", Severity::Warning, summary);
                Change { kind: "warning", finding, before: Value::Null, after: json!(text) }
            }
            AnswerChange::NoLongerWarned(text) => {
                let summary = format!("an API server of {to} no longer warns: {text}");
                let finding = self.finding("preview/warning", Severity::Warning, summary);
                Change { kind: "warning", finding, before: json!(text), after: Value::Null }
            }
            AnswerChange::Stored(change) => self.of_stored(&change, template, view),
        })
    }

    fn of_stored(
        &self,
        change: &StoredChange,
        template: &[&'static str],
        view: Option<&PodView<'_, '_>>,
    ) -> Change {
        let path = change.path_in(template);
        let name = FieldPath::of(template).to_string();
        let field = if name.is_empty() { change.text() } else { format!("{name}.{}", change.text()) };
        let shown =
            |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
        let summary = format!(
            "an API server of {} stores {} in {field}, one of {} {}",
            self.to.name(),
            shown(&change.after),
            self.from.name(),
            shown(&change.before)
        );
        let mut finding = self.finding_at("preview/stored", Some(&path), view, summary);
        finding.path = Some(field);
        Change { kind: "stored", finding, before: json!(change.before), after: json!(change.after) }
    }

    fn of_container(&self, change: ContainerChange, view: Option<&PodView<'_, '_>>) -> Change {
        let ContainerChange { container, field, before, after } = change;
        let lists = |value: &Value| -> Option<BTreeSet<String>> {
            value.as_array().map(|items| items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        };
        let what = match (lists(&before.value), lists(&after.value)) {
            (Some(old), Some(new)) if field.ends_with("Paths") => {
                let added = new.difference(&old).map(|path| format!("+{path}"));
                let removed = old.difference(&new).map(|path| format!("-{path}"));
                format!("{field} changes: {}", added.chain(removed).collect::<Vec<_>>().join(" "))
            }
            _ => format!("{field} changes from {} to {}", before.shown, after.shown),
        };
        let place = after.path.as_ref().or(before.path.as_ref());
        let summary = format!("container \"{container}\": {what}");
        let mut finding = self
            .finding_at("preview/setting", place, view, summary)
            .because(format!("{}: {}", self.from.name(), before.from))
            .because(format!("{}: {}", self.to.name(), after.from));
        finding.container = Some(container);
        Change { kind: "setting", finding, before: before.value, after: after.value }
    }

    /// The default profiles of both runtimes, for the containers that run with them.
    fn compare_runtimes(&self, pod: &Prepared<'_>, changes: &mut Vec<Change>) {
        let (Some(old), Some(new)) = (&self.from.runtime, &self.to.runtime) else { return };
        for effective in effective_contexts(pod) {
            if effective.privileged.value || effective.seccomp.profile != Ok(ProfileRef::RuntimeDefault) {
                continue;
            }
            let names = capability_names(declared_capabilities(&effective));
            let capabilities: BTreeSet<String> = names.iter().map(|name| format!("CAP_{name}")).collect();
            let filter = |runtime: &RuntimeDefault| {
                // swallowed: the tables of runtimes are this program's own, and what cannot be compared is reported below
                Filter::read(&runtime.profile(&capabilities, self.machine, None).ok()?).ok()
            };
            let differences = match (filter(old), filter(new)) {
                // swallowed: as above
                (Some(old), Some(new)) => old.differences(&new).ok(),
                _ => None,
            };
            let place = effective.seccomp.source.path();
            let container = effective.container.to_owned();
            let report = |summary: String, before: Value, after: Value, changes: &mut Vec<Change>| {
                let mut finding = self.finding_at("preview/runtime-default", place, None, summary);
                finding.container = Some(container.clone());
                changes.push(Change { kind: "runtime-default", finding, before, after });
            };
            let Some(differences) = differences else {
                let summary = format!(
                    "container \"{container}\": the default profiles of {old} and {new} cannot be compared"
                );
                report(summary, Value::Null, Value::Null, changes);
                continue;
            };
            let of_kind = |kind: DifferenceKind| -> BTreeSet<&str> {
                let found = differences.iter().filter(|difference| difference.kind == kind);
                found.filter_map(|difference| difference.call.syscall).map(Syscall::name).collect()
            };
            let [gained, lost, others] =
                [DifferenceKind::Gained, DifferenceKind::Lost, DifferenceKind::Changed].map(of_kind);
            if differences.is_empty() {
                continue;
            }
            let parts = [
                ("may also call", &gained),
                ("may no longer call", &lost),
                ("gets other answers from", &others),
            ];
            let parts: Vec<String> = parts
                .iter()
                .filter(|(_, calls)| !calls.is_empty())
                .map(|(what, calls)| {
                    format!("{what} {}", calls.iter().copied().collect::<Vec<_>>().join(", "))
                })
                .collect();
            let what =
                if parts.is_empty() { "the default action differs".to_owned() } else { parts.join("; ") };
            let summary = format!(
                "container \"{container}\" with the default profile of {new} instead of {old}: {what}"
            );
            report(summary, json!({"lost": lost}), json!({"gained": gained, "changed": others}), changes);
        }
    }
}

fn human_text(files: &[Changes], problems: &[Diagnostic], terminal: &Terminal) -> String {
    let style = human::Style { color: terminal.out_color, width: Terminal::width() };
    let mut text = String::new();
    for file in files {
        let findings: Vec<Diagnostic> = file.found.iter().map(|change| change.finding.clone()).collect();
        human::diagnostics(&findings, style, &mut text);
    }
    human::diagnostics(problems, style, &mut text);
    text
}

fn json_text(files: &[Changes], problems: &[Diagnostic], from: &Side, to: &Side) -> String {
    let side = |side: &Side| {
        json!({"apiserver": side.compat.api.to_string(), "kubelet": side.compat.kubelet.to_string(),
            "policy": side.settings.policy.to_string(), "runtime": side.runtime.as_ref().map(ToString::to_string)})
    };
    let change = |change: &Change| {
        let finding = &change.finding;
        json!({"change": change.kind, "code": finding.code.as_str(), "severity": finding.severity.as_str(),
            "line": finding.line(), "column": finding.at.as_ref().map(|label| label.column), "path": finding.path,
            "container": finding.container, "message": finding.summary, "before": change.before, "after": change.after})
    };
    let object = |file: &Changes, verdict: &Verdict| {
        let own = file.found.iter().filter(|change| change.finding.object.as_ref() == Some(&verdict.id));
        let name = own.clone().next().map(|change| change.finding.file.to_string());
        json!({"file": name, "document": verdict.id.document, "kind": verdict.kind, "namespace": verdict.namespace,
            "name": verdict.name, "changes": own.map(change).collect::<Vec<_>>()})
    };
    let changed: Vec<Value> = files
        .iter()
        .flat_map(|file| file.verdicts.iter().map(move |verdict| object(file, verdict)))
        .filter(|object| object["changes"].as_array().is_some_and(|changes| !changes.is_empty()))
        .collect();
    let others: Vec<Value> = files
        .iter()
        .flat_map(|file| {
            let known: BTreeSet<&ObjectId> = file.verdicts.iter().map(|verdict| &verdict.id).collect();
            let is_other =
                move |change: &&Change| !change.finding.object.as_ref().is_some_and(|id| known.contains(id));
            file.found.iter().filter(is_other).map(change).collect::<Vec<_>>()
        })
        .collect();
    let problems: Vec<Value> = problems
        .iter()
        .map(|problem| json!({"code": problem.code.as_str(), "file": &*problem.file, "line": problem.line(), "message": problem.summary}))
        .collect();
    let objects: usize = files.iter().map(|file| file.verdicts.len()).sum();
    let whole = json!({"from": side(from), "to": side(to), "objects": changed, "others": others, "problems": problems,
        "summary": {"objects": objects, "changed": changed.len(), "changes": files.iter().map(|file| file.found.len()).sum::<usize>()}});
    format!("{whole:#}\n")
}
