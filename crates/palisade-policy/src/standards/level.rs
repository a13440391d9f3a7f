//! Levels, versions, and the pair of them.
//!
//! Implements: Pod Security Standards, "Levels"; Pod Security Admission, namespace labels.

use std::{cmp::Ordering, fmt, str::FromStr};

use thiserror::Error;

/// How much a pod may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Anything.
    Privileged,
    /// Nothing known to escalate privileges.
    Baseline,
    /// Today's best practice.
    Restricted,
}

impl Level {
    /// As labels write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be one of privileged, baseline, restricted")]
pub struct LevelError;

impl FromStr for Level {
    type Err = LevelError;
    fn from_str(text: &str) -> Result<Self, LevelError> {
        [Self::Privileged, Self::Baseline, Self::Restricted]
            .into_iter()
            .find(|level| level.as_str() == text)
            .ok_or(LevelError)
    }
}

/// The release whose version of the standards applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// The newest known.
    Latest,
    /// `v1.<minor>`; may be newer than any known one.
    Minor(u64),
}

impl Version {
    /// `v1.<minor>`.
    #[must_use]
    pub const fn v1(minor: u64) -> Self {
        Self::Minor(minor)
    }

    /// The version to judge by, where `newest` is the newest one known.
    #[must_use]
    pub fn clamp(self, newest: u16) -> u16 {
        match self {
            Self::Latest => newest,
            Self::Minor(minor) => u16::try_from(minor).map_or(newest, |minor| minor.min(newest)),
        }
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Latest, Self::Latest) => Ordering::Equal,
            (Self::Latest, Self::Minor(_)) => Ordering::Greater,
            (Self::Minor(_), Self::Latest) => Ordering::Less,
            (Self::Minor(a), Self::Minor(b)) => a.cmp(b),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Minor(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// Not a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be \"latest\" or \"v1.x\"")]
pub struct VersionError;

impl FromStr for Version {
    type Err = VersionError;
    fn from_str(text: &str) -> Result<Self, VersionError> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let digits = text.strip_prefix("v1.").ok_or(VersionError)?;
        let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        // Upstream reads the number into a signed 64-bit integer.
        let minor = digits.parse::<i64>().map_err(|_| VersionError)?;
        let minor = u64::try_from(minor).map_err(|_| VersionError)?;
        if plain { Ok(Self::Minor(minor)) } else { Err(VersionError) }
    }
}

/// A level in a version of the standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LevelVersion {
    /// The level.
    pub level: Level,
    /// The version.
    pub version: Version,
}

impl LevelVersion {
    /// `privileged:latest`, the default of everything.
    pub const PRIVILEGED: Self = Self { level: Level::Privileged, version: Version::Latest };

    /// A level in a version of the standards.
    #[must_use]
    pub const fn new(level: Level, version: Version) -> Self {
        Self { level, version }
    }

    /// Whether both allow the same; versions of privileged do not differ.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.level == other.level && (self.level == Level::Privileged || self.version == other.version)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, Version};

    #[test]
    fn parses_exactly_what_upstream_parses() {
        for (text, expected) in [
            ("latest", Some(Version::Latest)),
            ("v1.0", Some(Version::Minor(0))),
            ("v1.20", Some(Version::Minor(20))),
            ("v1.10000", Some(Version::Minor(10_000))),
            ("v1.9223372036854775807", Some(Version::Minor(9_223_372_036_854_775_807))),
            ("v1.9223372036854775808", None),
            ("", None),
            ("foo", None),
            ("v2.0", None),
            ("v1", None),
            ("v1.", None),
            ("1.1", None),
            ("v1.01", None),
            ("v1.+1", None),
            ("v1.1\n", None),
            ("Latest", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text:?}");
        }
        assert_eq!("restricted".parse(), Ok(Level::Restricted));
        assert!("Restricted".parse::<Level>().is_err());
    }

    #[test]
    fn clamps_to_what_is_known() {
        assert_eq!(Version::Latest.clamp(37), 37);
        assert_eq!(Version::Minor(99).clamp(37), 37);
        assert_eq!(Version::Minor(u64::MAX).clamp(24), 24);
        assert_eq!(Version::Minor(8).clamp(37), 8);
    }
}
