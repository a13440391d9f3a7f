//! Changes part of an object: JSON patch, merge patch, strategic merge patch, server-side apply.
//!
//! Implements: Kubernetes API Concepts, "Patching resources".
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply>

use std::sync::Arc;

use palisade_apimachinery::patch::{self, PatchType};
use palisade_apimachinery::{Decoded, FieldValidation, Status, apply, decode, rest};
use palisade_base::go;
use serde_json::Value;

use crate::api::Call;
use crate::http::{Reply, negotiate};
use crate::meta;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::render;
use crate::verbs::write::{Writer, Written};

/// Which kind of patch a content type announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Instructions, a part to merge, or a part to merge with lists by their keys.
    Patch(PatchType),
    /// Server-side apply.
    Apply,
}

/// Reads the content type.
pub fn style(call: &Call<'_>, entry: &Entry) -> Result<Style, Box<Status>> {
    let custom = entry.kind.is_custom();
    match PatchType::from_content_type(negotiate::content_type(&call.parts.headers)) {
        Some(PatchType::Apply) => Ok(Style::Apply),
        Some(patch_type) if !(custom && patch_type == PatchType::Strategic) => Ok(Style::Patch(patch_type)),
        _ if custom => Err(Status::unsupported_media_type(PatchType::accepted_by(&entry.kind))),
        _ => Err(Status::generic(415, "UnsupportedMediaType", "415: Unsupported Media Type")),
    }
}

/// Answers with the changed object.
pub async fn patch(call: &Call<'_>, entry: &Arc<Entry>, subresource: &str) -> Result<Reply, Box<Status>> {
    let style = style(call, entry)?;
    let output = render::output(call, entry)?;
    let options = WriteOptions::parse(call.query, "PatchOptions", call.api.version, style == Style::Apply)?;
    let mut writer = Writer::new(call, entry, subresource, options);
    let (code, written) = match style {
        Style::Apply => apply_patch(&mut writer).await,
        Style::Patch(patch_type) => {
            let change = |writer: &mut Writer<'_>, live: &Value| changed(writer, live, patch_type);
            (200, writer.update(&call.info.name, change).await)
        }
    };
    match written {
        Ok(written) => {
            if matches!(written, Written::Stored(_)) {
                crate::crd::after_write(call.api, entry, &written).await;
            }
            Ok(writer.reply(code, &written, output))
        }
        Err(status) => Ok(writer.error(status)),
    }
}

/// The live object with the patch, defaults and managed fields.
fn changed(writer: &mut Writer<'_>, live: &Value, patch_type: PatchType) -> Result<Value, Box<Status>> {
    let kind = &writer.entry.kind;
    let Decoded { mut object, warnings } =
        patch::patch(kind, live, patch_type, &writer.call.body, writer.options.validation)?;
    writer.notes.warnings.extend(warnings);
    kind.default(&mut object)?;
    apply::on_update(kind, Some(live), &mut object, &writer.manager());
    Ok(object)
}

async fn apply_patch(writer: &mut Writer<'_>) -> (u16, Result<Written, Box<Status>>) {
    let call = writer.call;
    let entry = writer.entry;
    let config = match configuration(writer) {
        Ok(config) => config,
        Err(status) => return (200, Err(status)),
    };
    let force = writer.options.force.unwrap_or(false);
    let exists = entry.bucket.get(&entry.key(&call.info.namespace, &call.info.name)).is_some();
    if exists || !writer.subresource.is_empty() {
        let merge = |writer: &mut Writer<'_>, live: &Value| {
            let mut object = apply::apply(&entry.kind, Some(live), &config, &writer.manager(), force)?;
            entry.kind.default(&mut object)?;
            Ok(object)
        };
        return (200, writer.update(&call.info.name, merge).await);
    }
    (201, create_by_apply(writer, &config, force).await)
}

/// What is to be applied.
pub(crate) fn configuration(writer: &mut Writer<'_>) -> Result<Value, Box<Status>> {
    let bad = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
    let read = crate::yaml::parse(&writer.call.body)
        .map_err(|why| bad(format!("error converting YAML to JSON: {why}")))?;
    if !matches!(read.value, Value::Object(_) | Value::Null) {
        let found = go::json_type(&read.value);
        return Err(Status::bad_request(format!(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type \
             map[string]interface {{}}"
        )));
    }
    if let Some(twice) = read.duplicates {
        let why = format!("error converting YAML to JSON: {twice}");
        match writer.options.validation {
            FieldValidation::Strict => {
                return Err(Status::bad_request(format!("error strict decoding YAML: {why}")));
            }
            FieldValidation::Warn => writer.notes.warnings.extend(decode::one_by_one(&why)),
            FieldValidation::Ignore => {}
        }
    }
    Ok(read.value)
}

async fn create_by_apply(
    writer: &mut Writer<'_>,
    config: &Value,
    force: bool,
) -> Result<Written, Box<Status>> {
    let (call, entry) = (writer.call, writer.entry);
    let mut object = apply::apply(&entry.kind, None, config, &writer.manager(), force)?;
    let uid = meta::meta_text(config, "uid");
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Status::conflict(entry.kind.resource_name(), &call.info.name, &why));
    }
    entry.kind.default(&mut object)?;
    rest::check_name(&object, &call.info.name, &call.info.namespace)?;
    writer.check_namespace(&mut object)?;
    writer.finish_create(object).await
}
