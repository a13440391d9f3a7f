//! Fixes, made and verified in memory: the smallest edits that fix the findings, and then the check again.
//!
//! Nothing here writes files. A text is only changed if the result reads well, no verdict is worse than before, and
//! fewer findings are left.

use std::sync::Arc;

use palisade_base::field_path::{self, FieldPath};
use palisade_policy::standards::finding::Edit;
use palisade_yaml::{EditError, Editor, Limits, Parsed, Step, WhenEmpty, parse};

use crate::{
    diagnostic::{Diagnostic, ObjectId, Severity},
    judge::{FileReport, Settings, judge_text},
    suppression::Terms,
};

/// A finding may uncover another one; that this ends is upstream's choice of rules, not ours.
const MAX_ROUNDS: usize = 8;

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
pub fn fix_text(file: &Arc<str>, text: &str, settings: &Settings, accepted: &[Terms]) -> Fixed {
    let first = judge_text(file, text, settings, accepted);
    let found = errors(&first);
    let mut current = Fixed { text: None, report: first, fixed: 0, refused: Vec::new() };
    for _ in 0..MAX_ROUNDS {
        let source = current.text.as_deref().unwrap_or(text);
        let changes = changes(&current.report, None);
        if changes.is_empty() {
            break;
        }
        let applied = apply(source, &changes);
        let Some((mut new, mut report)) = improved(applied.text, &current.report, file, settings, accepted)
        else {
            current.refused.extend(applied.refused);
            if current.refused.is_empty() {
                current.refused.push("the edits would not reduce the findings".to_owned());
            }
            break;
        };
        // Where a field now contradicts an annotation beside it, the annotation has to go.
        let leftovers = self::changes(&report, Some(&current.report));
        if !leftovers.is_empty() {
            let cleared = apply(&new, &leftovers);
            if let Some((text, cleared)) = improved(cleared.text, &report, file, settings, accepted) {
                (new, report) = (text, cleared);
            }
        }
        current.text = Some(new);
        current.report = report;
        current.refused = applied.refused;
    }
    current.fixed = found.saturating_sub(errors(&current.report));
    current
}

fn errors(report: &FileReport) -> usize {
    report.diagnostics.iter().filter(|finding| finding.severity == Severity::Error).count()
}

/// The text and its report, if it is better than before.
fn improved(
    text: Option<String>,
    before: &FileReport,
    file: &Arc<str>,
    settings: &Settings,
    accepted: &[Terms],
) -> Option<(String, FileReport)> {
    let text = text?;
    let report = judge_text(file, &text, settings, accepted);
    let same = before.verdicts.len() == report.verdicts.len() && before.errors == report.errors;
    let worse = before.verdicts.iter().zip(&report.verdicts).any(|(old, new)| old.allowed && !new.allowed);
    let fixable = |report: &FileReport| report.diagnostics.iter().filter(|d| d.fix.is_some()).count();
    // A conflict that an edit causes is cleared right after, so what counts is what can still be fixed.
    let better = errors(&report) < errors(before) || fixable(&report) < fixable(before);
    (same && !worse && better).then_some((text, report))
}

/// The edits that fix the findings of a report; with `before`, those that clear away annotations that have since come into
/// conflict with a field.
fn changes<'r>(report: &'r FileReport, before: Option<&FileReport>) -> Vec<Change<'r>> {
    let is_conflict = |finding: &Diagnostic| finding.code.as_str() == "profile/conflict";
    let known = |finding: &Diagnostic| {
        before.is_some_and(|before| {
            before
                .diagnostics
                .iter()
                .any(|old| is_conflict(old) && old.object == finding.object && old.path == finding.path)
        })
    };
    report
        .diagnostics
        .iter()
        .filter_map(|finding| {
            let object = finding.object.as_ref()?;
            let edits = match before {
                None => finding.fix.clone()?,
                Some(_) if is_conflict(finding) && !known(finding) => {
                    vec![Edit::Remove(finding.annotation.clone()?)]
                }
                Some(_) => return None,
            };
            Some(Change { object, edits })
        })
        .collect()
}

/// What became of changes.
#[derive(Debug, Default)]
pub struct Applied {
    /// The new text, if anything could be changed.
    pub text: Option<String>,
    /// What could not be changed, and why.
    pub refused: Vec<String>,
}

/// Makes changes in a text: together if possible, otherwise those that can be made one by one.
#[must_use]
pub fn apply(source: &str, changes: &[Change<'_>]) -> Applied {
    let parsed = parse(source, &Limits::default());
    if let Ok(text) = edited(&parsed, changes) {
        return Applied { text: (text != source).then_some(text), refused: Vec::new() };
    }
    let mut applied = Applied::default();
    for change in changes {
        let current = applied.text.as_deref().unwrap_or(source);
        match edited(&parse(current, &Limits::default()), std::slice::from_ref(change)) {
            Ok(text) if text != current => applied.text = Some(text),
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
fn written(value: &serde_json::Value) -> palisade_yaml::Value {
    match value {
        serde_json::Value::Object(fields) => {
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

/// A unified diff of a file.
#[must_use]
pub fn unified_diff(file: &str, old: &str, new: &str) -> String {
    similar::TextDiff::from_lines(old, new)
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{file}"), &format!("b/{file}"))
        .to_string()
}
