//! The API server as controllers use it: JSON in, JSON out, and answers sorted by what to do about them.
//!
//! A thin layer over [`kube::Client`]. Objects are read where they are needed and no further, so that a million pods pass
//! through as bytes; that is why the typed interface of `kube` is not used.

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt as _;
use kube::{
    Client,
    client::Body,
    core::{Status, response::reason},
};
use palisade_base::causes::root_cause;
use palisade_model::{
    compat::Compat,
    server_version::{ServerVersionError, announced},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde_json::Value;
use thiserror::Error;

/// A resource of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// The group; empty for core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The plural name.
    pub plural: &'static str,
}

impl Resource {
    /// A resource.
    #[must_use]
    pub const fn new(group: &'static str, version: &'static str, plural: &'static str) -> Self {
        Self { group, version, plural }
    }

    /// The path of the collection, in a namespace or in all of them.
    #[must_use]
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let Self { group, version, plural } = self;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }

    /// The path of an object.
    #[must_use]
    pub fn object(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }
}

/// Namespaces.
pub const NAMESPACES: Resource = Resource::new("", "v1", "namespaces");
/// ConfigMaps.
pub const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps");
/// Events of the core group.
pub const EVENTS: Resource = Resource::new("", "v1", "events");
/// Leases.
pub const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
/// Definitions of custom resources.
pub const CUSTOM_RESOURCE_DEFINITIONS: Resource =
    Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");

/// Why a request did not do what it should.
#[derive(Debug, Error)]
pub enum ApiError {
    /// The API server rejected the request.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// The reason of the `Status`, or nothing.
        reason: String,
        /// Its message.
        message: String,
    },
    /// It could not be reached, or its response could not be read.
    #[error("{}", root_cause(&**.0))]
    Unreachable(#[source] Box<kube::Error>),
}

impl ApiError {
    /// There is no such object, or no such kind.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    /// It is there already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if reason == reason::ALREADY_EXISTS)
    }

    /// The object has changed since it was read, and the decision may no longer be right.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. }) && !self.is_already_exists()
    }

    /// The namespace is being deleted, and takes nothing new.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        matches!(self, Self::Refused { code: 403, message, .. } if message.contains("because it is being terminated"))
    }

    /// The version that was requested is no longer known.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { code: 410, .. })
    }

    fn of(status: &Status) -> Self {
        Self::Refused { code: status.code, reason: status.reason.clone(), message: status.message.clone() }
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of(&status),
            other => Self::Unreachable(Box::new(other)),
        }
    }
}

/// Why it is not known whose rules the API server applies.
#[derive(Debug, Error)]
pub enum CompatError {
    /// It does not report its version.
    #[error("cannot read /version: {0}")]
    Unreadable(#[from] ApiError),
    /// It reports one that does not exist.
    #[error(transparent)]
    Version(#[from] ServerVersionError),
}

/// How a patch is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    /// Server-side apply; with force, fields are taken from others.
    Apply {
        /// Take fields from others.
        force: bool,
    },
    /// RFC 7386.
    Merge,
    /// RFC 6902.
    Json,
    /// Kubernetes' own: lists are merged by key.
    Strategic,
}

/// A client.
#[derive(Clone)]
pub struct Api {
    client: Client,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Api {
    /// Uses a client.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The object at a path; `None` if there is none.
    pub async fn get(&self, path: &str) -> Result<Option<Value>, ApiError> {
        match self.call(Method::GET, path, None, &Value::Null).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whose rules the API server applies.
    pub async fn compat(&self) -> Result<Compat, CompatError> {
        let version = self.call(Method::GET, "/version", None, &Value::Null).await?;
        Ok(announced(&version)?)
    }

    /// Makes an object.
    pub async fn create(&self, collection: &str, manager: &str, object: &Value) -> Result<Value, ApiError> {
        self.call(Method::POST, &managed(collection, manager), Some("application/json"), object).await
    }

    /// Replaces an object, or its status.
    pub async fn replace(&self, path: &str, manager: &str, object: &Value) -> Result<Value, ApiError> {
        self.call(Method::PUT, &managed(path, manager), Some("application/json"), object).await
    }

    /// Changes an object.
    pub async fn patch(
        &self,
        path: &str,
        manager: &str,
        how: Patch,
        change: &Value,
    ) -> Result<Value, ApiError> {
        let mut path = managed(path, manager);
        let content_type = match how {
            Patch::Apply { force } => {
                if force {
                    path.push_str("&force=true");
                }
                // JSON is YAML.
                "application/apply-patch+yaml"
            }
            Patch::Merge => "application/merge-patch+json",
            Patch::Json => "application/json-patch+json",
            Patch::Strategic => "application/strategic-merge-patch+json",
        };
        self.call(Method::PATCH, &path, Some(content_type), change).await
    }

    /// Removes an object; one that is gone already is just as good.
    pub async fn delete(&self, path: &str) -> Result<(), ApiError> {
        match self.call(Method::DELETE, path, None, &Value::Null).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object; what is left of it, or a `Status` if nothing is.
    pub async fn delete_with(&self, path: &str, options: &Value) -> Result<Value, ApiError> {
        self.call(Method::DELETE, path, Some("application/json"), options).await
    }

    /// The bytes of an answer.
    pub(crate) async fn read(&self, path: &str) -> Result<Bytes, ApiError> {
        collect(self.open(path).await?).await
    }

    /// An answer that is read piece by piece.
    pub(crate) async fn open(&self, path: &str) -> Result<Response<Body>, ApiError> {
        // Watches of new servers are compressed one event at a time, which clients do not all understand.
        let request = request(Method::GET, path, None, Vec::new())?;
        self.send(request).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = self.send(request(method, path, content_type, body)?).await?;
        let bytes = collect(answer).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ApiError::Unreachable(Box::new(kube::Error::SerdeError(error))))
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, ApiError> {
        let answer = self.client.send(request).await?;
        let code = answer.status();
        if code.is_success() {
            return Ok(answer);
        }
        let bytes = collect(answer).await?;
        let status: Option<Status> = serde_json::from_slice(&bytes).ok();
        Err(match status {
            Some(status) if status.code != 0 => ApiError::of(&status),
            _ => ApiError::Refused {
                code: code.as_u16(),
                reason: String::new(),
                message: String::from_utf8_lossy(&bytes).into_owned(),
            },
        })
    }
}

fn request(
    method: Method,
    path: &str,
    content_type: Option<&str>,
    body: Vec<u8>,
) -> Result<Request<Body>, ApiError> {
    let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
    request = request.header(header::ACCEPT_ENCODING, "identity");
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    request
        .body(Body::from(body))
        .map_err(|error| ApiError::Unreachable(Box::new(kube::Error::HttpError(error))))
}

async fn collect(answer: Response<Body>) -> Result<Bytes, ApiError> {
    Ok(answer.into_body().collect().await?.to_bytes())
}

fn managed(path: &str, manager: &str) -> String {
    format!("{path}?fieldManager={manager}")
}

/// What RFC 3986 reserves, which is everything but `-._~`, letters and digits.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A value for a query.
pub(crate) fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::{CONFIG_MAPS, LEASES, NAMESPACES, encoded};

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(NAMESPACES.object(None, "team"), "/api/v1/namespaces/team");
        assert_eq!(CONFIG_MAPS.collection(None), "/api/v1/configmaps");
        assert_eq!(
            LEASES.object(Some("palisade-system"), "x"),
            "/apis/coordination.k8s.io/v1/namespaces/palisade-system/leases/x"
        );
        assert_eq!(encoded("metadata.name=a/b").to_string(), "metadata.name%3Da%2Fb");
    }
}
