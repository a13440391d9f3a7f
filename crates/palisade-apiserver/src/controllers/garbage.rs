//! Dependents follow their owners: in the background, in the foreground, or not at all.
//!
//! Implements: Garbage Collection. <https://kubernetes.io/docs/concepts/architecture/garbage-collection/>
//!
//! The collector follows the change logs of all resources and keeps only who depends on whom.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::api::Api;
use crate::meta;
use crate::options::{DeleteOptions, Propagation};
use crate::registry::{Entry, Served};
use crate::storage::{Event, EventKind, Expect, Object, Range, nullable};
use crate::verbs::delete::{FOREGROUND, ORPHAN, delete_object};
use crate::verbs::write;

/// Events read from one log at a time.
const BATCH: usize = 4096;

/// An object, by its resource and key.
type Place = (Arc<str>, String);

/// Who depends on whom.
#[derive(Debug, Default)]
pub(super) struct Collector {
    cursors: HashMap<Arc<str>, u64>,
    /// Owner's uid to its dependents.
    dependents: BTreeMap<String, BTreeSet<Place>>,
    /// A dependent's owners, to forget it again.
    owners: BTreeMap<Place, Vec<String>>,
    /// Objects to look at.
    suspects: BTreeSet<Place>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    #[serde(default, deserialize_with = "nullable")]
    api_version: String,
    #[serde(default, deserialize_with = "nullable")]
    kind: String,
    #[serde(default, deserialize_with = "nullable")]
    name: String,
    #[serde(default, deserialize_with = "nullable")]
    uid: String,
    #[serde(default, deserialize_with = "nullable")]
    block_owner_deletion: bool,
}

/// The part of an object that matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ownership {
    #[serde(deserialize_with = "nullable")]
    owner_references: Vec<Owner>,
    #[serde(deserialize_with = "nullable")]
    finalizers: Vec<String>,
    deletion_timestamp: Option<String>,
}

fn ownership(object: &Object) -> Ownership {
    #[derive(Deserialize)]
    struct Outer {
        metadata: Ownership,
    }
    serde_json::from_slice::<Outer>(&object.json).map(|o| o.metadata).unwrap_or_default()
}

enum OwnerState {
    Absent,
    /// Being deleted, and waiting for its dependents.
    Waiting,
    Solid,
}

impl Collector {
    /// Reads what happened since the last time.
    pub(super) fn observe(&mut self, api: &Api) {
        for bucket in api.store.buckets() {
            let seen = self.cursors.get(bucket.name()).copied();
            if seen == Some(bucket.changed_at()) {
                continue;
            }
            let mut after = seen.unwrap_or(0);
            if seen.is_none() || bucket.reaches_back_to(after).is_err() {
                let listing = bucket.list(&Range::All);
                for object in &listing.objects {
                    self.note(bucket.name(), &Event::new(EventKind::Added, object.clone()));
                }
                after = listing.revision;
            }
            while let Ok((events, upto)) = bucket.changes(&Range::All, after, BATCH) {
                for event in &events {
                    self.note(bucket.name(), event);
                }
                after = upto;
                if events.len() < BATCH {
                    break;
                }
            }
            // `changed_at` may be ahead of what was read; then the next round reads on.
            let newest = bucket.changed_at();
            self.cursors.insert(bucket.name().clone(), if newest <= after { newest } else { after });
        }
    }

    fn note(&mut self, bucket: &Arc<str>, event: &Event) {
        let object = &event.object;
        let place: Place = (bucket.clone(), object.key().to_owned());
        if event.kind == EventKind::Deleted {
            self.forget(&place);
            if let Some(dependents) = self.dependents.get(object.uid()) {
                self.suspects.extend(dependents.iter().cloned());
            }
            return;
        }
        let (owned, finalized) = (object.mentions("ownerReferences"), object.mentions("finalizers"));
        if !owned && !finalized {
            self.forget(&place);
            return;
        }
        let facts = ownership(object);
        self.forget(&place);
        if !facts.owner_references.is_empty() {
            for owner in &facts.owner_references {
                self.dependents.entry(owner.uid.clone()).or_default().insert(place.clone());
            }
            let uids = facts.owner_references.iter().map(|o| o.uid.clone()).collect();
            self.owners.insert(place.clone(), uids);
            self.suspects.insert(place.clone());
        }
        if facts.deletion_timestamp.is_some()
            && facts.finalizers.iter().any(|f| f == FOREGROUND || f == ORPHAN)
        {
            self.suspects.insert(place);
        }
    }

    fn forget(&mut self, place: &Place) {
        for uid in self.owners.remove(place).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&uid) {
                dependents.remove(place);
                if dependents.is_empty() {
                    self.dependents.remove(&uid);
                }
            }
        }
    }

    /// Acts on what was seen. True if something is still waiting.
    pub(super) async fn collect(&mut self, api: &Arc<Api>) -> bool {
        let served = api.registry.served();
        let suspects = std::mem::take(&mut self.suspects);
        for place in suspects {
            let Some(entry) = entry_of(&served, &place.0) else { continue };
            let Some(object) = entry.bucket.get(&place.1) else { continue };
            let facts = ownership(&object);
            let deleting = facts.deletion_timestamp.is_some();
            let waits = if deleting && facts.finalizers.iter().any(|f| f == ORPHAN) {
                self.orphan(api, &served, entry, &object).await
            } else if deleting && facts.finalizers.iter().any(|f| f == FOREGROUND) {
                self.foreground(api, &served, entry, &object).await
            } else {
                follow_owners(api, &served, entry, &object, &facts).await
            };
            if waits {
                self.suspects.insert(place);
            }
        }
        !self.suspects.is_empty()
    }

    fn dependents_of(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Takes the owner out of its dependents, then lets it go.
    async fn orphan(&self, api: &Arc<Api>, served: &Served, entry: &Entry, owner: &Object) -> bool {
        for place in self.dependents_of(owner.uid()) {
            let Some(dependent_entry) = entry_of(served, &place.0) else { continue };
            let Some(stored) = dependent_entry.bucket.get(&place.1) else { continue };
            let mut dependent = dependent_entry.typed(stored.parse());
            meta::edit_metadata(&mut dependent, |metadata| {
                let owners =
                    metadata.get("ownerReferences").and_then(Value::as_array).cloned().unwrap_or_default();
                let others: Vec<Value> = owners
                    .into_iter()
                    .filter(|o| o.get("uid").and_then(Value::as_str) != Some(owner.uid()))
                    .collect();
                if others.is_empty() {
                    metadata.remove("ownerReferences");
                } else {
                    metadata.insert("ownerReferences".to_owned(), others.into());
                }
            });
            let expect = Expect::Revision(stored.revision);
            if write::commit(api, dependent_entry, stored.key(), expect, dependent, false).await.is_err() {
                return true;
            }
        }
        remove_finalizer(api, entry, owner, ORPHAN).await
    }

    /// Deletes the dependents that hold up their owner; when none is left, lets the owner go.
    async fn foreground(&self, api: &Arc<Api>, served: &Served, entry: &Entry, owner: &Object) -> bool {
        let mut blocked = false;
        for place in self.dependents_of(owner.uid()) {
            let Some(dependent_entry) = entry_of(served, &place.0) else { continue };
            let Some(dependent) = dependent_entry.bucket.get(&place.1) else { continue };
            let facts = ownership(&dependent);
            blocked |= facts.owner_references.iter().any(|o| o.uid == owner.uid() && o.block_owner_deletion);
            follow_owners(api, served, dependent_entry, &dependent, &facts).await;
        }
        if blocked {
            return true;
        }
        remove_finalizer(api, entry, owner, FOREGROUND).await
    }
}

fn entry_of<'a>(served: &'a Served, bucket: &str) -> Option<&'a Arc<Entry>> {
    served.entries.iter().find(|e| &**e.bucket.name() == bucket && e.has_verb("delete"))
}

fn owner_state(served: &Served, owner: &Owner, namespace: &str) -> OwnerState {
    let Some(entry) = served.by_kind(&owner.api_version, &owner.kind) else {
        // A kind that is not served may be served later.
        return OwnerState::Solid;
    };
    match entry.bucket.get(&entry.key(namespace, &owner.name)) {
        Some(object) if object.uid() == owner.uid => {
            let facts = ownership(&object);
            if facts.deletion_timestamp.is_some() && facts.finalizers.iter().any(|f| f == FOREGROUND) {
                OwnerState::Waiting
            } else {
                OwnerState::Solid
            }
        }
        _ => OwnerState::Absent,
    }
}

/// Deletes an object none of whose owners is there to stay. True if it must be looked at again.
async fn follow_owners(
    api: &Arc<Api>,
    served: &Served,
    entry: &Entry,
    object: &Object,
    facts: &Ownership,
) -> bool {
    if facts.owner_references.is_empty() || facts.deletion_timestamp.is_some() {
        return false;
    }
    let owners: Vec<OwnerState> =
        facts.owner_references.iter().map(|o| owner_state(served, o, object.namespace())).collect();
    if owners.iter().any(|s| matches!(s, OwnerState::Solid)) {
        return false;
    }
    let waiting = owners.iter().any(|s| matches!(s, OwnerState::Waiting));
    let propagation = if waiting { Propagation::Foreground } else { Propagation::Background };
    let options = DeleteOptions {
        uid: Some(object.uid().to_owned()),
        propagation: Some(propagation),
        ..DeleteOptions::default()
    };
    match delete_object(api, entry, object.key(), &options, None).await {
        Ok(_) => waiting,
        Err(status) => status.code != 404 && status.code != 409,
    }
}

/// True if it must be tried again.
async fn remove_finalizer(api: &Arc<Api>, entry: &Entry, object: &Object, finalizer: &str) -> bool {
    let mut value = entry.typed(object.parse());
    let others: Vec<String> = meta::finalizers(&value).into_iter().filter(|f| f != finalizer).collect();
    meta::set_finalizers(&mut value, &others);
    let gone = others.is_empty();
    write::commit(api, entry, object.key(), Expect::Revision(object.revision), value, gone).await.is_err()
}
