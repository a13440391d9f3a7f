//! The tree of a document: an arena of nodes, each with its place in the source.
//!
//! Nodes refer to each other by id, so that a document of any shape is built, walked and dropped without deep
//! recursion. What the nodes mean (aliases, merge keys, numbers) is read through [`NodeRef`].

use std::borrow::Cow;

use crate::{DuplicateKey, Span, node_ref::NodeRef};

/// A node of a [`Document`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node as it is written.
#[derive(Clone, Debug)]
pub struct Node<'s> {
    /// The bytes of the value: with quotes, brackets or block scalar header, without anchor and tag. A block
    /// collection reaches from its first key or dash to the end of its last value. A value that is not written
    /// at all (`key:`) is an empty span after the colon or dash.
    pub span: Span,
    /// Where the anchor or tag begins; the start of `span` if there is none.
    pub outer_start: usize,
    /// The `-` of a list item, the `:` of a mapping value, the `?` of an explicit key; otherwise `outer_start`.
    pub indicator: usize,
    /// Whether the node has an anchor (`&name`).
    pub anchored: bool,
    /// What it is.
    pub kind: Kind<'s>,
}

impl Node<'_> {
    /// The bytes of the node with its anchor and tag.
    #[must_use]
    pub const fn outer_span(&self) -> Span {
        Span::new(self.outer_start, self.span.end)
    }
}

/// What a [`Node`] is.
#[derive(Clone, Debug)]
pub enum Kind<'s> {
    /// A string, number, boolean or null, not resolved yet.
    Scalar(Scalar<'s>),
    /// A list.
    Sequence(Collection),
    /// Keys and values, in the order of the source.
    Mapping(Collection),
    /// `*name`: the node that `&name` marks. Never another alias.
    Alias(NodeId),
}

/// A scalar as it is written.
#[derive(Clone, Debug)]
pub struct Scalar<'s> {
    /// The text without quotes and escapes; borrowed where the source holds it verbatim.
    pub text: Cow<'s, str>,
    /// How it is written.
    pub style: ScalarStyle,
    /// Its tag.
    pub tag: Tag,
}

/// How a scalar is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScalarStyle {
    /// `text`
    Plain,
    /// `'text'`
    SingleQuoted,
    /// `"text"`
    DoubleQuoted,
    /// `|` and lines
    Literal,
    /// `>` and lines
    Folded,
}

/// The tags a document may use. Any other is an error, because Kubernetes has no types of its own in YAML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tag {
    /// No tag.
    #[default]
    None,
    /// `!`: a string, whatever it looks like.
    NonSpecific,
    /// `!!str`
    Str,
    /// `!!int`
    Int,
    /// `!!bool`
    Bool,
    /// `!!float`
    Float,
    /// `!!null`
    Null,
    /// `!!binary`; the text is already decoded.
    Binary,
    /// `!!timestamp`, which upstream keeps as a string.
    Timestamp,
    /// `!!merge`, the tag of `<<`.
    Merge,
    /// `!!seq`
    Seq,
    /// `!!map`
    Map,
}

/// The children of a list or mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    pub(crate) first: u32,
    pub(crate) len: u32,
    /// Whether it is written with brackets or braces (or as a pair inside brackets).
    pub flow: bool,
    /// Whether a key is `<<`, or occurs twice, so that entries override each other.
    pub(crate) overlapping: bool,
}

/// One document of a stream.
#[derive(Clone, Debug)]
pub struct Document<'s> {
    pub(crate) source: &'s str,
    pub(crate) nodes: Vec<Node<'s>>,
    pub(crate) children: Vec<NodeId>,
    pub(crate) root: NodeId,
    pub(crate) index: usize,
    pub(crate) span: Span,
    pub(crate) line: usize,
    pub(crate) duplicates: Vec<DuplicateKey>,
    pub(crate) has_aliases: bool,
}

impl<'s> Document<'s> {
    /// The root value.
    #[must_use]
    pub fn root(&self) -> NodeRef<'_> {
        NodeRef::new(self, self.root)
    }

    /// The text the document is a part of; all spans count from its beginning.
    #[must_use]
    pub const fn source(&self) -> &'s str {
        self.source
    }

    /// The document's position in the stream, counted from 0; empty documents do not count.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The bytes of the document: from its marker (or the first byte that belongs to it) to the next document.
    #[must_use]
    pub const fn span(&self) -> Span {
        self.span
    }

    /// The line (counted from 1) the document's value begins on.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// Keys that a mapping has more than once.
    #[must_use]
    pub fn duplicate_keys(&self) -> &[DuplicateKey] {
        &self.duplicates
    }

    /// The node with this id. Ids come from this document, so there always is one.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node<'s> {
        // An id of another document may be out of range; the root then stands in for a panic.
        self.nodes.get(id.index()).unwrap_or(&self.nodes[self.root.index()])
    }

    /// The ids of a list's items, or of a mapping's keys and values in turn.
    pub(crate) fn children(&self, collection: Collection) -> &[NodeId] {
        let first = collection.first as usize;
        self.children.get(first..first + collection.len as usize).unwrap_or_default()
    }

    /// A mapping's keys and values as they are written, `<<` included.
    pub(crate) fn pairs(&self, collection: Collection) -> impl DoubleEndedIterator<Item = (NodeId, NodeId)> {
        self.children(collection).as_chunks::<2>().0.iter().map(|&[key, value]| (key, value))
    }

    /// The node itself, or what it is an alias of.
    pub(crate) fn dealias(&self, id: NodeId) -> NodeId {
        match self.node(id).kind {
            Kind::Alias(target) => target,
            _ => id,
        }
    }

    /// Whether a key is a merge key: `<<` without quotes, or tagged `!!merge`.
    pub(crate) fn is_merge_key(&self, key: NodeId) -> bool {
        matches!(&self.node(key).kind, Kind::Scalar(scalar) if scalar.is_merge_key())
    }

    /// A key as the string it is in JSON; empty for keys JSON cannot have, which the reader has refused.
    pub(crate) fn key(&self, key: NodeId) -> Cow<'_, str> {
        match &self.node(self.dealias(key)).kind {
            Kind::Scalar(scalar) => scalar.key().unwrap_or_default(),
            _ => Cow::Borrowed(""),
        }
    }
}

impl Scalar<'_> {
    /// What the scalar means.
    #[must_use]
    pub fn resolve(&self) -> crate::Resolved<'_> {
        // The reader refuses tags that do not fit.
        crate::scalar::resolve(&self.text, self.style, self.tag).unwrap_or(crate::Resolved::Str(&self.text))
    }

    pub(crate) fn key(&self) -> Option<Cow<'_, str>> {
        crate::scalar::key_text(self.resolve())
    }

    pub(crate) fn is_merge_key(&self) -> bool {
        self.text == "<<"
            && (self.style == ScalarStyle::Plain && self.tag == Tag::None || self.tag == Tag::Merge)
    }
}

/// A comment of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comment<'s> {
    /// From the `#` to the end of the line, without the line break.
    pub span: Span,
    /// The text after the `#`, without spaces around it.
    pub text: &'s str,
    /// The line it sits on, counted from 1.
    pub line: usize,
    /// Whether nothing else is on that line.
    pub own_line: bool,
}
