//! Exceptions from manifests: read for `check`, and with what they accept for `palisade exceptions`.
//!
//! A manifest that cannot be read, and an exception that cannot be applied, end the command: leaving it out would change the
//! verdict without a word.

use std::{collections::BTreeMap, path::PathBuf};

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
use palisade_yaml::Limits;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    failure::Failure,
    input::{Input, discover},
    judge::decode,
    manifest::{Object, misnamed, objects},
};

/// Exceptions, and the namespaces that they may select by label.
#[derive(Debug)]
pub struct Exceptions {
    /// The exceptions.
    pub set: ExceptionSet,
    /// Labels of namespaces, by name.
    pub namespaces: BTreeMap<String, StringMap<'static>>,
    /// The moment at which they are applied.
    pub now: Time,
}

impl Default for Exceptions {
    fn default() -> Self {
        Self { set: ExceptionSet::default(), namespaces: BTreeMap::new(), now: now() }
    }
}

/// This moment.
#[must_use]
pub fn now() -> Time {
    Time { seconds: jiff::Timestamp::now().as_second(), micros: 0 }
}

impl Exceptions {
    /// The exceptions and namespaces in files and folders.
    pub fn of_paths(paths: &[PathBuf]) -> Result<Self, Failure> {
        Self::of_paths_and(paths, Vec::new())
    }

    /// The same, with objects of a cluster. Exceptions of the cluster that cannot be applied accept nothing there either.
    pub fn of_paths_and(paths: &[PathBuf], mut live: Vec<Value>) -> Result<Self, Failure> {
        if paths.is_empty() && live.is_empty() {
            return Ok(Self::default());
        }
        let mut objects = read_paths(paths)?;
        let exceptions = Self::of_objects(&objects);
        match exceptions.set.unreadable() {
            [] if live.is_empty() => Ok(exceptions),
            [] => {
                objects.append(&mut live);
                Ok(Self::of_objects(&objects))
            }
            [first, ..] => Err(Failure::input(format!(
                "SecurityException {:?} cannot be applied: {}",
                first.name, first.error
            ))),
        }
    }

    /// The exceptions and namespaces among objects.
    #[must_use]
    pub fn of_objects(objects: &[Value]) -> Self {
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
        Self { set, namespaces, now: now() }
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

/// The objects in files and folders.
pub fn read_paths(paths: &[PathBuf]) -> Result<Vec<Value>, Failure> {
    let found = discover(paths, |_| false);
    if let Some(problem) = found.problems.first() {
        return Err(Failure::input(problem.summary.clone()));
    }
    let mut all = Vec::new();
    for input in &found.inputs {
        all.append(&mut read_input(input, unknown)?);
    }
    Ok(all)
}

/// The objects of a text that an API server returned: any kind may be among them.
pub fn read_objects(input: &Input) -> Result<Vec<Value>, Failure> {
    read_input(input, |_| None)
}

/// Why an object of a manifest is none that an API server takes: what is not an exception by a mistake would not be missed.
fn unknown(object: &Object<'_>) -> Option<String> {
    let is_item = !object.source.id().items.is_empty();
    object
        .list_problem()
        .or_else(|| object.item_problem().filter(|_| is_item))
        .or_else(|| {
            let (what, help) = misnamed(object.api_version, object.kind)?;
            Some(help.map_or_else(|| what.clone(), |help| format!("{what}; {help}")))
        })
        .or_else(|| object.kind.is_empty().then(|| "not a Kubernetes object".to_owned()))
}

fn read_input(input: &Input, problem: fn(&Object<'_>) -> Option<String>) -> Result<Vec<Value>, Failure> {
    let name = input.name();
    let bytes = input.read().map_err(|problem| Failure::input(problem.summary.clone()))?;
    let text = decode(&name, &bytes).map_err(|problem| Failure::input(problem.summary.clone()))?;
    let parsed = palisade_yaml::parse(&text, &Limits::default());
    if let Some(error) = parsed.errors.first() {
        return Err(Failure::input(format!("cannot read {name}: {}", error.message)));
    }
    let mut values = Vec::new();
    for document in &parsed.documents {
        for object in objects(document) {
            if let Some(problem) = problem(&object).filter(|_| !object.node.is_null()) {
                return Err(Failure::input(format!("cannot read {name}: {problem}")));
            }
            let mut value = Value::deserialize(object.node)
                .map_err(|error| Failure::input(format!("cannot read {name}: {error}")))?;
            // Items of a typed list need not carry them.
            if let Value::Object(fields) = &mut value {
                fields.entry("apiVersion").or_insert_with(|| object.api_version.into());
                fields.entry("kind").or_insert_with(|| object.kind.into());
            }
            values.push(value);
        }
    }
    Ok(values)
}
