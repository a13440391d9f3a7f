//! Objects to start with, from dumps such as `kubectl get -o yaml` writes.
//!
//! An object that a server has stored before (it has a uid, a creation time, a resource version or a status) is restored
//! as it was: uid, owner references, times, generation, status, finalizers. It is read by the decoder of its kind and
//! gets the kind's defaults, as from a backup of etcd; it is not admitted anew. Anything else is a manifest, and created.
//! Resource versions are given anew, all of them above those of the dump.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_apimachinery::{Decoded, FieldValidation, Status};
use palisade_yaml::Limits;
use serde_json::Value;
use thiserror::Error;

use super::bootstrap;
use crate::api::Api;
use crate::http::request_info::invalid_path_segment;
use crate::registry::{Entry, Served};
use crate::storage::{CommitError, Expect};
use crate::verbs::write;
use crate::{crd, meta};

/// Resource versions above this are made up; revisions must be able to go on above those of a dump.
const HIGHEST_VERSION: u64 = 1 << 62;

/// What became of the objects of a dump.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotReport {
    /// The file.
    pub path: PathBuf,
    /// Objects that are stored now.
    pub loaded: usize,
    /// Objects that were there already, from an earlier start with the same data directory.
    pub kept: usize,
    /// Objects of kinds that are not served, by `apiVersion` and kind.
    pub unserved: BTreeMap<(String, String), usize>,
    /// Objects that cannot be read, each with the reason.
    pub rejected: Vec<String>,
}

impl SnapshotReport {
    /// Whether every object of the file is there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.unserved.is_empty() && self.rejected.is_empty()
    }

    fn note(&mut self, outcome: Result<Restored, RestoreError>) {
        match outcome {
            Ok(Restored::Stored) => self.loaded += 1,
            Ok(Restored::Kept) => self.kept += 1,
            Err(error) => {
                let why = error.to_string();
                tracing::error!(path = %self.path.display(), why, "an object of the snapshot is not loaded");
                self.rejected.push(why);
            }
        }
    }
}

/// Why an object of a dump is not loaded.
#[derive(Debug, Error)]
enum RestoreError {
    /// A dump of nothing.
    #[error("it has no Kubernetes objects")]
    Empty,
    /// A document without `apiVersion` and `kind`: its beginning.
    #[error("not a Kubernetes object: {0}")]
    NotAnObject(String),
    /// The API server would not take it.
    #[error("{object}: {}", .status.message)]
    Rejected { object: String, status: Box<Status> },
    /// No name to store it under.
    #[error("{object}: metadata.name is missing")]
    NoName { object: String },
    /// A name that no path can have.
    #[error("{object}: {name:?} {problem}")]
    Name { object: String, name: String, problem: String },
    /// It cannot be stored.
    #[error("{object}: {source}")]
    Commit { object: String, source: CommitError },
}

/// What became of one object.
enum Restored {
    Stored,
    /// It was there.
    Kept,
}

/// Why a dump could not be loaded.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// Its content.
    #[error("{path}: {why}")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: DumpError,
    },
}

/// What is wrong with the text of a dump.
#[derive(Debug, Error)]
pub enum DumpError {
    /// Neither UTF-8 nor UTF-16.
    #[error(transparent)]
    Encoding(#[from] palisade_yaml::DecodeError),
    /// Not YAML.
    #[error(transparent)]
    Syntax(#[from] palisade_yaml::Error),
    /// A value that JSON does not have.
    #[error(transparent)]
    Value(#[from] palisade_yaml::DeserializeError),
    /// A part was not loaded to its end.
    #[error(transparent)]
    Interrupted(#[from] tokio::task::JoinError),
}

/// Loads the objects of a file: definitions and namespaces first, then everything else.
pub(super) async fn load(api: &Arc<Api>, path: &Path) -> Result<SnapshotReport, SnapshotError> {
    let bytes =
        std::fs::read(path).map_err(|source| SnapshotError::Read { path: path.to_owned(), source })?;
    let text = palisade_yaml::decode(&bytes)
        .map_err(|error| SnapshotError::Content { path: path.to_owned(), why: error.into() })?;
    load_text(api, &text, path).await
}

/// Loads the objects of a text that came from a file, or that the server brings along.
pub(super) async fn load_text(
    api: &Arc<Api>,
    text: &str,
    path: &Path,
) -> Result<SnapshotReport, SnapshotError> {
    let content = |why: DumpError| SnapshotError::Content { path: path.to_owned(), why };
    let mut objects = Vec::new();
    for document in documents(text).map_err(content)? {
        flatten(document, &mut objects);
    }
    let mut report = SnapshotReport { path: path.to_owned(), ..SnapshotReport::default() };
    if objects.is_empty() {
        report.note(Err(RestoreError::Empty));
    }
    let (objects, others): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(is_object);
    for other in others {
        let shown: String = other.to_string().chars().take(MOST_SHOWN).collect();
        report.note(Err(RestoreError::NotAnObject(shown)));
    }
    let versions =
        objects.iter().filter_map(|object| meta::meta_text(object, "resourceVersion").parse().ok());
    if let Some(newest) = versions.filter(|version| *version <= HIGHEST_VERSION).max() {
        api.store.advance(newest);
    }
    let (mut first, rest): (Vec<Value>, Vec<Value>) =
        objects.into_iter().partition(|object| rank(object) < 2);
    first.sort_by_key(rank);
    // Definitions and namespaces are few, and what follows needs them.
    for object in first {
        if let Some(entry) = place(&api.registry.served(), &object, &mut report) {
            report.note(restore(api, &entry, object).await);
        }
    }
    let served = api.registry.served();
    let mut waiting = Vec::with_capacity(rest.len());
    for object in rest {
        if let Some(entry) = place(&served, &object, &mut report) {
            waiting.push((entry, object));
        }
    }
    // Commits that come together share a visit to the disk, and a task for each part uses every core.
    let mut parts = Vec::new();
    while !waiting.is_empty() {
        let part = waiting.split_off(waiting.len().saturating_sub(PART));
        let api = api.clone();
        parts.push(tokio::spawn(async move {
            let restored = part.into_iter().map(|(entry, object)| {
                let api = &api;
                async move { restore(api, &entry, object).await }
            });
            futures::future::join_all(restored).await
        }));
    }
    for part in parts {
        for outcome in part.await.map_err(|error| content(error.into()))? {
            report.note(outcome);
        }
    }
    for ((api_version, kind), count) in &report.unserved {
        tracing::warn!(path = %path.display(), api_version, kind, count, "objects of a kind that is not served");
    }
    Ok(report)
}

/// Stores an object of a dump, unless there is one of its name.
async fn restore(api: &Arc<Api>, entry: &Entry, object: Value) -> Result<Restored, RestoreError> {
    let kind = &entry.kind;
    let described = {
        let (namespace, name) = (meta::meta_text(&object, "namespace"), meta::meta_text(&object, "name"));
        format!("{} {}", kind.kind, meta::key(!namespace.is_empty(), namespace, name))
    };
    let rejected = |status| RestoreError::Rejected { object: described.clone(), status };
    let was_stored = ["uid", "creationTimestamp", "resourceVersion"]
        .iter()
        .any(|field| !meta::meta_text(&object, field).is_empty())
        || object.get("status").and_then(Value::as_object).is_some_and(|status| !status.is_empty());
    let decoded = kind.decode_value(object, Vec::new(), FieldValidation::Ignore);
    let Decoded { mut object, .. } = decoded.map_err(rejected)?;
    let name = meta::meta_text(&object, "name").to_owned();
    let namespace = match (kind.namespaced, meta::meta_text(&object, "namespace")) {
        (false, _) => String::new(),
        (true, "") => "default".to_owned(),
        (true, namespace) => namespace.to_owned(),
    };
    for part in [Some(&name), kind.namespaced.then_some(&namespace)].into_iter().flatten() {
        if part.is_empty() {
            return Err(RestoreError::NoName { object: described });
        }
        if let Some(problem) = invalid_path_segment(part) {
            return Err(RestoreError::Name { object: described, name: part.clone(), problem });
        }
    }
    let key = entry.key(&namespace, &name);
    if entry.bucket.get(&key).is_some() {
        return Ok(Restored::Kept);
    }
    if !was_stored {
        return bootstrap::create(api, entry, &namespace, object)
            .await
            .map(|()| Restored::Stored)
            .map_err(rejected);
    }
    kind.default(&mut object).map_err(rejected)?;
    meta::edit_metadata(&mut object, |metadata| {
        for (field, made) in [("uid", meta::new_uid as fn() -> String), ("creationTimestamp", meta::now)] {
            if metadata.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
                metadata.insert(field.to_owned(), made().into());
            }
        }
        metadata.remove("selfLink");
        if kind.namespaced {
            metadata.insert("namespace".to_owned(), namespace.into());
        } else {
            metadata.remove("namespace");
        }
    });
    match write::commit(api, entry, &key, Expect::Absent, object, false).await {
        Ok(_) => {}
        Err(CommitError::Exists) => return Ok(Restored::Kept),
        Err(source) => return Err(RestoreError::Commit { object: described, source }),
    }
    crd::after_bootstrap(api, entry, &key).await;
    Ok(Restored::Stored)
}

/// How much is shown of what is no object.
const MOST_SHOWN: usize = 60;

/// Whether a value declares a kind.
fn is_object(value: &Value) -> bool {
    ["apiVersion", "kind"].iter().any(|key| value.get(key).and_then(Value::as_str).is_some())
}

/// Objects stored by one task.
const PART: usize = 1000;

/// Definitions come first, then namespaces, then everything else.
fn rank(object: &Value) -> u8 {
    match object.get("kind").and_then(Value::as_str) {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        _ => 2,
    }
}

/// Dumps of whole clusters are larger than any manifest.
const LIMITS: Limits = Limits {
    max_bytes: usize::MAX,
    max_nodes: usize::MAX,
    max_expanded_nodes: 1 << 32,
    max_depth: 128,
    max_errors: 100,
};

/// The documents of a text: one of JSON, or any number of YAML.
fn documents(text: &str) -> Result<Vec<Value>, DumpError> {
    // JSON is read many times faster as what it is.
    if text.trim_start().starts_with('{')
        && let Ok(document) = serde_json::from_str(text)
    {
        return Ok(vec![document]);
    }
    if let Some(items) = list_items(text)
        && let Some(documents) = read_items(&items)
    {
        return Ok(documents);
    }
    read_yaml(text)
}

fn read_yaml(text: &str) -> Result<Vec<Value>, DumpError> {
    let parsed = palisade_yaml::parse(text, &LIMITS);
    if let Some(error) = parsed.errors.into_iter().next() {
        return Err(error.into());
    }
    parsed.documents.iter().map(|document| Ok(document.root().to_json()?)).collect()
}

/// The items of a list as kubectl prints it, each as a text of its own: a list of very many need not be in memory as one
/// document, and its items can be read on every core.
fn list_items(text: &str) -> Option<Vec<String>> {
    let rest = text.strip_prefix("apiVersion: v1\nitems:\n")?;
    let end = rest.rfind("\nkind: List\n")?;
    let mut items: Vec<String> = Vec::new();
    for line in rest.get(..end)?.lines() {
        if let Some(first) = line.strip_prefix("- ") {
            items.push(format!("  {first}\n"));
        } else if line.is_empty() || line.starts_with(' ') {
            let item = items.last_mut()?;
            item.push_str(line);
            item.push('\n');
        } else {
            return None;
        }
    }
    Some(items)
}

/// Reads items on every core; `None` if one of them is not by itself what it is in its list.
fn read_items(items: &[String]) -> Option<Vec<Value>> {
    let read = |part: &[String]| -> Option<Vec<Value>> {
        part.iter()
            .map(|item| match read_yaml(item).ok()?.as_mut_slice() {
                [document] if document.is_object() => Some(document.take()),
                _ => None,
            })
            .collect()
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let parts: Vec<_> = items
            .chunks(items.len().div_ceil(cores).max(1))
            .map(|part| scope.spawn(move || read(part)))
            .collect();
        let mut all = Vec::with_capacity(items.len());
        for part in parts {
            all.append(&mut part.join().ok()??);
        }
        Some(all)
    })
}

/// Where an object belongs; a kind that is not served is noted.
fn place(served: &Served, object: &Value, report: &mut SnapshotReport) -> Option<Arc<Entry>> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let entry = served.by_kind(api_version, kind).filter(|entry| entry.has_verb("list"));
    if entry.is_none() {
        *report.unserved.entry((api_version.to_owned(), kind.to_owned())).or_default() += 1;
    }
    entry.cloned()
}

/// The objects of a document. The items of a list that the API itself returned name no kind: it is the list's.
fn flatten(document: Value, objects: &mut Vec<Value>) {
    match document {
        Value::Object(mut list)
            if list.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"))
                && list.contains_key("items") =>
        {
            let text = |key: &str| list.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (api_version, kind) = (text("apiVersion"), text("kind"));
            let kind = kind.strip_suffix("List").unwrap_or_default();
            if let Some(Value::Array(items)) = list.remove("items") {
                for mut item in items {
                    if let Value::Object(item) = &mut item
                        && !kind.is_empty()
                        && !item.contains_key("kind")
                        && !item.contains_key("apiVersion")
                    {
                        item.insert("kind".to_owned(), kind.into());
                        item.insert("apiVersion".to_owned(), api_version.as_str().into());
                    }
                    flatten(item, objects);
                }
            }
        }
        // An empty document is none.
        Value::Null => {}
        _ => objects.push(document),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_kubectl_are_read_item_by_item() {
        let list = "apiVersion: v1\nitems:\n- apiVersion: v1\n  data:\n    text: |\n      - a\n\n      b\n  kind: ConfigMap\n  \
                    metadata:\n    name: a\n- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: b\nkind: List\nmetadata:\n  \
                    resourceVersion: \"\"\n";
        let items = list_items(list).expect("a list");
        assert_eq!(items.len(), 2);
        let mut whole = Vec::new();
        read_yaml(list).expect("YAML").into_iter().for_each(|document| flatten(document, &mut whole));
        assert_eq!(read_items(&items), Some(whole));
        assert_eq!(list_items("apiVersion: v1\nkind: Pod\n"), None);
    }
}
