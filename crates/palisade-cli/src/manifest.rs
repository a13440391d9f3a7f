//! The objects of a document: the document itself, or the items of a `List`.

use palisade_model::workload::{WorkloadKind, workload_kind};
use palisade_yaml::{Document, NodeRef};

use crate::source_map::ObjectSource;

/// One object of a document.
#[derive(Debug)]
pub struct Object<'d> {
    /// Its value.
    pub node: NodeRef<'d>,
    /// Its place.
    pub source: ObjectSource<'d>,
    /// As written, or implied by the list it is in.
    pub api_version: &'d str,
    /// As written, or implied by the list it is in.
    pub kind: &'d str,
    /// How it holds a pod, if it does.
    pub workload: Option<&'static WorkloadKind>,
}

impl Object<'_> {
    /// A string of its metadata.
    #[must_use]
    pub fn metadata(&self, field: &str) -> Option<&str> {
        self.node.get("metadata").and_then(|metadata| metadata.get(field)).and_then(NodeRef::as_str)
    }

    /// Its name, or the prefix of a generated one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.metadata("name").or_else(|| self.metadata("generateName"))
    }
}

/// All objects of a document, in its order. Lists may hold lists; the reader bounds how deep.
#[must_use]
pub fn objects<'d>(document: &'d Document<'d>) -> Vec<Object<'d>> {
    let mut found = Vec::new();
    collect(document, document.root(), &mut Vec::new(), None, &mut found);
    found
}

fn collect<'d>(
    document: &'d Document<'d>,
    node: NodeRef<'d>,
    items: &mut Vec<usize>,
    implied: Option<(&'d str, &'d str)>,
    found: &mut Vec<Object<'d>>,
) {
    let text = |field: &str| node.get(field).and_then(NodeRef::as_str);
    let (api_version, kind) = match (text("apiVersion"), text("kind"), implied) {
        (Some(api_version), Some(kind), _) => (api_version, kind),
        // Items of a typed list, such as a `PodList`, need not say what they are.
        (_, _, Some(implied)) => implied,
        (api_version, kind, None) => (api_version.unwrap_or_default(), kind.unwrap_or_default()),
    };
    if let Some(item_kind) = kind.strip_suffix("List")
        && let Some(list) = node.get("items").map(NodeRef::target).filter(|list| list.is_sequence())
    {
        let implied = (!item_kind.is_empty()).then_some((api_version, item_kind));
        for (index, item) in list.items().enumerate() {
            items.push(index);
            collect(document, item.target(), items, implied, found);
            items.pop();
        }
        return;
    }
    let workload = workload_kind(api_version, kind);
    let source = ObjectSource::new(document, items.clone());
    found.push(Object { node, source, api_version, kind, workload });
}
