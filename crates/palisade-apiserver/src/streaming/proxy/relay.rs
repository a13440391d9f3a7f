//! One proxied request: headers on the way in, the answer on the way out, and upgraded connections.
//!
//! Implements: `httputil.ReverseProxy` as upstream's `UpgradeAwareHandler` uses it: hop-by-hop headers end here, `X-Forwarded-For` and
//! `X-Forwarded-Uri` are added, headers of CORS are removed. A backend that cannot be reached is a 503.

use std::collections::VecDeque;
use std::io::Read as _;

use bytes::Bytes;
use flate2::read::{GzDecoder, ZlibDecoder};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use palisade_apimachinery::Status;
use tokio::io::copy_bidirectional;

use super::rewrite::Links;
use crate::api::Call;
use crate::http::{Body, Reply};
use crate::streaming::session::Scope;
use crate::streaming::transport::{Backend, TransportError};
use crate::streaming::websocket::{offered, tokens};

/// Larger pages keep their links.
const MOST_PAGE: usize = 4 << 20;
/// What belongs to one connection (RFC 9110, section 7.6.1).
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// What an answer may not allow in the name of this server, and what this server sets itself.
const OURS: &[&str] = &[
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "audit-id",
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// A request on its way to its backend.
pub(super) struct Relayed<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) backend: Backend,
    /// The path that stands for the backend's root.
    pub(super) prefix: &'a str,
}

/// Whether a header is the user's credential for this server, or pretends to be one.
fn is_credential(name: &HeaderName) -> bool {
    let name = name.as_str();
    name == "authorization" || name.starts_with("impersonate-") || name.starts_with("x-remote-")
}

/// The headers that go on to another connection.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let listed: Vec<String> = tokens(headers, &header::CONNECTION).map(str::to_ascii_lowercase).collect();
    let mut kept = HeaderMap::new();
    for (name, value) in headers {
        if !HOP_BY_HOP.contains(&name.as_str()) && !listed.iter().any(|own| own == name.as_str()) {
            kept.append(name, value.clone());
        }
    }
    kept
}

fn unreachable(error: &TransportError) -> Box<Status> {
    Status::new(503, "ServiceUnavailable", format!("error trying to reach service: {error}"))
}

impl Relayed<'_> {
    /// The answer to a request that stays HTTP.
    pub(super) async fn request(&self) -> Result<Reply, Box<Status>> {
        let headers = self.headers();
        let (method, body) = (&self.call.parts.method, self.call.body.clone());
        let answered = self.backend.exchange(method, headers, body).await;
        self.answer(answered.map_err(|error| unreachable(&error))?).await
    }

    /// The answer to a request for another protocol, and the connection if the backend switches to it.
    pub(super) async fn upgrade(&self, scope: Scope) -> Result<Reply, Box<Status>> {
        let given = &self.call.parts.headers;
        let mut headers = self.headers();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        for value in given.get_all(header::UPGRADE) {
            headers.append(header::UPGRADE, value.clone());
        }
        // Without the token that may be among them.
        let protocols = offered(given).collect::<Vec<_>>().join(", ");
        headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
        if !protocols.is_empty() {
            let value =
                HeaderValue::from_str(&protocols).map_err(|error| Status::bad_request(error.to_string()))?;
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
        }
        let (method, body) = (&self.call.parts.method, self.call.body.clone());
        let answered = self.backend.exchange(method, headers, body).await;
        let mut response = answered.map_err(|error| unreachable(&error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return self.answer(response).await;
        }
        let upgraded = hyper::upgrade::on(&mut response).await;
        let mut backend = TokioIo::new(upgraded.map_err(|error| unreachable(&TransportError::Http(error)))?);
        let mut reply = Reply::bytes(101, "", Bytes::new());
        let answered = response.headers().iter().filter(|(name, _)| !OURS.contains(&name.as_str()));
        reply.headers.extend(answered.map(|(name, value)| (name.clone(), value.clone())));
        reply.session = Some(scope.session(move |mut client| async move {
            if let Err(error) = copy_bidirectional(&mut client, &mut backend).await {
                tracing::debug!(%error, "a proxied connection broke");
            }
        }));
        Ok(reply)
    }

    /// The host that the client requested.
    fn host(&self) -> Option<HeaderValue> {
        let parts = &self.call.parts;
        let of_uri = || HeaderValue::from_str(parts.uri.authority()?.as_str()).ok();
        parts.headers.get(header::HOST).cloned().or_else(of_uri)
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = end_to_end(&self.call.parts.headers);
        let credentials: Vec<HeaderName> =
            headers.keys().filter(|name| is_credential(name)).cloned().collect();
        for name in credentials {
            headers.remove(name);
        }
        // The length is that of the body that was read.
        headers.remove(header::CONTENT_LENGTH);
        if let Some(host) = self.host() {
            headers.insert(header::HOST, host);
        }
        if let Some(address) = self.call.address {
            let before = headers.get_all(&FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
            let mut chain: Vec<String> = before.map(str::to_owned).collect();
            chain.push(address.ip().to_string());
            if let Ok(value) = HeaderValue::from_str(&chain.join(", ")) {
                headers.insert(FORWARDED_FOR, value);
            }
        }
        let path = self.backend.target.split('?').next().unwrap_or_default();
        if let Ok(value) = HeaderValue::from_str(&format!("{}{path}", self.prefix)) {
            headers.insert(FORWARDED_URI, value);
        }
        headers
    }

    /// The answer of the backend, for the client.
    async fn answer(&self, response: Response<Incoming>) -> Result<Reply, Box<Status>> {
        let (parts, body) = response.into_parts();
        let mut headers = end_to_end(&parts.headers);
        for name in OURS {
            headers.remove(*name);
        }
        let host = self.host();
        let backend = self.backend.authority();
        let links = Links {
            prefix: self.prefix,
            hosts: [&backend, host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default()],
        };
        let mut is_page = is_page(&headers);
        if let Some(location) = headers.get(header::LOCATION) {
            let location = location
                .to_str()
                .map_err(|error| Status::internal(format!("failed to parse Location header: {error}")))?;
            if let Some(changed) = links.rewritten(location) {
                let value = HeaderValue::from_str(&changed)
                    .map_err(|error| Status::internal(format!("failed to parse Location header: {error}")))?;
                headers.insert(header::LOCATION, value);
            }
            is_page = false;
        }
        let body = if is_page && self.call.parts.method != Method::HEAD {
            page(&links, &mut headers, body).await.map_err(|error| unreachable(&error))?
        } else {
            Body::Relayed(VecDeque::new(), body)
        };
        let mut reply = Reply::bytes(parts.status.as_u16(), "", body);
        let mut last = None;
        for (name, value) in headers {
            // Further values come without their name.
            last = name.or(last);
            if let Some(name) = &last {
                reply.headers.push((name.clone(), value));
            }
        }
        Ok(reply)
    }
}

fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim() == "text/html"
}

/// A page with changed links, or as it is if it cannot be read.
async fn page(
    links: &Links<'_>,
    headers: &mut HeaderMap,
    mut body: Incoming,
) -> Result<Body, TransportError> {
    let (mut pieces, mut length) = (VecDeque::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            length = length.saturating_add(piece.len());
            pieces.push_back(piece);
        }
        if length > MOST_PAGE {
            return Ok(Body::Relayed(pieces, body));
        }
    }
    let bytes: Vec<u8> = pieces.iter().flatten().copied().collect();
    let Some(html) = decoded(headers, &bytes) else { return Ok(Body::Known(pieces)) };
    headers.remove(header::CONTENT_ENCODING);
    headers.remove(header::CONTENT_LENGTH);
    Ok(links.page(&html).into())
}

/// What a page is without its compression; nothing for one that is not known, is damaged or is too large.
fn decoded(headers: &HeaderMap, bytes: &[u8]) -> Option<Vec<u8>> {
    let most = u64::try_from(MOST_PAGE).ok()?;
    let encoding = headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes).unwrap_or_default();
    let mut html = Vec::new();
    match encoding {
        b"" | b"identity" => return Some(bytes.to_vec()),
        b"gzip" => GzDecoder::new(bytes).take(most + 1).read_to_end(&mut html),
        b"deflate" => ZlibDecoder::new(bytes).take(most + 1).read_to_end(&mut html),
        _ => return None,
    }
    .ok()?;
    (html.len() <= MOST_PAGE).then_some(html)
}
