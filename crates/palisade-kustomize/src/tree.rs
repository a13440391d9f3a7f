//! Values that remember where they were written.
//!
//! A build merges values of several files. Each value, and each key, keeps its [`Origin`], so that what is found in the result
//! can be shown, and edited, where it was written. Values that a build makes itself have the origin of the field that made them.

use palisade_yaml::{NodeId, NodeRef, Resolved, Span, View};
use serde_json::{Map, Value as Json};

/// Where a value or a key is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Index into [`crate::Build::sources`].
    pub source: usize,
    /// The position of the document in the source, as the parser counts.
    pub document: usize,
    /// The node.
    pub node: NodeId,
    /// Its place in the text of the source.
    pub span: Span,
}

/// A value with its origin.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it is written.
    pub origin: Option<Origin>,
    /// Where its key is written, if it belongs to one.
    pub key: Option<Origin>,
}

/// What a [`Node`] is.
#[derive(Debug, Clone)]
pub enum Value {
    /// A string, number, boolean or null.
    Scalar(Json),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, each key once.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Reads a value of a source; `None` if JSON has no such value.
    #[must_use]
    pub fn read(source: usize, node: NodeRef<'_>) -> Option<Self> {
        let target = node.target();
        let value = match target.view() {
            View::Scalar(Resolved::Null) => Value::Scalar(Json::Null),
            View::Scalar(_) => Value::Scalar(target.to_json().ok()?),
            View::Sequence(items) => {
                Value::List(items.into_iter().map(|item| Self::read(source, item)).collect::<Option<_>>()?)
            }
            View::Mapping(entries) => {
                let read = entries.into_iter().map(|entry| {
                    let mut value = Self::read(source, entry.value)?;
                    value.key = Some(origin_of(source, entry.key_node));
                    Some((entry.key.into_owned(), value))
                });
                Value::Map(read.collect::<Option<_>>()?)
            }
        };
        Some(Self { value, origin: Some(origin_of(source, target)), key: None })
    }

    /// A value that a build makes; `origin` is of the field that made it.
    #[must_use]
    pub fn made(json: Json, origin: Option<Origin>) -> Self {
        let value = match json {
            Json::Array(items) => {
                Value::List(items.into_iter().map(|item| Self::made(item, origin)).collect())
            }
            Json::Object(map) => {
                Value::Map(map.into_iter().map(|(key, value)| (key, Self::made(value, origin))).collect())
            }
            scalar => Value::Scalar(scalar),
        };
        Self { value, origin, key: origin }
    }

    /// An empty map.
    pub(crate) const fn map(origin: Option<Origin>) -> Self {
        Self { value: Value::Map(Vec::new()), origin, key: origin }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Value::Map(entries) = &mut self.value else { return None };
        entries.iter_mut().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// The value at keys.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    pub(crate) fn at_mut(&mut self, path: &[&str]) -> Option<&mut Self> {
        path.iter().try_fold(self, |node, key| node.get_mut(key))
    }

    /// The value of a key, an empty map if there was none. `None` if this is no map.
    pub(crate) fn child(&mut self, key: &str, origin: Option<Origin>) -> Option<&mut Self> {
        if self.is_null() {
            self.value = Value::Map(Vec::new());
        }
        if self.get(key).is_none_or(Self::is_null) {
            self.set(key, Self::map(origin));
        }
        self.get_mut(key)
    }

    /// The value of keys, with the maps on the way made.
    pub(crate) fn descend(&mut self, path: &[&str], origin: Option<Origin>) -> Option<&mut Self> {
        path.iter().try_fold(self, |node, key| node.child(key, origin))
    }

    /// Sets a key; a key that is there keeps its place.
    pub(crate) fn set(&mut self, key: &str, value: Self) {
        let Value::Map(entries) = &mut self.value else { return };
        match entries.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => entries.push((key.to_owned(), value)),
        }
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Self> {
        let Value::Map(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|(known, _)| known == key)?;
        Some(entries.remove(at).1)
    }

    /// The entries, if it is a map.
    #[must_use]
    pub fn entries(&self) -> &[(String, Self)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items, if it is a list.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn items_mut(&mut self) -> &mut [Self] {
        match &mut self.value {
            Value::List(items) => items,
            _ => &mut [],
        }
    }

    /// The items of the list at a key.
    pub(crate) fn items_of(&self, key: &str) -> &[Self] {
        self.get(key).map(Self::items).unwrap_or_default()
    }

    /// The text, if it is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(Json::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The text at keys; empty if there is none.
    #[must_use]
    pub fn text(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Self::as_str).unwrap_or_default()
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Scalar(Json::Null))
    }

    pub(crate) fn is_true(&self) -> bool {
        matches!(self.value, Value::Scalar(Json::Bool(true)))
    }

    /// The value without origins.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match &self.value {
            Value::Scalar(scalar) => scalar.clone(),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| (key.clone(), value.to_json()));
                Json::Object(entries.collect::<Map<_, _>>())
            }
        }
    }
}

fn origin_of(source: usize, node: NodeRef<'_>) -> Origin {
    Origin { source, document: node.document().index(), node: node.id(), span: node.span() }
}
