//! `palisade check`: what is wrong with these manifests?

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

use clap::Args;
use palisade_model::compat::Compat;
use palisade_policy::standards::{
    level::{Level, LevelVersion, Version},
    policy::Policy,
};

use crate::{
    args::{ApiVersion, FeatureGate, policy_version},
    baseline::{Baseline, BaselineChange, BaselineMode},
    charts::{ChartMode, HelmValues, check_chart, take_charts, with_definitions},
    cluster::ClusterError,
    config::{self, Chosen, Config, glob_matches},
    diagnostic::{Code, Diagnostic, Severity},
    exceptions,
    failure::{Exit, Failure},
    fix::{FixOptions, Fixed, fix_text, listing_text, unified_diff},
    git::ChangedSince,
    images::{self, ImageLayout},
    input::{Found, Input, Overlay, discover_in},
    judge::{Configured, FileReport, Settings, decode, definitions_of, judge_bytes, judge_text},
    live::{LiveArgs, LiveObject},
    overlays::{OverlayMode, check_overlays, files_of, take_overlays},
    parallel::{Progress, default_jobs, in_order},
    render::{Format, Fragment, Output, Renderer, Sinks, Totals, human},
    replace::{ReplaceError, replace},
    service,
    suppression::Terms,
    terminal::Terminal,
    watch::{Stamps, next_look},
};

/// What `check` checks.
#[derive(Debug, Args)]
pub struct CheckInputArgs {
    /// Files, folders (searched for .yaml, .yml and .json), or - for stdin
    #[arg(required_unless_present = "cluster", conflicts_with = "cluster", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Exclude paths that match, such as `vendor/**` or `*.tmpl.yaml`; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Also search files that git ignores and does not track
    #[arg(long)]
    pub no_ignore: bool,
    /// Only files that differ from the merge base of HEAD with this commit, on disk, and charts with such files
    #[arg(long, value_name = "REF", conflicts_with = "cluster")]
    pub changed_since: Option<String>,
    /// Or a cluster.
    #[command(flatten)]
    pub live: LiveArgs,
}

/// `palisade check`
#[derive(Debug, Args)]
#[command(after_help = CHECK_AFTER_HELP)]
pub struct CheckArgs {
    /// Where to look.
    #[command(flatten)]
    pub input: CheckInputArgs,
    /// Level of the Pod Security Standards: privileged, baseline or restricted [default: restricted]
    #[arg(long, short, value_name = "LEVEL")]
    pub level: Option<Level>,
    /// Version of the standards: v1.0 to v1.37, or latest [default: latest]
    #[arg(long, value_name = "VERSION", value_parser = policy_version)]
    pub policy_version: Option<Version>,
    /// Release of the API server that the manifests are for: v1.19 to v1.37, or `extended` for Palisade's extensions [default: v1.37]
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Option<ApiVersion>,
    /// Feature gates: SeccompConfigMaps=true, SecurityProfileOCIArtifact=true, AppArmor=false
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',')]
    pub feature_gates: Vec<FeatureGate>,
    /// Namespace of objects that do not set one
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// File or folder with SecurityExceptions that apply, and with Namespaces whose labels they select; may be repeated
    #[arg(long, value_name = "PATH")]
    pub exceptions: Vec<PathBuf>,
    /// Output: human, summary, table, json, sarif, junit, github, gitlab, html or name, each optionally =FILE; may be repeated [default: human]
    #[arg(long, short, value_name = "FORMAT[=FILE]", value_delimiter = ',')]
    pub output: Vec<Output>,
    /// Print one line for each object and totals by rule and folder, instead of the findings
    #[arg(long)]
    pub summary: bool,
    /// Write the safe fixes into the files: those after which the containers behave as before
    #[arg(long)]
    pub fix: bool,
    /// Write all fixes into the files, also those that may change what the containers do
    #[arg(long)]
    pub unsafe_fixes: bool,
    /// Also edit objects that stay refused
    #[arg(long)]
    pub fix_partial: bool,
    /// Print every fix with its reason and the changes as a unified diff, and write nothing; with --fix the safe ones alone
    #[arg(long)]
    pub diff: bool,
    /// Values for Helm charts, as helm takes them with -f; may be repeated, the last wins
    #[arg(long, value_name = "FILE")]
    pub helm_values: Vec<PathBuf>,
    /// A value for Helm charts, such as `web.replicas=2`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub helm_set: Vec<String>,
    /// Findings that are known: only others fail. The file must exist; see --write-baseline
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Record the findings of today in the file of --baseline
    #[arg(long, requires = "baseline")]
    pub write_baseline: bool,
    /// Remove findings that are gone from the file of --baseline; none is added
    #[arg(long, requires = "baseline", conflicts_with = "write_baseline")]
    pub update_baseline: bool,
    /// OCI image layout with the images of the pods, for the user that each runs as, optionally with the name of its image; may be repeated
    #[arg(long, value_name = "[IMAGE=]DIR")]
    pub image_layout: Vec<ImageLayout>,
    /// Treat objects of kinds that are not checked as errors
    #[arg(long)]
    pub strict: bool,
    /// Configuration file [default: palisade.toml in this folder or the closest parent that has one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Do not read a configuration file
    #[arg(long, conflicts_with = "config")]
    pub no_config: bool,
    /// Files to check at the same time [default: one for each processor]
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<std::num::NonZeroUsize>,
    /// Check again whenever a file changes, until interrupted
    #[arg(long, conflicts_with_all = ["cluster", "fix", "unsafe_fixes", "fix_partial", "diff", "write_baseline", "update_baseline"])]
    pub watch: bool,
    /// Print no summary and no progress
    #[arg(long, short)]
    pub quiet: bool,
}

const CHECK_AFTER_HELP: &str = "\
Exit status: 0 clean, 1 findings, 2 nothing could be checked or wrong usage, 3 could not complete.

To accept a finding for a while, write a SecurityException and pass it with --exceptions, or give the reason on its line or the line above:
    # palisade:ignore pss/hostPorts reason=\"node exporter\" until=2027-01-31
or for a whole object, in its annotations:
    palisade.dev/ignore: \"pss/hostPorts; reason=node exporter; until=2027-01-31\"";

/// Runs the command.
pub fn run(args: &CheckArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if args.watch {
        return watch(args, terminal);
    }
    run_once(args, terminal)
}

/// Checks whenever something changes that the check reads. The files that it writes do not count.
fn watch(args: &CheckArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if args.input.paths.iter().any(|path| path.as_os_str() == "-") {
        return Err(Failure::input("--watch looks at files, and stdin is none"));
    }
    loop {
        let mut paths = args.input.paths.clone();
        let configured = args.config.clone().or_else(|| config::closest().filter(|_| !args.no_config));
        paths.extend([configured, args.baseline.clone()].into_iter().flatten());
        paths.extend(args.exceptions.iter().chain(&args.helm_values).cloned());
        // A change during the check is one that the check may have missed.
        let before = Stamps::of(paths.iter().map(PathBuf::as_path));
        match run_once(args, terminal) {
            Ok(_) => {}
            Err(failure) if failure.exit == Exit::Incomplete => return Err(failure),
            // A mistake in the configuration may be gone with the next change.
            Err(failure) => terminal.report(format!("error: {failure}")),
        }
        // An output that is written into a watched folder is no change.
        let mut after = Stamps::of(paths.iter().map(PathBuf::as_path));
        let written = args.output.iter().filter_map(|output| output.file.as_deref());
        if before.without(written.clone()) == after.without(written.clone()) {
            terminal.report("watching for changes");
            while after.without(written.clone()) == before.without(written.clone()) {
                after = next_look(&paths);
            }
        }
    }
}

fn run_once(args: &CheckArgs, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let config = if args.no_config { Config::default() } else { Config::find(args.config.as_deref())? };
    let mut outputs = if args.output.is_empty() { config.output.clone() } else { args.output.clone() };
    if args.summary {
        outputs.retain(|output| *output != Output::HUMAN);
        outputs.push(Output { format: Format::Summary, file: None });
    }
    let on_stdout = outputs.iter().filter(|output| output.file.is_none()).count();
    if on_stdout > 1 {
        return Err(Failure::input(
            "only one format can be written to stdout: write the others to files, for example `-o sarif=FILE`",
        ));
    }
    let mode = Mode::of(args);
    if mode.needs_stdout() {
        if args.output.iter().any(|output| output.file.is_none()) {
            return Err(Failure::input(
                "fixes of stdin and --diff write to stdout: write the report to a file, for example `-o json=FILE`",
            ));
        }
        outputs.retain(|output| output.file.is_some());
    } else if outputs.is_empty() {
        outputs.push(Output::HUMAN);
    }
    check(args, &config, outputs, terminal)
}

/// The command line wins over the file, and both over what a cluster announces.
fn settings(args: &CheckArgs, config: &Config, announced: Option<Compat>) -> Result<Settings, Failure> {
    let chosen = Chosen {
        level: args.level,
        policy_version: args.policy_version,
        kubernetes_version: args.kubernetes_version,
        feature_gates: args.feature_gates.clone(),
        namespace: args.namespace.clone(),
        strict: args.strict,
    };
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let mut settings = config.settings(&chosen, announced, today);
    settings.images = images::of_layouts(&args.image_layout)?;
    settings.forms.clone_from(&config.workload);
    let (paths, honour_gitignore) = (args.input.paths.clone(), !args.input.no_ignore);
    settings.definitions = LazyLock::new(Box::new(move || definitions(&paths, honour_gitignore)));
    Ok(settings)
}

/// What the definitions in a search define. Most repositories have no object that needs it.
fn definitions(paths: &[PathBuf], honour_gitignore: bool) -> Vec<Configured> {
    let found = discover_in(paths, honour_gitignore, |_| false);
    let files = found.inputs.iter().filter(|input| matches!(input, Input::File(_)));
    let mut all = Vec::new();
    for input in files {
        // swallowed: a file that cannot be read is reported where it is judged
        let Ok(bytes) = input.read() else { continue };
        if memchr::memmem::find(&bytes, b"CustomResourceDefinition").is_some()
            && let Ok(text) = palisade_yaml::decode(&bytes)
        {
            all.extend(definitions_of(&text));
        }
    }
    all
}

fn check(
    args: &CheckArgs,
    config: &Config,
    outputs: Vec<Output>,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mode = Mode::of(args);
    let excluded = |path: &Path| {
        config.excludes(path) || args.input.exclude.iter().any(|pattern| glob_matches(pattern, path))
    };
    let baseline = open_baseline(args)?;
    let is_baseline = |path: &Path| baseline.as_ref().is_some_and(|baseline| baseline.is(path));
    let live = &args.input.live;
    let mut announced = None;
    let mut scope = None;
    let mut facts = Vec::new();
    let mut unreadable_namespaces = None;
    let mut objects = Vec::new();
    let mut found = if live.cluster {
        let namespace = args.namespace.as_deref();
        let listed = service::block_on(crate::live::workloads(live, namespace))?;
        if listed.objects.is_empty() {
            return Err(Failure::input("nothing was checked: no pods or workloads found"));
        }
        announced = Some(listed.compat);
        objects = listed.objects;
        scope = Some(Vec::from_iter(listed.namespace));
        facts = listed.facts;
        unreadable_namespaces = listed.unreadable_namespaces;
        if let Some(error) = listed.unreadable_exceptions {
            terminal.report(format!(
                "warning: the exceptions of the cluster are not known and not applied: {error}"
            ));
        }
        Found::default()
    } else {
        discover_in(&with_definitions(&args.input.paths), !args.input.no_ignore, |path: &Path| {
            excluded(path) || is_baseline(path)
        })
    };
    let mut settings = settings(args, config, announced)?;
    settings.exceptions = exceptions::of_paths_and(&args.exceptions, facts)?;
    let helm_values = HelmValues::read(&args.helm_values, &args.helm_set)?;
    take_charts(&mut found.inputs);
    let undecided =
        if live.cluster { namespace_policies(args, &objects, &mut settings) } else { BTreeSet::new() };
    let settings = &settings;
    let left_out = take_overlays(&mut found.inputs, &args.input.paths, mode != Mode::Report, settings.compat);
    let mut folded = fold(objects, live.owned, settings);
    found.problems.append(&mut undecided_problems(&undecided, unreadable_namespaces.as_ref(), &mut folded));
    found.inputs.append(&mut folded);
    let unchanged = leave_unchanged(args, &mut found.inputs)?;
    if mode == Mode::Fix || mode == Mode::FixStdin {
        once(&mut found.inputs);
    }
    let is_empty = found.inputs.is_empty() && found.problems.is_empty();
    if is_empty && left_out > 0 && unchanged.unwrap_or_default() == 0 {
        return Err(Failure::input(
            "nothing was checked: patches are no objects by themselves; check the folder of their kustomization",
        ));
    }
    if is_empty && unchanged.unwrap_or_default() == 0 {
        return Err(Failure::input(
            "no manifests found: folders are searched for .yaml, .yml and .json files",
        ));
    }
    let style = human::Style { color: terminal.out_color, width: Terminal::width() };
    let judged_at = if settings.namespaces.is_empty() {
        settings.policy.to_string()
    } else {
        "the level of each namespace".to_owned()
    };
    let renderers: Vec<Renderer> =
        outputs.into_iter().map(|output| Renderer::new(output, &judged_at, style)).collect();
    let mut sinks = Sinks::open(&renderers, &mut terminal.out).map_err(Failure::output)?;
    let drawn = |answer: Answer| {
        let source = if renderers.iter().any(Renderer::needs_source) { answer.source() } else { None };
        let fragments: Vec<Fragment> =
            renderers.iter().map(|renderer| renderer.fragment(&answer.report, source.as_deref())).collect();
        (answer, fragments)
    };

    let mut incomplete = false;
    for problem in found.problems {
        let (answer, fragments) = drawn(Answer::of(FileReport::unreadable(problem)));
        sinks.push(&answer.report, &fragments, &mut terminal.out);
    }
    let options =
        FixOptions { may_change: args.unsafe_fixes || (args.diff && !args.fix), partial: args.fix_partial };
    let work = |input: &Input| {
        let mut answers = if let Input::Chart(path) = input {
            chart_answers(path, mode, options, settings, config, &helm_values)
        } else if let Input::Overlays(overlays) = input {
            overlay_answers(overlays, mode, options, settings, config)
        } else {
            let mut answer = answer(input, mode, options, settings, config);
            let named = is_named(input, &args.input.paths);
            if !named && !settings.strict {
                answer.set_aside();
            }
            answer.report.name_foreign(named);
            answer.report.grade(&settings.severities);
            vec![answer]
        };
        if let Some(baseline) = &baseline {
            baseline.compare(Some(input), answers.iter_mut().map(|answer| &mut answer.report));
        }
        answers.into_iter().map(drawn).collect::<Vec<_>>()
    };
    let mut templates = Templates::default();
    let progress = Progress::new(!args.quiet);
    let jobs = args.jobs.unwrap_or_else(default_jobs);
    in_order(&found.inputs, jobs, &progress, work, |answers| {
        for (answer, fragments) in answers {
            if answer.report.is_template
                && !settings.strict
                && templates.take(&answer.report, &args.input.paths)
            {
                continue;
            }
            let silent =
                answer.report.diagnostics.is_empty() && answer.messages.is_empty() && answer.stdout.is_none();
            if silent {
                sinks.push(&answer.report, &fragments, &mut terminal.out);
                continue;
            }
            progress.around(|| {
                emit(&answer, &fragments, mode, args.quiet, &mut sinks, terminal);
                if progress.is_watched() {
                    sinks.flush(&mut terminal.out);
                }
            });
            incomplete |= answer.incomplete;
        }
    });
    for report in templates.into_reports() {
        let (answer, fragments) = drawn(Answer::of(report));
        sinks.push(&answer.report, &fragments, &mut terminal.out);
    }
    let totals = sinks.finish(&mut terminal.out).map_err(Failure::output)?;
    if !args.quiet {
        terminal.report(summary(&totals, &judged_at, mode == Mode::Report && !live.cluster));
        if let Some(unchanged) = unchanged.filter(|&unchanged| unchanged > 0) {
            terminal.report(format!(
                "{} did not change and {} not checked",
                count(unchanged, "file"),
                was(unchanged)
            ));
        }
    }
    let nothing_changed = unchanged.is_some() && totals.objects == 0 && totals.errors == 0;
    if totals.objects == 0 && totals.errors == 0 && !nothing_changed {
        terminal.report("error: nothing was checked: the input has no pods or workloads");
    }
    let exit = if incomplete {
        Exit::Incomplete
    } else if nothing_changed && totals.error_findings == 0 {
        Exit::Clean
    } else {
        exit(&totals)
    };
    if let Some(baseline) = baseline.filter(|_| exit <= Exit::Findings) {
        let change = baseline.finish(scope.as_deref())?;
        if !args.quiet {
            terminal.report(baseline_text(args, change));
        }
    }
    Ok(exit)
}

/// Gives each namespace of a cluster the level and version of its labels, unless the user names a level; the others are returned.
fn namespace_policies(args: &CheckArgs, objects: &[LiveObject], settings: &mut Settings) -> BTreeSet<String> {
    if args.level.is_some() {
        return BTreeSet::new();
    }
    let mut undecided = BTreeSet::new();
    let defaults = Policy { enforce: settings.policy, ..Policy::default() };
    for name in objects.iter().map(|object| namespace_of(&object.input)).collect::<BTreeSet<String>>() {
        let Some(labels) = settings.exceptions.namespace_labels(&name) else {
            undecided.insert(name);
            continue;
        };
        // A level that cannot be read is restricted, as in the API server.
        let (policy, _) = Policy::from_labels(labels, &defaults);
        let version = args.policy_version.unwrap_or(policy.enforce.version);
        settings.namespaces.insert(name, LevelVersion::new(policy.enforce.level, version));
    }
    undecided
}

fn namespace_of(input: &Input) -> String {
    let name = input.name();
    name.strip_prefix("cluster:").and_then(|name| name.split('/').next()).unwrap_or_default().to_owned()
}

/// Takes the objects of namespaces whose level is not known out of the inputs: each namespace is a finding instead.
fn undecided_problems(
    undecided: &BTreeSet<String>,
    reason: Option<&ClusterError>,
    inputs: &mut Vec<Input>,
) -> Vec<Diagnostic> {
    inputs.retain(|input| !matches!(input, Input::Live { .. }) || !undecided.contains(&namespace_of(input)));
    let reason = reason.map_or_else(
        || "it does not exist any more, or has labels that cannot be read".to_owned(),
        ToString::to_string,
    );
    undecided
        .iter()
        .map(|name| {
            let file: Arc<str> = format!("cluster:{name}").into();
            Diagnostic::unchecked(
                Code::of("input/namespace"),
                &file,
                format!("the level of namespace {name:?} is not known, so its objects were not judged"),
            )
            .because(reason.clone())
            .help("name a level for all objects with --level")
        })
        .collect()
}

fn open_baseline(args: &CheckArgs) -> Result<Option<Baseline>, Failure> {
    let Some(path) = &args.baseline else { return Ok(None) };
    let mode = match (args.write_baseline, args.update_baseline) {
        (true, _) => BaselineMode::Record,
        (_, true) => BaselineMode::Shrink,
        _ => BaselineMode::Compare,
    };
    Ok(Some(Baseline::open(path, mode)?))
}

fn baseline_text(args: &CheckArgs, change: BaselineChange) -> String {
    let BaselineChange { recorded, gone, written } = change;
    let path = args.baseline.as_deref().unwrap_or(Path::new("")).display();
    match (written, gone) {
        (true, 0) => format!("{path}: {} recorded", count(recorded, "finding")),
        (true, _) => format!("{path}: {} recorded, {gone} removed", count(recorded, "finding")),
        (false, 0) => format!("{path}: no finding is gone"),
        (false, _) => {
            format!("{path}: {} gone; --update-baseline removes what is gone", are(gone, "finding"))
        }
    }
}

/// Leaves out what did not change since the commit of the user; how many, if there is such a commit.
fn leave_unchanged(args: &CheckArgs, inputs: &mut Vec<Input>) -> Result<Option<usize>, Failure> {
    let Some(reference) = &args.input.changed_since else { return Ok(None) };
    if args.input.paths.iter().any(|path| path.as_os_str() == "-") {
        return Err(Failure::input("--changed-since compares files, and stdin is none"));
    }
    let changed = ChangedSince::of(&args.input.paths, reference)?;
    let values_changed = args.helm_values.iter().any(|path| changed.file(path));
    let before = inputs.len();
    inputs.retain_mut(|input| match input {
        Input::File(path) => changed.file(path),
        Input::Chart(path) if path.is_file() => values_changed || changed.file(path),
        Input::Chart(path) => values_changed || has_outer_parts(path) || changed.folder(path),
        Input::Overlays(overlays) => {
            let differs = |overlay: &Overlay| {
                let may_differ = |files: Vec<PathBuf>| files.iter().any(|file| changed.file(file));
                changed.folder(&overlay.folder) || files_of(overlay).is_none_or(may_differ)
            };
            overlays.retain(differs);
            !overlays.is_empty()
        }
        Input::Stdin | Input::Live { .. } => true,
    });
    Ok(Some(before - inputs.len()))
}

/// Whether a chart reads files outside its folder: a dependency with `repository: file://…`.
fn has_outer_parts(chart: &Path) -> bool {
    ["Chart.yaml", "requirements.yaml"].iter().any(|name| {
        std::fs::read(chart.join(name)).is_ok_and(|bytes| memchr::memmem::find(&bytes, b"file:").is_some())
    })
}

/// Files that are templates, by folder: a folder of them is one finding.
#[derive(Debug, Default)]
struct Templates(BTreeMap<PathBuf, usize>);

impl Templates {
    /// Takes the report of a file that a search found; a file that the user named is reported itself.
    fn take(&mut self, report: &FileReport, named: &[PathBuf]) -> bool {
        let path = Path::new(&*report.file);
        if named.iter().any(|named| named == path) || report.file.starts_with('<') {
            return false;
        }
        *self.0.entry(path.parent().unwrap_or(Path::new("")).to_owned()).or_default() += 1;
        true
    }

    fn into_reports(self) -> impl Iterator<Item = FileReport> {
        self.0.into_iter().map(|(folder, files)| {
            let name: Arc<str> =
                if folder.as_os_str().is_empty() { ".".into() } else { folder.to_string_lossy().as_ref().into() };
            let what = if files == 1 { "1 file is a template".to_owned() } else { format!("{files} files are templates") };
            let finding = Diagnostic::unchecked(Code::of("input/template"), &name, format!("{what}, and cannot be checked before they are rendered"))
                .help("check the rendered manifests: helm template CHART | palisade check -; or exclude the folder with --exclude");
            FileReport { files, errors: files, ..FileReport::unreadable(finding) }
        })
    }
}

/// Whether the user named this very input, rather than a folder it is in.
fn is_named(input: &Input, paths: &[PathBuf]) -> bool {
    match input {
        Input::File(path) | Input::Chart(path) => paths.contains(path),
        Input::Stdin => true,
        Input::Overlays(_) | Input::Live { .. } => false,
    }
}

/// A finding, without its place.
type FoundIn = (Code, Severity, Option<String>);

/// Leaves out what another object of the cluster controls, if it has no findings that its controller does not have.
fn fold(objects: Vec<LiveObject>, owned: bool, settings: &Settings) -> Vec<Input> {
    let findings_of = |object: &LiveObject| -> Option<(String, BTreeSet<FoundIn>)> {
        let bytes = object.input.read().ok()?;
        let report = judge_bytes(&object.input.name(), &bytes, settings, &[]);
        let verdict = report.verdicts.first().filter(|_| report.errors == 0)?;
        let findings = report
            .diagnostics
            .iter()
            .map(|found| (found.code.clone(), found.severity, found.container.clone()));
        Some((verdict.message.clone(), findings.collect()))
    };
    let alike = |object: &LiveObject| {
        let controller = object.controller.and_then(|controller| objects.get(controller));
        controller.is_some_and(|controller| match (findings_of(object), findings_of(controller)) {
            (Some((message, findings)), Some((expected, known))) => {
                message == expected && findings.is_subset(&known)
            }
            _ => false,
        })
    };
    let folded: Vec<bool> = objects.iter().map(|object| !owned && alike(object)).collect();
    let kept = objects.into_iter().zip(folded).filter(|(_, folded)| !folded);
    let mut inputs: Vec<Input> = kept.map(|(object, _)| object.input).collect();
    inputs.sort();
    inputs
}

/// Writes the results of a file, each part to its stream.
fn emit(
    answer: &Answer,
    fragments: &[Fragment],
    mode: Mode,
    quiet: bool,
    sinks: &mut Sinks,
    terminal: &mut Terminal,
) {
    sinks.push(&answer.report, fragments, &mut terminal.out);
    if let Some(text) = &answer.stdout {
        sinks.write(text, &mut terminal.out);
    }
    if mode == Mode::FixStdin {
        let style = human::Style { color: terminal.err_color, width: None };
        let mut left = String::new();
        human::diagnostics(&answer.report.diagnostics, style, &mut left);
        terminal.report_text(&left);
    }
    for line in answer.messages.iter().filter(|line| !quiet || line.starts_with("error")) {
        terminal.report(line);
    }
}

/// A file that several links lead to is fixed once.
fn once(inputs: &mut Vec<Input>) {
    let mut seen = HashSet::new();
    inputs.retain(|input| match input {
        Input::File(path) | Input::Chart(path) => {
            path.canonicalize().map_or(true, |target| seen.insert(target))
        }
        Input::Overlays(_) | Input::Stdin | Input::Live { .. } => true,
    });
}

/// What to do about findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Report,
    Fix,
    /// The fixed text of stdin goes to stdout.
    FixStdin,
    Diff,
}

impl Mode {
    fn of(args: &CheckArgs) -> Self {
        let stdin = args.input.paths.iter().any(|path| path.as_os_str() == "-");
        match (args.diff, args.fix || args.unsafe_fixes || args.fix_partial) {
            (true, _) => Self::Diff,
            (false, true) if stdin => Self::FixStdin,
            (false, true) => Self::Fix,
            (false, false) => Self::Report,
        }
    }

    const fn needs_stdout(self) -> bool {
        matches!(self, Self::Diff | Self::FixStdin)
    }
}

/// The results of a file.
struct Answer {
    report: FileReport,
    /// What was read, if something may be wrong with it.
    suspect: Option<Vec<u8>>,
    stdout: Option<String>,
    messages: Vec<String>,
    incomplete: bool,
}

impl Answer {
    const fn of(report: FileReport) -> Self {
        Self { report, suspect: None, stdout: None, messages: Vec::new(), incomplete: false }
    }

    /// The same, with what was read where the report has something to say.
    fn of_bytes(report: FileReport, bytes: Vec<u8>) -> Self {
        let is_suspect = report.errors > 0 || !report.diagnostics.is_empty();
        Self { suspect: is_suspect.then_some(bytes), ..Self::of(report) }
    }

    /// See [`FileReport::set_aside`]. Without the bytes, the file could not be read, and that is reported.
    fn set_aside(&mut self) {
        if let Some(bytes) = &self.suspect {
            self.report.set_aside(bytes);
        }
    }

    /// The text that the report is about.
    fn source(&self) -> Option<Cow<'_, str>> {
        // swallowed: what cannot be decoded is reported, and has no lines to show
        palisade_yaml::decode(self.suspect.as_deref()?).ok()
    }
}

fn answer(input: &Input, mode: Mode, options: FixOptions, settings: &Settings, config: &Config) -> Answer {
    let bytes = match input.read() {
        Ok(bytes) => bytes,
        Err(problem) => return Answer::of(FileReport::unreadable(*problem)),
    };
    let (file, accepted) = (input.name(), accepted(input, config));
    if mode == Mode::Report {
        return Answer::of_bytes(judge_bytes(&file, &bytes, settings, &accepted), bytes);
    }
    let text = match decode(&file, &bytes) {
        Ok(text) => text,
        Err(problem) => return Answer::of_bytes(FileReport::unreadable(*problem), bytes.clone()),
    };
    let Fixed { text: fixed, report, fixed: count, refused, listed } =
        fix_text(&file, &text, settings, &accepted, options);
    let mut answer = Answer::of_bytes(report, bytes.clone());
    answer.messages = refused.iter().map(|reason| format!("{file}: not fixed: {reason}")).collect();
    let listed = listing_text(&listed);
    let Some(fixed) = fixed else {
        if mode == Mode::Diff && !listed.is_empty() {
            answer.stdout = Some(format!("# {file}\n{listed}"));
        }
        if mode == Mode::FixStdin && *input == Input::Stdin {
            answer.stdout = Some(text.into_owned());
        }
        return answer;
    };
    match (mode, input) {
        (Mode::Diff, _) => {
            answer.stdout = Some(format!("{listed}{}", unified_diff(&file, &text, &fixed)));
            // Nothing is written: what is in the file is what counts.
            answer.report = judge_text(&file, &text, settings, &accepted);
        }
        (_, Input::Stdin | Input::Live { .. } | Input::Chart(_) | Input::Overlays(_)) => {
            answer.suspect = Some(fixed.clone().into_bytes());
            answer.stdout = Some(fixed);
        }
        (_, Input::File(path)) => {
            let left = answer.report.diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
            let written = if matches!(text, Cow::Owned(_)) {
                Err(ReplaceError::Utf16)
            } else {
                replace(path, &bytes, fixed.as_bytes())
            };
            match written {
                Ok(()) => {
                    answer.suspect = Some(fixed.into_bytes());
                    let message =
                        format!("fixed {file}: {} fixed, {left} left", self::count(count, "finding"));
                    answer.messages.push(message);
                }
                Err(reason) => {
                    answer.messages.push(format!("error: cannot fix {file}: {reason}"));
                    answer.report = judge_text(&file, &text, settings, &accepted);
                    answer.incomplete = true;
                }
            }
        }
    }
    answer
}

/// What became of a chart: an answer for the chart and one for each of its templates.
fn chart_answers(
    path: &Path,
    mode: Mode,
    options: FixOptions,
    settings: &Settings,
    config: &Config,
    values: &HelmValues,
) -> Vec<Answer> {
    let chart_mode = ChartMode {
        fix: mode == Mode::Fix,
        diff: mode == Mode::Diff,
        may_change: options.may_change,
        partial: options.partial,
    };
    let checked = check_chart(path, settings, config, values, chart_mode);
    let mut answers: Vec<Answer> = checked.reports.into_iter().map(Answer::of).collect();
    for answer in &mut answers {
        answer.report.grade(&settings.severities);
    }
    if let Some(first) = answers.first_mut() {
        first.messages = checked.messages;
        first.stdout = checked.stdout;
        first.incomplete = checked.incomplete;
    }
    answers
}

/// What became of overlays: an answer for each.
fn overlay_answers(
    overlays: &[Overlay],
    mode: Mode,
    options: FixOptions,
    settings: &Settings,
    config: &Config,
) -> Vec<Answer> {
    let overlay_mode = OverlayMode {
        fix: mode == Mode::Fix,
        diff: mode == Mode::Diff,
        may_change: options.may_change,
        partial: options.partial,
    };
    let checked = check_overlays(overlays, settings, config, overlay_mode);
    let mut answers: Vec<Answer> = checked.reports.into_iter().map(Answer::of).collect();
    for answer in &mut answers {
        answer.report.grade(&settings.severities);
    }
    if let Some(first) = answers.first_mut() {
        first.messages = checked.messages;
        first.stdout = checked.stdout;
        first.incomplete = checked.incomplete;
    }
    answers
}

fn accepted(input: &Input, config: &Config) -> Vec<Terms> {
    match input {
        Input::File(path) if !config.ignore.is_empty() => config.accepted_in(path),
        _ => Vec::new(),
    }
}

/// Errors decide. Where nothing could be checked, the input is at fault.
fn exit(totals: &Totals) -> Exit {
    if totals.objects == 0 {
        Exit::Input
    } else if totals.error_findings > 0 {
        Exit::Findings
    } else {
        Exit::Clean
    }
}

fn summary(totals: &Totals, judged_at: &str, can_fix: bool) -> String {
    let mut line = format!(
        "{} in {} checked at {judged_at}: {} allowed, {} denied",
        count(totals.objects, "object"),
        count(totals.files, "file"),
        totals.allowed,
        totals.denied
    );
    if totals.undecided > 0 {
        line.push_str(&[", ", &totals.undecided.to_string(), " undecided"].concat());
    }
    let mut details = Vec::new();
    if totals.error_findings > 0 {
        details.push(count(totals.error_findings, "error"));
    }
    if totals.warning_findings > 0 {
        details.push(count(totals.warning_findings, "warning"));
    }
    if totals.suppressed > 0 {
        details.push(format!("{} accepted", totals.suppressed));
    }
    if totals.known > 0 {
        details.push(format!("{} of the baseline", count(totals.known, "finding")));
    }
    if totals.skipped > totals.not_objects {
        let other_kinds = totals.skipped - totals.not_objects;
        details.push(format!("{} of kinds that are not checked", count(other_kinds, "object")));
    }
    if totals.not_objects > 0 {
        let documents = if totals.not_objects == 1 {
            "1 document is"
        } else {
            &format!("{} documents are", totals.not_objects)
        };
        details.push(format!("{documents} not Kubernetes"));
    }
    if !details.is_empty() {
        line.push_str("; ");
        line.push_str(&details.join(", "));
    }
    if totals.fixable > 0 && can_fix {
        let fixable = count(totals.fixable, "finding");
        let how = match (totals.safely_fixable, totals.fixable - totals.safely_fixable) {
            (_, 0) => " with --fix".to_owned(),
            (0, _) => " with --unsafe-fixes".to_owned(),
            (safe, others) => format!(", {safe} with --fix and {others} with --unsafe-fixes"),
        };
        line.push_str(&["\n", &fixable, " can be fixed", &how, "; --diff shows what would change"].concat());
    }
    line
}

const fn was(number: usize) -> &'static str {
    if number == 1 { "was" } else { "were" }
}

fn are(number: usize, noun: &str) -> String {
    format!("{} {}", count(number, noun), if number == 1 { "is" } else { "are" })
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
