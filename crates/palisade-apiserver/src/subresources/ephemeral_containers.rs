//! `pods/ephemeralcontainers` in the form of kubectl v1.16 to v1.22: an `EphemeralContainers` object instead of the pod.
//!
//! Upstream dropped that form with v1.22; old clients have no other, and it says nothing the new one does not.

use std::sync::Arc;

use palisade_apimachinery::{Status, apply};
use serde_json::{Value, json};

use crate::api::Call;
use crate::http::Reply;
use crate::meta;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::verbs::write::{Writer, untyped_body};

/// Whether the body is in the old form.
pub(super) fn is_old_form(call: &Call<'_>) -> bool {
    untyped_body(call)
        .is_ok_and(|body| body.get("kind").and_then(Value::as_str) == Some("EphemeralContainers"))
}

/// Answers with the list in the old form.
pub(super) async fn update(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let body = untyped_body(call)?;
    let options = WriteOptions::parse(call.query, "UpdateOptions", call.api.version, false)?;
    let mut writer = Writer::new(call, entry, "ephemeralcontainers", options);
    let wanted = body.get("ephemeralContainers").cloned().unwrap_or_default();
    let version = meta::meta_text(&body, "resourceVersion").to_owned();
    let change = |writer: &mut Writer<'_>, live: &Value| {
        let mut pod = live.clone();
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("ephemeralContainers".to_owned(), wanted.clone());
        }
        if !version.is_empty() {
            meta::edit_metadata(&mut pod, |metadata| {
                metadata.insert("resourceVersion".to_owned(), version.as_str().into());
            });
        }
        entry.kind.default(&mut pod);
        apply::on_update(&entry.kind, Some(live), &mut pod, &writer.manager());
        Ok(pod)
    };
    match writer.update(&call.info.name, change).await {
        Ok(written) => {
            let pod = written.value(entry);
            let mut reply = Reply::json(
                200,
                &json!({
                    "kind": "EphemeralContainers",
                    "apiVersion": "v1",
                    "metadata": pod.get("metadata"),
                    "ephemeralContainers": pod.pointer("/spec/ephemeralContainers"),
                }),
            );
            writer.annotate(&mut reply);
            Ok(reply)
        }
        Err(status) => Ok(writer.error(status)),
    }
}
