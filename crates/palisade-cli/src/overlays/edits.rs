//! Edits of a built object, as edits of the files that it is built of.

use std::collections::BTreeMap;

use palisade_base::field_path::{FieldPath, PathStep};
use palisade_kustomize::{
    Build, KUSTOMIZATION_FILES, Source,
    tree::{Node, Origin},
};
use palisade_policy::standards::finding::Edit;
use palisade_yaml::{Editor, Limits, NodeId, NodeRef, Step, WhenEmpty, parse};
use serde_json::Value;

use crate::fix::written;

/// An edit of a document of a source.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SourceEdit {
    pub(super) source: usize,
    pub(super) document: usize,
    /// With the path from the root of that document.
    pub(super) edit: Edit,
}

fn step_of<'n>(node: &'n Node, step: &PathStep) -> Option<&'n Node> {
    match step {
        PathStep::Field(name) => node.get(name),
        PathStep::Key(key) => node.get(key),
        PathStep::Index(index) => node.items().get(*index),
    }
}

/// The edit of a source that makes an edit of a built object; `Ok(None)` if there is nothing to edit, an error if there is no
/// such edit.
pub(super) fn mapped(build: &Build, object: &Node, edit: &Edit) -> Result<Option<SourceEdit>, NotMapped> {
    let steps = edit.path().steps();
    let (mut node, mut depth) = (object, 0);
    while let Some(next) = steps.get(depth).and_then(|step| step_of(node, step)) {
        (node, depth) = (next, depth + 1);
    }
    let rest = steps.get(depth..).unwrap_or_default();
    if matches!(edit, Edit::Remove(_)) && !rest.is_empty() {
        return Ok(None);
    }
    let origin = node.origin.ok_or(NotMapped)?;
    let source = build.sources.get(origin.source).ok_or(NotMapped)?;
    let is_generated = source.inside.is_none()
        && source.file.rsplit('/').next().is_some_and(|name| KUSTOMIZATION_FILES.contains(&name));
    // What a transformer writes has no text of its own.
    let is_verbatim = source.inside.as_ref().is_none_or(|inside| inside.lines.is_some());
    if is_generated || !is_verbatim {
        return Err(NotMapped);
    }
    let mut path = path_of(source, origin).ok_or(NotMapped)?;
    path.extend(rest.iter().cloned());
    let path = FieldPath::from(path);
    let edit = match edit {
        Edit::Set(_, value) => Edit::Set(path, value.clone()),
        Edit::Append(_, value) if rest.is_empty() => Edit::Append(path, value.clone()),
        Edit::Append(_, value) => Edit::Set(path, Value::Array(vec![value.clone()])),
        Edit::Remove(_) => Edit::Remove(path),
    };
    Ok(Some(SourceEdit { source: origin.source, document: origin.document, edit }))
}

/// There is no text that decides about the value alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotMapped;

/// The path of a node in its document.
fn path_of(source: &Source, origin: Origin) -> Option<Vec<PathStep>> {
    let parsed = parse(&source.text, &Limits::default());
    let document = parsed.documents.iter().find(|document| document.index() == origin.document)?;
    let mut path = Vec::new();
    find(document.root(), origin.node, &mut path).then_some(path)
}

fn find(node: NodeRef<'_>, wanted: NodeId, path: &mut Vec<PathStep>) -> bool {
    if node.id() == wanted {
        return true;
    }
    if node.target().id() != node.id() {
        // What is written elsewhere is found there.
        return false;
    }
    for (index, item) in node.items().enumerate() {
        path.push(PathStep::Index(index));
        if find(item, wanted, path) {
            return true;
        }
        path.pop();
    }
    for (key, value) in node.written_pairs() {
        let Some(name) = key.as_str() else { continue };
        path.push(PathStep::Field(name.to_owned().into()));
        if find(value, wanted, path) {
            return true;
        }
        path.pop();
    }
    false
}

/// The new texts of the files of a build, by their names; `None` if an edit cannot be written.
pub(super) fn apply(build: &Build, edits: &[&SourceEdit]) -> Option<BTreeMap<String, String>> {
    let mut by_source: BTreeMap<usize, Vec<&SourceEdit>> = BTreeMap::new();
    for edit in edits {
        let of_source = by_source.entry(edit.source).or_default();
        if !of_source.contains(edit) {
            of_source.push(edit);
        }
    }
    let mut texts: BTreeMap<usize, String> = BTreeMap::new();
    // Inline patches have no edits of their outer text, so that their places stay; the last is replaced first.
    let mut inner: Vec<(usize, usize, usize, String)> = Vec::new();
    for (index, edits) in by_source {
        let source = build.sources.get(index)?;
        let text = edited(&source.text, &edits)?;
        let Some(inside) = &source.inside else {
            texts.insert(index, text);
            continue;
        };
        let outer = build.sources.get(inside.outer)?;
        let starts = inside.lines.as_ref()?;
        let (first, last) = (*starts.first()?, *starts.last()?);
        let begin = outer.text.get(..first)?.rfind('\n').map_or(0, |at| at + 1);
        let end = outer.text.get(last..)?.find('\n').map_or(outer.text.len(), |at| last + at);
        let indent = outer.text.get(begin..first)?;
        let lines = text.lines().map(|line| match line {
            "" => String::new(),
            line => format!("{indent}{line}"),
        });
        inner.push((inside.outer, begin, end, lines.collect::<Vec<_>>().join("\n")));
    }
    inner.sort_by_key(|(_, begin, ..)| std::cmp::Reverse(*begin));
    for (outer, begin, end, new) in inner {
        let text = match texts.remove(&outer) {
            Some(text) => text,
            None => build.sources.get(outer)?.text.clone(),
        };
        texts.insert(outer, format!("{}{new}{}", text.get(..begin)?, text.get(end..)?));
    }
    let mut files = BTreeMap::new();
    for (index, text) in texts {
        let file = &build.sources.get(index)?.file;
        // A file that is read twice has two sources; edits of both would contradict each other.
        if files.insert(file.clone(), text).is_some() {
            return None;
        }
    }
    Some(files)
}

fn edited(text: &str, edits: &[&SourceEdit]) -> Option<String> {
    let parsed = parse(text, &Limits::default());
    let mut editor = Editor::new(&parsed);
    for SourceEdit { document, edit, .. } in edits {
        let position = parsed.documents.iter().position(|known| known.index() == *document)?;
        let steps: Vec<Step<'_>> = edit
            .path()
            .steps()
            .iter()
            .map(|step| match step {
                PathStep::Field(name) => Step::Key(name),
                PathStep::Key(key) => Step::Key(key),
                PathStep::Index(index) => Step::Index(*index),
            })
            .collect();
        let result = match edit {
            Edit::Set(_, value) => editor.set(position, &steps, written(value)),
            Edit::Append(_, value) => editor.append(position, &steps, written(value)),
            Edit::Remove(_) => editor.remove(position, &steps, WhenEmpty::Prune),
        };
        // What cannot be written is not fixed.
        result.ok()?;
    }
    editor.finish().ok()
}
