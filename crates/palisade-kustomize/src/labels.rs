//! Labels and annotations of all objects, with selectors and templates.
//!
//! Implements: the field specs `commonLabels` and `commonAnnotations` of kustomize's default configuration.

use crate::{
    object::Object,
    tree::{Node, Value},
};

/// Adds pairs to the map at a path. Lists on the way stand for each of their items.
fn add(node: &mut Node, path: &[&str], pairs: &Node, create: bool) {
    if let Value::List(items) = &mut node.value {
        for item in items {
            add(item, path, pairs, create);
        }
        return;
    }
    let Some((first, rest)) = path.split_first() else {
        for (key, value) in pairs.entries() {
            node.set(key, value.clone());
        }
        return;
    };
    let next = if create { node.child(first, pairs.origin) } else { node.get_mut(first) };
    if let Some(next) = next {
        if rest.is_empty() && next.is_null() {
            *next = Node::map(pairs.origin);
        }
        add(next, rest, pairs, create);
    }
}

/// Labels of the objects themselves.
pub(crate) fn label(object: &mut Object, pairs: &Node) {
    add(&mut object.node, &["metadata", "labels"], pairs, true);
}

/// Labels of templates.
pub(crate) fn label_templates(object: &mut Object, pairs: &Node) {
    if let Some(template) = object.template() {
        add(&mut object.node, &[template, &["metadata", "labels"]].concat(), pairs, true);
    }
    match object.node.text(&["kind"]) {
        "CronJob" => add(&mut object.node, &["spec", "jobTemplate", "metadata", "labels"], pairs, true),
        "StatefulSet" if object.node.at(&["spec", "volumeClaimTemplates"]).is_some() => {
            add(&mut object.node, &["spec", "volumeClaimTemplates", "metadata", "labels"], pairs, true);
        }
        _ => {}
    }
}

/// Labels of selectors.
pub(crate) fn label_selectors(object: &mut Object, pairs: &Node) {
    let id = object.id();
    let node = &mut object.node;
    match id.kind.as_str() {
        "Service" | "ReplicationController" if id.version() == "v1" && id.group().is_empty() => {
            add(node, &["spec", "selector"], pairs, true);
        }
        "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" => {
            add(node, &["spec", "selector", "matchLabels"], pairs, true);
        }
        "Job" | "PodDisruptionBudget" => add(node, &["spec", "selector", "matchLabels"], pairs, false),
        "CronJob" => add(node, &["spec", "jobTemplate", "spec", "selector", "matchLabels"], pairs, false),
        "NetworkPolicy" => {
            for path in [
                &["spec", "podSelector", "matchLabels"][..],
                &["spec", "ingress", "from", "podSelector", "matchLabels"],
                &["spec", "egress", "to", "podSelector", "matchLabels"],
            ] {
                add(node, path, pairs, false);
            }
        }
        _ => {}
    }
    if matches!(id.kind.as_str(), "Deployment" | "StatefulSet") {
        let spec = ["spec", "template", "spec"];
        for of in ["podAffinity", "podAntiAffinity"] {
            let preferred = [
                "affinity",
                of,
                "preferredDuringSchedulingIgnoredDuringExecution",
                "podAffinityTerm",
                "labelSelector",
                "matchLabels",
            ];
            let required = [
                "affinity",
                of,
                "requiredDuringSchedulingIgnoredDuringExecution",
                "labelSelector",
                "matchLabels",
            ];
            add(node, &[&spec[..], &preferred[..]].concat(), pairs, false);
            add(node, &[&spec[..], &required[..]].concat(), pairs, false);
        }
        let spread = ["topologySpreadConstraints", "labelSelector", "matchLabels"];
        add(node, &[&spec[..], &spread[..]].concat(), pairs, false);
    }
}

/// Annotations of objects and of their templates.
pub(crate) fn annotate(object: &mut Object, pairs: &Node) {
    add(&mut object.node, &["metadata", "annotations"], pairs, true);
    if let Some(template) = object.template() {
        add(&mut object.node, &[template, &["metadata", "annotations"]].concat(), pairs, true);
    }
    if object.node.text(&["kind"]) == "CronJob" {
        add(&mut object.node, &["spec", "jobTemplate", "metadata", "annotations"], pairs, true);
    }
}

/// The labels at the path of a field spec, such as `spec/template/metadata/labels`.
pub(crate) fn label_field(object: &mut Object, path: &str, pairs: &Node, create: bool) {
    let path: Vec<&str> = path.split('/').map(|part| part.trim_end_matches("[]")).collect();
    add(&mut object.node, &path, pairs, create);
}
