//! Findings that were accepted: where that is written, why, and until when.
//!
//! A comment `# palisade:ignore <code>[,<code>] reason="…" [until=YYYY-MM-DD]` on the line of a finding or on the
//! line above it, an annotation `palisade.dev/ignore: "<code>[,<code>]; reason=…; until=…"` on the object or its
//! template, or an entry of the configuration file. A reason is required. What has expired or was never needed is
//! reported, so that suppressions do not outlive their cause. What keeps a document from being checked cannot be accepted:
//! it is not known what else is wrong with it.

use std::sync::Arc;

use jiff::civil::Date;
use palisade_yaml::{Comment, Span};
use thiserror::Error;

use crate::{
    diagnostic::{Code, Diagnostic, ObjectId, Severity},
    source_map::Source,
};

/// The annotation's key.
pub const ANNOTATION: &str = "palisade.dev/ignore";
const DIRECTIVE: &str = "palisade:ignore";

/// An accepted finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Codes, or prefixes that end in `*`.
    pub codes: Vec<String>,
    /// Why; empty if it was left out.
    pub reason: String,
    /// The last day it holds.
    pub until: Option<Date>,
}

/// What is wrong with the text of a suppression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum TermsError {
    #[error("`{0}` is not a date such as 2027-01-31")]
    Date(String),
    #[error("`{0}` is not a code such as pss/privileged")]
    Code(String),
    #[error("it has no code such as pss/privileged")]
    NoCode,
}

impl Terms {
    fn names(&self, code: &Code) -> bool {
        self.codes.iter().any(|pattern| code.matches(pattern))
    }

    fn expired(&self, today: Date) -> Option<Date> {
        self.until.filter(|until| *until < today)
    }

    /// Reads `pss/a,pss/b reason="…" until=…`; parts may also be separated by `;`, as in annotations.
    fn parse(text: &str) -> Result<Self, TermsError> {
        let mut terms = Self { codes: Vec::new(), reason: String::new(), until: None };
        let mut rest = text.trim();
        while !rest.is_empty() {
            let at_option = ["reason=", "until="].iter().any(|option| rest.starts_with(option));
            if at_option {
                let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
                let (value, after) = read_value(value, name == "reason");
                if name == "reason" {
                    value.trim().clone_into(&mut terms.reason);
                } else {
                    let date = value.parse().map_err(|_| TermsError::Date(value.to_owned()))?;
                    terms.until = Some(date);
                }
                rest = after;
            } else {
                let end = rest.find([',', ' ', '\t', ';']).unwrap_or(rest.len());
                let (code, after) = rest.split_at(end);
                if !code.contains(['/', '*']) {
                    return Err(TermsError::Code(code.to_owned()));
                }
                terms.codes.push(code.to_owned());
                rest = after;
            }
            rest = rest.trim_start_matches([',', ' ', '\t', ';']);
        }
        if terms.codes.is_empty() {
            return Err(TermsError::NoCode);
        }
        Ok(terms)
    }
}

/// A value in quotes, or up to the next separator. A reason without quotes may have spaces.
fn read_value(text: &str, spaces: bool) -> (&str, &str) {
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let inner = text.get(1..).unwrap_or_default();
        return inner.split_once(quote).unwrap_or((inner, ""));
    }
    let end = text.find(';').unwrap_or(text.len());
    let end = if spaces {
        text.find(" until=").map_or(end, |until| until.min(end))
    } else {
        text.find([' ', '\t']).map_or(end, |blank| blank.min(end))
    };
    text.split_at(end)
}

/// The findings a suppression is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Those on one of these lines.
    Lines {
        /// The comment's own line.
        own: usize,
        /// The line it stands above, if it has a line to itself.
        below: Option<usize>,
    },
    /// Those of one object.
    Object(ObjectId),
    /// All of the file.
    File,
}

/// A suppression found in a file or in the configuration.
#[derive(Debug, Clone)]
pub struct Suppression {
    /// What it accepts.
    pub terms: Terms,
    /// Where it holds.
    pub scope: Scope,
    /// Its place in the file; `None` for one of the configuration, which is never called unused.
    pub span: Option<Span>,
}

/// All suppressions of a file, and what is wrong with them.
#[derive(Debug, Default)]
pub struct Suppressions {
    list: Vec<Suppression>,
    problems: Vec<Diagnostic>,
}

impl Suppressions {
    /// Reads the directives among the comments of a file.
    pub fn from_comments(comments: &[Comment<'_>], file: &Arc<str>, source: &Source<'_>) -> Self {
        let mut found = Self::default();
        for (position, comment) in comments.iter().enumerate() {
            let Some(text) = comment.text.strip_prefix(DIRECTIVE) else { continue };
            let below = comment.own_line.then(|| {
                // Further comments may stand between the directive and its line.
                let mut line = comment.line + 1;
                for next in comments.iter().skip(position + 1) {
                    if next.own_line && next.line == line {
                        line += 1;
                    } else {
                        break;
                    }
                }
                line
            });
            found.add(text, Scope::Lines { own: comment.line, below }, comment.span, file, source);
        }
        found
    }

    /// Reads an annotation of an object.
    pub fn add(&mut self, text: &str, scope: Scope, span: Span, file: &Arc<str>, source: &Source<'_>) {
        match Terms::parse(text) {
            Ok(terms) if terms.reason.is_empty() => {
                let problem = Diagnostic::error(
                    Code::of("suppression/no-reason"),
                    file,
                    format!("the suppression of {} has no reason, and is ignored", terms.codes.join(", ")),
                );
                self.problems.push(
                    problem
                        .at(source.label(span, "a reason is required"))
                        .help("add why it is acceptable: reason=\"…\""),
                );
            }
            Ok(terms) => self.list.push(Suppression { terms, scope, span: Some(span) }),
            Err(error) => {
                let problem = Diagnostic::error(
                    Code::of("suppression/invalid"),
                    file,
                    format!("cannot read this suppression: {error}"),
                );
                self.problems.push(
                    problem
                        .at(source.label(span, ""))
                        .help("write it as palisade:ignore pss/hostPorts reason=\"…\" until=2027-01-31"),
                );
            }
        }
    }

    /// Adds one of the configuration.
    pub fn add_configured(&mut self, terms: Terms) {
        self.list.push(Suppression { terms, scope: Scope::File, span: None });
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.problems.is_empty()
    }

    /// Removes the accepted findings and reports invalid suppressions. Returns how many were removed.
    /// `in_force` is whether a code can occur at all: a suppression of a rule of another level is not unused.
    pub fn apply(
        self,
        findings: &mut Vec<Diagnostic>,
        today: Date,
        in_force: impl Fn(&str) -> bool,
        file: &Arc<str>,
        source: &Source<'_>,
    ) -> usize {
        let mut used = vec![false; self.list.len()];
        let before = findings.len();
        findings.retain_mut(|finding| {
            let mut kept = true;
            for (suppression, used) in self.list.iter().zip(&mut used) {
                if !suppression.terms.names(&finding.code) || !suppression.covers(finding) {
                    continue;
                }
                *used = true;
                if finding.is_unchecked {
                    finding.because.push("what was not checked cannot be accepted".to_owned());
                    continue;
                }
                match suppression.terms.expired(today) {
                    None => kept = false,
                    Some(until) => finding.because.push(format!(
                        "its suppression (\"{}\") expired on {until}",
                        suppression.terms.reason
                    )),
                }
            }
            kept
        });
        let suppressed = before - findings.len();
        for (suppression, used) in self.list.iter().zip(used) {
            let needless = !used && suppression.terms.codes.iter().any(|code| in_force(code));
            if let (true, Some(span)) = (needless, suppression.span) {
                let codes = suppression.terms.codes.join(", ");
                findings.push(
                    Diagnostic::warning(
                        Code::of("suppression/unused"),
                        file,
                        format!("unused suppression of {codes}"),
                    )
                    .at(source.label(span, ""))
                    .help("remove it"),
                );
            }
        }
        findings.extend(self.problems);
        suppressed
    }
}

impl Suppression {
    fn covers(&self, finding: &Diagnostic) -> bool {
        match &self.scope {
            Scope::File => true,
            Scope::Lines { own, below } => {
                finding.line().is_some_and(|line| line == *own || Some(line) == *below)
            }
            Scope::Object(object) => finding.object.as_ref() == Some(object),
        }
    }
}

/// The severity the user gives to a code, if any: the last of the patterns that name it.
#[must_use]
pub fn severity_of(code: &Code, overrides: &[(String, Option<Severity>)]) -> Option<Option<Severity>> {
    overrides.iter().rev().find(|(pattern, _)| code.matches(pattern)).map(|(_, severity)| *severity)
}

#[cfg(test)]
mod tests {
    use super::Terms;

    #[test]
    fn reads_comments_and_annotations() {
        for (text, codes, reason, until) in [
            ("pss/a reason=\"node exporter\"", &["pss/a"][..], "node exporter", None),
            ("pss/a,pss/b reason='x' until=2027-01-31", &["pss/a", "pss/b"], "x", Some("2027-01-31")),
            (
                "pss/a, pss/b until=2027-01-31 reason=bare words",
                &["pss/a", "pss/b"],
                "bare words",
                Some("2027-01-31"),
            ),
            ("pss/*; reason=it is old; until=2027-01-31", &["pss/*"], "it is old", Some("2027-01-31")),
            ("pss/a reason=bare words until=2027-01-31", &["pss/a"], "bare words", Some("2027-01-31")),
            ("pss/a", &["pss/a"], "", None),
        ] {
            let terms = Terms::parse(text).unwrap();
            assert_eq!(terms.codes, codes, "{text}");
            assert_eq!(terms.reason, reason, "{text}");
            assert_eq!(terms.until.map(|date| date.to_string()).as_deref(), until, "{text}");
        }
        for text in ["", "reason=x", "pss/a until=soon reason=x", "privileged reason=x"] {
            assert!(Terms::parse(text).is_err(), "{text}");
        }
    }
}
