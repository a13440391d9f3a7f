//! A pod's log, and connections into it: both need a node, and fail where there is none.
//!
//! Implements: `ValidatePodLogOptions` and the log location of upstream's pod registry. The content of the log is the
//! [`LogSource`](crate::log_source::LogSource)'s.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use palisade_apimachinery::Status;
use palisade_apimachinery::status::GroupName;
use palisade_base::field_error::FieldError;
use serde_json::Value;

use crate::api::Call;
use crate::http::{Body, Reply};
use crate::log_source::{LogError, LogRequest};
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

/// The log of a container.
pub(super) async fn get(call: &Call<'_>, entry: &Entry) -> Result<Reply, Box<Status>> {
    let mut request = options(call)?;
    request.pod = pod(call, entry)?;
    // Nothing runs yet, so the log is empty.
    let Some(node) = node(call, &request.pod)? else {
        return Ok(Reply::bytes(204, "text/plain", Vec::new()));
    };
    let Some(source) = call.api.logs.as_ref().filter(|source| source.serves(&node)) else {
        let text = format!("no kubelet answers for node {node:?}: logs are not available\n");
        return Ok(Reply::text(501, text));
    };
    if request.container.is_empty() {
        request.container = names(&request.pod, "/spec/containers").into_iter().next().unwrap_or_default();
    }
    match source.open(request).await {
        Ok(pieces) => Ok(Reply::bytes(200, "text/plain", Body::Stream(pieces))),
        Err(LogError(sentence)) => Err(Status::bad_request(sentence)),
    }
}

/// The options of the request, checked as upstream checks them.
fn options(call: &Call<'_>) -> Result<LogRequest, Box<Status>> {
    let query = call.query;
    let mut errors = Vec::new();
    let mut at_least = |name: &str, least: i64, why: &'static str| -> Result<Option<u64>, Box<Status>> {
        let number = query.number(name)?;
        if let Some(number) = number.filter(|&number| number < least) {
            errors.push(FieldError::invalid(name, number, why));
        }
        // swallowed: a number below the least is among the errors already
        Ok(number.and_then(|number| u64::try_from(number).ok()))
    };
    let tail = at_least("tailLines", 0, "must be greater than or equal to 0")?;
    let limit_bytes = at_least("limitBytes", 1, "must be greater than 0")?;
    let seconds = at_least("sinceSeconds", 1, "must be greater than 0")?;
    let time = match query.get("sinceTime") {
        None => None,
        Some(text) => Some(text.parse::<Timestamp>().map_err(|_| {
            let quoted = palisade_base::go::quote(text);
            Status::bad_request(format!(
                "parsing time {quoted} as \"2006-01-02T15:04:05Z07:00\": cannot parse {quoted} as \"2006\""
            ))
        })?),
    };
    if seconds.is_some() && time.is_some() {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(FieldError::forbidden("", why));
    }
    if !errors.is_empty() {
        let kind = GroupName::new("", "PodLogOptions");
        return Err(Status::invalid(kind, &call.info.name, &errors, call.api.version));
    }
    // swallowed: a time before all time means the whole log
    let ago = seconds.and_then(|seconds| i64::try_from(seconds).ok()).map(SignedDuration::from_secs);
    // swallowed: the same
    let since = time.or_else(|| Timestamp::now().checked_sub(ago?).ok());
    Ok(LogRequest {
        pod: Value::Null,
        container: query.get("container").unwrap_or_default().to_owned(),
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        since,
        tail_lines: tail.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX)),
        limit_bytes,
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
