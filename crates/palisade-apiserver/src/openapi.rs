//! The description of the API: OpenAPI v2 and v3, for `kubectl explain`, completion and client-side validation.
//!
//! Implements: The Kubernetes API, "OpenAPI interface definition".
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use palisade_apimachinery::{Kind, KubeVersion, Status, openapi};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use crate::api::Call;
use crate::dispatch::with_etag;
use crate::http::{Reply, reply};

/// A document and its hash.
#[derive(Debug)]
struct Document {
    body: Bytes,
    etag: String,
}

impl Document {
    fn new(body: Vec<u8>) -> Self {
        let hash = digest(&SHA256, &body);
        let etag = hash.as_ref().iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().concat();
        Self { body: body.into(), etag }
    }
}

/// The documents about a set of resources, made when somebody asks for them.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    v2: OnceLock<Document>,
    v2_protobuf: OnceLock<Document>,
    v3: OnceLock<BTreeMap<String, Document>>,
}

impl Documents {
    fn v3(&self, kinds: &[Arc<Kind>], version: KubeVersion) -> &BTreeMap<String, Document> {
        self.v3.get_or_init(|| {
            let documents = openapi::v3_paths(kinds).into_iter().filter_map(|path| {
                let document = openapi::v3(kinds, &path, version)?;
                Some((path, Document::new(serde_json::to_vec(&document).unwrap_or_default())))
            });
            documents.collect()
        })
    }
}

fn kinds(call: &Call<'_>) -> Vec<Arc<Kind>> {
    call.api.registry.served().entries.iter().map(|e| e.kind.clone()).collect()
}

/// `/openapi/v2`, as JSON or as protobuf for clients that know nothing else.
pub(crate) fn v2(call: &Call<'_>) -> Reply {
    let served = call.api.registry.served();
    let accept =
        call.parts.headers.get(http::header::ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
    let wants_protobuf = accept.contains("application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
        || accept.contains("application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    let make = || openapi::v2(&kinds(call), call.api.version);
    let (document, media_type) = if wants_protobuf {
        let document =
            served.openapi.v2_protobuf.get_or_init(|| Document::new(crate::openapi_proto::encode(&make())));
        (document, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
    } else {
        let document =
            served.openapi.v2.get_or_init(|| Document::new(serde_json::to_vec(&make()).unwrap_or_default()));
        (document, reply::JSON)
    };
    with_etag(call, Reply::bytes(200, media_type, document.body.clone()), &document.etag)
}

/// `/openapi/v3`: where the documents are.
pub(crate) fn v3_index(call: &Call<'_>) -> Reply {
    let served = call.api.registry.served();
    let documents = served.openapi.v3(&kinds(call), call.api.version);
    let paths: Map<String, Value> = documents
        .iter()
        .map(|(path, document)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.etag);
            (path.clone(), json!({"serverRelativeURL": url}))
        })
        .collect();
    Reply::json(200, &json!({"paths": paths}))
}

/// `/openapi/v3/apis/apps/v1`.
pub(crate) fn v3(call: &Call<'_>, path: &[&str]) -> Result<Reply, Box<Status>> {
    let served = call.api.registry.served();
    let documents = served.openapi.v3(&kinds(call), call.api.version);
    let document = documents.get(&path.join("/")).ok_or_else(Status::page_not_found)?;
    Ok(with_etag(call, Reply::bytes(200, reply::JSON, document.body.clone()), &document.etag))
}
