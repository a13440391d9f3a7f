//! Whose rules apply: a release of Kubernetes, or Palisade's extensions of the newest one.
//!
//! One [`Compat`] value is passed to everything that depends on a version; there is no global state. The
//! methods are named after the decision, so that the code that takes it reads without version numbers.
//!
//! Facts: the version timeline in Kubernetes' release history of seccomp (v1.19 to v1.27) and AppArmor
//! (v1.30 to v1.34).

use palisade_base::version::KubeVersion;

/// Feature gates of Palisade's extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    /// Seccomp profiles from ConfigMaps; alpha, off unless requested.
    pub seccomp_config_maps: bool,
    /// Seccomp profiles from registries; alpha, off unless requested.
    pub security_profile_oci_artifact: bool,
    /// AppArmor at all; on unless switched off.
    pub app_armor: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self { seccomp_config_maps: false, security_profile_oci_artifact: false, app_armor: true }
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
    pub api: KubeVersion,
    /// The kubelet on the node.
    pub kubelet: KubeVersion,
    /// Feature gates.
    pub gates: FeatureGates,
    /// The kubelet's `--seccomp-default`.
    pub seccomp_default: bool,
    /// Whether the fields of the pod security context's extensions are read although no release has them: a webhook ignores
    /// nothing of what it was sent.
    pub keeps_extensions: bool,
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
            api: KubeVersion::Designs,
            kubelet: KubeVersion::Designs,
            gates: FeatureGates::default(),
            seccomp_default: false,
            keeps_extensions: false,
        }
    }

    /// Upstream's `v1.<minor>`, API server and kubelet alike.
    #[must_use]
    pub fn kubernetes(minor: u16) -> Self {
        Self { api: KubeVersion::v1(minor), kubelet: KubeVersion::v1(minor), ..Self::designs() }
    }

    /// Whether Palisade's extensions decide.
    #[must_use]
    pub const fn is_designs(&self) -> bool {
        matches!(self.api, KubeVersion::Designs)
    }

    /// Whether `containerDefaults`, `runWithSupplementalGroups` and the host fields of the pod security context exist.
    #[must_use]
    pub const fn has_extensions(&self) -> bool {
        self.is_designs() || self.keeps_extensions
    }

    /// The release whose general behaviour applies: the extensions stand on the newest one.
    #[must_use]
    pub const fn api_minor(&self) -> u16 {
        self.api.minor()
    }

    /// Seccomp annotations and fields.
    #[must_use]
    pub const fn seccomp_sync(&self) -> SyncDirection {
        match self.api {
            KubeVersion::Designs | KubeVersion::Release { minor: ..=24, .. } => SyncDirection::TwoWay,
            KubeVersion::Release { minor: 25..=26, .. } => SyncDirection::AnnotationToField,
            KubeVersion::Release { .. } => SyncDirection::None,
        }
    }

    /// AppArmor annotations and fields.
    #[must_use]
    pub const fn app_armor_sync(&self) -> SyncDirection {
        match self.api {
            KubeVersion::Designs | KubeVersion::Release { minor: 30..=33, .. } => SyncDirection::TwoWay,
            KubeVersion::Release { minor: ..=29, .. } => SyncDirection::None,
            KubeVersion::Release { .. } => SyncDirection::AnnotationToField,
        }
    }

    /// Whether `appArmorProfile` exists.
    #[must_use]
    pub const fn has_app_armor_fields(&self) -> bool {
        self.api_minor() >= 30
    }

    /// Whether AppArmor settings are kept at all. Only Palisade's extensions and releases up to v1.30 have the gate.
    #[must_use]
    pub const fn keeps_app_armor(&self) -> bool {
        match self.api {
            KubeVersion::Designs | KubeVersion::Release { minor: ..=30, .. } => self.gates.app_armor,
            KubeVersion::Release { .. } => true,
        }
    }

    /// Whether the profile type `ConfigMap` exists. No release has ever shipped it.
    #[must_use]
    pub const fn has_config_map_profiles(&self) -> bool {
        self.has_extensions() && self.gates.seccomp_config_maps
    }

    /// Whether the profile type `OCI` exists. No release has it yet (KEP-6061).
    #[must_use]
    pub const fn has_oci_profiles(&self) -> bool {
        self.has_extensions() && self.gates.security_profile_oci_artifact
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
            KubeVersion::Release { minor: ..=21, .. } => return None,
            KubeVersion::Designs => {
                r#"deprecated since v1.19, support will be dropped in v1.23; use the "seccompProfile" field instead"#
            }
            KubeVersion::Release { minor: 22, .. } => {
                r#"deprecated since v1.19; use the "seccompProfile" field instead"#
            }
            KubeVersion::Release { minor: 23..=24, .. } => {
                r#"deprecated since v1.19, non-functional in v1.25+; use the "seccompProfile" field instead"#
            }
            KubeVersion::Release { minor: 25..=26, .. } => {
                r#"deprecated since v1.19, non-functional in a future release; use the "seccompProfile" field instead"#
            }
            KubeVersion::Release { .. } => {
                r#"non-functional in v1.27+; use the "seccompProfile" field instead"#
            }
        })
    }

    /// The text of the warning about an AppArmor annotation without its field.
    #[must_use]
    pub const fn app_armor_annotation_warning(&self) -> &'static str {
        match self.api {
            KubeVersion::Designs => {
                r#"deprecated, support will be dropped in v1.30; use the "appArmorProfile" field instead"#
            }
            KubeVersion::Release { .. } => {
                r#"deprecated since v1.30; use the "appArmorProfile" field instead"#
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Compat, SyncDirection};

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
