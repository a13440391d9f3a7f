//! Values of options that several commands take. The options themselves live beside each command.

use std::{fmt, str::FromStr, time::Duration};

use clap::ValueEnum;
use palisade_base::version::{KubeVersion, NEWEST_MINOR, OLDEST_MINOR, VersionError};
use palisade_model::compat::Compat;
use palisade_policy::standards::level::{self, Version};
use thiserror::Error;

use crate::failure::Failure;

/// Why the value of an option cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ValueError {
    /// It does not have the form that the option takes.
    #[error("{0}")]
    Form(&'static str),
    /// It is neither of two words.
    #[error("{given:?} is neither {0} nor {1}", .expected.0, .expected.1)]
    Neither {
        /// The value.
        given: String,
        /// The words.
        expected: (&'static str, &'static str),
    },
    /// It is not a version of Kubernetes.
    #[error("{0}, or `extended`")]
    Kubernetes(VersionError),
    /// It is not a version of a kubelet.
    #[error(transparent)]
    Kubelet(#[from] VersionError),
    /// It is not a version of the standards.
    #[error(transparent)]
    Standards(#[from] level::VersionError),
    /// The release is too old, or newer than this program.
    #[error("supported versions are v1.{oldest} to v1.{NEWEST_MINOR}{also}")]
    UnknownRelease {
        /// The oldest one.
        oldest: u16,
        /// What else the option takes.
        also: &'static str,
    },
}

/// How tables are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// The release that an embedded server emulates; without one it has Palisade's extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulated(pub Compat);

impl Default for Emulated {
    fn default() -> Self {
        Self(Compat::designs())
    }
}

impl fmt::Display for Emulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kubernetes {}", self.0.api)
    }
}

impl FromStr for Emulated {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let ApiVersion(compat) = text.parse()?;
        if compat.is_designs() {
            return Err(ValueError::Form("omit the option for Palisade's extensions"));
        }
        Ok(Self(compat))
    }
}

/// An API server: a release, or the newest one with Palisade's extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiVersion(pub Compat);

impl Default for ApiVersion {
    fn default() -> Self {
        Self(Compat::kubernetes(NEWEST_MINOR))
    }
}

impl FromStr for ApiVersion {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "designs" | "extended" => return Ok(Self(Compat::designs())),
            "latest" => return Ok(Self::default()),
            _ => {}
        }
        let version: KubeVersion = text.parse().map_err(ValueError::Kubernetes)?;
        if (OLDEST_MINOR..=NEWEST_MINOR).contains(&version.minor()) {
            Ok(Self(Compat::kubernetes(version.minor())))
        } else {
            Err(ValueError::UnknownRelease { oldest: OLDEST_MINOR, also: ", and `extended`" })
        }
    }
}

/// A version of the standards. In labels a later version means the latest; on the command line it is an error.
pub(crate) fn policy_version(text: &str) -> Result<Version, ValueError> {
    match text.parse::<Version>()? {
        Version::Minor(minor) if minor > u64::from(NEWEST_MINOR) => {
            Err(ValueError::UnknownRelease { oldest: 0, also: ", and latest" })
        }
        version => Ok(version),
    }
}

/// `90d`, `24h`, `10m`, `5s`, `250ms`; also `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, ValueError> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()?.checked_mul(86_400));
    let parsed = || text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    days.map(Duration::from_secs)
        .or_else(parsed)
        .ok_or(ValueError::Form("write it as 250ms, 5s, 10m, 24h or 90d"))
}

/// A duration that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, ValueError> {
    match duration(text)? {
        Duration::ZERO => Err(ValueError::Form("must be longer than 0s")),
        duration => Ok(duration),
    }
}

/// A feature gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureGate {
    /// Seccomp profiles from ConfigMaps.
    SeccompConfigMaps(bool),
    /// Seccomp profiles from registries.
    SecurityProfileOciArtifact(bool),
    /// AppArmor.
    AppArmor(bool),
    /// Enforced Pod Security in an OpenShift cluster: the break-glass of its rollout.
    OpenShiftPodSecurityAdmission(bool),
}

impl FeatureGate {
    /// Sets the gates.
    #[must_use]
    pub fn apply(gates: &[Self], mut compat: Compat) -> Compat {
        for gate in gates {
            match *gate {
                Self::SeccompConfigMaps(on) => compat.gates.seccomp_config_maps = on,
                Self::SecurityProfileOciArtifact(on) => compat.gates.security_profile_oci_artifact = on,
                Self::AppArmor(on) => compat.gates.app_armor = on,
                Self::OpenShiftPodSecurityAdmission(_) => {}
            }
        }
        compat
    }

    /// Rejects the gate of profiles from registries where kubelets run the pods: none of them pulls profiles.
    pub fn refuse_registries(gates: &[Self]) -> Result<(), Failure> {
        if gates.contains(&Self::SecurityProfileOciArtifact(true)) {
            return Err(Failure::input(
                "--feature-gates SecurityProfileOCIArtifact=true: only nodes of Palisade pull seccomp profiles from registries (palisade up --node, run)",
            ));
        }
        Ok(())
    }

    /// The gate of enforced Pod Security, if it is set.
    #[must_use]
    pub fn enforcement(gates: &[Self]) -> Option<bool> {
        gates.iter().rev().find_map(|gate| match *gate {
            Self::OpenShiftPodSecurityAdmission(on) => Some(on),
            Self::SeccompConfigMaps(_) | Self::SecurityProfileOciArtifact(_) | Self::AppArmor(_) => None,
        })
    }
}

impl FromStr for FeatureGate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let form = ValueError::Form("write it as SeccompConfigMaps=true");
        let (name, value) = text.split_once('=').ok_or(form)?;
        let on = value
            .parse()
            .map_err(|_| ValueError::Neither { given: value.to_owned(), expected: ("true", "false") })?;
        match name {
            "SeccompConfigMaps" => Ok(Self::SeccompConfigMaps(on)),
            "SecurityProfileOCIArtifact" => Ok(Self::SecurityProfileOciArtifact(on)),
            "AppArmor" => Ok(Self::AppArmor(on)),
            "OpenShiftPodSecurityAdmission" => Ok(Self::OpenShiftPodSecurityAdmission(on)),
            _ => Err(ValueError::Form(
                "feature gates are SeccompConfigMaps, SecurityProfileOCIArtifact, AppArmor and OpenShiftPodSecurityAdmission",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_are_not_negative() {
        for (text, millis) in [
            ("90d", Some(90 * 86_400_000)),
            ("4h", Some(14_400_000)),
            ("1h30m", Some(5_400_000)),
            ("250ms", Some(250)),
            ("0s", Some(0)),
            ("90", None),
            ("d", None),
            ("-1h", None),
            ("soon", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(duration(text).ok().map(|time| time.as_millis()), millis, "{text}");
        }
        assert!(positive_duration("0s").is_err() && positive_duration("1s").is_ok());
    }
}
