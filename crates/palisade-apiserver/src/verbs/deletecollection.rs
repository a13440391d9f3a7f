//! Removes every object of a range.

use std::sync::Arc;

use palisade_apimachinery::Status;
use serde_json::json;

use crate::api::Call;
use crate::http::Reply;
use crate::options::{ListOptions, WriteOptions};
use crate::registry::Entry;
use crate::render;
use crate::selection::Selection;
use crate::verbs::delete::{self, delete_object};
use crate::verbs::list;
use crate::verbs::write::Writer;

/// Answers with the objects that were removed, as they were before.
pub async fn deletecollection(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let output = render::output(call, entry)?;
    let options = delete::options(call)?;
    let list_options = ListOptions::parse(call.query, false, call.api.version)?;
    let selection = Selection::parse(&entry.kind, call.query)?;
    let range = list::range(call, entry, &selection);
    let page = list::page(call.api, entry, &range, &selection, &list_options).await?;
    let mut writer = Writer::new(call, entry, "", WriteOptions::without_body(options.dry_run));
    for object in &page.objects {
        match delete_object(call.api, entry, object.key(), &options, Some(&mut writer)).await {
            Ok(_) => {}
            // Another client deleted it first.
            Err(status) if status.code == 404 => {}
            Err(status) => return Ok(writer.error(status)),
        }
    }
    let metadata = json!({"resourceVersion": page.revision.to_string()});
    let mut reply = render::list(entry, page.objects, &metadata, output, call.query);
    writer.annotate(&mut reply);
    Ok(reply)
}
