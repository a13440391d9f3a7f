//! Reads one object.

use std::sync::Arc;

use palisade_apimachinery::Status;

use crate::api::Call;
use crate::http::Reply;
use crate::registry::Entry;
use crate::render;
use crate::storage::Object;

/// The object a request names.
pub fn find(call: &Call<'_>, entry: &Entry) -> Result<Arc<Object>, Box<Status>> {
    let key = entry.key(&call.info.namespace, &call.info.name);
    let found = entry.bucket.get(&key);
    found.ok_or_else(|| Status::not_found(entry.kind.resource_name(), &call.info.name))
}

/// Answers with the object.
pub fn get(call: &Call<'_>, entry: &Entry) -> Result<Reply, Box<Status>> {
    let output = render::output(call, entry)?;
    Ok(render::object(200, entry, &*find(call, entry)?, output, call.query))
}
