//! What the label syncer writes on a namespace.
//!
//! Implements: `PSAEnforcementConfig`, "Set PSS Annotation" and
//! "PodSecurityAdmissionLabelSynchronizationController". A plan holds everything the syncer owns from then on: what it
//! leaves out goes away, what is there already costs no request. The annotation is always part of it and is taken back
//! from other managers; labels of others are left alone unless the namespace opted in.

use std::collections::BTreeMap;

use palisade_model::metadata::StringMap;

use super::{
    managed::{SyncChoice, is_managed},
    memory::MEMORY_ANNOTATION,
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
    /// The needs of its workloads to remember, see [`super::memory`].
    pub memory: Option<&'n str>,
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

/// Whether the global default of `restricted` would refuse nothing that a namespace needs: it has a label that is no stricter
/// than its level, or its owner's label, or needs `restricted` itself. `is_labelled` is whether a label syncer runs, so that a
/// managed namespace gets its label before it counts.
#[must_use]
pub fn is_covered(namespace: &Namespace<'_>, level: Level, is_labelled: bool) -> bool {
    if namespace.is_terminating {
        return true;
    }
    let key = Mode::Enforce.level_label();
    match namespace.labels.get(key) {
        Some(_) if !namespace.owns_label(key) => true,
        // swallowed: a label that cannot be read enforces `restricted`
        Some(label) => label.parse().unwrap_or(Level::Restricted) <= level,
        None => {
            let gets_one = is_always_privileged(namespace.name)
                || is_managed(namespace.name, namespace.labels, namespace.ownership);
            level == Level::Restricted && !(is_labelled && gets_one)
        }
    }
}

/// Whether a namespace is kept privileged whatever happens.
#[must_use]
pub fn is_always_privileged(name: &str) -> bool {
    matches!(name, "default" | "kube-system" | "kube-public")
}

/// The labels of a namespace that is always privileged, if it is one and lacks them.
#[must_use]
pub fn privileged_namespace(name: &str, labels: &StringMap<'_>) -> Option<Apply> {
    let privileged = Level::Privileged.as_str();
    let differs = Mode::ALL.iter().any(|mode| labels.get(mode.level_label()) != Some(privileged));
    (is_always_privileged(name) && differs).then(|| Apply {
        labels: Mode::ALL.iter().map(|mode| (mode.level_label(), privileged.to_owned())).collect(),
        ..Apply::default()
    })
}

impl Namespace<'_> {
    /// Whether a label belongs to someone else who did not request it to be synced.
    fn is_others(&self, key: &str) -> bool {
        self.ownership.is_foreign(key) && SyncChoice::of(self.labels) != SyncChoice::Always
    }

    fn owns_label(&self, key: &str) -> bool {
        self.labels.contains(key) && self.ownership.applied_label(key)
    }

    fn wanted(&self, level: Level, enforce: EnforceLabels) -> Apply {
        let mut wanted = Apply::default();
        for mode in Mode::ALL {
            let level = match (mode, enforce) {
                (Mode::Enforce, EnforceLabels::Loosen | EnforceLabels::Keep) => self.loosened(level),
                _ => level,
            };
            for (key, value) in [(mode.level_label(), level.as_str()), (mode.version_label(), VERSION)] {
                let included = mode != Mode::Enforce
                    || match enforce {
                        EnforceLabels::Set | EnforceLabels::Loosen => true,
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
        if let Some(memory) = self.memory {
            wanted.annotations.insert(MEMORY_ANNOTATION, memory.to_owned());
        }
        wanted
    }

    /// The level of an enforce label that may not become stricter.
    fn loosened(&self, level: Level) -> Level {
        let key = Mode::Enforce.level_label();
        // swallowed: a label that cannot be read enforces the strictest level
        let own = self.labels.get(key).filter(|_| self.owns_label(key)).and_then(|label| label.parse().ok());
        own.map_or(level, |own: Level| own.min(level))
    }

    /// What stays of the syncer's own on a namespace that it no longer manages, or cannot judge.
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
        // A namespace that gets no label is held to the global default, which must not come before its workloads are known.
        if let Some(memory) = self.memory.filter(|_| !is_always_privileged(self.name)) {
            rest.annotations.insert(MEMORY_ANNOTATION, memory.to_owned());
        }
        rest
    }

    fn differs_from(&self, wanted: &Apply) -> bool {
        let wrong = |key: &str, value: &str, current: &StringMap<'_>, owned: bool| {
            current.get(key) != Some(value) || !owned
        };
        let labels = Mode::ALL.iter().flat_map(|mode| [mode.level_label(), mode.version_label()]);
        let is_left = |key: &str| {
            !wanted.annotations.contains_key(key)
                && self.annotations.contains(key)
                && self.ownership.applied_annotation(key)
        };
        !wanted.hand_over.is_empty()
            || labels.into_iter().any(|key| match wanted.labels.get(key) {
                Some(value) => wrong(key, value, self.labels, self.ownership.applied_label(key)),
                None => self.owns_label(key),
            })
            || wanted.annotations.iter().any(|(key, value)| {
                wrong(key, value, self.annotations, self.ownership.applied_annotation(key))
            })
            || is_left(LEVEL_ANNOTATION)
            || is_left(MEMORY_ANNOTATION)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use palisade_model::metadata::StringMap;
    use serde_json::{Map, Value, json};

    use super::{
        EnforceLabels::{self, Keep, Remove, Set},
        LEVEL_ANNOTATION, Level, Namespace, Ownership, are_done, is_covered, plan, privileged_namespace,
    };
    use crate::enforcement::ownership::{FORMER_SYNCER, SYNCER};

    /// Labels by short name, as `value@owner`.
    #[derive(Default)]
    struct Given {
        labels: StringMap<'static>,
        annotations: StringMap<'static>,
        ownership: Ownership,
    }

    impl Given {
        fn namespace<'a>(&'a self, name: &'a str) -> Namespace<'a> {
            Namespace {
                name,
                labels: &self.labels,
                annotations: &self.annotations,
                ownership: &self.ownership,
                is_terminating: false,
                memory: None,
            }
        }
    }

    fn given(fields: &[(&str, &str)]) -> Given {
        let mut given = Given::default();
        let mut owners: BTreeMap<&str, [Map<String, Value>; 2]> = BTreeMap::new();
        for &(name, value) in fields {
            let (value, owner) = value.split_once('@').unwrap_or((value, ""));
            let [labels, annotations] = owners.entry(owner).or_default();
            if name == "level" {
                given.annotations.insert(LEVEL_ANNOTATION, value.to_owned());
                annotations.insert(format!("f:{LEVEL_ANNOTATION}"), json!({}));
                continue;
            }
            let key = match name {
                "sync" => "security.openshift.io/scc.podSecurityLabelSync".to_owned(),
                name => format!("pod-security.kubernetes.io/{name}"),
            };
            labels.insert(format!("f:{key}"), json!({}));
            given.labels.insert(key, value.to_owned());
        }
        let entries = owners.into_iter().filter(|(owner, _)| !owner.is_empty()).map(|(owner, fields)| {
            let (manager, operation) = match owner {
                "us" => (SYNCER, "Apply"),
                "former" => (FORMER_SYNCER, "Update"),
                other => (other, "Update"),
            };
            let [labels, annotations] = fields;
            json!({"manager": manager, "operation": operation,
                   "fieldsV1": {"f:metadata": {"f:labels": labels, "f:annotations": annotations}}})
        });
        given.ownership = Ownership::read(&entries.collect());
        given
    }

    fn planned(name: &str, fields: &[(&str, &str)], level: Option<Level>, enforce: EnforceLabels) -> String {
        let given = given(fields);
        let namespace = given.namespace(name);
        plan(&namespace, level, enforce).map_or_else(
            || "nothing".to_owned(),
            |apply| {
                let short = |key: &str| key.trim_start_matches("pod-security.kubernetes.io/").to_owned();
                let mut shown: Vec<_> = apply
                    .labels
                    .iter()
                    .filter(|(key, _)| !key.ends_with("-version"))
                    .map(|(key, value)| format!("{}={value}", short(key)))
                    .collect();
                shown.extend(apply.annotations.values().map(|value| format!("level={value}")));
                shown.extend(apply.hand_over.iter().map(|key| format!("from former {}", short(key))));
                shown.join(" ")
            },
        )
    }

    const ADVISED: &[(&str, &str)] = &[
        ("warn", "baseline@us"),
        ("warn-version", "latest@us"),
        ("audit", "baseline@us"),
        ("audit-version", "latest@us"),
        ("level", "baseline@us"),
    ];

    fn advised_and(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        let replaced = |name: &str| more.iter().any(|(other, _)| *other == name);
        ADVISED.iter().filter(|(name, _)| !replaced(name)).chain(more).copied().collect()
    }

    const ENFORCED: [(&str, &str); 2] = [("enforce", "baseline@us"), ("enforce-version", "latest@us")];

    #[test]
    fn writes_what_is_missing_and_nothing_else() {
        let baseline = Some(Level::Baseline);
        for (case, fields, level, enforce, expected) in [
            ("new", vec![], baseline, Remove, "audit=baseline warn=baseline level=baseline"),
            ("as it should be", advised_and(&[]), baseline, Remove, "nothing"),
            (
                "enforcing",
                advised_and(&[]),
                baseline,
                Set,
                "audit=baseline enforce=baseline warn=baseline level=baseline",
            ),
            ("enforced already", advised_and(&ENFORCED), baseline, Set, "nothing"),
            ("kept for now", advised_and(&ENFORCED), baseline, Keep, "nothing"),
            ("none to keep", advised_and(&[]), baseline, Keep, "nothing"),
            (
                "kept, but not stricter than needed",
                advised_and(&ENFORCED),
                Some(Level::Privileged),
                Keep,
                "audit=privileged enforce=privileged warn=privileged level=privileged",
            ),
            (
                "removed although all else is right",
                advised_and(&ENFORCED),
                baseline,
                Remove,
                "audit=baseline warn=baseline level=baseline",
            ),
            (
                "removed although nothing is known any more",
                advised_and(&ENFORCED),
                None,
                Remove,
                "audit=baseline warn=baseline level=baseline",
            ),
            ("left while nothing is known", advised_and(&ENFORCED), None, Set, "nothing"),
            (
                "an edited annotation is taken back",
                advised_and(&[("level", "privileged@kubectl")]),
                baseline,
                Remove,
                "audit=baseline warn=baseline level=baseline",
            ),
            (
                "a user's label is left alone",
                advised_and(&[("warn", "privileged@kubectl")]),
                Some(Level::Restricted),
                Remove,
                "audit=restricted level=restricted",
            ),
            (
                "a user's enforce label is left alone",
                advised_and(&[("enforce", "privileged@kubectl")]),
                baseline,
                Set,
                "audit=baseline warn=baseline level=baseline",
            ),
            (
                "unless the namespace opted in",
                advised_and(&[("enforce", "privileged@kubectl"), ("sync", "true")]),
                baseline,
                Set,
                "audit=baseline enforce=baseline warn=baseline level=baseline",
            ),
            (
                "opted out: the annotation goes, an enforce label stays while servers enforce",
                advised_and(&[ENFORCED[0], ENFORCED[1], ("sync", "false")]),
                baseline,
                Set,
                "audit=baseline enforce=baseline warn=baseline",
            ),
            (
                "labels of the former syncer",
                advised_and(&[("warn", "baseline@former")]),
                baseline,
                Remove,
                "audit=baseline warn=baseline level=baseline from former warn",
            ),
        ] {
            assert_eq!(planned("team", &fields, level, enforce), expected, "{case}");
        }
        assert_eq!(planned("kube-system", &[], baseline, Set), "nothing");
    }

    #[test]
    fn done_means_a_label_that_is_right_or_someone_elses() {
        let baseline = Some(Level::Baseline);
        for (case, fields, level, expected) in [
            ("no label", advised_and(&[]), baseline, false),
            ("ours", advised_and(&ENFORCED), baseline, true),
            ("ours, out of date", advised_and(&ENFORCED), Some(Level::Restricted), false),
            ("a user's", advised_and(&[("enforce", "privileged@kubectl")]), baseline, true),
            ("nothing known", advised_and(&[]), None, true),
            ("opted out", advised_and(&[("sync", "false")]), baseline, true),
        ] {
            let given = given(&fields);
            let mut namespace = given.namespace("team");
            assert_eq!(are_done(&namespace, level), expected, "{case}");
            namespace.is_terminating = true;
            assert!(are_done(&namespace, level), "{case}");
            assert_eq!(plan(&namespace, level, Set), None, "{case}");
        }
    }

    #[test]
    fn a_label_is_only_made_less_strict_on_the_way() {
        use EnforceLabels::Loosen;
        for (case, fields, level, expected) in [
            (
                "new",
                advised_and(&[]),
                Level::Baseline,
                "audit=baseline enforce=baseline warn=baseline level=baseline",
            ),
            ("as it is", advised_and(&ENFORCED), Level::Baseline, "nothing"),
            (
                "less is needed: advice follows, the label stays",
                advised_and(&ENFORCED),
                Level::Restricted,
                "audit=restricted enforce=baseline warn=restricted level=restricted",
            ),
            (
                "more is needed",
                advised_and(&ENFORCED),
                Level::Privileged,
                "audit=privileged enforce=privileged warn=privileged level=privileged",
            ),
        ] {
            assert_eq!(planned("team", &fields, Some(level), Loosen), expected, "{case}");
        }
    }

    #[test]
    fn a_namespace_is_covered_if_a_default_of_restricted_refuses_nothing() {
        let (restricted, baseline) = (Level::Restricted, Level::Baseline);
        for (case, name, fields, level, expected) in [
            ("needs nothing, gets a label", "team", vec![], restricted, (false, true)),
            ("needs more", "team", vec![], baseline, (false, false)),
            ("its label is right", "team", vec![("enforce", "baseline@us")], baseline, (true, true)),
            ("its label is looser", "team", vec![("enforce", "privileged@us")], baseline, (true, true)),
            ("its label is stricter", "team", vec![("enforce", "restricted@us")], baseline, (false, false)),
            ("a user's label", "team", vec![("enforce", "restricted@kubectl")], baseline, (true, true)),
            ("opted out", "team", vec![("sync", "false")], restricted, (true, true)),
            ("opted out, needs more", "team", vec![("sync", "false")], baseline, (false, false)),
            ("a name of OpenShift", "openshift-x", vec![], baseline, (false, false)),
            ("always privileged, without its label", "default", vec![], restricted, (false, true)),
        ] {
            let given = given(&fields);
            let namespace = given.namespace(name);
            let found = (is_covered(&namespace, level, true), is_covered(&namespace, level, false));
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn three_namespaces_are_always_privileged() {
        let apply = privileged_namespace("default", &StringMap::default()).unwrap();
        assert!(apply.labels.values().all(|level| level == "privileged"));
        let labels: StringMap<'_> =
            apply.labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        assert_eq!(privileged_namespace("default", &labels), None);
        assert_eq!(privileged_namespace("kube-node-lease", &StringMap::default()), None);
    }
}
