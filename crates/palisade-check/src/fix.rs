//! Fixes, made and verified in memory: the smallest edits that fix the findings, and then the check again.
//!
//! Nothing here writes files. A text is only changed if the result reads well, no verdict is worse than before, and
//! fewer findings are left. An object is edited if it ends without errors, as the rules and as an API server see it; otherwise it
//! stays as it is, unless the user wants what can be had ([`FixOptions::partial`]).

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use palisade_base::field_path::{self, FieldPath};
use palisade_policy::standards::{finding::Edit, fixes::Effect};
use palisade_yaml::{EditError, Editor, Limits, Parsed, Step, WhenEmpty, parse};
use serde::Deserialize as _;
use serde_json::Value;
use thiserror::Error;

use crate::{
    diagnostic::{Diagnostic, ObjectId, Severity},
    judge::{FileReport, Settings, judge_text},
    manifest::objects,
    server_side::{Asked, ServerSide},
    suppression::Terms,
};

/// A finding may uncover another one; that this ends is upstream's choice of rules, not ours.
const MAX_ROUNDS: usize = 8;

/// Which fixes are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FixOptions {
    /// Also those that may change how the containers behave.
    pub may_change: bool,
    /// Also in objects that stay refused.
    pub partial: bool,
}

/// What fixing made of a text.
#[derive(Debug)]
pub struct Fixed {
    /// The new text; `None` if it stays as it is.
    pub text: Option<String>,
    /// What is left.
    pub report: FileReport,
    /// How many findings are gone.
    pub fixed: usize,
    /// Why something that could be fixed was not.
    pub refused: Vec<String>,
    /// Every fix that there is, in the order of the file.
    pub listed: Vec<Listed>,
}

/// A fix and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// `Deployment shop/web`.
    pub object: String,
    /// What it does to the containers.
    pub effect: Effect,
    /// The edits in words.
    pub help: String,
    /// Whether it was made.
    pub made: bool,
}

/// Edits of one object, made together or not at all.
#[derive(Debug, Clone)]
pub struct Change<'c> {
    /// The object.
    pub object: &'c ObjectId,
    /// The edits.
    pub edits: Vec<Edit>,
}

/// Fixes what can be fixed in a text.
#[must_use]
pub fn fix_text(
    file: &Arc<str>,
    text: &str,
    settings: &Settings,
    accepted: &[Terms],
    options: FixOptions,
) -> Fixed {
    let work = Work { file, settings, accepted, options, server: OnceCell::new() };
    let first = judge_text(file, text, settings, accepted);
    let found = errors(&first);
    let mut left_out: BTreeMap<ObjectId, String> = BTreeMap::new();
    let attempt = loop {
        let attempt = work.attempt(text, &first, &left_out);
        let staying = work.staying_refused(text, &attempt, &first);
        if staying.is_empty() {
            break attempt;
        }
        left_out.extend(staying);
    };
    let listed = attempt.listed(&first);
    let mut refused = attempt.refused;
    refused.extend(not_edited(&attempt.report, &left_out, options));
    Fixed {
        fixed: found.saturating_sub(errors(&attempt.report)),
        text: attempt.text,
        report: attempt.report,
        refused,
        listed,
    }
}

/// Makes the fix of one finding of a text, by the same rules, and returns the new text. Objects that stay refused are edited as well: the
/// others of their findings are left to be fixed.
pub fn fix_finding(
    file: &Arc<str>,
    text: &str,
    settings: &Settings,
    accepted: &[Terms],
    report: &FileReport,
    finding: &Diagnostic,
) -> Result<String, NotFixed> {
    let options = FixOptions { may_change: true, partial: true };
    let work = Work { file, settings, accepted, options, server: OnceCell::new() };
    let planned = planned(finding).ok_or(NotFixed::NoFix)?;
    let object = planned.change.object.clone();
    let Some(round) = work.round(text, &[planned], report) else { return Err(NotFixed::NotBetter) };
    let (text_after, report_after) = work.cleared(round.text, round.report, report);
    let attempt = Attempt {
        text: Some(text_after),
        report: report_after,
        touched: BTreeSet::from([object.clone()]),
        made: Vec::new(),
        refused: Vec::new(),
    };
    if let Some(reason) = work.staying_refused(text, &attempt, report).remove(&object) {
        return Err(NotFixed::Refused(reason));
    }
    attempt.text.ok_or(NotFixed::NotBetter)
}

/// Why a finding was not fixed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotFixed {
    /// A machine cannot make it.
    #[error("there is no automatic fix")]
    NoFix,
    /// Nothing is better with it.
    #[error("the edits would not reduce the findings")]
    NotBetter,
    /// The result would be worse.
    #[error("{0}")]
    Refused(String),
}

/// The names of the objects of a report.
fn titles(report: &FileReport) -> BTreeMap<&ObjectId, String> {
    report.verdicts.iter().map(|verdict| (&verdict.id, verdict.title())).collect()
}

/// Why objects were left as they are although something in them could be fixed.
fn not_edited(
    report: &FileReport,
    left_out: &BTreeMap<ObjectId, String>,
    options: FixOptions,
) -> Vec<String> {
    let mut reasons = Vec::new();
    for (id, title) in titles(report) {
        let of_object = |finding: &&Diagnostic| finding.object.as_ref() == Some(id);
        let may_change = report
            .diagnostics
            .iter()
            .filter(of_object)
            .filter(|finding| finding.effect().is_some_and(|effect| !effect.is_safe()))
            .count();
        let needs_leave = (may_change > 0 && !options.may_change).then(|| {
            let fixes = if may_change == 1 { "1 fix".to_owned() } else { format!("{may_change} fixes") };
            format!("{fixes} may change its behaviour, which --unsafe-fixes allows")
        });
        match (left_out.get(id), needs_leave) {
            (Some(reason), Some(needs_leave)) => {
                reasons.push(format!("{title}: {reason}; {needs_leave}"));
            }
            (Some(reason), None) => {
                reasons.push(format!("{title}: {reason}; --fix-partial edits what can be fixed"));
            }
            (None, Some(needs_leave)) => reasons.push(format!("{title}: {needs_leave}")),
            (None, None) => {}
        }
    }
    reasons
}

struct Work<'w> {
    file: &'w Arc<str>,
    settings: &'w Settings,
    accepted: &'w [Terms],
    options: FixOptions,
    server: OnceCell<ServerSide>,
}

/// A text under way.
struct Attempt {
    text: Option<String>,
    report: FileReport,
    /// The objects that were edited.
    touched: BTreeSet<ObjectId>,
    /// The fixes that were made.
    made: Vec<Listed>,
    refused: Vec<String>,
}

impl Attempt {
    /// The fixes that were made, and those that are left.
    fn listed(&self, first: &FileReport) -> Vec<Listed> {
        let titles = titles(first);
        let mut listed = self.made.clone();
        listed.extend(self.report.diagnostics.iter().filter_map(|finding| listing(finding, &titles, false)));
        // What belongs together is shown together; the order within an object is that in which fixes were made.
        let place = |of: &Listed| first.verdicts.iter().position(|verdict| verdict.title() == of.object);
        listed.sort_by_key(place);
        listed
    }
}

fn listing(finding: &Diagnostic, titles: &BTreeMap<&ObjectId, String>, made: bool) -> Option<Listed> {
    let object = titles.get(finding.object.as_ref()?)?.clone();
    Some(Listed { object, effect: finding.effect()?.clone(), help: finding.help.clone()?, made })
}

/// Findings with the edits that fix them.
struct Planned<'r> {
    finding: &'r Diagnostic,
    change: Change<'r>,
}

fn planned(finding: &Diagnostic) -> Option<Planned<'_>> {
    let object = finding.object.as_ref()?;
    let edits = finding.fix.as_ref()?.iter().map(|step| step.edit.clone()).collect();
    Some(Planned { finding, change: Change { object, edits } })
}

impl Work<'_> {
    fn judge(&self, text: &str) -> FileReport {
        judge_text(self.file, text, self.settings, self.accepted)
    }

    /// Makes what may be made, in every object but those left out.
    fn attempt(&self, text: &str, first: &FileReport, left_out: &BTreeMap<ObjectId, String>) -> Attempt {
        let mut current = Attempt {
            text: None,
            report: first.clone(),
            touched: BTreeSet::new(),
            made: Vec::new(),
            refused: Vec::new(),
        };
        let titles = titles(first);
        for _ in 0..MAX_ROUNDS {
            let source = current.text.as_deref().unwrap_or(text);
            let steps = self.steps(&current.report, left_out);
            if steps.is_empty() {
                break;
            }
            let Some(mut round) = self.round(source, &steps, &current.report) else {
                current.refused.push("the edits would not reduce the findings".to_owned());
                break;
            };
            (round.text, round.report) = self.cleared(round.text, round.report, &current.report);
            for index in round.made {
                let Some(step) = steps.get(index) else { continue };
                current.touched.insert(step.change.object.clone());
                current.made.extend(listing(step.finding, &titles, true));
            }
            current.text = Some(round.text);
            current.report = round.report;
            current.refused = round.refused;
        }
        current
    }

    /// Where a field now contradicts an annotation beside it, the annotation has to go.
    fn cleared(&self, text: String, report: FileReport, before: &FileReport) -> (String, FileReport) {
        let leftovers = conflicts(&report, before);
        if leftovers.is_empty() {
            return (text, report);
        }
        self.improved(apply(&text, &leftovers).text, &report).unwrap_or((text, report))
    }

    fn steps<'r>(&self, report: &'r FileReport, left_out: &BTreeMap<ObjectId, String>) -> Vec<Planned<'r>> {
        let wanted = |finding: &&Diagnostic| {
            finding.effect().is_some_and(|effect| effect.is_safe() || self.options.may_change)
        };
        report
            .diagnostics
            .iter()
            .filter(wanted)
            .filter_map(planned)
            .filter(|planned| !left_out.contains_key(planned.change.object))
            .collect()
    }

    /// All edits at once; if that makes nothing better, those of each object by itself.
    fn round(&self, source: &str, steps: &[Planned<'_>], before: &FileReport) -> Option<Round> {
        let changes: Vec<Change<'_>> = steps.iter().map(|step| step.change.clone()).collect();
        let Applied { text, made, refused } = apply(source, &changes);
        if let Some((text, report)) = self.improved(text, before) {
            return Some(Round { text, report, made, refused });
        }
        let objects: BTreeSet<&ObjectId> = changes.iter().map(|change| change.object).collect();
        let mut best: Option<Round> = None;
        for object in objects.iter().filter(|_| objects.len() > 1) {
            let own: Vec<usize> = (0..changes.len())
                .filter(|&index| changes.get(index).is_some_and(|change| change.object == *object))
                .collect();
            let of_object: Vec<Change<'_>> =
                own.iter().filter_map(|&index| changes.get(index).cloned()).collect();
            let (text, report) = match &best {
                Some(round) => (round.text.as_str(), &round.report),
                None => (source, before),
            };
            let applied = apply(text, &of_object);
            if let Some((text, report)) = self.improved(applied.text, report) {
                let mut made: Vec<usize> =
                    applied.made.iter().filter_map(|&index| own.get(index).copied()).collect();
                let mut refused = applied.refused;
                if let Some(round) = best.take() {
                    made.extend(round.made);
                    refused.extend(round.refused);
                }
                made.sort_unstable();
                best = Some(Round { text, report, made, refused });
            }
        }
        best
    }

    /// The text and its report, if it is better than before.
    fn improved(&self, text: Option<String>, before: &FileReport) -> Option<(String, FileReport)> {
        let text = text?;
        let report = self.judge(&text);
        let same = before.verdicts.len() == report.verdicts.len() && before.errors == report.errors;
        let worse =
            before.verdicts.iter().zip(&report.verdicts).any(|(old, new)| old.allowed && !new.allowed);
        let fixable = |report: &FileReport| report.diagnostics.iter().filter(|d| d.fix.is_some()).count();
        // A conflict that an edit causes is cleared right after, so what counts is what can still be fixed.
        let better = errors(&report) < errors(before) || fixable(&report) < fixable(before);
        (same && !worse && better).then_some((text, report))
    }

    /// The edited objects that must stay as they were, and why.
    fn staying_refused(
        &self,
        text: &str,
        attempt: &Attempt,
        first: &FileReport,
    ) -> BTreeMap<ObjectId, String> {
        let mut staying = BTreeMap::new();
        let Some(new) = &attempt.text else { return staying };
        if !self.options.partial {
            for finding in attempt.report.diagnostics.iter().filter(|d| d.severity == Severity::Error) {
                if let Some(object) = finding.object.as_ref().filter(|id| attempt.touched.contains(*id)) {
                    let reason = format!("it would still be refused, because {}", finding.summary);
                    staying.entry(object.clone()).or_insert(reason);
                }
            }
        }
        let before = self.rejections(text, &attempt.touched);
        for (object, rejections) in self.rejections(new, &attempt.touched) {
            let known = before.get(&object).map_or(&[][..], |known| &known.reasons);
            let counts = |reason: &&String| {
                let only_new = self.options.partial || !rejections.complete;
                !(only_new && known.contains(reason))
            };
            if let Some(reason) = rejections.reasons.iter().find(counts) {
                let reason = format!("an API server would reject it: {reason}");
                staying.entry(object).or_insert(reason);
            }
        }
        // A text in which an object got lost says nothing about it.
        let expected = first.verdicts.len();
        if attempt.report.verdicts.len() != expected {
            for object in &attempt.touched {
                staying.entry(object.clone()).or_insert_with(|| "the result cannot be read".to_owned());
            }
        }
        staying
    }

    /// What an API server says to objects of a text.
    fn rejections(&self, text: &str, wanted: &BTreeSet<ObjectId>) -> BTreeMap<ObjectId, Rejections> {
        let server = self.server.get_or_init(|| ServerSide::new(self.settings.compat));
        let parsed = parse(text, &Limits::default());
        let mut found = BTreeMap::new();
        for document in &parsed.documents {
            if !wanted.iter().any(|id| id.document == document.index()) {
                continue;
            }
            for object in objects(document) {
                let id = object.source.id();
                let Some(workload) = object.workload.filter(|_| wanted.contains(id)) else { continue };
                let (reasons, complete) = match Value::deserialize(object.node) {
                    Ok(mut value) => {
                        // Items of a typed list need not carry them.
                        if let Value::Object(fields) = &mut value {
                            fields.entry("apiVersion").or_insert_with(|| object.api_version.into());
                            fields.entry("kind").or_insert_with(|| object.kind.into());
                        }
                        let namespace = self.settings.namespace.as_deref().unwrap_or("default");
                        let asked =
                            Asked { object: &value, api_version: object.api_version, workload, namespace };
                        (server.rejections(&asked), server.serves(&asked))
                    }
                    Err(error) => (vec![error.to_string()], true),
                };
                found.insert(id.clone(), Rejections { reasons, complete });
            }
        }
        found
    }
}

/// What an API server says to objects of a text, by object.
pub fn rejections(
    text: &str,
    settings: &Settings,
    wanted: &BTreeSet<ObjectId>,
) -> BTreeMap<ObjectId, Vec<String>> {
    let file: Arc<str> = Arc::from("");
    let work = Work {
        file: &file,
        settings,
        accepted: &[],
        options: FixOptions::default(),
        server: OnceCell::new(),
    };
    work.rejections(text, wanted).into_iter().map(|(object, said)| (object, said.reasons)).collect()
}

/// What an API server said to an object.
struct Rejections {
    reasons: Vec<String>,
    /// Whether it serves the kind, and so judged the whole object.
    complete: bool,
}

/// One round of edits.
struct Round {
    text: String,
    report: FileReport,
    /// Which of the changes were made.
    made: Vec<usize>,
    refused: Vec<String>,
}

fn errors(report: &FileReport) -> usize {
    report.diagnostics.iter().filter(|finding| finding.severity == Severity::Error).count()
}

/// The edits that clear away annotations that have come into conflict with a field since `before`.
fn conflicts<'r>(report: &'r FileReport, before: &FileReport) -> Vec<Change<'r>> {
    let is_conflict = |finding: &&Diagnostic| finding.code.as_str() == "profile/conflict";
    let known = |finding: &Diagnostic| {
        before
            .diagnostics
            .iter()
            .filter(is_conflict)
            .any(|old| old.object == finding.object && old.path == finding.path)
    };
    report
        .diagnostics
        .iter()
        .filter(is_conflict)
        .filter(|finding| !known(finding))
        .filter_map(|finding| {
            let edits = vec![Edit::Remove(finding.annotation.clone()?)];
            Some(Change { object: finding.object.as_ref()?, edits })
        })
        .collect()
}

/// What became of changes.
#[derive(Debug, Default)]
pub struct Applied {
    /// The new text, if anything could be changed.
    pub text: Option<String>,
    /// Which of the changes were made.
    pub made: Vec<usize>,
    /// What could not be changed, and why.
    pub refused: Vec<String>,
}

/// Makes changes in a text: together if possible, otherwise those that can be made one by one.
#[must_use]
pub fn apply(source: &str, changes: &[Change<'_>]) -> Applied {
    let parsed = parse(source, &Limits::default());
    if let Ok(text) = edited(&parsed, changes) {
        let made = (0..changes.len()).collect();
        return Applied { text: (text != source).then_some(text), made, refused: Vec::new() };
    }
    let mut applied = Applied::default();
    for (index, change) in changes.iter().enumerate() {
        let current = applied.text.as_deref().unwrap_or(source);
        match edited(&parse(current, &Limits::default()), std::slice::from_ref(change)) {
            Ok(text) if text != current => {
                applied.text = Some(text);
                applied.made.push(index);
            }
            Ok(_) => {}
            Err(error) => {
                let at = change.edits.first().map(|edit| edit.path().to_string()).unwrap_or_default();
                applied.refused.push(format!("{at}: {error}"));
            }
        }
    }
    applied
}

fn edited(parsed: &Parsed<'_>, changes: &[Change<'_>]) -> Result<String, EditError> {
    let mut editor = Editor::new(parsed);
    for change in changes {
        let index = change.object.document;
        let document = parsed
            .documents
            .iter()
            .position(|document| document.index() == index)
            .ok_or(EditError::NoDocument { document: index })?;
        for edit in &change.edits {
            let steps = steps(change.object, edit.path());
            let result = match edit {
                Edit::Set(_, value) => editor.set(document, &steps, written(value)),
                Edit::Append(_, value) => editor.append(document, &steps, written(value)),
                Edit::Remove(_) => editor.remove(document, &steps, WhenEmpty::Prune),
            };
            match result {
                // What an API server would have filled in is not in the text, and need not go.
                Err(EditError::NotFound { .. }) if matches!(edit, Edit::Remove(_)) => {}
                result => result?,
            }
        }
    }
    editor.finish()
}

/// The value in the order people write it: the type of a profile comes first.
#[must_use]
pub fn written(value: &Value) -> palisade_yaml::Value {
    match value {
        Value::Object(fields) => {
            let (first, rest): (Vec<_>, Vec<_>) = fields.iter().partition(|(key, _)| *key == "type");
            let fields = first.into_iter().chain(rest).map(|(key, value)| (key.clone(), written(value)));
            palisade_yaml::Value::Map(fields.collect())
        }
        other => other.clone().into(),
    }
}

fn steps<'p>(object: &ObjectId, path: &'p FieldPath) -> Vec<Step<'p>> {
    let items = object.items.iter().flat_map(|&item| [Step::Key("items"), Step::Index(item)]);
    let path = path.steps().iter().map(|step| match step {
        field_path::PathStep::Field(name) => Step::Key(name),
        field_path::PathStep::Key(key) => Step::Key(key.as_str()),
        field_path::PathStep::Index(index) => Step::Index(*index),
    });
    items.chain(path).collect()
}

/// The fixes of a file as lines that `patch` and `git apply` skip.
#[must_use]
pub fn listing_text(listed: &[Listed]) -> String {
    let mut text = String::new();
    let mut object = None;
    for fix in listed {
        if object != Some(&fix.object) {
            let _ = writeln!(text, "# {}", fix.object);
            object = Some(&fix.object);
        }
        let not_made = if fix.made { "" } else { ", not made" };
        let _ = writeln!(text, "#   {}{not_made}: {}; {}", fix.effect.name(), fix.help, fix.effect.reason());
    }
    text
}

/// A unified diff of a file.
#[must_use]
pub fn unified_diff(file: &str, old: &str, new: &str) -> String {
    similar::TextDiff::from_lines(old, new)
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{file}"), &format!("b/{file}"))
        .to_string()
}
