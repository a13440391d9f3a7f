//! Why a namespace would violate enforcement.
//!
//! Implements: `PSAEnforcementConfig`, "Resolving Violating Namespaces", and the classes of OpenShift's readiness
//! controller. Namespaces with an enforce label of someone's own are not judged: they decided already.

use palisade_model::metadata::StringMap;

use super::{labels::LEVEL_ANNOTATION, level::LevelSource, managed::SyncChoice, ownership::Ownership};
use crate::{
    scc::choose::{SUBJECT_TYPE, Subject},
    standards::{level::Level, policy::Mode},
};

/// `reason` of a violating namespace, as the design words it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A namespace of OpenShift's name without labels of its own.
    MisconfiguredOpenShift,
    /// The user switched the label syncer off.
    SyncerDisabled,
    /// The workload runs under a constraint that its service account cannot use.
    InsufficientConstraints,
    /// The workload needs less than the level of the namespace, or its pods are rejected, where no constraints are in force.
    Workloads,
}

impl Reason {
    /// As the API writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MisconfiguredOpenShift => "PSAConfig: Misconfigured OpenShift Namespace",
            Self::SyncerDisabled => "PSAConfig: PSA label syncer disabled",
            Self::InsufficientConstraints => "PSALabel: ServiceAccount with insufficient SCCs",
            Self::Workloads => "PSALabel: workloads violate the level of the namespace",
        }
    }

    /// What would fix it, in a sentence.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::MisconfiguredOpenShift => {
                "give the namespace another name, or set pod-security.kubernetes.io/enforce on it"
            }
            Self::SyncerDisabled => {
                "set security.openshift.io/scc.podSecurityLabelSync=true, or set \
                 pod-security.kubernetes.io/enforce on the namespace"
            }
            Self::InsufficientConstraints => {
                "let the pod's service account use the constraint named in the pod's annotation openshift.io/scc, or \
                 set pod-security.kubernetes.io/enforce on the namespace"
            }
            Self::Workloads => "set pod-security.kubernetes.io/enforce on the namespace",
        }
    }
}

/// The kind of a violating namespace; finer than the reason, as conditions and metrics are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// `default`, `kube-system`, `kube-public`, `kube-node-lease`.
    RunLevelZero,
    /// The name begins with `openshift`.
    OpenShift,
    /// The label syncer is switched off.
    DisabledSyncer,
    /// A violating pod got its constraint through a user.
    UserScc,
    /// No violating pod did.
    Unknown,
    /// No constraints are in force: what violates is what the workloads request.
    Workloads,
}

impl Class {
    /// Every class, in the order they are tried.
    pub const ALL: [Self; 6] = [
        Self::RunLevelZero,
        Self::OpenShift,
        Self::DisabledSyncer,
        Self::UserScc,
        Self::Unknown,
        Self::Workloads,
    ];

    /// The condition that OpenShift's readiness controller reports the class in; the last one is Palisade's own.
    #[must_use]
    pub const fn condition(self) -> &'static str {
        match self {
            Self::RunLevelZero => "PodSecurityRunLevelZeroEvaluationConditionsDetected",
            Self::OpenShift => "PodSecurityOpenshiftEvaluationConditionsDetected",
            Self::DisabledSyncer => "PodSecurityDisabledSyncerEvaluationConditionsDetected",
            Self::UserScc => "PodSecurityUserSCCEvaluationConditionsDetected",
            Self::Unknown => "PodSecurityUnknownEvaluationConditionsDetected",
            Self::Workloads => "PodSecurityWorkloadEvaluationConditionsDetected",
        }
    }

    /// The reason the design gives; it has none for run-level zero.
    #[must_use]
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::RunLevelZero => None,
            Self::OpenShift => Some(Reason::MisconfiguredOpenShift),
            Self::DisabledSyncer => Some(Reason::SyncerDisabled),
            Self::UserScc | Self::Unknown => Some(Reason::InsufficientConstraints),
            Self::Workloads => Some(Reason::Workloads),
        }
    }

    /// The class of a violating namespace; `by_user` is whether a violating pod got its constraint through a user.
    #[must_use]
    pub fn of(namespace: &str, labels: &StringMap<'_>, source: LevelSource, by_user: bool) -> Self {
        if matches!(namespace, "default" | "kube-system" | "kube-public" | "kube-node-lease") {
            Self::RunLevelZero
        } else if namespace.starts_with("openshift") {
            Self::OpenShift
        } else if SyncChoice::of(labels) == SyncChoice::Never {
            Self::DisabledSyncer
        } else if source == LevelSource::Workloads {
            Self::Workloads
        } else if by_user {
            Self::UserScc
        } else {
            Self::Unknown
        }
    }
}

/// Whether a pod got its constraint through a user rather than its service account.
#[must_use]
pub fn is_by_user(pod_annotations: &StringMap<'_>) -> bool {
    pod_annotations.get(SUBJECT_TYPE) == Some(Subject::User.as_str())
}

/// The level a namespace would be held to if enforcement began; `None` if its owner set an enforce label.
///
/// `inferred` is the level its service accounts need, where that is known, see [`super::level`]. Without it the syncer's
/// annotation counts, then the stricter of the syncer's other labels: only what the syncer itself wrote, since users
/// may write those too.
#[must_use]
pub fn level_to_test(
    labels: &StringMap<'_>,
    annotations: &StringMap<'_>,
    ownership: &Ownership,
    is_managed: bool,
    inferred: Option<Level>,
) -> Option<Level> {
    let enforce = Mode::Enforce.level_label();
    if labels.contains(enforce) && !ownership.applied_label(enforce) {
        return None;
    }
    if !is_managed {
        // No label will come: the global default applies.
        return Some(Level::Restricted);
    }
    let annotated = || {
        let value = annotations.get(LEVEL_ANNOTATION)?;
        // swallowed: without a level of ours the namespace is held to restricted
        ownership.applied_annotation(LEVEL_ANNOTATION).then(|| value.parse().ok()).flatten()
    };
    let labelled = || {
        let owned = |mode: Mode| {
            let key = mode.level_label();
            // swallowed: without a level of ours the namespace is held to restricted
            labels.get(key).filter(|_| ownership.applied_label(key))?.parse().ok()
        };
        owned(Mode::Warn).max(owned(Mode::Audit))
    };
    Some(inferred.or_else(annotated).or_else(labelled).unwrap_or(Level::Restricted))
}

#[cfg(test)]
mod tests {
    use palisade_model::metadata::StringMap;
    use serde_json::{Value, json};

    use super::{Class, Level, LevelSource, Ownership, level_to_test};
    use crate::enforcement::ownership::SYNCER;

    fn map(value: &Value) -> StringMap<'static> {
        serde_json::from_value::<std::collections::BTreeMap<String, String>>(value.clone())
            .unwrap()
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect()
    }

    #[test]
    fn the_first_class_that_fits() {
        let (none, never) = (json!({}), json!({"security.openshift.io/scc.podSecurityLabelSync": "false"}));
        for (name, labels, by_user, class, reason) in [
            ("kube-node-lease", &never, true, Class::RunLevelZero, None),
            (
                "openshift",
                &none,
                true,
                Class::OpenShift,
                Some("PSAConfig: Misconfigured OpenShift Namespace"),
            ),
            (
                "openshiftish",
                &never,
                true,
                Class::OpenShift,
                Some("PSAConfig: Misconfigured OpenShift Namespace"),
            ),
            ("team", &never, true, Class::DisabledSyncer, Some("PSAConfig: PSA label syncer disabled")),
            ("team", &none, true, Class::UserScc, Some("PSALabel: ServiceAccount with insufficient SCCs")),
            ("team", &none, false, Class::Unknown, Some("PSALabel: ServiceAccount with insufficient SCCs")),
        ] {
            let found = Class::of(name, &map(labels), LevelSource::Constraints, by_user);
            assert_eq!(found, class, "{name}");
            assert_eq!(found.reason().map(super::Reason::as_str), reason, "{name}");
        }
    }

    #[test]
    fn without_constraints_no_class_names_one() {
        let class = |name: &str, labels: &Value| Class::of(name, &map(labels), LevelSource::Workloads, true);
        assert_eq!(class("team", &json!({})), Class::Workloads);
        assert_eq!(class("kube-system", &json!({})), Class::RunLevelZero);
        let never = json!({"security.openshift.io/scc.podSecurityLabelSync": "false"});
        assert_eq!(class("team", &never), Class::DisabledSyncer);
        let reason = Class::Workloads.reason().unwrap();
        assert!(!reason.as_str().contains("SCC") && !reason.remedy().contains("constraint"));
    }

    #[test]
    fn tests_the_level_that_would_come() {
        let key = |name: &str| format!("pod-security.kubernetes.io/{name}");
        let owned = |labels: &[&str]| {
            let labels: serde_json::Map<_, _> =
                labels.iter().map(|label| (format!("f:{}", key(label)), json!({}))).collect();
            Ownership::read(&json!([{"manager": SYNCER, "operation": "Apply", "fieldsV1": {"f:metadata": {
                "f:labels": labels,
                "f:annotations": {"f:security.openshift.io/MinimallySufficientPodSecurityStandard": {}},
            }}}]))
        };
        let annotation = json!({"security.openshift.io/MinimallySufficientPodSecurityStandard": "baseline"});
        let unowned = Ownership::default();
        let (privileged, baseline, restricted) = (Level::Privileged, Level::Baseline, Level::Restricted);
        for (case, labels, annotations, ownership, managed, inferred, expected) in [
            ("nothing known", json!({}), json!({}), &unowned, true, None, Some(restricted)),
            (
                "inferred",
                json!({}),
                annotation.clone(),
                &owned(&[]),
                true,
                Some(privileged),
                Some(privileged),
            ),
            (
                "the syncer's annotation",
                json!({}),
                annotation.clone(),
                &owned(&[]),
                true,
                None,
                Some(baseline),
            ),
            ("a user's annotation", json!({}), annotation.clone(), &unowned, true, None, Some(restricted)),
            (
                "the stricter of the syncer's labels",
                json!({key("warn"): "privileged", key("audit"): "baseline"}),
                json!({}),
                &owned(&["warn", "audit"]),
                true,
                None,
                Some(baseline),
            ),
            (
                "a user's label does not count",
                json!({key("warn"): "privileged", key("audit"): "baseline"}),
                json!({}),
                &owned(&["warn"]),
                true,
                None,
                Some(privileged),
            ),
            ("not managed", json!({}), annotation, &owned(&[]), false, Some(privileged), Some(restricted)),
            (
                "decided by its owner",
                json!({key("enforce"): "privileged"}),
                json!({}),
                &unowned,
                true,
                None,
                None,
            ),
            (
                "our own label decides nothing",
                json!({key("enforce"): "privileged"}),
                json!({}),
                &owned(&["enforce"]),
                true,
                Some(baseline),
                Some(baseline),
            ),
        ] {
            let level = level_to_test(&map(&labels), &map(&annotations), ownership, managed, inferred);
            assert_eq!(level, expected, "{case}");
        }
    }
}
