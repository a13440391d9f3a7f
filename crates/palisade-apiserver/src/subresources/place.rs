//! Which pod, container and node a request about a running container means.
//!
//! Implements: `getPod`, `validateContainer` and the lookup of the node of upstream's pod strategy.

use std::fmt::Write as _;

use palisade_apimachinery::Status;
use palisade_apimachinery::status::GroupName;
use serde_json::Value;

use crate::api::Call;
use crate::registry::Entry;
use crate::verbs::get;

/// The pod of the request.
pub(crate) fn pod(call: &Call<'_>, entry: &Entry) -> Result<Value, Box<Status>> {
    Ok(Value::Object(get::find(call, entry)?.parse()))
}

fn names(pod: &Value, list: &str) -> Vec<String> {
    let containers = pod.pointer(list).and_then(Value::as_array);
    let names = containers.into_iter().flatten().filter_map(|c| c.get("name")?.as_str());
    names.map(str::to_owned).collect()
}

/// The container that is meant: the requested one if the pod has it, or the only one.
pub(crate) fn container(pod: &Value, name: &str, requested: &str) -> Result<String, Box<Status>> {
    let [main, init, ephemeral] = ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"]
        .map(|list| names(pod, list));
    if !requested.is_empty() {
        if ![&main, &init, &ephemeral].iter().any(|list| list.iter().any(|c| c == requested)) {
            return Err(Status::bad_request(format!("container {requested} is not valid for pod {name}")));
        }
        return Ok(requested.to_owned());
    }
    match &main[..] {
        [only] => Ok(only.clone()),
        [] => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        _ => {
            let mut message = format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                main.join(" ")
            );
            if !init.is_empty() {
                let _ = write!(message, " or one of the init containers: [{}]", init.join(" "));
            }
            Err(Status::bad_request(message))
        }
    }
}

/// The node that answers for a pod; nothing if the pod has none yet.
pub(crate) fn node(call: &Call<'_>, pod: &Value) -> Result<Option<Value>, Box<Status>> {
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() {
        return Ok(None);
    }
    match call.api.store.bucket("nodes").get(node) {
        Some(found) => Ok(Some(Value::Object(found.parse()))),
        None => Err(Status::not_found(GroupName::new("", "nodes"), node)),
    }
}
