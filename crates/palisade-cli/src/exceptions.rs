//! Exceptions from manifests, for `check` and `palisade exceptions`; [`palisade_check::exceptions`] applies them.
//!
//! A manifest that cannot be read, and an exception that cannot be applied, end the command: leaving it out would change the
//! verdict without a word.

use std::path::PathBuf;

use palisade_base::time::Time;
use palisade_check::exceptions::Exceptions;
use palisade_yaml::Limits;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    failure::Failure,
    input::{Input, discover},
    judge::decode,
    manifest::{Object, misnamed, objects},
};

/// This moment.
#[must_use]
pub fn now() -> Time {
    Time { seconds: jiff::Timestamp::now().as_second(), micros: 0 }
}

/// The exceptions and namespaces in files and folders.
pub fn of_paths(paths: &[PathBuf]) -> Result<Exceptions, Failure> {
    of_paths_and(paths, Vec::new())
}

/// The same, with objects of a cluster. Exceptions of the cluster that cannot be applied accept nothing there either.
pub fn of_paths_and(paths: &[PathBuf], mut live: Vec<Value>) -> Result<Exceptions, Failure> {
    if paths.is_empty() && live.is_empty() {
        return Ok(Exceptions::default());
    }
    let mut objects = read_paths(paths)?;
    let exceptions = Exceptions::of_objects(&objects, now());
    match exceptions.set().unreadable() {
        [] if live.is_empty() => Ok(exceptions),
        [] => {
            objects.append(&mut live);
            Ok(Exceptions::of_objects(&objects, now()))
        }
        [first, ..] => Err(Failure::input(format!(
            "SecurityException {:?} cannot be applied: {}",
            first.name, first.error
        ))),
    }
}

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
