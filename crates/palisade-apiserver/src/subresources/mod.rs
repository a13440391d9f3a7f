//! What hangs off an object: its status, its scale, a pod's binding, eviction, ephemeral containers and log, a
//! service account's tokens.

pub(crate) mod binding;
mod ephemeral_containers;
mod eviction;
mod log;
pub(crate) mod place;
mod scale;
mod token;

use std::sync::Arc;

use http::Method;
use palisade_apimachinery::Status;
use serde_json::Value;

use crate::api::Call;
use crate::http::Reply;
use crate::http::negotiate::{self, Encoding, Output};
use crate::registry::Entry;
use crate::render;
use crate::streaming;
use crate::verbs::{get, patch, update};

/// A document that is not an object of the resource: a scale, a token, a status.
fn document(call: &Call<'_>, code: u16, document: &Value) -> Reply {
    let protobuf = negotiate::prefers_protobuf(&call.parts.headers);
    let encoding = if protobuf { Encoding::Protobuf } else { Encoding::Json };
    render::document(code, document, Output { encoding, ..Output::default() })
}

/// Answers a request for a subresource.
pub(crate) async fn dispatch(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let name = call.info.subresource.as_str();
    let Some(subresource) = entry.kind.subresources.iter().find(|s| s.name == name) else {
        return Err(if entry.kind.is_custom() {
            Status::not_found(entry.kind.resource_name(), &call.info.name)
        } else {
            Status::page_not_found()
        });
    };
    // No verb is OPTIONS, which is passed on.
    let passed_on = name == "proxy" && call.parts.method == Method::OPTIONS;
    if !subresource.verbs.contains(&call.info.verb) && !passed_on {
        return Err(Status::method_not_allowed());
    }
    match (name, call.info.verb) {
        ("scale", verb) => scale::dispatch(call, entry, verb).await,
        ("binding", _) => binding::create(call, entry).await,
        ("eviction", _) => eviction::create(call, entry).await,
        ("token", _) => token::create(call, entry),
        ("log", _) => log::get(call, entry).await,
        ("proxy", _) => streaming::proxy(call, entry).await,
        ("attach" | "exec" | "portforward", _) => streaming::connect(call, entry).await,
        (_, "get") => get::get(call, entry).await,
        ("ephemeralcontainers", "update") if ephemeral_containers::is_old_form(call) => {
            ephemeral_containers::update(call, entry).await
        }
        (_, "update") => update::update(call, entry, name).await,
        (_, "patch") => patch::patch(call, entry, name).await,
        _ => Err(Status::method_not_allowed()),
    }
}
