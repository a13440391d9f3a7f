//! The `scale` subresource.
//!
//! Implements: `autoscaling/v1` Scale for replication controllers, the `apps` kinds and custom kinds, with the managed
//! fields a write through it leaves in the parent (`managedfields.ScaleHandler`).

use std::sync::Arc;

use palisade_base::field_path::Path;
use palisade_base::label_selector::LabelSelector;
use palisade_base::version::KubeVersion;
use serde_json::{Map, Value, json};

use crate::apply::{Element, Entry, FieldSet, Managed, Manager, Operation, conflict_status};
use crate::crd::JsonPath;
use crate::rest::path::Errors;
use crate::scheme::{Body, Kind};
use crate::status::{GroupName, Result, Status};

struct Paths {
    spec: Vec<String>,
    status: Vec<String>,
    selector: Option<String>,
}

fn paths(kind: &Kind) -> Paths {
    let split = |path: &str| path.trim_start_matches('.').split('.').map(str::to_owned).collect();
    match &kind.body {
        Body::Custom(custom) => match &custom.scale {
            Some(scale) => Paths {
                spec: split(&scale.spec_replicas),
                status: split(&scale.status_replicas),
                selector: Some(scale.label_selector.clone()),
            },
            None => Paths { spec: Vec::new(), status: Vec::new(), selector: None },
        },
        Body::Builtin(_) => {
            Paths { spec: split("spec.replicas"), status: split("status.replicas"), selector: None }
        }
    }
}

fn at<'v>(object: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// The kind of scales, to read what clients send.
#[must_use]
pub fn kind(version: KubeVersion) -> Kind {
    crate::kinds::scale_kind(version)
}

/// The scale of an object.
#[must_use]
pub fn get(kind: &Kind, object: &Value) -> Value {
    let paths = paths(kind);
    let empty = Value::Null;
    let meta = object.get("metadata").unwrap_or(&empty);
    let mut out = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = meta.get(field) {
            out.insert(field.into(), value.clone());
        }
    }
    let replicas = at(object, &paths.spec).and_then(Value::as_i64).unwrap_or(0);
    let mut spec = Map::new();
    if replicas != 0 {
        spec.insert("replicas".into(), replicas.into());
    }
    let mut status = Map::new();
    let current = at(object, &paths.status).and_then(Value::as_i64).unwrap_or(0);
    status.insert("replicas".into(), current.into());
    let selector = if let Some(path) = &paths.selector {
        JsonPath::parse(path).first(object).and_then(Value::as_str).unwrap_or_default().to_owned()
    } else {
        let selector = object.pointer("/spec/selector").unwrap_or(&empty);
        if selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() {
            LabelSelector::from_object(selector).to_string()
        } else {
            LabelSelector::from_labels(selector).to_string()
        }
    };
    if !selector.is_empty() {
        status.insert("selector".into(), selector.into());
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": out, "spec": spec, "status": status})
}

/// The object with the replicas of a changed scale, its managed fields updated.
///
/// `scale` is the new Scale (sent, or the current one patched). The caller writes the object as an update.
pub fn set(kind: &Kind, object: &Value, scale: &Value, manager: &Manager<'_>) -> Result<Value> {
    let wanted = Wanted::check(kind, object, scale)?;
    let mut new = object.clone();
    if wanted.changes {
        let entry = wanted.entry(kind, manager, Operation::Update);
        let mut owners = Managed::decode(object).unwrap_or_default();
        for other in &mut owners.entries {
            other.set = other.set.difference(&entry.set);
        }
        Wanted::own(owners, entry, &mut new);
    }
    put(&mut new, &wanted.path, wanted.replicas.into());
    Ok(new)
}

/// The same for a Scale that is applied: replicas that another manager owns are a conflict, or taken by force.
pub fn apply(
    kind: &Kind,
    object: &Value,
    scale: &Value,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value> {
    let wanted = Wanted::check(kind, object, scale)?;
    let entry = wanted.entry(kind, manager, Operation::Apply);
    let mut owners = Managed::decode(object).unwrap_or_default();
    if wanted.changes {
        let path = [Element::Field("spec".into()), Element::Field("replicas".into())];
        let mut conflicts = Vec::new();
        for other in owners.entries.iter_mut().filter(|other| !other.is(&entry)) {
            if other.set.intersection(&entry.set).is_empty() {
                continue;
            }
            // Others are seen as owners of the Scale, in its version.
            let owner = Entry { api_version: "autoscaling/v1".into(), ..other.clone() };
            conflicts.push((Arc::new(owner), path.to_vec()));
            other.set = other.set.difference(&entry.set);
        }
        if !conflicts.is_empty() && !force {
            return Err(conflict_status(&conflicts));
        }
    }
    let mut new = object.clone();
    Wanted::own(owners, entry, &mut new);
    put(&mut new, &wanted.path, wanted.replicas.into());
    Ok(new)
}

/// How many there shall be, and where that is written.
struct Wanted {
    replicas: i64,
    path: Vec<String>,
    changes: bool,
}

impl Wanted {
    fn check(kind: &Kind, object: &Value, scale: &Value) -> Result<Self> {
        let replicas = checked_replicas(kind, object, scale)?;
        let path = paths(kind).spec;
        let changes = at(object, &path).and_then(Value::as_i64) != Some(replicas);
        Ok(Self { replicas, path, changes })
    }

    fn entry(&self, kind: &Kind, manager: &Manager<'_>, operation: Operation) -> Entry {
        let element: Vec<Element> = self.path.iter().cloned().map(Element::Field).collect();
        let mut set = FieldSet::new();
        set.insert(&element);
        Entry {
            manager: if manager.name.is_empty() { "unknown".into() } else { manager.name.to_owned() },
            operation,
            api_version: kind.api_version(),
            subresource: "scale".into(),
            // Upstream loses the time on the way from the Scale to its parent.
            time: None,
            set,
        }
    }

    fn own(mut owners: Managed, entry: Entry, new: &mut Value) {
        owners.drop_empty();
        match owners.entries.iter_mut().find(|known| known.is(&entry)) {
            Some(known) => known.set = std::mem::take(&mut known.set).union(&entry.set),
            None => owners.entries.push(entry),
        }
        owners.encode(new);
    }
}

fn checked_replicas(kind: &Kind, object: &Value, scale: &Value) -> Result<i64> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    let mut errors = Errors::new(kind.emulated);
    let spec = Path::Root("spec");
    errors.non_negative(&spec.field("replicas"), Some(replicas));
    if !errors.list.is_empty() {
        return Err(Status::invalid(
            GroupName::new("autoscaling", "Scale"),
            name,
            &errors.list,
            kind.emulated,
        ));
    }
    let version = scale.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
    let stored = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
    if !version.is_empty() && version != stored {
        return Err(Status::modified(kind.resource_name(), name));
    }
    Ok(replicas)
}

fn put(object: &mut Value, path: &[String], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut target = object;
    for key in parents {
        let Some(next) = crate::kinds::section(target, key) else { return };
        target = next;
    }
    if let Some(map) = target.as_object_mut() {
        map.insert(last.clone(), value);
    }
}
