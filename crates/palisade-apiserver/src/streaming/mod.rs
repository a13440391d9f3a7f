//! Connections into running containers: `exec`, `attach`, `portforward` and `proxy` of pods, and logs over WebSocket.
//!
//! Implements: `ConnectResource` of upstream's API server and the connect methods of its pod registry. A connection is authorized
//! (as `create`, whatever the method, since v1.35), admitted as `CONNECT` with its options as the object, and only then
//! requested of a node. It ends with the pod.
//!
//! ```text
//!  kubectl ─► authorize ─► admission ─► node: address of the stream ─► session
//!             WebSocket v5                translated to SPDY       (`websocket::remote_command`)
//!             WebSocket with SPDY in it   unwrapped to SPDY        (`websocket::tunnel`)
//!             SPDY, older WebSockets      passed on unread         (`passed_on`)
//! ```
//!
//! | module | job |
//! | --- | --- |
//! | `options` | the options of a connection |
//! | `proxy` | HTTP requests to pods, services and nodes |
//! | `transport` | connections to what answers for a pod |
//! | `kubelet` | kubelets in other processes |
//! | `websocket`, `spdy` | the protocols that are translated |
//! | `session` | how long a connection lasts |
//!
//! Leaves to others: finding the containers of a node in this process ([`crate::stream_source`]).

mod kubelet;
mod options;
mod proxy;
mod session;
mod spdy;
mod transport;
mod websocket;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::BodyExt as _;
use palisade_apimachinery::rest::path::Get as _;
use palisade_apimachinery::{Status, kinds};
use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::sync::mpsc;

pub use kubelet::KubeletClientError;
pub(crate) use kubelet::{CLIENT as KUBELET_CLIENT, client_config as kubelet_client_config};
pub(crate) use proxy::connect as proxy;
pub(crate) use session::MOST_SESSIONS;
pub use session::Session;
pub(crate) use websocket::wants_upgrade;

use session::Scope;
use transport::{Backend, TransportError, Upgrade};

use crate::api::Call;
use crate::auth::rbac::Attributes;
use crate::http::Reply;
use crate::log_source::LogRequest;
use crate::meta;
use crate::options::WriteOptions;
use crate::registry::Entry;
use crate::stream_source::{StreamRequest, StreamTarget, Streams};
use crate::subresources::place;
use crate::verbs::write::Writer;

const SPDY: HeaderValue = HeaderValue::from_static("SPDY/3.1");
const UPGRADE: HeaderValue = HeaderValue::from_static("Upgrade");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// The subprotocols towards a node.
const REMOTE_COMMAND: HeaderValue = HeaderValue::from_static("v4.channel.k8s.io");
const PORT_FORWARD: HeaderValue = HeaderValue::from_static("portforward.k8s.io");
/// What of a request goes to a node: the protocol. Never who the client is.
const FORWARDED: &[&str] =
    &["connection", "upgrade", "sec-websocket-key", "sec-websocket-version", "x-stream-protocol-version"];
/// What of a node's answer goes to the client.
const RETURNED: &[&str] =
    &["connection", "upgrade", "sec-websocket-accept", "sec-websocket-protocol", "x-stream-protocol-version"];

/// The tokens among the subprotocols of a WebSocket, encoded.
pub(crate) fn bearer_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let protocols = websocket::tokens(headers, &header::SEC_WEBSOCKET_PROTOCOL);
    protocols.filter_map(|protocol| protocol.strip_prefix(websocket::BEARER))
}

/// Connects a client with a container or the ports of a pod.
pub(crate) async fn connect(call: &Call<'_>, entry: &Arc<Entry>) -> Result<Reply, Box<Status>> {
    // A WebSocket begins with a GET, which is the verb `get`, and readers are not meant to run commands.
    if call.info.verb != "create" && call.api.version.at_least(35) {
        call.api.authorize(call.user, &Attributes::of("create", call.info))?;
    }
    let Some(kind) = kinds::connect_kind("pods", &call.info.subresource, call.api.version) else {
        return Err(Status::method_not_allowed());
    };
    let options = options::of_query(&kind.kind, call.query)?;
    let mut writer = Writer::new(call, entry, &call.info.subresource, WriteOptions::without_body(false));
    let mut reply = match writer.admit_connect(&kind, options).await {
        Ok(options) => match open(call, entry, &options).await {
            Ok(reply) => reply,
            Err(status) => Reply::error(status),
        },
        Err(status) => Reply::error(status),
    };
    writer.annotate(&mut reply);
    Ok(reply)
}

/// Opens an admitted connection.
async fn open(call: &Call<'_>, entry: &Entry, options: &Value) -> Result<Reply, Box<Status>> {
    let pod = place::pod(call, entry)?;
    let what = call.info.subresource.as_str();
    let target = if what == "portforward" {
        StreamTarget::PortForward { ports: options::ports(options)? }
    } else {
        let container = place::container(&pod, &call.info.name, options.text("container"))?;
        let streams = options::streams(options)?;
        match what {
            "exec" => StreamTarget::Exec { container, command: options::command(options), streams },
            _ => StreamTarget::Attach { container, streams },
        }
    };
    let Some(node) = place::node(call, &pod)? else {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", call.info.name)));
    };
    let headers = &call.parts.headers;
    if !wants_upgrade(headers, None) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let uid = meta::meta_text(&pod, "uid").to_owned();
    let scope = Scope::of(call, entry, &uid)?;
    let forwards = matches!(target, StreamTarget::PortForward { .. });
    let (backend, streams) = match backend(call, &node, pod, target).await? {
        Ok(found) => found,
        Err(refused) => return Ok(*refused),
    };
    let translated = if forwards { websocket::TUNNEL } else { websocket::REMOTE_COMMAND };
    if !wants_upgrade(headers, Some("websocket")) || !websocket::offered(headers).any(|own| own == translated)
    {
        return passed_on(call, &backend, scope).await;
    }
    let mut reply = websocket::accept(&call.parts.method, headers, Some(translated))?;
    let protocol = if forwards { PORT_FORWARD } else { REMOTE_COMMAND };
    let wanted = HeaderMap::from_iter([
        (header::CONNECTION, UPGRADE),
        (header::UPGRADE, SPDY),
        (PROTOCOL_VERSION, protocol.clone()),
    ]);
    let runtime =
        match backend.upgrade(&Method::POST, wanted).await.map_err(|error| unreachable_node(&error))? {
            Upgrade::Refused(refused) => return Ok(refused),
            Upgrade::Switched { headers, .. } if headers.get(PROTOCOL_VERSION) != Some(&protocol) => {
                return Err(Status::internal("the node switched to another protocol than SPDY/3.1"));
            }
            Upgrade::Switched { io, .. } => io,
        };
    reply.session = Some(if forwards {
        scope.session(move |client| websocket::tunnel(client, runtime))
    } else {
        scope.session(move |client| websocket::remote_command(client, runtime, streams))
    });
    Ok(reply)
}

/// What answers for the pod: the runtime of a node in this process, or a kubelet. Otherwise the answer for the client.
async fn backend(
    call: &Call<'_>,
    node: &Value,
    pod: Value,
    target: StreamTarget,
) -> Result<Result<(Backend, Streams), Box<Reply>>, Box<Status>> {
    let name = meta::meta_text(node, "name");
    if let Some(source) = call.api.streams.as_ref().filter(|source| source.serves(name)) {
        return match source.open(StreamRequest { pod, target }).await {
            Ok(found) => {
                let backend = Backend::of_uri(&found.uri).map_err(|error| unreachable_node(&error))?;
                Ok(Ok((backend, found.streams)))
            }
            // A kubelet's errors are text, and kubectl prints them as they are.
            Err(error) => Ok(Err(Box::new(Reply::text(error.code, error.message)))),
        };
    }
    let (namespace, pod) = (&call.info.namespace, &call.info.name);
    let kubelet =
        call.api.kubelets.as_ref().and_then(|tls| kubelet::stream(node, tls, namespace, pod, &target));
    let streams = match target {
        StreamTarget::Exec { streams, .. } | StreamTarget::Attach { streams, .. } => streams,
        StreamTarget::PortForward { .. } => Streams::default(),
    };
    kubelet.map(|backend| Ok((backend, streams))).ok_or_else(|| {
        let what = &call.info.subresource;
        let why = format!("no kubelet answers for node {name:?}: {what} is not available");
        Status::new(501, "NotImplemented", why)
    })
}

/// Passes the protocol of the client on to the node, and its bytes without reading them.
async fn passed_on(call: &Call<'_>, backend: &Backend, scope: Scope) -> Result<Reply, Box<Status>> {
    let given = &call.parts.headers;
    let mut wanted = only(given, FORWARDED);
    let protocols = websocket::offered(given).collect::<Vec<_>>().join(", ");
    if !protocols.is_empty() {
        let value =
            HeaderValue::from_str(&protocols).map_err(|error| Status::bad_request(error.to_string()))?;
        wanted.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
    let answered = backend.upgrade(&call.parts.method, wanted).await;
    let (headers, mut runtime) = match answered.map_err(|error| unreachable_node(&error))? {
        Upgrade::Refused(reply) => return Ok(reply),
        Upgrade::Switched { headers, io } => (headers, io),
    };
    let mut reply = Reply::bytes(101, "", Bytes::new());
    reply
        .headers
        .extend(only(&headers, RETURNED).into_iter().filter_map(|(name, value)| Some((name?, value))));
    reply.session = Some(scope.session(move |mut client| async move {
        if let Err(error) = copy_bidirectional(&mut client, &mut runtime).await {
            tracing::debug!(%error, "a connection into a pod broke");
        }
    }));
    Ok(reply)
}

fn only(headers: &HeaderMap, names: &[&str]) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| names.contains(&name.as_str()));
    let mut only = HeaderMap::new();
    for (name, value) in kept {
        only.append(name, value.clone());
    }
    only
}

fn unreachable_node(error: &TransportError) -> Box<Status> {
    Status::internal(error.to_string())
}

/// A log of a kubelet in another process; nothing if the node has none.
pub(crate) async fn kubelet_log(
    call: &Call<'_>,
    node: &Value,
    request: &LogRequest,
) -> Result<Option<mpsc::Receiver<Bytes>>, Box<Status>> {
    let (namespace, pod) = (&call.info.namespace, &call.info.name);
    let kubelet = call.api.kubelets.as_ref().and_then(|tls| kubelet::log(node, tls, namespace, pod, request));
    let Some(backend) = kubelet else { return Ok(None) };
    let response =
        backend.send(&Method::GET, HeaderMap::new()).await.map_err(|error| unreachable_node(&error))?;
    let code = response.status().as_u16();
    let mut body = response.into_body();
    if code != 200 {
        return Err(transport::refusal(code, body).await);
    }
    let (sender, pieces) = mpsc::channel(4);
    tokio::spawn(async move {
        loop {
            let frame = tokio::select! {
                () = sender.closed() => return,
                frame = body.frame() => frame,
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data()
                        && sender.send(piece).await.is_err()
                    {
                        return;
                    }
                }
                Some(Err(error)) => {
                    return tracing::warn!(%error, "cannot read the log of a kubelet to its end");
                }
                None => return,
            }
        }
    });
    Ok(Some(pieces))
}

/// Sends a log over the WebSocket that the client wants.
pub(crate) fn log_over_websocket(
    call: &Call<'_>,
    entry: &Entry,
    uid: &str,
    pieces: mpsc::Receiver<Bytes>,
) -> Result<Reply, Box<Status>> {
    let headers = &call.parts.headers;
    let Some((protocol, base64)) = websocket::log_protocol(headers) else {
        return Err(Status::bad_request("no subprotocol of the WebSocket is supported"));
    };
    let mut reply = websocket::accept(&call.parts.method, headers, protocol)?;
    let scope = Scope::of(call, entry, uid)?;
    reply.session = Some(scope.session(move |client| websocket::send_log(client, pieces, base64)));
    Ok(reply)
}
