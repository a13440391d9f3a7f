//! The `proxy` subresources of pods, services and nodes: HTTP requests to what listens there.
//!
//! Implements: Access Services Running on Clusters, "Manually constructing apiserver proxy URLs", and the proxy of upstream's API
//! server (`ProxyREST` of pods, services and nodes, `UpgradeAwareHandler`).
//! <https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/>
//!
//! A request is authorized with the verb of its method, admitted as `CONNECT` with its path as the object, and then made of the
//! address of the object and of no other ([`location`]). The backend never gets the client's credentials. As upstream,
//! the certificate of a backend is not verified.

mod location;
mod relay;
mod rewrite;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderValue, Method, header};
use palisade_apimachinery::status::GroupName;
use palisade_apimachinery::{Status, kinds};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::kubelet;
use super::session::Scope;
use super::transport::Backend;
use crate::api::Call;
use crate::http::Reply;
use crate::meta;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::storage::Object;
use crate::verbs::write::Writer;

use location::{Id, Location};
use relay::Relayed;

/// Spreads requests over the endpoints of a Service.
static TURN: AtomicUsize = AtomicUsize::new(0);

/// Where a request goes, and with whose end it ends.
struct Destination {
    backend: Backend,
    /// Plural, key and uid of the pod or node.
    owner: (&'static str, String, String),
}

/// Passes a request on.
pub(crate) async fn connect(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    let resource = entry.kind.plural.as_str();
    let Some(kind) = kinds::connect_kind(resource, "proxy", call.api.version) else {
        return Err(Status::method_not_allowed());
    };
    let path = percent_decode_str(&call.info.subpath).decode_utf8();
    let path = path.map_err(|_| Status::bad_request("the path is not UTF-8"))?;
    let mut options = json!({"apiVersion": "v1", "kind": kind.kind});
    if let (false, Value::Object(options)) = (path.is_empty(), &mut options) {
        options.insert("path".to_owned(), path.as_ref().into());
    }
    let mut writer = Writer::new(call, entry, "proxy", WriteOptions::without_body(false));
    let mut reply = match writer.admit_connect(&kind, options).await {
        Ok(options) => {
            let path = options.get("path").and_then(Value::as_str).unwrap_or_default();
            passed_on(call, entry, path).await.unwrap_or_else(Reply::error)
        }
        Err(status) => Reply::error(status),
    };
    writer.annotate(&mut reply);
    Ok(reply)
}

/// Passes an admitted request on.
async fn passed_on(call: &Call<'_>, entry: &Entry, path: &str) -> Result<Reply, Box<Status>> {
    let Destination { mut backend, owner } = destination(call, entry).await?;
    let requested = call.parts.uri.path();
    let query = call.parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let upgrades = super::wants_upgrade(&call.parts.headers, None);
    if path.is_empty() && !upgrades && matches!(call.parts.method, Method::GET | Method::HEAD) {
        // Links of the page behind it are relative to a folder.
        // Two slashes at its begin would make a host of the first segment.
        let folder = format!("/{}/{query}", requested.trim_start_matches('/'));
        let folder =
            HeaderValue::from_str(&folder).map_err(|error| Status::bad_request(error.to_string()))?;
        return Ok(Reply::bytes(301, "", Vec::new()).with_header(header::LOCATION, folder));
    }
    backend.target = format!("{}{query}", rewrite::encoded(&rewrite::clean(path)));
    let prefix = requested.strip_suffix(call.info.subpath.as_str()).unwrap_or(requested);
    let relayed = Relayed { call, backend, prefix };
    if !upgrades {
        return relayed.request().await;
    }
    let (plural, key, uid) = owner;
    let scope = Scope::of_object(call, call.api.store.bucket(plural), key, uid)?;
    relayed.upgrade(scope).await
}

async fn destination(call: &Call<'_>, entry: &Entry) -> Result<Destination, Box<Status>> {
    let what = entry.kind.singular.as_str();
    let id = Id::parse(&call.info.name, what)?;
    match what {
        "pod" => {
            let pod = object(call, "pods", id.name)
                .ok_or_else(|| Status::not_found(entry.kind.resource_name(), id.name))?;
            of_location(call, location::of_pod(id, &pod)?)
        }
        "service" => {
            let named = object(call, "services", id.name);
            // As upstream: only a number is looked up in the Service.
            if named.is_none() && id.port.parse::<i64>().is_ok() {
                return Err(Status::not_found(entry.kind.resource_name(), id.name));
            }
            let port = location::port_name(id, named.as_ref())?;
            let endpoints = object(call, "endpoints", id.name)
                .ok_or_else(|| Status::not_found(GroupName::new("", "endpoints"), id.name))?;
            let pods = |name: &str| object(call, "pods", name);
            let turn = TURN.fetch_add(1, Ordering::Relaxed);
            let namespace = call.info.namespace.as_str();
            of_location(call, location::of_endpoints(id, port, namespace, &endpoints, pods, turn)?)
        }
        _ => node(call, entry, id).await,
    }
}

fn object(call: &Call<'_>, plural: &str, name: &str) -> Option<Value> {
    let key = meta::key(plural != "nodes", &call.info.namespace, name);
    let found: Arc<Object> = call.api.store.bucket(plural).get(&key)?;
    Some(Value::Object(found.parse()))
}

fn of_location(call: &Call<'_>, location: Location) -> Result<Destination, Box<Status>> {
    let (name, uid) = location.pod.clone().unwrap_or_default();
    let owner = ("pods", meta::key(true, &call.info.namespace, &name), uid);
    Ok(Destination { backend: backend(location)?, owner })
}

fn backend(location: Location) -> Result<Backend, Box<Status>> {
    let tls = location.https.then(kubelet::anonymous_config).transpose();
    let tls = tls.map_err(|error| Status::internal(error.to_string()))?;
    Ok(Backend { addresses: location.addresses, tls, target: "/".to_owned() })
}

/// The kubelet of a node, with this server's certificate; or another port, with nothing. A node states its addresses itself, so they are
/// judged in both cases.
async fn node(call: &Call<'_>, entry: &Entry, id: Id<'_>) -> Result<Destination, Box<Status>> {
    let node = object(call, "nodes", id.name)
        .ok_or_else(|| Status::not_found(entry.kind.resource_name(), id.name))?;
    let owner = ("nodes", id.name.to_owned(), meta::meta_text(&node, "uid").to_owned());
    let kubelet = kubelet::addresses(&node);
    let is_kubelet = |addresses: &[(String, u16)]| {
        id.port.is_empty() || addresses.iter().any(|(_, port)| id.port == port.to_string())
    };
    match (kubelet, &call.api.kubelets) {
        (Some(addresses), Some(tls)) if is_kubelet(&addresses) => {
            let addresses = if call.api.loopback_kubelets {
                addresses
            } else {
                let port = addresses.first().map_or(0, |(_, port)| *port);
                allowed(&node, true, port).await?.addresses
            };
            let backend = Backend { addresses, tls: Some(tls.clone()), target: "/".to_owned() };
            return Ok(Destination { backend, owner });
        }
        _ if id.port.is_empty() => {
            let why = format!("no kubelet answers for node {:?}: proxy is not available", id.name);
            return Err(Status::new(501, "NotImplemented", why));
        }
        _ => {}
    }
    let port = location::other_port(id)?;
    let backend = backend(allowed(&node, id.https, port).await?)?;
    Ok(Destination { backend, owner })
}

/// A port of a node at the first of its names all of whose addresses are allowed. The addresses that are checked are the ones that are
/// connected to.
async fn allowed(node: &Value, https: bool, port: u16) -> Result<Location, Box<Status>> {
    let mut answer = location::of_addresses(https, port, &[]);
    for host in kubelet::hosts(node) {
        if let Ok(addresses) = tokio::net::lookup_host((host.as_str(), port)).await {
            let found: Vec<IpAddr> = addresses.map(|address| address.ip()).collect();
            answer = location::of_addresses(https, port, &found);
            if answer.is_ok() {
                break;
            }
        }
    }
    answer
}
