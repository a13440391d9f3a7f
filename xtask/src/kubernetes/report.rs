//! What a person looks at after the tables are made: fields that came and went, and feature gates that the code names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use palisade_yaml::{Limits, parse};
use serde_json::Value;
use walkdir::WalkDir;

use super::source::Release;
use crate::Failure;

const GATES: &str = "test/compatibility_lifecycle/reference/versioned_feature_list.yaml";

/// The report on the newest of the releases: the table of types before and after, and the gates.
pub(crate) fn report(
    root: &Path,
    before: &str,
    after: &str,
    releases: &[Release],
) -> Result<String, Failure> {
    let mut text = String::new();
    let (old, new) = (fields(before), fields(after));
    for field in new.iter().filter(|field| !old.contains(*field)) {
        let _ = writeln!(text, "new or changed  {field}");
    }
    for field in old.iter().filter(|field| !new.contains(*field)) {
        let _ = writeln!(text, "as it was       {field}");
    }
    let [.., before, after] = releases else { return Ok(text) };
    let (before, after) = (gates(before)?, gates(after)?);
    let changed: BTreeSet<&String> =
        before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name)).collect();
    for (name, file) in named_in(root, &changed)? {
        let state =
            |gates: &BTreeMap<String, String>| gates.get(name).map_or("none".to_owned(), Clone::clone);
        let _ = writeln!(text, "gate {name}: {} -> {}; see {file}", state(&before), state(&after));
    }
    Ok(text)
}

/// `core.PodSpec: name type flags` for every line of the table.
fn fields(table: &str) -> BTreeSet<String> {
    let mut current = "";
    let mut fields = BTreeSet::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('@') {
            Some(name) => current = name,
            None => _ = fields.insert(format!("{current}: {line}")),
        }
    }
    fields
}

/// The state of each gate in a release: `Beta, on`, `GA, on, locked`.
fn gates(release: &Release) -> Result<BTreeMap<String, String>, Failure> {
    let text = release.text(GATES)?;
    let failed = |error: &dyn std::fmt::Display| Failure(format!("{GATES}: {error}"));
    let parsed = parse(&text, &Limits::default());
    let document = parsed.documents.first().ok_or_else(|| failed(&"no document"))?;
    let features = document.root().to_json().map_err(|error| failed(&error))?;
    let mut gates = BTreeMap::new();
    for gate in features.as_array().into_iter().flatten() {
        let Some(last) = gate["versionedSpecs"].as_array().and_then(|specs| specs.last()) else { continue };
        let stage = last["preRelease"].as_str().filter(|stage| !stage.is_empty()).unwrap_or("GA");
        let on = if last["default"] == Value::Bool(true) { "on" } else { "off" };
        let locked = if last["lockToDefault"] == Value::Bool(true) { ", locked" } else { "" };
        gates.insert(gate["name"].as_str().unwrap_or_default().to_owned(), format!("{stage}, {on}{locked}"));
    }
    Ok(gates)
}

/// The gates that some source file under `root` names, with the first such file.
fn named_in<'a>(root: &Path, gates: &BTreeSet<&'a String>) -> Result<BTreeMap<&'a str, String>, Failure> {
    let mut named = BTreeMap::new();
    for entry in WalkDir::new(root.join("crates")).sort_by_file_name() {
        let entry = entry.map_err(|error| Failure(error.to_string()))?;
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text =
            fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        for gate in gates.iter().filter(|gate| text.contains(gate.as_str())) {
            let file = path.strip_prefix(root).unwrap_or(path).display().to_string();
            named.entry(gate.as_str()).or_insert(file);
        }
    }
    Ok(named)
}
