//! Overlays in, reports out: built, judged, and every finding moved to the line of a base or patch that decided it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use palisade_kustomize::{Build, Files as _, Located, Problem, ProblemKind, Rendered, build, tree::Node};
use palisade_policy::standards::fixes::FixEdit;
use palisade_yaml::{Limits, LineIndex, Span, parse};

use super::{
    edits::{SourceEdit, apply, mapped},
    files::Disk,
};
use crate::{
    charts::{differences, is_expected, object_values, segments, shown},
    config::Config,
    diagnostic::{Code, Diagnostic, Label, ObjectId, Severity},
    fix::{Listed, listing_text, rejections, unified_diff},
    input::Overlay,
    judge::{FileReport, Settings, judge_text},
    replace::replace,
    source_map::{Lines, Source},
    suppression::Suppressions,
};

/// What to do about the files of overlays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverlayMode {
    /// Write what is proven into bases and patches.
    pub fix: bool,
    /// Or print it.
    pub diff: bool,
    /// Also what may change how containers behave.
    pub may_change: bool,
    /// Also where objects stay refused.
    pub partial: bool,
}

/// What became of overlays.
#[derive(Debug, Default)]
pub struct OverlayAnswer {
    /// One for each overlay.
    pub reports: Vec<FileReport>,
    /// For people.
    pub messages: Vec<String>,
    /// For stdout.
    pub stdout: Option<String>,
    /// Whether something could not be written.
    pub incomplete: bool,
}

/// Checks overlays. Those that are given together are fixed together: what is good for one must be good for all.
#[must_use]
pub fn check_overlays(
    overlays: &[Overlay],
    settings: &Settings,
    config: &Config,
    mode: OverlayMode,
) -> OverlayAnswer {
    let checker = Checker { overlays, settings, config };
    let mut answer = OverlayAnswer::default();
    let disk = Disk::default();
    let before = checker.rounds(&disk);
    if mode.fix || mode.diff {
        let (fixed, list) = checker.fixed(&before, mode, &mut answer.messages);
        if mode.diff {
            answer.stdout = checker.diff(&before, &fixed, &list);
        } else if !fixed.edited.is_empty() {
            checker.write(&before, &fixed, &mut answer);
            let after = checker.rounds(&Disk::default());
            answer.reports = checker.reports(&after);
            return answer;
        }
    }
    answer.reports = checker.reports(&before);
    answer
}

/// A finding, wherever it is shown.
type Key = (ObjectId, Code, Option<String>, Option<String>);

fn key(finding: &Diagnostic) -> Option<Key> {
    let object = finding.object.clone()?;
    Some((object, finding.code.clone(), finding.path.clone(), finding.container.clone()))
}

fn is_error(finding: &Diagnostic) -> bool {
    finding.severity == Severity::Error
}

/// An overlay, built and judged, with places in the rendered text.
struct Round {
    build: Build,
    rendered: Rendered,
    report: FileReport,
}

impl Round {
    fn keys(&self) -> BTreeSet<Key> {
        self.report.diagnostics.iter().filter_map(key).collect()
    }

    /// Which objects there are.
    fn shape(&self) -> Vec<(ObjectId, String)> {
        self.report.verdicts.iter().map(|verdict| (verdict.id.clone(), verdict.title())).collect()
    }

    fn object(&self, id: &ObjectId) -> Option<&Node> {
        // Each object is a document of its own.
        self.build.objects.get(id.document).map(|object| &object.node)
    }

    fn title(&self, id: &ObjectId) -> String {
        let of = self.report.verdicts.iter().find(|verdict| verdict.id == *id);
        of.map(crate::judge::Verdict::title).unwrap_or_default()
    }

    /// The documents that an object is made of.
    fn parts(&self, id: &ObjectId) -> BTreeSet<(usize, usize)> {
        fn walk(node: &Node, found: &mut BTreeSet<(usize, usize)>) {
            found.extend(node.origin.map(|origin| (origin.source, origin.document)));
            node.items().iter().for_each(|item| walk(item, found));
            node.entries().iter().for_each(|(_, value)| walk(value, found));
        }
        let mut found = BTreeSet::new();
        if let Some(object) = self.object(id) {
            walk(object, &mut found);
        }
        found
    }

    /// The files of these documents, by name.
    fn files(&self, parts: &BTreeSet<(usize, usize)>) -> BTreeSet<(String, usize)> {
        let name = |source: usize| self.build.sources.get(source).map(|source| source.file.clone());
        parts.iter().filter_map(|(source, document)| Some((name(*source)?, *document))).collect()
    }
}

/// A finding with the edits of files that fix it.
struct Planned<'r> {
    finding: &'r Diagnostic,
    edits: Vec<SourceEdit>,
}

struct Checker<'c> {
    overlays: &'c [Overlay],
    settings: &'c Settings,
    config: &'c Config,
}

/// How many findings are proven one by one where the edits of all together prove nothing.
const MOST_SINGLE: usize = 60;

impl Checker<'_> {
    fn rounds(&self, disk: &Disk) -> Vec<Round> {
        self.overlays.iter().map(|overlay| self.round(overlay, disk)).collect()
    }

    fn round(&self, overlay: &Overlay, disk: &Disk) -> Round {
        let name = shown(&overlay.folder);
        let located = disk.look("", &name).unwrap_or_else(|| Located {
            shown: name.to_string(),
            canonical: name.to_string(),
            is_folder: true,
        });
        let build = build(disk, &located);
        let rendered = Rendered::of(build.objects.iter().map(|object| &object.node));
        let file = shown(&overlay.file);
        let report = judge_text(&file, &rendered.text, self.settings, &[]);
        Round { build, rendered, report }
    }

    fn reports(&self, rounds: &[Round]) -> Vec<FileReport> {
        self.overlays.iter().zip(rounds).map(|(overlay, round)| self.report(overlay, round)).collect()
    }

    /// The report of an overlay, with places in its files.
    fn report(&self, overlay: &Overlay, round: &Round) -> FileReport {
        let mut report = round.report.clone();
        report.files = overlay.files;
        let fixable = self.fixable(overlay, round);
        let lines = Lines::new(&round.rendered.text);
        for (finding, moved) in round.report.diagnostics.iter().zip(&mut report.diagnostics) {
            Self::relocate(overlay, round, &lines, moved);
            if finding.fix.is_none() {
                continue;
            }
            let fixes = key(finding).and_then(|key| fixable.get(&key));
            moved.fix = fixes.and_then(|edits| own_edits(round, &moved.file, finding, edits));
            if moved.fix.is_none() {
                let help = moved.help.take().unwrap_or_default();
                moved.help = Some(format!("no automatic fix in its files; in the built object: {help}"));
            }
        }
        self.suppress(round, &mut report);
        for problem in &round.build.problems {
            report.diagnostics.push(Self::problem(overlay, round, problem));
            report.errors += 1;
        }
        report.diagnostics.sort_by(|a, b| (&a.file, a.order()).cmp(&(&b.file, b.order())));
        report
    }

    /// A place of the rendered text in a file.
    fn place(round: &Round, span: Span, text: &str) -> Option<(Arc<str>, Label)> {
        let (origin, span) = round.rendered.origin(span)?;
        label(&round.build, origin.source, span, text)
    }

    fn relocate(overlay: &Overlay, round: &Round, lines: &Lines<'_>, finding: &mut Diagnostic) {
        let folder = shown(&overlay.folder);
        finding.because.push(format!("the kustomization {folder} builds this object"));
        let span = |label: &Label| {
            let start = lines.offset(label.line, label.column);
            Span::new(start, lines.offset(label.end_line, label.end_column).max(start))
        };
        let Some(at) = finding.at.take() else { return };
        let Some((file, mut moved)) = Self::place(round, span(&at), &at.text) else { return };
        if let Some(related) = &at.related
            && let Some((other, related)) = Self::place(round, span(related), &related.text)
            && other == file
        {
            moved = moved.related(related);
        }
        finding.file = file;
        finding.at = Some(moved);
    }

    fn problem(overlay: &Overlay, round: &Round, problem: &Problem) -> Diagnostic {
        let folder = shown(&overlay.folder);
        let code = match problem.kind {
            ProblemKind::Remote(_) => "kustomize/remote",
            ProblemKind::NotSupported(_) | ProblemKind::FormNotSupported(_) => "kustomize/not-supported",
            _ => "kustomize/build",
        };
        let (what, because) = match problem.kind {
            ProblemKind::Remote(_) => (problem.kind.to_string(), "its objects were not checked"),
            _ => (
                format!("the kustomization {folder} cannot be built: {}", problem.kind),
                "what it would make was not checked",
            ),
        };
        let mut finding = Diagnostic::unchecked(Code::of(code), &shown(&overlay.file), what).because(because);
        if code != "kustomize/build" {
            finding =
                finding.help(format!("check what it makes: kubectl kustomize {folder} | palisade check -"));
        }
        finding.file = Arc::from(problem.file.as_str());
        if let Some((source, span)) = problem.at
            && let Some((file, at)) = label(&round.build, source, span, "")
        {
            (finding.file, finding.at) = (file, Some(at));
        }
        finding
    }

    /// Applies the suppressions in comments of the files, and those of the configuration.
    fn suppress(&self, round: &Round, report: &mut FileReport) {
        let mut by_file: BTreeMap<Arc<str>, Vec<Diagnostic>> = BTreeMap::new();
        for finding in std::mem::take(&mut report.diagnostics) {
            by_file.entry(Arc::clone(&finding.file)).or_default().push(finding);
        }
        for (file, mut findings) in by_file {
            let source =
                round.build.sources.iter().find(|source| source.inside.is_none() && *source.file == *file);
            let text = source.map_or("", |source| source.text.as_str());
            let (source, parsed) = (Source::new(text), parse(text, &Limits::default()));
            let mut suppressions = Suppressions::from_comments(parsed.comments(), &file, &source);
            for terms in self.config.accepted_in(Path::new(&*file)) {
                suppressions.add_configured(terms);
            }
            if !suppressions.is_empty() {
                report.suppressed +=
                    suppressions.apply(&mut findings, self.settings.today, |_| true, &file, &source);
                // Another overlay may have what this one does not.
                let is_of_comment = |finding: &Diagnostic| {
                    finding.code.as_str() == "suppression/unused" && finding.object.is_none()
                };
                findings.retain(|finding| !is_of_comment(finding));
            }
            report.diagnostics.append(&mut findings);
        }
    }

    /// The findings that edits of files fix, each proven by building again, with the edits.
    fn fixable(&self, overlay: &Overlay, round: &Round) -> BTreeMap<Key, Vec<(usize, SourceEdit)>> {
        let planned = planned(round);
        let mut proven = BTreeMap::new();
        let mut add = |planned: &Planned<'_>| {
            let indexed = planned.edits.iter().cloned().enumerate().collect();
            proven.extend(key(planned.finding).map(|key| (key, indexed)));
        };
        let try_edits = |some: &[&Planned<'_>]| -> Option<BTreeSet<Key>> {
            let edits: Vec<&SourceEdit> = some.iter().flat_map(|planned| &planned.edits).collect();
            let after = self.round(overlay, &edited(round, &edits, &Disk::default())?);
            is_better(round, &after).then(|| after.keys())
        };
        let all: Vec<&Planned<'_>> = planned.iter().collect();
        if all.is_empty() {
            return proven;
        }
        if let Some(left) = try_edits(&all) {
            let gone = |planned: &&&Planned<'_>| key(planned.finding).is_some_and(|key| !left.contains(&key));
            all.iter().filter(gone).for_each(|planned| add(planned));
            return proven;
        }
        for planned in planned.iter().take(MOST_SINGLE) {
            let left = try_edits(&[planned]);
            let is_gone = |left: BTreeSet<Key>| key(planned.finding).is_some_and(|key| !left.contains(&key));
            if left.is_some_and(is_gone) {
                add(planned);
            }
        }
        proven
    }

    /// The files with every edit that may be made.
    fn fixed(&self, before: &[Round], mode: OverlayMode, messages: &mut Vec<String>) -> (Disk, Vec<Listed>) {
        let mut disk = Disk::default();
        let mut fixes = Vec::new();
        let mut rounds = self.rounds(&disk);
        for index in 0..self.overlays.len() {
            let Some(round) = rounds.get(index) else { break };
            let wanted = |finding: &Diagnostic| {
                finding.effect().is_some_and(|effect| effect.is_safe() || mode.may_change)
            };
            let all = planned(round);
            let mut chosen: Vec<&Planned<'_>> =
                all.iter().filter(|planned| wanted(planned.finding)).collect();
            let mut kept_back: BTreeSet<String> = BTreeSet::new();
            let result = loop {
                let edits: Vec<&SourceEdit> = chosen.iter().flat_map(|planned| &planned.edits).collect();
                if edits.is_empty() {
                    break None;
                }
                let Some(tried) = edited(round, &edits, &disk) else {
                    break self.one_by_one(round, index, &rounds, &chosen, &disk, mode);
                };
                let after = self.rounds(&tried);
                if !rounds.iter().zip(&after).all(|(old, new)| is_better_or_same(old, new)) {
                    break self.one_by_one(round, index, &rounds, &chosen, &disk, mode);
                }
                let blocked = self.blocked(&rounds, &after, mode);
                if blocked.is_empty() {
                    break Some((tried, after, chosen.clone()));
                }
                let mut parts = BTreeSet::new();
                for (at, id) in &blocked {
                    let Some(of) = rounds.get(*at) else { continue };
                    kept_back.insert(of.title(id));
                    parts.extend(of.files(&of.parts(id)));
                }
                let count = chosen.len();
                chosen.retain(|planned| {
                    let own: BTreeSet<(usize, usize)> =
                        planned.edits.iter().map(|edit| (edit.source, edit.document)).collect();
                    round.files(&own).is_disjoint(&parts)
                });
                if chosen.len() == count {
                    break None;
                }
            };
            for title in kept_back {
                messages.push(format!(
                    "{}: not fixed: {title}: it would still be refused; --fix-partial edits what can be fixed",
                    shown(&self.overlays.get(index).map(|overlay| overlay.file.clone()).unwrap_or_default())
                ));
            }
            if let Some((tried, after, chosen)) = result {
                fixes.extend(chosen.iter().filter_map(|planned| listed(round, planned.finding, true)));
                (disk, rounds) = (tried, after);
            }
        }
        let left: usize = rounds
            .iter()
            .flat_map(|round| &round.report.diagnostics)
            .filter(|finding| finding.effect().is_some_and(|effect| !effect.is_safe()))
            .count();
        if left > 0 && !mode.may_change {
            let name = before.first().map(|round| Arc::clone(&round.report.file));
            let fixes = if left == 1 { "1 fix".to_owned() } else { format!("{left} fixes") };
            messages.push(format!(
                "{}: not fixed: {fixes} may change behaviour, which --unsafe-fixes allows",
                name.as_deref().unwrap_or_default()
            ));
        }
        if mode.diff {
            for round in &rounds {
                fixes.extend(
                    round.report.diagnostics.iter().filter_map(|finding| listed(round, finding, false)),
                );
            }
        }
        (disk, fixes)
    }

    /// The edits of each finding by themselves, where those of all contradict each other.
    fn one_by_one<'r>(
        &self,
        round: &Round,
        index: usize,
        rounds: &[Round],
        chosen: &[&'r Planned<'r>],
        disk: &Disk,
        mode: OverlayMode,
    ) -> Option<(Disk, Vec<Round>, Vec<&'r Planned<'r>>)> {
        let mut kept: Vec<&Planned<'_>> = Vec::new();
        let mut best = None;
        for planned in chosen.iter().take(MOST_SINGLE) {
            let mut tried = kept.clone();
            tried.push(planned);
            let edits: Vec<&SourceEdit> = tried.iter().flat_map(|planned| &planned.edits).collect();
            let Some(edited) = edited(round, &edits, disk) else { continue };
            let after = self.rounds(&edited);
            let is_gone = || {
                let left = after.get(index).map(Round::keys).unwrap_or_default();
                key(planned.finding).is_some_and(|key| !left.contains(&key))
            };
            let improves = rounds.iter().zip(&after).all(|(old, new)| is_better_or_same(old, new));
            if improves && is_gone() {
                kept = tried;
                best = Some((edited, after));
            }
        }
        let (disk, after) = best?;
        (mode.partial || self.blocked(rounds, &after, mode).is_empty()).then_some((disk, after, kept))
    }

    /// The objects that edits change and that must stay as they are.
    fn blocked(&self, before: &[Round], after: &[Round], mode: OverlayMode) -> BTreeSet<(usize, ObjectId)> {
        let mut blocked = BTreeSet::new();
        for (index, (old, new)) in before.iter().zip(after).enumerate() {
            let (was, is) = (object_values(&old.rendered.text), object_values(&new.rendered.text));
            let changed: BTreeSet<ObjectId> = was
                .iter()
                .zip(&is)
                .filter(|((_, was), (_, is))| was != is)
                .map(|((id, _), _)| id.clone())
                .collect();
            let left = new.keys();
            let of_changed = |finding: &&Diagnostic| {
                finding.object.as_ref().is_some_and(|object| changed.contains(object))
            };
            if !mode.partial {
                let errors = new.report.diagnostics.iter().filter(|finding| is_error(finding));
                blocked.extend(errors.filter(of_changed).filter_map(|f| Some((index, f.object.clone()?))));
            }
            if !mode.may_change {
                // What is safe for one overlay may not be for another.
                let gone = old.report.diagnostics.iter().filter(of_changed).filter(|finding| {
                    key(finding).is_some_and(|key| !left.contains(&key))
                        && finding.effect().is_some_and(|effect| !effect.is_safe())
                });
                blocked.extend(gone.filter_map(|finding| Some((index, finding.object.clone()?))));
            }
            let known = rejections(&old.rendered.text, self.settings, &changed);
            for (object, reasons) in rejections(&new.rendered.text, self.settings, &changed) {
                let old = known.get(&object).map_or(&[][..], Vec::as_slice);
                if reasons.iter().any(|reason| !old.contains(reason)) {
                    blocked.insert((index, object));
                }
            }
        }
        blocked
    }

    /// The text of a file before any edit.
    fn original<'r>(rounds: &'r [Round], canonical: &str) -> Option<(&'r Located, &'r str)> {
        rounds.iter().find_map(|round| {
            let file = round.build.files.iter().find(|file| file.canonical == canonical)?;
            let mut sources = round.build.sources.iter();
            let source = sources.find(|source| source.inside.is_none() && source.file == file.shown)?;
            Some((file, source.text.as_str()))
        })
    }

    fn diff(&self, before: &[Round], fixed: &Disk, made: &[Listed]) -> Option<String> {
        let mut text = listing_text(made);
        for (canonical, new) in &fixed.edited {
            let (file, old) = Self::original(before, canonical)?;
            text.push_str(&unified_diff(&file.shown, old, new));
        }
        let name = self.overlays.first().map(|overlay| shown(&overlay.file))?;
        (!text.is_empty()).then(|| if fixed.edited.is_empty() { format!("# {name}\n{text}") } else { text })
    }

    fn write(&self, before: &[Round], fixed: &Disk, answer: &mut OverlayAnswer) {
        let after = self.rounds(fixed);
        let errors = |rounds: &[Round]| {
            rounds
                .iter()
                .flat_map(|round| &round.report.diagnostics)
                .filter(|finding| is_error(finding))
                .count()
        };
        let mut files = Vec::new();
        for (canonical, new) in &fixed.edited {
            let Some((file, old)) = Self::original(before, canonical) else { continue };
            match replace(&PathBuf::from(canonical), old.as_bytes(), new.as_bytes()) {
                Ok(()) => files.push(file.shown.clone()),
                Err(reason) => {
                    answer.messages.push(format!("error: cannot fix {}: {reason}", file.shown));
                    answer.incomplete = true;
                }
            }
        }
        if !files.is_empty() {
            let fixed = errors(before).saturating_sub(errors(&after));
            let noun = if fixed == 1 { "finding" } else { "findings" };
            let files = files.join(", ");
            answer.messages.push(format!("fixed {files}: {fixed} {noun} fixed, {} left", errors(&after)));
        }
    }
}

fn listed(round: &Round, finding: &Diagnostic, made: bool) -> Option<Listed> {
    let object = round.title(finding.object.as_ref()?);
    Some(Listed { object, effect: finding.effect()?.clone(), help: finding.help.clone()?, made })
}

/// The findings of a round whose fixes are edits of files.
fn planned(round: &Round) -> Vec<Planned<'_>> {
    let mut all = Vec::new();
    for finding in &round.report.diagnostics {
        let (Some(fix), Some(id)) = (&finding.fix, &finding.object) else { continue };
        let Some(object) = round.object(id) else { continue };
        let edits: Result<Vec<Option<SourceEdit>>, _> =
            fix.iter().map(|step| mapped(&round.build, object, &step.edit)).collect();
        let Ok(edits) = edits else { continue };
        let edits: Vec<SourceEdit> = edits.into_iter().flatten().collect();
        if !edits.is_empty() {
            all.push(Planned { finding, edits });
        }
    }
    all
}

/// The disk with edits of a round on top of what is edited; `None` if they cannot be written.
fn edited(round: &Round, edits: &[&SourceEdit], disk: &Disk) -> Option<Disk> {
    let texts = apply(&round.build, edits)?;
    let mut tried = Disk { edited: disk.edited.clone() };
    for (name, text) in texts {
        let file = round.build.files.iter().find(|file| file.shown == name)?;
        tried.edited.insert(file.canonical.clone(), text);
    }
    Some(tried)
}

/// Whether edits made nothing worse and changed nothing but what findings are about.
fn is_better_or_same(old: &Round, new: &Round) -> bool {
    let worse =
        old.report.verdicts.iter().zip(&new.report.verdicts).any(|(old, new)| old.allowed && !new.allowed);
    if worse
        || old.shape() != new.shape()
        || new.build.problems.len() != old.build.problems.len()
        || new.report.errors > old.report.errors
        || !new.keys().is_subset(&old.keys())
    {
        return false;
    }
    let (was, is) = (object_values(&old.rendered.text), object_values(&new.rendered.text));
    was.len() == is.len()
        && was.iter().zip(&is).all(|((id, was), (_, is))| {
            let own = || old.report.diagnostics.iter().filter(|finding| finding.object.as_ref() == Some(id));
            differences(was, is).iter().all(|path| {
                path.iter().any(|segment| segment == "securityContext")
                    || own().any(|finding| is_expected(path, finding) && edits_near(finding, path))
            })
        })
}

/// Whether a change is at, above or below an edit of a finding.
fn edits_near(finding: &Diagnostic, path: &[String]) -> bool {
    finding.fix.iter().flatten().any(|step| {
        let edited = segments(step.edit.path());
        path.starts_with(&edited) || edited.starts_with(path)
    })
}

fn is_better(old: &Round, new: &Round) -> bool {
    is_better_or_same(old, new) && new.keys().len() < old.keys().len()
}

/// The edits of a finding with their paths in its file; `None` if some are in another.
fn own_edits(
    round: &Round,
    file: &Arc<str>,
    finding: &Diagnostic,
    edits: &[(usize, SourceEdit)],
) -> Option<Vec<FixEdit>> {
    let effect = finding.effect()?.clone();
    let moved = edits.iter().map(|(index, edit)| {
        let source = round.build.sources.get(edit.source)?;
        let of = finding.fix.as_ref()?.get(*index).map_or_else(|| effect.clone(), |step| step.effect.clone());
        (*source.file == **file).then(|| FixEdit { edit: edit.edit.clone(), effect: of })
    });
    moved.collect()
}

/// A place of a source, in the file that holds it.
fn label(build: &Build, source: usize, span: Span, text: &str) -> Option<(Arc<str>, Label)> {
    let of = build.sources.get(source)?;
    let (outer, span) = match &of.inside {
        Some(inside) => (build.sources.get(inside.outer)?, inside.place(&of.text, span)),
        None => (of, span),
    };
    let label = Label::new(&LineIndex::new(&outer.text), &outer.text, span, text);
    Some((Arc::from(outer.file.as_str()), label))
}
