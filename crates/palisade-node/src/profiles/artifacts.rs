//! Profiles from registries: pulled with the pull secrets of the pod, verified, and kept.
//!
//! Implements: "Kubelet Behavior" of KEP-6061: pull if not present, credentials from the pod's `imagePullSecrets`, which failures
//! are retried. The KEP's cache is the whole node's, so that a pod can run with a profile that its own secrets do not
//! open; here what one namespace has pulled is not there for another.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use palisade_model::profile::artifact::{ArtifactError, ArtifactReference};
use palisade_registry::{Client, CredentialsError, Keyring, RegistryError, Transport};
use thiserror::Error;

use crate::api::{ApiError, PodSource, Secret};

/// How many bytes of profiles are kept.
const MAX_KEPT_BYTES: usize = 16 << 20;

/// The key of a Secret `kubernetes.io/dockerconfigjson`.
const CONFIG_KEY: &str = ".dockerconfigjson";
/// The key of a Secret `kubernetes.io/dockercfg`.
const LEGACY_CONFIG_KEY: &str = ".dockercfg";

/// Why there is no profile of an artifact.
#[derive(Debug, Error)]
pub enum PullError {
    /// The registry gives none.
    #[error("{source}{}", Missing(missing))]
    Registry {
        /// What it answers.
        source: RegistryError,
        /// Pull secrets of the pod that are not there.
        missing: Vec<String>,
    },
    /// What it gives is no profile.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The API server could not be reached.
    #[error("cannot read the pull secret {name}: {source}")]
    Api {
        /// The Secret, in the pod's namespace.
        name: String,
        /// What went wrong.
        source: ApiError,
    },
    /// A pull secret that cannot be read. The profile may be what it opens.
    #[error("the pull secret {name} {source}")]
    Secret {
        /// The Secret, in the pod's namespace.
        name: String,
        /// What is wrong in it.
        source: CredentialsError,
    },
    /// A Secret of another type.
    #[error("the pull secret {name} has neither {CONFIG_KEY} nor {LEGACY_CONFIG_KEY}")]
    SecretType {
        /// The Secret, in the pod's namespace.
        name: String,
    },
}

impl PullError {
    /// Whether it stays until the pod refers to something else.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(self, Self::Artifact(_))
    }
}

struct Missing<'m>(&'m [String]);

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => Ok(()),
            [one] => write!(f, "; the pull secret {one} is not there"),
            several => write!(f, "; the pull secrets {} are not there", several.join(", ")),
        }
    }
}

/// A profile, and whether a registry was asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The document.
    pub text: Arc<str>,
    /// Whether it came from a registry now.
    pub now: bool,
}

/// What was pulled, by namespace and reference.
#[derive(Debug, Default)]
struct Kept {
    profiles: BTreeMap<(String, String), Profile>,
    bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct Profile {
    text: Arc<str>,
    used: u64,
}

impl Kept {
    fn get(&mut self, key: &(String, String)) -> Option<Arc<str>> {
        self.uses += 1;
        let profile = self.profiles.get_mut(key)?;
        profile.used = self.uses;
        Some(Arc::clone(&profile.text))
    }

    fn put(&mut self, key: (String, String), text: Arc<str>) {
        self.uses += 1;
        self.bytes += text.len();
        if let Some(before) = self.profiles.insert(key, Profile { text, used: self.uses }) {
            self.bytes -= before.text.len();
        }
        while self.bytes > MAX_KEPT_BYTES {
            let oldest =
                self.profiles.iter().min_by_key(|(_, profile)| profile.used).map(|(key, _)| key.clone());
            let Some(gone) = oldest.and_then(|key| self.profiles.remove(&key)) else { return };
            self.bytes -= gone.text.len();
        }
    }
}

/// The profiles of a node that come from registries.
#[derive(Debug, Default)]
pub struct Artifacts {
    transport: Transport,
    client: tokio::sync::OnceCell<Client>,
    kept: Mutex<Kept>,
}

impl Artifacts {
    /// Registries are reached in this way.
    #[must_use]
    pub fn new(transport: Transport) -> Self {
        Self { transport, ..Self::default() }
    }

    /// The profile of an artifact, for a pod of a namespace with these pull secrets.
    pub async fn profile(
        &self,
        source: &dyn PodSource,
        namespace: &str,
        pull_secrets: &[&str],
        artifact: &ArtifactReference,
    ) -> Result<Pulled, PullError> {
        let key = (namespace.to_owned(), artifact.to_string());
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&key);
        if let Some(text) = kept {
            return Ok(Pulled { text, now: false });
        }
        let mut keyring = Keyring::default();
        let mut missing = Vec::new();
        for &name in pull_secrets {
            match source.secret(namespace, name).await {
                Ok(Some(secret)) => add(&mut keyring, name, &secret)?,
                // As a kubelet, which pulls with what is there.
                Ok(None) => missing.push(name.to_owned()),
                Err(source) => return Err(PullError::Api { name: name.to_owned(), source }),
            }
        }
        let credentials = keyring.matching(&artifact.repository);
        // Made when it is needed: it holds the authorities of the machine.
        let pulled = match self.client.get_or_try_init(|| async { Client::new(self.transport) }).await {
            Ok(client) => client.pull(artifact, &credentials).await,
            Err(error) => Err(error),
        };
        let text: Arc<str> = match pulled {
            Ok(text) => text.into(),
            Err(RegistryError::Artifact(error)) => return Err(error.into()),
            Err(source) => return Err(PullError::Registry { source, missing }),
        };
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).put(key, Arc::clone(&text));
        Ok(Pulled { text, now: true })
    }
}

fn add(keyring: &mut Keyring, name: &str, secret: &Secret) -> Result<(), PullError> {
    let added = if let Some(content) = secret.data.get(CONFIG_KEY) {
        keyring.add_config(content)
    } else if let Some(content) = secret.data.get(LEGACY_CONFIG_KEY) {
        keyring.add_legacy_config(content)
    } else {
        return Err(PullError::SecretType { name: name.to_owned() });
    };
    added.map_err(|source| PullError::Secret { name: name.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_least_recently_goes_first() {
        let key = |name: usize| ("ns".to_owned(), name.to_string());
        let text: Arc<str> = "x".repeat(MAX_KEPT_BYTES / 4).into();
        let mut kept = Kept::default();
        for name in 0..4 {
            kept.put(key(name), Arc::clone(&text));
        }
        assert!(kept.get(&key(0)).is_some());
        kept.put(key(4), Arc::clone(&text));
        kept.put(key(4), Arc::clone(&text));
        let there: Vec<bool> = (0..5).map(|name| kept.get(&key(name)).is_some()).collect();
        assert_eq!(there, [true, false, true, true, true]);
        assert_eq!(kept.bytes, MAX_KEPT_BYTES);
    }
}
