//! The values an edit writes, and what a document is expected to be afterwards.

use crate::{NodeRef, Resolved, View, de::whole};

/// A value to write into a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer that needs all 64 bits.
    UInt(u64),
    /// Any other number.
    Float(f64),
    /// A string; quoted when it is written, if it has to be.
    String(String),
    /// A list.
    List(Vec<Value>),
    /// A mapping, written in this order.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// A list of anything that is a value.
    #[must_use]
    pub fn list<V: Into<Self>>(items: impl IntoIterator<Item = V>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }

    /// A mapping, in the given order.
    #[must_use]
    pub fn map<K: Into<String>, V: Into<Self>>(entries: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// What a node means, written out: aliases and merge keys are gone.
    #[must_use]
    pub fn of(node: NodeRef<'_>) -> Self {
        match node.view() {
            View::Scalar(Resolved::Null) => Self::Null,
            View::Scalar(Resolved::Bool(value)) => Self::Bool(value),
            View::Scalar(Resolved::Int(value)) => Self::Int(value),
            View::Scalar(Resolved::UInt(value)) => Self::UInt(value),
            View::Scalar(Resolved::Float(value)) => Self::Float(value),
            View::Scalar(Resolved::Str(text)) => Self::String(text.to_owned()),
            View::Sequence(items) => Self::List(items.into_iter().map(Self::of).collect()),
            View::Mapping(entries) => Self::Map(
                entries.into_iter().map(|entry| (entry.key.into_owned(), Self::of(entry.value))).collect(),
            ),
        }
    }

    /// Whether two values mean the same: the order of keys does not matter, nor whether a whole number is written
    /// as a float.
    #[must_use]
    pub fn means(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(left), Self::List(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.means(right))
            }
            (Self::Map(left), Self::Map(right)) => {
                if left.len() != right.len() {
                    return false;
                }
                // Mostly the order is the same as well.
                left.iter().enumerate().all(|(at, (key, value))| {
                    let same_place = right.get(at).filter(|(other, _)| other == key);
                    let found = same_place.or_else(|| right.iter().find(|(other, _)| other == key));
                    found.is_some_and(|(_, other)| value.means(other))
                })
            }
            // Bits, so that NaN is itself; zero and negative zero are different texts in JSON.
            (Self::Float(left), Self::Float(right)) => left.to_bits() == right.to_bits(),
            (Self::Float(float), Self::Int(int)) | (Self::Int(int), Self::Float(float)) => {
                whole(*float) == Some(*int)
            }
            _ => self == other,
        }
    }

    pub(super) fn is_empty_collection(&self) -> bool {
        match self {
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
            _ => false,
        }
    }

    /// What it is, for messages.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::UInt(_) | Self::Float(_) => "a number",
            Self::String(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Self::Int(value),
                (None, Some(value)) => Self::UInt(value),
                (None, None) => number.as_f64().map_or(Self::Null, Self::Float),
            },
            serde_json::Value::String(text) => Self::String(text),
            serde_json::Value::Array(items) => Self::list(items),
            serde_json::Value::Object(entries) => Self::map(entries),
        }
    }
}
