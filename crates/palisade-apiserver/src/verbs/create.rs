//! Makes a new object.

use std::sync::Arc;

use palisade_apimachinery::Status;

use crate::api::Call;
use crate::http::Reply;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::render;
use crate::verbs::write::Writer;

/// Answers with the object that was made.
pub async fn create(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let output = render::output(call, entry)?;
    let options = WriteOptions::parse(call.query, "CreateOptions", call.api.version, false)?;
    let mut writer = Writer::new(call, entry, "", options);
    let object = writer.decode(&entry.kind)?;
    match writer.create(object).await {
        Ok(written) => {
            crate::crd::after_write(call.api, entry, &written).await;
            if entry.kind.plural == "namespaces" && entry.kind.group.is_empty() {
                // Who makes a namespace often goes on at once with a pod in it.
                crate::controllers::service_account::ensure(call.api).await;
            }
            Ok(writer.reply(201, &written, output))
        }
        Err(status) => Ok(writer.error(status)),
    }
}
