#![no_main]
//! Any YAML with a pod that violates a level: the fixed text parses to the same document apart from the edits, and
//! fixing it again changes nothing.

use libfuzzer_sys::fuzz_target;
use palisade_model::{compat::Compat, pod::Pod, prepare::{Prepared, Subject}};
use palisade_base::field_path::{FieldPath, PathStep as FieldStep};
use palisade_policy::standards::{
    evaluator::Evaluator,
    finding::{Edit, Remedy},
    level::{Level, LevelVersion, Version},
};
use palisade_yaml::{Editor, Limits, Step, WhenEmpty, parse};
use serde_json::Value as Json;

fn steps(path: &FieldPath) -> Vec<Step<'_>> {
    path.steps()
        .iter()
        .map(|step| match step {
            FieldStep::Field(name) => Step::Key(name),
            FieldStep::Key(key) => Step::Key(key),
            FieldStep::Index(index) => Step::Index(*index),
        })
        .collect()
}

fn edits_for(pod: &Pod<'_>) -> Vec<Edit> {
    let pod = Prepared::new(pod.clone(), Subject::Pod, &Compat::kubernetes(37));
    let policy = LevelVersion::new(Level::Restricted, Version::Latest);
    let outcome = Evaluator::default().evaluate(policy, &pod);
    let findings = outcome.violations.into_iter().flat_map(|violation| violation.findings);
    findings
        .filter_map(|finding| match finding.remedy {
            Remedy::Edits(edits) => Some(edits),
            Remedy::Manual(_) => None,
        })
        .flatten()
        .collect()
}

fuzz_target!(|text: &str| {
    let parsed = parse(text, &Limits::default());
    if !parsed.errors.is_empty() || parsed.documents.len() != 1 || !parsed.documents[0].duplicate_keys().is_empty() {
        return;
    }
    let document = &parsed.documents[0];
    let (Ok(pod), Ok(before)) = (document.deserialize::<Pod<'_>>(), document.root().to_json()) else { return };
    let edits = edits_for(&pod);
    if edits.is_empty() {
        return;
    }
    let mut editor = Editor::new(&parsed);
    let mut touched = Vec::new();
    for edit in &edits {
        let path = steps(edit.path());
        let queued = match edit {
            Edit::Set(_, value) => editor.set(0, &path, value.clone()),
            Edit::Append(_, value) => editor.append(0, &path, value.clone()),
            Edit::Remove(_) => editor.remove(0, &path, WhenEmpty::Prune),
        };
        if queued.is_err() {
            return;
        }
        touched.push(edit.path().clone());
    }
    let Ok(fixed) = editor.finish() else { return };
    let again = parse(&fixed, &Limits::default());
    assert!(again.errors.is_empty() && again.documents.len() == 1, "the fixed text does not parse:\n{fixed}");
    let after = again.documents[0].root().to_json().expect("the fixed text is a document");
    compare(&before, &after, &mut Vec::new(), &touched, &fixed);
});

/// Whatever no edit touches must be the same before and after.
fn compare(before: &Json, after: &Json, path: &mut Vec<String>, touched: &[FieldPath], fixed: &str) {
    if before == after {
        return;
    }
    let here = path.join("\u{1}");
    let related = touched.iter().any(|edit| {
        let edit: Vec<String> = edit.steps().iter().map(show).collect();
        let edit = edit.join("\u{1}");
        edit.starts_with(&here) || here.starts_with(&edit)
    });
    assert!(related, "{path:?} changed although no edit touches it:\n{fixed}");
    if let (Json::Object(before), Json::Object(after)) = (before, after) {
        for key in before.keys().chain(after.keys()) {
            path.push(key.clone());
            compare(before.get(key).unwrap_or(&Json::Null), after.get(key).unwrap_or(&Json::Null), path, touched, fixed);
            path.pop();
        }
    }
}

fn show(step: &FieldStep) -> String {
    match step {
        FieldStep::Field(name) => name.to_string(),
        FieldStep::Key(key) => key.clone(),
        FieldStep::Index(index) => index.to_string(),
    }
}
