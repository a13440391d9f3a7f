//! What every object has: its names, labels, owners and times, read once from JSON.

use std::collections::BTreeMap;

use jiff::Timestamp;
use palisade_base::label_selector::LabelSelector;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Value, json};

/// The place of an object among those of its kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace; empty for objects without one.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

impl Key {
    /// The key of a name in a namespace.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// A reference to an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// Group and version.
    #[serde(deserialize_with = "nullable")]
    pub api_version: Box<str>,
    /// Kind.
    #[serde(deserialize_with = "nullable")]
    pub kind: Box<str>,
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    /// Uid.
    #[serde(deserialize_with = "nullable")]
    pub uid: Box<str>,
    /// Whether it is the managing controller.
    #[serde(deserialize_with = "nullable")]
    pub controller: bool,
}

/// Labels or annotations.
pub type Texts = BTreeMap<Box<str>, Box<str>>;

/// The metadata of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Namespace; empty for objects without one.
    #[serde(deserialize_with = "nullable")]
    pub namespace: Box<str>,
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: Box<str>,
    /// Uid.
    #[serde(deserialize_with = "nullable")]
    pub uid: Box<str>,
    /// The resource version, which grows with every write.
    #[serde(rename = "resourceVersion", deserialize_with = "number")]
    pub revision: u64,
    /// Generation of the specification.
    #[serde(deserialize_with = "nullable")]
    pub generation: i64,
    /// Labels.
    #[serde(deserialize_with = "nullable")]
    pub labels: Texts,
    /// Annotations.
    #[serde(deserialize_with = "nullable")]
    pub annotations: Texts,
    /// Owners.
    #[serde(rename = "ownerReferences", deserialize_with = "nullable")]
    pub owners: Vec<Owner>,
    /// Finalizers.
    #[serde(deserialize_with = "nullable")]
    pub finalizers: Vec<Box<str>>,
    /// When it was created.
    #[serde(rename = "creationTimestamp", deserialize_with = "time")]
    pub created: Option<Timestamp>,
    /// When it is to be gone.
    #[serde(rename = "deletionTimestamp", deserialize_with = "time")]
    pub deleted: Option<Timestamp>,
    /// How many seconds that is after the deletion was requested.
    #[serde(rename = "deletionGracePeriodSeconds", deserialize_with = "nullable")]
    pub grace_period: i64,
}

impl Meta {
    /// The key.
    #[must_use]
    pub fn key(&self) -> Key {
        Key { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deleted.is_some()
    }

    /// The managing controller.
    #[must_use]
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Whether an object of this uid manages it.
    #[must_use]
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| &*owner.uid == uid)
    }

    /// A label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|value| &**value)
    }

    /// An annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(|value| &**value)
    }

    /// Whether a selector selects it.
    #[must_use]
    pub fn is_selected_by(&self, selector: &LabelSelector) -> bool {
        selector.matches_with(|key| self.label(key))
    }

    /// Whether it has a finalizer.
    #[must_use]
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| &**finalizer == name)
    }
}

/// The reference of a managing controller, for `metadata.ownerReferences`.
#[must_use]
pub fn controller_reference(api_version: &str, kind: &str, owner: &Meta) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": owner.name, "uid": owner.uid, "controller": true,
        "blockOwnerDeletion": true})
}

/// `null` is the default, as in Go.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A moment, or none.
pub(super) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<Box<str>>::deserialize(deserializer)?;
    text.filter(|text| !text.is_empty())
        .map(|text| text.parse::<Timestamp>().map_err(serde::de::Error::custom))
        .transpose()
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = Option::<Box<str>>::deserialize(deserializer)?.unwrap_or_default();
    if text.is_empty() { Ok(0) } else { text.parse().map_err(serde::de::Error::custom) }
}
