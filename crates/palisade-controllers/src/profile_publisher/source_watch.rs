//! Watches the ConfigMaps that pods name as sources of their profiles.
//!
//! RBAC cannot express "the ConfigMaps that pods name", so as little as possible is requested: metadata only, in the
//! namespaces that have such pods, and nothing where there are none. An event yields a name and is not kept. A watch that is
//! rejected or broken only costs time: ConfigMaps are also read at an interval.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use tokio::{sync::mpsc, task::AbortHandle};
use tracing::{debug, warn};

/// In more namespaces than these the whole cluster is watched: connections carry only so many watches.
const MOST_NAMESPACES: usize = 8;
/// Events that may wait to be received.
const WAITING: usize = 64;
/// Every namespace has this one, and no profile is in it.
const EVERYWHERE: &str = "metadata.name!=kube-root-ca.crt";

/// What may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Touched {
    /// A ConfigMap was written or deleted.
    One {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A watch begins: anything may have changed before, in one namespace or in all.
    AllIn(Option<String>),
}

/// The watches that are needed now.
pub(super) struct SourceWatch {
    client: Client,
    /// By namespace; `None` is the whole cluster.
    running: BTreeMap<Option<String>, Running>,
    sender: mpsc::Sender<Touched>,
    events: mpsc::Receiver<Touched>,
}

struct Running(AbortHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SourceWatch {
    pub(super) fn new(client: Client) -> Self {
        let (sender, events) = mpsc::channel(WAITING);
        Self { client, running: BTreeMap::new(), sender, events }
    }

    /// Watches what these namespaces need, and no more.
    pub(super) fn cover(&mut self, namespaces: &BTreeSet<&str>) {
        let wanted = scopes(namespaces);
        self.running.retain(|scope, _| wanted.contains(scope));
        for scope in wanted {
            self.running.entry(scope).or_insert_with_key(|scope| {
                let api = match scope {
                    Some(namespace) => Api::namespaced(self.client.clone(), namespace),
                    None => Api::all(self.client.clone()),
                };
                let watching = tokio::spawn(watch(api, scope.clone(), self.sender.clone()));
                Running(watching.abort_handle())
            });
        }
    }

    /// The next change.
    pub(super) async fn next(&mut self) -> Touched {
        match self.events.recv().await {
            Some(touched) => touched,
            // Never: a sender is kept here.
            None => std::future::pending().await,
        }
    }
}

fn scopes(namespaces: &BTreeSet<&str>) -> BTreeSet<Option<String>> {
    if namespaces.len() > MOST_NAMESPACES {
        return [None].into();
    }
    namespaces.iter().map(|namespace| Some((*namespace).to_owned())).collect()
}

async fn watch(api: Api<PartialObjectMeta<ConfigMap>>, scope: Option<String>, sender: mpsc::Sender<Touched>) {
    let config = watcher::Config::default().fields(EVERYWHERE);
    let mut events = watcher::watcher(api, config).default_backoff().boxed();
    let mut logged = None;
    while let Some(event) = events.next().await {
        let touched = match event {
            // What is there is read as a whole once all of it is known to be covered.
            Ok(Event::Init | Event::InitApply(_)) => continue,
            Ok(Event::InitDone) => {
                logged = None;
                debug!(namespace = scope, "ConfigMaps are watched");
                Touched::AllIn(scope.clone())
            }
            Ok(Event::Apply(map) | Event::Delete(map)) => {
                Touched::One { namespace: map.namespace().unwrap_or_default(), name: map.name_any() }
            }
            Err(error) => {
                let text = error.to_string();
                if logged.as_ref() != Some(&text) {
                    warn!(
                        error = text,
                        namespace = scope,
                        "failed to watch ConfigMaps; they are read at an interval"
                    );
                    logged = Some(text);
                }
                continue;
            }
        };
        if sender.send(touched).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{MOST_NAMESPACES, scopes};

    #[test]
    fn a_few_namespaces_are_watched_one_by_one_and_many_together() {
        assert_eq!(scopes(&BTreeSet::new()), BTreeSet::new(), "without such pods nothing is watched");
        let few = scopes(&["a", "b"].into());
        assert_eq!(few, [Some("a".to_owned()), Some("b".to_owned())].into());
        let names: Vec<String> = (0..=MOST_NAMESPACES).map(|number| format!("n{number}")).collect();
        assert_eq!(scopes(&names.iter().map(String::as_str).collect()), [None].into());
    }
}
