//! A stored object: its JSON as sent to clients, and the facts that must be known without parsing it.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use palisade_apimachinery::decode::DecodeError;
use palisade_apimachinery::stored_size::MAX_STORED;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use thiserror::Error;

use super::{CommitError, Draft};

/// Nesting up to which an object is known to be readable without trying.
const SAFE_DEPTH: usize = 100;

/// Spare capacity that is not worth a copy: small objects are written as they are.
const SPARE: usize = 2 << 10;

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
    /// A reading of the object that another module made and finds again here.
    view: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// Reads null as Go does: as if nothing were there.
pub(crate) fn nullable<'de, T, D>(input: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Option::<T>::deserialize(input).map(Option::unwrap_or_default)
}

/// The metadata that must be readable in every stored object, whatever its kind. Null is nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    #[serde(deserialize_with = "nullable")]
    labels: BTreeMap<String, Option<String>>,
    #[serde(rename = "annotations", deserialize_with = "nullable")]
    _annotations: BTreeMap<String, Option<String>>,
    #[serde(rename = "name", deserialize_with = "nullable")]
    _name: String,
    #[serde(rename = "namespace", deserialize_with = "nullable")]
    _namespace: String,
    #[serde(deserialize_with = "nullable")]
    uid: String,
    #[serde(deserialize_with = "nullable")]
    resource_version: String,
    #[serde(rename = "generation")]
    _generation: Option<i64>,
    #[serde(rename = "creationTimestamp")]
    _creation_timestamp: Option<String>,
    #[serde(rename = "deletionTimestamp")]
    _deletion_timestamp: Option<String>,
    #[serde(rename = "finalizers", deserialize_with = "nullable")]
    _finalizers: Vec<Option<String>>,
    #[serde(rename = "ownerReferences", deserialize_with = "nullable")]
    _owner_references: Vec<Owner>,
}

/// An owner reference, read for its types only.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Owner {
    #[serde(rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(rename = "kind")]
    _kind: Option<String>,
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "uid")]
    _uid: Option<String>,
    #[serde(rename = "controller")]
    _controller: Option<bool>,
    #[serde(rename = "blockOwnerDeletion")]
    _block_owner_deletion: Option<bool>,
}

/// An object's metadata, which must be there.
#[derive(Debug, Deserialize)]
struct Outer {
    metadata: Meta,
}

/// Removes the nulls of an object's metadata. True if there were any.
fn drop_nulls(object: &mut Map<String, Value>) -> bool {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return false };
    let before = metadata.len();
    metadata.retain(|_, value| !value.is_null());
    let mut changed = metadata.len() != before;
    for texts in ["labels", "annotations"] {
        if let Some(Value::Object(texts)) = metadata.get_mut(texts) {
            for (_, text) in texts.iter_mut().filter(|(_, text)| text.is_null()) {
                *text = Value::String(String::new());
                changed = true;
            }
        }
    }
    if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
        for owner in owners.iter_mut().filter_map(Value::as_object_mut) {
            let before = owner.len();
            owner.retain(|_, value| !value.is_null());
            changed |= owner.len() != before;
        }
    }
    changed
}

/// A part of a stored object, as text: what a write leaves alone need not be read.
#[derive(Debug)]
pub struct Part {
    path: &'static [&'static str],
    text: Box<RawValue>,
}

/// A value with a part in its place.
struct Around<'a> {
    value: &'a Map<String, Value>,
    path: &'a [&'static str],
    text: &'a RawValue,
}

impl Serialize for Around<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(self.value.len()))?;
        for (key, value) in self.value {
            match (self.path, value) {
                ([last], _) if key == last => out.serialize_entry(key, self.text)?,
                ([first, path @ ..], Value::Object(value)) if key == first && !path.is_empty() => {
                    out.serialize_entry(key, &Around { value, path, text: self.text })?;
                }
                _ => out.serialize_entry(key, value)?,
            }
        }
        out.end()
    }
}

/// An object in which a value is null, and that value.
type WithoutPart = (Map<String, Value>, Box<RawValue>);

/// Reads an object without the value at a path; `None` if it has none.
fn read_without(json: &[u8], path: &[&str]) -> Result<Option<WithoutPart>, serde_json::Error> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(json)?;
    let (mut object, mut found) = (Map::new(), None);
    for (key, text) in members {
        let value = match path {
            [last] if key == *last => {
                found = Some(text.to_owned());
                Value::Null
            }
            [first, path @ ..] if key == *first && !path.is_empty() => {
                let Some((inner, part)) = read_without(text.get().as_bytes(), path)? else { return Ok(None) };
                found = Some(part);
                Value::Object(inner)
            }
            _ => serde_json::from_str(text.get())?,
        };
        object.insert(key, value);
    }
    Ok(found.map(|part| (object, part)))
}

/// Serialises compactly, and notes how deep the text is nested: a second walk over a large object would cost as much.
#[derive(Debug)]
struct Measuring<'a> {
    level: usize,
    deepest: &'a mut usize,
}

impl Measuring<'_> {
    fn enter(&mut self) {
        self.level += 1;
        *self.deepest = self.level.max(*self.deepest);
    }
}

impl serde_json::ser::Formatter for Measuring<'_> {
    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter();
        writer.write_all(b"[")
    }
    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.level = self.level.saturating_sub(1);
        writer.write_all(b"]")
    }
    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter();
        writer.write_all(b"{")
    }
    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.level = self.level.saturating_sub(1);
        writer.write_all(b"}")
    }
}

/// The text of a value, and how deep it is nested. A part in its place is not counted: it was stored there before.
fn written(value: &impl Serialize) -> Result<(Vec<u8>, usize), serde_json::Error> {
    let (mut json, mut deepest) = (Vec::with_capacity(1024), 0);
    let format = Measuring { level: 0, deepest: &mut deepest };
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, format))?;
    Ok((json, deepest))
}

/// The bytes without the spare capacity that writing left, where it is worth a copy: they are kept as long as the change
/// log, once for each revision.
fn without_spare(mut json: Vec<u8>) -> Bytes {
    if json.capacity() - json.len() > SPARE {
        json.shrink_to_fit();
    }
    json.into()
}

/// Why an object cannot be stored, or a record not be read.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The place of a record does not name a resource.
    #[error("key {0:?} has no resource")]
    NoResource(String),
    /// A record ends before its object begins.
    #[error("record is too short")]
    TooShort,
    /// An object without metadata.
    #[error("metadata is missing")]
    NoMetadata,
    /// Metadata of the wrong type.
    #[error("metadata cannot be read: {0}")]
    Metadata(serde_json::Error),
    /// Not a revision.
    #[error("resourceVersion {0:?} is not a number")]
    ResourceVersion(String),
    /// Not JSON, or nested more deeply than JSON is read.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Not an object of its kind.
    #[error(transparent)]
    Kind(#[from] DecodeError),
}

impl Object {
    /// Gives a draft its revision and freezes it. What could not be read again is refused: nothing gets into the store
    /// that would be set aside at the next start. An object that goes may be anything.
    pub(super) fn build(key: &str, revision: u64, draft: Draft, goes: bool) -> Result<Self, CommitError> {
        let Draft { mut value, fields, part, kind } = draft;
        drop_nulls(&mut value);
        if let Some(Value::Object(metadata)) = value.get_mut("metadata") {
            metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        }
        let metadata = value.get("metadata").ok_or(RecordError::NoMetadata)?;
        let meta = Meta::deserialize(metadata).map_err(RecordError::Metadata)?;
        let json = match &part {
            Some(Part { path, text }) => written(&Around { value: &value, path, text }),
            None => written(&value),
        };
        let (json, deepest) = json.map_err(RecordError::Json)?;
        if !goes && deepest > SAFE_DEPTH {
            serde_json::from_slice::<Value>(&json).map_err(RecordError::Json)?;
        }
        // What keeps a part of a stored object is a change of its status by the server, which must not fail.
        if !goes && part.is_none() && json.len() > MAX_STORED {
            let size = kind.map_or(json.len(), |kind| kind.stored_size(&value, json.len()));
            if size > MAX_STORED {
                return Err(CommitError::TooLarge);
            }
        }
        Ok(Self::new(key, revision, without_spare(json), fields, meta))
    }

    /// Restores an object from what [`Object::json`] and [`Object::fields`] gave.
    pub(super) fn restore(key: &str, json: Bytes, fields: Vec<String>) -> Result<Self, RecordError> {
        let Outer { metadata } = serde_json::from_slice(&json)?;
        let revision = match metadata.resource_version.as_str() {
            "" => 0,
            version => version.parse().map_err(|_| RecordError::ResourceVersion(version.to_owned()))?,
        };
        let json = if memchr::memmem::find(&json, b"null").is_some() {
            let mut value: Map<String, Value> = serde_json::from_slice(&json)?;
            if drop_nulls(&mut value) { serde_json::to_vec(&value)?.into() } else { json }
        } else {
            json
        };
        Ok(Self::new(key, revision, json, fields, metadata))
    }

    fn new(key: &str, revision: u64, json: Bytes, fields: Vec<String>, meta: Meta) -> Self {
        let labels = meta.labels.into_iter();
        Self {
            key: key.into(),
            revision,
            json,
            labels: labels.map(|(key, value)| (key.into(), value.unwrap_or_default().into())).collect(),
            fields: fields.into_iter().map(String::into_boxed_str).collect(),
            uid: meta.uid.into(),
            view: OnceLock::new(),
        }
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
        // swallowed: a label that is not there
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        self.labels.get(at).map(|(_, value)| &**value)
    }

    /// The same object at the same revision in another form, such as another version of its kind.
    pub(crate) fn in_form(&self, value: &Map<String, Value>) -> Result<Self, RecordError> {
        let json = without_spare(serde_json::to_vec(value)?);
        let Outer { metadata } = serde_json::from_slice(&json)?;
        let fields = self.fields.iter().map(ToString::to_string).collect();
        Ok(Self::new(&self.key, self.revision, json, fields, metadata))
    }

    /// All labels, sorted.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(k, v)| (&**k, &**v))
    }

    /// The values of the selectable fields; the `apiVersion` that a custom resource is stored in.
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
        // swallowed: the store made these bytes from an object, or read them when it opened
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// The object as a tree without the value at a path, which is null in it, and that value; `None` if it has none.
    #[must_use]
    pub fn parse_without(&self, path: &'static [&'static str]) -> Option<(Map<String, Value>, Part)> {
        // swallowed: the store made these bytes from an object, or read them when it opened
        let (object, text) = read_without(&self.json, path).ok()??;
        Some((object, Part { path, text }))
    }

    /// A reading of this object that is made once and kept as long as the object: what is used again and
    /// again, such as the security reading of a pod, is not parsed again and again. There is one slot; a
    /// second type of reading is made afresh each time.
    pub fn view<T: Send + Sync + 'static>(&self, read: impl FnOnce(&Bytes) -> T) -> Arc<T> {
        if let Some(kept) = self.view.get() {
            // swallowed: another type of reading is made afresh
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
