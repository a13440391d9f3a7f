//! Replaces an object.

use std::sync::Arc;

use palisade_apimachinery::{Status, apply, rest};
use serde_json::Value;

use crate::api::Call;
use crate::http::Reply;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::render;
use crate::strategy;
use crate::verbs::write::{Writer, Written};

/// Answers with the object that replaced the old one.
pub async fn update(call: &Call<'_>, entry: &Arc<Entry>, subresource: &str) -> Result<Reply, Box<Status>> {
    let output = render::output(call, entry)?;
    let options = WriteOptions::parse(call.query, "UpdateOptions", call.api.version, false)?;
    let mut writer = Writer::new(call, entry, subresource, options);
    let mut given = writer.decode(&entry.kind)?;
    rest::check_name(&given, &call.info.name, &call.info.namespace)?;
    writer.check_namespace(&mut given)?;
    if subresource.is_empty()
        && strategy::may_create_on_update(&entry.kind)
        && entry.bucket.get(&entry.key(&call.info.namespace, &call.info.name)).is_none()
    {
        return Ok(match writer.create(given).await {
            Ok(written) => writer.reply(201, &written, output),
            Err(status) => writer.error(status),
        });
    }
    let replace = |writer: &mut Writer<'_>, live: &Value| {
        let mut object = given.clone();
        entry.kind.default(&mut object)?;
        apply::on_update(&entry.kind, Some(live), &mut object, &writer.manager());
        Ok(object)
    };
    match writer.update(&call.info.name, replace).await {
        Ok(written) => {
            if matches!(written, Written::Stored(_)) {
                crate::crd::after_write(call.api, entry, &written).await;
            }
            Ok(writer.reply(200, &written, output))
        }
        Err(status) => Ok(writer.error(status)),
    }
}
