//! A chart in, reports of its templates out: rendered, judged, and every finding moved to where it can be changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use palisade_helm::{
    Chart, Engine, Limits, OutputSource, RenderError, RenderedTemplate, Rendering, Target, ValuePath,
};
use palisade_policy::standards::{finding::Edit, fixes::Effect};
use palisade_yaml::{Editor, LineIndex, Span, Step, parse};
use serde_json::{Map, Value};

use super::{
    HelmValues, apis, folder, shown,
    values::{self, Clues, Settings as Patch},
};
use crate::{
    config::Config,
    diagnostic::{Code, Diagnostic, Label, ObjectId, Severity, ValuesPatch},
    fix::unified_diff,
    judge::{FileReport, Settings, Verdict, judge_bytes, judge_text},
    replace::replace,
    source_map::Lines,
};

/// What to do about the values of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChartMode {
    /// Write what is proven into the values.
    pub fix: bool,
    /// Or print it.
    pub diff: bool,
    /// Also what may change how containers behave.
    pub may_change: bool,
    /// Also where objects stay refused.
    pub partial: bool,
}

/// What became of a chart.
#[derive(Debug, Default)]
pub struct ChartAnswer {
    /// One for the chart, and one for each template that wrote something.
    pub reports: Vec<FileReport>,
    /// For people.
    pub messages: Vec<String>,
    /// For stdout.
    pub stdout: Option<String>,
    /// Whether something could not be written.
    pub incomplete: bool,
}

/// The engine recurses with the templates; its depth is bounded, and fits this many bytes.
const STACK: usize = 256 << 20;

/// Checks a chart.
#[must_use]
pub fn check_chart(
    path: &Path,
    settings: &Settings,
    config: &Config,
    values: &HelmValues,
    mode: ChartMode,
) -> ChartAnswer {
    check_chart_with(path, &Overlay::new(), settings, config, values, mode)
}

/// Texts that replace files of a chart, by their paths in it: those that an editor has not saved.
pub type Overlay = BTreeMap<String, Vec<u8>>;

/// Checks a chart of which some files have another content than on disk.
#[must_use]
pub fn check_chart_with(
    path: &Path,
    overlay: &Overlay,
    settings: &Settings,
    config: &Config,
    values: &HelmValues,
    mode: ChartMode,
) -> ChartAnswer {
    let name = shown(path);
    let work =
        || Checker { path, overlay, name: Arc::clone(&name), settings, config, user: values, mode }.check();
    thread::scope(|scope| {
        let failed = |what: &str| {
            let problem = Diagnostic::unchecked(
                Code::of("chart/render"),
                &name,
                format!("{name} cannot be rendered: {what}"),
            );
            ChartAnswer { reports: vec![FileReport::unreadable(problem)], ..ChartAnswer::default() }
        };
        match thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work) {
            Ok(handle) => handle.join().unwrap_or_else(|_| failed("the engine failed")),
            Err(error) => failed(&error.to_string()),
        }
    })
}

struct Checker<'c> {
    path: &'c Path,
    overlay: &'c Overlay,
    name: Arc<str>,
    settings: &'c Settings,
    config: &'c Config,
    user: &'c HelmValues,
    mode: ChartMode,
}

/// What a chart is rendered for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Install,
    Upgrade,
    /// An upgrade whose values the chart does not refuse.
    AcceptedUpgrade,
}

/// A finding at the place where a template failed.
fn placed(mut finding: Diagnostic, error: &RenderError) -> Diagnostic {
    let Some(place) = &error.place else { return finding };
    finding.file = Arc::from(&*place.file);
    let span = Span::new(place.start, place.end.max(place.start));
    finding.at(Label::new(&LineIndex::new(&place.text), &place.text, span, "fails here"))
}

/// The object that a finding of a report is about.
fn title_of(report: &FileReport, finding: &Diagnostic) -> Option<String> {
    let id = finding.object.as_ref()?;
    report.verdicts.iter().find(|verdict| verdict.id == *id).map(Verdict::title)
}

/// A finding, wherever it is shown.
type Key = (usize, ObjectId, Code, Option<String>, Option<String>);

/// A template and the objects that it makes.
type Shape = (Arc<str>, Vec<(ObjectId, String)>);

/// A chart with values, rendered and judged, with places in the rendered text.
struct Round {
    rendering: Rendering,
    reports: Vec<FileReport>,
}

impl Round {
    fn errors(&self) -> usize {
        self.reports
            .iter()
            .flat_map(|report| &report.diagnostics)
            .filter(|d| d.severity == Severity::Error)
            .count()
    }

    fn keys(&self) -> BTreeSet<Key> {
        let indexed = self.reports.iter().enumerate();
        indexed
            .flat_map(|(index, report)| report.diagnostics.iter().filter_map(move |d| key(index, d)))
            .collect()
    }

    /// Which templates there are, and which objects they make.
    fn shape(&self) -> Vec<Shape> {
        let of = |report: &FileReport| {
            let objects =
                report.verdicts.iter().map(|verdict| (verdict.id.clone(), verdict.title())).collect();
            (Arc::clone(&report.file), objects)
        };
        self.reports.iter().map(of).collect()
    }
}

fn key(template: usize, finding: &Diagnostic) -> Option<Key> {
    let object = finding.object.clone()?;
    Some((template, object, finding.code.clone(), finding.path.clone(), finding.container.clone()))
}

/// A patch that was proven, and what it does.
#[derive(Clone)]
struct Proven {
    patch: Patch,
    /// What is left with it.
    left: BTreeSet<Key>,
    /// Fields that it changes, by template and object.
    changed: BTreeMap<(usize, ObjectId), Vec<Vec<String>>>,
}

impl Checker<'_> {
    fn unreadable(&self, problem: Diagnostic) -> ChartAnswer {
        let report = FileReport { file: Arc::clone(&self.name), ..FileReport::unreadable(problem) };
        ChartAnswer { reports: vec![report], ..ChartAnswer::default() }
    }

    fn check(&self) -> ChartAnswer {
        let mut files = match folder::read_chart(self.path) {
            Ok(files) => files,
            Err(error) => {
                let what = format!("cannot read the chart {}: {error}", self.name);
                return self.unreadable(Diagnostic::unchecked(
                    Code::of("chart/unreadable"),
                    &self.name,
                    what,
                ));
            }
        };
        files.extend(self.overlay.iter().map(|(path, text)| (path.clone(), text.clone())));
        let base = if &*self.name == "." { "" } else { &*self.name };
        let chart = match Chart::load(base, &files) {
            Ok(chart) => chart,
            Err(error) => {
                let problem =
                    Diagnostic::unchecked(Code::of("chart/unreadable"), &self.name, error.to_string());
                return self.unreadable(problem);
            }
        };
        let engine = Engine::new(&chart);
        if let Some(reason) = engine.refuses(self.kubernetes()) {
            let problem = Diagnostic::unchecked(
                Code::of("chart/render"),
                &self.name,
                format!("{} cannot be rendered: {reason}", self.name),
            )
            .help("choose the release with --kubernetes-version");
            return self.unreadable(problem);
        }
        let nothing = Value::Object(Map::new());
        let round = self.round(&engine, &nothing, None);
        let own_values = files.get("values.yaml").map(|bytes| palisade_yaml::decode(bytes));
        let own_values = match own_values {
            Some(Ok(text)) => Some(text.into_owned()),
            _ => None,
        };
        let search = Search { checker: self, engine: &engine, chart: &chart, round: &round, own_values };
        let mut answer = ChartAnswer::default();
        let (reports, proven) = search.reports();
        answer.reports.push(self.chart_report(&round.rendering, &chart));
        answer.reports.extend(reports);
        answer.reports.extend(self.definitions(&round.rendering, base));
        if chart.depends_on_upgrade() {
            let mut upgrade = self.round_on(&engine, &nothing, None, Operation::Upgrade);
            if let ([], [error, ..]) = (&round.rendering.errors[..], &upgrade.rendering.errors[..]) {
                let accepted = self.round_on(&engine, &nothing, None, Operation::AcceptedUpgrade);
                if accepted.rendering.errors.is_empty() {
                    answer.reports.push(self.refused_upgrade(error));
                    upgrade = accepted;
                } else {
                    answer.reports.push(self.chart_report(&upgrade.rendering, &chart));
                }
            }
            let search =
                Search { checker: self, engine: &engine, chart: &chart, round: &upgrade, own_values: None };
            answer.reports.extend(search.reports_besides(&round));
        }
        if self.mode.fix || self.mode.diff {
            search.edit_values(&proven, &mut answer);
        }
        answer
    }

    fn kubernetes(&self) -> (u16, u16) {
        let version = self.settings.compat.api.to_string();
        let minor = version.rsplit('.').next().and_then(|minor| minor.parse().ok());
        (1, minor.unwrap_or(37))
    }

    /// Renders and judges the chart, or one template of it.
    fn round(&self, engine: &Engine<'_>, patch: &Value, only: Option<&str>) -> Round {
        self.round_on(engine, patch, only, Operation::Install)
    }

    /// The same, for an installation or for an upgrade of the release.
    fn round_on(
        &self,
        engine: &Engine<'_>,
        patch: &Value,
        only: Option<&str>,
        operation: Operation,
    ) -> Round {
        let kubernetes = self.kubernetes();
        let has_api = |wanted: &str| apis::has(kubernetes.1, wanted);
        let target = Target {
            release: "release-name",
            namespace: self.settings.namespace.as_deref().unwrap_or("default"),
            kubernetes,
            is_upgrade: operation != Operation::Install,
            may_refuse: operation != Operation::AcceptedUpgrade,
            has_api: &has_api,
            limits: Limits::default(),
        };
        let rendering = engine.render(&self.user.with(patch), &target, only);
        let reports = rendering
            .templates
            .iter()
            .map(|template| {
                let file: Arc<str> = Arc::from(&*template.file);
                let accepted = if self.config.ignore.is_empty() {
                    Vec::new()
                } else {
                    self.config.accepted_in(&PathBuf::from(&*file))
                };
                judge_text(&file, template.text(), self.settings, &accepted)
            })
            .collect();
        Round { rendering, reports }
    }

    /// What an upgrade makes is only known in part: many charts want the passwords of the release that is there.
    fn refused_upgrade(&self, error: &RenderError) -> FileReport {
        let what = format!("the chart {} refuses an upgrade with these values: {}", self.name, error.kind);
        let mut finding = Diagnostic::warning(Code::of("chart/upgrade"), &self.name, what)
            .because(
                "an upgrade was checked as if the chart accepted them; other values may make other objects",
            )
            .help("pass the values that it needs with --helm-values FILE or --helm-set KEY=VALUE");
        finding = placed(finding, error);
        let mut report = FileReport::new(Arc::clone(&self.name));
        report.files = 0;
        report.diagnostics.push(finding);
        report
    }

    /// The reports of files in `crds/`: Helm creates what is in them, whatever it is. Those of a folder that was searched are
    /// manifests like others.
    fn definitions(&self, rendering: &Rendering, base: &str) -> Vec<FileReport> {
        let own = if base.is_empty() { "crds/".to_owned() } else { format!("{base}/crds/") };
        let is_searched = |file: &str| !self.path.is_file() && file.starts_with(&own);
        let reports =
            rendering.definitions.iter().filter(|(file, _)| !is_searched(file)).map(|(file, bytes)| {
                let file: Arc<str> = Arc::from(&**file);
                let accepted = self.config.accepted_in(&PathBuf::from(&*file));
                let mut report = judge_bytes(&file, bytes, self.settings, &accepted);
                // What has no text of its own on disk is not edited.
                for finding in &mut report.diagnostics {
                    finding.fix = None;
                }
                report
            });
        reports.collect()
    }

    /// What is wrong with the chart as a whole: one finding for what failed, and one for what is missing.
    fn chart_report(&self, rendering: &Rendering, chart: &Chart) -> FileReport {
        let mut report = FileReport::new(Arc::clone(&self.name));
        report.files = (chart.template_count() + 2).saturating_sub(rendering.templates.len());
        if let Some(error) = rendering.errors.first() {
            let others = match rendering.errors.len() {
                1 => String::new(),
                count => format!(" (and {} more templates)", count - 1),
            };
            let what = format!("the chart {} cannot be rendered: {}{others}", self.name, error.kind);
            let mut finding = Diagnostic::unchecked(Code::of("chart/render"), &self.name, what)
                .because("what these templates would make was not checked");
            finding = placed(finding, error);
            finding.help = Some(match &error.kind {
                palisade_helm::TemplateErrorKind::UnknownFunction(_) => {
                    "render it with Helm: helm template CHART | palisade check -".to_owned()
                }
                _ => {
                    "pass the values that it needs with --helm-values FILE or --helm-set KEY=VALUE".to_owned()
                }
            });
            report.diagnostics.push(finding);
            report.errors += 1;
        }
        if !rendering.missing.is_empty() {
            let names: BTreeSet<&str> =
                rendering.missing.iter().map(|missing| missing.name.as_str()).collect();
            let names: Vec<&str> = names.into_iter().collect();
            let what =
                format!("dependencies of the chart {} are not in charts/: {}", self.name, names.join(", "));
            report.diagnostics.push(
                Diagnostic::unchecked(Code::of("chart/dependency"), &self.name, what)
                    .because("their objects were not checked")
                    .help("helm dependency build, or disable them in the values"),
            );
            report.errors += 1;
        }
        report
    }
}

struct Search<'s, 'c> {
    checker: &'s Checker<'s>,
    engine: &'s Engine<'c>,
    chart: &'s Chart,
    round: &'s Round,
    own_values: Option<String>,
}

/// How many steps the search for the values that decide may take in a chart.
const MOST_WORK: u64 = 3_000_000;

impl Search<'_, '_> {
    /// What an upgrade of the release makes and its installation does not, with places in templates.
    fn reports_besides(&self, install: &Round) -> Vec<FileReport> {
        let mut reports = Vec::new();
        for (template, report) in self.round.rendering.templates.iter().zip(&self.round.reports) {
            let of_install = install.rendering.templates.iter().position(|own| own.id == template.id);
            let same = of_install
                .and_then(|at| Some((install.rendering.templates.get(at)?, install.reports.get(at)?)));
            if same.is_some_and(|(own, _)| own.text() == template.text()) {
                continue;
            }
            let is_new = |finding: &Diagnostic| {
                same.is_none_or(|(_, own)| {
                    !own.diagnostics.iter().any(|known| {
                        // Another object may be in the same place.
                        title_of(own, known) == title_of(report, finding)
                            && (&known.code, &known.object, &known.path, &known.container, &known.summary)
                                == (
                                    &finding.code,
                                    &finding.object,
                                    &finding.path,
                                    &finding.container,
                                    &finding.summary,
                                )
                    })
                })
            };
            let lines = Lines::new(template.text());
            let mut found = report.clone();
            found.diagnostics.retain(is_new);
            found.verdicts.retain(|verdict| {
                same.is_none_or(|(_, own)| {
                    !own.verdicts.iter().any(|known| {
                        known.id == verdict.id
                            && known.allowed == verdict.allowed
                            && known.title() == verdict.title()
                    })
                })
            });
            if found.diagnostics.is_empty() && found.verdicts.is_empty() {
                continue;
            }
            for finding in &mut found.diagnostics {
                let source = finding.at.as_ref().and_then(|label| {
                    self.round.rendering.source(template, lines.offset(label.line, label.column))
                });
                self.relocate(template, &lines, source.as_ref(), finding);
                finding.fix = None;
                finding.values = None;
                finding.because.push("rendered for an upgrade of the release".to_owned());
            }
            found.files = 0;
            reports.push(found);
        }
        reports
    }

    /// The reports of the templates, with places in templates and values, and the patches that were proven.
    fn reports(&self) -> (Vec<FileReport>, Vec<(Proven, Effect)>) {
        let mut proven: Vec<Proven> = Vec::new();
        let mut used: Vec<(Proven, Effect)> = Vec::new();
        let mut left = MOST_WORK;
        let mut tried: BTreeSet<(usize, String)> = BTreeSet::new();
        let values = self.all_values();
        let mut reports = Vec::new();
        for (index, (template, report)) in
            self.round.rendering.templates.iter().zip(&self.round.reports).enumerate()
        {
            let lines = Lines::new(template.text());
            let objects = values::object_values(template.text());
            let mut moved = report.clone();
            let mut pairs: Vec<_> = report.diagnostics.iter().zip(&mut moved.diagnostics).collect();
            for (finding, shown) in &mut pairs {
                let source = self.source_of(template, &lines, finding);
                self.relocate(template, &lines, source.as_ref(), shown);
            }
            // What no setting fixes alone may be fixed together with one that fixes another finding of the object.
            for is_together in [false, true] {
                for (finding, shown) in &mut pairs {
                    if finding.fix.is_none() || shown.values.is_some() {
                        continue;
                    }
                    let known = key(index, finding);
                    let found = proven
                        .iter()
                        .find(|patch| known.as_ref().is_some_and(|key| !patch.left.contains(key)))
                        .cloned();
                    let source = self.source_of(template, &lines, finding);
                    let found = match (found, source.as_ref()) {
                        (Some(found), _) => Some(found),
                        (None, Some(source)) => {
                            let object = finding
                                .object
                                .as_ref()
                                .and_then(|id| objects.iter().find(|(known, _)| known == id));
                            let object = object.map_or(&Value::Null, |(_, value)| value);
                            let inside =
                                finding.at.as_ref().and_then(|label| self.inside(template, &lines, label));
                            let clues = Clues {
                                inside: inside.as_ref().map(|(key, below)| (key.as_str(), below.as_slice())),
                                made_of: &source.values,
                                conditions: &source.conditions,
                                read: &template.read,
                                values: &values,
                                object,
                            };
                            let others = is_together.then_some(proven.as_slice());
                            self.search(index, template, finding, &clues, others, &mut left, &mut tried)
                        }
                        (None, None) => None,
                    };
                    shown.fix = None;
                    let Some(found) = found else {
                        if !is_together {
                            let original = shown
                                .help
                                .take()
                                .map_or_else(String::new, |help| format!("; in the template: {help}"));
                            shown.help =
                                Some(format!("no value of the chart was found that fixes it{original}"));
                        }
                        continue;
                    };
                    if !proven.iter().any(|known| known.patch == found.patch) {
                        proven.push(found.clone());
                    }
                    let effect = self.effect(&found);
                    shown.help = Some(self.words(&found.patch));
                    shown.values = Some(self.values_patch(&found.patch, effect.clone()));
                    if !used.iter().any(|(known, _)| known.patch == found.patch) {
                        used.push((found, effect));
                    }
                }
            }
            moved.diagnostics.sort_by(|a, b| a.order().cmp(&b.order()));
            reports.push(moved);
        }
        (reports, used)
    }

    fn source_of(
        &self,
        template: &RenderedTemplate,
        lines: &Lines<'_>,
        finding: &Diagnostic,
    ) -> Option<OutputSource> {
        let label = finding.at.as_ref()?;
        self.round.rendering.source(template, lines.offset(label.line, label.column))
    }

    fn all_values(&self) -> Value {
        let mut values = self.checker.user.with(&Value::Object(Map::new()));
        self.chart.add_defaults(&mut values);
        values
    }

    /// Moves a finding from the rendered text to the template.
    fn relocate(
        &self,
        template: &RenderedTemplate,
        lines: &Lines<'_>,
        source: Option<&OutputSource>,
        finding: &mut Diagnostic,
    ) {
        let Some(label) = finding.at.take() else { return };
        let Some(source) = source else { return };
        let rendered = label.excerpt.text.trim().to_owned();
        let moved = |source: &OutputSource, label: &Label| {
            let length = lines
                .offset(label.end_line, label.end_column)
                .saturating_sub(lines.offset(label.line, label.column));
            let place = &source.place;
            let end = if source.is_literal { place.end.min(place.start + length) } else { place.end };
            Label::new(
                &LineIndex::new(&place.text),
                &place.text,
                Span::new(place.start, end.max(place.start)),
                label.text.clone(),
            )
        };
        let mut at = moved(source, &label);
        if let Some(related) = &label.related
            && let Some(other) =
                self.round.rendering.source(template, lines.offset(related.line, related.column))
            && other.place.file == source.place.file
        {
            at = at.related(moved(&other, related));
        }
        if at.excerpt.text.trim() != rendered {
            finding.because.push(format!("the template renders `{rendered}` here"));
        }
        if let [path] = source.values.as_slice() {
            let place =
                self.place_of(path).map_or_else(String::new, |(file, line)| format!(", {file}:{line}"));
            finding.because.push(format!("the value `{}`{place} is written here", values::written(path)));
        }
        finding.file = Arc::from(&*source.place.file);
        finding.at = Some(at);
    }

    /// The key at a place, and the values that are written below it.
    fn inside(
        &self,
        template: &RenderedTemplate,
        lines: &Lines<'_>,
        label: &Label,
    ) -> Option<(String, Vec<ValuePath>)> {
        let (start, end) =
            (lines.offset(label.line, label.column), lines.offset(label.end_line, label.end_column));
        let key = template.text().get(start..end)?;
        let rest = template.text().get(end..)?;
        let content = rest.trim_start_matches(':').trim_start();
        let source = self.round.rendering.source(template, end + (rest.len() - content.len()))?;
        Some((key.to_owned(), source.values))
    }

    /// The file that edits go to, with its text.
    fn target(&self) -> Option<(Arc<str>, PathBuf, &str)> {
        if let Some(file) = self.checker.user.last_file() {
            return Some((shown(&file.path), file.path.clone(), &file.text));
        }
        let path = self.checker.path.join("values.yaml");
        Some((shown(&path), path, self.own_values.as_deref()?))
    }

    /// Where a key of the values is written: in the file of the user, or the chart's.
    fn place_of(&self, path: &ValuePath) -> Option<(Arc<str>, usize)> {
        let (file, _, text) = self.target()?;
        let parsed = parse(text, &palisade_yaml::Limits::default());
        let document = parsed.documents.first()?;
        let steps = steps(path);
        let found = document.find(&steps).ok()?;
        let at = found.key.unwrap_or_else(|| found.written.span());
        Some((file, LineIndex::new(text).position(at.start).line))
    }

    /// The settings that fix a finding: alone, or together with one of others that changes the same object.
    #[expect(clippy::too_many_arguments, reason = "what the search goes through, and what it has done")]
    fn search(
        &self,
        index: usize,
        template: &RenderedTemplate,
        finding: &Diagnostic,
        clues: &Clues<'_>,
        others: Option<&[Proven]>,
        left: &mut u64,
        tried: &mut BTreeSet<(usize, String)>,
    ) -> Option<Proven> {
        let known = key(index, finding)?;
        let siblings = self.round.reports.get(index).map_or(&[][..], |report| &report.diagnostics);
        let alone = values::candidates(finding, siblings, clues);
        let candidates: Vec<Patch> = match others {
            None => alone,
            Some(others) => {
                let of_object =
                    others.iter().filter(|other| other.changed.contains_key(&(index, known.1.clone())));
                of_object.flat_map(|other| alone.iter().map(|patch| together(&other.patch, patch))).collect()
            }
        };
        for patch in candidates {
            let json = values::patch_of(&patch);
            if *left == 0 || !tried.insert((index, format!("{json} {known:?}"))) {
                continue;
            }
            let alone = self.checker.round(self.engine, &json, Some(&template.id));
            *left = left.saturating_sub(alone.rendering.work);
            if !self.improves(index, &alone, finding) {
                continue;
            }
            // What holds for one template must hold for the chart.
            let whole = self.checker.round(self.engine, &json, None);
            *left = left.saturating_sub(whole.rendering.work);
            if let Some(proven) = self.prove(patch, &whole, &known) {
                return Some(proven);
            }
        }
        None
    }

    /// Whether one template alone is better with a patch.
    fn improves(&self, index: usize, alone: &Round, finding: &Diagnostic) -> bool {
        let (Some(before), [after]) = (self.round.reports.get(index), alone.reports.as_slice()) else {
            return false;
        };
        let same = |other: &&Diagnostic| {
            other.code == finding.code
                && other.path == finding.path
                && other.object == finding.object
                && other.container == finding.container
        };
        alone.rendering.errors.is_empty()
            && before.verdicts.len() == after.verdicts.len()
            && !after.diagnostics.iter().any(|other| same(&other))
    }

    fn prove(&self, patch: Patch, whole: &Round, finding: &Key) -> Option<Proven> {
        let before = self.round;
        let left = whole.keys();
        let worse = before
            .reports
            .iter()
            .flat_map(|report| &report.verdicts)
            .zip(whole.reports.iter().flat_map(|report| &report.verdicts))
            .any(|(old, new)| old.allowed && !new.allowed);
        if whole.rendering.errors.len() > before.rendering.errors.len()
            || before.shape() != whole.shape()
            || worse
            || left.contains(finding)
            || whole.errors() >= before.errors()
            || !left.is_subset(&before.keys())
        {
            return None;
        }
        let mut changed = BTreeMap::new();
        let pairs = before.rendering.templates.iter().zip(&whole.rendering.templates).enumerate();
        for (index, (old, new)) in pairs {
            let (old, new) = (values::object_values(old.text()), values::object_values(new.text()));
            if old.len() != new.len() {
                return None;
            }
            for ((id, old), (_, new)) in old.iter().zip(&new) {
                let paths = values::differences(old, new);
                let report = before.reports.get(index)?;
                let expected = |path: &Vec<String>| {
                    let own = report.diagnostics.iter().filter(|other| other.object.as_ref() == Some(id));
                    own.into_iter().any(|other| values::is_expected(path, other))
                        || path.iter().any(|segment| segment == "securityContext" || segment == "annotations")
                };
                if !paths.iter().all(expected) {
                    return None;
                }
                if !paths.is_empty() {
                    changed.insert((index, id.clone()), paths);
                }
            }
        }
        Some(Proven { patch, left, changed })
    }

    /// Safe if every field that changes is one that a safe fix of a finding sets.
    fn effect(&self, proven: &Proven) -> Effect {
        for ((index, id), paths) in &proven.changed {
            let Some(report) = self.round.reports.get(*index) else { continue };
            let own = report.diagnostics.iter().filter(|finding| finding.object.as_ref() == Some(id));
            let edits: Vec<_> = own.flat_map(|finding| finding.fix.iter().flatten()).collect();
            for path in paths {
                if path.iter().any(|segment| segment == "annotations") {
                    continue;
                }
                let of_edit = |edit: &Edit| {
                    let edited = values::segments(edit.path());
                    path.starts_with(&edited) || edited.starts_with(path)
                };
                let of_path: Vec<_> = edits.iter().filter(|step| of_edit(&step.edit)).collect();
                if let Some(step) = of_path.iter().find(|step| !step.effect.is_safe()) {
                    return step.effect.clone();
                }
                if of_path.is_empty() {
                    return Effect::MayChange(format!("it also changes {}", values::written(path)).into());
                }
            }
        }
        Effect::Safe("the containers behave as before".into())
    }

    fn words(&self, patch: &Patch) -> String {
        let settings: Vec<String> =
            patch.iter().map(|(path, value)| format!("`{}: {value}`", values::written(path))).collect();
        let file =
            self.target().map_or_else(|| shown(&self.checker.path.join("values.yaml")), |(file, _, _)| file);
        format!("set {} in {file}; rendered with it, the finding is gone", settings.join(" and "))
    }

    fn values_patch(&self, patch: &Patch, effect: Effect) -> ValuesPatch {
        let file =
            self.target().map_or_else(|| shown(&self.checker.path.join("values.yaml")), |(file, _, _)| file);
        let line = patch.first().and_then(|(path, _)| {
            (1..=path.len()).rev().find_map(|length| {
                let part: ValuePath = path.iter().take(length).cloned().collect();
                self.place_of(&part).map(|(_, line)| line)
            })
        });
        let set = patch.iter().map(|(path, value)| (values::written(path), value.clone())).collect();
        ValuesPatch { file, line, set, keys: patch.clone(), effect }
    }

    /// Writes the patches into the values, or prints them, if the chart is better with all of them.
    fn edit_values(&self, proven: &[(Proven, Effect)], answer: &mut ChartAnswer) {
        let mode = self.checker.mode;
        let wanted = |effect: &Effect| effect.is_safe() || mode.may_change || (mode.diff && !mode.fix);
        let mut chosen: Vec<&Proven> =
            proven.iter().filter(|(_, effect)| wanted(effect)).map(|(proven, _)| proven).collect();
        let kept_back = proven.len() - chosen.len();
        if kept_back > 0 {
            let settings =
                if kept_back == 1 { "1 setting".to_owned() } else { format!("{kept_back} settings") };
            answer.messages.push(format!(
                "{}: not fixed: {settings} may change behaviour, which --unsafe-fixes allows",
                self.checker.name
            ));
        }
        let Some((file, path, text)) = self.target() else { return };
        let after = loop {
            if chosen.is_empty() {
                return;
            }
            let all: Patch = chosen.iter().flat_map(|proven| proven.patch.iter().cloned()).collect();
            let after = self.checker.round(self.engine, &values::patch_of(&all), None);
            if after.shape() != self.round.shape() || !after.keys().is_subset(&self.round.keys()) {
                answer.messages.push(format!("{file}: not fixed: the settings contradict each other"));
                return;
            }
            if mode.partial {
                break after;
            }
            // Objects that would still be refused stay as they are, and so does all that changes them.
            let refused = |(index, id): &(usize, ObjectId)| {
                let report = after.reports.get(*index);
                report.is_some_and(|report| {
                    report
                        .diagnostics
                        .iter()
                        .any(|d| d.severity == Severity::Error && d.object.as_ref() == Some(id))
                })
            };
            let before = chosen.len();
            chosen.retain(|proven| !proven.changed.keys().any(&refused));
            if chosen.len() == before {
                break after;
            }
            answer.messages.push(format!(
                "{}: not fixed: objects would still be refused; --fix-partial edits what can be fixed",
                self.checker.name
            ));
        };
        let all: Patch = chosen.iter().flat_map(|proven| proven.patch.iter().cloned()).collect();
        let Some(edited) = edited(text, &all) else {
            answer.messages.push(format!("{file}: not fixed: the settings cannot be written into it"));
            return;
        };
        if edited == text {
            return;
        }
        if mode.diff {
            answer.stdout = Some(unified_diff(&file, text, &edited));
            return;
        }
        let fixed = self.round.errors().saturating_sub(after.errors());
        match replace(&path, text.as_bytes(), edited.as_bytes()) {
            Ok(()) => {
                let noun = if fixed == 1 { "finding" } else { "findings" };
                answer.messages.push(format!("fixed {file}: {fixed} {noun} fixed, {} left", after.errors()));
                let search = Search {
                    checker: self.checker,
                    engine: self.engine,
                    chart: self.chart,
                    round: &after,
                    own_values: Some(edited.clone()),
                };
                let chart = answer.reports.first().cloned();
                answer.reports = chart.into_iter().chain(search.reports().0).collect();
            }
            Err(reason) => {
                answer.messages.push(format!("error: cannot fix {file}: {reason}"));
                answer.incomplete = true;
            }
        }
    }
}

/// Two patches as one; the second decides about what both set.
fn together(first: &Patch, second: &Patch) -> Patch {
    let kept = first.iter().filter(|(path, _)| !second.iter().any(|(other, _)| other == path));
    kept.chain(second).cloned().collect()
}

fn steps(path: &[String]) -> Vec<Step<'_>> {
    path.iter()
        .map(|segment| {
            let index = segment.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            match index.map(str::parse::<usize>) {
                Some(Ok(index)) => Step::Index(index),
                _ => Step::Key(segment),
            }
        })
        .collect()
}

/// The text of values with settings in it; `None` if they cannot be written.
pub(crate) fn edited(text: &str, patch: &Patch) -> Option<String> {
    let parsed = parse(text, &palisade_yaml::Limits::default());
    if parsed.documents.is_empty() || !parsed.errors.is_empty() {
        return None;
    }
    let mut editor = Editor::new(&parsed);
    for (path, value) in patch {
        match editor.set(0, &steps(path), value.clone()) {
            Ok(()) => {}
            Err(_) => return None,
        }
    }
    editor.finish().ok()
}
