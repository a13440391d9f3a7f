//! From a path and a method to the code that answers.

use std::sync::Arc;

use http::{HeaderValue, Method, header};
use palisade_apimachinery::Status;
use palisade_base::{cron, go};

use crate::api::Call;
use crate::auth::review;
use crate::http::Reply;
use crate::registry::{Entry, Served};
use crate::subresources;
use crate::verbs::write::check_path_name;
use crate::verbs::{create, delete, deletecollection, get, list, patch, update, watch};
use crate::{discovery, openapi, set_aside, system_objects};

/// Answers an authorised request.
pub(crate) async fn dispatch(call: Call<'_>) -> Result<Reply, Box<Status>> {
    // The parameters of a proxied request are its backend's.
    if call.info.subresource != "proxy" {
        check_timeout(&call)?;
    }
    if call.info.is_resource { resource(&call).await } else { path(&call).await }
}

/// A timeout that cannot be read is a mistake of the client, although every request here ends long before any.
fn check_timeout(call: &Call<'_>) -> Result<(), Box<Status>> {
    let Some(timeout) = call.query.get("timeout").filter(|timeout| !timeout.is_empty()) else {
        return Ok(());
    };
    if call.info.verb == "watch" || cron::duration_seconds(timeout).is_some() {
        return Ok(());
    }
    let quoted = go::quote(timeout);
    Err(Status::bad_request(format!(
        "invalid timeout specified in the request URL - time: invalid duration {quoted}"
    )))
}

/// Paths that are no resources.
async fn path(call: &Call<'_>) -> Result<Reply, Box<Status>> {
    let path = call.info.path.as_str();
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    if !is_installed(&call.api.registry.served(), &segments) {
        return Ok(nothing_here(call));
    }
    match segments.as_slice() {
        ["palisade", "set-aside"] => return set_aside::answer(call, None).await,
        ["palisade", "set-aside", id] => return set_aside::answer(call, Some(id)).await,
        _ => {}
    }
    if !matches!(call.parts.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    match segments.as_slice() {
        [] => Ok(discovery::paths(call, 200)),
        ["healthz" | "livez" | "readyz", ..] => {
            let note = || set_aside::health_note(call.api);
            call.api.health.answer(path, call.query, note)
        }
        ["version"] => Ok(discovery::version(call)),
        ["metrics"] => {
            set_aside::measure(call.api);
            let mut text = call.api.metrics.text();
            call.api.chain.metrics(&mut text);
            text.push_str(&call.api.webhooks.metrics.text());
            Ok(Reply::bytes(200, "text/plain; version=0.0.4; charset=utf-8", text.into_bytes()))
        }
        ["api"] => Ok(discovery::core_versions(call)),
        ["api", version] => discovery::resources(call, "", version),
        ["apis"] => Ok(discovery::groups(call)),
        ["apis", group] => discovery::group(call, group),
        ["apis", group, version] => discovery::resources(call, group, version),
        ["openapi", "v2"] => Ok(openapi::v2(call)),
        ["openapi", "v3"] => Ok(openapi::v3_index(call)),
        ["openapi", "v3", rest @ ..] => openapi::v3(call, rest),
        [".well-known", "openid-configuration"] => Ok(discovery::openid_configuration()),
        ["openid", "v1", "jwks"] => Ok(discovery::jwks(call)),
        _ => Ok(nothing_here(call)),
    }
}

/// Whether a path belongs to a part of the API with its own answer to unknown paths.
fn is_installed(served: &Served, segments: &[&str]) -> bool {
    match segments {
        ["apis", group, version, ..] => {
            served.has_group(group, None)
                && (served.is_builtin(group) || served.has_group(group, Some(version)))
        }
        ["apis", group] => served.has_group(group, None),
        _ => true,
    }
}

/// 404 for paths outside any registered API. Not a `Status`: upstream's comes from the plain HTTP server behind all APIs.
fn nothing_here(call: &Call<'_>) -> Reply {
    if call.api.version.at_least(23) {
        Reply::bytes(404, "text/plain; charset=utf-8", b"404 page not found\n".to_vec())
    } else {
        discovery::paths(call, 404)
    }
}

async fn resource(call: &Call<'_>) -> Result<Reply, Box<Status>> {
    let info = call.info;
    let served = call.api.registry.served();
    let Some(entry) = served.find(&info.group, &info.version, &info.resource) else {
        let builtin = info.group.is_empty() || served.is_builtin(&info.group);
        return if builtin { Err(Status::page_not_found()) } else { Ok(nothing_here(call)) };
    };
    let in_namespace = !info.namespace.is_empty() && info.resource != "namespaces";
    if info.trailing && info.subresource != "proxy" {
        return Err(Status::page_not_found());
    }
    if in_namespace && !entry.kind.namespaced {
        return if entry.kind.is_custom() { Ok(nothing_here(call)) } else { Err(Status::page_not_found()) };
    }
    if info.named {
        check_path_name(&info.name)?;
        if entry.kind.namespaced && !in_namespace {
            return if entry.kind.is_custom() {
                Ok(nothing_here(call))
            } else {
                Err(Status::page_not_found())
            };
        }
    }
    if in_namespace {
        check_path_name(&info.namespace)?;
    }
    let reply = if info.subresource.is_empty() {
        object(call, entry).await
    } else {
        subresources::dispatch(call, entry).await
    }?;
    Ok(warn_about_version(reply, entry))
}

/// Deprecated versions of custom resources have a warning.
fn warn_about_version(mut reply: Reply, entry: &Entry) -> Reply {
    if let Some(warning) = entry.kind.deprecation_warning() {
        reply.warnings.add(warning);
    }
    reply
}

async fn object(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let info = call.info;
    let verb = match info.verb {
        "" => return Err(Status::method_not_allowed()),
        verb => verb,
    };
    let fits = match verb {
        "create" => !info.named && (!entry.kind.namespaced || !info.namespace.is_empty()),
        "update" | "patch" | "delete" | "get" => info.named,
        "deletecollection" => !entry.kind.namespaced || !info.namespace.is_empty(),
        _ => true,
    };
    if entry.kind.is_custom() && !info.named && matches!(verb, "update" | "patch") {
        return Err(Status::bad_request("name must be provided"));
    }
    if !fits || !entry.has_verb(verb) {
        return Err(Status::method_not_allowed());
    }
    if matches!(verb, "get" | "list" | "watch") {
        system_objects::refresh(call.api, entry).await?;
    }
    match verb {
        "get" => get::get(call, entry).await,
        "list" => list::list(call, entry).await,
        "watch" => watch::watch(call, entry),
        "create" if review::is_review(entry) => review::create(call, entry),
        "create" if entry.kind.plural == "bindings" => subresources::binding::create(call, entry).await,
        "create" => create::create(call, entry).await,
        "update" => update::update(call, entry, "").await,
        "patch" => patch::patch(call, entry, "").await,
        "delete" => delete::delete(call, entry).await,
        _ => deletecollection::deletecollection(call, entry).await,
    }
}

/// An `ETag`, and 304 for who has it already.
pub(crate) fn with_etag(call: &Call<'_>, reply: Reply, etag: &str) -> Reply {
    let quoted = format!("\"{etag}\"");
    let known = call.parts.headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    let Ok(value) = HeaderValue::from_str(&quoted) else { return reply };
    let reply = if known.is_some_and(|known| known.split(',').any(|k| k.trim() == quoted)) {
        Reply::bytes(304, reply.content_type, Vec::new())
    } else {
        reply
    };
    reply.with_header(header::ETAG, value).with_header(header::VARY, HeaderValue::from_static("Accept"))
}
