//! Follows one kind of object, for as long as the webhook runs.
//!
//! Implements: Kubernetes API Concepts, "Efficient detection of changes", by kube's watcher. A kind that is not served is
//! known to have no objects; that it may be installed later is why it is requested again.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt as _;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
    runtime::watcher::{self, Event},
};
use palisade_base::causes::root_cause;

/// The first and the longest pause after an error.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// The pause before a kind that is not served is requested again.
const ABSENT: Duration = Duration::from_secs(5);
/// The pause before a kind that may not be listed is requested again.
const FORBIDDEN: Duration = Duration::from_secs(30);

/// Whether a watch has seen everything.
#[derive(Debug, Default)]
pub(crate) struct Status(AtomicBool);

impl Status {
    pub(crate) fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A change that a watch reports.
pub(crate) enum Change<T> {
    /// These are all there are.
    All(Vec<T>),
    /// This is new, or has changed.
    Put(T),
    /// This is gone.
    Gone(T),
}

impl<T> Change<(String, T)> {
    /// Makes the change to objects by their name.
    pub(crate) fn make(self, by_name: &mut BTreeMap<String, T>) {
        match self {
            Self::All(items) => *by_name = items.into_iter().collect(),
            Self::Put((name, item)) => drop(by_name.insert(name, item)),
            Self::Gone((name, _)) => drop(by_name.remove(&name)),
        }
    }
}

/// Keeps the objects of a watch.
pub(crate) trait Keep: Send + Sync + 'static {
    /// What is kept of an object.
    type Item: Send;
    /// Reads an object.
    fn read(&self, object: DynamicObject) -> Self::Item;
    /// Takes a change in.
    fn take(&self, change: Change<Self::Item>);
    /// Whether everything has been seen.
    fn status(&self) -> &Status;
    /// Whether to go on without objects that the webhook may not list, as if there were none.
    fn can_be_forbidden(&self) -> bool {
        false
    }
}

/// Follows all objects of a kind, in all namespaces.
pub(crate) async fn follow<K: Keep>(client: Client, resource: ApiResource, keep: Arc<K>) {
    let what = resource.plural.clone();
    follow_in(Api::all_with(client, &resource), watcher::Config::default(), &what, keep).await;
}

/// Follows the objects that an API and a selector name.
pub(crate) async fn follow_in<K: Keep>(
    api: Api<DynamicObject>,
    config: watcher::Config,
    what: &str,
    keep: Arc<K>,
) {
    let mut events = watcher::watcher(api, config).boxed();
    let (mut listed, mut pause) = (Vec::new(), PAUSE.0);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                pause = PAUSE.0;
                match event {
                    Event::Init => listed = Vec::new(),
                    Event::InitApply(object) => listed.push(keep.read(object)),
                    Event::InitDone => {
                        keep.take(Change::All(std::mem::take(&mut listed)));
                        ready(&*keep, what);
                    }
                    Event::Apply(object) => keep.take(Change::Put(keep.read(object))),
                    Event::Delete(object) => keep.take(Change::Gone(keep.read(object))),
                }
            }
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404 => {
                keep.take(Change::All(Vec::new()));
                ready(&*keep, what);
                tokio::time::sleep(ABSENT).await;
            }
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status)))
                if status.code == 403 && keep.can_be_forbidden() =>
            {
                tracing::warn!(what, error = status.message, "cannot list objects; none of them counts");
                keep.take(Change::All(Vec::new()));
                ready(&*keep, what);
                tokio::time::sleep(FORBIDDEN).await;
            }
            Err(error) => {
                let error = root_cause(&error).to_string();
                tracing::warn!(what, error, "watch interrupted; what was seen stays in use");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
            }
        }
    }
}

fn ready<K: Keep>(keep: &K, what: &str) {
    if !keep.status().0.swap(true, Ordering::AcqRel) {
        tracing::info!(what, "watch complete");
    }
}
