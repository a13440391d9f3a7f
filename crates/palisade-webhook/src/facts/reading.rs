//! Direct reads: one question, one answer, within a time.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use http::Request;
use kube::Client;
use palisade_admission::profile_policies::StoredPolicy;
use palisade_model::{json, metadata::ObjectMeta};
use palisade_policy::profiles::policy;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use thiserror::Error;
use tokio::time::Instant;

use super::namespaces;
use crate::calls::in_words;

/// Reads from the API server.
#[derive(Clone)]
pub(super) struct Reader {
    client: Client,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

/// A ConfigMap, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ConfigMap {
    pub(super) data: BTreeMap<String, String>,
    pub(super) binary_data: BTreeMap<String, Value>,
}

/// Why something that the API server has cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LookupError {
    /// There is no such thing: the API server's message.
    #[error("{0}")]
    NotFound(String),
    /// The request failed: the API server's message, or that of the connection.
    #[error("{0}")]
    Failed(String),
    /// No answer before the review must be answered.
    #[error("the API server did not answer in time")]
    TimedOut,
    /// Nothing can have this name.
    #[error("{0:?} is not a name")]
    Name(String),
    /// The answer is not what it should be: as the reader reports it.
    #[error("{0}")]
    Unreadable(String),
    /// A policy that cannot be named in a message.
    #[error("a ProfilePolicy without a name")]
    NamelessPolicy,
    /// A watch has not seen everything yet.
    #[error("{0} are not known yet")]
    Pending(&'static str),
}

fn unreadable(error: &serde_json::Error) -> LookupError {
    LookupError::Unreadable(error.to_string())
}

impl Reader {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    async fn get(&self, path: &str, deadline: Instant) -> Result<String, LookupError> {
        let request =
            Request::get(path).body(Vec::new()).map_err(|error| LookupError::Failed(error.to_string()))?;
        within(deadline, self.client.request_text(request)).await
    }

    pub(super) async fn namespace(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Arc<ObjectMeta<'static>>, LookupError> {
        #[derive(Deserialize)]
        struct Named {
            metadata: kube::core::ObjectMeta,
        }
        check_name(name)?;
        let text = self.get(&format!("/api/v1/namespaces/{name}"), deadline).await?;
        let read: Named = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
        Ok(Arc::new(namespaces::facts(read.metadata)))
    }

    pub(super) async fn policies(&self, deadline: Instant) -> Result<Vec<StoredPolicy>, LookupError> {
        #[derive(Deserialize)]
        struct List<'l> {
            #[serde(borrow, default)]
            items: Vec<&'l RawValue>,
        }
        let path = format!("/apis/{}/profilepolicies", policy::API_VERSION);
        let text = match self.get(&path, deadline).await {
            Ok(text) => text,
            // The resource is not installed, so there are no policies.
            Err(LookupError::NotFound(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let list: List<'_> = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
        let read = |raw: &RawValue| {
            let object = json::object_from_str(raw.get())
                .map_err(|error| LookupError::Unreadable(error.to_string()))?;
            let name = object.get("metadata").and_then(|metadata| metadata.get("name"));
            let name = name.and_then(Value::as_str).ok_or(LookupError::NamelessPolicy)?.to_owned();
            Ok(StoredPolicy::read(&name, &Value::Object(object)))
        };
        list.items.into_iter().map(read).collect()
    }

    pub(super) async fn pods(&self, namespace: &str, deadline: Instant) -> Result<String, LookupError> {
        check_name(namespace)?;
        // Served from the API server's own cache, as upstream's listers are.
        let path = format!("/api/v1/namespaces/{namespace}/pods?resourceVersion=0");
        self.get(&path, deadline).await
    }

    pub(super) async fn config_map(
        &self,
        namespace: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<ConfigMap, LookupError> {
        check_name(namespace)?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        let text = self.get(&path, deadline).await?;
        serde_json::from_str(&text).map_err(|error| unreadable(&error))
    }
}

/// Waits for an answer until a moment.
pub(super) async fn within<T>(
    deadline: Instant,
    reading: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, LookupError> {
    match tokio::time::timeout_at(deadline, reading).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            Err(LookupError::NotFound(status.message.clone()))
        }
        Ok(Err(error)) => Err(LookupError::Failed(in_words(&error))),
        Err(_) => Err(LookupError::TimedOut),
    }
}

/// Names become parts of paths, so only what can be a name may.
fn check_name(name: &str) -> Result<(), LookupError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    if (1..=253).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.') {
        Ok(())
    } else {
        Err(LookupError::Name(name.to_owned()))
    }
}
