//! What a profile that a tenant brings is combined with before a runtime sees it.
//!
//! A profile from a ConfigMap or a registry is chosen by users of a namespace. It is intersected with a baseline, so that it can only restrict:
//! the result allows no call that the baseline does not allow. The baseline is the default profile of the node's container runtime,
//! or files that an administrator put on the node, as the `ProfilePolicy` objects of the namespace choose.
//!
//! The intersection is made where the runtime is known, on the node. A kubelet finds the result in a file whose name follows from the
//! source and the baseline ([`published_sha256`]); its content has a hash of its own, which is reported beside that of the source.
//!
//! Leaves to others: which baseline a namespace has (`palisade-policy`), reading files (the node).

use std::{collections::BTreeSet, fmt};

use palisade_base::sha256;
use thiserror::Error;

use super::{
    algebra::{AlgebraError, Strictness},
    config_map::{DocumentError, MAX_PROFILE_BYTES, check_document},
    decision::TooComplex,
    filter::{Call, Filter, FilterError},
};

const RUNTIME_DEFAULT: &str = "runtime/default";
const LOCALHOST: &str = "localhost/";

/// A profile that is part of a baseline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum BaselineProfile {
    /// The default profile of the node's container runtime.
    RuntimeDefault,
    /// A file below the node's seccomp folder.
    Localhost(String),
}

impl BaselineProfile {
    /// Reads what [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(LOCALHOST) {
            Some(path) if Self::path_problem(path).is_none() => Some(Self::Localhost(path.to_owned())),
            None if text == RUNTIME_DEFAULT => Some(Self::RuntimeDefault),
            _ => None,
        }
    }

    /// What is wrong with the path of a file.
    #[must_use]
    pub fn path_problem(path: &str) -> Option<&'static str> {
        if path.is_empty() {
            Some("must not be empty")
        } else if path.starts_with('/') {
            Some("must be a relative path")
        } else if path.split('/').any(|element| element == "..") {
            Some("must not contain '..'")
        } else if path.contains(',') {
            Some("must not contain ','")
        } else if in_published_folder(path) {
            Some("must not be in the folder of published profiles")
        } else {
            None
        }
    }
}

impl fmt::Display for BaselineProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RuntimeDefault => f.write_str(RUNTIME_DEFAULT),
            Self::Localhost(path) => write!(f, "{LOCALHOST}{path}"),
        }
    }
}

/// The profiles that a tenant's profile is intersected with; there is always at least one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Baseline(BTreeSet<BaselineProfile>);

impl Default for Baseline {
    fn default() -> Self {
        Self(BTreeSet::from([BaselineProfile::RuntimeDefault]))
    }
}

impl Baseline {
    /// All of these; the default of the runtime if there are none.
    #[must_use]
    pub fn of(profiles: BTreeSet<BaselineProfile>) -> Self {
        if profiles.is_empty() { Self::default() } else { Self(profiles) }
    }

    /// Reads what [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.split(',').map(BaselineProfile::parse).collect::<Option<_>>().map(Self)
    }

    /// The same, and another profile.
    #[must_use]
    pub fn and(mut self, profile: BaselineProfile) -> Self {
        self.0.insert(profile);
        self
    }

    /// Whether it is the runtime's default alone.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Its profiles.
    pub fn profiles(&self) -> impl Iterator<Item = &BaselineProfile> {
        self.0.iter()
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, profile) in self.0.iter().enumerate() {
            write!(f, "{}{profile}", if position > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// Whether a path below the seccomp folder leads into the folder of published profiles.
#[must_use]
pub fn in_published_folder(path: &str) -> bool {
    path.split('/').find(|element| !matches!(*element, "" | ".")) == Some(super::published::FOLDER)
}

/// What a profile is published as: the hash of the source for the default baseline, and otherwise one that follows from both.
#[must_use]
pub fn published_sha256(source: &str, baseline: &Baseline) -> String {
    if baseline.is_default() {
        return source.to_owned();
    }
    // No profile has this text: it is not JSON.
    sha256::hex(format!("{source}\n{baseline}").as_bytes())
}

/// A profile that only restricts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restricted {
    /// The document for the runtime.
    pub text: String,
    /// Its hash.
    pub sha256: String,
}

/// Why a profile cannot be combined with a baseline.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RestrictError {
    /// The source is no profile that a tenant may bring.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// What was checked could not be read again.
    #[error("is not a seccomp profile: {0}")]
    Filter(#[from] FilterError),
    /// The algebra has no exact result.
    #[error("cannot be combined with its baseline: {0}")]
    Algebra(#[from] AlgebraError),
    /// The result allows what the baseline does not.
    #[error("cannot be combined with its baseline: the result would allow {0}")]
    Exceeds(Box<Call>),
}

impl From<TooComplex> for RestrictError {
    fn from(error: TooComplex) -> Self {
        Self::Algebra(error.into())
    }
}

/// The profile that allows what the source and every profile of the baseline allow. The document is read back and compared with the
/// baseline before it is returned.
pub fn restrict(source: &str, baseline: &[Filter]) -> Result<Restricted, RestrictError> {
    check_document(source)?;
    let mut filter = Filter::parse(source)?;
    for bound in baseline {
        filter = filter.intersection(bound)?;
    }
    let text = filter.to_oci().to_string();
    if text.len() > MAX_PROFILE_BYTES {
        return Err(DocumentError::TooLarge { size: text.len() }.into());
    }
    let written = Filter::parse(&text)?;
    for bound in baseline {
        if let Some(found) = written.at_least_as_strict_as(bound, Strictness::Access)? {
            return Err(RestrictError::Exceeds(Box::new(found.call)));
        }
    }
    Ok(Restricted { sha256: sha256::hex(text.as_bytes()), text })
}

#[cfg(test)]
#[path = "baseline_tests.rs"]
mod tests;
