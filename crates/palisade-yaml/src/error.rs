//! What can be wrong with a text, and where.
//!
//! Every message is one lower-case phrase without a full stop, ready to stand beside an excerpt of the source.

use std::fmt;

use crate::Span;

/// Why a document cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong, for programs.
    pub kind: ErrorKind,
    /// Where, in bytes of the source.
    pub span: Span,
    /// What is wrong, for people.
    pub message: String,
    /// A second place that explains the first, and what is there.
    pub related: Option<(Span, String)>,
    /// The position of the document in the stream, counted from 0 and with empty documents left out.
    pub document: usize,
}

impl Error {
    /// In a box, because results of this crate's inner functions should be small: errors are rare.
    pub(crate) fn new(kind: ErrorKind, span: Span, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { kind, span, message: message.into(), related: None, document: 0 })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not YAML.
    Syntax,
    /// `*name` without an `&name` before it in the same document.
    UnknownAnchor,
    /// `*name` inside the node that `&name` marks: the value would contain itself.
    CyclicAlias,
    /// Written out, the aliases would make more nodes than [`Limits::max_expanded_nodes`](crate::Limits).
    AliasBomb,
    /// Nested deeper than [`Limits::max_depth`](crate::Limits).
    TooDeep,
    /// More bytes or nodes than the [`Limits`](crate::Limits) allow.
    TooLarge,
    /// A mapping key that is null, a list or a mapping: JSON has no such keys.
    InvalidKey,
    /// A tag that is not one of YAML's own, or does not fit its value.
    InvalidTag,
    /// `<<` with a value that is neither a mapping nor a list of mappings.
    InvalidMerge,
}

/// A key that a mapping has twice.
///
/// This is a list of its own and not an [`Error`], because upstream has two decoders: a lenient decoder takes the
/// last value, strict decoding rejects the document. The caller decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateKey {
    /// The key as it reads.
    pub key: String,
    /// The key's first place.
    pub first: Span,
    /// The place that repeats it.
    pub second: Span,
}

impl fmt::Display for DuplicateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key {:?} is already set in this mapping", self.key)
    }
}
