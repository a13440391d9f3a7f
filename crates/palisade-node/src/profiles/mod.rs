//! Seccomp profiles on their way to the runtime.
//!
//! Implements: "LocalhostProfile" and "Seccomp root path configuration" of the seccomp design, and the ConfigMap profile
//! design: existence, key, JSON, hash, and delivery without a file on disk; profiles from registries ([`artifacts`]). A profile from
//! a ConfigMap or a registry is combined with a baseline ([`baseline`]). What a profile means is left to the runtime.

pub mod artifacts;
pub mod baseline;
pub mod localhost;

use palisade_base::sha256;
use palisade_base::version::KubeVersion;
use palisade_model::json;
use palisade_model::profile::{
    ProfileRef,
    artifact::ReferenceError,
    config_map::{ConfigMapProblem, check_node_file, text_in},
};
use thiserror::Error;

pub use palisade_model::profile::config_map::{DocumentError, MAX_PROFILE_BYTES, check_document};

use self::{
    artifacts::{Artifacts, PullError},
    baseline::{Bounds, CombineError},
};
use crate::{
    api::{ApiError, PodSource},
    guards::{Applicable, ComposeError, Guards},
    kernel::memfd::SealedFile,
};

/// Why a container gets no profile and so is not created.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// The API server could not be reached.
    #[error("cannot read ConfigMap {namespace}/{name} for seccomp profile {key}: {source}")]
    Api {
        /// The pod's namespace.
        namespace: String,
        /// The ConfigMap.
        name: String,
        /// The key.
        key: String,
        /// What went wrong.
        source: ApiError,
    },
    /// What is referred to cannot be used.
    #[error(transparent)]
    ConfigMap(#[from] ConfigMapProblem),
    /// It names no artifact.
    #[error("seccomp profile {profile} {source}")]
    Reference {
        /// The reference.
        profile: String,
        /// Why.
        source: ReferenceError,
    },
    /// What the registry holds is no profile.
    #[error("seccomp profile {profile} {source}")]
    Artifact {
        /// The reference.
        profile: String,
        /// Why.
        source: PullError,
    },
    /// The registry gives nothing.
    #[error("cannot pull seccomp profile {profile}: {source}")]
    Pull {
        /// The reference.
        profile: String,
        /// Why.
        source: PullError,
    },
    /// The path leaves the seccomp folder.
    #[error("seccomp profile {path:?} leaves the profile directory")]
    Escapes {
        /// The path as given.
        path: String,
    },
    /// The file cannot be used; the text is the runtime's, so that both ways of failing read the same.
    #[error("cannot load seccomp profile {path:?}: {reason}")]
    Unreadable {
        /// The whole path.
        path: String,
        /// The error of the system.
        reason: String,
    },
    /// The profile cannot be combined with its baseline.
    #[error("seccomp profile {profile} {source}")]
    Combine {
        /// The reference.
        profile: String,
        /// Why.
        source: CombineError,
    },
    /// No memory file could be made.
    #[error("cannot keep seccomp profile {profile} in memory: {source}")]
    Memory {
        /// The reference.
        profile: String,
        /// The error of the system.
        source: std::io::Error,
    },
}

impl ProfileError {
    /// Whether the fault is in what the pod refers to, rather than in requesting it.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        match self {
            Self::Api { .. } | Self::Memory { .. } | Self::Pull { .. } => false,
            Self::Combine { source, .. } => !matches!(source, CombineError::Baseline(_)),
            Self::ConfigMap(_)
            | Self::Reference { .. }
            | Self::Artifact { .. }
            | Self::Escapes { .. }
            | Self::Unreadable { .. } => true,
        }
    }
}

/// A profile the runtime can open until this value is dropped.
#[derive(Debug)]
pub struct Delivery {
    /// The path for the runtime.
    pub path: String,
    /// What people call it.
    pub shown: String,
    /// SHA-256 of what is applied, where the node itself read it.
    pub hash: Option<String>,
    /// SHA-256 of what the source held, where that was combined with a baseline.
    pub source_hash: Option<String>,
    /// Whether a registry was asked for it.
    pub pulled: bool,
    sealed: Option<SealedFile>,
    /// What the node itself read.
    text: Option<String>,
}

/// Why a container is created without the guards for it.
#[derive(Debug, Error)]
pub enum GuardDeliveryError {
    /// The default profile of the runtime is not known.
    #[error(transparent)]
    Baseline(#[from] baseline::BaselineError),
    /// The profile cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The profile is none.
    #[error("the profile is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The profiles cannot be combined.
    #[error(transparent)]
    Compose(#[from] ComposeError),
}

/// The profile of a container with what guards forbid denied in it; none if no guard is for it.
pub fn guard(
    guards: &Guards,
    applicable: &Applicable,
    (profile, delivery): (&ProfileRef<'_>, Option<&Delivery>),
    folder: &localhost::ProfileFolder,
    bounds: &Bounds,
) -> Result<Option<Delivery>, GuardDeliveryError> {
    if applicable.guards.is_empty() {
        return Ok(None);
    }
    let document = match (profile, delivery.and_then(|delivery| delivery.text.as_deref())) {
        (_, Some(text)) => Some(json::value_from_str(text)?),
        (ProfileRef::Unconfined, None) => None,
        (ProfileRef::RuntimeDefault, None) => Some(bounds.runtime_default_document()?),
        (ProfileRef::Localhost(path), None) => {
            let text = String::from_utf8_lossy(&folder.read(path)?).into_owned();
            Some(json::value_from_str(&text)?)
        }
        // It was delivered with its text, or there is none.
        (ProfileRef::ConfigMap { .. } | ProfileRef::Oci(_), None) => return Ok(None),
    };
    let Some(guarded) = guards.compose(applicable, document.as_ref())? else { return Ok(None) };
    let shown = delivery.map_or_else(|| profile.to_string(), |delivery| delivery.shown.clone());
    let guarded = sealed(shown.clone(), guarded.to_string().as_bytes(), &shown)?;
    let source = delivery.and_then(|known| known.source_hash.clone().or_else(|| known.hash.clone()));
    let pulled = delivery.is_some_and(|delivery| delivery.pulled);
    Ok(Some(Delivery { source_hash: source, pulled, ..guarded }))
}

impl Delivery {
    /// A runtime's message in which the profile has the name that its user gave it.
    #[must_use]
    pub fn in_user_words(&self, message: &str) -> String {
        if self.sealed.is_some() { message.replace(&self.path, &self.shown) } else { message.to_owned() }
    }

    /// The same, made of a document with this hash.
    pub(crate) fn made_of(self, source_hash: Option<String>) -> Self {
        Self { source_hash, ..self }
    }

    /// The memory file, if the profile is in one.
    #[must_use]
    pub const fn sealed(&self) -> Option<&SealedFile> {
        self.sealed.as_ref()
    }
}

/// Fetches the profile a container refers to, checks it, and makes it available to the runtime. Types that name no
/// document need none.
///
/// The designs hand over a sealed copy of what was checked, so that nothing can be put in its place between the check
/// and the runtime's reading; a release hands over the path, unlooked at, as the kubelet does. What comes from a ConfigMap or a
/// registry is intersected with `bounds`: its author may restrict the container, and nothing else.
pub async fn deliver(
    profile: &ProfileRef<'_>,
    namespace: &str,
    folder: &localhost::ProfileFolder,
    sources: &Sources<'_>,
    kubelet: KubeVersion,
    bounds: &Bounds,
) -> Result<Option<Delivery>, ProfileError> {
    match profile {
        ProfileRef::Unconfined | ProfileRef::RuntimeDefault => Ok(None),
        ProfileRef::Localhost(path) => {
            let shown = folder.joined(path);
            if kubelet != KubeVersion::Designs {
                return Ok(Some(Delivery {
                    path: shown.clone(),
                    shown,
                    hash: None,
                    source_hash: None,
                    pulled: false,
                    sealed: None,
                    text: None,
                }));
            }
            let content = folder.read(path)?;
            check_file(&content)
                .map_err(|source| ConfigMapProblem::Document { profile: shown.clone(), source })?;
            sealed(shown.clone(), &content, &shown).map(Some)
        }
        ProfileRef::ConfigMap { name, key } => {
            let content = config_map_profile(namespace, name, key, sources.api).await?;
            let shown = format!("configmap/{name}/{key}");
            check_document(&content)
                .map_err(|source| ConfigMapProblem::Document { profile: shown.clone(), source })?;
            combined(&content, &shown, folder, bounds).map(Some)
        }
        ProfileRef::Oci(profile) => {
            let shown = format!("oci://{}", profile.reference);
            let artifact = profile
                .artifact()
                .map_err(|source| ProfileError::Reference { profile: shown.clone(), source })?;
            let pulled =
                sources.artifacts.profile(sources.api, namespace, sources.pull_secrets, &artifact).await;
            let pulled = pulled.map_err(|source| {
                let profile = shown.clone();
                if source.is_lasting() {
                    ProfileError::Artifact { profile, source }
                } else {
                    ProfileError::Pull { profile, source }
                }
            })?;
            let bounds = match &profile.base {
                Some(base) => bounds.clone().and(base.clone()),
                None => bounds.clone(),
            };
            let delivery = combined(&pulled.text, &shown, folder, &bounds)?;
            Ok(Some(Delivery { pulled: pulled.now, ..delivery }))
        }
    }
}

/// Where the profiles of a pod's namespace come from.
#[derive(Clone, Copy)]
pub struct Sources<'s> {
    /// The API.
    pub api: &'s dyn PodSource,
    /// Registries.
    pub artifacts: &'s Artifacts,
    /// The pod's pull secrets, by name.
    pub pull_secrets: &'s [&'s str],
}

impl std::fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").field("pull_secrets", &self.pull_secrets).finish_non_exhaustive()
    }
}

/// What a document and its bounds allow, with the hash of the document.
fn combined(
    content: &str,
    shown: &str,
    folder: &localhost::ProfileFolder,
    bounds: &Bounds,
) -> Result<Delivery, ProfileError> {
    let combined = bounds
        .combine(content, folder)
        .map_err(|source| ProfileError::Combine { profile: shown.to_owned(), source })?;
    let delivery = sealed(shown.to_owned(), combined.text.as_bytes(), shown)?;
    Ok(delivery.made_of(Some(sha256::hex(content.as_bytes()))))
}

/// The text of a profile in a ConfigMap of the pod's namespace.
pub async fn config_map_profile(
    namespace: &str,
    name: &str,
    key: &str,
    source: &dyn PodSource,
) -> Result<String, ProfileError> {
    let (ns, map, at) = (namespace.to_owned(), name.to_owned(), key.to_owned());
    let found = match source.config_map(namespace, name).await {
        Ok(Some(found)) => found,
        Ok(None) => {
            return Err(ConfigMapProblem::ConfigMapMissing { namespace: ns, name: map, key: at }.into());
        }
        Err(source) => return Err(ProfileError::Api { namespace: ns, name: map, key: at, source }),
    };
    let text = found.data.get(key).map(String::as_str);
    let text = text_in((namespace, name, key), text, found.binary_data.contains_key(key))?;
    Ok(text.to_owned())
}

/// Checks a file on the node as [`check_node_file`] does.
fn check_file(content: &[u8]) -> Result<(), DocumentError> {
    let text = std::str::from_utf8(content).map_err(|error| DocumentError::NotJson(error.to_string()))?;
    check_node_file(text)
}

pub(crate) fn sealed(shown: String, content: &[u8], profile: &str) -> Result<Delivery, ProfileError> {
    let file = SealedFile::new("seccomp-profile", content)
        .map_err(|source| ProfileError::Memory { profile: profile.to_owned(), source })?;
    let hash = Some(sha256::hex(content));
    // swallowed: what was checked is text
    let text = std::str::from_utf8(content).ok().map(str::to_owned);
    Ok(Delivery {
        path: file.path(),
        shown,
        hash,
        source_hash: None,
        pulled: false,
        sealed: Some(file),
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::check_file;

    #[test]
    fn a_file_of_which_a_runtime_makes_no_filter_is_refused() {
        for (text, expected) in [
            (&b"{}"[..], "neither defaultAction nor syscalls"),
            (b"null", "neither defaultAction nor syscalls"),
            (br#"{"defaultAction":"","syscalls":[]}"#, "neither defaultAction nor syscalls"),
            (br#"{"defaultAction":"SCMP_ACT_ERRNO","defaultAction":""}"#, "twice"),
            (br#"{"defaultAction":"SCMP_ACT_ERRNO","DefaultAction":""}"#, "must be written defaultAction"),
            (b"", "is empty"),
            (b"{ not json", "is not valid JSON"),
            (br#"{"x":"\ud800"}"#, "is not valid JSON"),
            (b"{\"x\":\"\xff\"}", "is not valid JSON"),
        ] {
            let error = check_file(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{}: {error}", String::from_utf8_lossy(text));
        }
        for text in [
            r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#,
            r#"{"defaultAction":"SCMP_ACT_LOG"}"#,
            // Rejected by every runtime, in its own words.
            r#"{"defaultAction":"SCMP_ACT_NOPE"}"#,
            // An administrator's recorder.
            r#"{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/run/a.sock","syscalls":[{"names":["mount"],"action":"SCMP_ACT_NOTIFY"}]}"#,
        ] {
            assert_eq!(check_file(text.as_bytes()), Ok(()), "{text}");
        }
    }
}
