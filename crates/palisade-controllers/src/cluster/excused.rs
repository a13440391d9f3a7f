//! What exceptions change about one object.
//!
//! The index keeps no values, labels or images, so that exceptions are compared with the object itself, which is read again for
//! that. A check can mask a finding: what an exception brings to light is a violation as every other.

use std::collections::BTreeMap;

use palisade_model::{
    compat::Compat,
    pod::Pod,
    prepare::{Prepared, Subject},
    workload::WorkloadKind,
};
use palisade_policy::{
    exceptions::{
        set::{ExceptionUse, NamespaceExceptions},
        workload::{Provenance, of_made_template, of_pod},
    },
    standards::{
        evaluator::Evaluator,
        level::{Level, LevelVersion, Version},
    },
};
use serde::Deserialize as _;
use serde_json::Value;

use super::{
    WatchedPod,
    judged::{Cause, causes},
};

/// What exceptions change about an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excused {
    /// Findings that an exception accepts.
    pub used: Vec<ExceptionUse>,
    /// Findings that another one had masked.
    pub unmasked: Vec<Cause>,
}

/// The same, by the kind and name of the object.
pub type ExcusedObjects = BTreeMap<(String, String), Excused>;

impl Excused {
    /// The exception that accepts a finding.
    #[must_use]
    pub fn exception(&self, cause: &Cause) -> Option<&str> {
        let found = self.used.iter().find(|used| (used.control, &used.path) == (cause.check, &cause.path));
        found.map(|used| used.exception.as_str())
    }

    /// Compares exceptions with an object as the API server stores it; `None` if none is for it, or if it cannot be read: then
    /// its findings stay.
    #[must_use]
    pub fn of_object(
        kind: &WorkloadKind,
        object: &Value,
        compat: &Compat,
        exceptions: &NamespaceExceptions<'_>,
    ) -> Option<Self> {
        let name = object.pointer("/metadata/name")?.as_str()?;
        let (pod, workloads) = if kind.path.is_empty() {
            // swallowed: nothing is excused
            let WatchedPod { metadata, spec, status } = WatchedPod::deserialize(object).ok()?;
            if status.is_over() {
                return None;
            }
            let workloads = of_pod(&metadata, Provenance::Stored);
            (Prepared::stored(Pod { metadata, spec }, compat), workloads)
        } else {
            let template = kind.path.iter().try_fold(object, |value, field| value.get(field))?;
            let pod = Pod::deserialize(template).ok()?; // swallowed: nothing is excused
            let workloads = of_made_template(kind, name, &pod.metadata.labels);
            (Prepared::future_pod(pod, Subject::Template(kind.path), compat), workloads)
        };
        let evaluator = Evaluator::of(compat);
        let mut found = Self::default();
        for level in [Level::Baseline, Level::Restricted] {
            let outcome = evaluator.evaluate(LevelVersion::new(level, Version::Latest), &pod);
            let before = causes(&outcome);
            let after = exceptions.excuse(outcome, &pod, &workloads);
            found.unmasked.extend(causes(&after.outcome).into_iter().filter(|cause| !before.contains(cause)));
            found.used.extend(after.used);
        }
        (!found.used.is_empty()).then_some(found)
    }
}
