//! The description of the API: OpenAPI v2 and v3, for `kubectl explain`, completion and client-side validation.
//!
//! Implements: The Kubernetes API, "OpenAPI interface definition".
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>

use palisade_apimachinery::{Status, openapi};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use crate::api::Call;
use crate::dispatch::with_etag;
use crate::http::Reply;

fn kinds(call: &Call<'_>) -> Vec<std::sync::Arc<palisade_apimachinery::Kind>> {
    call.api.registry.served().entries.iter().map(|e| e.kind.clone()).collect()
}

fn hash(body: &[u8]) -> String {
    digest(&SHA256, body).as_ref().iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().concat()
}

/// `/openapi/v2`, as JSON or as protobuf for clients that know nothing else.
pub(crate) fn v2(call: &Call<'_>) -> Result<Reply, Box<Status>> {
    let document = openapi::v2(&kinds(call), call.api.version);
    let accept = call.parts.headers.get(http::header::ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
    let wants_protobuf = accept.contains("application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
        || accept.contains("application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    let json = serde_json::to_vec(&document).unwrap_or_default();
    let etag = hash(&json);
    let reply = if wants_protobuf {
        let body = crate::openapi_proto::encode(&document);
        Reply::bytes(200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", body)
    } else {
        Reply::bytes(200, crate::http::reply::JSON, json)
    };
    Ok(with_etag(call, reply, &etag))
}

/// `/openapi/v3`: where the documents are.
pub(crate) fn v3_index(call: &Call<'_>) -> Reply {
    let mut paths = Map::new();
    for path in openapi::v3_paths(&kinds(call)) {
        let document = openapi::v3(&kinds(call), &path, call.api.version);
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let url = format!("/openapi/v3/{path}?hash={}", hash(&body));
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    Reply::json(200, &json!({"paths": Value::Object(paths)}))
}

/// `/openapi/v3/apis/apps/v1`.
pub(crate) fn v3(call: &Call<'_>, path: &[&str]) -> Result<Reply, Box<Status>> {
    let path = path.join("/");
    let document = openapi::v3(&kinds(call), &path, call.api.version).ok_or_else(Status::page_not_found)?;
    let body = serde_json::to_vec(&document).unwrap_or_default();
    let etag = hash(&body);
    Ok(with_etag(call, Reply::bytes(200, crate::http::reply::JSON, body), &etag))
}
