//! The objects of a kind as the API server has them, by name and by owner; one for all controllers.
//!
//! A controller's own writes are in it as soon as they are answered, so that it never acts twice on what it has already
//! done: resource versions decide which of two states is the newer one, and an object that the controller has deleted does
//! not come back with an event that was sent before.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tokio::sync::watch;

use super::meta::{Key, Meta};
use crate::observe::watch::WatchEvent;

/// An object that can be mirrored.
pub trait Mirrored: Send + Sync + Sized + 'static {
    /// Reads it.
    fn read(json: &str) -> Result<Self, serde_json::Error>;
    /// Its metadata.
    fn meta(&self) -> &Meta;
}

/// A change: the object before, and after.
type Handler<K> = Box<dyn Fn(Option<&K>, Option<&K>) + Send + Sync>;

struct State<K> {
    objects: BTreeMap<Key, Arc<K>>,
    by_owner: HashMap<Box<str>, BTreeSet<Key>>,
    /// Uids of objects that are deleted, and whose event has not come yet.
    deleted: HashSet<Box<str>>,
    /// While all objects are listed: those that have come.
    listed: Option<BTreeSet<Key>>,
}

/// The objects of a kind.
pub struct Mirror<K> {
    state: RwLock<State<K>>,
    handlers: RwLock<Vec<Handler<K>>>,
    ready: watch::Sender<bool>,
}

impl<K> std::fmt::Debug for Mirror<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").finish_non_exhaustive()
    }
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        let state = State {
            objects: BTreeMap::new(),
            by_owner: HashMap::new(),
            deleted: HashSet::new(),
            listed: None,
        };
        Self { state: RwLock::new(state), handlers: RwLock::default(), ready: watch::Sender::new(false) }
    }
}

impl<K: Mirrored> Mirror<K> {
    /// Calls a function for every change.
    pub fn on_change(&self, handler: impl Fn(Option<&K>, Option<&K>) + Send + Sync + 'static) {
        self.handlers.write().unwrap_or_else(std::sync::PoisonError::into_inner).push(Box::new(handler));
    }

    /// Returns once all objects have been listed.
    pub async fn synced(&self) {
        // The sender is this object.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// An object.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned()
    }

    /// The objects of a namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let first = Key::new(namespace, "");
        let state = self.read();
        state
            .objects
            .range(first..)
            .take_while(|(key, _)| &*key.namespace == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// The objects that have this managing controller.
    #[must_use]
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let state = self.read();
        let keys = state.by_owner.get(uid).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// Every object.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    /// The objects that no controller manages, of a namespace.
    #[must_use]
    pub fn without_controller(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.read();
        let keys = state.by_owner.get("").into_iter().flatten();
        keys.filter(|key| &*key.namespace == namespace)
            .filter_map(|key| state.objects.get(key).cloned())
            .collect()
    }

    /// Takes over what the API server returned for a write.
    pub fn put(&self, object: K) -> Arc<K> {
        let object = Arc::new(object);
        self.write().insert(object.clone());
        object
    }

    /// Removes an object that is deleted.
    pub fn forget(&self, meta: &Meta) {
        let mut state = self.write();
        let key = meta.key();
        if state.objects.get(&key).is_some_and(|known| known.meta().uid == meta.uid) {
            state.remove(&key);
            state.deleted.insert(meta.uid.clone());
        }
    }

    /// Takes over an event of a watch, and calls the handlers.
    pub(crate) fn apply(&self, event: WatchEvent<'_>) {
        match event {
            WatchEvent::Begin => self.write().listed = Some(BTreeSet::new()),
            WatchEvent::Present(json) => match K::read(json) {
                Ok(object) => {
                    let object = Arc::new(object);
                    let (before, after) = self.write().insert(object);
                    self.notify(before.as_deref(), after.as_deref());
                }
                Err(error) => tracing::warn!(%error, "an object cannot be read and is ignored"),
            },
            WatchEvent::Gone(json) => match K::read(json) {
                Ok(object) => {
                    let meta = object.meta();
                    let before = {
                        let mut state = self.write();
                        state.deleted.remove(&meta.uid);
                        let key = meta.key();
                        let is_it = state.objects.get(&key).is_some_and(|known| known.meta().uid == meta.uid);
                        if is_it { state.remove(&key) } else { None }
                    };
                    self.notify(Some(before.as_deref().unwrap_or(&object)), None);
                }
                Err(error) => tracing::warn!(%error, "an object cannot be read and is ignored"),
            },
            WatchEvent::End | WatchEvent::Missing => {
                let gone = self.write().end_of_list();
                for object in gone {
                    self.notify(Some(&object), None);
                }
                self.ready.send_replace(true);
            }
            WatchEvent::Failing(_) | WatchEvent::Working => {}
        }
    }

    fn notify(&self, before: Option<&K>, after: Option<&K>) {
        if before.is_none() && after.is_none() {
            return;
        }
        for handler in &*self.handlers.read().unwrap_or_else(std::sync::PoisonError::into_inner) {
            handler(before, after);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State<K>> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<K>> {
        self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<K: Mirrored> State<K> {
    /// The state before and after: the newer of the two stays.
    fn insert(&mut self, object: Arc<K>) -> (Option<Arc<K>>, Option<Arc<K>>) {
        let key = object.meta().key();
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
        if self.deleted.contains(&object.meta().uid) {
            return (None, None);
        }
        let before = self.objects.get(&key).cloned();
        if before.as_ref().is_some_and(|known| known.meta().revision >= object.meta().revision) {
            return (before.clone(), before);
        }
        if before.is_some() {
            self.remove(&key);
        }
        self.by_owner.entry(controller_uid(&*object)).or_default().insert(key.clone());
        self.objects.insert(key, object.clone());
        (before, Some(object))
    }

    fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let object = self.objects.remove(key)?;
        let uid = controller_uid(&*object);
        if let Some(keys) = self.by_owner.get_mut(&uid) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_owner.remove(&uid);
            }
        }
        Some(object)
    }

    /// What was there and has not been listed is gone.
    fn end_of_list(&mut self) -> Vec<Arc<K>> {
        self.deleted.clear();
        let listed = self.listed.take().unwrap_or_default();
        let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.iter().filter_map(|key| self.remove(key)).collect()
    }
}

fn controller_uid<K: Mirrored>(object: &K) -> Box<str> {
    object.meta().controller().map(|owner| owner.uid.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Mirror, Mirrored as _};
    use crate::{
        observe::watch::WatchEvent,
        workloads::{meta::Key, pod::Pod},
    };

    fn json(name: &str, uid: &str, revision: u64, owner: &str) -> String {
        format!(
            r#"{{"metadata":{{"namespace":"n","name":"{name}","uid":"{uid}","resourceVersion":"{revision}",
                "ownerReferences":[{{"uid":"{owner}","controller":true}}]}}}}"#
        )
    }

    fn revision(mirror: &Mirror<Pod>, name: &str) -> Option<u64> {
        mirror.get(&Key::new("n", name)).map(|pod| pod.meta.revision)
    }

    #[test]
    fn the_newer_state_stays() {
        let mirror = Mirror::<Pod>::default();
        mirror.put(Pod::read(&json("a", "1", 5, "x")).unwrap());
        mirror.apply(WatchEvent::Present(&json("a", "1", 4, "x")));
        assert_eq!(revision(&mirror, "a"), Some(5));
        mirror.apply(WatchEvent::Present(&json("a", "1", 6, "y")));
        assert_eq!(revision(&mirror, "a"), Some(6));
        assert!(mirror.controlled_by("x").is_empty());
        assert_eq!(mirror.controlled_by("y").len(), 1);
    }

    #[test]
    fn what_was_deleted_does_not_come_back_with_an_older_event() {
        let mirror = Mirror::<Pod>::default();
        let pod = mirror.put(Pod::read(&json("a", "1", 5, "x")).unwrap());
        mirror.forget(&pod.meta);
        mirror.apply(WatchEvent::Present(&json("a", "1", 5, "x")));
        assert_eq!(revision(&mirror, "a"), None);
        mirror.apply(WatchEvent::Gone(&json("a", "1", 7, "x")));
        mirror.apply(WatchEvent::Present(&json("a", "2", 8, "x")));
        assert_eq!(revision(&mirror, "a"), Some(8), "another object of that name");
        mirror.apply(WatchEvent::Gone(&json("a", "1", 7, "x")));
        assert_eq!(revision(&mirror, "a"), Some(8), "the end of the first is not the end of the second");
    }

    #[test]
    fn what_a_new_list_does_not_have_is_gone() {
        let mirror = Mirror::<Pod>::default();
        mirror.apply(WatchEvent::Present(&json("a", "1", 1, "x")));
        mirror.apply(WatchEvent::Begin);
        mirror.apply(WatchEvent::Present(&json("b", "2", 2, "x")));
        mirror.apply(WatchEvent::End);
        assert_eq!((revision(&mirror, "a"), revision(&mirror, "b")), (None, Some(2)));
        assert_eq!(mirror.controlled_by("x").len(), 1);
    }
}
