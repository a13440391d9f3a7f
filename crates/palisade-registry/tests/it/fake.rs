//! A registry that answers what a test wants, and notes what it is asked.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use palisade_base::sha256;
use palisade_model::profile::artifact::{ArtifactReference, manifest_of};
use tokio::net::TcpListener;

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: b"what the server says".to_vec() }
    }

    pub(crate) fn redirect(location: impl Into<String>) -> Self {
        Self::status(307).with("location", location)
    }

    pub(crate) fn challenge(header: impl Into<String>) -> Self {
        Self::status(401).with("www-authenticate", header)
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A server on a port of its own.
pub(crate) struct Fake {
    pub(crate) name: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// Answers by the path with its query, and the `Authorization` header.
    pub(crate) async fn start(answer: impl Fn(&str, Option<&str>) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, noted) = (Arc::new(answer), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, noted) = (Arc::clone(&answer), Arc::clone(&noted));
                let service = service_fn(move |request: Request<Incoming>| {
                    let path = request.uri().path_and_query().unwrap().to_string();
                    let authorization =
                        request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
                    let note = format!("{path} {}", authorization.as_deref().unwrap_or("-"));
                    noted.lock().unwrap().push(note);
                    let Answer { status, headers, body } = answer(&path, authorization.as_deref());
                    let mut response = Response::new(Full::new(Bytes::from(body)));
                    *response.status_mut() = StatusCode::from_u16(status).unwrap();
                    for (name, value) in headers {
                        response.headers_mut().insert(name, value.parse().unwrap());
                    }
                    async move { Ok::<_, Infallible>(response) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { name, asked }
    }

    /// Requests so far: path, and what authorises them.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// The artifact with this manifest.
    pub(crate) fn reference(&self, manifest: &str) -> ArtifactReference {
        let digest = sha256::hex(manifest.as_bytes());
        ArtifactReference::parse(&format!("{}/team/profile@sha256:{digest}", self.name)).unwrap()
    }
}

/// A registry that serves a profile as it should.
pub(crate) fn honest(path: &str, profile: &str) -> Answer {
    if path.contains("/manifests/") {
        Answer::ok(manifest_of(profile))
    } else if path.ends_with(&format!("/blobs/sha256:{}", sha256::hex(profile.as_bytes()))) {
        Answer::ok(profile)
    } else {
        Answer::status(404)
    }
}
