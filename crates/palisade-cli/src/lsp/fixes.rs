//! Quick fixes: the edits of `--fix` and `--unsafe-fixes`, as edits of the text that the client has.
//!
//! An edit is made in memory, read back and judged again before it is offered or resolved. Edits are those lines that differ.

use lsp_types::{Position, Range, TextEdit};
use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::diagnostic::Diagnostic;

/// The kind of the action that makes all safe fixes, for clients that run it when a file is saved.
pub(super) const FIX_ALL: &str = "source.fixAll.palisade";
/// The kind of the action that makes all fixes.
pub(super) const UNSAFE_FIX_ALL: &str = "source.palisade.unsafeFixAll";

/// Whether a client that wants actions of a kind wants this one: `source` includes `source.fixAll`.
pub(super) fn is_wanted(only: Option<&[lsp_types::CodeActionKind]>, kind: &str) -> bool {
    only.is_none_or(|kinds| {
        kinds.iter().any(|wanted| {
            let rest = kind.strip_prefix(wanted.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || wanted.as_str().is_empty())
        })
    })
}

/// The title of the fix of a finding, with its class; `None` if it has none.
pub(super) fn title(finding: &Diagnostic) -> Option<String> {
    let (effect, help) = (finding.effect()?, finding.help.as_deref()?);
    // Of a value of a chart, the proof is a part of the sentence.
    let help = help.split("; rendered with it").next().unwrap_or(help);
    let mut letters = help.chars();
    let first = letters.next()?.to_uppercase();
    Some(format!("{}{} ({})", first, letters.as_str(), effect.name()))
}

/// The lines that differ between two texts, as edits of the first.
pub(super) fn edits(old: &str, new: &str) -> Vec<TextEdit> {
    let (before, after) = (lines(old), lines(new));
    let total = before.len();
    let ends_open = !old.is_empty() && !old.ends_with(['\n', '\r']);
    let at = |line: usize| {
        // The end of a text without a last line break is the end of its last line.
        if ends_open && line >= total {
            let last = before.last().copied().unwrap_or_default();
            let units = last.chars().map(char::len_utf16).sum::<usize>();
            return Position { line: number(total.saturating_sub(1)), character: number(units) };
        }
        Position { line: number(line), character: 0 }
    };
    let mut edits = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, &before, &after) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        let old = op.old_range();
        let new_text = after.get(op.new_range()).unwrap_or_default().concat();
        edits.push(TextEdit { range: Range { start: at(old.start), end: at(old.end) }, new_text });
    }
    edits
}

/// The lines of a text with their line breaks: LF, CRLF or CR.
fn lines(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut lines = Vec::new();
    let mut start = 0;
    for at in memchr::memchr2_iter(b'\n', b'\r', bytes) {
        if bytes.get(at) == Some(&b'\r') && bytes.get(at + 1) == Some(&b'\n') {
            continue;
        }
        lines.extend(text.get(start..=at));
        start = at + 1;
    }
    lines.extend(text.get(start..).filter(|rest| !rest.is_empty()));
    lines
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use lsp_types::{CodeActionKind, TextDocumentContentChangeEvent};

    use super::*;
    use crate::lsp::text::Text;

    #[test]
    fn edits_turn_the_old_text_into_the_new_one() {
        for (case, old, new) in [
            ("nothing", "a\n", "a\n"),
            ("a line", "a\nb\nc\n", "a\nx\nc\n"),
            ("added and removed", "a\nb\nc\nd\n", "b\nc\ny\nz\nd\n"),
            ("at the end", "a\n", "a\nb\n"),
            ("no line break at the end", "a\nb😀", "a\nb😀\nc"),
            ("only a line, without a break", "é😀", "x"),
            ("an empty text", "", "a\nb\n"),
            ("everything goes", "a\nb", ""),
            ("CRLF", "a\r\nb\r\n", "a\r\nc\r\nb\r\n"),
            ("CR", "a\rb\rc", "a\rx\rc"),
        ] {
            let mut text = Text::new(old.to_owned());
            // From the bottom up: the ranges are those of the old text.
            for edit in edits(old, new).into_iter().rev() {
                let change = TextDocumentContentChangeEvent {
                    range: Some(edit.range),
                    range_length: None,
                    text: edit.new_text,
                };
                text.change(change).unwrap();
            }
            assert_eq!(text.as_str(), new, "{case}");
        }
    }

    #[test]
    fn a_kind_includes_those_below_it() {
        for (wanted, kind, expected) in [
            (None, FIX_ALL, true),
            (Some(&[CodeActionKind::SOURCE][..]), FIX_ALL, true),
            (Some(&[CodeActionKind::SOURCE_FIX_ALL]), FIX_ALL, true),
            (Some(&[CodeActionKind::SOURCE_FIX_ALL]), UNSAFE_FIX_ALL, false),
            (Some(&[CodeActionKind::QUICKFIX]), FIX_ALL, false),
            (Some(&[CodeActionKind::EMPTY]), FIX_ALL, true),
            (Some(&[CodeActionKind::new("source.fix")]), FIX_ALL, false),
            (Some(&[]), FIX_ALL, false),
        ] {
            assert_eq!(is_wanted(wanted, kind), expected, "{wanted:?} {kind}");
        }
    }
}
