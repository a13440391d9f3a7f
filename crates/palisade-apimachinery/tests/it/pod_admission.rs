//! What upstream's built-in admission plugins add to every new pod.
//!
//! Implements: `DefaultTolerationSeconds` and the part of `Priority` that needs no PriorityClass but the built-in ones.
//! Mutating admission runs after the managed fields are recorded, so nobody owns what is added here.

use palisade_apimachinery::rest::path::Get;
use serde_json::{Value, json};

/// Tolerations for a node that is not ready or unreachable, for five minutes, unless the pod has its own.
pub(crate) fn default_tolerations(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec") else { return };
    let tolerates = |taint: &str| {
        spec.list("tolerations").iter().any(|t| {
            let (key, effect) = (t.text("key"), t.text("effect"));
            (key == taint || (key.is_empty() && t.text("operator") == "Exists"))
                && (effect == "NoExecute" || effect.is_empty())
        })
    };
    let missing: Vec<Value> = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        .into_iter()
        .filter(|taint| !tolerates(taint))
        .map(|taint| {
            json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        })
        .collect();
    if missing.is_empty() {
        return;
    }
    if let Some(map) = spec.as_object_mut() {
        let list = map.entry("tolerations").or_insert_with(|| Value::Array(Vec::new()));
        if let Some(list) = list.as_array_mut() {
            list.extend(missing);
        }
    }
}

/// The priority of a pod: 0, or that of the two built-in classes. Returns upstream's error for an unknown class.
pub(crate) fn default_priority(pod: &mut Value) -> Result<(), String> {
    let Some(spec) = pod.get_mut("spec") else { return Ok(()) };
    let class = spec.text("priorityClassName").to_owned();
    let priority: i64 = match class.as_str() {
        "" => 0,
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        other => return Err(format!("no PriorityClass with name {other} was found")),
    };
    if let Some(given) = spec.int("priority").filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        ));
    }
    for (key, value) in [("priority", json!(priority)), ("preemptionPolicy", json!("PreemptLowerPriority"))] {
        if spec.child(key).is_none() {
            spec[key] = value;
        }
    }
    Ok(())
}
