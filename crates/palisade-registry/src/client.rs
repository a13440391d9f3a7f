//! Requests to registries: manifests and blobs, within limits, with the credentials that are theirs.
//!
//! Credentials and tokens go to the registry alone, and to the token service that it names. A redirect is followed for what is
//! read, at most three times and without them, as far as the module `transport` lets it lead; a challenge behind a redirect is not answered.
//! What comes back is a profile only if its digest is the one that was asked for, wherever it came from.

use std::{fmt, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, USER_AGENT},
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use palisade_base::sha256;
use palisade_model::{
    json,
    profile::artifact::{
        ArtifactError, ArtifactReference, EMPTY_CONFIG, Layer, MANIFEST_MEDIA_TYPE, MAX_MANIFEST_BYTES,
        PushTarget, Repository, check_profile, manifest_of,
    },
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use thiserror::Error;

use crate::{
    challenge::Challenge,
    credentials::Credentials,
    resolver::Resolver,
    transport::{Origin, Transport},
};

/// How long a pull or push may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A token and what stands around it.
const MAX_TOKEN_BYTES: usize = 64 << 10;
/// How often a registry may send a reader elsewhere.
const MAX_REDIRECTS: usize = 3;

/// Why a registry gives or takes nothing.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// No request can be sent there.
    #[error("{0:?} is not the address of a registry")]
    Address(String),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The registry cannot be reached.
    #[error("cannot reach {host}: {reason}")]
    Unreachable {
        /// Which host.
        host: String,
        /// The last cause.
        reason: String,
    },
    /// It took too long.
    #[error("{registry} did not answer within {} seconds", TIMEOUT.as_secs())]
    Timeout {
        /// The registry.
        registry: String,
    },
    /// The registry wants other credentials, or some.
    #[error("{registry} denies access to {path}: {}", Tried(*tried))]
    Denied {
        /// The registry.
        registry: String,
        /// The repository in it.
        path: String,
        /// How many credentials were tried.
        tried: usize,
    },
    /// There is no such thing.
    #[error("{0} is not in the registry")]
    NotFound(String),
    /// Anything else that is not what was asked for.
    #[error("{host} answers with {status}")]
    Status {
        /// Which host.
        host: String,
        /// The status of HTTP.
        status: StatusCode,
    },
    /// The registry sends its reader to a place where it must not go.
    #[error("the registry leads to {location:?}: {why}")]
    Redirect {
        /// Where to.
        location: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Too many redirects.
    #[error("the registry redirects more than {MAX_REDIRECTS} times")]
    Redirects,
    /// An answer longer than it may be.
    #[error("{host} answers with more than {limit} bytes")]
    TooLarge {
        /// Which host.
        host: String,
        /// How many there may be.
        limit: usize,
    },
    /// The service of tokens gives none.
    #[error("{0} gives no token")]
    NoToken(String),
    /// What the registry holds is no profile.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
}

impl RegistryError {
    /// Whether it stays until the reference changes: the content of a digest never does.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(self, Self::Artifact(_))
    }
}

/// In words what was tried.
struct Tried(usize);

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("there are no credentials for it"),
            1 => f.write_str("its credentials are not accepted"),
            count => write!(f, "none of its {count} credentials is accepted"),
        }
    }
}

type Connections = HyperClient<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

/// A reader and writer of registries.
#[derive(Debug, Clone)]
pub struct Client {
    connections: Connections,
    transport: Transport,
}

impl Client {
    /// A client that trusts the authorities of the machine.
    pub fn new(transport: Transport) -> Result<Self, RegistryError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut http = HttpConnector::new_with_resolver(Resolver);
        http.enforce_http(false);
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
        let connector = match transport {
            Transport::Https => connector.https_only().enable_http1().wrap_connector(http),
            Transport::PlainHttpOnLoopback => connector.https_or_http().enable_http1().wrap_connector(http),
        };
        let connections =
            HyperClient::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { connections, transport })
    }

    /// The profile of an artifact, with both digests verified.
    pub async fn pull(
        &self,
        artifact: &ArtifactReference,
        credentials: &[Credentials],
    ) -> Result<String, RegistryError> {
        let mut session = Session::new(self, &artifact.repository, "pull", credentials)?;
        within(&artifact.repository, async {
            let path = format!("manifests/sha256:{}", artifact.digest);
            let manifest = session.read(&path, MAX_MANIFEST_BYTES).await?;
            let manifest = manifest.ok_or(ArtifactError::ManifestTooLarge)?;
            let layer = Layer::of_manifest(&manifest, &artifact.digest)?;
            // It was checked against the bound of profiles.
            let size = usize::try_from(layer.size).unwrap_or(usize::MAX);
            let content = session.read(&format!("blobs/sha256:{}", layer.digest), size).await?;
            let content = content.ok_or(ArtifactError::LayerLonger { wanted: layer.size })?;
            Ok(layer.profile(content.into())?)
        })
        .await
    }

    /// Pushes a profile; the reference to it.
    pub async fn push(
        &self,
        target: &PushTarget,
        profile: &str,
        credentials: &[Credentials],
    ) -> Result<ArtifactReference, RegistryError> {
        check_profile(profile)?;
        let mut session = Session::new(self, &target.repository, "pull,push", credentials)?;
        within(&target.repository, async {
            session.upload(Bytes::from_static(EMPTY_CONFIG)).await?;
            session.upload(Bytes::copy_from_slice(profile.as_bytes())).await?;
            let manifest = manifest_of(profile);
            let digest = sha256::hex(manifest.as_bytes());
            let name = target.tag.clone().unwrap_or_else(|| format!("sha256:{digest}"));
            let uri = session.origin.at(&format!("{}/manifests/{name}", session.repository.path))?;
            let body = Some((MANIFEST_MEDIA_TYPE, Bytes::from(manifest)));
            let answer = session.send(&Method::PUT, &uri, body).await?;
            check_status(&uri, &answer, &[StatusCode::CREATED])?;
            Ok(ArtifactReference { repository: target.repository.clone(), digest })
        })
        .await
    }

    async fn request(
        &self,
        method: &Method,
        uri: &Uri,
        authorization: Option<&HeaderValue>,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Response<Incoming>, RegistryError> {
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(USER_AGENT, concat!("palisade/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, format!("{MANIFEST_MEDIA_TYPE}, */*"));
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let content = body.map(|(media_type, content)| {
            request
                .headers_mut()
                .map(|headers| headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type)));
            content
        });
        let request = request
            .body(Full::new(content.unwrap_or_default()))
            .map_err(|_| RegistryError::Address(uri.to_string()))?;
        self.connections.request(request).await.map_err(|error| {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            RegistryError::Unreachable { host: host(uri), reason: cause.to_string() }
        })
    }
}

async fn within<T>(
    repository: &Repository,
    work: impl Future<Output = Result<T, RegistryError>>,
) -> Result<T, RegistryError> {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => Err(RegistryError::Timeout { registry: repository.registry.clone() }),
    }
}

/// What is said to one registry about one repository.
struct Session<'c> {
    client: &'c Client,
    repository: &'c Repository,
    origin: Origin,
    /// What a token is requested for.
    actions: &'static str,
    credentials: &'c [Credentials],
    /// How many ways to authenticate have been used.
    attempts: usize,
    challenge: Option<Challenge>,
    authorization: Option<HeaderValue>,
}

impl<'c> Session<'c> {
    fn new(
        client: &'c Client,
        repository: &'c Repository,
        actions: &'static str,
        credentials: &'c [Credentials],
    ) -> Result<Self, RegistryError> {
        let origin = Origin::of(repository, client.transport)?;
        let (attempts, challenge, authorization) = (0, None, None);
        Ok(Self { client, repository, origin, actions, credentials, attempts, challenge, authorization })
    }

    /// The body of something in the repository; `None` if it is longer than the limit.
    async fn read(&mut self, path: &str, limit: usize) -> Result<Option<Bytes>, RegistryError> {
        let mut uri = self.origin.at(&format!("{}/{path}", self.repository.path))?;
        let mut answer = self.send(&Method::GET, &uri, None).await?;
        let mut redirects = 0;
        while answer.status().is_redirection() {
            redirects += 1;
            if redirects > MAX_REDIRECTS {
                return Err(RegistryError::Redirects);
            }
            let target = location(&uri, &answer)?;
            uri = self.origin.leads_to(&uri, &target)?;
            // Credentials stay with the registry: what is behind a redirect is open or has its own signature.
            answer = self.client.request(&Method::GET, &uri, None, None).await?;
        }
        if answer.status() == StatusCode::NOT_FOUND {
            return Err(RegistryError::NotFound(format!("{}/{path}", self.repository.path)));
        }
        check_status(&uri, &answer, &[StatusCode::OK])?;
        body(&uri, answer, limit).await
    }

    /// Puts a blob into the repository, if it is not there.
    async fn upload(&mut self, content: Bytes) -> Result<(), RegistryError> {
        let digest = format!("sha256:{}", sha256::hex(&content));
        let path = &self.repository.path;
        let known = self.origin.at(&format!("{path}/blobs/{digest}"))?;
        let begin = self.origin.at(&format!("{path}/blobs/uploads/"))?;
        if self.send(&Method::HEAD, &known, None).await?.status() == StatusCode::OK {
            return Ok(());
        }
        let answer = self.send(&Method::POST, &begin, None).await?;
        check_status(&begin, &answer, &[StatusCode::ACCEPTED])?;
        let target = location(&begin, &answer)?;
        let uri = self.origin.leads_to(&begin, &target)?;
        if Origin::of_uri(&uri).as_ref() != Some(&self.origin) {
            let why = "profiles are uploaded to the registry itself";
            return Err(RegistryError::Redirect { location: target, why });
        }
        let and = if uri.query().is_some() { '&' } else { '?' };
        let text = format!("{uri}{and}digest={}", utf8_percent_encode(&digest, NON_ALPHANUMERIC));
        let uri = text.parse().map_err(|_| RegistryError::Address(text))?;
        let answer = self.send(&Method::PUT, &uri, Some(("application/octet-stream", content))).await?;
        check_status(&uri, &answer, &[StatusCode::CREATED])
    }

    /// A request to the registry itself, authenticated once it asks for that.
    async fn send(
        &mut self,
        method: &Method,
        uri: &Uri,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<Response<Incoming>, RegistryError> {
        loop {
            let answer = self.client.request(method, uri, self.authorization.as_ref(), body.clone()).await?;
            if !matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                return Ok(answer);
            }
            self.challenge = Challenge::of(answer.headers()).or(self.challenge.take());
            self.authorize().await?;
        }
    }

    /// Authenticates in the next way that was not tried: with each of the credentials, or without any if there are none.
    async fn authorize(&mut self) -> Result<(), RegistryError> {
        let denied = || RegistryError::Denied {
            registry: self.repository.registry.clone(),
            path: self.repository.path.clone(),
            tried: self.credentials.len(),
        };
        let challenge = self.challenge.clone().ok_or_else(denied)?;
        loop {
            let with = self.credentials.get(self.attempts);
            if with.is_none() && (self.attempts > 0 || challenge == Challenge::Basic) {
                return Err(denied());
            }
            self.attempts += 1;
            let authorization = match (&challenge, with) {
                (Challenge::Basic, with) => with.map(basic),
                (Challenge::Bearer { realm, service }, with) => {
                    self.token(realm, service.as_deref(), with).await?.map(|token| format!("Bearer {token}"))
                }
            };
            if let Some(text) = authorization {
                let mut value = HeaderValue::try_from(text).map_err(|_| denied())?;
                value.set_sensitive(true);
                self.authorization = Some(value);
                return Ok(());
            }
        }
    }

    /// A token for the repository; `None` if the service does not accept the credentials.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        with: Option<&Credentials>,
    ) -> Result<Option<String>, RegistryError> {
        /// Both names are in use.
        #[derive(Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
        }
        let refused = |why| RegistryError::Redirect { location: realm.to_owned(), why };
        let base =
            realm.parse::<Uri>().map_err(|_| refused("it is not the address of a service of tokens"))?;
        let origin = Origin::of_uri(&base).ok_or_else(|| refused("it is not an address of HTTPS"))?;
        self.origin.may_lead_to(&origin).map_err(refused)?;
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        // What is asked for is decided here: the registry's own scope could be that of another repository.
        let scope = encoded(&format!("repository:{}:{}", self.repository.path, self.actions));
        let service = service.map(|service| format!("&service={}", encoded(service))).unwrap_or_default();
        let and = if base.query().is_some() { '&' } else { '?' };
        let text = format!("{base}{and}scope={scope}{service}");
        let uri: Uri = text.parse().map_err(|_| RegistryError::Address(text))?;
        let mut authorization = None;
        if let Some(with) = with {
            let value = HeaderValue::try_from(basic(with)).map_err(|_| RegistryError::NoToken(host(&uri)))?;
            authorization = Some(value);
        }
        let answer = self.client.request(&Method::GET, &uri, authorization.as_ref(), None).await?;
        if matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(None);
        }
        check_status(&uri, &answer, &[StatusCode::OK])?;
        let content = body(&uri, answer, MAX_TOKEN_BYTES).await?;
        let content =
            content.ok_or_else(|| RegistryError::TooLarge { host: host(&uri), limit: MAX_TOKEN_BYTES })?;
        let found = json::from_slice::<Answer>(&content).map_err(|_| RegistryError::NoToken(host(&uri)))?;
        let token = found.token.or(found.access_token).filter(|token| !token.is_empty());
        token.map(Some).ok_or_else(|| RegistryError::NoToken(host(&uri)))
    }
}

fn basic(credentials: &Credentials) -> String {
    let Credentials { username, password } = credentials;
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

fn host(uri: &Uri) -> String {
    uri.authority().map(ToString::to_string).unwrap_or_default()
}

fn location(uri: &Uri, answer: &Response<Incoming>) -> Result<String, RegistryError> {
    let wrong = || RegistryError::Status { host: host(uri), status: answer.status() };
    let value = answer.headers().get(LOCATION).ok_or_else(wrong)?;
    value.to_str().map(str::to_owned).map_err(|_| wrong())
}

/// Nothing of the body is shown: behind a redirect it may be anybody's.
fn check_status(uri: &Uri, answer: &Response<Incoming>, wanted: &[StatusCode]) -> Result<(), RegistryError> {
    let status = answer.status();
    if wanted.contains(&status) { Ok(()) } else { Err(RegistryError::Status { host: host(uri), status }) }
}

/// A body; `None` if it is longer than the limit.
async fn body(uri: &Uri, answer: Response<Incoming>, limit: usize) -> Result<Option<Bytes>, RegistryError> {
    match Limited::new(answer.into_body(), limit).collect().await {
        Ok(collected) => Ok(Some(collected.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Ok(None),
        Err(error) => Err(RegistryError::Unreachable { host: host(uri), reason: error.to_string() }),
    }
}
