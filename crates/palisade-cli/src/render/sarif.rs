//! SARIF 2.1.0, for code scanning.
//!
//! <https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/sarif-v2.1.0-os.html>

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{self, Write},
};

use palisade_policy::standards::checks;
use serde_json::{Value, json};

use crate::{
    diagnostic::{Diagnostic, Label},
    judge::FileReport,
};

#[derive(Debug, Default)]
pub(super) struct Run {
    codes: BTreeSet<String>,
    results: String,
}

impl Run {
    pub(super) fn push(&mut self, report: &FileReport, results: &str) {
        if results.is_empty() {
            return;
        }
        self.codes.extend(report.diagnostics.iter().map(|d| d.code.as_str().to_owned()));
        if !self.results.is_empty() {
            self.results.push(',');
        }
        self.results.push_str(results);
    }

    pub(super) fn finish(self, out: &mut dyn Write) -> io::Result<()> {
        let rules: Vec<Value> = self.codes.iter().map(|code| rule(code)).collect();
        let tool = json!({"driver": {
            "name": "palisade",
            "version": env!("CARGO_PKG_VERSION"),
            "semanticVersion": env!("CARGO_PKG_VERSION"),
            "informationUri": "https://kubernetes.io/docs/concepts/security/pod-security-standards/",
            "rules": rules,
        }});
        writeln!(
            out,
            "{{\"$schema\":\"https://json.schemastore.org/sarif-2.1.0.json\",\"version\":\"2.1.0\",\"runs\":[\n\
             {{\"tool\":{tool},\n\"columnKind\":\"unicodeCodePoints\",\"results\":[{}]}}]}}",
            self.results
        )
    }
}

fn rule(code: &str) -> Value {
    let check = code.strip_prefix("pss/").and_then(checks::check);
    match check {
        Some(check) => json!({
            "id": code,
            "name": check.title,
            "shortDescription": {"text": format!("Pod Security Standards, {}: {}", check.level, check.title)},
            "fullDescription": {"text": format!("Pod Security Standards, {}: {}: {}.", check.level, check.title, check.why)},
            "helpUri": "https://kubernetes.io/docs/concepts/security/pod-security-standards/",
            "properties": {"tags": ["security", "kubernetes", check.level.as_str()]},
        }),
        None => json!({
            "id": code,
            "shortDescription": {"text": described(code)},
            "properties": {"tags": ["kubernetes"]},
        }),
    }
}

fn described(code: &str) -> &'static str {
    match code.split('/').next().unwrap_or_default() {
        "annotation" => "A legacy annotation that has no effect, or soon will have none",
        "api" => "An API server rejects this object, or warns about it",
        "chart" => "A Helm chart that could not be rendered",
        "profile" => "A seccomp or AppArmor profile that cannot be used",
        "suppression" => "A suppression that is invalid, expired or unused",
        "yaml" => "The text is not YAML that Kubernetes can read",
        _ => "The input could not be read",
    }
}

pub(super) fn fragment(report: &FileReport, text: &mut String) {
    for diagnostic in &report.diagnostics {
        if !text.is_empty() {
            text.push(',');
        }
        text.push('\n');
        text.push_str(&result(diagnostic).to_string());
    }
}

fn result(diagnostic: &Diagnostic) -> Value {
    let mut message = diagnostic.summary.clone();
    for reason in &diagnostic.because {
        message.push_str(". Because: ");
        message.push_str(reason);
    }
    if let Some(help) = &diagnostic.help {
        message.push_str(". Help: ");
        message.push_str(help);
    }
    let mut physical = json!({"artifactLocation": {"uri": uri(&diagnostic.file)}});
    if let Some(label) = &diagnostic.at {
        physical["region"] = region(label);
    }
    let mut location = json!({"physicalLocation": physical});
    if let Some(path) = &diagnostic.path {
        location["logicalLocations"] = json!([{"fullyQualifiedName": path}]);
    }
    let mut result = json!({
        "ruleId": diagnostic.code.as_str(),
        "level": diagnostic.severity.as_str(),
        "message": {"text": message},
        "locations": [location],
    });
    if let Some(path) = &diagnostic.path {
        // Stays the same when lines are added above.
        let object = diagnostic.object.as_ref().map_or(0, |object| object.document);
        result["partialFingerprints"] =
            json!({"palisade/v1": format!("{}:{}:{object}:{path}", diagnostic.code, diagnostic.file)});
    }
    result
}

fn region(label: &Label) -> Value {
    json!({
        "startLine": label.line,
        "startColumn": label.column,
        "endLine": label.end_line,
        "endColumn": label.end_column.max(if label.end_line == label.line { label.column } else { 1 }),
    })
}

/// A relative path as a URI reference; an absolute one as a file URI.
fn uri(path: &str) -> String {
    let mut uri = String::new();
    if path.starts_with('/') {
        uri.push_str("file://");
    }
    for byte in path.trim_start_matches("./").bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}
