//! A pod that names a RuntimeClass gets the overhead and the scheduling of that class, which must exist.
//!
//! Implements: Admission Control, "RuntimeClass".
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#runtimeclass>

use palisade_apimachinery::Status;
use palisade_apimachinery::rest::path::Get as _;
use palisade_base::quantity::Quantity;
use serde_json::{Map, Value};

use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};

/// The plugin.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        let Some(class) = class_of(request, object)? else { return Ok(()) };
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
            return Err(Status::bad_request("pod cannot be decoded: spec is not an object"));
        };
        if let Some(fixed) = overhead(&class) {
            match spec.get("overhead") {
                Some(given) if !is_empty(given) && !same_amounts(given, fixed) => {
                    return Err(request.forbidden(MISMATCH));
                }
                _ => spec.insert("overhead".to_owned(), fixed.clone()),
            };
        }
        match class.get("scheduling") {
            Some(scheduling) if !scheduling.is_null() => schedule(request, spec, scheduling),
            _ => Ok(()),
        }
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let Some(object) = object.filter(|_| concerns(request)) else { return Ok(()) };
        let class = class_of(request, object)?;
        let given = object.at(&["spec", "overhead"]).filter(|given| !given.is_null());
        match (class.as_ref().and_then(overhead), given) {
            (Some(fixed), given) if !given.is_some_and(|given| same_amounts(given, fixed)) => {
                Err(request.forbidden(MISMATCH))
            }
            (None, Some(_)) => Err(request.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
            _ => Ok(()),
        }
    }
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn concerns(request: &Request<'_>) -> bool {
    request.operation == Operation::Create && request.is("", "pods")
}

/// The class that a new pod names.
fn class_of(request: &Request<'_>, object: &Value) -> Result<Option<Map<String, Value>>, Box<Status>> {
    if !concerns(request) {
        return Ok(None);
    }
    let Some(name) = object.at(&["spec", "runtimeClassName"]).and_then(Value::as_str) else {
        return Ok(None);
    };
    match request.cluster.get("runtimeclasses.node.k8s.io", "", name) {
        Some(class) => Ok(Some(class.parse())),
        None => Err(request.forbidden(&format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

/// The amounts a class adds to a pod; none if it does not define an overhead.
fn overhead(class: &Map<String, Value>) -> Option<&Value> {
    static NONE: Value = Value::Null;
    let overhead = class.get("overhead").filter(|overhead| !overhead.is_null())?;
    Some(overhead.get("podFixed").unwrap_or(&NONE))
}

fn is_empty(amounts: &Value) -> bool {
    amounts.as_object().is_none_or(Map::is_empty)
}

/// Whether two lists name the same resources with the same amounts, however these are written.
fn same_amounts(one: &Value, other: &Value) -> bool {
    let count = |amounts: &Value| amounts.as_object().map_or(0, Map::len);
    let amount = |value: &Value| value.as_str().map(Quantity::parse);
    let same = |name: &String, value: &Value| match (amount(value), other.get(name).and_then(amount)) {
        (Some(Ok(one)), Some(Ok(other))) => one == other,
        // swallowed: an amount that cannot be read is not the same as any other
        _ => false,
    };
    count(one) == count(other) && one.as_object().into_iter().flatten().all(|(name, value)| same(name, value))
}

/// Adds the node selector and the tolerations of a class.
fn schedule(request: &Request<'_>, spec: &mut Map<String, Value>, scheduling: &Value) -> Admission {
    if let Some(wanted) = scheduling.get("nodeSelector").and_then(Value::as_object) {
        let selector = spec.entry("nodeSelector").or_insert_with(|| Value::Object(Map::new()));
        if selector.is_null() {
            *selector = Value::Object(Map::new());
        }
        let Some(selector) = selector.as_object_mut() else {
            return Err(Status::bad_request("pod cannot be decoded: nodeSelector is not an object"));
        };
        for (key, value) in wanted {
            let shown = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            match selector.get(key) {
                Some(own) if own != value => {
                    return Err(request.forbidden(&format!(
                        "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                        shown(value),
                        shown(own)
                    )));
                }
                _ => selector.insert(key.clone(), value.clone()),
            };
        }
    }
    let list = |owner: Option<&Value>| owner.and_then(Value::as_array).cloned().unwrap_or_default();
    let mut all = list(spec.get("tolerations"));
    all.extend(list(scheduling.get("tolerations")));
    let merged = merge_tolerations(&all);
    if !merged.is_empty() {
        spec.insert("tolerations".to_owned(), merged.into());
    }
    Ok(())
}

/// The tolerations that no other one makes redundant.
fn merge_tolerations(all: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for (at, toleration) in all.iter().enumerate() {
        let behind = all.get(at + 1..).unwrap_or_default();
        let redundant = merged.iter().any(|other| covers(other, toleration))
            || behind.iter().any(|other| other != toleration && covers(other, toleration));
        if !redundant {
            merged.push(toleration.clone());
        }
    }
    merged
}

/// Whether a toleration tolerates everything that another one does.
fn covers(one: &Value, other: &Value) -> bool {
    if one == other {
        return true;
    }
    let text = |toleration: &'_ Value, field: &str| -> String {
        toleration.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (operator, effect) = (text(one, "operator"), text(one, "effect"));
    let every_key = text(one, "key").is_empty() && operator == "Exists";
    if text(one, "key") != text(other, "key") && !every_key {
        return false;
    }
    if !effect.is_empty() && effect != text(other, "effect") {
        return false;
    }
    let seconds = |toleration: &Value| toleration.get("tolerationSeconds").and_then(Value::as_i64);
    if effect == "NoExecute"
        && let Some(most) = seconds(one)
        && seconds(other).is_none_or(|seconds| seconds > most)
    {
        return false;
    }
    match operator.as_str() {
        "Exists" => true,
        "Equal" | "" => text(other, "operator") == "Equal" && text(one, "value") == text(other, "value"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn redundant_tolerations_are_dropped() {
        let exists = json!({"key": "k", "operator": "Exists"});
        let all = json!({"operator": "Exists"});
        let equal = json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"});
        let soon = json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let later = json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9});
        for (case, given, expected) in [
            ("nothing", vec![], vec![]),
            ("twice", vec![&exists, &exists], vec![&exists]),
            ("covered by what follows", vec![&equal, &exists], vec![&exists]),
            ("covered by what comes first", vec![&all, &equal, &soon], vec![&all]),
            ("the longer one is enough", vec![&soon, &later], vec![&later]),
        ] {
            let given: Vec<Value> = given.into_iter().cloned().collect();
            let expected: Vec<Value> = expected.into_iter().cloned().collect();
            assert_eq!(merge_tolerations(&given), expected, "{case}");
        }
    }

    #[test]
    fn amounts_are_compared_by_value() {
        for (one, other, same) in [
            (json!({"cpu": "100m"}), json!({"cpu": "0.1"}), true),
            (json!({"memory": "1Gi"}), json!({"memory": "1073741824"}), true),
            (json!({"cpu": "1"}), json!({"cpu": "2"}), false),
            (json!({"cpu": "1"}), json!({}), false),
            (json!({}), Value::Null, true),
        ] {
            assert_eq!(same_amounts(&one, &other), same, "{one} {other}");
        }
    }
}
