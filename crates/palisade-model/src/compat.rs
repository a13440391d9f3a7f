//! Whose rules apply: a release of Kubernetes, or the designs this product implements.
//!
//! One [`Compat`] value is passed to everything that depends on a version; there is no global state. The
//! methods are named after the decision, so that the code that takes it reads without version numbers.
//!
//! Facts: the version timeline in Kubernetes' release history of seccomp (v1.19 to v1.27) and AppArmor
//! (v1.30 to v1.34).

use std::{fmt, str::FromStr};

use thiserror::Error;

/// The newest release whose behaviour is known.
pub const NEWEST_MINOR: u16 = 37;
/// The oldest API server that can be emulated: the first with seccomp fields.
pub const OLDEST_MINOR: u16 = 19;

/// A Kubernetes release, `v1.<minor>` or `v1.<minor>.<patch>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVersion {
    /// The minor version.
    pub minor: u16,
    /// The patch release; the newest one of the minor if it does not matter.
    pub patch: u16,
}

impl KubernetesVersion {
    /// The newest patch release of a minor version.
    #[must_use]
    pub const fn minor(minor: u16) -> Self {
        Self { minor, patch: u16::MAX }
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.patch == u16::MAX {
            write!(f, "v1.{}", self.minor)
        } else {
            write!(f, "v1.{}.{}", self.minor, self.patch)
        }
    }
}

/// A version that is not one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{given:?} is not a Kubernetes version: write it as v1.27 or v1.27.3")]
pub struct VersionError {
    /// What was given.
    pub given: String,
}

impl FromStr for KubernetesVersion {
    type Err = VersionError;

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
        Ok(Self { minor: number(minor)?, patch: patch.map_or(Ok(u16::MAX), number)? })
    }
}

/// Which API server decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiServer {
    /// The designs: two-way sync of annotations and fields, ConfigMap profiles behind their gate.
    Designs,
    /// Exactly what upstream `v1.<minor>` does.
    Kubernetes(u16),
}

impl fmt::Display for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Designs => write!(f, "v1.{NEWEST_MINOR} with Palisade's extensions"),
            Self::Kubernetes(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// Which kubelet runs the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kubelet {
    /// The designs: fields before annotations, container before pod, ConfigMap profiles behind their gate.
    Designs,
    /// Exactly what upstream's release does.
    Kubernetes(KubernetesVersion),
}

impl Kubelet {
    /// The release whose general behaviour applies: the designs stand on the newest one.
    #[must_use]
    pub const fn minor(self) -> u16 {
        match self {
            Self::Designs => NEWEST_MINOR,
            Self::Kubernetes(version) => version.minor,
        }
    }
}

impl fmt::Display for Kubelet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Designs => write!(f, "v1.{NEWEST_MINOR} with Palisade's extensions"),
            Self::Kubernetes(version) => version.fmt(f),
        }
    }
}

/// Switches of the designs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    /// Seccomp profiles from ConfigMaps; alpha, off unless asked for.
    pub seccomp_config_maps: bool,
    /// AppArmor at all; on unless switched off.
    pub app_armor: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self { seccomp_config_maps: false, app_armor: true }
    }
}

/// How annotations and fields are brought together when a pod is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncDirection {
    /// Not at all.
    None,
    /// An annotation without a field becomes the field.
    AnnotationToField,
    /// And a field without an annotation becomes the annotation.
    TwoWay,
}

/// Everything that decides which rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compat {
    /// The API server.
    pub api: ApiServer,
    /// The kubelet on the node.
    pub kubelet: Kubelet,
    /// Feature gates.
    pub gates: FeatureGates,
    /// The kubelet's `--seccomp-default`.
    pub seccomp_default: bool,
}

impl Default for Compat {
    fn default() -> Self {
        Self::designs()
    }
}

impl Compat {
    /// The designs, API server and kubelet alike.
    #[must_use]
    pub fn designs() -> Self {
        Self {
            api: ApiServer::Designs,
            kubelet: Kubelet::Designs,
            gates: FeatureGates::default(),
            seccomp_default: false,
        }
    }

    /// Upstream's `v1.<minor>`, API server and kubelet alike.
    #[must_use]
    pub fn kubernetes(minor: u16) -> Self {
        Self {
            api: ApiServer::Kubernetes(minor),
            kubelet: Kubelet::Kubernetes(KubernetesVersion::minor(minor)),
            ..Self::designs()
        }
    }

    /// Whether the designs decide.
    #[must_use]
    pub const fn is_designs(&self) -> bool {
        matches!(self.api, ApiServer::Designs)
    }

    /// The release whose general behaviour applies: the designs stand on the newest one.
    #[must_use]
    pub const fn api_minor(&self) -> u16 {
        match self.api {
            ApiServer::Designs => NEWEST_MINOR,
            ApiServer::Kubernetes(minor) => minor,
        }
    }

    /// Seccomp annotations and fields.
    #[must_use]
    pub const fn seccomp_sync(&self) -> SyncDirection {
        match self.api {
            ApiServer::Designs | ApiServer::Kubernetes(..=24) => SyncDirection::TwoWay,
            ApiServer::Kubernetes(25..=26) => SyncDirection::AnnotationToField,
            ApiServer::Kubernetes(_) => SyncDirection::None,
        }
    }

    /// AppArmor annotations and fields.
    #[must_use]
    pub const fn app_armor_sync(&self) -> SyncDirection {
        match self.api {
            ApiServer::Designs | ApiServer::Kubernetes(30..=33) => SyncDirection::TwoWay,
            ApiServer::Kubernetes(..=29) => SyncDirection::None,
            ApiServer::Kubernetes(_) => SyncDirection::AnnotationToField,
        }
    }

    /// Whether `appArmorProfile` exists.
    #[must_use]
    pub const fn has_app_armor_fields(&self) -> bool {
        self.api_minor() >= 30
    }

    /// Whether AppArmor settings are kept at all. Only the designs and releases up to v1.30 have the gate.
    #[must_use]
    pub const fn keeps_app_armor(&self) -> bool {
        match self.api {
            ApiServer::Designs | ApiServer::Kubernetes(..=30) => self.gates.app_armor,
            ApiServer::Kubernetes(_) => true,
        }
    }

    /// Whether the profile type `ConfigMap` exists. No release has ever shipped it.
    #[must_use]
    pub const fn has_config_map_profiles(&self) -> bool {
        self.is_designs() && self.gates.seccomp_config_maps
    }

    /// Whether refused values are printed as JSON; Go syntax before.
    #[must_use]
    pub const fn prints_values_as_json(&self) -> bool {
        self.api_minor() >= 34
    }

    /// Whether `hostUsers` is kept (the gate UserNamespacesSupport is on by default since v1.33).
    #[must_use]
    pub const fn keeps_host_users(&self) -> bool {
        self.api_minor() >= 33
    }

    /// Whether `procMount` is kept as written (the gate ProcMountType is on by default since v1.33).
    #[must_use]
    pub const fn keeps_proc_mount(&self) -> bool {
        self.api_minor() >= 33
    }

    /// The text of the warning about a seccomp annotation without its field, `None` where there was none yet.
    #[must_use]
    pub const fn seccomp_annotation_warning(&self) -> Option<&'static str> {
        Some(match self.api {
            ApiServer::Kubernetes(..=21) => return None,
            ApiServer::Designs => {
                r#"deprecated since v1.19, support will be dropped in v1.23; use the "seccompProfile" field instead"#
            }
            ApiServer::Kubernetes(22) => r#"deprecated since v1.19; use the "seccompProfile" field instead"#,
            ApiServer::Kubernetes(23..=24) => {
                r#"deprecated since v1.19, non-functional in v1.25+; use the "seccompProfile" field instead"#
            }
            ApiServer::Kubernetes(25..=26) => {
                r#"deprecated since v1.19, non-functional in a future release; use the "seccompProfile" field instead"#
            }
            ApiServer::Kubernetes(_) => r#"non-functional in v1.27+; use the "seccompProfile" field instead"#,
        })
    }

    /// The text of the warning about an AppArmor annotation without its field.
    #[must_use]
    pub const fn app_armor_annotation_warning(&self) -> &'static str {
        match self.api {
            ApiServer::Designs => {
                r#"deprecated, support will be dropped in v1.30; use the "appArmorProfile" field instead"#
            }
            ApiServer::Kubernetes(_) => r#"deprecated since v1.30; use the "appArmorProfile" field instead"#,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Compat, KubernetesVersion, SyncDirection};

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
            ("v1.27.3.4", None),
            ("latest", None),
        ] {
            let read = text.parse::<KubernetesVersion>().ok().map(|v| (v.minor, v.patch));
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn sync_follows_the_release_history() {
        use SyncDirection::{AnnotationToField, None, TwoWay};
        for (minor, seccomp, app_armor) in [
            (19, TwoWay, None),
            (24, TwoWay, None),
            (25, AnnotationToField, None),
            (26, AnnotationToField, None),
            (27, None, None),
            (29, None, None),
            (30, None, TwoWay),
            (33, None, TwoWay),
            (34, None, AnnotationToField),
            (37, None, AnnotationToField),
        ] {
            let compat = Compat::kubernetes(minor);
            assert_eq!((compat.seccomp_sync(), compat.app_armor_sync()), (seccomp, app_armor), "v1.{minor}");
        }
        assert_eq!((Compat::designs().seccomp_sync(), Compat::designs().app_armor_sync()), (TwoWay, TwoWay));
    }
}
