//! A pod's log: of the node in this process, or of the kubelet of the pod's node.
//!
//! Implements: `ValidatePodLogOptions` and the log location of upstream's pod registry. The content of the log is the
//! [`LogSource`](crate::log_source::LogSource)'s.

use jiff::{SignedDuration, Timestamp};
use palisade_apimachinery::Status;
use palisade_apimachinery::status::GroupName;
use palisade_base::field_error::FieldError;
use serde_json::Value;

use crate::api::Call;
use crate::http::{Body, Reply};
use crate::log_source::{LogError, LogRequest};
use crate::meta;
use crate::registry::Entry;
use crate::streaming;

use super::place;

/// The log of a container, in the body or over a WebSocket.
pub(super) async fn get(call: &Call<'_>, entry: &Entry) -> Result<Reply, Box<Status>> {
    let mut request = options(call)?;
    request.pod = place::pod(call, entry)?;
    request.container = place::container(&request.pod, &call.info.name, &request.container)?;
    // Nothing runs yet, so the log is empty.
    let Some(node) = place::node(call, &request.pod)? else {
        return Ok(Reply::bytes(204, "text/plain", Vec::new()));
    };
    let name = meta::meta_text(&node, "name");
    let uid = meta::meta_text(&request.pod, "uid").to_owned();
    let pieces = if let Some(source) = call.api.logs.as_ref().filter(|source| source.serves(name)) {
        source.open(request).await.map_err(|LogError(sentence)| Status::bad_request(sentence))?
    } else if let Some(pieces) = streaming::kubelet_log(call, &node, &request).await? {
        pieces
    } else {
        let text = format!("no kubelet answers for node {name:?}: logs are not available\n");
        return Ok(Reply::text(501, text));
    };
    if streaming::wants_upgrade(&call.parts.headers, Some("websocket")) {
        return streaming::log_over_websocket(call, entry, &uid, pieces);
    }
    Ok(Reply::bytes(200, "text/plain", Body::Stream(pieces)))
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
