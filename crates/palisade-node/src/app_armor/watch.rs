//! `AppArmorProfile` objects and the namespaces that allow the mode `Complain`, from any Kubernetes API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use palisade_base::causes::root_cause;
use palisade_model::profile::{
    apparmor_profile::{COMPLAIN_ALLOWED, COMPLAIN_LABEL, KIND, RESOURCE},
    published::{GROUP, VERSION},
};
use serde_json::Value;
use tokio::sync::Notify;
use tracing::warn;

/// Objects by namespace and name; none before they have all been seen.
type Known<T> = Option<BTreeMap<(String, String), T>>;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Watched {
    state: Mutex<State>,
    changes: Notify,
}

#[derive(Debug, Default)]
struct State {
    profiles: Known<Value>,
    /// Whether a namespace allows the mode `Complain`.
    namespaces: Known<bool>,
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when something has changed.
    pub(super) async fn changed(&self) {
        self.changes.notified().await;
    }

    /// The objects, and the namespaces that allow the mode; none before both have been seen.
    pub(super) fn known(&self) -> Option<(Vec<Value>, BTreeSet<String>)> {
        let state = self.lock();
        let (profiles, namespaces) = state.profiles.as_ref().zip(state.namespaces.as_ref())?;
        let allowed = namespaces.iter().filter(|(_, allows)| **allows).map(|((_, name), _)| name.clone());
        Some((profiles.values().cloned().collect(), allowed.collect()))
    }
}

/// Follows the profiles. Never returns while the API server can be watched again.
pub(super) async fn follow_profiles(client: Client, watched: Arc<Watched>) {
    let resource = ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: KIND.to_owned(),
        plural: RESOURCE.to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let read = |object: &DynamicObject| {
        // swallowed: what is not JSON any more is an object that cannot be read, and is reported as that
        let mut value = serde_json::to_value(object).unwrap_or(Value::Null);
        // Items of a list need not carry them.
        if let Value::Object(fields) = &mut value {
            fields.entry("apiVersion").or_insert_with(|| format!("{GROUP}/{VERSION}").into());
            fields.entry("kind").or_insert_with(|| KIND.into());
        }
        value
    };
    follow(events, "AppArmor profiles", read, |known| {
        watched.lock().profiles = known;
        watched.changes.notify_one();
    })
    .await;
}

/// Follows the labels of namespaces.
pub(super) async fn follow_namespaces(client: Client, watched: Arc<Watched>) {
    let resource = ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        plural: "namespaces".to_owned(),
    };
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &resource);
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let read = |object: &PartialObjectMeta<DynamicObject>| {
        object.labels().get(COMPLAIN_LABEL).is_some_and(|value| value == COMPLAIN_ALLOWED)
    };
    follow(events, "namespaces", read, |known| {
        watched.lock().namespaces = known;
        watched.changes.notify_one();
    })
    .await;
}

/// Follows a watch: `publish` gets everything that is known whenever that changes. A list counts once it is whole.
async fn follow<K, T>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    what: &str,
    read: impl Fn(&K) -> T,
    publish: impl Fn(Known<T>),
) where
    K: kube::Resource,
    T: Clone + PartialEq,
{
    let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
    let (mut known, mut listed): (Known<T>, BTreeMap<(String, String), T>) = (None, BTreeMap::new());
    let mut has_failed = false;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let before = known.clone();
        match event {
            Ok(Event::Init) => listed = BTreeMap::new(),
            Ok(Event::InitApply(object)) => drop(listed.insert(key(&object), read(&object))),
            Ok(Event::InitDone) => known = Some(std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => {
                known.get_or_insert_default().insert(key(&object), read(&object));
            }
            Ok(Event::Delete(object)) => {
                if let Some(known) = &mut known {
                    known.remove(&key(&object));
                }
            }
            Err(error) => {
                // A cluster without the kind does not have it for good.
                if !std::mem::replace(&mut has_failed, true) {
                    warn!(error = %root_cause(&error), "{what} cannot be watched");
                }
                continue;
            }
        }
        has_failed = false;
        if known != before {
            publish(known.clone());
        }
    }
}
