//! Pods carry the zone and the region of their node.
//!
//! Implements: the plugin PodTopologyLabels, KEP-4742.
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#podtopologylabels>

use serde_json::{Map, Value, json};

use crate::admission_chain::{Admission, Cluster, InReview, Notes, Operation, Plugin, Request};
use crate::meta;

const LABELS: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// The plugin's name.
pub(crate) const NAME: &str = "PodTopologyLabels";

/// The labels that pods of a node get.
pub(crate) fn labels_of(cluster: &dyn Cluster, node: &str) -> Map<String, Value> {
    let Some(node) = cluster.get("nodes", "", node) else { return Map::new() };
    let labels =
        LABELS.iter().filter_map(|key| node.label(key).map(|value| ((*key).to_owned(), value.into())));
    labels.collect()
}

/// Sets labels of an object.
pub(crate) fn set(object: &mut Value, labels: Map<String, Value>) {
    if labels.is_empty() {
        return;
    }
    meta::edit_metadata(object, |metadata| {
        let own = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(own) = own.as_object_mut() {
            own.extend(labels);
        }
    });
}

/// The plugin, for pods that are created with a node; bindings set the labels themselves.
#[derive(Debug, Clone, Copy)]
pub struct PodTopologyLabels;

impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        NAME
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        if request.operation != Operation::Create
            || !request.is("", "pods")
            || !request.kind.emulated.at_least(35)
        {
            return Ok(());
        }
        let node = object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
        if !node.is_empty() {
            let labels = labels_of(request.cluster, node);
            if !labels.is_empty() {
                set(object, labels);
            }
        }
        Ok(())
    }
}
