//! Reads one object.

use std::sync::Arc;

use palisade_apimachinery::Status;

use crate::api::Call;
use crate::conversion::{self, FormError};
use crate::http::Reply;
use crate::registry::Entry;
use crate::render;
use crate::storage::Object;

/// The object a request names, as it is stored.
pub fn find(call: &Call<'_>, entry: &Entry) -> Result<Arc<Object>, Box<Status>> {
    let key = entry.key(&call.info.namespace, &call.info.name);
    let found = entry.bucket.get(&key);
    found.ok_or_else(|| Status::not_found(entry.kind.resource_name(), &call.info.name))
}

/// The object a request names, in the version of the request.
pub async fn read(call: &Call<'_>, entry: &Entry) -> Result<Arc<Object>, Box<Status>> {
    let found = find(call, entry)?;
    conversion::present(call.api, entry, found).await.map_err(FormError::into_status)
}

/// Answers with the object.
pub async fn get(call: &Call<'_>, entry: &Entry) -> Result<Reply, Box<Status>> {
    let output = render::output(call, entry)?;
    Ok(render::object(200, entry, &*read(call, entry).await?, output, call.query))
}
