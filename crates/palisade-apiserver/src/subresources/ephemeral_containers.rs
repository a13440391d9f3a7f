//! `pods/ephemeralcontainers` in the form of kubectl v1.16 to v1.22: an `EphemeralContainers` object instead of the pod.
//!
//! Upstream dropped that form with v1.22; old clients have no other, and it contains nothing that the new one does not.

use std::sync::Arc;

use palisade_apimachinery::{Status, Typed, apply, rest};
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

/// The body as the part of a pod that it is, so that the pod's decoder reads it.
fn read(writer: &mut Writer<'_>) -> Result<Typed, Box<Status>> {
    let (call, kind) = (writer.call, &writer.entry.kind);
    let mut body = untyped_body(call)?;
    let mut take = |field: &str| body.get_mut(field).map_or(Value::Null, Value::take);
    let api_version = take("apiVersion");
    let part = json!({
        "apiVersion": if api_version.is_null() { "v1".into() } else { api_version },
        "kind": kind.kind,
        "metadata": take("metadata"),
        "spec": {"ephemeralContainers": take("ephemeralContainers")},
    });
    let decoded = kind.decode_value(part, Vec::new(), writer.options.validation)?;
    writer.notes.warnings.extend(decoded.warnings);
    let mut object = decoded.object;
    // kubectl v1.20 leaves the name out.
    if meta::meta_text(&object, "name").is_empty() {
        meta::edit_metadata(&mut object, |metadata| {
            metadata.insert("name".to_owned(), call.info.name.as_str().into());
        });
    }
    rest::check_name(&object, &call.info.name, &call.info.namespace)?;
    kind.read(object).map_err(|error| error.into_status(kind, &call.info.name))
}

/// Answers with the list in the old form.
pub(super) async fn update(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let options = WriteOptions::parse(call.query, "UpdateOptions", call.api.version, false)?;
    let mut writer = Writer::new(call, entry, "ephemeralcontainers", options);
    let requested = read(&mut writer)?;
    let wanted = requested.pointer("/spec/ephemeralContainers").cloned();
    let version = meta::meta_text(&requested, "resourceVersion").to_owned();
    let uid = meta::meta_text(&requested, "uid").to_owned();
    let change = |writer: &mut Writer<'_>, live: &Value| {
        let mut pod = live.clone();
        let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
            return Err(Status::internal("the stored pod has no spec"));
        };
        match &wanted {
            Some(containers) => spec.insert("ephemeralContainers".to_owned(), containers.clone()),
            None => spec.remove("ephemeralContainers"),
        };
        if !uid.is_empty() {
            meta::edit_metadata(&mut pod, |metadata| {
                metadata.insert("uid".to_owned(), uid.as_str().into());
            });
        }
        if !version.is_empty() {
            meta::edit_metadata(&mut pod, |metadata| {
                metadata.insert("resourceVersion".to_owned(), version.as_str().into());
            });
        }
        entry.kind.default(&mut pod)?;
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
