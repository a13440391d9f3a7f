//! The quality-of-service class of a pod.
//!
//! Implements: `pkg/apis/core/helper/qos`.

use palisade_base::quantity::Quantity;
use serde_json::Value;

use crate::rest::path::Get;

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(super) fn class(pod: &Value) -> &'static str {
    let empty = Value::Null;
    let spec = pod.get("spec").unwrap_or(&empty);
    let mut any = false;
    let mut guaranteed = true;
    let pod_level =
        spec.child("resources").filter(|r| r.child("limits").is_some() || r.child("requests").is_some());
    let owners: Vec<&Value> = match pod_level {
        Some(resources) => vec![resources],
        None => spec
            .list("containers")
            .iter()
            .chain(spec.list("initContainers"))
            .map(|c| c.get("resources").unwrap_or(&empty))
            .collect(),
    };
    let amount = |list: &Value, field: &str, name: &str| -> Option<Quantity> {
        list.get(field)?.get(name)?.as_str().and_then(|t| Quantity::parse(t).ok()).filter(|q| !q.is_zero())
    };
    for resources in owners {
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount(resources, "requests", name), amount(resources, "limits", name));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
