//! Edits that change what they name, and no other byte.
//!
//! Edits are queued by path, planned on the text as it was read, and applied at once. The result is read again and
//! compared with what the edits mean ([`change`]) before it is returned, so a mistake in the layout code is an error
//! and never a broken or silently different manifest.
//!
//! | what | how |
//! |---|---|
//! | new entries | at the end of their mapping, in its style: block with the document's indentation, flow, or JSON |
//! | lists of short scalars | in brackets if most such lists of the document are, otherwise one item per line |
//! | strings | without quotes where YAML 1.1 and 1.2 allow it; otherwise in the kind of quotes the document prefers |
//! | removed entries | go with the comment on their line; comments on lines of their own stay |
//! | aliases | `key: *a`, edited below, becomes a mapping with `<<: *a` and the change; other users of the anchor keep their value |
//! | merge keys | an explicit key is added after `<<`; a key that has to go makes `<<` be written out |

mod change;
mod plan;
mod splice;
mod style;
mod value;
mod write;

use std::collections::{BTreeMap, HashSet};

use thiserror::Error;

pub use value::Value;
pub use write::to_yaml;

use self::{
    change::{Change, Planned, wrong_kind},
    plan::{Pass, Planner},
    style::Style,
};
use crate::{
    Document, Limits, Parsed, Span,
    document::{Kind, NodeId},
    lines::line_end,
    parse,
    path::{DisplayPath, Step},
};

/// Why an edit is not possible. Paths read like `spec.containers[0].image`.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EditError {
    /// The text has fewer documents.
    #[error("there is no document {document}")]
    NoDocument {
        /// The position that was requested.
        document: usize,
    },
    /// The path to remove or to append to leads nowhere.
    #[error("there is no `{path}`")]
    NotFound {
        /// The path.
        path: String,
    },
    /// The path leads through something else than it names.
    #[error("`{path}` is {found}, not {wanted}")]
    WrongKind {
        /// The part of the path that exists.
        path: String,
        /// What is there.
        found: &'static str,
        /// What the next step needs.
        wanted: &'static str,
    },
    /// An item beyond the end of a list, with a hole before it.
    #[error("`{path}` is beyond the end of the list, which has {len} items")]
    OutOfRange {
        /// The path.
        path: String,
        /// How many items there are.
        len: usize,
    },
    /// The document itself cannot be removed.
    #[error("a whole document cannot be removed")]
    Root,
    /// The entry is written as `? key`, which is not edited.
    #[error("the entry `{key}` is written with `?`, which is not supported")]
    ExplicitKey {
        /// The key.
        key: String,
    },
    /// The text cannot be edited without changing something else. The text is left as it is.
    #[error("the edit cannot be written without changing other values")]
    NotFaithful,
}

/// What to do with a mapping or list that a removal leaves empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenEmpty {
    /// It stays, as `{}` or `[]`.
    Keep,
    /// It goes as well, and so on upwards.
    Prune,
}

/// A piece of text to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextEdit {
    /// The bytes of the source to replace; empty for an insertion.
    pub span: Span,
    /// What to put there.
    pub text: String,
}

/// Collects edits to the documents of a text.
///
/// Paths always refer to the document as it was read: removing item 0 does not renumber item 1. Documents are counted
/// as in [`Parsed::documents`].
#[derive(Clone, Debug)]
pub struct Editor<'p, 's> {
    parsed: &'p Parsed<'s>,
    changes: BTreeMap<usize, Change>,
}

impl<'p, 's> Editor<'p, 's> {
    /// No edits yet.
    #[must_use]
    pub const fn new(parsed: &'p Parsed<'s>) -> Self {
        Self { parsed, changes: BTreeMap::new() }
    }

    /// Sets a value: replaces the one that is there, or adds it with all parents that are missing. An index one past
    /// the end of a list adds an item.
    pub fn set(
        &mut self,
        document: usize,
        path: &[Step<'_>],
        value: impl Into<Value>,
    ) -> Result<(), EditError> {
        self.check(document, path, Purpose::Set)?;
        self.changes.entry(document).or_default().set(path, value.into())
    }

    /// Adds an item to the end of a list, which is created if it is missing or null.
    pub fn append(
        &mut self,
        document: usize,
        path: &[Step<'_>],
        value: impl Into<Value>,
    ) -> Result<(), EditError> {
        self.check(document, path, Purpose::Append)?;
        self.changes.entry(document).or_default().append(path, value.into())
    }

    /// Removes a mapping's entry or a list's item.
    pub fn remove(
        &mut self,
        document: usize,
        path: &[Step<'_>],
        when_empty: WhenEmpty,
    ) -> Result<(), EditError> {
        if path.is_empty() {
            return Err(EditError::Root);
        }
        self.check(document, path, Purpose::Remove)?;
        self.changes.entry(document).or_default().remove(path, when_empty == WhenEmpty::Prune)
    }

    /// The replacements that make up the edits, in the order of the source and without overlaps.
    pub fn text_edits(&self) -> Result<Vec<TextEdit>, EditError> {
        let mut edits = Vec::new();
        for (&index, change) in &self.changes {
            let document = self.document(index)?;
            edits.extend(self.plan(index, document, change)?);
        }
        Ok(edits)
    }

    /// The edited text.
    pub fn finish(self) -> Result<String, EditError> {
        apply(self.parsed.source(), &self.text_edits()?).ok_or(EditError::NotFaithful)
    }

    fn document(&self, index: usize) -> Result<&'p Document<'s>, EditError> {
        self.parsed.documents.get(index).ok_or(EditError::NoDocument { document: index })
    }

    /// Refuses paths that cannot be followed. What earlier edits have put there is checked when the edit is queued.
    fn check(&self, document: usize, path: &[Step<'_>], purpose: Purpose) -> Result<(), EditError> {
        let mut at = Some(self.document(document)?.root());
        let mut change = self.changes.get(&document);
        for (depth, &step) in path.iter().enumerate() {
            if change.is_some_and(|change| change.action.is_some()) {
                return Ok(());
            }
            let before = path.get(..depth).unwrap_or_default();
            let next = match (at, step) {
                (Some(node), Step::Key(key)) if node.is_mapping() => node.get(key),
                (Some(node), Step::Index(index)) if node.is_sequence() => {
                    let len = node.items().len();
                    if index > len {
                        let path = DisplayPath(path.get(..=depth).unwrap_or_default()).to_string();
                        return Err(EditError::OutOfRange { path, len });
                    }
                    node.item(index)
                }
                (Some(node), step) if !node.is_null() => {
                    return Err(wrong_kind(before, Value::of(node).name(), matches!(step, Step::Key(_))));
                }
                (_, Step::Index(index)) if index > 0 => {
                    let path = DisplayPath(path.get(..=depth).unwrap_or_default()).to_string();
                    return Err(EditError::OutOfRange { path, len: 0 });
                }
                _ => None,
            };
            change = change.and_then(|change| match step {
                Step::Key(key) => change.child(key),
                Step::Index(index) => change.item(index),
            });
            if next.is_none() && purpose == Purpose::Remove && change.is_none() {
                return Err(EditError::NotFound { path: DisplayPath(path).to_string() });
            }
            at = next;
        }
        if purpose == Purpose::Append
            && change.is_none_or(|change| change.action.is_none())
            && let Some(node) = at
            && !node.is_sequence()
            && !node.is_null()
        {
            return Err(wrong_kind(path, Value::of(node).name(), false));
        }
        Ok(())
    }

    fn plan(
        &self,
        index: usize,
        document: &Document<'_>,
        change: &Change,
    ) -> Result<Vec<TextEdit>, EditError> {
        let expected = match change.apply(Some(Value::of(document.root()))) {
            Planned::Is(value) => value,
            // The document stays when everything in it is pruned.
            Planned::Gone { .. } if document.root().is_mapping() => Value::Map(Vec::new()),
            Planned::Gone { .. } => Value::List(Vec::new()),
        };
        let style = Style::of(document);
        // A comment below could become a part of a block of text; quotes are always safe.
        let quoting = Style { literals: false, ..style.clone() };
        self.plan_in(&style, index, document, change, &expected)
            .or_else(|_| self.plan_in(&quoting, index, document, change, &expected))
    }

    fn plan_in(
        &self,
        style: &Style,
        index: usize,
        document: &Document<'_>,
        change: &Change,
        expected: &Value,
    ) -> Result<Vec<TextEdit>, EditError> {
        let run = |pass: Pass<'_>| Planner::new(document, style, pass).run(change);
        // First only what is written in its own place, to learn which anchors that would change.
        let direct = run(Pass::Direct)?;
        if !document.has_aliases {
            return if self.yields(index, &direct, expected) {
                Ok(direct)
            } else {
                Err(EditError::NotFaithful)
            };
        }
        let mut dirty = dirty_anchors(document, &direct);
        let edits = run(Pass::Shared(&dirty))?;
        if self.yields(index, &edits, expected) {
            return Ok(edits);
        }
        // Another alias uses a value that changes, or that is gone: it gets a copy of the old one.
        loop {
            let edits = run(Pass::Expanded(&dirty))?;
            if self.yields(index, &edits, expected) {
                return Ok(edits);
            }
            let known = dirty.len();
            dirty.extend(dirty_anchors(document, &edits));
            if dirty.len() == known {
                return Err(EditError::NotFaithful);
            }
        }
    }

    /// Whether the edits make the document what it should be, and leave the others alone.
    fn yields(&self, index: usize, edits: &[TextEdit], expected: &Value) -> bool {
        let Some(text) = apply(self.parsed.source(), edits) else { return false };
        // The original has passed the caller's limits; an edit adds little to that.
        let limits = Limits {
            max_bytes: usize::MAX,
            max_nodes: usize::MAX,
            max_expanded_nodes: u64::MAX,
            max_depth: 1000,
            max_errors: usize::MAX,
        };
        let parsed = parse(&text, &limits);
        parsed.documents.len() == self.parsed.documents.len()
            && parsed.errors.len() <= self.parsed.errors.len()
            && parsed.documents.get(index).is_some_and(|document| Value::of(document.root()).means(expected))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Set,
    Append,
    Remove,
}

/// The nodes with an anchor whose text is edited, or that contain an alias to one of these.
fn dirty_anchors(document: &Document<'_>, edits: &[TextEdit]) -> HashSet<NodeId> {
    let source = document.source();
    let ids = || (0..document.nodes.len()).filter_map(|at| u32::try_from(at).ok()).map(NodeId);
    let anchored: Vec<NodeId> = ids().filter(|&id| document.node(id).anchored).collect();
    let reach = |id: NodeId| {
        let node = document.node(id);
        // An entry added at the end of a block is inserted at the end of its last line.
        Span::new(node.outer_start, line_end(source, node.span.end))
    };
    let touched = |id: &NodeId| {
        let reach = reach(*id);
        edits.iter().any(|edit| edit.span.start <= reach.end && reach.start <= edit.span.end)
    };
    let mut dirty: HashSet<NodeId> = anchored.iter().copied().filter(touched).collect();
    loop {
        let uses = |inside: NodeId| {
            let span = document.node(inside).span;
            ids().any(|id| match document.node(id).kind {
                Kind::Alias(target) => dirty.contains(&target) && span.covers(document.node(id).span),
                _ => false,
            })
        };
        let more: Vec<NodeId> =
            anchored.iter().copied().filter(|&id| !dirty.contains(&id) && uses(id)).collect();
        if more.is_empty() {
            return dirty;
        }
        dirty.extend(more);
    }
}

/// Applies edits that are in order; `None` if they overlap.
fn apply(source: &str, edits: &[TextEdit]) -> Option<String> {
    let mut out =
        String::with_capacity(source.len() + edits.iter().map(|edit| edit.text.len()).sum::<usize>());
    let mut at = 0;
    for edit in edits {
        out.push_str(source.get(at..edit.span.start)?);
        out.push_str(&edit.text);
        at = edit.span.end;
    }
    out.push_str(source.get(at..)?);
    Some(out)
}
