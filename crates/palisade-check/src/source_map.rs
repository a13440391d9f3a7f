//! Field path to place: where in the user's file a finding points.
//!
//! Findings name field paths of a prepared pod. In the file the field may be missing (the finding then points
//! at the parent it must be added to), may come from an annotation, or may be a whole mapping (its key is shown).

use std::cell::OnceCell;

use palisade_base::field_path::{self, FieldPath};
use palisade_model::{
    pod_view::{ContainerKind, PodView},
    profile::{apparmor, seccomp},
};
use palisade_yaml::{Document, Found, LineIndex, NodeRef, Span, Step};

use crate::diagnostic::{Label, ObjectId};

/// A text and its lines; the lines are only counted for findings.
#[derive(Debug)]
pub struct Source<'s> {
    text: &'s str,
    lines: OnceCell<LineIndex<'s>>,
}

impl<'s> Source<'s> {
    /// A text.
    #[must_use]
    pub const fn new(text: &'s str) -> Self {
        Self { text, lines: OnceCell::new() }
    }

    /// The text.
    #[must_use]
    pub const fn text(&self) -> &'s str {
        self.text
    }

    /// Its lines.
    pub fn lines(&self) -> &LineIndex<'s> {
        self.lines.get_or_init(|| LineIndex::new(self.text))
    }

    /// A label at a place.
    pub fn label(&self, span: Span, text: impl Into<String>) -> Label {
        Label::new(self.lines(), self.text, span, text)
    }
}

/// Where a field is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What to point at.
    pub span: Span,
    /// The rest of the path if the field is not there: what must be added at `span`.
    pub missing: Option<String>,
    /// The annotation that stands in for the field, if one does.
    pub annotation: Option<String>,
}

/// One object of a document: a whole document, or an item of a `List`.
#[derive(Debug, Clone)]
pub struct ObjectSource<'d> {
    document: &'d Document<'d>,
    id: ObjectId,
}

impl<'d> ObjectSource<'d> {
    /// The object at `items` of nested lists.
    #[must_use]
    pub const fn new(document: &'d Document<'d>, items: Vec<usize>) -> Self {
        Self { document, id: ObjectId { document: document.index(), items } }
    }

    /// Which object of the file it is.
    #[must_use]
    pub const fn id(&self) -> &ObjectId {
        &self.id
    }

    /// The path from the document's root.
    fn steps<'p>(&self, path: &'p FieldPath) -> Vec<Step<'p>> {
        let mut steps = Vec::with_capacity(2 * self.id.items.len() + path.steps().len());
        for &item in &self.id.items {
            steps.extend([Step::Key("items"), Step::Index(item)]);
        }
        steps.extend(path.steps().iter().map(|step| match step {
            field_path::PathStep::Field(name) => Step::Key(name),
            field_path::PathStep::Key(key) => Step::Key(key),
            field_path::PathStep::Index(index) => Step::Index(*index),
        }));
        steps
    }

    /// Where a field is. `pod` has the annotations that may replace it.
    #[must_use]
    pub fn place(&self, path: &FieldPath, pod: Option<&PodView<'_, '_>>) -> Place {
        let steps = self.steps(path);
        let missing = match self.document.find(&steps) {
            Ok(found) => return Place { span: value_span(&found), missing: None, annotation: None },
            Err(missing) => missing,
        };
        if let Some(key) = pod.and_then(|pod| annotation_behind(path, pod))
            && let Some(view) = pod
        {
            let annotation = view.annotation_path(&key);
            if let Ok(found) = self.document.find(&self.steps(&annotation)) {
                return Place { span: value_span(&found), missing: None, annotation: Some(key) };
            }
        }
        let prefix = 2 * self.id.items.len();
        let rest =
            path.steps().iter().skip(missing.depth.saturating_sub(prefix)).cloned().collect::<Vec<_>>();
        Place {
            span: parent_span(&missing.ancestor),
            missing: Some(FieldPath::from(rest).to_string()),
            annotation: None,
        }
    }

    /// Where a field is, if it is there.
    #[must_use]
    pub fn find(&self, path: &FieldPath) -> Option<Span> {
        self.document.find(&self.steps(path)).ok().map(|found| value_span(&found))
    }

    /// Where the object has its `apiVersion` and `kind`.
    #[must_use]
    pub fn head(&self) -> Span {
        for field in ["kind", "metadata"] {
            if let Some(span) = self.find(&FieldPath::of(&[field])) {
                return span;
            }
        }
        self.document.find(&self.steps(&FieldPath::root())).map_or_else(|_| Span::at(0), |f| parent_span(&f))
    }
}

/// A scalar is shown itself, everything else by its key.
fn value_span(found: &Found<'_>) -> Span {
    let written = found.written.span();
    if found.value.as_scalar().is_some() && !written.is_empty() {
        return written;
    }
    found.key.unwrap_or_else(|| parent_span(found))
}

/// A parent is shown by its key; an item of a list by its name, or by how it begins.
fn parent_span(found: &Found<'_>) -> Span {
    if let Some(key) = found.key {
        return key;
    }
    named_entry(found.value).unwrap_or_else(|| found.written.span())
}

fn named_entry(value: NodeRef<'_>) -> Option<Span> {
    let entries = value.entries();
    let entry = entries.iter().find(|entry| entry.key == "name").or_else(|| entries.first())?;
    let span = entry.value.span();
    let key = entry.key_node.span();
    let scalar = entry.value.as_scalar().is_some() && !span.is_empty() && span.start >= key.start;
    Some(if scalar { Span::new(key.start, span.end) } else { key })
}

/// The annotation that is equivalent to this field, if the pod has it.
#[must_use]
pub fn annotation_behind(path: &FieldPath, pod: &PodView<'_, '_>) -> Option<String> {
    let steps = path.steps();
    let field = |name: &str| {
        steps.iter().any(|step| matches!(step, field_path::PathStep::Field(field) if field == name))
    };
    let (is_seccomp, is_app_armor) = (field("seccompProfile"), field("appArmorProfile"));
    if !is_seccomp && !is_app_armor {
        return None;
    }
    let container =
        [ContainerKind::Init, ContainerKind::App, ContainerKind::Ephemeral].into_iter().find_map(|kind| {
            let list = steps
                .iter()
                .position(|step| matches!(step, field_path::PathStep::Field(f) if f == kind.field()))?;
            let Some(field_path::PathStep::Index(index)) = steps.get(list + 1) else { return None };
            pod.containers().find(|container| container.kind == kind && container.index == *index)
        });
    let key = match container {
        Some(container) if is_seccomp => seccomp::container_annotation(container.name()),
        Some(container) => apparmor::annotation(container.name()),
        None if is_seccomp => seccomp::POD_ANNOTATION.to_owned(),
        None => return None,
    };
    pod.metadata().annotations.contains(&key).then_some(key)
}

impl<'d> ObjectSource<'d> {
    /// The string at a path, and where it is.
    #[must_use]
    pub fn text(&self, path: &FieldPath) -> Option<(Span, &'d str)> {
        let found = self.document.find(&self.steps(path)).ok()?;
        let text = found.value.as_str()?;
        Some((value_span(&found), text))
    }
}

/// The offsets of lines and columns in a text.
#[derive(Debug)]
pub struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    /// Finds the lines.
    #[must_use]
    pub fn new(text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// The byte of a column that is counted in characters.
    #[must_use]
    pub fn offset(&self, line: usize, column: usize) -> usize {
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        let rest = self.text.get(start..).unwrap_or_default();
        start + rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(at, _)| at)
    }
}
