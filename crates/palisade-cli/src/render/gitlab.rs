//! GitLab's code quality report.
//!
//! <https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format>

use std::path::Path;

use serde_json::json;

use super::sarif::{Importance, importance};
use crate::{
    diagnostic::{Diagnostic, Severity},
    identity::fingerprints,
    judge::FileReport,
};

pub(super) fn fragment(report: &FileReport, text: &mut String) {
    for (diagnostic, fingerprint) in report.diagnostics.iter().zip(fingerprints(report)) {
        let mut description = diagnostic.summary.clone();
        if let Some(help) = &diagnostic.help {
            description.push_str("; ");
            description.push_str(help);
        }
        let label = diagnostic.at.as_ref();
        let mut lines = json!({"begin": label.map_or(1, |label| label.line)});
        if let Some(label) = label.filter(|label| label.end_line > label.line) {
            lines["end"] = label.end_line.into();
        }
        let issue = json!({
            "description": description,
            "check_name": diagnostic.code.as_str(),
            "fingerprint": fingerprint,
            "severity": severity(diagnostic),
            "location": {"path": relative(&diagnostic.file), "lines": lines},
        });
        if !text.is_empty() {
            text.push(',');
        }
        text.push('\n');
        text.push_str(&issue.to_string());
    }
}

fn severity(diagnostic: &Diagnostic) -> &'static str {
    match (diagnostic.severity, importance(diagnostic.code.as_str())) {
        // What was not checked may hide anything.
        _ if diagnostic.is_unchecked => "blocker",
        (Severity::Error, Some(Importance::Critical)) => "critical",
        (Severity::Error, _) => "major",
        (Severity::Warning, _) => "minor",
    }
}

/// GitLab knows files by their path from the top of the repository, where its jobs run.
fn relative(file: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let path = Path::new(file);
    let below = path.strip_prefix(&here).unwrap_or(path);
    below.to_string_lossy().trim_start_matches("./").to_owned()
}
