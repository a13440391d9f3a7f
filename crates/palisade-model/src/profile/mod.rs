//! References to seccomp and AppArmor profiles, between field and annotation.
//!
//! Implements: the Pod API of the seccomp and AppArmor designs, `configmap/<name>/<key>` of the ConfigMap
//! profile design, and `oci` of KEP-6061, which has no annotation; `oci://<reference>[,<base profile>]` is ours. Validation of what users wrote is in [`crate::validation`]; resolution on the node in
//! [`crate::node`].

pub mod algebra;
pub mod apparmor;
pub mod apparmor_profile;
pub mod apparmor_rules;
pub mod architecture;
pub mod artifact;
pub mod baseline;
pub mod bpf;
pub mod call_pattern;
pub mod config_map;
pub mod decision;
pub mod docker;
pub mod document;
pub mod filter;
pub mod guard;
pub mod json;
pub mod oci;
pub mod published;
pub mod reach;
pub mod recording;
pub mod runtime_default;
pub mod seccomp;
pub mod syscalls;

use std::fmt;

use artifact::{ArtifactProfile, ArtifactReference};
use baseline::BaselineProfile;

use crate::{
    compat::Compat,
    security_context::{BaseProfileField, OciProfileField, ProfileField},
    text::Text,
};

/// A usable reference to a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileRef<'a> {
    /// No confinement.
    Unconfined,
    /// What the container runtime brings along.
    RuntimeDefault,
    /// A file below the node's seccomp folder, or a loaded AppArmor profile.
    Localhost(Text<'a>),
    /// A key of a ConfigMap in the pod's namespace; seccomp only.
    ConfigMap {
        /// The ConfigMap.
        name: Text<'a>,
        /// The key in its data.
        key: Text<'a>,
    },
    /// An artifact in a registry; seccomp only.
    Oci(ArtifactProfile<'a>),
}

/// The field's name of a profile type.
pub mod kind {
    /// No confinement.
    pub const UNCONFINED: &str = "Unconfined";
    /// The runtime's own profile.
    pub const RUNTIME_DEFAULT: &str = "RuntimeDefault";
    /// A profile present on the node.
    pub const LOCALHOST: &str = "Localhost";
    /// A profile in a ConfigMap.
    pub const CONFIG_MAP: &str = "ConfigMap";
    /// A profile in a registry.
    pub const OCI: &str = "OCI";
}

impl ProfileRef<'_> {
    /// The `type` of the field form.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unconfined => kind::UNCONFINED,
            Self::RuntimeDefault => kind::RUNTIME_DEFAULT,
            Self::Localhost(_) => kind::LOCALHOST,
            Self::ConfigMap { .. } => kind::CONFIG_MAP,
            Self::Oci(_) => kind::OCI,
        }
    }

    /// Whether the field and the annotation of a release, or the extensions with these gates, can hold it.
    #[must_use]
    pub const fn exists_in(&self, compat: &Compat) -> bool {
        match self {
            Self::Unconfined | Self::RuntimeDefault | Self::Localhost(_) => true,
            Self::ConfigMap { .. } => compat.has_config_map_profiles(),
            Self::Oci(_) => compat.has_oci_profiles(),
        }
    }

    /// Whether its document is written by users of the pod's namespace, or by whom they choose.
    #[must_use]
    pub const fn is_of_tenant(&self) -> bool {
        matches!(self, Self::ConfigMap { .. } | Self::Oci(_))
    }

    /// The annotation form.
    #[must_use]
    pub fn to_annotation(&self) -> String {
        match self {
            Self::Unconfined => "unconfined".to_owned(),
            Self::RuntimeDefault => "runtime/default".to_owned(),
            Self::Localhost(path) => format!("localhost/{path}"),
            Self::ConfigMap { name, key } => format!("configmap/{name}/{key}"),
            Self::Oci(profile) => format!("{}{profile}", artifact::SCHEME),
        }
    }

    /// The field form.
    #[must_use]
    pub fn to_field(&self) -> ProfileField<'static> {
        let mut field = ProfileField { kind: Text::borrowed(self.kind()), ..ProfileField::default() };
        match self {
            Self::Localhost(path) => field.localhost_profile = Some(path.clone().into_owned()),
            Self::ConfigMap { name, key } => field.config_map_profile = Some(format!("{name}/{key}").into()),
            Self::Oci(profile) => field.oci = Some(Box::new(OciProfileField::of(profile))),
            Self::Unconfined | Self::RuntimeDefault => {}
        }
        field
    }
}

impl fmt::Display for ProfileRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unconfined | Self::RuntimeDefault => f.write_str(self.kind()),
            Self::Localhost(path) => write!(f, "Localhost {path}"),
            Self::ConfigMap { name, key } => write!(f, "ConfigMap {name}/{key}"),
            Self::Oci(profile) => write!(f, "OCI {profile}"),
        }
    }
}

impl<'a> ProfileField<'a> {
    /// The reference, if the field holds a complete one: known type, and a `Localhost` that names something
    /// (the name may be empty, as the API accepts it).
    #[must_use]
    pub fn reference(&self) -> Option<ProfileRef<'a>> {
        match self.kind.as_str() {
            kind::UNCONFINED => Some(ProfileRef::Unconfined),
            kind::RUNTIME_DEFAULT => Some(ProfileRef::RuntimeDefault),
            kind::LOCALHOST => self.localhost_profile.clone().map(ProfileRef::Localhost),
            kind::CONFIG_MAP => {
                let (name, key) = seccomp::config_map_reference(self.config_map_profile.as_deref()?)?;
                Some(ProfileRef::ConfigMap { name: name.to_owned().into(), key: key.to_owned().into() })
            }
            kind::OCI => self.oci.as_ref()?.profile().map(ProfileRef::Oci),
            _ => None,
        }
    }
}

impl<'a> OciProfileField<'a> {
    /// What the field refers to, if it is complete.
    #[must_use]
    pub fn profile(&self) -> Option<ArtifactProfile<'a>> {
        // swallowed: None is the answer
        ArtifactReference::parse(&self.reference).ok()?;
        let base = match &self.base_profile {
            Some(base) => Some(base.profile()?),
            None => None,
        };
        Some(ArtifactProfile { reference: self.reference.clone(), base })
    }

    fn of(profile: &ArtifactProfile<'_>) -> OciProfileField<'static> {
        OciProfileField {
            reference: profile.reference.clone().into_owned(),
            base_profile: profile.base.as_ref().map(BaseProfileField::of),
        }
    }
}

impl BaseProfileField<'_> {
    fn profile(&self) -> Option<BaselineProfile> {
        match (self.kind.as_str(), self.localhost_profile.as_deref()) {
            (kind::RUNTIME_DEFAULT, None) => Some(BaselineProfile::RuntimeDefault),
            (kind::LOCALHOST, Some(path)) if BaselineProfile::path_problem(path).is_none() => {
                Some(BaselineProfile::Localhost(path.to_owned()))
            }
            _ => None,
        }
    }

    fn of(profile: &BaselineProfile) -> BaseProfileField<'static> {
        match profile {
            BaselineProfile::RuntimeDefault => {
                BaseProfileField { kind: Text::borrowed(kind::RUNTIME_DEFAULT), localhost_profile: None }
            }
            BaselineProfile::Localhost(path) => BaseProfileField {
                kind: Text::borrowed(kind::LOCALHOST),
                localhost_profile: Some(path.clone().into()),
            },
        }
    }
}
