//! A stored object: its JSON as sent to clients, and the facts that must be known without parsing it.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Draft;

/// An object as stored at one revision. Never changes.
#[derive(Debug)]
pub struct Object {
    key: Box<str>,
    /// The resourceVersion.
    pub revision: u64,
    /// The object as JSON, without `apiVersion` and `kind`.
    pub json: Bytes,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[Box<str>]>,
    uid: Box<str>,
    /// A reading of the object that somebody else made and wants to find again.
    view: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Object {
    /// Gives a draft its revision and freezes it.
    pub(super) fn build(key: String, revision: u64, draft: Draft) -> Self {
        let Draft { mut value, fields } = draft;
        if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
            metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        }
        let metadata = value.get("metadata").and_then(Value::as_object);
        let labels = metadata.and_then(|m| m.get("labels")).and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        let labels = labels.filter_map(|(k, v)| Some((k.as_str().into(), v.as_str()?.into()))).collect();
        let uid = metadata.and_then(|m| m.get("uid")).and_then(Value::as_str).unwrap_or_default().into();
        // Writing a map of strings, numbers and maps to memory cannot fail.
        let json = serde_json::to_vec(&value).unwrap_or_default().into();
        Self {
            key: key.into(),
            revision,
            json,
            labels,
            fields: fields.into_iter().map(String::into_boxed_str).collect(),
            uid,
            view: OnceLock::new(),
        }
    }

    /// Restores an object from what [`Object::json`] and [`Object::fields`] gave.
    pub(super) fn restore(key: &str, json: Bytes, fields: Vec<String>) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Outer {
            metadata: Meta,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Meta {
            #[serde(default)]
            labels: Map<String, Value>,
            #[serde(default)]
            uid: String,
            #[serde(default)]
            resource_version: String,
        }
        let Outer { metadata } = serde_json::from_slice(&json)?;
        let labels = metadata.labels.iter();
        let labels = labels.filter_map(|(k, v)| Some((k.as_str().into(), v.as_str()?.into()))).collect();
        Ok(Self {
            key: key.into(),
            revision: metadata.resource_version.parse().unwrap_or_default(),
            json,
            labels,
            fields: fields.into_iter().map(String::into_boxed_str).collect(),
            uid: metadata.uid.into(),
            view: OnceLock::new(),
        })
    }

    /// `namespace/name`, or `name` for cluster-scoped objects.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The namespace; empty for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }

    /// The uid.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// A label's value.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        self.labels.get(at).map(|(_, value)| &**value)
    }

    /// All labels, sorted.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(k, v)| (&**k, &**v))
    }

    /// The values of the selectable fields.
    #[must_use]
    pub fn fields(&self) -> &[Box<str>] {
        &self.fields
    }

    /// Whether the JSON has a field of this name somewhere. Most objects have no owners and are not being deleted:
    /// a look at the bytes is much cheaper than parsing them.
    #[must_use]
    pub fn mentions(&self, field: &str) -> bool {
        memchr::memmem::find(&self.json, format!("\"{field}\"").as_bytes()).is_some()
    }

    /// The object as a tree, without `apiVersion` and `kind`.
    #[must_use]
    pub fn parse(&self) -> Map<String, Value> {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// A reading of this object that is made once and kept as long as the object: what is asked again and
    /// again, such as the security reading of a pod, is not parsed again and again. There is one slot; a
    /// second type of reading is made afresh each time.
    pub fn view<T: Send + Sync + 'static>(&self, read: impl FnOnce(&Bytes) -> T) -> Arc<T> {
        if let Some(kept) = self.view.get() {
            if let Ok(kept) = kept.clone().downcast::<T>() {
                return kept;
            }
            return Arc::new(read(&self.json));
        }
        let made = Arc::new(read(&self.json));
        // Losing the race means that another thread has just kept the same reading.
        let _ = self.view.set(made.clone());
        made
    }
}
