//! What a change of a namespace's labels means for the pods already in it.
//!
//! Implements: Pod Security Admission for namespaces. Grouping, counting and order of the warnings are
//! upstream's; its limits (3000 pods, one second) apply only where they are requested.

use std::collections::BTreeMap;

use palisade_base::{field_error::FieldError, go::Quoted};
use palisade_model::{metadata::StringMap, prepare::Prepared};

use super::{
    evaluator::{Evaluator, StandardsOutcome},
    level::{Level, LevelVersion},
    policy::{Exemptions, Mode, Policy},
};
use crate::exceptions::{
    set::NamespaceExceptions,
    workload::{Provenance, Workload, of_pod},
};

/// What to do with a request to create or change a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamespaceVerdict {
    /// Refuse it: these labels cannot be read.
    Invalid(Vec<FieldError>),
    /// Allow it with this warning.
    Allowed(Vec<String>),
    /// Let it be, after looking at the existing pods at this level with [`ExistingPods`].
    CheckPods(LevelVersion),
}

/// Judges the labels of a new namespace.
#[must_use]
pub fn create(
    name: &str,
    labels: &StringMap<'_>,
    defaults: &Policy,
    exemptions: &Exemptions,
) -> NamespaceVerdict {
    let (policy, problems) = Policy::from_labels(labels, defaults);
    if !problems.is_empty() {
        return NamespaceVerdict::Invalid(problems);
    }
    NamespaceVerdict::Allowed(exempt_warning(name, &policy, labels, defaults, exemptions))
}

/// Judges a change of a namespace's labels.
#[must_use]
pub fn update(
    name: &str,
    new: &StringMap<'_>,
    old: &StringMap<'_>,
    defaults: &Policy,
    exemptions: &Exemptions,
) -> NamespaceVerdict {
    let (new_policy, new_problems) = Policy::from_labels(new, defaults);
    let (old_policy, old_problems) = Policy::from_labels(old, defaults);
    // Labels that were unreadable before may stay so: the namespace must remain editable.
    if !new_problems.is_empty() && new_problems != old_problems {
        return NamespaceVerdict::Invalid(new_problems);
    }
    let (enforce, before) = (new_policy.enforce, old_policy.enforce);
    let not_stricter = enforce.version == before.version && enforce.level <= before.level;
    if enforce == before || enforce.level == Level::Privileged || not_stricter {
        return NamespaceVerdict::Allowed(Vec::new());
    }
    if exemptions.namespace(name) {
        return NamespaceVerdict::Allowed(exempt_warning(name, &new_policy, new, defaults, exemptions));
    }
    NamespaceVerdict::CheckPods(enforce)
}

fn exempt_warning(
    name: &str,
    policy: &Policy,
    labels: &StringMap<'_>,
    defaults: &Policy,
    exemptions: &Exemptions,
) -> Vec<String> {
    if !exemptions.namespace(name) || policy.is_privileged() || policy.is_equivalent(defaults) {
        return Vec::new();
    }
    let modes: Vec<String> = Mode::ALL
        .into_iter()
        .filter(|mode| policy.mode(*mode).level != Level::Privileged)
        .filter(|mode| labels.contains(mode.level_label()) || labels.contains(mode.version_label()))
        .map(|mode| format!("{}={}", mode.as_str(), policy.mode(mode)))
        .collect();
    vec![format!(
        "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
        Quoted(name),
        modes.join(", ")
    )]
}

/// Where upstream stops looking. Palisade does not, unless configured to behave the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Limit {
    /// Look at every pod.
    #[default]
    None,
    /// Look at so many pods.
    Pods(usize),
}

/// Looks at the pods of a namespace at a new enforce level.
#[derive(Debug)]
pub struct ExistingPods<'e> {
    evaluator: &'e Evaluator,
    exemptions: &'e Exemptions,
    policy: LevelVersion,
    limit: Limit,
    exceptions: Option<NamespaceExceptions<'e>>,
}

impl<'e> ExistingPods<'e> {
    /// Sets the level to look for.
    #[must_use]
    pub const fn new(
        evaluator: &'e Evaluator,
        exemptions: &'e Exemptions,
        policy: LevelVersion,
        limit: Limit,
    ) -> Self {
        Self { evaluator, exemptions, policy, limit, exceptions: None }
    }

    /// What these exceptions accept is no violation.
    #[must_use]
    pub fn excused_by(mut self, exceptions: NamespaceExceptions<'e>) -> Self {
        self.exceptions = (!exceptions.set.is_empty()).then_some(exceptions);
        self
    }

    /// Whether two pods with the same spec and annotations may be judged differently, because exceptions also look at
    /// names, labels and owners.
    #[must_use]
    pub const fn judges_by_identity(&self) -> bool {
        self.exceptions.is_some()
    }

    /// The warnings for the pods of a namespace, which come in the order of the API server's list. `expired` is
    /// called after every pod whether the time is up.
    pub fn warnings<'p, 'a: 'p>(
        &self,
        namespace: &str,
        pods: impl IntoIterator<Item = &'p Prepared<'a>>,
        mut expired: impl FnMut() -> bool,
    ) -> Vec<String> {
        let ordered = self.prioritized(pods);
        let total = ordered.len();
        let to_check = match self.limit {
            Limit::None => total,
            Limit::Pods(most) => total.min(most),
        };
        let mut checked = 0;
        let mut groups = Violations::default();
        for pod in ordered.iter().take(to_check) {
            if let Some(reasons) = self.violation(pod) {
                groups.add(&reasons, pod.pod().metadata.name.as_str(), 1);
            }
            checked += 1;
            if expired() {
                break;
            }
        }
        self.summary(namespace, &groups, checked, total)
    }

    /// What a pod does that the level does not allow; exempt pods do nothing wrong.
    #[must_use]
    pub fn violation(&self, pod: &Prepared<'_>) -> Option<String> {
        self.violation_of(pod, || of_pod(&pod.pod().metadata, Provenance::Stored))
    }

    /// What the pods of a template would do that the level does not allow.
    #[must_use]
    pub fn template_violation(&self, pod: &Prepared<'_>, workloads: Vec<Workload>) -> Option<String> {
        self.violation_of(pod, || workloads)
    }

    fn violation_of(&self, pod: &Prepared<'_>, workloads: impl FnOnce() -> Vec<Workload>) -> Option<String> {
        if self.exemptions.runtime_class(pod.spec().runtime_class_name.as_deref()) {
            return None;
        }
        let outcome = self.evaluator.evaluate(self.policy, pod);
        let excused = |outcome: StandardsOutcome| match &self.exceptions {
            Some(exceptions) => exceptions.excuse(outcome, pod, &workloads()).outcome,
            None => outcome,
        };
        let outcome = if outcome.allowed() { outcome } else { excused(outcome) };
        (!outcome.allowed()).then(|| outcome.reasons())
    }

    /// The warnings for violations that were found among the first pods of a namespace.
    #[must_use]
    pub fn summary(
        &self,
        namespace: &str,
        violations: &Violations<'_>,
        checked: usize,
        total: usize,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        if checked < total {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
            ));
        }
        if !violations.0.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {} violate the new PodSecurity enforce level \"{}\"",
                Quoted(namespace),
                self.policy
            ));
            let mut lines: Vec<String> =
                violations.0.iter().map(|(reasons, group)| group.line(reasons, "pod")).collect();
            lines.sort_unstable();
            warnings.extend(lines);
        }
        warnings
    }

    /// The warnings for violations that were found in the pod templates of a namespace, which upstream does not look at.
    #[must_use]
    pub fn template_summary(&self, namespace: &str, violations: &Violations<'_>) -> Vec<String> {
        if violations.0.is_empty() {
            return Vec::new();
        }
        let header = format!(
            "existing pod templates in namespace {} violate the new PodSecurity enforce level \"{}\"",
            Quoted(namespace),
            self.policy
        );
        let mut lines: Vec<String> =
            violations.0.iter().map(|(reasons, group)| group.line(reasons, "template")).collect();
        lines.sort_unstable();
        lines.insert(0, header);
        lines
    }

    /// Exempt pods go; further replicas of a controller come last, since they are most likely all alike.
    fn prioritized<'p, 'a: 'p>(
        &self,
        pods: impl IntoIterator<Item = &'p Prepared<'a>>,
    ) -> Vec<&'p Prepared<'a>> {
        let (mut first, mut replicas) = (Vec::new(), Vec::new());
        let mut controllers = std::collections::BTreeSet::new();
        for pod in pods {
            if self.exemptions.runtime_class(pod.spec().runtime_class_name.as_deref()) {
                continue;
            }
            match pod.pod().metadata.controller_uid() {
                Some(uid) if !controllers.insert(uid) => replicas.push(pod),
                _ => first.push(pod),
            }
        }
        first.append(&mut replicas);
        first
    }
}

/// The pods that violate a level, by what they do.
#[derive(Debug, Default)]
pub struct Violations<'p>(BTreeMap<String, Group<'p>>);

impl<'p> Violations<'p> {
    /// Adds pods of which `name` comes first.
    pub fn add(&mut self, reasons: &str, name: &'p str, count: usize) {
        match self.0.get_mut(reasons) {
            Some(group) => {
                group.count += count;
                group.first = group.first.min(name);
            }
            None => {
                self.0.insert(reasons.to_owned(), Group { first: name, count });
            }
        }
    }

    /// Adds what was found among other pods.
    pub fn append(&mut self, others: Self) {
        for (reasons, group) in others.0 {
            self.add(&reasons, group.first, group.count);
        }
    }
}

#[derive(Debug)]
struct Group<'p> {
    first: &'p str,
    count: usize,
}

impl Group<'_> {
    fn line(&self, reasons: &str, noun: &str) -> String {
        match self.count {
            1 => format!("{}: {reasons}", self.first),
            2 => format!("{} (and 1 other {noun}): {reasons}", self.first),
            count => format!("{} (and {} other {noun}s): {reasons}", self.first, count - 1),
        }
    }
}
