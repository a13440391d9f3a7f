//! What the label syncer writes on a namespace.
//!
//! Implements: `PSAEnforcementConfig`, "Set PSS Annotation" and
//! "PodSecurityAdmissionLabelSynchronizationController". A plan holds everything the syncer owns from then on: what it
//! leaves out goes away, what is there already costs no request. The annotation is always part of it and is taken back
//! from whoever changes it; labels of others are left alone unless the namespace opted in.

use std::collections::BTreeMap;

use palisade_model::metadata::StringMap;

use super::{
    managed::{SyncChoice, is_managed},
    ownership::Ownership,
    state::EnforceLabels,
};
use crate::standards::{level::Level, policy::Mode};

/// Annotation of a namespace: the level it would be held to.
pub const LEVEL_ANNOTATION: &str = "security.openshift.io/MinimallySufficientPodSecurityStandard";

/// The version that goes with every level.
const VERSION: &str = "latest";

/// Field manager for the namespaces that are always privileged.
pub const PRIVILEGED_NAMESPACES_MANAGER: &str = "privileged-namespaces-psa-label-syncer";

/// A namespace as the syncer sees it.
#[derive(Debug, Clone, Copy)]
pub struct Namespace<'n> {
    /// The name.
    pub name: &'n str,
    /// The labels.
    pub labels: &'n StringMap<'n>,
    /// The annotations.
    pub annotations: &'n StringMap<'n>,
    /// Who owns them.
    pub ownership: &'n Ownership,
    /// Whether it is being deleted.
    pub is_terminating: bool,
}

/// What to apply to a namespace under the syncer's field manager: all that it owns from then on. To be applied by
/// force, and only to the version of the namespace that was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Apply {
    /// The labels.
    pub labels: BTreeMap<&'static str, String>,
    /// The annotations.
    pub annotations: BTreeMap<&'static str, String>,
    /// Labels that the syncer's former field manager has to give up.
    pub hand_over: Vec<&'static str>,
}

/// What the syncer has to write, if anything. Without a `level` nothing is known about the namespace: then only what
/// must go goes.
#[must_use]
pub fn plan(namespace: &Namespace<'_>, level: Option<Level>, enforce: EnforceLabels) -> Option<Apply> {
    if namespace.is_terminating {
        return None;
    }
    let managed = is_managed(namespace.name, namespace.labels, namespace.ownership);
    let wanted = match level {
        Some(level) if managed => namespace.wanted(level, enforce),
        _ => namespace.rest(managed, enforce),
    };
    namespace.differs_from(&wanted).then_some(wanted)
}

/// Whether a namespace that should have an enforce label has it: the syncer's own, up to date, or someone else's.
#[must_use]
pub fn are_done(namespace: &Namespace<'_>, level: Option<Level>) -> bool {
    let Some(level) = level else { return true };
    if namespace.is_terminating || !is_managed(namespace.name, namespace.labels, namespace.ownership) {
        return true;
    }
    let key = Mode::Enforce.level_label();
    match namespace.labels.get(key) {
        None => false,
        Some(_) if namespace.is_others(key) => true,
        Some(label) => {
            label == level.as_str() && namespace.annotations.get(LEVEL_ANNOTATION) == Some(level.as_str())
        }
    }
}

/// The labels of a namespace that is always privileged, if it is one and lacks them.
#[must_use]
pub fn privileged_namespace(name: &str, labels: &StringMap<'_>) -> Option<Apply> {
    let privileged = Level::Privileged.as_str();
    let is_privileged = matches!(name, "default" | "kube-system" | "kube-public");
    let differs = Mode::ALL.iter().any(|mode| labels.get(mode.level_label()) != Some(privileged));
    (is_privileged && differs).then(|| Apply {
        labels: Mode::ALL.iter().map(|mode| (mode.level_label(), privileged.to_owned())).collect(),
        ..Apply::default()
    })
}

impl Namespace<'_> {
    /// Whether a label belongs to someone else who did not ask for it to be synced.
    fn is_others(&self, key: &str) -> bool {
        self.ownership.is_foreign(key) && SyncChoice::of(self.labels) != SyncChoice::Always
    }

    fn owns_label(&self, key: &str) -> bool {
        self.labels.contains(key) && self.ownership.applied_label(key)
    }

    fn wanted(&self, level: Level, enforce: EnforceLabels) -> Apply {
        let mut wanted = Apply::default();
        for mode in Mode::ALL {
            for (key, value) in [(mode.level_label(), level.as_str()), (mode.version_label(), VERSION)] {
                let included = mode != Mode::Enforce
                    || match enforce {
                        EnforceLabels::Set => true,
                        // A label that stays for a while still must not be stricter than it has to be.
                        EnforceLabels::Keep => self.owns_label(key),
                        EnforceLabels::Remove => false,
                    };
                if included && !self.is_others(key) {
                    wanted.labels.insert(key, value.to_owned());
                }
                if self.ownership.is_former(key) {
                    wanted.hand_over.push(key);
                }
            }
        }
        wanted.annotations.insert(LEVEL_ANNOTATION, level.as_str().to_owned());
        wanted
    }

    /// What stays of the syncer's own on a namespace it no longer takes care of, or knows too little about.
    fn rest(&self, managed: bool, enforce: EnforceLabels) -> Apply {
        let mut rest = Apply::default();
        for mode in Mode::ALL {
            if mode == Mode::Enforce && enforce == EnforceLabels::Remove {
                continue;
            }
            for key in [mode.level_label(), mode.version_label()] {
                if let Some(value) = self.labels.get(key).filter(|_| self.owns_label(key)) {
                    rest.labels.insert(key, value.to_owned());
                }
            }
        }
        if let Some(value) = self.annotations.get(LEVEL_ANNOTATION)
            && managed
            && self.ownership.applied_annotation(LEVEL_ANNOTATION)
        {
            rest.annotations.insert(LEVEL_ANNOTATION, value.to_owned());
        }
        rest
    }

    fn differs_from(&self, wanted: &Apply) -> bool {
        let wrong = |key: &str, value: &str, current: &StringMap<'_>, owned: bool| {
            current.get(key) != Some(value) || !owned
        };
        let labels = Mode::ALL.iter().flat_map(|mode| [mode.level_label(), mode.version_label()]);
        let annotation_stays = wanted.annotations.contains_key(LEVEL_ANNOTATION);
        !wanted.hand_over.is_empty()
            || labels.into_iter().any(|key| match wanted.labels.get(key) {
                Some(value) => wrong(key, value, self.labels, self.ownership.applied_label(key)),
                None => self.owns_label(key),
            })
            || wanted.annotations.iter().any(|(key, value)| {
                wrong(key, value, self.annotations, self.ownership.applied_annotation(key))
            })
            || (!annotation_stays
                && self.annotations.contains(LEVEL_ANNOTATION)
                && self.ownership.applied_annotation(LEVEL_ANNOTATION))
    }
}
