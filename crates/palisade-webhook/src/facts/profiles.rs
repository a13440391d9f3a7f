//! Profiles in ConfigMaps: read, checked, hashed, and given to the nodes.
//!
//! Implements: the ConfigMap profile design's checks, and the `PublishedProfile` that holds the bytes of one profile for the
//! node agents. Publishing is best effort: the controller makes up for what is missing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::Request;
use palisade_admission::config_map_profiles::{Fault, Profiles};
use palisade_base::sha256;
use palisade_model::profile::config_map::{ConfigMapProblem, Source, check_document, text_in};
use serde_json::json;
use tokio::time::Instant;

use super::reading::{ConfigMap, LookupError, Reader, within};
use crate::{
    calls,
    metrics::{Metrics, PUBLISH_ERRORS},
};

/// Publishing may take this long; the answer to the API server does not wait longer for it.
const PUBLISHING: Duration = Duration::from_secs(2);
/// For this long a published profile need not be published again: the controller removes none as quickly.
const REMEMBERED: Duration = Duration::from_mins(1);
/// How many published profiles are remembered.
const MOST_REMEMBERED: usize = 1024;

#[derive(Debug)]
pub(crate) struct ProfileReader {
    reader: Reader,
    metrics: Arc<Metrics>,
    published: Mutex<BTreeMap<String, Instant>>,
}

impl ProfileReader {
    pub(super) fn new(reader: Reader, metrics: Arc<Metrics>) -> Self {
        Self { reader, metrics, published: Mutex::default() }
    }

    /// Profiles in ConfigMaps of a namespace. Unless it is a dry run, the usable ones are published.
    pub(crate) async fn read(
        &self,
        namespace: &str,
        sources: &[Source],
        publish: bool,
        deadline: Instant,
    ) -> Profiles {
        let mut profiles = Profiles::new();
        let mut config_maps: BTreeMap<&str, Result<ConfigMap, LookupError>> = BTreeMap::new();
        for Source { name, key, .. } in sources {
            if !config_maps.contains_key(name.as_str()) {
                config_maps.insert(name, self.reader.config_map(namespace, name, deadline).await);
            }
            let Some(read) = config_maps.get(name.as_str()) else { continue };
            let profile = match read {
                Ok(config_map) => profile_in(config_map, namespace, name, key).map_err(Fault::Unusable),
                Err(LookupError::NotFound(_)) => Err(Fault::Unusable(ConfigMapProblem::ConfigMapMissing {
                    namespace: namespace.to_owned(),
                    name: name.clone(),
                    key: key.clone(),
                })),
                Err(why) => Err(Fault::Unavailable(format!(
                    "cannot read ConfigMap {namespace}/{name} for seccomp profile {key}: {why}"
                ))),
            };
            let hashed = match profile {
                Ok(text) => {
                    let hash = sha256::hex(text.as_bytes());
                    if publish {
                        self.publish(&hash, text, deadline).await;
                    }
                    Ok(hash)
                }
                Err(fault) => Err(fault),
            };
            profiles.insert((name.clone(), key.clone()), hashed);
        }
        profiles
    }

    async fn publish(&self, hash: &str, text: &str, deadline: Instant) {
        let now = Instant::now();
        if self.remembered().get(hash).is_some_and(|at| now.duration_since(*at) < REMEMBERED) {
            return;
        }
        let object = json!({
            "apiVersion": "palisade.dev/v1alpha1",
            "kind": "PublishedProfile",
            "metadata": {"name": hash},
            "spec": {"profile": text},
        });
        let path = format!(
            "/apis/palisade.dev/v1alpha1/publishedprofiles/{hash}?fieldManager={}&force=true",
            calls::MANAGER
        );
        let request = Request::patch(path)
            .header("content-type", "application/apply-patch+yaml")
            .body(object.to_string().into_bytes());
        let sent = match request {
            Ok(request) => {
                within(deadline.min(now + PUBLISHING), self.reader.client().request_text(request)).await
            }
            Err(error) => Err(LookupError::Failed(error.to_string())),
        };
        match sent {
            Ok(_) => {
                let mut remembered = self.remembered();
                if remembered.len() >= MOST_REMEMBERED {
                    remembered.retain(|_, at| now.duration_since(*at) < REMEMBERED);
                }
                if remembered.len() < MOST_REMEMBERED {
                    remembered.insert(hash.to_owned(), now);
                }
            }
            Err(why) => {
                self.metrics.count(&PUBLISH_ERRORS);
                tracing::warn!(profile = hash, %why, "failed to publish a profile; the controller retries");
            }
        }
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Instant>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn profile_in<'c>(
    config_map: &'c ConfigMap,
    namespace: &str,
    name: &str,
    key: &str,
) -> Result<&'c str, ConfigMapProblem> {
    let found = config_map.data.get(key).map(String::as_str);
    let text = text_in((namespace, name, key), found, config_map.binary_data.contains_key(key))?;
    let profile = || format!("configmap/{name}/{key}");
    check_document(text).map_err(|source| ConfigMapProblem::Document { profile: profile(), source })?;
    Ok(text)
}
