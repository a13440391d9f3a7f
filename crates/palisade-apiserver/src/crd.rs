//! The life of a custom resource definition: names are accepted, the resource is established, and in the end its
//! objects go before it does.
//!
//! Implements: Extend the Kubernetes API with CustomResourceDefinitions.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>

use std::sync::Arc;

use palisade_apimachinery::apply::{self, Manager};
use serde_json::{Map, Value, json};

use crate::api::Api;
use crate::meta;
use crate::options::DeleteOptions;
use crate::registry::{CRDS, Entry};
use crate::storage::{Expect, Range};
use crate::verbs::delete::delete_object;
use crate::verbs::write::{self, Written};

const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Accepts the names of a definition that was just written.
pub(crate) async fn after_write(api: &Arc<Api>, entry: &Arc<Entry>, written: &Written) {
    if &**entry.bucket.name() != CRDS {
        return;
    }
    if let Written::Stored(object) = written {
        accept_names(api, entry, object.key()).await;
    }
}

/// Brings the status of a definition up to date with its spec.
async fn accept_names(api: &Arc<Api>, entry: &Entry, name: &str) {
    // Others may change the definition meanwhile; their write comes through here as well.
    for _ in 0..8 {
        let Some(stored) = entry.bucket.get(name) else { return };
        let live = entry.typed(stored.parse());
        if meta::is_deleting(&live) {
            return;
        }
        let mut object = live.clone();
        set_status(&mut object, &conflicts(entry, &live));
        if object == live {
            return;
        }
        let manager = Manager { name: "kube-apiserver", subresource: "status", now: &meta::now() };
        apply::on_update(&entry.kind, Some(&live), &mut object, &manager);
        if write::commit(api, entry, name, Expect::Revision(stored.revision), &object, false).await.is_ok() {
            return;
        }
    }
}

/// Which of the wanted names another definition of the group has.
fn conflicts(entry: &Entry, definition: &Value) -> Option<(&'static str, String)> {
    let group = definition.pointer("/spec/group");
    let own = meta::meta_text(definition, "name");
    let names = |d: &Value| d.pointer("/spec/names").cloned().unwrap_or_default();
    let wanted = names(definition);
    for other in entry.bucket.list(&Range::All).objects {
        let other = Value::Object(other.parse());
        if meta::meta_text(&other, "name") == own || other.pointer("/spec/group") != group {
            continue;
        }
        let taken = names(&other);
        for (field, reason) in
            [("plural", "PluralConflict"), ("singular", "SingularConflict"), ("kind", "KindConflict"), ("listKind", "ListKindConflict")]
        {
            if let (Some(a), Some(b)) = (wanted.get(field).and_then(Value::as_str), taken.get(field)) {
                if Some(a) == b.as_str() {
                    return Some((reason, format!("{a:?} is already in use")));
                }
            }
        }
    }
    None
}

fn set_status(definition: &mut Value, conflict: &Option<(&'static str, String)>) {
    let names = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let Some(object) = definition.as_object_mut() else { return };
    let status = object.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    match conflict {
        None => {
            status.insert("acceptedNames".to_owned(), names);
            condition(status, "NamesAccepted", "True", "NoConflicts", "no conflicts found");
            let reason = "InitialNamesAccepted";
            condition(status, "Established", "True", reason, "the initial names have been accepted");
        }
        Some((reason, message)) => {
            condition(status, "NamesAccepted", "False", reason, message);
            if !has_condition(status, "Established") {
                condition(status, "Established", "False", "NotAccepted", "not all names are accepted");
            }
        }
    }
}

fn has_condition(status: &Map<String, Value>, kind: &str) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c.get("type").and_then(Value::as_str) == Some(kind))
}

/// Sets a condition; its time only changes with its status.
fn condition(status: &mut Map<String, Value>, kind: &str, value: &str, reason: &str, message: &str) {
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let is = |c: &Value| c.get("type").and_then(Value::as_str) == Some(kind);
    let old = conditions.iter().position(is);
    let same = old.and_then(|at| conditions.get(at)).filter(|c| c.get("status").and_then(Value::as_str) == Some(value));
    let time = same.and_then(|c| c.get("lastTransitionTime").cloned()).unwrap_or_else(|| meta::now().into());
    let new = json!({
        "type": kind, "status": value, "lastTransitionTime": time, "reason": reason, "message": message,
    });
    match old.and_then(|at| conditions.get_mut(at)) {
        Some(place) => *place = new,
        None => conditions.push(new),
    }
}

/// Marks a definition for deletion: its objects go first.
pub(crate) fn begin_deletion(definition: &mut Value) {
    let mut finalizers = meta::finalizers(definition);
    if !finalizers.iter().any(|f| f == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    meta::set_finalizers(definition, &finalizers);
    meta::edit_metadata(definition, |metadata| {
        metadata.insert("deletionTimestamp".to_owned(), meta::now().into());
    });
    let Some(status) = definition.get_mut("status").and_then(Value::as_object_mut) else { return };
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    condition(status, "Terminating", "True", "InstanceDeletionPending", message);
}

/// Removes the objects of definitions that are being deleted, and then the definitions.
pub(crate) async fn finish_deletions(api: &Arc<Api>) {
    let served = api.registry.served();
    let Some(entry) = served.find("apiextensions.k8s.io", "v1", "customresourcedefinitions") else { return };
    for stored in entry.bucket.list(&Range::All).objects {
        let mut definition = entry.typed(stored.parse());
        let mut finalizers = meta::finalizers(&definition);
        if !meta::is_deleting(&definition) || !finalizers.iter().any(|f| f == FINALIZER) {
            continue;
        }
        if !remove_objects(api, stored.name()).await {
            continue;
        }
        finalizers.retain(|f| f != FINALIZER);
        meta::set_finalizers(&mut definition, &finalizers);
        let gone = finalizers.is_empty();
        // If somebody wrote it meanwhile, the next round sees it again.
        let _ = write::commit(api, entry, stored.key(), Expect::Revision(stored.revision), &definition, gone).await;
    }
}

/// True when none is left.
async fn remove_objects(api: &Arc<Api>, definition: &str) -> bool {
    let served = api.registry.served();
    let Some(entry) = served.entries.iter().find(|e| &**e.bucket.name() == definition) else { return true };
    for object in entry.bucket.list(&Range::All).objects {
        // What is left because of a finalizer is found in the next round.
        let _ = delete_object(api, entry, object.key(), &DeleteOptions::default(), |_| Ok(())).await;
    }
    entry.bucket.is_empty()
}
