//! How many of it there are, and should be: `scale` of the kinds that have replicas.
//!
//! Implements: Scale v1 of `autoscaling`.
//! <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/>

use std::sync::Arc;

use palisade_apimachinery::{Decoded, Status, apply, patch, rest, scale};
use serde_json::Value;

use crate::api::Call;
use crate::http::Reply;
use crate::meta;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::verbs::get;
use crate::verbs::patch::{self as patch_verb, Style};
use crate::verbs::write::Writer;

/// Reads or changes the scale.
pub(super) async fn dispatch(call: &Call<'_>, entry: &Arc<Entry>, verb: &str) -> Result<Reply, Box<Status>> {
    if verb == "get" {
        let object = entry.typed(get::read(call, entry).await?.parse());
        return Ok(super::document(call, 200, &scale::get(&entry.kind, &object)));
    }
    let options_kind = if verb == "patch" { "PatchOptions" } else { "UpdateOptions" };
    let style = if verb == "patch" { Some(patch_verb::style(call, entry)?) } else { None };
    let applies = style == Some(Style::Apply);
    let options = WriteOptions::parse(call.query, options_kind, call.api.version, applies)?;
    let kind = scale::kind(call.api.version);
    let mut writer = Writer::new(call, entry, "scale", options);
    let change = |writer: &mut Writer<'_>, live: &Value| {
        let current = scale::get(&entry.kind, live);
        let wanted = match style {
            None => writer.decode(&kind)?,
            Some(Style::Apply) => {
                let mut config = patch_verb::configuration(writer)?;
                if meta::meta_text(&config, "name").is_empty() {
                    meta::edit_metadata(&mut config, |metadata| {
                        metadata.insert("name".to_owned(), call.info.name.as_str().into());
                    });
                }
                apply::read(&kind, &config)?
            }
            Some(Style::Patch(patch_type)) => {
                let validation = writer.options.validation;
                let Decoded { object, warnings } =
                    patch::patch(&kind, &current, patch_type, &call.body, validation)?;
                writer.notes.warnings.extend(warnings);
                object
            }
        };
        rest::check_name(&wanted, &call.info.name, &call.info.namespace)?;
        let wanted = kind.read(wanted).map_err(|error| error.into_status(&kind, &call.info.name))?;
        if style == Some(Style::Apply) {
            let force = writer.options.force == Some(true);
            scale::apply(&entry.kind, live, &wanted, &writer.manager(), force)
        } else {
            scale::set(&entry.kind, live, &wanted, &writer.manager())
        }
    };
    match writer.update(&call.info.name, change).await {
        Ok(written) => {
            let scale = scale::get(&entry.kind, &written.value(entry));
            let mut reply = super::document(call, 200, &scale);
            writer.annotate(&mut reply);
            Ok(reply)
        }
        Err(status) => Ok(writer.error(status)),
    }
}
