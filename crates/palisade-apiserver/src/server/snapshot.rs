//! Objects to start with, from dumps such as `kubectl get -o yaml` writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_yaml::Limits;
use serde_json::Value;
use thiserror::Error;

use super::bootstrap;
use crate::api::Api;
use crate::meta;
use crate::registry::Entry;

/// Why a dump could not be loaded.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Its content.
    #[error("{path}: {why}")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Loads the objects of a file: definitions and namespaces first, then everything else.
pub(super) async fn load(api: &Arc<Api>, path: &Path) -> Result<usize, SnapshotError> {
    let bytes =
        std::fs::read(path).map_err(|source| SnapshotError::Read { path: path.to_owned(), source })?;
    let text = palisade_yaml::decode(&bytes)
        .map_err(|e| SnapshotError::Content { path: path.to_owned(), why: e.to_string() })?;
    load_text(api, &text, path).await
}

/// Loads the objects of a text that came from a file, or that the server brings along.
pub(super) async fn load_text(api: &Arc<Api>, text: &str, path: &Path) -> Result<usize, SnapshotError> {
    let content = |why: String| SnapshotError::Content { path: path.to_owned(), why };
    let mut objects = Vec::new();
    for document in documents(text).map_err(content)? {
        flatten(document, &mut objects);
    }
    let loaded = objects.len();
    let (first, rest): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(|object| rank(object) < 2);
    let mut first = first;
    first.sort_by_key(rank);
    // Definitions and namespaces are few, and what follows needs them.
    for object in first {
        let (entry, namespace) = place(api, &object).map_err(content)?;
        bootstrap::put(api, &entry, &namespace, object).await;
    }
    let mut waiting = Vec::with_capacity(rest.len());
    for object in rest {
        let (entry, namespace) = place(api, &object).map_err(content)?;
        waiting.push((entry, namespace, object));
    }
    // Commits that come together share a visit to the disk, and a task for each part uses every core.
    let mut parts = Vec::new();
    while !waiting.is_empty() {
        let part = waiting.split_off(waiting.len().saturating_sub(PART));
        let api = api.clone();
        parts.push(tokio::spawn(async move {
            let puts = part.into_iter().map(|(entry, namespace, object)| {
                let api = &api;
                async move { bootstrap::put(api, &entry, &namespace, object).await }
            });
            futures::future::join_all(puts).await;
        }));
    }
    for part in parts {
        part.await.map_err(|error| content(error.to_string()))?;
    }
    Ok(loaded)
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

/// Dumps of whole clusters are larger than anything a person writes.
const LIMITS: Limits = Limits {
    max_bytes: usize::MAX,
    max_nodes: usize::MAX,
    max_expanded_nodes: 1 << 32,
    max_depth: 128,
    max_errors: 100,
};

/// The documents of a text: one of JSON, or any number of YAML.
fn documents(text: &str) -> Result<Vec<Value>, String> {
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

fn read_yaml(text: &str) -> Result<Vec<Value>, String> {
    let parsed = palisade_yaml::parse(text, &LIMITS);
    if let Some(error) = parsed.errors.first() {
        return Err(error.to_string());
    }
    parsed.documents.iter().map(|document| document.root().to_json().map_err(|e| e.to_string())).collect()
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

/// Where an object belongs.
fn place(api: &Arc<Api>, object: &Value) -> Result<(Arc<Entry>, String), String> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let served = api.registry.served();
    let entry = served.by_kind(api_version, kind);
    let entry = entry.ok_or_else(|| format!("{kind} of {api_version} is not served"))?;
    Ok((entry.clone(), meta::meta_text(object, "namespace").to_owned()))
}

fn flatten(document: Value, objects: &mut Vec<Value>) {
    match document {
        Value::Object(mut list)
            if list.get("kind").and_then(Value::as_str).is_some_and(|k| k.ends_with("List"))
                && list.contains_key("items") =>
        {
            if let Some(Value::Array(items)) = list.remove("items") {
                for item in items {
                    flatten(item, objects);
                }
            }
        }
        Value::Object(_) => objects.push(document),
        _ => {}
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
