//! Which objects of a range are meant: label and field selectors over stored objects. Those of built-in kinds are not parsed;
//! which fields of custom resources can be selected depends on the version.

use std::sync::Arc;

use palisade_apimachinery::selector::{FieldSelector, parse_labels};
use palisade_apimachinery::{Kind, Status};
use palisade_base::label_selector::LabelSelector;
use serde_json::Value;

use crate::http::Query;
use crate::storage::Object;

/// The selectors of a list, watch or deletecollection.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    labels: Option<LabelSelector>,
    fields: Option<FieldSelector>,
    /// The kind's selectable fields, in the order objects store their values.
    names: Vec<String>,
    /// The kind, if its fields are read from the object.
    custom: Option<Arc<Kind>>,
}

impl Selection {
    /// Reads the selectors of a request.
    pub fn parse(kind: &Arc<Kind>, query: &Query) -> Result<Self, Box<Status>> {
        let labels = query.get("labelSelector").map(parse_labels).transpose()?;
        let fields = query.get("fieldSelector").map(|text| FieldSelector::parse(kind, text)).transpose()?;
        let names: Vec<String> =
            fields.iter().flat_map(|_| kind.selectable_fields()).map(str::to_owned).collect();
        let custom = (kind.is_custom() && !names.is_empty()).then(|| kind.clone());
        Ok(Self { labels, fields, names, custom })
    }

    /// Whether everything is meant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    /// The one name that is meant, if there is one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.fields.as_ref()?.exact_name()
    }

    /// Whether an object is meant.
    #[must_use]
    pub fn matches(&self, object: &Object) -> bool {
        self.labels.as_ref().is_none_or(|labels| labels.matches_with(|key| object.label(key)))
            && self.fields.as_ref().is_none_or(|fields| match &self.custom {
                Some(kind) => fields.matches(kind, &Value::Object(object.parse())),
                None => fields.matches_with(|name| self.field(object, name)),
            })
    }

    fn field<'a>(&self, object: &'a Object, name: &str) -> &'a str {
        match name {
            "metadata.name" => object.name(),
            "metadata.namespace" => object.namespace(),
            _ => {
                let at = self.names.iter().position(|n| n == name);
                at.and_then(|at| object.fields().get(at)).map_or("", |value| value)
            }
        }
    }
}

/// What is stored beside an object: the values of the kind's selectable fields, in order; of a custom resource, the
/// `apiVersion` of what is stored.
#[must_use]
pub fn selectable_values(kind: &Kind, object: &Value) -> Vec<String> {
    if kind.is_custom() {
        let api_version = object.get("apiVersion").and_then(Value::as_str);
        return vec![api_version.map_or_else(|| kind.api_version(), str::to_owned)];
    }
    kind.selectable_fields().map(|field| kind.field_value(object, field)).collect()
}
