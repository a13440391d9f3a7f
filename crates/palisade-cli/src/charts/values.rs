//! The keys of values.yaml that decide about a finding.
//!
//! The engine names the values that went into the bytes of a finding, into the conditions around them, and those that a template
//! looked at. From them come candidates; each is tried: the template is rendered again, and the finding must be gone, no other
//! come, and nothing but security settings change. A key is never named without that proof.

use std::collections::BTreeSet;

use palisade_helm::ValuePath;
use palisade_policy::standards::finding::Edit;
use palisade_yaml::{Limits, parse};
use serde_json::{Map, Value};

use crate::{
    diagnostic::{Diagnostic, ObjectId},
    manifest::objects,
};

/// Keys and what to set them to.
pub(super) type Settings = Vec<(ValuePath, Value)>;

/// Puts a value at a path, with the maps that it needs.
pub(super) fn put(target: &mut Value, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *target = value;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(map) = target {
        put(map.entry(first.clone()).or_insert(Value::Null), rest, value);
    }
}

/// A patch as values.
pub(super) fn patch_of(settings: &Settings) -> Value {
    let mut patch = Value::Object(Map::new());
    for (path, value) in settings {
        put(&mut patch, path, value.clone());
    }
    patch
}

/// A path as users write it with `--set`.
pub(super) fn written(path: &[String]) -> String {
    path.join(".").replace(".[", "[")
}

/// The objects of a text, as JSON.
pub(crate) fn object_values(text: &str) -> Vec<(ObjectId, Value)> {
    let parsed = parse(text, &Limits::default());
    let mut all = Vec::new();
    for document in &parsed.documents {
        for object in objects(document) {
            // What is not JSON has no findings that a value fixes.
            all.push((object.source.id().clone(), object.node.to_json().unwrap_or(Value::Null)));
        }
    }
    all
}

/// The paths at which two values differ.
pub(crate) fn differences(before: &Value, after: &Value) -> Vec<Vec<String>> {
    fn walk(before: &Value, after: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        match (before, after) {
            (Value::Object(before), Value::Object(after)) => {
                let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
                for key in keys {
                    path.push(key.clone());
                    walk(
                        before.get(key).unwrap_or(&Value::Null),
                        after.get(key).unwrap_or(&Value::Null),
                        path,
                        found,
                    );
                    path.pop();
                }
            }
            (Value::Object(map), Value::Null) | (Value::Null, Value::Object(map)) if !map.is_empty() => {
                for (key, value) in map {
                    path.push(key.clone());
                    walk(value, &Value::Null, path, found);
                    path.pop();
                }
            }
            (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
                for (index, (before, after)) in before.iter().zip(after).enumerate() {
                    path.push(format!("[{index}]"));
                    walk(before, after, path, found);
                    path.pop();
                }
            }
            _ if before == after => {}
            _ => found.push(path.clone()),
        }
    }
    let mut found = Vec::new();
    walk(before, after, &mut Vec::new(), &mut found);
    found
}

/// The segments of a field path.
pub(crate) fn segments(path: &palisade_base::field_path::FieldPath) -> Vec<String> {
    use palisade_base::field_path::PathStep;
    path.steps()
        .iter()
        .map(|step| match step {
            PathStep::Field(name) => name.to_string(),
            PathStep::Key(key) => key.clone(),
            PathStep::Index(index) => format!("[{index}]"),
        })
        .collect()
}

fn at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, segment| {
        match segment.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(index) => value.get(index.parse::<usize>().ok()?),
            None => value.get(segment),
        }
    })
}

/// What may decide about a finding.
pub(super) struct Clues<'c> {
    /// The values that the place is made of.
    pub(super) made_of: &'c [ValuePath],
    /// Those of the conditions around it.
    pub(super) conditions: &'c [ValuePath],
    /// All that the template looked at.
    pub(super) read: &'c [ValuePath],
    /// What the place holds, if it is a key: its name, and the values that are written below it.
    pub(super) inside: Option<(&'c str, &'c [ValuePath])>,
    /// The values of the chart, as they are.
    pub(super) values: &'c Value,
    /// The object of the finding.
    pub(super) object: &'c Value,
}

/// How many candidates are tried for a finding.
const MOST: usize = 14;

/// Patches that may remove a finding, the likeliest first.
pub(super) fn candidates(finding: &Diagnostic, siblings: &[Diagnostic], clues: &Clues<'_>) -> Vec<Settings> {
    let Some(fix) = &finding.fix else { return Vec::new() };
    let mut found: Vec<Settings> = Vec::new();
    let mut add = |settings: Settings| {
        let usable =
            settings.iter().all(|(path, _)| !path.is_empty() && !path.iter().any(|key| key.starts_with('[')));
        if usable && !settings.is_empty() && !found.contains(&settings) {
            found.push(settings);
        }
    };
    let removed: BTreeSet<Vec<String>> = siblings
        .iter()
        .filter(|other| other.object == finding.object)
        .flat_map(|other| other.fix.iter().flatten())
        .filter(|step| matches!(step.edit, Edit::Remove(_)))
        .map(|step| segments(step.edit.path()))
        .collect();
    let mut edits: Vec<(Vec<String>, Value)> = fix
        .iter()
        .map(|step| {
            let path = segments(step.edit.path());
            // Items of a list go together: values hold whole lists.
            if matches!(step.edit, Edit::Remove(_))
                && let Some((last, list)) = path.split_last()
                && last.starts_with('[')
            {
                let items =
                    at(clues.object, list).and_then(Value::as_array).into_iter().flatten().enumerate();
                let kept =
                    items.filter(|(index, _)| !removed.contains(&[list, &[format!("[{index}]")]].concat()));
                let kept = kept.map(|(_, item)| item.clone()).collect();
                return (list.to_vec(), Value::Array(kept));
            }
            let value = match &step.edit {
                Edit::Set(_, value) => value.clone(),
                Edit::Append(_, value) => {
                    let mut items =
                        at(clues.object, &path).and_then(Value::as_array).cloned().unwrap_or_default();
                    items.push(value.clone());
                    Value::Array(items)
                }
                Edit::Remove(_) => Value::Null,
            };
            (path, value)
        })
        .collect();
    edits.dedup();
    // All edits of the finding below one value: `securityContext` for `…securityContext.capabilities.drop`.
    let below = |base: &ValuePath| -> Option<(usize, Settings)> {
        let name = base.last()?.to_lowercase();
        let key = clues.inside.filter(|(_, below)| {
            below
                .iter()
                .any(|path| path == base || path.split_last().is_some_and(|(_, parent)| parent == base))
        });
        let key = key.map(|(key, _)| key.to_lowercase());
        let mut settings = Settings::new();
        let mut best = 0;
        for (path, value) in &edits {
            let place = (0..path.len()).rev().find(|&index| {
                path.get(index).is_some_and(|field| {
                    let field = field.to_lowercase();
                    !field.starts_with('[')
                        && (name == field
                            || key.as_ref() == Some(&field)
                            || (field.len() > 6 && name.ends_with(&field)))
                })
            })?;
            let tail = path.get(place + 1..).unwrap_or_default();
            if tail.iter().any(|segment| segment.starts_with('[')) {
                return None;
            }
            best = best.max(place);
            settings.push((base.iter().chain(tail).cloned().collect(), value.clone()));
        }
        Some((best, settings))
    };
    // The value itself is written at the place.
    for path in clues.made_of {
        if let [(_, value)] = edits.as_slice() {
            let known = at(clues.values, path);
            let fits = value.is_null()
                || known.is_none_or(|known| known.is_null() || known.is_object() == value.is_object());
            if fits && known.is_none_or(|known| !known.is_object()) {
                add(vec![(path.clone(), value.clone())]);
            }
        }
    }
    let mut bases: Vec<(usize, Settings, ValuePath)> = Vec::new();
    let mut known: BTreeSet<&ValuePath> = BTreeSet::new();
    let below_key = clues.inside.map_or(&[][..], |(_, paths)| paths);
    for path in below_key.iter().chain(clues.made_of).chain(clues.conditions).chain(clues.read) {
        for end in (1..=path.len()).rev() {
            let base: ValuePath = path.iter().take(end).cloned().collect();
            if let Some((depth, settings)) = below(&base)
                && (known.insert(path) || end < path.len())
            {
                bases.push((depth, settings, base));
            }
        }
    }
    bases.sort_by_key(|(depth, ..)| std::cmp::Reverse(*depth));
    bases.dedup_by(|a, b| a.1 == b.1);
    for (_, settings, base) in &bases {
        add(settings.clone());
        // Many charts write a context only if it is enabled.
        let switch: ValuePath = base.iter().cloned().chain(["enabled".to_owned()]).collect();
        if at(clues.values, &switch) == Some(&Value::Bool(false)) {
            add(vec![(switch.clone(), Value::Bool(true))]);
            add([vec![(switch, Value::Bool(true))], settings.clone()].concat());
        }
    }
    // Booleans around it.
    for path in clues.conditions {
        if at(clues.values, path) == Some(&Value::Bool(true)) {
            add(vec![(path.clone(), Value::Bool(false))]);
        }
    }
    found.truncate(MOST);
    found
}

/// Whether a field may change when a finding is fixed: the edited ones, security settings, and annotations with checksums.
pub(crate) fn is_expected(change: &[String], finding: &Diagnostic) -> bool {
    let is_security = change.iter().any(|segment| segment == "securityContext");
    let is_checksum = change.iter().any(|segment| segment == "annotations");
    let edits = finding.fix.iter().flatten();
    let mut same_field = edits.map(|step| segments(step.edit.path())).filter(|path| {
        path.last().is_some_and(|last| change.contains(last))
            && !path.last().is_some_and(|last| last.starts_with('['))
    });
    is_security || is_checksum || same_field.next().is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_name_the_deepest_fields() {
        let before = json!({"a": {"b": 1, "c": [1, {"d": 2}]}, "e": "x"});
        let after = json!({"a": {"b": 1, "c": [1, {"d": 3}]}, "e": "x", "f": {"g": true}});
        let found: Vec<String> = differences(&before, &after).iter().map(|path| written(path)).collect();
        assert_eq!(found, ["a.c[1].d", "f.g"]);
    }

    #[test]
    fn a_patch_has_the_maps_that_it_needs() {
        let settings = vec![
            (vec!["a".to_owned(), "b".to_owned()], json!(true)),
            (vec!["a".to_owned(), "c".to_owned()], json!(1)),
        ];
        assert_eq!(patch_of(&settings), json!({"a": {"b": true, "c": 1}}));
    }
}
