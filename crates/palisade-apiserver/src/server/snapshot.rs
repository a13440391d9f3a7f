//! Objects to start with, from dumps such as `kubectl get -o yaml` writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_yaml::Limits;
use serde_json::Value;
use thiserror::Error;

use super::bootstrap;
use crate::api::Api;
use crate::meta;

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
    let parsed = palisade_yaml::parse(text, &Limits::default());
    if let Some(error) = parsed.errors.first() {
        return Err(content(error.to_string()));
    }
    let mut objects = Vec::new();
    for document in &parsed.documents {
        flatten(document.root().to_json().map_err(|e| content(e.to_string()))?, &mut objects);
    }
    objects.sort_by_key(|object| match object.get("kind").and_then(Value::as_str) {
        Some("CustomResourceDefinition") => 0,
        Some("Namespace") => 1,
        _ => 2,
    });
    let mut loaded = 0;
    for object in objects {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let served = api.registry.served();
        let Some(entry) = served.by_kind(&api_version, &kind) else {
            return Err(content(format!("{kind} of {api_version} is not served")));
        };
        let namespace = meta::meta_text(&object, "namespace").to_owned();
        bootstrap::put(api, entry, &namespace, object).await;
        loaded += 1;
    }
    Ok(loaded)
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
