//! A pod's log, and connections into it: both need a node, and say so.

use palisade_apimachinery::Status;
use serde_json::Value;

use crate::api::Call;
use crate::http::Reply;
use crate::registry::Entry;
use crate::verbs::get;

fn container_names(pod: &Value) -> Vec<String> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod.pointer(list).and_then(Value::as_array);
        let names = containers.into_iter().flatten().filter_map(|c| c.get("name")?.as_str());
        names.map(str::to_owned).collect()
    };
    ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"]
        .iter()
        .flat_map(|l| names(l))
        .collect()
}

fn check(call: &Call<'_>, entry: &Entry) -> Result<String, Box<Status>> {
    let pod = Value::Object(get::find(call, entry)?.parse());
    let name = &call.info.name;
    if let Some(container) = call.query.get("container") {
        if !container_names(&pod).iter().any(|c| c == container) {
            return Err(Status::bad_request(format!("container {container} is not valid for pod {name}")));
        }
    } else {
        let main = pod.pointer("/spec/containers").and_then(Value::as_array).map_or(0, Vec::len);
        if main > 1 {
            let choices: Vec<String> = container_names(&pod);
            return Err(Status::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                choices.join(" ")
            )));
        }
    }
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() {
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    }
    Ok(node.to_owned())
}

/// The log of a container.
pub(super) fn get(call: &Call<'_>, entry: &Entry) -> Result<Reply, Box<Status>> {
    let node = check(call, entry)?;
    Ok(Reply::text(501, format!("no kubelet answers for node {node:?}: logs are not available\n")))
}

/// `exec`, `attach`, `portforward`, `proxy`.
pub(super) fn connect(call: &Call<'_>, entry: &Entry) -> Result<Reply, Box<Status>> {
    let node = check(call, entry)?;
    let what = &call.info.subresource;
    Err(Status::new(
        501,
        "NotImplemented",
        format!("no kubelet answers for node {node:?}: {what} is not available"),
    ))
}
