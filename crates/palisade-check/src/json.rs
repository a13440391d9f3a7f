//! Verdicts and findings as JSON, with the stable keys of the command line contract.
//!
//! `document` counts the documents of a file from 0, empty ones left out; all items of a `List` have the number of
//! their document. Keys that do not apply are null. `fix` is the list of edits that fix the finding, with paths from the
//! object's root, whether each is safe and why; or null. Only findings in charts that a value
//! fixes have `values`: the keys to set.

use std::collections::BTreeMap;

use palisade_policy::standards::{finding::Edit, fixes::FixEdit};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    diagnostic::{Diagnostic, ValuesPatch},
    judge::FileReport,
};

#[derive(Debug, Serialize)]
struct Object<'o> {
    file: &'o str,
    document: usize,
    kind: &'o str,
    namespace: Option<&'o str>,
    name: Option<&'o str>,
    allowed: bool,
    level: &'static str,
    #[serde(serialize_with = "displayed")]
    version: palisade_policy::standards::level::Version,
    message: &'o str,
}

fn displayed<T: std::fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// A finding.
#[derive(Debug, Serialize)]
pub struct Finding<'f> {
    code: &'f str,
    severity: &'static str,
    file: &'f str,
    line: Option<usize>,
    column: Option<usize>,
    path: Option<&'f str>,
    container: Option<&'f str>,
    message: &'f str,
    help: Option<&'f str>,
    fix: Option<Vec<EditJson<'f>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<ValuesJson<'f>>,
}

impl<'f> From<&'f Diagnostic> for Finding<'f> {
    fn from(diagnostic: &'f Diagnostic) -> Self {
        Self {
            code: diagnostic.code.as_str(),
            severity: diagnostic.severity.as_str(),
            file: &diagnostic.file,
            line: diagnostic.line(),
            column: diagnostic.at.as_ref().map(|label| label.column),
            path: diagnostic.path.as_deref(),
            container: diagnostic.container.as_deref(),
            message: &diagnostic.summary,
            help: diagnostic.help.as_deref(),
            fix: diagnostic.fix.as_ref().map(|edits| edits.iter().map(EditJson::from).collect()),
            values: diagnostic.values.as_ref().map(ValuesJson::from),
        }
    }
}

#[derive(Debug, Serialize)]
struct ValuesJson<'v> {
    file: &'v str,
    line: Option<usize>,
    set: BTreeMap<&'v str, &'v Value>,
    safe: bool,
    reason: &'v str,
}

impl<'v> From<&'v ValuesPatch> for ValuesJson<'v> {
    fn from(patch: &'v ValuesPatch) -> Self {
        Self {
            file: &patch.file,
            line: patch.line,
            set: patch.set.iter().map(|(path, value)| (path.as_str(), value)).collect(),
            safe: patch.effect.is_safe(),
            reason: patch.effect.reason(),
        }
    }
}

/// An edit of a fix.
#[derive(Debug, Serialize)]
pub struct EditJson<'e> {
    op: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'e Value>,
    safe: bool,
    reason: &'e str,
}

impl<'e> From<&'e FixEdit> for EditJson<'e> {
    fn from(FixEdit { edit, effect }: &'e FixEdit) -> Self {
        let (op, value) = match edit {
            Edit::Set(_, value) => ("set", Some(value)),
            Edit::Append(_, value) => ("append", Some(value)),
            Edit::Remove(_) => ("remove", None),
        };
        Self { op, path: edit.path().to_string(), value, safe: effect.is_safe(), reason: effect.reason() }
    }
}

/// Appends the verdicts and the findings of a file, separated by commas.
pub fn fragment(report: &FileReport, verdicts: &mut String, findings: &mut String) {
    for verdict in &report.verdicts {
        let object = Object {
            file: &report.file,
            document: verdict.id.document,
            kind: &verdict.kind,
            namespace: verdict.namespace.as_deref(),
            name: verdict.name.as_deref(),
            allowed: verdict.allowed,
            level: verdict.policy.level.as_str(),
            version: verdict.policy.version,
            message: &verdict.message,
        };
        push(&object, verdicts);
    }
    for diagnostic in &report.diagnostics {
        push(&Finding::from(diagnostic), findings);
    }
}

/// Nothing here can fail to be written as JSON: keys are strings, numbers are integers.
fn push(value: &impl Serialize, text: &mut String) {
    if let Ok(json) = serde_json::to_string(value) {
        if !text.is_empty() {
            text.push(',');
        }
        text.push('\n');
        text.push_str(&json);
    }
}
