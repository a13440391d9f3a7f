//! Serves the page on loopback to the person who started it, and to nothing else on the machine or in a browser.
//!
//! The path contains a random token, which other users of the machine and other pages in the browser do not have. The `Host`
//! header must be a loopback address: a page that rebinds its own name to 127.0.0.1 sends its own name. Only GET is answered, and
//! nothing changes the cluster.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use hyper::{
    Method, Request, StatusCode,
    header::{HOST, HeaderMap, HeaderName, HeaderValue},
};
use palisade_serve::status::{Reply, error, reply};

use super::page::STYLE;

/// Headers of every response.
const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The page.
    Page,
    /// Its style sheet.
    Style,
    /// Nothing: the status to answer.
    Refused(StatusCode),
}

/// The route of a request, from its method, path and headers.
#[must_use]
pub fn route(method: &Method, path: &str, headers: &HeaderMap, port: u16, token: &str) -> Route {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()); // swallowed: refused as missing
    let is_ours = host.is_some_and(|host| {
        ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| host == format!("{name}:{port}"))
    });
    if !is_ours || hosts.next().is_some() {
        return Route::Refused(StatusCode::MISDIRECTED_REQUEST);
    }
    let rest = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let Some((_, rest)) = rest.filter(|(given, _)| is_same(given, token)) else {
        return Route::Refused(StatusCode::NOT_FOUND);
    };
    if method != Method::GET {
        return Route::Refused(StatusCode::METHOD_NOT_ALLOWED);
    }
    match rest {
        "" => Route::Page,
        "page.css" => Route::Style,
        _ => Route::Refused(StatusCode::NOT_FOUND),
    }
}

/// Compares in a time that does not depend on where the texts differ.
fn is_same(given: &str, token: &str) -> bool {
    let differences = given.bytes().zip(token.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == token.len() && differences == 0
}

/// Makes the page anew for every request.
pub trait Source: Send + Sync + 'static {
    /// The page.
    fn page(&self) -> impl Future<Output = String> + Send;
}

/// The service.
#[derive(Debug)]
pub struct Dashboard<S> {
    /// Where the page comes from.
    pub source: S,
    /// The port that is listened on.
    pub port: u16,
    /// The secret part of the address.
    pub token: String,
}

impl<S: Source> palisade_serve::Service for Dashboard<S> {
    type Peer = ();
    type Body = http_body_util::Full<Bytes>;

    fn peer(&self, _: Option<SocketAddr>, _: &[rustls::pki_types::CertificateDer<'_>]) {}

    async fn respond(self: &Arc<Self>, request: Request<hyper::body::Incoming>, (): &()) -> Reply {
        let path = request.uri().path();
        let mut response = match route(request.method(), path, request.headers(), self.port, &self.token) {
            Route::Page => reply(StatusCode::OK, "text/html; charset=utf-8", self.source.page().await),
            Route::Style => reply(StatusCode::OK, "text/css; charset=utf-8", STYLE),
            Route::Refused(status) => error(status, status.canonical_reason().unwrap_or_default()),
        };
        for (name, value) in HEADERS {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use hyper::{
        Method, StatusCode,
        header::{HOST, HeaderMap, HeaderValue},
    };

    use super::{Route, route};

    #[test]
    fn answers_only_who_knows_the_token_at_a_loopback_name() {
        use Route::{Page, Refused, Style};
        for (method, host, path, expected) in [
            (Method::GET, Some("127.0.0.1:80"), "/secret/", Page),
            (Method::GET, Some("localhost:80"), "/secret/", Page),
            (Method::GET, Some("[::1]:80"), "/secret/page.css", Style),
            (Method::GET, Some("127.0.0.1:80"), "/", Refused(StatusCode::NOT_FOUND)),
            (Method::GET, Some("127.0.0.1:80"), "/secreT/", Refused(StatusCode::NOT_FOUND)),
            (Method::GET, Some("127.0.0.1:80"), "/secre/", Refused(StatusCode::NOT_FOUND)),
            (Method::GET, Some("127.0.0.1:80"), "/secret2/", Refused(StatusCode::NOT_FOUND)),
            (Method::GET, Some("127.0.0.1:80"), "/secret", Refused(StatusCode::NOT_FOUND)),
            (Method::GET, Some("127.0.0.1:80"), "/secret/other", Refused(StatusCode::NOT_FOUND)),
            (Method::POST, Some("127.0.0.1:80"), "/secret/", Refused(StatusCode::METHOD_NOT_ALLOWED)),
            (Method::GET, Some("127.0.0.1:81"), "/secret/", Refused(StatusCode::MISDIRECTED_REQUEST)),
            (Method::GET, Some("rebound.example:80"), "/secret/", Refused(StatusCode::MISDIRECTED_REQUEST)),
            (Method::GET, Some("127.0.0.1.example:80"), "/secret/", Refused(StatusCode::MISDIRECTED_REQUEST)),
            (Method::GET, None, "/secret/", Refused(StatusCode::MISDIRECTED_REQUEST)),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(HOST, HeaderValue::from_static(host));
            }
            assert_eq!(route(&method, path, &headers, 80, "secret"), expected, "{method} {host:?} {path}");
        }
        let mut twice = HeaderMap::new();
        twice.append(HOST, HeaderValue::from_static("127.0.0.1:80"));
        twice.append(HOST, HeaderValue::from_static("rebound.example"));
        let refused = Refused(StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(route(&Method::GET, "/secret/", &twice, 80, "secret"), refused);
    }
}
