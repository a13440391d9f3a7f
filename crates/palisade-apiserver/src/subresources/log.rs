//! A pod's log, and connections into it: both need a node, and say so.

use std::fmt::Write as _;

use palisade_apimachinery::status::GroupName;
use palisade_apimachinery::{FieldError, Status};
use serde_json::Value;

use crate::api::Call;
use crate::http::Reply;
use crate::registry::Entry;
use crate::verbs::get;

fn names(pod: &Value, list: &str) -> Vec<String> {
    let containers = pod.pointer(list).and_then(Value::as_array);
    let names = containers.into_iter().flatten().filter_map(|c| c.get("name")?.as_str());
    names.map(str::to_owned).collect()
}

/// The pod, once it is clear which of its containers is meant.
fn pod(call: &Call<'_>, entry: &Entry) -> Result<Value, Box<Status>> {
    let pod = Value::Object(get::find(call, entry)?.parse());
    let name = &call.info.name;
    let [main, init, ephemeral] = ["/spec/containers", "/spec/initContainers", "/spec/ephemeralContainers"]
        .map(|list| names(&pod, list));
    if let Some(container) = call.query.get("container") {
        if ![&main, &init, &ephemeral].iter().any(|list| list.iter().any(|c| c == container)) {
            return Err(Status::bad_request(format!("container {container} is not valid for pod {name}")));
        }
    } else if main.len() > 1 {
        let mut message =
            format!("a container name must be specified for pod {name}, choose one of: [{}]", main.join(" "));
        if !init.is_empty() {
            let _ = write!(message, " or one of the init containers: [{}]", init.join(" "));
        }
        return Err(Status::bad_request(message));
    }
    Ok(pod)
}

/// The node that would answer.
fn node(call: &Call<'_>, pod: &Value) -> Result<Option<String>, Box<Status>> {
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() {
        return Ok(None);
    }
    match call.api.store.bucket("nodes").get(node) {
        Some(_) => Ok(Some(node.to_owned())),
        None => Err(Status::not_found(GroupName::new("", "nodes"), node)),
    }
}

/// What is wrong with the options of a log request.
fn check_options(call: &Call<'_>) -> Result<(), Box<Status>> {
    let mut errors = Vec::new();
    let number = |key: &str| call.query.number(key);
    if let Some(lines) = number("tailLines")?.filter(|lines| *lines < 0) {
        errors.push(FieldError::invalid("tailLines", lines, "must be greater than or equal to 0"));
    }
    if let Some(bytes) = number("limitBytes")?.filter(|bytes| *bytes < 1) {
        errors.push(FieldError::invalid("limitBytes", bytes, "must be greater than 0"));
    }
    let seconds = number("sinceSeconds")?;
    if seconds.is_some() && call.query.has("sinceTime") {
        errors
            .push(FieldError::forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    } else if let Some(seconds) = seconds.filter(|seconds| *seconds < 1) {
        errors.push(FieldError::invalid("sinceSeconds", seconds, "must be greater than 0"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(GroupName::new("", "PodLogOptions"), &call.info.name, &errors, call.api.version))
}

/// The log of a container.
pub(super) fn get(call: &Call<'_>, entry: &Entry) -> Result<Reply, Box<Status>> {
    check_options(call)?;
    Ok(match node(call, &pod(call, entry)?)? {
        // Nothing runs yet, so nothing was said yet.
        None => Reply::bytes(204, "text/plain", Vec::new()),
        Some(node) => {
            Reply::text(501, format!("no kubelet answers for node {node:?}: logs are not available\n"))
        }
    })
}

/// `exec`, `attach`, `portforward`, `proxy`.
pub(super) fn connect(call: &Call<'_>, entry: &Entry) -> Result<Reply, Box<Status>> {
    let what = &call.info.subresource;
    Err(match node(call, &pod(call, entry)?)? {
        None => Status::bad_request(format!("pod {} does not have a host assigned", call.info.name)),
        Some(node) => Status::new(
            501,
            "NotImplemented",
            format!("no kubelet answers for node {node:?}: {what} is not available"),
        ),
    })
}
