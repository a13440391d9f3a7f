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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    Absent,
    /// Being deleted, and waiting for its dependents.
    Waiting,
    Solid,
    /// Not known: the dependent stays as it is.
    Unresolved,
}

/// What becomes of an object that is not being deleted.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    /// It stays with those of its owners that do.
    LosesOwners(Vec<String>),
    /// It goes, and its own dependents before it; a waiting one of them no longer holds it up.
    GoesAfterDependents,
    /// It goes as its own finalizers have it.
    Goes,
}

/// Decides from the owners, in the order of the references, and from whether the object has dependents.
fn fate(owners: &[(&str, OwnerState)], has_dependents: bool) -> Fate {
    let any = |state| owners.iter().any(|(_, found)| *found == state);
    if owners.is_empty() || any(OwnerState::Unresolved) {
        return Fate::Stays;
    }
    if any(OwnerState::Solid) {
        let going = owners.iter().filter(|(_, state)| *state != OwnerState::Solid);
        let going: Vec<String> = going.map(|(uid, _)| (*uid).to_owned()).collect();
        return if going.is_empty() { Fate::Stays } else { Fate::LosesOwners(going) };
    }
    if any(OwnerState::Waiting) && has_dependents { Fate::GoesAfterDependents } else { Fate::Goes }
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
                self.follow_owners(api, &served, entry, &object, &facts).await
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
            let leave = |owners: &mut Vec<Value>| owners.retain(|o| uid_of(o) != owner.uid());
            if !edit_owners(api, dependent_entry, &stored, leave).await {
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
            self.follow_owners(api, served, dependent_entry, &dependent, &facts).await;
        }
        if blocked {
            return true;
        }
        remove_finalizer(api, entry, owner, FOREGROUND).await
    }

    /// Deletes an object none of whose owners is there to stay. True if it must be looked at again.
    async fn follow_owners(
        &self,
        api: &Arc<Api>,
        served: &Served,
        entry: &Entry,
        object: &Object,
        facts: &Ownership,
    ) -> bool {
        if facts.owner_references.is_empty() || facts.deletion_timestamp.is_some() {
            return false;
        }
        let owners: Vec<(&str, OwnerState)> = facts
            .owner_references
            .iter()
            .map(|owner| (owner.uid.as_str(), owner_state(served, owner, object.namespace())))
            .collect();
        let propagation = match fate(&owners, self.dependents.contains_key(object.uid())) {
            Fate::Stays => return false,
            Fate::LosesOwners(going) => {
                let leave = |owners: &mut Vec<Value>| {
                    owners.retain(|o| !going.iter().any(|uid| uid == uid_of(o)));
                };
                return !edit_owners(api, entry, object, leave).await;
            }
            Fate::GoesAfterDependents => {
                // A dependent that waits for its own dependents may wait for this object: a circle.
                let circle = self.dependents_of(object.uid()).iter().any(|place| waits(served, place));
                if circle && facts.owner_references.iter().any(|owner| owner.block_owner_deletion) {
                    edit_owners(api, entry, object, |owners| {
                        for owner in owners.iter_mut().filter_map(Value::as_object_mut) {
                            owner.insert("blockOwnerDeletion".to_owned(), false.into());
                        }
                    })
                    .await;
                }
                Propagation::Foreground
            }
            Fate::Goes if facts.finalizers.iter().any(|f| f == ORPHAN) => Propagation::Orphan,
            Fate::Goes if facts.finalizers.iter().any(|f| f == FOREGROUND) => Propagation::Foreground,
            Fate::Goes => Propagation::Background,
        };
        let options = DeleteOptions {
            uid: Some(object.uid().to_owned()),
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        match delete_object(api, entry, object.key(), &options, None).await {
            Ok(_) => propagation == Propagation::Foreground,
            Err(status) => status.code != 404 && status.code != 409,
        }
    }
}

/// Whether an object is being deleted, and waits for its dependents.
fn waits(served: &Served, place: &Place) -> bool {
    let object = entry_of(served, &place.0).and_then(|entry| entry.bucket.get(&place.1));
    object.is_some_and(|object| is_waiting(&ownership(&object)))
}

fn is_waiting(facts: &Ownership) -> bool {
    facts.deletion_timestamp.is_some() && facts.finalizers.iter().any(|f| f == FOREGROUND)
}

fn uid_of(owner: &Value) -> &str {
    owner.get("uid").and_then(Value::as_str).unwrap_or_default()
}

/// Changes the owner references of an object. False if another write came first.
async fn edit_owners(
    api: &Arc<Api>,
    entry: &Entry,
    stored: &Object,
    edit: impl FnOnce(&mut Vec<Value>),
) -> bool {
    let mut object = entry.as_stored(stored);
    meta::edit_metadata(&mut object, |metadata| {
        let owners = metadata.get("ownerReferences").and_then(Value::as_array);
        let mut owners = owners.cloned().unwrap_or_default();
        edit(&mut owners);
        if owners.is_empty() {
            metadata.remove("ownerReferences");
        } else {
            metadata.insert("ownerReferences".to_owned(), owners.into());
        }
    });
    let expect = Expect::Revision(stored.revision);
    write::commit(api, entry, stored.key(), expect, object, false).await.is_ok()
}

fn entry_of<'a>(served: &'a Served, bucket: &str) -> Option<&'a Arc<Entry>> {
    served.entries.iter().find(|e| &**e.bucket.name() == bucket && e.has_verb("delete"))
}

fn owner_state(served: &Served, owner: &Owner, namespace: &str) -> OwnerState {
    let Some(entry) = served.by_kind(&owner.api_version, &owner.kind) else {
        // A kind that is not served may be served later.
        return OwnerState::Unresolved;
    };
    if entry.kind.namespaced && namespace.is_empty() {
        // What has no namespace cannot name an owner in one.
        return OwnerState::Unresolved;
    }
    match entry.bucket.get(&entry.key(namespace, &owner.name)) {
        Some(object) if object.uid() == owner.uid => {
            if is_waiting(&ownership(&object)) {
                OwnerState::Waiting
            } else {
                OwnerState::Solid
            }
        }
        _ => OwnerState::Absent,
    }
}

/// True if it must be tried again.
async fn remove_finalizer(api: &Arc<Api>, entry: &Entry, object: &Object, finalizer: &str) -> bool {
    let mut value = entry.as_stored(object);
    let others: Vec<String> = meta::finalizers(&value).into_iter().filter(|f| f != finalizer).collect();
    meta::set_finalizers(&mut value, &others);
    let gone = others.is_empty();
    write::commit(api, entry, object.key(), Expect::Revision(object.revision), value, gone).await.is_err()
}

#[cfg(test)]
mod tests {
    use super::OwnerState::{Absent, Solid, Unresolved, Waiting};
    use super::*;

    #[test]
    fn an_object_goes_when_no_owner_stays() {
        let loses = |uids: &[&str]| Fate::LosesOwners(uids.iter().map(|uid| (*uid).to_owned()).collect());
        for (case, owners, has_dependents, expected) in [
            ("no owner", &[][..], true, Fate::Stays),
            ("an owner that stays", &[("a", Solid)], true, Fate::Stays),
            ("one that stays, one gone", &[("a", Solid), ("b", Absent)], false, loses(&["b"])),
            ("one that stays, one that waits", &[("a", Waiting), ("b", Solid)], true, loses(&["a"])),
            ("all gone", &[("a", Absent), ("b", Absent)], true, Fate::Goes),
            ("one that waits", &[("a", Waiting)], false, Fate::Goes),
            ("one that waits, with dependents", &[("a", Waiting)], true, Fate::GoesAfterDependents),
            ("one gone, one that waits", &[("a", Absent), ("b", Waiting)], true, Fate::GoesAfterDependents),
            ("an unknown one", &[("a", Absent), ("b", Unresolved)], true, Fate::Stays),
        ] {
            assert_eq!(fate(owners, has_dependents), expected, "{case}");
        }
    }
}
