//! Selectors of patches and replacements: regular expressions for names, label selectors for labels and annotations.

use palisade_apimachinery::selector::parse_labels;
use palisade_base::label_selector::LabelSelector;
use regex::Regex;

use crate::{error::ProblemKind, object::Object, tree::Node};

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
        let is = |pattern: &Option<Regex>, text: &str| pattern.as_ref().is_none_or(|p| p.is_match(text));
        let either = |pattern: &Option<Regex>, a: &str, b: &str| is(pattern, a) || is(pattern, b);
        let selected = |selector: &Option<LabelSelector>, field: &str| {
            let of_object = object.node.at(&["metadata", field]);
            selector.as_ref().is_none_or(|selector| {
                selector
                    .matches_with(|key| of_object.and_then(|labels| labels.get(key)).and_then(Node::as_str))
            })
        };
        is(&self.group, now.group())
            && is(&self.version, now.version())
            && is(&self.kind, &now.kind)
            && either(&self.name, &first.name, &now.name)
            && either(&self.namespace, first.effective_namespace(), now.effective_namespace())
            && selected(&self.labels, "labels")
            && selected(&self.annotations, "annotations")
    }
}
