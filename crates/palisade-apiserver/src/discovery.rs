//! What is there to request? Groups, versions and resources, one by one or all at once.
//!
//! Implements: The Kubernetes API, "API Discovery" (unaggregated and aggregated).
//! <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api>

use std::collections::BTreeMap;

use base64::Engine as _;
use bytes::Bytes;
use palisade_apimachinery::scheme::Subresource;
use palisade_apimachinery::{Kind, Status};
use palisade_model::server_version::announce;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use crate::api::Call;
use crate::auth::token::ISSUER;
use crate::dispatch::with_etag;
use crate::http::{Reply, negotiate};
use crate::registry::{Entry, Served};

const PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
];

/// Every path, also as the answer to one that is not there.
pub fn paths(call: &Call<'_>, code: u16) -> Reply {
    let served = call.api.registry.served();
    let mut paths: Vec<String> = PATHS.iter().map(|p| (*p).to_owned()).collect();
    for (group, versions) in group_versions(&served) {
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
            paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
        }
    }
    paths.sort();
    Reply::json(code, &json!({"paths": paths}))
}

/// `/version` of the emulated release; with Palisade's extensions, it announces them.
pub fn version(call: &Call<'_>) -> Reply {
    let version = call.api.version;
    let minor = version.minor().to_string();
    let mut info = json!({
        "major": "1",
        "minor": minor,
        "gitVersion": version.git_version(),
        "gitCommit": "x",
        "gitTreeState": "clean",
        "buildDate": "2026-08-01T00:00:00Z",
        "goVersion": "go1.26.6",
        "compiler": "gc",
        "platform": "linux/amd64",
    });
    if let (true, Value::Object(info)) = (version.at_least(33), &mut info) {
        info.insert("emulationMajor".to_owned(), "1".into());
        info.insert("emulationMinor".to_owned(), minor.into());
        info.insert("minCompatibilityMajor".to_owned(), "1".into());
        info.insert("minCompatibilityMinor".to_owned(), version.minor().saturating_sub(1).to_string().into());
    }
    if let Value::Object(info) = &mut info {
        announce(&call.api.compat, info);
    }
    Reply::json(200, &info)
}

/// Where tokens come from.
#[must_use]
pub fn openid_configuration() -> Reply {
    Reply::json(
        200,
        &json!({
            "issuer": ISSUER,
            "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }),
    )
}

/// The keys tokens are signed with.
pub fn jwks(call: &Call<'_>) -> Reply {
    Reply::json(200, &json!({"keys": [call.api.authenticator.key.jwk()]}))
}

/// The versions of each group, the preferred one first.
pub(crate) fn group_versions(served: &Served) -> Vec<(String, Vec<String>)> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in &served.entries {
        let versions = groups.entry(entry.kind.group.clone()).or_default();
        if !versions.contains(&entry.kind.version) {
            versions.push(entry.kind.version.clone());
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(group, _)| std::cmp::Reverse(group_priority(group)));
    groups
}

/// The priorities of groups, as upstream's aggregator registers them. Groups of equal priority are sorted by name.
const PRIORITIES: &[(&str, u32)] = &[
    ("", 18_000),
    ("apiregistration.k8s.io", 17_900),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("admissionregistration.k8s.io", 16_700),
    ("apiextensions.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("storagemigration.k8s.io", 15_800),
];

/// The priority of a group; those of definitions have the lowest.
#[must_use]
pub(crate) fn group_priority(group: &str) -> u32 {
    PRIORITIES.iter().find(|(known, _)| *known == group).map_or(1000, |(_, priority)| *priority)
}

/// v2 before v1 before v1beta2 before v1beta1 before v1alpha1 before anything else.
#[must_use]
pub fn version_priority(version: &str) -> (u8, u32, u32, std::cmp::Reverse<String>) {
    let other = (0, 0, 0, std::cmp::Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return other };
    let digits = |text: &str| text.parse::<u32>().ok();
    for (stage, word) in [(2, "beta"), (1, "alpha")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return match (digits(major), digits(minor)) {
                (Some(major), Some(minor)) => (stage, major, minor, std::cmp::Reverse(String::new())),
                _ => other,
            };
        }
    }
    digits(rest).map_or(other, |major| (3, major, 0, std::cmp::Reverse(String::new())))
}

/// Which aggregated documents the emulated release has.
fn aggregated(call: &Call<'_>) -> Option<&'static str> {
    let offered: &[&'static str] = match call.api.version.minor() {
        30.. => &["v2", "v2beta1"],
        26.. => &["v2beta1"],
        _ => &[],
    };
    negotiate::aggregated_discovery(&call.parts.headers, offered)
}

/// `/api`.
pub fn core_versions(call: &Call<'_>) -> Reply {
    if let Some(version) = aggregated(call) {
        return aggregated_list(call, version, true);
    }
    Reply::json(
        200,
        &json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": call.api.address}],
        }),
    )
}

/// `/apis`.
pub fn groups(call: &Call<'_>) -> Reply {
    if let Some(version) = aggregated(call) {
        return aggregated_list(call, version, false);
    }
    let served = call.api.registry.served();
    let groups: Vec<Value> = group_versions(&served)
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| Value::Object(api_group(group, versions)))
        .collect();
    Reply::json(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
}

/// `/apis/apps`.
pub fn group(call: &Call<'_>, group: &str) -> Result<Reply, Box<Status>> {
    let served = call.api.registry.served();
    let groups = group_versions(&served);
    let versions = groups.iter().find(|(known, _)| known == group).map(|(_, versions)| versions);
    let versions = versions.ok_or_else(Status::page_not_found)?;
    let mut document = api_group(group, versions);
    document.insert("kind".to_owned(), "APIGroup".into());
    document.insert("apiVersion".to_owned(), "v1".into());
    Ok(Reply::json(200, &Value::Object(document)))
}

fn api_group(group: &str, versions: &[String]) -> Map<String, Value> {
    let version = |v: &String| json!({"groupVersion": format!("{group}/{v}"), "version": v});
    let mut document = Map::new();
    document.insert("name".to_owned(), group.into());
    document.insert("versions".to_owned(), versions.iter().map(version).collect::<Vec<_>>().into());
    if let Some(first) = versions.first() {
        document.insert("preferredVersion".to_owned(), version(first));
    }
    document
}

/// `/api/v1`, `/apis/apps/v1`.
pub fn resources(call: &Call<'_>, group: &str, version: &str) -> Result<Reply, Box<Status>> {
    let served = call.api.registry.served();
    let mut resources = Vec::new();
    for entry in kinds_of(&served, group, version) {
        resources.push(resource(entry));
        resources.extend(entry.kind.subresources.iter().map(|s| subresource(&entry.kind, s)));
    }
    if resources.is_empty() {
        return Err(Status::page_not_found());
    }
    resources.sort_by_key(|r| r.get("name").and_then(Value::as_str).unwrap_or_default().to_owned());
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if let (false, Value::Object(list)) = (group.is_empty(), &mut list) {
        list.insert("apiVersion".to_owned(), "v1".into());
    }
    Ok(Reply::json(200, &list))
}

fn kinds_of<'a>(served: &'a Served, group: &str, version: &str) -> impl Iterator<Item = &'a Entry> {
    let (group, version) = (group.to_owned(), version.to_owned());
    served.entries.iter().map(|e| &**e).filter(move |e| e.kind.group == group && e.kind.version == version)
}

/// The hash by which clients see that two servers store the same thing.
fn storage_version_hash(entry: &Entry) -> String {
    let kind = &entry.kind;
    let custom = entry.versions.as_deref().map(|versions| versions.storage().version.as_str());
    let text = format!("{}/{}/{}", kind.group, custom.unwrap_or_else(|| kind.stored_version()), kind.kind);
    let hash = digest(&SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(hash.as_ref().get(..8).unwrap_or_default())
}

fn resource(entry: &Entry) -> Value {
    let kind = &entry.kind;
    let mut document = json!({
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs,
    });
    if let Value::Object(document) = &mut document {
        if !kind.short_names.is_empty() {
            document.insert("shortNames".to_owned(), json!(kind.short_names));
        }
        if !kind.categories.is_empty() {
            document.insert("categories".to_owned(), json!(kind.categories));
        }
        // What is made up of the moment is not stored.
        if kind.verbs.contains(&"watch") {
            document.insert("storageVersionHash".to_owned(), storage_version_hash(entry).into());
        }
    }
    document
}

fn subresource(kind: &Kind, subresource: &Subresource) -> Value {
    let name = if subresource.kind.is_empty() { kind.kind.as_str() } else { subresource.kind };
    let mut document = json!({
        "name": format!("{}/{}", kind.plural, subresource.name),
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": name,
        "verbs": subresource.verbs,
    });
    if let (false, Value::Object(document)) = (subresource.group.is_empty(), &mut document) {
        document.insert("group".to_owned(), subresource.group.into());
        document.insert("version".to_owned(), subresource.version.into());
    }
    document
}

fn aggregated_list(call: &Call<'_>, version: &'static str, core: bool) -> Reply {
    let served = call.api.registry.served();
    let make = || {
        let items: Vec<Value> = group_versions(&served)
            .iter()
            .filter(|(group, _)| group.is_empty() == core)
            .map(|(group, versions)| aggregated_group(&served, group, versions))
            .collect();
        let list = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{version}"),
            "metadata": {},
            "items": items,
        });
        let body = serde_json::to_vec(&list).unwrap_or_default();
        let etag = digest(&SHA256, &body).as_ref().iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>();
        (Bytes::from(body), etag.concat())
    };
    let [newest, older] = &served.discovery;
    let (body, etag) = match (core, version) {
        (true, _) => make(),
        (false, "v2") => newest.get_or_init(make).clone(),
        (false, _) => older.get_or_init(make).clone(),
    };
    let content_type = match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    with_etag(call, Reply::bytes(200, content_type, body), &etag)
}

fn aggregated_group(served: &Served, group: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            let mut kinds: Vec<&Entry> = kinds_of(served, group, version).collect();
            kinds.sort_by(|a, b| a.kind.plural.cmp(&b.kind.plural));
            let resources: Vec<Value> = kinds.iter().map(|entry| aggregated_resource(&entry.kind)).collect();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.is_empty() {
        json!({"creationTimestamp": null})
    } else {
        json!({"name": group, "creationTimestamp": null})
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let response_kind =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut document = json!({
        "resource": kind.plural,
        "responseKind": response_kind(&kind.group, &kind.version, &kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    let Value::Object(fields) = &mut document else { return document };
    if !kind.short_names.is_empty() {
        fields.insert("shortNames".to_owned(), json!(kind.short_names));
    }
    if !kind.categories.is_empty() {
        fields.insert("categories".to_owned(), json!(kind.categories));
    }
    if !kind.subresources.is_empty() {
        let subresources: Vec<Value> = kind
            .subresources
            .iter()
            .map(|s| {
                let name = if s.kind.is_empty() { kind.kind.as_str() } else { s.kind };
                let (group, version) = if s.group.is_empty() {
                    (kind.group.as_str(), kind.version.as_str())
                } else {
                    (s.group, s.version)
                };
                let response = response_kind(group, version, name);
                json!({"subresource": s.name, "responseKind": response, "verbs": s.verbs})
            })
            .collect();
        fields.insert("subresources".to_owned(), subresources.into());
    }
    document
}

#[cfg(test)]
mod tests {
    use super::version_priority;

    #[test]
    fn orders_versions_as_upstream_documents() {
        let mut versions =
            ["foo10", "v1", "v11alpha2", "v10beta3", "v3beta1", "v12alpha1", "foo1", "v10", "v11beta2"];
        versions.sort_by_key(|v| std::cmp::Reverse(version_priority(v)));
        let expected =
            ["v10", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"];
        assert_eq!(versions, expected);
    }
}
