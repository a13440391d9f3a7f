//! Exceptions that apply to manifests, and what they accept.
//!
//! Reading them from files and from a cluster is the work of the command line.

use std::collections::BTreeMap;

use palisade_base::time::Time;
use palisade_model::{
    compat::Compat,
    json::from_value,
    metadata::{ObjectMeta, StringMap},
    pod::Pod,
    prepare::Prepared,
    workload::{read_template, workload_kind},
};
use palisade_policy::{
    exceptions::{
        object::is_exception,
        set::{ExceptionSet, ExceptionUse, Excused, NamespaceExceptions},
        workload::{Provenance, Workload, of_pod, of_template},
    },
    standards::{
        evaluator::{Evaluator, StandardsOutcome},
        level::{Level, LevelVersion, Version},
    },
};
use serde_json::Value;

/// Exceptions, and the namespaces that they may select by label.
#[derive(Debug)]
pub struct Exceptions {
    set: ExceptionSet,
    namespaces: BTreeMap<String, StringMap<'static>>,
    now: Time,
}

/// No exceptions: the moment is of no importance to none.
impl Default for Exceptions {
    fn default() -> Self {
        Self {
            set: ExceptionSet::default(),
            namespaces: BTreeMap::new(),
            now: Time { seconds: 0, micros: 0 },
        }
    }
}

impl Exceptions {
    /// The exceptions and namespaces among objects, as they apply at a moment.
    #[must_use]
    pub fn of_objects(objects: &[Value], now: Time) -> Self {
        let set = ExceptionSet::read(objects.iter().filter(|object| is_exception(object)));
        let is_namespace = |object: &&Value| object["kind"] == "Namespace" && object["apiVersion"] == "v1";
        let namespaces = objects
            .iter()
            .filter(is_namespace)
            // swallowed: a namespace whose labels cannot be read is one that no label selects
            .filter_map(|object| from_value::<ObjectMeta<'_>>(object.get("metadata")?).ok())
            .map(|metadata| {
                let name = metadata.name.as_str();
                let own = metadata.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
                // Every API server sets this label.
                let set = std::iter::once((METADATA_NAME.to_owned(), name.to_owned()));
                let labels = own.chain(set).map(|(key, value)| (key.into(), value.into())).collect();
                (name.to_owned(), labels)
            })
            .collect();
        Self { set, namespaces, now }
    }

    /// The exceptions.
    #[must_use]
    pub const fn set(&self) -> &ExceptionSet {
        &self.set
    }

    /// The exceptions, by themselves.
    #[must_use]
    pub fn into_set(self) -> ExceptionSet {
        self.set
    }

    /// The labels of a namespace that is among the objects.
    #[must_use]
    pub fn namespace_labels(&self, name: &str) -> Option<&StringMap<'static>> {
        self.namespaces.get(name)
    }

    /// The moment at which they are applied.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// What is left of a verdict on an object of a namespace.
    #[must_use]
    pub fn excuse(
        &self,
        outcome: StandardsOutcome,
        pod: &Prepared<'_>,
        namespace: Option<&str>,
        workloads: &[Workload],
    ) -> Excused {
        if outcome.allowed() || self.set.is_empty() {
            return Excused { outcome, used: Vec::new() };
        }
        let namespace = namespace.unwrap_or_default();
        let labels = self.namespaces.get(namespace);
        NamespaceExceptions { set: &self.set, namespace, labels, now: self.now }
            .excuse(outcome, pod, workloads)
    }

    /// What the exceptions accept of objects, at every level.
    #[must_use]
    pub fn uses(
        &self,
        objects: &[Value],
        namespace: Option<&str>,
        compat: &Compat,
        live: bool,
    ) -> Vec<ExceptionUse> {
        let evaluator = Evaluator::of(compat);
        let mut used = Vec::new();
        for object in objects {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let Some(kind) = workload_kind(text("/apiVersion"), text("/kind")) else { continue };
            // swallowed: what cannot be read is accepted by nothing, and `palisade check` reports it
            let Ok(Some(pod)) = read_template(object, kind.path) else { continue };
            let own: &Pod<'_> = &pod;
            let workloads = if kind.path.is_empty() {
                of_pod(&own.metadata, if live { Provenance::Stored } else { Provenance::Unknown })
            } else {
                of_template(kind, text("/metadata/name"))
            };
            let pod = Prepared::future_pod(pod, kind.subject(), compat);
            let namespace = Some(text("/metadata/namespace")).filter(|name| !name.is_empty()).or(namespace);
            for level in [Level::Baseline, Level::Restricted] {
                let outcome = evaluator.evaluate(LevelVersion::new(level, Version::Latest), &pod);
                used.extend(self.excuse(outcome, &pod, namespace, &workloads).used);
            }
        }
        // The same finding is found at both levels.
        used.sort();
        used.dedup();
        used
    }
}

/// The label with which an API server names every namespace.
pub const METADATA_NAME: &str = "kubernetes.io/metadata.name";
