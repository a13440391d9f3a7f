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
        let live = entry.typed(stored.parse());
        if meta::is_deleting(&live) {
            return;
        }
        let now = meta::now();
        let object = match conflict(entry, &live) {
            None if establish::is_established(&live) => return,
            None => establish::establish(&entry.kind, &live, &now),
            Some((reason, message)) => refused(&entry.kind, &live, reason, &message, &now),
        };
        if object == live {
            return;
        }
        if write::commit(api, entry, name, Expect::Revision(stored.revision), &object, false).await.is_ok() {
            return;
        }
    }
}

/// Which of the wanted names another definition of the group has.
fn conflict(entry: &Entry, definition: &Value) -> Option<(&'static str, String)> {
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
        for (field, reason) in [
            ("plural", "PluralConflict"),
            ("singular", "SingularConflict"),
            ("kind", "KindConflict"),
            ("listKind", "ListKindConflict"),
        ] {
            if let (Some(a), Some(b)) = (wanted.get(field).and_then(Value::as_str), taken.get(field))
                && Some(a) == b.as_str()
            {
                return Some((reason, format!("{a:?} is already in use")));
            }
        }
    }
    None
}

/// The definition with the condition that its names are taken.
fn refused(kind: &Kind, live: &Value, reason: &str, message: &str, now: &str) -> Value {
    let mut object = live.clone();
    let condition = |name: &str, reason: &str, message: &str| json!({"type": name, "status": "False", "reason": reason, "message": message, "lastTransitionTime": now});
    let known = object.pointer("/status/conditions").and_then(Value::as_array).is_some_and(|c| !c.is_empty());
    if known {
        return object;
    }
    let conditions = json!([
        condition("NamesAccepted", reason, message),
        condition("Established", "NotAccepted", "not all names are accepted"),
    ]);
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
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
    for stored in entry.bucket.list(&Range::All).objects {
        if !stored.mentions("deletionTimestamp") {
            continue;
        }
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
        let _ = write::commit(api, entry, stored.key(), Expect::Revision(stored.revision), &definition, gone)
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
