//! What nodes mean: aliases followed, merge keys applied, scalars resolved.
//!
//! Merge keys follow go-yaml v2, which Kubernetes uses: entries apply in the order they are written, so a `<<`
//! overrides explicit keys before it and is overridden by those after it; of a list of mappings the first wins.
//! <https://yaml.org/type/merge.html>

use std::{borrow::Cow, collections::HashMap};

use crate::{
    Span,
    document::{Collection, Document, Kind, Node, NodeId},
    scalar::Resolved,
};

/// A node together with its document: the way to read its meaning.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'d> {
    document: &'d Document<'d>,
    id: NodeId,
}

/// What a node means.
#[derive(Clone, Debug)]
pub enum View<'d> {
    /// A scalar, resolved.
    Scalar(Resolved<'d>),
    /// A list.
    Sequence(Vec<NodeRef<'d>>),
    /// A mapping, merge keys applied, every key once.
    Mapping(Vec<Entry<'d>>),
}

/// An entry of a mapping.
#[derive(Clone, Debug)]
pub struct Entry<'d> {
    /// The key as a string.
    pub key: Cow<'d, str>,
    /// The key as it is written.
    pub key_node: NodeRef<'d>,
    /// The value.
    pub value: NodeRef<'d>,
    /// The `<<` of this mapping that brought the entry, if it is not written here.
    pub merge: Option<NodeRef<'d>>,
}

impl<'d> NodeRef<'d> {
    pub(crate) fn new(document: &'d Document<'_>, id: NodeId) -> Self {
        Self { document, id }
    }

    /// The node's id.
    #[must_use]
    pub const fn id(self) -> NodeId {
        self.id
    }

    /// The document it is a part of.
    #[must_use]
    pub const fn document(self) -> &'d Document<'d> {
        self.document
    }

    /// The node as it is written.
    #[must_use]
    pub fn node(self) -> &'d Node<'d> {
        self.document.node(self.id)
    }

    /// Where it is written, without anchor and tag.
    #[must_use]
    pub fn span(self) -> Span {
        self.node().span
    }

    /// The node itself, or what it is an alias of.
    #[must_use]
    pub fn target(self) -> Self {
        self.with(self.document.dealias(self.id))
    }

    pub(crate) const fn with(self, id: NodeId) -> Self {
        Self { document: self.document, id }
    }

    /// What the node means.
    #[must_use]
    pub fn view(self) -> View<'d> {
        match &self.target().node().kind {
            Kind::Scalar(scalar) => View::Scalar(scalar.resolve()),
            Kind::Sequence(items) => View::Sequence(self.children(*items).collect()),
            Kind::Mapping(entries) => View::Mapping(self.flatten(*entries)),
            // An alias never leads to another.
            Kind::Alias(_) => View::Scalar(Resolved::Null),
        }
    }

    /// The resolved scalar, if it is one.
    #[must_use]
    pub fn as_scalar(self) -> Option<Resolved<'d>> {
        match &self.target().node().kind {
            Kind::Scalar(scalar) => Some(scalar.resolve()),
            _ => None,
        }
    }

    /// The text, if it is a string.
    #[must_use]
    pub fn as_str(self) -> Option<&'d str> {
        match self.as_scalar() {
            Some(Resolved::Str(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether it is null.
    #[must_use]
    pub fn is_null(self) -> bool {
        matches!(self.as_scalar(), Some(Resolved::Null))
    }

    /// Whether it is a mapping.
    #[must_use]
    pub fn is_mapping(self) -> bool {
        matches!(self.target().node().kind, Kind::Mapping(_))
    }

    /// Whether it is a list.
    #[must_use]
    pub fn is_sequence(self) -> bool {
        matches!(self.target().node().kind, Kind::Sequence(_))
    }

    /// The items, if it is a list; nothing otherwise.
    #[must_use]
    pub fn items(self) -> impl ExactSizeIterator<Item = NodeRef<'d>> + DoubleEndedIterator {
        let items = match self.target().node().kind {
            Kind::Sequence(items) => self.document.children(items),
            _ => &[],
        };
        items.iter().map(move |&item| self.with(item))
    }

    /// The entries, if it is a mapping, merge keys applied; nothing otherwise.
    #[must_use]
    pub fn entries(self) -> Vec<Entry<'d>> {
        match self.target().node().kind {
            Kind::Mapping(entries) => self.flatten(entries),
            _ => Vec::new(),
        }
    }

    /// The item at `index`, if it is a list that long.
    #[must_use]
    pub fn item(self, index: usize) -> Option<Self> {
        match self.target().node().kind {
            Kind::Sequence(items) => self.document.children(items).get(index).map(|&item| self.with(item)),
            _ => None,
        }
    }

    /// The value of `key`, if it is a mapping that has it.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Self> {
        self.entry(key).map(|entry| entry.value)
    }

    /// The entry of `key`, if it is a mapping that has it.
    #[must_use]
    pub fn entry(self, key: &str) -> Option<Entry<'d>> {
        let Kind::Mapping(entries) = self.target().node().kind else { return None };
        // The last writer wins, so the search goes backwards.
        for (key_id, value) in self.document.pairs(entries).rev() {
            if entries.overlapping && self.document.is_merge_key(key_id) {
                let sources = self.with(value).merge_sources();
                if let Some(found) = sources.into_iter().find_map(|source| source.entry(key)) {
                    return Some(Entry { merge: Some(self.with(key_id)), ..found });
                }
            } else {
                let text = self.document.key(key_id);
                if text == key {
                    return Some(Entry {
                        key: text,
                        key_node: self.with(key_id),
                        value: self.with(value),
                        merge: None,
                    });
                }
            }
        }
        None
    }

    /// The mappings a `<<` brings in, the winner first; `self` is its value.
    pub(crate) fn merge_sources(self) -> Vec<Self> {
        match self.node().kind {
            Kind::Sequence(items) => self.children(items).map(Self::target).collect(),
            _ => vec![self.target()],
        }
    }

    fn children(self, collection: Collection) -> impl Iterator<Item = NodeRef<'d>> {
        self.document.children(collection).iter().map(move |&child| self.with(child))
    }

    /// A mapping's keys and values as they are written: with `<<`, with duplicates, in the order of the source.
    #[must_use]
    pub fn written_pairs(self) -> Vec<(NodeRef<'d>, NodeRef<'d>)> {
        match self.target().node().kind {
            Kind::Mapping(entries) => {
                self.document.pairs(entries).map(|(key, value)| (self.with(key), self.with(value))).collect()
            }
            _ => Vec::new(),
        }
    }

    fn flatten(self, entries: Collection) -> Vec<Entry<'d>> {
        let plain = |(key, value)| Entry {
            key: self.document.key(key),
            key_node: self.with(key),
            value: self.with(value),
            merge: None,
        };
        if !entries.overlapping {
            return self.document.pairs(entries).map(plain).collect();
        }
        let mut flat = Flat { entries: Vec::new(), places: HashMap::new() };
        for (key, value) in self.document.pairs(entries) {
            if self.document.is_merge_key(key) {
                // The first mapping of a list wins, so it is written last.
                for source in self.with(value).merge_sources().into_iter().rev() {
                    for entry in source.entries() {
                        flat.set(Entry { merge: Some(self.with(key)), ..entry });
                    }
                }
            } else {
                flat.set(plain((key, value)));
            }
        }
        flat.entries
    }
}

struct Flat<'d> {
    entries: Vec<Entry<'d>>,
    places: HashMap<Cow<'d, str>, usize>,
}

impl<'d> Flat<'d> {
    fn set(&mut self, entry: Entry<'d>) {
        if let Some(slot) = self.places.get(&entry.key).and_then(|&place| self.entries.get_mut(place)) {
            *slot = entry;
        } else {
            self.places.insert(entry.key.clone(), self.entries.len());
            self.entries.push(entry);
        }
    }
}
