//! `metadata.managedFields`: who owns which fields, read from and written to an object.
//!
//! Implements: `k8s.io/apimachinery/pkg/util/managedfields/internal` (entries, their identity and order, the cap on
//! updaters).

use palisade_base::go;
use serde_json::{Map, Value};
use thiserror::Error;

use super::set::FieldSet;

/// How a manager came by its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Anything else.
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One manager and its fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Name of the manager.
    pub manager: String,
    /// What it did.
    pub operation: Operation,
    /// In which version its paths are to be read.
    pub api_version: String,
    /// Through which subresource, empty for none.
    pub subresource: String,
    /// When it last changed anything.
    pub time: Option<String>,
    /// Its fields.
    pub set: FieldSet,
}

impl Entry {
    /// Whether the two belong to the same manager: an applier is the same in every version.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The key upstream sorts managers by in messages: the JSON of its identity.
    pub(crate) fn identity(&self) -> String {
        let mut out = String::from("{\"manager\":");
        go::json_string(&mut out, &self.manager);
        out.push_str(",\"operation\":\"");
        out.push_str(self.operation.text());
        out.push('"');
        if self.operation == Operation::Update {
            out.push_str(",\"apiVersion\":");
            go::json_string(&mut out, &self.api_version);
        }
        if !self.subresource.is_empty() {
            out.push_str(",\"subresource\":");
            go::json_string(&mut out, &self.subresource);
        }
        out.push('}');
        out
    }

    /// How a conflict names the manager.
    pub(crate) fn describe(&self) -> String {
        let mut out = go::quote(&self.manager);
        if !self.subresource.is_empty() {
            out.push_str(" with subresource ");
            out.push_str(&go::quote(&self.subresource));
        }
        if self.operation == Operation::Update {
            out.push_str(" using ");
            out.push_str(&self.api_version);
        }
        out
    }

    fn encode(&self) -> Value {
        let mut out = Map::new();
        if !self.manager.is_empty() {
            out.insert("manager".into(), self.manager.as_str().into());
        }
        out.insert("operation".into(), self.operation.text().into());
        out.insert("apiVersion".into(), self.api_version.as_str().into());
        if let Some(time) = &self.time {
            out.insert("time".into(), time.as_str().into());
        }
        out.insert("fieldsType".into(), "FieldsV1".into());
        out.insert("fieldsV1".into(), self.set.encode());
        if !self.subresource.is_empty() {
            out.insert("subresource".into(), self.subresource.as_str().into());
        }
        Value::Object(out)
    }

    fn decode(value: &Value) -> Result<Self, ManagedError> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagedError::Operation),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err(ManagedError::ApiVersion);
        }
        if text("fieldsType") != "FieldsV1" {
            return Err(ManagedError::FieldsType);
        }
        let set = match value.get("fieldsV1") {
            None | Some(Value::Null) => FieldSet::new(),
            Some(fields) => FieldSet::decode(fields).ok_or(ManagedError::Fields)?,
        };
        let time = value.get("time").and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            manager: text("manager"),
            operation,
            api_version,
            subresource: text("subresource"),
            time,
            set,
        })
    }
}

/// Why an entry of `metadata.managedFields` cannot be read, worded as upstream's field manager does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ManagedError {
    /// Neither of the two.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// None is named.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// Not `FieldsV1`.
    #[error("invalid fieldsType")]
    FieldsType,
    /// `fieldsV1` is not a set of paths.
    #[error("error decoding set")]
    Fields,
}

/// The managers of the fields of an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Managed {
    /// The entries, in no particular order.
    pub entries: Vec<Entry>,
}

/// Upstream keeps at most so many managers that update.
const MAX_UPDATERS: usize = 10;

impl Managed {
    /// Reads `metadata.managedFields`.
    pub fn decode(object: &Value) -> Result<Self, ManagedError> {
        let Some(list) = object.pointer("/metadata/managedFields").and_then(Value::as_array) else {
            return Ok(Self::default());
        };
        let mut managed = Self::default();
        for value in list {
            let entry = Entry::decode(value)?;
            // Of two entries with one identity the last one counts.
            managed.entries.retain(|known| !known.is(&entry));
            managed.entries.push(entry);
        }
        Ok(managed)
    }

    /// Writes `metadata.managedFields`.
    pub fn encode(mut self, object: &mut Value) {
        self.entries.sort_by(|p, q| {
            p.operation
                .cmp(&q.operation)
                .then_with(|| {
                    p.time.as_deref().unwrap_or_default().cmp(q.time.as_deref().unwrap_or_default())
                })
                .then_with(|| p.manager.cmp(&q.manager))
                .then_with(|| p.api_version.cmp(&q.api_version))
                .then_with(|| p.subresource.cmp(&q.subresource))
        });
        let Some(meta) = super::metadata_mut(object) else { return };
        if self.entries.is_empty() {
            meta.remove("managedFields");
        } else {
            meta.insert("managedFields".into(), self.entries.iter().map(Entry::encode).collect());
        }
    }

    pub(crate) fn drop_empty(&mut self) {
        self.entries.retain(|entry| !entry.set.is_empty());
    }

    /// Folds the oldest updaters into `ancient-changes`.
    pub(crate) fn cap_updaters(&mut self) {
        let mut updaters: Vec<usize> =
            (0..self.entries.len()).filter(|at| self.entries[*at].operation == Operation::Update).collect();
        let mut count = updaters.len();
        if count <= MAX_UPDATERS {
            return;
        }
        updaters.sort_by(|a, b| {
            let (a, b) = (&self.entries[*a], &self.entries[*b]);
            a.time.cmp(&b.time).then_with(|| a.identity().cmp(&b.identity()))
        });
        // Per version, the oldest becomes the bucket the next ones are poured into.
        let mut buckets: Vec<(String, usize)> = Vec::new();
        let mut gone: Vec<usize> = Vec::new();
        for at in updaters {
            if count <= MAX_UPDATERS {
                break;
            }
            let version = self.entries[at].api_version.clone();
            match buckets.iter().find(|(known, _)| *known == version) {
                Some((_, bucket)) => {
                    let bucket = *bucket;
                    let set = self.entries[at].set.clone();
                    let time = self.entries[at].time.clone();
                    let entry = &mut self.entries[bucket];
                    entry.manager = "ancient-changes".into();
                    entry.subresource = String::new();
                    entry.set = std::mem::take(&mut entry.set).union(&set);
                    entry.time = time;
                    gone.push(at);
                    count -= 1;
                }
                None => buckets.push((version, at)),
            }
        }
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            self.entries.remove(at);
        }
    }
}
