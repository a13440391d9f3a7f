//! For people: what, where, why, and the way out, in the style of rustc.
//!
//! Drawn by hand: a run over a large repository draws tens of thousands of excerpts, every one from untrusted text,
//! and must be quick and unable to fail. Control characters never reach the terminal.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style as Ansi};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::diagnostic::{Diagnostic, Excerpt, Label, Severity};

/// How a stream shows things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// With colours.
    pub color: bool,
    /// Columns, if they are known.
    pub width: Option<usize>,
}

impl Style {
    /// No colours, no limit: for files and pipes.
    pub const PLAIN: Self = Self { color: false, width: None };

    fn paint(self, style: Ansi) -> Ansi {
        if self.color { style } else { Ansi::new() }
    }
}

const BOLD: Ansi = Ansi::new().bold();
const FRAME: Ansi = AnsiColor::BrightBlue.on_default().bold();
const ERROR: Ansi = AnsiColor::BrightRed.on_default().bold();
const WARNING: Ansi = AnsiColor::Yellow.on_default().bold();

/// Lines of an excerpt that are cut off on a narrow terminal keep at least this much.
const NARROWEST: usize = 60;

/// Appends findings, each followed by an empty line.
pub fn diagnostics(diagnostics: &[Diagnostic], style: Style, text: &mut String) {
    for diagnostic in diagnostics {
        draw(diagnostic, style, text);
        text.push('\n');
    }
}

fn draw(diagnostic: &Diagnostic, style: Style, text: &mut String) {
    let color = match diagnostic.severity {
        Severity::Error => ERROR,
        Severity::Warning => WARNING,
    };
    let (color, bold, frame) = (style.paint(color), style.paint(BOLD), style.paint(FRAME));
    let severity = diagnostic.severity.as_str();
    let _ = write!(text, "{color}{severity}[{}]{color:#}{bold}: ", diagnostic.code);
    push_clean(&diagnostic.summary, text);
    let _ = writeln!(text, "{bold:#}");

    let last_line = diagnostic
        .at
        .as_ref()
        .map_or(0, |label| label.related.as_ref().map_or(label.line, |related| related.line.max(label.line)));
    let gutter = if last_line == 0 { 1 } else { last_line.to_string().len() };
    let _ = write!(text, "{:gutter$}{frame}-->{frame:#} ", "");
    push_clean(&diagnostic.file, text);
    if let Some(label) = &diagnostic.at {
        let _ = writeln!(text, ":{}:{}", label.line, label.column);
        let _ = writeln!(text, "{:gutter$} {frame}|{frame:#}", "");
        // Both places in the order of the file; a gap between them is shown.
        match &label.related {
            Some(other) if other.line < label.line => {
                excerpt(other, '-', frame, gutter, style, text);
                gap(label.line - other.line, frame, gutter, text);
                excerpt(label, '^', color, gutter, style, text);
            }
            Some(other) => {
                excerpt(label, '^', color, gutter, style, text);
                gap(other.line - label.line, frame, gutter, text);
                excerpt(other, '-', frame, gutter, style, text);
            }
            None => excerpt(label, '^', color, gutter, style, text),
        }
    } else {
        text.push('\n');
    }
    if let Some(subject) = &diagnostic.subject {
        let _ = write!(text, "{:gutter$} {frame}={frame:#} {bold}in{bold:#}: ", "");
        push_clean(subject, text);
        text.push('\n');
    }
    let notes = diagnostic.because.iter().map(|reason| ("because", reason));
    for (name, message) in notes.chain(diagnostic.help.iter().map(|help| ("help", help))) {
        let _ = write!(text, "{:gutter$} {frame}={frame:#} {bold}{name}{bold:#}: ", "");
        push_clean(message, text);
        text.push('\n');
    }
}

fn gap(lines: usize, frame: Ansi, gutter: usize, text: &mut String) {
    if lines > 1 {
        let _ = writeln!(text, "{frame}{:.<gutter$}{frame:#}", "");
    }
}

fn excerpt(label: &Label, mark: char, color: Ansi, gutter: usize, style: Style, text: &mut String) {
    let frame = style.paint(FRAME);
    let Excerpt { text: line, start, end } = &label.excerpt;
    let part = |from: usize, to: usize| clean(line.get(from..to).unwrap_or_default());
    let (before, marked, after) = (part(0, *start), part(*start, *end), part(*end, line.len()));
    let columns = style.width.map_or(usize::MAX, |width| width.saturating_sub(gutter + 3).max(NARROWEST));
    let _ = write!(text, "{frame}{:>gutter$} |{frame:#}", label.line);
    if !label.excerpt.text.is_empty() {
        text.push(' ');
    }
    // On a narrow terminal the end of the line goes first.
    let mut used = 0;
    for c in before.chars().chain(marked.chars()).chain(after.trim_end().chars()) {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        text.push(c);
    }
    text.push('\n');
    let marks: String = std::iter::repeat_n(mark, marked.width().max(1)).collect();
    let _ = write!(
        text,
        "{:gutter$} {frame}|{frame:#} {:indent$}{color}{marks}",
        "",
        "",
        indent = before.width()
    );
    if !label.text.is_empty() {
        text.push(' ');
        push_clean(&label.text, text);
    }
    let _ = writeln!(text, "{color:#}");
}

/// Text that cannot move the cursor, change colours or hide what follows.
pub(super) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    push_clean(text, &mut cleaned);
    cleaned
}

fn push_clean(untrusted: &str, text: &mut String) {
    for c in untrusted.chars() {
        match c {
            '\t' => text.push_str("    "),
            '\n' => text.push_str("\\n"),
            // Bidirectional overrides can make code look like something else.
            c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                text.push('\u{fffd}');
            }
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn escapes_control_characters_of_untrusted_text() {
        assert_eq!(
            clean("a\tb\u{1b}[31m\u{202e}c\r\u{9b}x\n"),
            "a    b\u{fffd}[31m\u{fffd}c\u{fffd}\u{fffd}x\\n"
        );
    }
}
