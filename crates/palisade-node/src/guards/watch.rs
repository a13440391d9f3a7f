//! Guards and the labels of namespaces, from any Kubernetes API server; and the plugin, kept connected.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _, stream};
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
use palisade_model::{
    guard::{KIND, RESOURCE, SyscallGuard},
    profile::published::{GROUP, VERSION},
};
use tracing::warn;

use super::{GuardChange, Guards, KnownGuard};
use crate::nri::plugin;

pub(crate) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

fn known(object: &DynamicObject) -> (String, KnownGuard) {
    let generation = object.metadata.generation.unwrap_or_default();
    let read =
        serde_json::to_value(object).map_err(|error| super::UnreadableGuard(error.to_string())).and_then(
            |object| SyscallGuard::read(&object).map_err(|error| super::UnreadableGuard(error.to_string())),
        );
    (object.name_any(), KnownGuard { generation, read })
}

/// The changes of a watch: what begins a list is gathered until it is whole.
pub(crate) fn changes<K, V: Send + 'static, C: Clone + PartialEq + Send + 'static>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
    what: &'static str,
    read: impl Fn(&K) -> (String, V) + Send + Sync + Copy + 'static,
    all: impl Fn(BTreeMap<String, V>) -> C + Send + Copy + 'static,
    one: impl Fn(String, V) -> C + Send + Copy + 'static,
    gone: impl Fn(String) -> C + Send + Copy + 'static,
    unavailable: C,
) -> impl Stream<Item = C> + Send + 'static
where
    K: Send + 'static,
{
    let state = (Box::pin(events), BTreeMap::new(), false, unavailable);
    stream::unfold(state, move |(mut events, mut list, mut failed, unavailable)| async move {
        loop {
            let change = match events.next().await? {
                Ok(Event::Init) => {
                    list = BTreeMap::new();
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    let (name, value) = read(&object);
                    list.insert(name, value);
                    continue;
                }
                Ok(Event::InitDone) => all(std::mem::take(&mut list)),
                Ok(Event::Apply(object)) => {
                    let (name, value) = read(&object);
                    one(name, value)
                }
                Ok(Event::Delete(object)) => gone(read(&object).0),
                Err(error) => {
                    // A cluster without the kind does not have it for good.
                    if !failed {
                        warn!(error = %root_cause(&error), "{what} cannot be watched");
                    }
                    if std::mem::replace(&mut failed, true) {
                        continue;
                    }
                    unavailable.clone()
                }
            };
            let failed = change == unavailable;
            return Some((change, (events, list, failed, unavailable)));
        }
    })
}

/// Every guard and the labels of every namespace, then each change.
pub fn guard_changes(client: Client) -> impl Stream<Item = GuardChange> + Send + Unpin + 'static {
    let guards: Api<DynamicObject> = Api::all_with(client.clone(), &resource(GROUP, VERSION, KIND, RESOURCE));
    let guards = watcher::watcher(guards, watcher::Config::default()).default_backoff();
    let guards = changes(
        guards,
        "system call guards",
        known,
        GuardChange::All,
        |name, guard| GuardChange::Set(name, Box::new(guard)),
        GuardChange::Gone,
        GuardChange::Unavailable,
    );
    let namespaces: Api<PartialObjectMeta<DynamicObject>> =
        Api::all_with(client, &resource("", "v1", "Namespace", "namespaces"));
    let namespaces = watcher::watcher(namespaces, watcher::Config::default()).default_backoff();
    let namespaces = changes(
        namespaces,
        "namespaces",
        |object: &PartialObjectMeta<DynamicObject>| (object.name_any(), object.labels().clone()),
        GuardChange::AllNamespaces,
        GuardChange::Namespace,
        GuardChange::NamespaceGone,
        GuardChange::Unavailable,
    );
    Box::pin(stream::select(guards, namespaces))
}

/// After a failure, the first and the longest wait.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Keeps the plugin registered. A runtime without the socket has no NRI, or does not run at the moment.
pub async fn keep_plugin(socket: PathBuf, guards: Arc<Guards>) {
    let mut wait = RETRY.0;
    let mut reported = String::new();
    loop {
        let error = plugin::serve(&socket, guards.as_ref()).await;
        if guards.plugin().is_some() {
            wait = RETRY.0;
            reported.clear();
        }
        guards.plugin_left();
        let text = error.to_string();
        if text != reported {
            warn!(socket = %socket.display(), error = %text, "not registered with the container runtime: guards reach no new containers");
            reported = text;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}
