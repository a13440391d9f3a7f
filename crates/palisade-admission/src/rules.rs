//! Who does what: the API server that calls, and the webhook that answers.
//!
//! An API server syncs annotations and fields, validates and warns by itself, each release in its own way. A webhook
//! beside it does what that release no longer does. A webhook may also answer as a whole release would: that is how
//! it is held against recordings of real servers, and how a cluster can be shown what another release would answer.

use palisade_base::version::{KubeVersion, NEWEST_MINOR, OLDEST_MINOR};
use palisade_model::compat::{Compat, FeatureGates, SyncDirection};

/// What is left to the webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// What the API server of this release does not do itself.
    Beside(Compat),
    /// Everything that this release does.
    Instead(Compat),
}

impl Rules {
    /// Beside an API server `v1.<minor>`.
    #[must_use]
    pub fn beside(minor: u16) -> Self {
        Self::Beside(Compat::kubernetes(minor.max(OLDEST_MINOR)))
    }

    /// The same, with these feature gates.
    #[must_use]
    pub const fn with_gates(self, gates: FeatureGates) -> Self {
        match self {
            Self::Beside(compat) => Self::Beside(Compat { gates, ..compat }),
            Self::Instead(compat) => Self::Instead(Compat { gates, ..compat }),
        }
    }

    /// Whether profiles from ConfigMaps are rewritten here for a kubelet without support for them.
    #[must_use]
    pub const fn resolves_config_maps(&self) -> bool {
        matches!(self, Self::Beside(compat) if compat.gates.seccomp_config_maps)
    }

    /// Whether a default AppArmor profile is written: a cluster without AppArmor has no use for it.
    #[must_use]
    pub const fn sets_app_armor(&self) -> bool {
        match self {
            Self::Beside(compat) => compat.gates.app_armor,
            Self::Instead(compat) => compat.keeps_app_armor(),
        }
    }

    /// How objects are read. Beside an API server nothing of what it sent may be forgotten: its feature gates are its own.
    #[must_use]
    pub fn reading(&self) -> Compat {
        match self {
            Self::Beside(_) => Compat { keeps_extensions: true, ..Compat::kubernetes(NEWEST_MINOR) },
            Self::Instead(compat) => *compat,
        }
    }

    /// How policies read pods: beside an API server with the references to ConfigMaps that were put back into them.
    #[must_use]
    pub fn policy_reading(&self) -> Compat {
        let mut reading = self.reading();
        reading.gates.seccomp_config_maps |= self.instead().is_none();
        reading
    }

    /// Whether legacy seccomp annotations are to become fields here.
    #[must_use]
    pub fn fills_seccomp(&self) -> bool {
        matches!(self, Self::Beside(compat) if compat.seccomp_sync() == SyncDirection::None)
    }

    /// Whether AppArmor annotations are to become fields here: every release that has the field does it itself so far.
    #[must_use]
    pub fn fills_app_armor(&self) -> bool {
        self.sets_app_armor()
            && matches!(self, Self::Beside(Compat { api: KubeVersion::Release { minor, .. }, .. }) if *minor > NEWEST_MINOR)
    }

    /// Whether the API server's own part is answered as well.
    #[must_use]
    pub const fn instead(&self) -> Option<&Compat> {
        match self {
            Self::Beside(_) => None,
            Self::Instead(compat) => Some(compat),
        }
    }
}
