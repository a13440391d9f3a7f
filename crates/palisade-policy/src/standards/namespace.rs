//! What a change of a namespace's labels means for the pods already in it.
//!
//! Implements: Pod Security Admission for namespaces. Grouping, counting and order of the warnings are
//! upstream's; its limits (3000 pods, one second) apply only where they are asked for.

use std::{cmp::Ordering, collections::BTreeMap};

use palisade_model::{metadata::StringMap, pod_view::PodView, problem::Problem, quote::Quoted};

use super::{
    evaluator::Evaluator,
    level::{Level, LevelVersion},
    policy::{Exemptions, Mode, Policy},
};

/// What to do with a request to create or change a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamespaceVerdict {
    /// Refuse it: these labels cannot be read.
    Invalid(Vec<Problem>),
    /// Let it be, and say this.
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

/// Where upstream stops looking. Palisade does not, unless asked to behave the same.
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
        Self { evaluator, exemptions, policy, limit }
    }

    /// The warnings for the pods of a namespace, which come in the order of the API server's list. `expired` is
    /// asked after every pod whether the time is up.
    pub fn warnings<'p, 'a: 'p>(
        &self,
        namespace: &str,
        pods: impl IntoIterator<Item = PodView<'p, 'a>>,
        mut expired: impl FnMut() -> bool,
    ) -> Vec<String> {
        let ordered = self.prioritized(pods);
        let total = ordered.len();
        let to_check = match self.limit {
            Limit::None => total,
            Limit::Pods(most) => total.min(most),
        };
        let mut checked = 0;
        let mut groups: BTreeMap<String, Group<'p>> = BTreeMap::new();
        for pod in ordered.iter().take(to_check) {
            let outcome = self.evaluator.evaluate(self.policy, pod);
            if !outcome.allowed() {
                let name = pod.metadata().name.as_str();
                let reasons = outcome.reasons();
                match groups.get_mut(&reasons) {
                    Some(group) => group.add(name),
                    None => {
                        groups.insert(reasons, Group { first: name, count: 1 });
                    }
                }
            }
            checked += 1;
            if expired() {
                break;
            }
        }

        let mut warnings = Vec::new();
        if checked < total {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
            ));
        }
        if !groups.is_empty() {
            warnings.push(format!(
                "existing pods in namespace {} violate the new PodSecurity enforce level \"{}\"",
                Quoted(namespace),
                self.policy
            ));
            let mut lines: Vec<String> = groups.iter().map(|(reasons, group)| group.line(reasons)).collect();
            lines.sort_unstable();
            warnings.extend(lines);
        }
        warnings
    }

    /// Exempt pods go; further replicas of a controller come last, since they are most likely all alike.
    fn prioritized<'p, 'a: 'p>(
        &self,
        pods: impl IntoIterator<Item = PodView<'p, 'a>>,
    ) -> Vec<PodView<'p, 'a>> {
        let (mut first, mut replicas) = (Vec::new(), Vec::new());
        let mut controllers = std::collections::BTreeSet::new();
        for pod in pods {
            if self.exemptions.runtime_class(pod.spec().runtime_class_name.as_deref()) {
                continue;
            }
            match pod.metadata().controller_uid() {
                Some(uid) if !controllers.insert(uid) => replicas.push(pod),
                _ => first.push(pod),
            }
        }
        first.append(&mut replicas);
        first
    }
}

struct Group<'p> {
    first: &'p str,
    count: usize,
}

impl<'p> Group<'p> {
    fn add(&mut self, name: &'p str) {
        self.count += 1;
        if name.cmp(self.first) == Ordering::Less {
            self.first = name;
        }
    }

    fn line(&self, reasons: &str) -> String {
        match self.count {
            1 => format!("{}: {reasons}", self.first),
            2 => format!("{} (and 1 other pod): {reasons}", self.first),
            count => format!("{} (and {} other pods): {reasons}", self.first, count - 1),
        }
    }
}
