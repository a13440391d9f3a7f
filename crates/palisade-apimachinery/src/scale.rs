//! The `scale` subresource.
//!
//! Implements: `autoscaling/v1` Scale for replication controllers, the `apps` kinds and custom kinds, with the managed
//! fields a write through it leaves in the parent (`managedfields.ScaleHandler`).

use serde_json::{Map, Value, json};

use crate::apply::{Element, Entry, FieldSet, Managed, Manager, Operation};
use crate::crd::JsonPath;
use crate::rest::path::{Errors, Path};
use crate::scheme::{Body, Kind};
use crate::selector::LabelSelector;
use crate::status::{GroupName, Result, Status};
use crate::version::KubeVersion;

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
    let Paths { spec: replicas_path, .. } = paths(kind);
    let mut new = object.clone();
    let before = at(object, &replicas_path).cloned();
    put(&mut new, &replicas_path, replicas.into());
    if before.as_ref().and_then(Value::as_i64) != Some(replicas) {
        let mut owners = Managed::decode(object).unwrap_or_default();
        let element: Vec<Element> = replicas_path.iter().cloned().map(Element::Field).collect();
        let mut set = FieldSet::new();
        set.insert(&element);
        for entry in &mut owners.entries {
            entry.set = entry.set.difference(&set);
        }
        owners.drop_empty();
        let entry = Entry {
            manager: if manager.name.is_empty() { "unknown".into() } else { manager.name.to_owned() },
            operation: Operation::Update,
            api_version: kind.api_version(),
            subresource: "scale".into(),
            // Upstream loses the time on the way from the Scale to its parent.
            time: None,
            set,
        };
        match owners.entries.iter_mut().find(|known| known.is(&entry)) {
            Some(known) => known.set = std::mem::take(&mut known.set).union(&entry.set),
            None => owners.entries.push(entry),
        }
        owners.encode(&mut new);
    }
    Ok(new)
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
