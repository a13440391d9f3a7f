//! How many of it there are, and should be: `scale` of the kinds that have replicas.
//!
//! Implements: Scale v1 of `autoscaling`.
//! <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/>

use std::sync::Arc;

use palisade_apimachinery::patch::{self, PatchType};
use palisade_apimachinery::{Status, scale};
use serde_json::Value;

use crate::api::Call;
use crate::http::{Reply, negotiate};
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::verbs::get;
use crate::verbs::write::{Writer, untyped_body};

/// Reads or changes the scale.
pub(super) async fn dispatch(call: &Call<'_>, entry: &Arc<Entry>, verb: &str) -> Result<Reply, Box<Status>> {
    if verb == "get" {
        let object = entry.typed(get::find(call, entry)?.parse());
        return Ok(Reply::json(200, &scale::get(&entry.kind, &object)));
    }
    let options_kind = if verb == "patch" { "PatchOptions" } else { "UpdateOptions" };
    let content_type = negotiate::content_type(&call.parts.headers).to_owned();
    let applies = content_type == "application/apply-patch+yaml";
    let options =
        WriteOptions::parse(call.query, options_kind, call.api.version, verb == "patch" && applies)?;
    let mut writer = Writer::new(call, entry, "scale", options);
    let change = |writer: &mut Writer<'_>, live: &Value| {
        let current = scale::get(&entry.kind, live);
        let wanted = match (verb, content_type.as_str()) {
            ("update", _) | (_, "application/apply-patch+yaml") => untyped_body(call)?,
            (_, "application/json-patch+json") => patch::untyped(&current, PatchType::Json, &call.body)?,
            (_, "application/merge-patch+json" | "application/strategic-merge-patch+json") => {
                patch::untyped(&current, PatchType::Merge, &call.body)?
            }
            _ => return Err(Status::generic(415, "UnsupportedMediaType", "415: Unsupported Media Type")),
        };
        scale::set(&entry.kind, live, &wanted, &writer.manager())
    };
    match writer.update(&call.info.name, change).await {
        Ok(written) => {
            let scale = scale::get(&entry.kind, &written.value(entry));
            let mut reply = Reply::json(200, &scale);
            writer.annotate(&mut reply);
            Ok(reply)
        }
        Err(status) => Ok(writer.error(status)),
    }
}
