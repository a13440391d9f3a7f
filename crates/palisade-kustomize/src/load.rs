//! Files and kustomizations: what they refer to, and their texts with places.

use palisade_yaml::{Limits, Span, parse};
use thiserror::Error;

use crate::tree::{Node, Origin};

/// The names that a kustomization may have.
pub const KUSTOMIZATION_FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// A file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// As it is shown to users.
    pub shown: String,
    /// Without links and `..`: what tells whether two are the same.
    pub canonical: String,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// Why a file cannot be read.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct FileProblem(pub String);

/// Where files come from.
pub trait Files {
    /// What a reference in a folder means; `None` if nothing is there.
    fn look(&self, folder: &str, reference: &str) -> Option<Located>;
    /// The bytes of a file.
    fn read(&self, file: &Located) -> Result<Vec<u8>, FileProblem>;
}

/// A text that values come from.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file, as it is shown.
    pub file: String,
    /// The text; of an inline patch only the patch.
    pub text: String,
    /// Where the text is, if it is written inside another.
    pub inside: Option<Inside>,
}

/// A text inside a value of another.
#[derive(Debug, Clone)]
pub struct Inside {
    /// The source that it is written in.
    pub outer: usize,
    /// The value.
    pub span: Span,
    /// Where its lines begin in the text of that source; `None` if they are not written as they are.
    pub lines: Option<Vec<usize>>,
}

impl Inside {
    /// Finds the lines of a text in the value that holds it.
    pub(crate) fn new(outer: usize, span: Span, text: &str, outer_text: &str) -> Self {
        let written = span.text(outer_text);
        let lines = written.starts_with('|').then(|| {
            let mut at = span.start + written.find('\n')? + 1;
            let mut starts = Vec::new();
            for line in text.lines() {
                let rest = outer_text.get(at..)?;
                let whole = rest.lines().next().unwrap_or_default();
                let indent = whole.len().checked_sub(line.len())?;
                let is_same = whole.ends_with(line) && whole.get(..indent)?.bytes().all(|byte| byte == b' ');
                if !is_same {
                    return None;
                }
                starts.push(at + indent);
                at += rest.find('\n').map_or(rest.len(), |end| end + 1);
            }
            Some(starts)
        });
        Self { outer, span, lines: lines.flatten() }
    }

    /// The place in the outer text of a place in this one.
    #[must_use]
    pub fn place(&self, text: &str, span: Span) -> Span {
        let at = |offset: usize| {
            let before = text.get(..offset)?;
            let line = before.matches('\n').count();
            let column = offset - before.rfind('\n').map_or(0, |at| at + 1);
            Some(self.lines.as_ref()?.get(line)? + column)
        };
        match (at(span.start), at(span.end)) {
            (Some(start), Some(end)) => Span::new(start, end),
            _ => self.span,
        }
    }
}

/// What a kustomization refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// As it is written.
    pub path: String,
    /// What for.
    pub used: Use,
}

/// What a reference is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A file or folder with objects.
    Resource,
    /// A component.
    Component,
    /// A patch: no object by itself.
    Patch,
}

/// What a kustomization refers to, with whether it is a component. `None` if the text is no kustomization.
#[must_use]
pub fn references(text: &str) -> Option<(bool, Vec<Reference>)> {
    let parsed = parse(text, &Limits::default());
    let document = parsed.documents.first()?;
    let root = Node::read(0, document.root())?;
    if !is_kustomization(&root) {
        return None;
    }
    let mut found = Vec::new();
    let mut add = |path: &str, used: Use| {
        // Inline patches have lines.
        if !path.is_empty() && !path.contains('\n') {
            found.push(Reference { path: path.to_owned(), used });
        }
    };
    for (field, used) in [
        ("resources", Use::Resource),
        ("bases", Use::Resource),
        ("components", Use::Component),
        ("patchesStrategicMerge", Use::Patch),
    ] {
        for item in root.get(field).map(Node::items).unwrap_or_default() {
            add(item.as_str().unwrap_or_default(), used);
        }
    }
    for field in ["patches", "patchesJson6902"] {
        for item in root.get(field).map(Node::items).unwrap_or_default() {
            add(item.text(&["path"]), Use::Patch);
        }
    }
    Some((root.text(&["kind"]) == "Component", found))
}

/// Other tools have kustomizations as well, such as Flux.
pub(crate) fn is_kustomization(root: &Node) -> bool {
    let (api_version, kind) = (root.text(&["apiVersion"]), root.text(&["kind"]));
    (api_version.is_empty() || api_version.starts_with("kustomize.config.k8s.io/"))
        && matches!(kind, "" | "Kustomization" | "Component")
        && matches!(root.value, crate::tree::Value::Map(_))
}

/// Whether a reference is on another machine.
pub(crate) fn is_remote(reference: &str) -> bool {
    reference.contains("://")
        || reference.contains("?ref=")
        || reference.starts_with("git@")
        || reference.starts_with("git::")
        || ["github.com/", "gitlab.com/", "bitbucket.org/", "dev.azure.com/", "github.com:"]
            .iter()
            .any(|host| reference.starts_with(host))
        || format!("{reference}/").contains(".git/")
        || (reference.contains("//") && !reference.starts_with(['.', '/']))
}

/// A place that a problem is at.
pub(crate) fn place(origin: Option<Origin>) -> Option<(usize, Span)> {
    origin.map(|origin| (origin.source, origin.span))
}
