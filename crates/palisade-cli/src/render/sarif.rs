//! SARIF 2.1.0, for code scanning.
//!
//! <https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/sarif-v2.1.0-os.html>

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{self, Write},
};

use palisade_policy::standards::{checks, level::Level};
use serde_json::{Value, json};

use super::proposal::replacements;
use crate::{
    diagnostic::{Diagnostic, Label},
    identity::fingerprints,
    judge::FileReport,
};

#[derive(Debug, Default)]
pub(super) struct Run {
    codes: BTreeSet<String>,
    results: String,
    is_incomplete: bool,
}

/// How bad it is if a rule is broken, for programs that sort findings by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Importance {
    /// The container can take over the node.
    Critical,
    /// The baseline level: a known way to more rights.
    High,
    /// The restricted level: a defence that is missing.
    Medium,
}

/// How important a rule is; `None` for what is no rule of security.
pub(super) fn importance(code: &str) -> Option<Importance> {
    if code == "annotation/dead" {
        // The profile that somebody wrote does not apply.
        return Some(Importance::Medium);
    }
    let check = code.strip_prefix("pss/").and_then(checks::check)?;
    let takes_node = ["privileged", "hostPathVolumes", "windowsHostProcess"];
    Some(match check.level {
        _ if takes_node.contains(&check.id) => Importance::Critical,
        Level::Restricted => Importance::Medium,
        Level::Baseline | Level::Privileged => Importance::High,
    })
}

impl Importance {
    /// Like a score of CVSS, which code scanning sorts into critical (from 9), high (from 7) and medium (from 4).
    const fn score(self) -> &'static str {
        match self {
            Self::Critical => "9.3",
            Self::High => "8.2",
            Self::Medium => "5.5",
        }
    }
}

impl Run {
    pub(super) fn push(&mut self, report: &FileReport, results: &str) {
        if results.is_empty() {
            return;
        }
        self.is_incomplete |= report.errors > 0;
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
             {{\"tool\":{tool},\n\"invocations\":[{{\"executionSuccessful\":{}}}],\n\"columnKind\":\"unicodeCodePoints\",\"results\":[{}]}}]}}",
            !self.is_incomplete, self.results
        )
    }
}

fn rule(code: &str) -> Value {
    let check = code.strip_prefix("pss/").and_then(checks::check);
    let mut rule = match check {
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
    };
    if let Some(importance) = importance(code) {
        rule["properties"]["security-severity"] = importance.score().into();
        if let Some(tags) = rule.pointer_mut("/properties/tags").and_then(Value::as_array_mut)
            && check.is_none()
        {
            tags.insert(0, "security".into());
        }
    }
    rule
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

pub(super) fn fragment(report: &FileReport, source: Option<&str>, text: &mut String) {
    for (diagnostic, fingerprint) in report.diagnostics.iter().zip(fingerprints(report)) {
        if !text.is_empty() {
            text.push(',');
        }
        text.push('\n');
        let mut result = result(diagnostic);
        // Stays the same when lines are added above.
        result["partialFingerprints"] = json!({"palisade/v2": fingerprint});
        if let Some(fix) = source.and_then(|source| fix(diagnostic, source)) {
            result["fixes"] = json!([fix]);
        }
        text.push_str(&result.to_string());
    }
}

/// The edits as replaced lines of the file.
fn fix(diagnostic: &Diagnostic, source: &str) -> Option<Value> {
    let replaced: Vec<Value> = replacements(diagnostic, source)
        .into_iter()
        .map(|replacement| {
            let (end_line, end_column) = replacement.end;
            json!({
                "deletedRegion": {
                    "startLine": replacement.start_line,
                    "startColumn": 1,
                    "endLine": end_line,
                    "endColumn": end_column,
                },
                "insertedContent": {"text": replacement.text},
            })
        })
        .collect();
    if replaced.is_empty() {
        return None;
    }
    let effect = diagnostic.effect()?;
    let help = diagnostic.help.as_deref().unwrap_or_default();
    Some(json!({
        "description": {"text": format!("{}: {help}; {}", effect.name(), effect.reason())},
        "artifactChanges": [{"artifactLocation": {"uri": uri(&diagnostic.file)}, "replacements": replaced}],
    }))
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
    json!({
        "ruleId": diagnostic.code.as_str(),
        "level": diagnostic.severity.as_str(),
        "message": {"text": message},
        "locations": [location],
    })
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
