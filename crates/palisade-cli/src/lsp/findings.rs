//! Findings as the diagnostics of the protocol.

use lsp_types::{
    Diagnostic as Shown, DiagnosticRelatedInformation, DiagnosticSeverity, Location, NumberOrString,
    Position, Range, Uri,
};

use super::text::Text;
use crate::diagnostic::{Diagnostic, Severity};

/// The name of the source of every diagnostic.
pub(super) const SOURCE: &str = "palisade";

/// Where a finding without a place is shown.
const TOP: Range =
    Range { start: Position { line: 0, character: 0 }, end: Position { line: 0, character: 1 } };

/// The place of a finding in its document.
pub(super) fn range(finding: &Diagnostic, text: &Text) -> Range {
    finding.at.as_ref().map_or(TOP, |label| text.range_of(label))
}

/// A finding of a document.
pub(super) fn shown(finding: &Diagnostic, text: &Text, uri: &Uri) -> Shown {
    let related = finding.at.as_ref().and_then(|label| label.related.as_ref()).map(|label| {
        let location = Location { uri: uri.clone(), range: text.range_of(label) };
        vec![DiagnosticRelatedInformation { location, message: label.text.clone() }]
    });
    Shown { related_information: related, ..at(finding, range(finding, text)) }
}

/// A finding at a place.
pub(super) fn at(finding: &Diagnostic, range: Range) -> Shown {
    let is_template = finding.code.as_str() == "input/template";
    let severity = match finding.severity {
        // A template that no chart renders is nothing that its author did wrong.
        _ if is_template => DiagnosticSeverity::INFORMATION,
        Severity::Error => DiagnosticSeverity::ERROR,
        Severity::Warning => DiagnosticSeverity::WARNING,
    };
    Shown {
        range,
        severity: Some(severity),
        code: Some(NumberOrString::String(finding.code.to_string())),
        source: Some(SOURCE.to_owned()),
        message: message(finding),
        ..Shown::default()
    }
}

/// Something about the document as a whole.
pub(super) fn notice(code: &str, message: String) -> Shown {
    Shown {
        range: TOP,
        severity: Some(DiagnosticSeverity::ERROR),
        code: Some(NumberOrString::String(code.to_owned())),
        source: Some(SOURCE.to_owned()),
        message,
        ..Shown::default()
    }
}

/// The texts of a finding, as `palisade check` prints them.
fn message(finding: &Diagnostic) -> String {
    let mut text = finding.summary.clone();
    if let Some(subject) = &finding.subject {
        text = format!("{subject}: {text}");
    }
    let label = finding.at.as_ref().map(|label| label.text.as_str()).filter(|text| !text.is_empty());
    for line in label.into_iter().chain(finding.because.iter().map(String::as_str)) {
        text.push('\n');
        text.push_str(line);
    }
    if let Some(help) = &finding.help {
        text.push_str("\nhelp: ");
        text.push_str(help);
    }
    text
}
