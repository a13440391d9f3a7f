//! What the edits of one finding would change in a text: for SARIF's fixes and for the diffs of pages.

use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::{
    diagnostic::Diagnostic,
    fix::{Change, apply, unified_diff},
};

/// Lines that are replaced by a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replacement {
    /// First line, counted from 1.
    pub(super) start_line: usize,
    /// The place behind the last line: line and column in characters, counted from 1.
    pub(super) end: (usize, usize),
    /// What stands there instead.
    pub(super) text: String,
}

/// The text with a finding's edits, if all of them can be made.
fn edited(finding: &Diagnostic, source: &str) -> Option<String> {
    let edits = finding.fix.as_ref()?.iter().map(|step| step.edit.clone()).collect();
    let change = Change { object: finding.object.as_ref()?, edits };
    let applied = apply(source, &[change]);
    if applied.refused.is_empty() { applied.text } else { None }
}

/// A finding's edits as replaced lines.
pub(super) fn replacements(finding: &Diagnostic, source: &str) -> Vec<Replacement> {
    let Some(new) = edited(finding, source) else { return Vec::new() };
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<&str>>();
    let (old, new) = (lines(source), lines(&new));
    let place = |index: usize| match old.get(index) {
        Some(_) => (index + 1, 1),
        // Behind the last line, which need not end.
        None => match old.last() {
            Some(last) if !last.ends_with('\n') => (old.len(), last.chars().count() + 1),
            _ => (old.len() + 1, 1),
        },
    };
    capture_diff_slices(Algorithm::Myers, &old, &new)
        .into_iter()
        .filter(|op| !matches!(op, DiffOp::Equal { .. }))
        .map(|op| {
            let (lines, added) = (op.old_range(), op.new_range());
            Replacement {
                start_line: lines.start + 1,
                end: place(lines.end),
                text: new.get(added).unwrap_or_default().concat(),
            }
        })
        .collect()
}

/// A finding's edits as a unified diff.
pub(super) fn diff(finding: &Diagnostic, source: &str) -> Option<String> {
    Some(unified_diff(&finding.file, source, &edited(finding, source)?))
}
