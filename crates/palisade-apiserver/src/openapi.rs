//! The description of the API: OpenAPI v2 and v3, for `kubectl explain`, completion and client-side validation.
//!
//! Implements: The Kubernetes API, "OpenAPI interface definition".
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-interface-definition>

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use palisade_apimachinery::{Kind, Status, openapi};
use palisade_base::{sha256, version::KubeVersion};
use serde_json::{Map, Value, json};

use crate::api::Call;
use crate::dispatch::with_etag;
use crate::http::{Reply, reply};
use crate::registry::Entry;

/// A document and its hash.
#[derive(Debug)]
struct Document {
    body: Bytes,
    etag: String,
}

impl Document {
    fn new(body: Vec<u8>) -> Self {
        Self { etag: etag(&body), body: body.into() }
    }
}

/// An entity tag: the SHA-256 in upper-case hexadecimal.
fn etag(body: &[u8]) -> String {
    sha256::hex(body).to_uppercase()
}

/// The documents about a set of resources, made when they are requested.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    v2: OnceLock<Document>,
    v2_protobuf: OnceLock<Document>,
    v3: BTreeMap<String, Arc<GroupVersion>>,
}

/// The document about a group version. It is taken over as long as the kinds are the same.
#[derive(Debug)]
struct GroupVersion {
    kinds: Vec<Arc<Kind>>,
    /// Kept for built-in kinds only, since they never change. The document of custom kinds is copied from their definitions
    /// when it is requested.
    body: OnceLock<Bytes>,
    etag: OnceLock<String>,
}

impl GroupVersion {
    fn new(kinds: Vec<Arc<Kind>>) -> Self {
        Self { kinds, body: OnceLock::new(), etag: OnceLock::new() }
    }

    fn is_builtin(&self) -> bool {
        self.kinds.iter().all(|kind| !kind.is_custom())
    }

    fn body(&self, version: KubeVersion) -> Bytes {
        let make = || to_bytes(&openapi::v3(&self.kinds, version)).into();
        if self.is_builtin() { self.body.get_or_init(make).clone() } else { make() }
    }

    /// Differs exactly if the document differs. The schemas of custom kinds are hashed once for each definition, so that the
    /// index does not make every document.
    fn etag(&self, version: KubeVersion) -> &str {
        self.etag.get_or_init(|| {
            if self.is_builtin() {
                return etag(&self.body(version));
            }
            let fingerprint = |kind: &Kind| {
                kind.schema_fingerprint(sha256::digest).map(|hash| sha256::to_hex(hash).to_uppercase()).into()
            };
            etag(&to_bytes(&openapi::v3_outline(&self.kinds, version, fingerprint)))
        })
    }
}

/// Writing to memory cannot fail.
fn to_bytes(document: &openapi::Document<'_>) -> Vec<u8> {
    serde_json::to_vec(document).unwrap_or_default()
}

impl Documents {
    /// The documents about resources; those about group versions that are as they were before are taken over.
    pub(crate) fn new(entries: &[Arc<Entry>], before: &Self) -> Self {
        let mut groups: BTreeMap<String, Vec<Arc<Kind>>> = BTreeMap::new();
        for entry in entries {
            groups.entry(openapi::group_path(&entry.kind)).or_default().push(entry.kind.clone());
        }
        let same = |known: &GroupVersion, kinds: &[Arc<Kind>]| {
            known.kinds.len() == kinds.len()
                && known.kinds.iter().zip(kinds).all(|(known, kind)| Arc::ptr_eq(known, kind))
        };
        let v3 = groups.into_iter().map(|(path, kinds)| {
            let document = match before.v3.get(&path) {
                Some(known) if same(known, &kinds) => known.clone(),
                _ => Arc::new(GroupVersion::new(kinds)),
            };
            (path, document)
        });
        Self { v2: OnceLock::new(), v2_protobuf: OnceLock::new(), v3: v3.collect() }
    }
}

/// `/openapi/v2`, as JSON or as protobuf for clients that accept nothing else.
pub(crate) fn v2(call: &Call<'_>) -> Reply {
    let served = call.api.registry.served();
    let accept =
        call.parts.headers.get(http::header::ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
    let wants_protobuf = accept.contains("application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
        || accept.contains("application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    let kinds: Vec<Arc<Kind>> = served.entries.iter().map(|entry| entry.kind.clone()).collect();
    let make = || openapi::v2(&kinds, call.api.version);
    let (document, media_type) = if wants_protobuf {
        let document =
            served.openapi.v2_protobuf.get_or_init(|| Document::new(crate::openapi_proto::encode(&make())));
        (document, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
    } else {
        (served.openapi.v2.get_or_init(|| Document::new(to_bytes(&make()))), reply::JSON)
    };
    with_etag(call, Reply::bytes(200, media_type, document.body.clone()), &document.etag)
}

/// `/openapi/v3`: where the documents are.
pub(crate) fn v3_index(call: &Call<'_>) -> Reply {
    let served = call.api.registry.served();
    let paths: Map<String, Value> = served
        .openapi
        .v3
        .iter()
        .map(|(path, document)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.etag(call.api.version));
            (path.clone(), json!({"serverRelativeURL": url}))
        })
        .collect();
    Reply::json(200, &json!({"paths": paths}))
}

/// `/openapi/v3/apis/apps/v1`.
pub(crate) fn v3(call: &Call<'_>, path: &[&str]) -> Result<Reply, Box<Status>> {
    let served = call.api.registry.served();
    let document = served.openapi.v3.get(&path.join("/")).ok_or_else(Status::page_not_found)?;
    let version = call.api.version;
    Ok(with_etag(call, Reply::bytes(200, reply::JSON, document.body(version)), document.etag(version)))
}

#[cfg(test)]
mod tests {
    use palisade_apimachinery::crd::Definition;

    use super::*;

    fn group_version(description: &str, plural: &str) -> GroupVersion {
        let schema =
            json!({"type": "object", "properties": {"spec": {"type": "string", "description": description}}});
        let definition = json!({"spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema": schema}}]}});
        let text = definition.to_string().into();
        GroupVersion::new(Definition::read(&text, KubeVersion::LATEST, None).unwrap().kinds)
    }

    #[test]
    fn hashes_change_exactly_with_the_document() {
        let version = KubeVersion::LATEST;
        let one = group_version("one", "widgets");
        for (other, same) in [
            (group_version("one", "widgets"), true),
            (group_version("two", "widgets"), false),
            (group_version("one", "gadgets"), false),
        ] {
            assert_eq!(one.body(version) == other.body(version), same);
            assert_eq!(one.etag(version) == other.etag(version), same);
        }
        assert_eq!(one.etag(version).len(), 64);
    }
}
