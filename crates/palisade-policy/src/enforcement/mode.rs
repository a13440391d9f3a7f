//! The words of the rollout: releases and modes.
//!
//! Implements: `PSAEnforcementConfig`, "New API" and "Upgrade / Downgrade Strategy".

use std::{fmt, str::FromStr};

use thiserror::Error;

/// Where a cluster stands on the way to enforcement. The design counts from the release that evaluates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// `n-1`: the API exists.
    #[default]
    Introduce,
    /// `n`: namespaces are evaluated, and enforce labels can be removed.
    Evaluate,
    /// `n+1`: clusters move to enforcement.
    Enforce,
}

impl Release {
    /// Every release, in order.
    pub const ALL: [Self; 3] = [Self::Introduce, Self::Evaluate, Self::Enforce];

    /// Whether the feature gate is on unless someone specifies otherwise.
    #[must_use]
    pub const fn gate_default(self) -> bool {
        matches!(self, Self::Enforce)
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Introduce => "introduce",
            Self::Evaluate => "evaluate",
            Self::Enforce => "enforce",
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be one of n-1 (introduce), n (evaluate), n+1 (enforce)")]
pub struct ReleaseError;

impl FromStr for Release {
    type Err = ReleaseError;
    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        match text {
            "n-1" | "introduce" => Ok(Self::Introduce),
            "n" | "evaluate" => Ok(Self::Evaluate),
            "n+1" | "enforce" => Ok(Self::Enforce),
            _ => Err(ReleaseError),
        }
    }
}

/// `spec.enforcementMode`: what the administrator, or the readiness controller, requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SpecMode {
    /// Not set; means `Restricted`.
    #[default]
    Unset,
    /// Enforce.
    Restricted,
    /// Do not enforce.
    Legacy,
}

/// Not a mode of the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be one of \"\", \"Restricted\", \"Legacy\"")]
pub struct SpecModeError;

impl SpecMode {
    /// As the API writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Restricted => "Restricted",
            Self::Legacy => "Legacy",
        }
    }
}

impl FromStr for SpecMode {
    type Err = SpecModeError;
    fn from_str(text: &str) -> Result<Self, SpecModeError> {
        [Self::Unset, Self::Restricted, Self::Legacy]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or(SpecModeError)
    }
}

/// `status.enforcementMode`: what the cluster does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum StatusMode {
    /// Enforcement is not enabled yet, or the gate is off.
    #[default]
    NotEnabled,
    /// Labels are being set, then the API servers follow.
    Progressing,
    /// Every API server enforces.
    Restricted,
    /// Enforcement will not happen.
    Legacy,
}

impl StatusMode {
    /// As the API writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotEnabled => "",
            Self::Progressing => "Progressing",
            Self::Restricted => "Restricted",
            Self::Legacy => "Legacy",
        }
    }

    /// Reads the value of the API; an unknown one counts as unset.
    #[must_use]
    pub fn read(text: &str) -> Self {
        [Self::Progressing, Self::Restricted, Self::Legacy]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Release, SpecMode, StatusMode};

    #[test]
    fn releases_have_two_names_each() {
        for (release, position) in Release::ALL.into_iter().zip(["n-1", "n", "n+1"]) {
            assert_eq!(position.parse(), Ok(release));
            assert_eq!(release.as_str().parse(), Ok(release));
        }
        assert!("n+2".parse::<Release>().is_err());
    }

    #[test]
    fn the_spec_cannot_be_progressing() {
        assert!("Progressing".parse::<SpecMode>().is_err());
        assert_eq!("".parse(), Ok(SpecMode::Unset));
        assert_eq!(StatusMode::read("Progressing"), StatusMode::Progressing);
        assert_eq!(StatusMode::read("Privileged"), StatusMode::NotEnabled);
    }
}
