//! Selectors of patches and replacements: regular expressions for names, label selectors for labels and annotations.

use palisade_apimachinery::selector::parse_labels;
use palisade_base::label_selector::LabelSelector;
use regex::Regex;

use crate::{
    error::ProblemKind,
    object::{Id, Object},
    tree::Node,
};

/// Which objects a patch is for.
#[derive(Debug)]
pub(crate) struct Selector {
    group: Option<Regex>,
    version: Option<Regex>,
    kind: Option<Regex>,
    name: Option<Regex>,
    namespace: Option<Regex>,
    labels: Option<LabelSelector>,
    annotations: Option<LabelSelector>,
}

const FIELDS: [&str; 7] =
    ["group", "version", "kind", "name", "namespace", "labelSelector", "annotationSelector"];

impl Selector {
    pub(crate) fn read(node: &Node) -> Result<Self, ProblemKind> {
        if let Some((key, _)) = node.entries().iter().find(|(key, _)| !FIELDS.contains(&key.as_str())) {
            return Err(ProblemKind::UnknownField(key.clone()));
        }
        let text = |field: &'static str| match node.get(field) {
            None => Ok(None),
            Some(value) if value.is_null() => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or(ProblemKind::WrongType(field)),
        };
        let pattern = |field: &'static str| {
            let Some(text) = text(field)?.filter(|text| !text.is_empty()) else { return Ok(None) };
            let pattern = Regex::new(&format!("^(?:{text})$"));
            pattern.map(Some).map_err(|_| ProblemKind::Selector(text.to_owned()))
        };
        let labels = |field: &'static str| {
            let Some(text) = text(field)?.filter(|text| !text.is_empty()) else { return Ok(None) };
            parse_labels(text).map(Some).map_err(|_| ProblemKind::Selector(text.to_owned()))
        };
        Ok(Self {
            group: pattern("group")?,
            version: pattern("version")?,
            kind: pattern("kind")?,
            name: pattern("name")?,
            namespace: pattern("namespace")?,
            labels: labels("labelSelector")?,
            annotations: labels("annotationSelector")?,
        })
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        let (first, now) = (object.first_id(), object.id());
        let either = |pattern: Option<&Regex>, a: &str, b: &str| is(pattern, a) || is(pattern, b);
        is(self.group.as_ref(), now.group())
            && is(self.version.as_ref(), now.version())
            && is(self.kind.as_ref(), &now.kind)
            && either(self.name.as_ref(), &first.name, &now.name)
            && either(self.namespace.as_ref(), first.effective_namespace(), now.effective_namespace())
            && self.matches_labels(object)
    }

    /// Whether it names nothing that identifies an object.
    pub(crate) const fn is_for_any_id(&self) -> bool {
        self.group.is_none()
            && self.version.is_none()
            && self.kind.is_none()
            && self.name.is_none()
            && self.namespace.is_none()
    }

    /// Whether it has selectors of labels or annotations.
    pub(crate) const fn has_labels(&self) -> bool {
        self.labels.is_some() || self.annotations.is_some()
    }

    /// Whether an object that is called so is selected, whatever its labels; the namespace is the written one.
    pub(crate) fn matches_id(&self, id: &Id, namespace: &str) -> bool {
        is(self.group.as_ref(), id.group())
            && is(self.version.as_ref(), id.version())
            && is(self.kind.as_ref(), &id.kind)
            && is(self.name.as_ref(), &id.name)
            && is(self.namespace.as_ref(), namespace)
    }

    pub(crate) fn matches_labels(&self, object: &Object) -> bool {
        let selected = |selector: &Option<LabelSelector>, field: &str| {
            let of_object = object.node.at(&["metadata", field]);
            selector.as_ref().is_none_or(|selector| {
                selector
                    .matches_with(|key| of_object.and_then(|labels| labels.get(key)).and_then(Node::as_str))
            })
        };
        selected(&self.labels, "labels") && selected(&self.annotations, "annotations")
    }
}

fn is(pattern: Option<&Regex>, text: &str) -> bool {
    pattern.is_none_or(|pattern| pattern.is_match(text))
}
