//! The life of a custom resource definition: names are accepted, the resource is established, and in the end its
//! objects go before it does.
//!
//! Implements: Extend the Kubernetes API with CustomResourceDefinitions.
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>

use std::sync::Arc;

use palisade_apimachinery::Kind;
use palisade_apimachinery::apply::{self, Manager};
use palisade_apimachinery::crd::establish::{self, FINALIZER};
use serde_json::{Value, json};

use crate::api::Api;
use crate::meta;
use crate::options::DeleteOptions;
use crate::registry::{CRDS, Entry};
use crate::storage::{Expect, Range};
use crate::verbs::delete::delete_object;
use crate::verbs::write::{self, Written};

/// Accepts the names of a definition that was just written.
pub(crate) async fn after_write(api: &Arc<Api>, entry: &Arc<Entry>, written: &Written) {
    if &**entry.bucket.name() != CRDS {
        return;
    }
    if let Written::Stored(object) = written {
        accept_names(api, entry, object.key()).await;
    }
}

/// The same for a definition that the server itself stored.
pub(crate) async fn after_bootstrap(api: &Arc<Api>, entry: &Entry, name: &str) {
    if &**entry.bucket.name() == CRDS {
        accept_names(api, entry, name).await;
    }
}

/// Brings the status of a definition up to date with its spec.
async fn accept_names(api: &Arc<Api>, entry: &Entry, name: &str) {
    // Others may change the definition meanwhile; their write comes through here as well.
    for _ in 0..8 {
        let Some(stored) = entry.bucket.get(name) else { return };
        // The versions hold the schemas: they may be large, and a change of the status does not read them.
        let Some((live, versions)) = stored.parse_without(&["spec", "versions"]) else { return };
        let live = entry.typed(live);
        if meta::is_deleting(&live) {
            return;
        }
        let now = meta::now();
        let object = match taken_names(api, &live).as_slice() {
            [] if live.get("status").is_some_and(establish::is_established) => return,
            [] => establish::establish(&entry.kind, &live, &now),
            // Conditions are set once.
            _ if has_conditions(&live) => return,
            taken => refused(&entry.kind, &live, taken, &now),
        };
        if write::commit_around(api, entry, &stored, object, versions).await.is_ok() {
            return;
        }
    }
}

fn has_conditions(definition: &Value) -> bool {
    definition.pointer("/status/conditions").and_then(Value::as_array).is_some_and(|c| !c.is_empty())
}

/// A wanted name that another definition of the group has.
struct Taken {
    field: &'static str,
    reason: &'static str,
    name: String,
}

/// The wanted names that other definitions of the group have. Resources and kinds are distinguished.
fn taken_names(api: &Api, definition: &Value) -> Vec<Taken> {
    let group = definition.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let own = meta::meta_text(definition, "name");
    let texts = |names: &Value, field: &str| -> Vec<String> {
        match names.get(field) {
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            Some(Value::String(name)) if !name.is_empty() => vec![name.clone()],
            _ => Vec::new(),
        }
    };
    let (mut resources, mut kinds) = (Vec::new(), Vec::new());
    for (name, other) in &api.registry.served().definitions {
        if **name != *own && other.definition.group == group {
            let names = &other.definition.accepted_names;
            resources.extend(["plural", "singular", "shortNames"].iter().flat_map(|f| texts(names, f)));
            kinds.extend(["kind", "listKind"].iter().flat_map(|f| texts(names, f)));
        }
    }
    let wanted = definition.pointer("/spec/names").cloned().unwrap_or_default();
    let plural = wanted.get("plural").and_then(Value::as_str).unwrap_or_default();
    if api.registry.is_builtin_resource(group, plural) {
        resources.push(plural.to_owned());
    }
    let fields = [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
    ];
    let conflicts = fields.into_iter().filter_map(|(field, reason, taken)| {
        let name = texts(&wanted, field).into_iter().find(|name| taken.contains(name))?;
        Some(Taken { field, reason, name })
    });
    conflicts.collect()
}

/// The definition with the condition that names are taken; the others are accepted. Of several conflicts the last is reported.
fn refused(kind: &Kind, live: &Value, taken: &[Taken], now: &str) -> Value {
    let mut object = live.clone();
    let condition = |name: &str, reason: &str, message: &str| json!({"type": name, "status": "False", "reason": reason, "message": message, "lastTransitionTime": now});
    let Some(reported) = taken.last() else { return object };
    let conditions = json!([
        condition("NamesAccepted", reported.reason, &format!("{:?} is already in use", reported.name)),
        condition("Established", "NotAccepted", "not all names are accepted"),
    ]);
    let mut accepted = live.pointer("/spec/names").cloned().unwrap_or_default();
    if let Some(names) = accepted.as_object_mut() {
        for Taken { field, .. } in taken {
            if matches!(*field, "plural" | "kind") {
                names.insert((*field).to_owned(), "".into());
            } else {
                names.remove(*field);
            }
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("acceptedNames".to_owned(), accepted);
        status.insert("conditions".to_owned(), conditions);
    }
    let manager = Manager { name: "kube-apiserver", subresource: "status", now };
    apply::on_update(kind, Some(live), &mut object, &manager);
    object
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
    establish::terminate(definition, &meta::now());
}

/// Removes the objects of definitions that are being deleted, and then the definitions.
pub(crate) async fn finish_deletions(api: &Arc<Api>) {
    let served = api.registry.served();
    let Some(entry) = served.find("apiextensions.k8s.io", "v1", "customresourcedefinitions") else { return };
    for (name, _) in served.definitions.iter().filter(|(_, defined)| defined.definition.deleting) {
        let Some(stored) = entry.bucket.get(name) else { continue };
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
        // If it was written meanwhile, the next round reads it again.
        let _ = write::commit(api, entry, stored.key(), Expect::Revision(stored.revision), definition, gone)
            .await;
    }
}

/// True when none is left.
async fn remove_objects(api: &Arc<Api>, definition: &str) -> bool {
    let served = api.registry.served();
    let Some(entry) = served.entries.iter().find(|e| &**e.bucket.name() == definition) else { return true };
    for object in entry.bucket.list(&Range::All).objects {
        // What is left because of a finalizer is found in the next round.
        let _ = delete_object(api, entry, object.key(), &DeleteOptions::default(), None).await;
    }
    entry.bucket.is_empty()
}
