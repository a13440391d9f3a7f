//! Asks a pod to leave: `pods/eviction`. Disruption budgets are not served here, so nothing holds it back.

use std::sync::Arc;

use palisade_apimachinery::{FieldValidation, Status};

use crate::admission_chain::Operation;
use crate::api::Call;
use crate::http::Reply;
use crate::meta;
use crate::options::{DeleteOptions, WriteOptions};
use crate::registry::Entry;
use crate::verbs::delete::delete_object;
use crate::verbs::write::{Writer, untyped_body};

/// Answers with success.
pub(super) async fn create(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let eviction = untyped_body(call)?;
    let name = meta::meta_text(&eviction, "name");
    if name != call.info.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = DeleteOptions::parse(call.query, eviction.get("deleteOptions"), call.api.version)?;
    options.dry_run |= call.query.get("dryRun").is_some();
    let write_options = WriteOptions {
        dry_run: options.dry_run,
        field_manager: String::new(),
        validation: FieldValidation::Ignore,
        force: None,
    };
    let mut writer = Writer::new(call, entry, "eviction", write_options);
    let key = entry.key(&call.info.namespace, name);
    if let Err(status) = writer.judge(Operation::Create, Some(&eviction), None).await {
        return Ok(writer.error(status));
    }
    // As upstream, who may evict is asked about the eviction and not about the deletion.
    match delete_object(call.api, entry, &key, &options, None).await {
        Ok(_) => {
            let mut reply = super::binding::created();
            writer.annotate(&mut reply);
            Ok(reply)
        }
        Err(status) => Ok(writer.error(status)),
    }
}
