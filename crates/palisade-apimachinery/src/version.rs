//! Which Kubernetes release is emulated.
//!
//! Leaves to others: what differs between releases; each room compares against the release where its rule changed.

use std::fmt;
use std::str::FromStr;

/// A Kubernetes minor release, `v1.N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubeVersion(u8);

/// The text does not name a release of the form `v1.N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseVersionError(String);

impl KubeVersion {
    /// The oldest release that can be emulated.
    pub const OLDEST: Self = Self(19);
    /// The newest release that can be emulated, and the default.
    pub const LATEST: Self = Self(37);

    /// The newest release, with the fields of designs that no release has. Prints as that release.
    pub const DESIGNS: Self = Self(u8::MAX);

    /// `v1.minor`.
    #[must_use]
    pub const fn minor(minor: u8) -> Self {
        Self(minor)
    }

    /// The `N` of `v1.N`.
    #[must_use]
    pub const fn get(self) -> u8 {
        if self.0 == Self::DESIGNS.0 { Self::LATEST.0 } else { self.0 }
    }

    /// True from `v1.minor` on.
    #[must_use]
    pub const fn at_least(self, minor: u8) -> bool {
        self.0 >= minor
    }
}

impl Default for KubeVersion {
    fn default() -> Self {
        Self::LATEST
    }
}

impl fmt::Display for KubeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1.{}", self.get())
    }
}

impl fmt::Display for ParseVersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a Kubernetes release of the form v1.N", self.0)
    }
}

impl std::error::Error for ParseVersionError {}

impl FromStr for KubeVersion {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseVersionError(text.to_owned());
        let rest = text.strip_prefix('v').unwrap_or(text).strip_prefix("1.").ok_or_else(error)?;
        let minor = rest.split('.').next().unwrap_or(rest);
        let minor: u8 = minor.parse().map_err(|_| error())?;
        if minor == Self::DESIGNS.0 { Err(error()) } else { Ok(Self(minor)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_releases_with_and_without_prefix_and_patch() {
        for (text, expected) in [
            ("v1.24", Some(24)),
            ("1.37", Some(37)),
            ("v1.24.17", Some(24)),
            ("v2.1", None),
            ("", None),
            ("v1.x", None),
        ] {
            assert_eq!(text.parse::<KubeVersion>().ok().map(KubeVersion::get), expected, "{text}");
        }
    }
}
