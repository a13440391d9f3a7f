//! HorizontalPodAutoscaler of `autoscaling/v1`, which is stored as `autoscaling/v2`.
//!
//! Implements: the conversions of `pkg/apis/autoscaling/v1`. What v1 has no field for is kept in annotations, as JSON.

use palisade_base::field_path::Path;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{Strategy, infrastructure, set_default, update_spec_or_status, validate_meta_only};
use crate::rest::meta;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// An annotation that holds what v1 has no field for cannot be read.
#[derive(Debug, Error)]
#[error("annotation {annotation} cannot be read: {source}")]
pub struct UnreadableAnnotation {
    annotation: &'static str,
    #[source]
    source: serde_json::Error,
}

pub(crate) static AUTOSCALER_V1: Strategy = Strategy {
    default: |object, _| {
        if let Some(spec) = super::section(object, "spec") {
            set_default(spec, "minReplicas", 1);
        }
    },
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
    },
    prepare_update: update_spec_or_status,
    validate: |object, kind, errors| {
        validate_meta_only(object, kind, errors);
        validate(object, errors);
    },
    validate_update: |new, old, subresource, _, errors| {
        meta::validate_update(new, old, errors);
        if subresource.is_empty() {
            validate(new, errors);
        }
    },
    reset_fields: infrastructure::spec_or_status,
};

fn validate(object: &Value, errors: &mut Errors) {
    match to_v2(object.clone()) {
        Ok(object) => infrastructure::validate_autoscaler(&object, errors),
        Err(error) => {
            let metadata = Path::Root("metadata");
            let at = metadata.field("annotations");
            let text = object.pointer("/metadata/annotations").map_or("", |all| all.text(error.annotation));
            errors.invalid(&at.key(error.annotation), text, error.source.to_string());
        }
    }
}

impl Kind {
    /// Whether objects of this kind are stored in another version of its group.
    #[must_use]
    pub fn is_stored_otherwise(&self) -> bool {
        self.kind == "HorizontalPodAutoscaler"
            && self.version == "v1"
            && self.group == "autoscaling"
            && !self.is_custom()
    }

    /// The version that objects of this built-in kind are stored in.
    #[must_use]
    pub fn stored_version(&self) -> &str {
        if self.is_stored_otherwise() { "v2" } else { &self.version }
    }
}

/// The fields of the sources of metrics, in both versions.
struct Source {
    name: &'static str,
    /// Where v1 has the name of the metric; a resource has it in the source.
    metric: Option<(&'static str, &'static str)>,
    /// What v1 calls the value and the average of the target.
    target: [Option<&'static str>; 2],
    /// What it calls them of the current value.
    current: [Option<&'static str>; 2],
}

const SOURCES: &[(&str, Source)] = &[
    (
        "Object",
        Source {
            name: "object",
            metric: Some(("metricName", "selector")),
            target: [Some("targetValue"), Some("averageValue")],
            current: [Some("currentValue"), Some("averageValue")],
        },
    ),
    (
        "Pods",
        Source {
            name: "pods",
            metric: Some(("metricName", "selector")),
            target: [None, Some("targetAverageValue")],
            current: [None, Some("currentAverageValue")],
        },
    ),
    (
        "Resource",
        Source {
            name: "resource",
            metric: None,
            target: [None, Some("targetAverageValue")],
            current: [None, Some("currentAverageValue")],
        },
    ),
    (
        "ContainerResource",
        Source {
            name: "containerResource",
            metric: None,
            target: [None, Some("targetAverageValue")],
            current: [None, Some("currentAverageValue")],
        },
    ),
    (
        "External",
        Source {
            name: "external",
            metric: Some(("metricName", "metricSelector")),
            target: [Some("targetValue"), Some("targetAverageValue")],
            current: [Some("currentValue"), Some("currentAverageValue")],
        },
    ),
];

fn copy(from: &Value, key: &str, to: &mut Map<String, Value>, name: &str) {
    if let Some(value) = from.child(key) {
        to.insert(name.to_owned(), value.clone());
    }
}

/// A metric of v2 as v1 writes it. `part` is `target` or `current`.
fn metric_to_v1(metric: &Value, part: &str) -> Value {
    let kind = metric.text("type");
    let mut out = Map::from_iter([("type".to_owned(), kind.into())]);
    let Some((_, names)) = SOURCES.iter().find(|(name, _)| *name == kind) else { return Value::Object(out) };
    let Some(source) = metric.child(names.name) else { return Value::Object(out) };
    let mut fields = Map::new();
    copy(source, "describedObject", &mut fields, "target");
    copy(source, "name", &mut fields, "name");
    copy(source, "container", &mut fields, "container");
    if let (Some((name, selector)), Some(metric)) = (names.metric, source.child("metric")) {
        copy(metric, "name", &mut fields, name);
        copy(metric, "selector", &mut fields, selector);
    }
    if let Some(values) = source.child(part) {
        let [value, average] = if part == "target" { names.target } else { names.current };
        for (key, name) in [("value", value), ("averageValue", average)] {
            if let Some(name) = name {
                copy(values, key, &mut fields, name);
            }
        }
        let utilization =
            if part == "target" { "targetAverageUtilization" } else { "currentAverageUtilization" };
        copy(values, "averageUtilization", &mut fields, utilization);
    }
    out.insert(names.name.to_owned(), Value::Object(fields));
    Value::Object(out)
}

/// A metric as v1 writes it in the form of v2.
fn metric_to_v2(metric: &Value, part: &str) -> Value {
    let kind = metric.text("type");
    let mut out = Map::from_iter([("type".to_owned(), kind.into())]);
    let Some((_, names)) = SOURCES.iter().find(|(name, _)| *name == kind) else { return Value::Object(out) };
    let Some(source) = metric.child(names.name) else { return Value::Object(out) };
    let mut fields = Map::new();
    copy(source, "target", &mut fields, "describedObject");
    copy(source, "name", &mut fields, "name");
    copy(source, "container", &mut fields, "container");
    if let Some((name, selector)) = names.metric {
        let mut metric = Map::new();
        copy(source, name, &mut metric, "name");
        copy(source, selector, &mut metric, "selector");
        fields.insert("metric".to_owned(), Value::Object(metric));
    }
    let [value, average] = if part == "target" { names.target } else { names.current };
    let mut values = Map::new();
    for (key, name) in [("value", value), ("averageValue", average)] {
        if let Some(name) = name {
            copy(source, name, &mut values, key);
        }
    }
    let utilization = if part == "target" { "targetAverageUtilization" } else { "currentAverageUtilization" };
    copy(source, utilization, &mut values, "averageUtilization");
    if part == "target" {
        let kind = if values.contains_key("averageUtilization") {
            "Utilization"
        } else if values.contains_key("averageValue") {
            "AverageValue"
        } else {
            "Value"
        };
        if kind == "AverageValue" {
            values.remove("value");
        }
        values.insert("type".to_owned(), kind.into());
    }
    fields.insert(part.to_owned(), Value::Object(values));
    out.insert(names.name.to_owned(), Value::Object(fields));
    Value::Object(out)
}

/// Upstream writes the behavior with the names of Go's fields.
fn renamed(value: &Value, rename: fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => map.iter().map(|(key, value)| (rename(key), renamed(value, rename))).collect(),
        Value::Array(list) => list.iter().map(|value| renamed(value, rename)).collect(),
        other => other.clone(),
    }
}

fn with_first(text: &str, change: impl Fn(char) -> char) -> String {
    let mut rest = text.chars();
    rest.next().map(change).into_iter().chain(rest).collect()
}

fn go_name(field: &str) -> String {
    with_first(field, |first| first.to_ascii_uppercase())
}

fn json_name(field: &str) -> String {
    with_first(field, |first| first.to_ascii_lowercase())
}

/// Whether v1 has a field for a metric of v2.
fn is_cpu_utilization(metric: &Value) -> bool {
    metric.text("type") == "Resource"
        && metric.child("resource").is_some_and(|resource| {
            resource.text("name") == "cpu" && resource.at(&["target", "averageUtilization"]).is_some()
        })
}

/// An autoscaler of v2 in the form of v1.
#[must_use]
pub fn to_v1(object: &Value) -> Value {
    let empty = Value::Null;
    let (old_spec, old_status) =
        (object.get("spec").unwrap_or(&empty), object.get("status").unwrap_or(&empty));
    let (mut spec, mut status) = (Map::new(), Map::new());
    for field in ["scaleTargetRef", "minReplicas", "maxReplicas"] {
        copy(old_spec, field, &mut spec, field);
    }
    let metrics = old_spec.list("metrics");
    if let Some(cpu) = metrics.iter().find(|metric| is_cpu_utilization(metric)) {
        let target = cpu.at(&["resource", "target"]).unwrap_or(&empty);
        copy(target, "averageUtilization", &mut spec, "targetCPUUtilizationPercentage");
    }
    for field in ["observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas"] {
        copy(old_status, field, &mut status, field);
    }
    let current = old_status.list("currentMetrics");
    let cpu = current.iter().filter_map(|metric| metric.child("resource")).find(|r| r.text("name") == "cpu");
    if let Some(cpu) = cpu.and_then(|resource| resource.child("current")) {
        copy(cpu, "averageUtilization", &mut status, "currentCPUUtilizationPercentage");
    }
    let mut kept: Vec<(&str, Value)> = Vec::new();
    let others: Vec<Value> =
        metrics.iter().filter(|m| !is_cpu_utilization(m)).map(|m| metric_to_v1(m, "target")).collect();
    if !others.is_empty() {
        kept.push((METRICS, others.into()));
    }
    if !current.is_empty() {
        kept.push((CURRENT_METRICS, current.iter().map(|m| metric_to_v1(m, "current")).collect()));
    }
    if !old_status.list("conditions").is_empty() {
        kept.push((CONDITIONS, old_status.list("conditions").into()));
    }
    if let Some(behavior) = old_spec.child("behavior") {
        kept.push((BEHAVIOR, renamed(behavior, go_name)));
    }
    let mut out = object.clone();
    out["apiVersion"] = "autoscaling/v1".into();
    out["spec"] = Value::Object(spec);
    out["status"] = Value::Object(status);
    if let (false, Some(metadata)) = (kept.is_empty(), out.get_mut("metadata").and_then(Value::as_object_mut))
    {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            let kept = kept.into_iter().map(|(key, value)| (key.to_owned(), value.to_string().into()));
            annotations.extend(kept);
        }
    }
    out
}

/// What an annotation keeps.
fn kept(
    annotations: &mut Map<String, Value>,
    annotation: &'static str,
) -> Result<Option<Value>, UnreadableAnnotation> {
    let Some(text) = annotations.remove(annotation) else { return Ok(None) };
    let text = text.as_str().unwrap_or_default();
    let read = serde_json::from_str(text);
    read.map(Some).map_err(|source| UnreadableAnnotation { annotation, source })
}

fn kept_list(
    annotations: &mut Map<String, Value>,
    annotation: &'static str,
) -> Result<Option<Vec<Value>>, UnreadableAnnotation> {
    let Some(value) = kept(annotations, annotation)? else { return Ok(None) };
    let read = serde_json::from_value(value);
    read.map(Some).map_err(|source| UnreadableAnnotation { annotation, source })
}

/// An autoscaler of v1 in the form of v2.
///
/// # Errors
///
/// If an annotation that keeps a part of it cannot be read.
pub fn to_v2(mut object: Value) -> Result<Value, UnreadableAnnotation> {
    let mut annotations = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
        .map(std::mem::take)
        .unwrap_or_default();
    let metrics = kept_list(&mut annotations, METRICS)?;
    let current = kept_list(&mut annotations, CURRENT_METRICS)?;
    let conditions = kept_list(&mut annotations, CONDITIONS)?;
    let behavior = kept(&mut annotations, BEHAVIOR)?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if annotations.is_empty() {
            metadata.remove("annotations");
        } else {
            metadata.insert("annotations".to_owned(), Value::Object(annotations));
        }
    }
    let empty = Value::Null;
    let (old_spec, old_status) =
        (object.get("spec").unwrap_or(&empty), object.get("status").unwrap_or(&empty));
    let (mut spec, mut status) = (Map::new(), Map::new());
    for field in ["scaleTargetRef", "minReplicas", "maxReplicas"] {
        copy(old_spec, field, &mut spec, field);
    }
    let mut all = Vec::new();
    if let Some(utilization) = old_spec.child("targetCPUUtilizationPercentage") {
        let target = json!({"type": "Utilization", "averageUtilization": utilization});
        all.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    all.extend(metrics.iter().flatten().map(|metric| metric_to_v2(metric, "target")));
    if !all.is_empty() {
        spec.insert("metrics".to_owned(), all.into());
    }
    if let Some(behavior) = behavior.filter(Value::is_object) {
        spec.insert("behavior".to_owned(), renamed(&behavior, json_name));
    }
    for field in ["observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas"] {
        copy(old_status, field, &mut status, field);
    }
    if let Some(current) = current {
        let current: Vec<Value> = current.iter().map(|metric| metric_to_v2(metric, "current")).collect();
        status.insert("currentMetrics".to_owned(), current.into());
    } else if let Some(utilization) = old_status.child("currentCPUUtilizationPercentage") {
        let current = json!({"averageUtilization": utilization});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "current": current}});
        status.insert("currentMetrics".to_owned(), json!([metric]));
    }
    if let Some(conditions) = conditions {
        status.insert("conditions".to_owned(), conditions.into());
    }
    object["apiVersion"] = "autoscaling/v2".into();
    object["spec"] = Value::Object(spec);
    object["status"] = Value::Object(status);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Value {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a", "annotations": {"own": "1"}},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                "minReplicas": 2, "maxReplicas": 5,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}},
                    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                    {"type": "Pods", "pods": {"metric": {"name": "p"}, "target": {"type": "AverageValue", "averageValue": "3"}}},
                    {"type": "External", "external": {"metric": {"name": "q", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "9"}}},
                ],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 3, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}},
            },
            "status": {
                "currentReplicas": 2, "desiredReplicas": 3,
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12, "averageValue": "5m"}}}],
                "conditions": [{"type": "AbleToScale", "status": "True"}],
            },
        })
    }

    #[test]
    fn nothing_is_lost_on_the_way_through_v1() {
        let v1 = to_v1(&whole());
        assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 70);
        assert_eq!(v1["status"]["currentCPUUtilizationPercentage"], 12);
        assert_eq!(v1["metadata"]["annotations"]["own"], "1");
        let behavior = v1["metadata"]["annotations"][BEHAVIOR].as_str().unwrap();
        assert!(behavior.contains("\"StabilizationWindowSeconds\":3"), "{behavior}");
        assert_eq!(to_v2(v1).unwrap(), whole());
    }

    #[test]
    fn an_autoscaler_of_v1_has_one_metric() {
        let v1 = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
                        "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}});
        let v2 = to_v2(v1).unwrap();
        assert_eq!(
            v2["spec"]["metrics"][0]["resource"]["target"],
            json!({"type": "Utilization", "averageUtilization": 50})
        );
        assert_eq!(v2["metadata"], json!({"name": "a"}));
    }

    #[test]
    fn annotations_that_cannot_be_read_are_errors() {
        for (annotation, text) in [(METRICS, "{"), (METRICS, "{}"), (CONDITIONS, "1"), (BEHAVIOR, "nonsense")]
        {
            let object = json!({"metadata": {"annotations": {annotation: text}}});
            assert!(to_v2(object).is_err(), "{annotation}: {text}");
        }
    }
}
