//! The exceptions of a cluster or of a set of manifests, and what they remove from a verdict.

use palisade_base::{
    field_path::{FieldPath, PathStep},
    time::Time,
};
use palisade_model::{metadata::StringMap, pod_view::PodView, prepare::Prepared};
use serde_json::Value;

use super::{
    object::{Allowance, SecurityException},
    workload::Workload,
};
use crate::standards::{
    checks,
    evaluator::StandardsOutcome,
    finding::{Finding, Violation},
};

/// Whom a verdict is about, besides the pod itself.
#[derive(Debug, Clone, Copy)]
pub struct ExceptionSubject<'s> {
    /// The namespace; empty if it is not known, which no exception is for.
    pub namespace: &'s str,
    /// Its labels; none if they are not known, in which case no selector picks it.
    pub namespace_labels: Option<&'s StringMap<'s>>,
    /// What the pod belongs to.
    pub workloads: &'s [Workload],
}

/// Exceptions, by name. Those that cannot be read are kept for reports and count for nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExceptionSet {
    readable: Vec<SecurityException>,
    unreadable: Vec<UnreadableException>,
}

/// An exception that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableException {
    /// Its name, as far as it has one.
    pub name: String,
    /// Why.
    pub error: String,
}

/// The exceptions for the pods of a namespace, at a moment.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceExceptions<'e> {
    /// All exceptions.
    pub set: &'e ExceptionSet,
    /// The namespace.
    pub namespace: &'e str,
    /// Its labels; none if they are not known.
    pub labels: Option<&'e StringMap<'e>>,
    /// The moment.
    pub now: Time,
}

impl NamespaceExceptions<'_> {
    /// The verdict on a pod without what exceptions accept, and what they accept.
    #[must_use]
    pub fn excuse(&self, outcome: StandardsOutcome, pod: &Prepared<'_>, workloads: &[Workload]) -> Excused {
        let subject =
            ExceptionSubject { namespace: self.namespace, namespace_labels: self.labels, workloads };
        self.set.excuse(outcome, pod, &subject, self.now)
    }
}

/// One finding that an exception removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExceptionUse {
    /// The exception.
    pub exception: String,
    /// Which entry of its `allow` list.
    pub allowance: usize,
    /// The check.
    pub control: &'static str,
    /// The field, from the root of the object.
    pub path: String,
}

/// A verdict after exceptions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Excused {
    /// What remains.
    pub outcome: StandardsOutcome,
    /// What was removed, and by which exception.
    pub used: Vec<ExceptionUse>,
}

impl ExceptionSet {
    /// No exceptions.
    pub const EMPTY: &'static Self = &Self { readable: Vec::new(), unreadable: Vec::new() };

    /// Reads objects.
    pub fn read<'o>(objects: impl IntoIterator<Item = &'o Value>) -> Self {
        let mut set = Self::default();
        for object in objects {
            set.add(object);
        }
        set.sort();
        set
    }

    /// Adds exceptions of another set.
    pub fn append(&mut self, mut other: Self) {
        self.readable.append(&mut other.readable);
        self.unreadable.append(&mut other.unreadable);
        self.sort();
    }

    fn add(&mut self, object: &Value) {
        match SecurityException::read(object) {
            Ok(exception) => self.readable.push(exception),
            Err(error) => {
                let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                self.unreadable.push(UnreadableException { name: name.to_owned(), error: error.to_string() });
            }
        }
    }

    fn sort(&mut self) {
        self.readable.sort_by(|a, b| a.name.cmp(&b.name));
        self.unreadable.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Whether there is none, readable or not.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.readable.is_empty() && self.unreadable.is_empty()
    }

    /// Those that can be applied, ended ones included.
    #[must_use]
    pub fn readable(&self) -> &[SecurityException] {
        &self.readable
    }

    /// Those that cannot.
    #[must_use]
    pub fn unreadable(&self) -> &[UnreadableException] {
        &self.unreadable
    }

    /// The verdict without the findings that exceptions in force name for this subject.
    #[must_use]
    pub fn excuse(
        &self,
        outcome: StandardsOutcome,
        pod: &Prepared<'_>,
        subject: &ExceptionSubject<'_>,
        now: Time,
    ) -> Excused {
        if outcome.allowed() || self.readable.is_empty() {
            return Excused { outcome, used: Vec::new() };
        }
        let view = pod.view();
        let candidates: Vec<_> = self
            .readable
            .iter()
            .filter(|exception| exception.counts_at(now) && exception.is_for(&view, subject))
            .collect();
        if candidates.is_empty() {
            return Excused { outcome, used: Vec::new() };
        }
        let mut excused = Excused::default();
        for violation in outcome.violations {
            excused.consider(violation, &view, &candidates);
        }
        excused
    }
}

impl Excused {
    /// Keeps what no exception names of a violation.
    fn consider(
        &mut self,
        mut violation: Violation,
        view: &PodView<'_, '_>,
        candidates: &[&SecurityException],
    ) {
        // A check that cannot name a field cannot be excepted.
        if violation.findings.is_empty() {
            self.outcome.violations.push(violation);
            return;
        }
        let before = violation.findings.len();
        let control = violation.check;
        let mut keep = |finding: &Finding| match excuse_for(control, finding, view, candidates) {
            Some(found) => {
                self.used.push(found);
                false
            }
            None => true,
        };
        violation.findings.retain(&mut keep);
        if violation.findings.is_empty() {
            // What upstream does not mention beside the others is all that is left.
            violation.findings = std::mem::take(&mut violation.masked);
            violation.findings.retain(&mut keep);
            if violation.findings.is_empty() {
                return;
            }
        } else if violation.findings.len() == before {
            self.outcome.violations.push(violation);
            return;
        }
        let summaries: Vec<_> = violation.findings.iter().map(|finding| finding.summary.as_str()).collect();
        violation.detail = summaries.join(", ");
        self.outcome.violations.push(violation);
    }
}

fn excuse_for(
    control: &'static str,
    finding: &Finding,
    view: &PodView<'_, '_>,
    candidates: &[&SecurityException],
) -> Option<ExceptionUse> {
    candidates.iter().find_map(|exception| {
        let allowance =
            exception.allow.iter().position(|allowance| allowance.covers(control, finding, view))?;
        exception.covers_containers(finding, view).then(|| ExceptionUse {
            exception: exception.name.clone(),
            allowance,
            control,
            path: finding.path.to_string(),
        })
    })
}

impl Allowance {
    fn covers(&self, control: &str, finding: &Finding, view: &PodView<'_, '_>) -> bool {
        self.is_for(control)
            && match (&self.values, &finding.value) {
                (Some(values), Some(value)) => values.contains(value),
                (None, None) => true,
                _ => false,
            }
            && self.field.matches(&view.base(), &finding.path)
    }

    /// A restricted check takes the place of a baseline one at the higher level. What is accepted at that level is accepted
    /// at the lower one, or a namespace would have to be stricter to admit more.
    pub(super) fn is_for(&self, control: &str) -> bool {
        self.control == control
            || checks::check(self.control).is_some_and(|check| {
                check.versions.iter().any(|version| version.overrides.contains(&control))
            })
    }
}

impl SecurityException {
    /// Whether the exception is for this namespace, workload and pod; fields are compared later.
    fn is_for(&self, view: &PodView<'_, '_>, subject: &ExceptionSubject<'_>) -> bool {
        self.selects_namespace(subject.namespace, subject.namespace_labels)
            && (self.workloads.is_empty()
                || subject.workloads.iter().any(|workload| self.workloads.contains(workload)))
            && self.pod_selector.as_ref().is_none_or(|selector| selector.matches(&view.metadata().labels))
    }

    /// Whether the exception is for pods of this namespace. A namespace whose labels are not known is selected by no label.
    #[must_use]
    pub fn selects_namespace(&self, name: &str, labels: Option<&StringMap<'_>>) -> bool {
        !name.is_empty()
            && (self.namespaces.is_empty() || self.namespaces.iter().any(|own| own == name))
            && self
                .namespace_selector
                .as_ref()
                .is_none_or(|selector| labels.is_some_and(|labels| selector.matches(labels)))
    }

    /// Whether every container that a finding concerns is one of the exception's: the one it is in, or all of them for a
    /// field of the pod.
    fn covers_containers(&self, finding: &Finding, view: &PodView<'_, '_>) -> bool {
        if self.containers.is_empty() && self.images.is_empty() {
            return true;
        }
        let own = |name: &str, image: &str| {
            (self.containers.is_empty() || self.containers.iter().any(|container| container == name))
                && (self.images.is_empty() || self.images.iter().any(|pattern| pattern.matches(image)))
        };
        let place = place(&view.base(), &finding.path);
        let mut concerned = view
            .containers()
            .filter(|container| match (place, &finding.container) {
                (Some((list, index)), _) => container.kind.field() == list && container.index == index,
                (None, Some(name)) => container.name() == name,
                (None, None) => true,
            })
            .peekable();
        concerned.peek().is_some() && concerned.all(|found| own(found.name(), &found.container.image))
    }
}

/// The list and position of the container that a field is in; none for a field of the pod.
fn place<'p>(base: &FieldPath, path: &'p FieldPath) -> Option<(&'p str, usize)> {
    match path.steps().strip_prefix(base.steps())? {
        [PathStep::Field(spec), PathStep::Field(list), PathStep::Index(index), ..]
            if spec == "spec" && list.to_ascii_lowercase().ends_with("containers") =>
        {
            Some((list, *index))
        }
        _ => None,
    }
}
