//! The only type that reaches the user.
//!
//! Findings of the engine, mistakes in the input and notes on suppressions all become a [`Diagnostic`]; the
//! renderers read nothing else. A diagnostic owns the lines it shows, so that the file it is about can be dropped.

use std::{borrow::Cow, fmt, sync::Arc};

use palisade_base::field_path::FieldPath;
use palisade_policy::standards::{
    checks::CHECKS,
    fixes::{Effect, FixEdit},
};
use palisade_yaml::{LineIndex, Span};

/// Stable and searchable: `pss/hostNamespaces`, `yaml/syntax`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub Cow<'static, str>);

impl Code {
    /// A code known when this was written.
    #[must_use]
    pub const fn of(code: &'static str) -> Self {
        Self(Cow::Borrowed(code))
    }

    /// The code of a check of the Pod Security Standards.
    #[must_use]
    pub fn standard(check: &str) -> Self {
        Self(Cow::Owned(format!("pss/{check}")))
    }

    /// The code itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a pattern names it: the code itself, or a prefix that ends in `*`.
    #[must_use]
    pub fn matches(&self, pattern: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(prefix) => self.0.starts_with(prefix),
            None => self.0 == pattern,
        }
    }
}

/// Every code of `palisade check` besides the checks of the standards, which have `pss/` before their ids.
pub const CODES: &[&str] = &[
    "annotation/dead",
    "annotation/deprecated",
    "api/invalid",
    "api/other-release",
    "api/ports",
    "api/type",
    "api/unknown-field",
    "chart/dependency",
    "chart/render",
    "chart/unreadable",
    "chart/upgrade",
    "input/binary",
    "input/encoding",
    "input/namespace",
    "input/not-an-object",
    "input/template",
    "input/too-large",
    "input/unknown-kind",
    "input/unreadable",
    "kustomize/build",
    "kustomize/not-supported",
    "kustomize/remote",
    "profile/annotation",
    "profile/apparmor-name",
    "profile/apparmor-type",
    "profile/conflict",
    "profile/seccomp-file",
    "profile/seccomp-type",
    "suppression/invalid",
    "suppression/no-reason",
    "suppression/unused",
    "workload/undecided",
    "yaml/alias-bomb",
    "yaml/cyclic-alias",
    "yaml/duplicate-key",
    "yaml/invalid-key",
    "yaml/invalid-merge",
    "yaml/invalid-tag",
    "yaml/syntax",
    "yaml/too-deep",
    "yaml/unknown-anchor",
];

/// Every code, those of the standards included.
pub fn codes() -> impl Iterator<Item = Code> {
    CODES.iter().map(|code| Code::of(code)).chain(CHECKS.iter().map(|check| Code::standard(check.id)))
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Warning,
    /// Must change.
    Error,
}

impl Severity {
    /// As JSON writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What is reported to the user.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    /// Stable and searchable.
    pub code: Code,
    /// Error or warning; decides the exit status.
    pub severity: Severity,
    /// One lower-case phrase, using the user's own names.
    pub summary: String,
    /// The file it is about, as the user named it.
    pub file: Arc<str>,
    /// Where in that file.
    pub at: Option<Label>,
    /// The field, as Kubernetes writes paths.
    pub path: Option<String>,
    /// The container it belongs to.
    pub container: Option<String>,
    /// The containers that a missing field of the pod leaves without a value.
    pub containers: Vec<String>,
    /// The offending value, as the user wrote it; none if the field is missing, or if it is in the summary.
    pub value: Option<String>,
    /// The rule, its version, the setting that made it apply.
    pub because: Vec<String>,
    /// The smallest edit that fixes it, in words.
    pub help: Option<String>,
    /// The same as edits with paths from the object's root, if a machine can make them.
    pub fix: Option<Vec<FixEdit>>,
    /// The keys of a chart's values that fix it, proven by rendering again.
    pub values: Option<ValuesPatch>,
    /// The annotation it is about, with its path from the object's root.
    pub annotation: Option<FieldPath>,
    /// Which object of the file it is about.
    pub object: Option<ObjectId>,
    /// What that object is called, if the file has several.
    pub subject: Option<String>,
    /// Whether it is the reason why something was not checked: such a finding cannot be accepted or turned off.
    pub is_unchecked: bool,
}

impl Diagnostic {
    /// An error about a file.
    #[must_use]
    pub fn error(code: Code, file: &Arc<str>, summary: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            summary: summary.into(),
            file: Arc::clone(file),
            at: None,
            path: None,
            container: None,
            containers: Vec::new(),
            value: None,
            because: Vec::new(),
            help: None,
            fix: None,
            values: None,
            annotation: None,
            object: None,
            subject: None,
            is_unchecked: false,
        }
    }

    /// An error that keeps a document from being checked.
    #[must_use]
    pub fn unchecked(code: Code, file: &Arc<str>, summary: impl Into<String>) -> Self {
        Self { is_unchecked: true, ..Self::error(code, file, summary) }
    }

    /// A warning about a file.
    #[must_use]
    pub fn warning(code: Code, file: &Arc<str>, summary: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, file, summary) }
    }

    /// With a place.
    #[must_use]
    pub fn at(mut self, label: Label) -> Self {
        self.at = Some(label);
        self
    }

    /// With a reason.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.because.push(reason.into());
        self
    }

    /// With a way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// What the fix does to the containers, if there is one: it is safe if every edit is.
    #[must_use]
    pub fn effect(&self) -> Option<&Effect> {
        if let Some(patch) = &self.values {
            return Some(&patch.effect);
        }
        let edits = self.fix.as_ref()?;
        edits
            .iter()
            .map(|edit| &edit.effect)
            .find(|effect| !effect.is_safe())
            .or_else(|| edits.first().map(|edit| &edit.effect))
    }

    /// Line, counted from 1.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.at.as_ref().map(|label| label.line)
    }

    /// What to sort by: places from top to bottom, the rest first.
    #[must_use]
    pub fn order(&self) -> (Option<(usize, usize)>, &Code) {
        (self.at.as_ref().map(|label| (label.line, label.column)), &self.code)
    }
}

/// Keys of the values of a chart, and what to set them to.
#[derive(Debug, Clone, PartialEq)]
pub struct ValuesPatch {
    /// The file that they belong in.
    pub file: Arc<str>,
    /// The line of the key, or of the closest one above it, if there is one.
    pub line: Option<usize>,
    /// Keys with values.
    pub set: Vec<(String, serde_json::Value)>,
    /// The same, with the steps of each key.
    pub keys: Vec<(Vec<String>, serde_json::Value)>,
    /// What they do to the containers.
    pub effect: Effect,
}

/// One object of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The document in the file, counted from 0; empty documents do not count.
    pub document: usize,
    /// The position of the object in a `List`, outermost first; empty if the document is the object.
    pub items: Vec<usize>,
}

/// A place, its text, and the lines to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Last line of the place.
    pub end_line: usize,
    /// Column after the last character.
    pub end_column: usize,
    /// The text at the place; may be empty.
    pub text: String,
    /// The source line.
    pub excerpt: Excerpt,
    /// A second place that explains the first.
    pub related: Option<Box<Label>>,
}

/// A line of the source, or the interesting part of a very long one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The text, without line break.
    pub text: String,
    /// First byte of the place in `text`.
    pub start: usize,
    /// Byte after the last of the place in `text`.
    pub end: usize,
}

/// Lines longer than this are cut around the place: minified JSON is one line.
const LONG_LINE: usize = 400;
const AROUND: usize = 60;

impl Label {
    /// The place of a span. A span over several lines is shown by its first line.
    #[must_use]
    pub fn new(lines: &LineIndex<'_>, source: &str, span: Span, text: impl Into<String>) -> Self {
        let begin = lines.position(span.start);
        let end = lines.position(span.end.max(span.start));
        let line = lines.line_span(begin.line).unwrap_or(Span::at(span.start));
        let whole = line.text(source);
        let offset = |at: usize| at.clamp(line.start, line.end) - line.start;
        Self {
            line: begin.line,
            column: begin.column,
            end_line: end.line,
            end_column: end.column,
            text: text.into(),
            excerpt: Excerpt::cut(whole, offset(span.start), offset(span.end.max(span.start))),
            related: None,
        }
    }

    /// With a second place.
    #[must_use]
    pub fn related(mut self, other: Self) -> Self {
        self.related = Some(Box::new(other));
        self
    }
}

impl Excerpt {
    fn cut(line: &str, start: usize, end: usize) -> Self {
        let (line, start, end) = match line.strip_prefix('\u{feff}') {
            Some(rest) => (rest, start.saturating_sub(3), end.saturating_sub(3)),
            None => (line, start, end),
        };
        if line.len() <= LONG_LINE {
            return Self { text: line.to_owned(), start, end };
        }
        let from = floor_char_boundary(line, start.saturating_sub(AROUND));
        let shown_end = end.min(start + LONG_LINE - 2 * AROUND);
        let to = floor_char_boundary(line, (shown_end + AROUND).min(line.len()));
        let (before, after) = (if from > 0 { "… " } else { "" }, if to < line.len() { " …" } else { "" });
        let text = format!("{before}{}{after}", line.get(from..to).unwrap_or_default());
        let shift = |at: usize| floor_char_boundary(&text, (at + before.len()).saturating_sub(from));
        Self { start: shift(start), end: shift(floor_char_boundary(line, shown_end)), text }
    }
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_very_long_line_is_cut_around_the_place() {
        let source = format!("{}\"privileged\":true{}", "é".repeat(5000), "x".repeat(5000));
        let lines = LineIndex::new(&source);
        let start = 10_000 + "\"privileged\":".len();
        let label = Label::new(&lines, &source, Span::new(start, start + 4), "");
        assert_eq!((label.line, label.column), (1, 5014));
        assert!(label.excerpt.text.len() < LONG_LINE, "{}", label.excerpt.text.len());
        assert_eq!(label.excerpt.text.get(label.excerpt.start..label.excerpt.end), Some("true"));
    }

    #[test]
    fn a_place_over_several_lines_is_shown_by_its_first() {
        let source = "a: |\r\n  b\r\n";
        let label = Label::new(&LineIndex::new(source), source, Span::new(3, 9), "");
        assert_eq!(label.excerpt, Excerpt { text: "a: |".into(), start: 3, end: 4 });
        assert_eq!((label.end_line, label.end_column), (2, 4));
    }

    #[test]
    fn codes_are_named_whole_or_by_prefix() {
        let code = Code::standard("hostPorts");
        for (pattern, named) in
            [("pss/hostPorts", true), ("pss/*", true), ("*", true), ("pss/host", false), ("api/*", false)]
        {
            assert_eq!(code.matches(pattern), named, "{pattern}");
        }
    }
}
