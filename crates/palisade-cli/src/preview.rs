//! What an upgrade changes for an object: two API servers' answers and two nodes' effective contexts, compared.
//!
//! Pure. An answer is made by [`ServerSide`](crate::server_side::ServerSide) as the release would make it, and the recordings of real API servers are compared with
//! it in the tests. A node is what `palisade explain` shows of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use palisade_base::field_path::FieldPath;
use palisade_model::{
    compat::Compat,
    effective::effective_contexts,
    node::{Source as From, masked_paths, readonly_paths},
    prepare::Prepared,
};
use serde_json::{Value, json};

use crate::server_side::{Reason, Refusal, ServerAnswer};

/// What differs between two answers.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerChange {
    /// The new API server rejects it for a reason that the old one did not have.
    Refused(Reason),
    /// A reason of the old API server is gone.
    NoLongerRefused(Reason),
    /// The new API server warns.
    Warned(String),
    /// A warning of the old one is gone.
    NoLongerWarned(String),
    /// A part of the stored object differs.
    Stored(StoredChange),
}

/// A field or annotation of the stored pod.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredChange {
    /// Where it is, from the pod on.
    pub path: Vec<Part>,
    /// What the old API server stores.
    pub before: Option<Value>,
    /// What the new one does.
    pub after: Option<Value>,
}

/// A step of the path of a stored field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A key of a mapping.
    Key(String),
    /// A position in a list.
    Index(usize),
}

impl StoredChange {
    /// The path as Kubernetes writes it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut in_annotations = false;
        for part in &self.path {
            match part {
                Part::Index(index) => {
                    let _ = write!(text, "[{index}]");
                }
                Part::Key(key) if in_annotations => {
                    let _ = write!(text, "[{key}]");
                }
                Part::Key(key) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(key);
                }
            }
            in_annotations = *part == Part::Key("annotations".to_owned());
        }
        text
    }

    /// The path below that of a pod template.
    #[must_use]
    pub fn path_in(&self, template: &[&'static str]) -> FieldPath {
        self.path.iter().fold(FieldPath::of(template), |path, part| match part {
            Part::Index(index) => path.index(*index),
            Part::Key(key) => match FIELDS.iter().find(|known| *known == key) {
                Some(field) => path.field(field),
                None => path.key(key.clone()),
            },
        })
    }
}

/// The fields that an annotation may stand in for, and what they are in.
const FIELDS: &[&str] =
    &["seccompProfile", "appArmorProfile", "containers", "initContainers", "ephemeralContainers"];

/// What differs between the answers of two API servers to the same object.
#[must_use]
pub fn answer_changes(before: &ServerAnswer, after: &ServerAnswer) -> Vec<AnswerChange> {
    let (old, new) = (reasons(before), reasons(after));
    let mut changes = Vec::new();
    changes.extend(
        new.iter()
            .filter(|(key, _)| !old.contains_key(*key))
            .map(|(_, reason)| AnswerChange::Refused(reason.clone())),
    );
    changes.extend(
        old.iter()
            .filter(|(key, _)| !new.contains_key(*key))
            .map(|(_, reason)| AnswerChange::NoLongerRefused(reason.clone())),
    );
    let warnings = |answer: &ServerAnswer| answer.warnings.iter().cloned().collect::<BTreeSet<String>>();
    let (old, new) = (warnings(before), warnings(after));
    changes.extend(new.difference(&old).cloned().map(AnswerChange::Warned));
    changes.extend(old.difference(&new).cloned().map(AnswerChange::NoLongerWarned));
    if let (Some(old), Some(new)) = (&before.stored, &after.stored) {
        let mut stored = Vec::new();
        compare(Some(&security_part(old)), Some(&security_part(new)), &mut Vec::new(), &mut stored);
        changes.extend(stored.into_iter().map(AnswerChange::Stored));
    }
    changes
}

/// The reasons of an answer. The same field and reason are the same, however a release words them; without a field, the words count.
fn reasons(answer: &ServerAnswer) -> BTreeMap<(String, String, String), Reason> {
    let Some(Refusal { reason, message, causes, .. }) = &answer.refusal else { return BTreeMap::new() };
    let whole = || Reason { field: String::new(), reason: reason.clone(), message: message.clone() };
    let all = if causes.is_empty() { vec![whole()] } else { causes.clone() };
    let key = |reason: &Reason| {
        let words = if reason.field.is_empty() { reason.message.clone() } else { String::new() };
        (reason.field.clone(), reason.reason.clone(), words)
    };
    all.into_iter().map(|reason| (key(&reason), reason)).collect()
}

/// What the recordings keep of a pod: annotations, namespaces of the host, security contexts.
#[must_use]
pub fn security_part(pod: &Value) -> Value {
    let at = |pointer: &str| pod.pointer(pointer).cloned();
    let mut spec = json!({"securityContext": at("/spec/securityContext").unwrap_or_else(|| json!({}))});
    for field in ["hostNetwork", "hostPID", "hostIPC", "hostUsers"] {
        if let Some(value) = at(&format!("/spec/{field}")).filter(|value| !value.is_null()) {
            spec[field] = value;
        }
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let Some(containers) = pod.pointer(&format!("/spec/{list}")).and_then(Value::as_array) else {
            continue;
        };
        let kept = containers.iter().map(|container| {
            let context = container.get("securityContext").cloned().unwrap_or(Value::Null);
            json!({"name": container.get("name"), "securityContext": context})
        });
        spec[list] = kept.collect();
    }
    let annotations = at("/metadata/annotations").unwrap_or_else(|| json!({}));
    json!({"metadata": {"annotations": annotations}, "spec": spec})
}

fn compare(
    before: Option<&Value>,
    after: Option<&Value>,
    path: &mut Vec<Part>,
    found: &mut Vec<StoredChange>,
) {
    match (before, after) {
        _ if before == after => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
                path.push(Part::Key(key.clone()));
                compare(old.get(key), new.get(key), path, found);
                path.pop();
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                path.push(Part::Index(index));
                compare(old.get(index), new.get(index), path, found);
                path.pop();
            }
        }
        _ => found.push(StoredChange { path: path.clone(), before: before.cloned(), after: after.cloned() }),
    }
}

/// A setting of a container that is not what it was.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerChange {
    /// The container.
    pub container: String,
    /// The setting, as `palisade explain` names it.
    pub field: &'static str,
    /// What the old node applies.
    pub before: Setting,
    /// What the new one does.
    pub after: Setting,
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The value in words.
    pub shown: String,
    /// The value.
    pub value: Value,
    /// The field or annotation that sets it.
    pub path: Option<FieldPath>,
    /// Why it is so.
    pub from: String,
}

/// What the containers of a pod get on a node.
#[must_use]
pub fn container_changes(
    before: &Prepared<'_>,
    old: &Compat,
    after: &Prepared<'_>,
    new: &Compat,
) -> Vec<ContainerChange> {
    let mut later = settings(after, new);
    let mut changes = Vec::new();
    for (key, before) in settings(before, old) {
        let Some(after) = later.remove(&key) else { continue };
        if before.value != after.value {
            let (_, container, field) = key;
            changes.push(ContainerChange { container, field, before, after });
        }
    }
    changes
}

/// The settings of each container, by list, name and field.
fn settings(pod: &Prepared<'_>, compat: &Compat) -> BTreeMap<(&'static str, String, &'static str), Setting> {
    let mut found = BTreeMap::new();
    for effective in effective_contexts(pod) {
        let key = |field: &'static str| (effective.kind.field(), effective.container.to_owned(), field);
        for row in effective.rows() {
            let setting = Setting {
                shown: row.value,
                value: row.json,
                path: row.source.path().cloned(),
                from: row.source.to_string(),
            };
            found.insert(key(row.field), setting);
        }
        let is_unmasked = effective.proc_mount.value == "Unmasked" || effective.privileged.value;
        for (field, paths) in
            [("maskedPaths", masked_paths(compat.kubelet)), ("readonlyPaths", readonly_paths(compat.kubelet))]
        {
            let paths = if is_unmasked { Vec::new() } else { paths };
            let from = From::Default("the kubelet's list").to_string();
            let shown = paths.join(" ");
            found.insert(key(field), Setting { shown, value: json!(paths), path: None, from });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stored: Option<Value>, warnings: &[&str], causes: &[(&str, &str)]) -> ServerAnswer {
        let reason = |(field, message): &(&str, &str)| Reason {
            field: (*field).to_owned(),
            reason: "FieldValueInvalid".to_owned(),
            message: (*message).to_owned(),
        };
        let refusal = (!causes.is_empty()).then(|| Refusal {
            code: 422,
            reason: "Invalid".to_owned(),
            message: "m".to_owned(),
            causes: causes.iter().map(reason).collect(),
        });
        ServerAnswer { refusal, warnings: warnings.iter().map(|&text| text.to_owned()).collect(), stored }
    }

    #[test]
    fn answers_differ_by_reason_warning_and_stored_field() {
        let pod = |users: Value| json!({"metadata": {"annotations": {"a/b": "x"}}, "spec": {"hostUsers": users, "containers": [{"name": "c"}], "nodeName": "ignored"}});
        for (case, before, after, expected) in [
            (
                "equal",
                answer(Some(pod(json!(true))), &["w"], &[]),
                answer(Some(pod(json!(true))), &["w"], &[]),
                vec![],
            ),
            (
                "stored",
                answer(Some(pod(Value::Null)), &[], &[]),
                answer(Some(pod(json!(false))), &[], &[]),
                vec!["spec.hostUsers"],
            ),
            ("other words", answer(None, &[], &[("f", "one")]), answer(None, &[], &[("f", "two")]), vec![]),
            (
                "another field",
                answer(None, &[], &[("f", "m")]),
                answer(None, &[], &[("g", "m")]),
                vec!["refused g", "not refused f"],
            ),
            (
                "refused",
                answer(Some(pod(json!(true))), &[], &[]),
                answer(None, &["w"], &[("f", "m")]),
                vec!["refused f", "warned w"],
            ),
            (
                "admitted",
                answer(None, &["w"], &[("f", "m")]),
                answer(Some(pod(json!(true))), &[], &[]),
                vec!["not refused f", "not warned w"],
            ),
        ] {
            let shown: Vec<String> = answer_changes(&before, &after)
                .into_iter()
                .map(|change| match change {
                    AnswerChange::Refused(reason) => format!("refused {}", reason.field),
                    AnswerChange::NoLongerRefused(reason) => format!("not refused {}", reason.field),
                    AnswerChange::Warned(text) => format!("warned {text}"),
                    AnswerChange::NoLongerWarned(text) => format!("not warned {text}"),
                    AnswerChange::Stored(change) => change.text(),
                })
                .collect();
            assert_eq!(shown, expected, "{case}");
        }
    }
}
