//! Releases of Kubernetes, as API servers and kubelets report them.
//!
//! Leaves to others: what differs between releases; the code that implements a rule compares with the release that
//! changed it.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// The newest release whose behaviour is known.
pub const NEWEST_MINOR: u16 = 37;
/// The oldest API server that can be emulated: the first with seccomp fields.
pub const OLDEST_MINOR: u16 = 19;

/// Whose rules an API server or a kubelet applies. Extended versions are later than every release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KubeVersion {
    /// Exactly what upstream's release does.
    Release {
        /// The `N` of `v1.N`.
        minor: u16,
        /// The patch release; `u16::MAX`, the newest one of the minor, if it does not matter.
        patch: u16,
    },
    /// The newest release with Palisade's extensions.
    Designs,
}

impl KubeVersion {
    /// The oldest release that can be emulated.
    pub const OLDEST: Self = Self::v1(OLDEST_MINOR);
    /// The newest release.
    pub const LATEST: Self = Self::v1(NEWEST_MINOR);

    /// The newest patch release of `v1.minor`.
    #[must_use]
    pub const fn v1(minor: u16) -> Self {
        Self::Release { minor, patch: u16::MAX }
    }

    /// The `N` of `v1.N`; the extensions stand on the newest release.
    #[must_use]
    pub const fn minor(self) -> u16 {
        match self {
            Self::Release { minor, .. } => minor,
            Self::Designs => NEWEST_MINOR,
        }
    }

    /// `v1.N.P`, as `/version` reports it; the first patch release if it does not matter.
    #[must_use]
    pub fn git_version(self) -> String {
        match self {
            Self::Release { minor, patch } if patch != u16::MAX => format!("v1.{minor}.{patch}"),
            version => format!("v1.{}.0", version.minor()),
        }
    }

    /// True from `v1.minor` on; always true for the extensions, which have every field.
    #[must_use]
    pub const fn at_least(self, minor: u16) -> bool {
        match self {
            Self::Release { minor: own, .. } => own >= minor,
            Self::Designs => true,
        }
    }
}

impl Default for KubeVersion {
    fn default() -> Self {
        Self::LATEST
    }
}

impl fmt::Display for KubeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Designs => write!(f, "v1.{NEWEST_MINOR} with Palisade's extensions"),
            Self::Release { minor, patch: u16::MAX } => write!(f, "v1.{minor}"),
            Self::Release { minor, patch } => write!(f, "v1.{minor}.{patch}"),
        }
    }
}

/// The text does not name a release.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{given:?} is not a Kubernetes version: write it as v1.27 or v1.27.3")]
pub struct VersionError {
    /// What was given.
    pub given: String,
}

impl FromStr for KubeVersion {
    type Err = VersionError;

    /// Reads a release, with or without `v`, a patch release, and what distributions append.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let error = || VersionError { given: text.to_owned() };
        let rest = text.strip_prefix('v').unwrap_or(text).strip_prefix("1.").ok_or_else(error)?;
        // Distributions append their own words: v1.27.3-gke.100, v1.27.3+k3s1.
        let rest = rest.split(['-', '+']).next().unwrap_or(rest);
        let (minor, patch) = match rest.split_once('.') {
            Some((minor, patch)) => (minor, Some(patch)),
            None => (rest, None),
        };
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            if plain { digits.parse::<u16>().map_err(|_| error()) } else { Err(error()) }
        };
        Ok(Self::Release { minor: number(minor)?, patch: patch.map_or(Ok(u16::MAX), number)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_as_people_and_distributions_write_them() {
        for (text, expected) in [
            ("v1.27", Some((27, u16::MAX))),
            ("1.27", Some((27, u16::MAX))),
            ("v1.27.3", Some((27, 3))),
            ("v1.27.3-gke.100", Some((27, 3))),
            ("v1.27.3+k3s1", Some((27, 3))),
            ("v2.1", None),
            ("v1", None),
            ("v1.", None),
            ("v1.+5", None),
            ("v1.x", None),
            ("v1.27.3.4", None),
            ("latest", None),
            ("", None),
        ] {
            let expected = expected.map(|(minor, patch)| KubeVersion::Release { minor, patch });
            assert_eq!(text.parse::<KubeVersion>().ok(), expected, "{text}");
        }
    }

    #[test]
    fn extensions_are_later_than_every_release() {
        assert!(KubeVersion::Designs > KubeVersion::LATEST);
        assert!(KubeVersion::Designs.at_least(u16::MAX));
        assert_eq!(KubeVersion::Designs.minor(), NEWEST_MINOR);
    }
}
