//! Direct reads: one question, one answer, within a time.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use http::Request;
use kube::Client;
use palisade_admission::profile_policies::StoredPolicy;
use palisade_model::{json, metadata::ObjectMeta};
use palisade_policy::profiles::policy;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
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

/// Why a read gave nothing.
#[derive(Debug)]
pub(super) enum Failed {
    /// There is no such thing.
    NotFound(String),
    /// It is not known.
    Unknown(String),
}

impl Failed {
    fn into_text(self) -> String {
        match self {
            Self::NotFound(text) | Self::Unknown(text) => text,
        }
    }
}

impl Reader {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    async fn get(&self, path: &str, deadline: Instant) -> Result<String, Failed> {
        let request =
            Request::get(path).body(Vec::new()).map_err(|error| Failed::Unknown(error.to_string()))?;
        within(deadline, self.client.request_text(request)).await
    }

    pub(super) async fn namespace(
        &self,
        name: &str,
        deadline: Instant,
    ) -> Result<Arc<ObjectMeta<'static>>, String> {
        #[derive(Deserialize)]
        struct Named {
            metadata: kube::core::ObjectMeta,
        }
        check_name(name)?;
        let text =
            self.get(&format!("/api/v1/namespaces/{name}"), deadline).await.map_err(Failed::into_text)?;
        let read: Named = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok(Arc::new(namespaces::facts(read.metadata)))
    }

    pub(super) async fn policies(&self, deadline: Instant) -> Result<Vec<StoredPolicy>, String> {
        #[derive(Deserialize)]
        struct List<'l> {
            #[serde(borrow, default)]
            items: Vec<&'l RawValue>,
        }
        let path = format!("/apis/{}/profilepolicies", policy::API_VERSION);
        let text = match self.get(&path, deadline).await {
            Ok(text) => text,
            // The resource is not installed, so there are no policies.
            Err(Failed::NotFound(_)) => return Ok(Vec::new()),
            Err(Failed::Unknown(text)) => return Err(text),
        };
        let list: List<'_> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let read = |raw: &RawValue| {
            let object = json::object_from_str(raw.get()).map_err(|error| error.to_string())?;
            let name = object.get("metadata").and_then(|metadata| metadata.get("name"));
            let name = name.and_then(Value::as_str).ok_or("a ProfilePolicy without a name")?.to_owned();
            Ok(StoredPolicy::read(&name, &Value::Object(object)))
        };
        list.items.into_iter().map(read).collect()
    }

    pub(super) async fn pods(&self, namespace: &str, deadline: Instant) -> Result<String, String> {
        check_name(namespace)?;
        // Served from the API server's own cache, as upstream's listers are.
        let path = format!("/api/v1/namespaces/{namespace}/pods?resourceVersion=0");
        self.get(&path, deadline).await.map_err(Failed::into_text)
    }

    pub(super) async fn config_map(
        &self,
        namespace: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<ConfigMap, Failed> {
        check_name(namespace).map_err(Failed::Unknown)?;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        let text = self.get(&path, deadline).await?;
        serde_json::from_str(&text).map_err(|error| Failed::Unknown(error.to_string()))
    }
}

/// Waits for an answer until a moment.
pub(super) async fn within<T>(
    deadline: Instant,
    reading: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failed> {
    match tokio::time::timeout_at(deadline, reading).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
            Err(Failed::NotFound(status.message.clone()))
        }
        Ok(Err(error)) => Err(Failed::Unknown(in_words(&error))),
        Err(_) => Err(Failed::Unknown("the API server did not answer in time".to_owned())),
    }
}

/// Names become parts of paths, so only what can be a name may.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    if (1..=253).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.') {
        Ok(())
    } else {
        Err(format!("{name:?} is not a name"))
    }
}
