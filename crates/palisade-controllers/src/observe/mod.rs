//! The state of a running cluster: kept by watches, read by every controller.
//!
//! One state behind one lock, which is never held across an await. Controllers are notified of changes and read the state
//! then; until everything has been listed once no controller decides anything.

mod kinds;
pub(crate) mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use palisade_model::compat::Compat;
use palisade_policy::enforcement::{
    instances::{Configuration, Report, read_config_map, read_report},
    resource,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::{sync::watch as channel, task::JoinSet, time::Instant};

use self::{kinds::Watched, watch::WatchEvent};
use crate::{
    api::Api,
    cluster::{Cluster, WatchedPod},
    time,
};

pub(crate) use self::kinds::{CONFIG, CONSTRAINTS};

/// Everything that was observed.
#[derive(Debug, Default)]
pub struct State {
    /// Namespaces, workloads, grants, constraints.
    pub cluster: Cluster,
    /// The `PSAEnforcementConfig`; null if there is none.
    pub config: Value,
    /// Whether that kind exists.
    pub is_config_served: bool,
    /// The global configuration, if there is one that can be read.
    pub configuration: Option<Configuration>,
    /// What instances report, by the name of their Lease.
    pub reports: BTreeMap<String, SeenReport>,
    /// Kinds that have not been seen in full yet.
    waiting: BTreeSet<&'static str>,
    /// What cannot be watched at the moment, and why.
    failing: BTreeMap<&'static str, String>,
    /// Kinds that are being listed: controllers are notified at the end of a list, not of each object.
    in_list: BTreeSet<&'static str>,
    /// Names of objects other than pods and workloads, to find after a list which of them are gone.
    names: BTreeMap<&'static str, BTreeSet<(String, String)>>,
    listing: BTreeMap<&'static str, BTreeSet<(String, String)>>,
    /// Whether an object could not be decoded, which others of its name may make good.
    has_undecoded: bool,
}

/// What an instance reports, and when it was last seen to be renewed.
#[derive(Debug, Clone)]
pub struct SeenReport {
    /// What it reports.
    pub report: Report,
    since: Instant,
}

impl SeenReport {
    /// Whether it still counts. As in an election, only what was observed does: clocks need not agree.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.since.elapsed() <= Duration::from_secs(self.report.lasts.into())
    }
}

/// The name of an object, read without the rest of it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Name {
    name: String,
    namespace: String,
}

impl State {
    /// Whether everything has been seen once.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.waiting.is_empty()
    }

    /// What cannot be watched at the moment.
    #[must_use]
    pub fn failing(&self) -> Option<String> {
        let (kind, why) = self.failing.first_key_value()?;
        Some(format!("cannot watch {kind}: {why}"))
    }

    /// The `PSAEnforcementConfig` was seen. Answers to writes overtake watches, so an older one changes nothing.
    pub fn set_config(&mut self, object: Value) {
        let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
        if object["metadata"]["name"] != resource::NAME {
            return;
        }
        let is_same = self.config["metadata"]["uid"] == object["metadata"]["uid"];
        if is_same && version(&object).zip(version(&self.config)).is_some_and(|(new, old)| new < old) {
            return;
        }
        self.config = object;
    }

    /// The ConfigMap with the global configuration was seen.
    pub fn set_configuration(&mut self, object: &Value) {
        let known = self.configuration.take();
        self.configuration = read_config_map(object)
            .inspect_err(|error| tracing::warn!(%error, "failed to read the global configuration"))
            .ok()
            .map(|seen| seen.after(known));
    }

    /// A line for each instance, with the age of a late report.
    #[must_use]
    pub fn instances(&self) -> Vec<String> {
        let current = self.configuration.as_ref();
        self.reports
            .values()
            .map(|SeenReport { report, .. }| {
                let ago = time::seconds_since(&report.renewed);
                match ago.filter(|ago| *ago > i64::from(report.lasts)) {
                    Some(ago) => {
                        format!("{}; last report {ago} s ago, not counted", report.describe(current))
                    }
                    None => report.describe(current),
                }
            })
            .collect()
    }

    fn apply(&mut self, watched: Watched, event: WatchEvent<'_>) {
        match event {
            WatchEvent::Begin => self.begin(watched),
            WatchEvent::Present(object) => self.present(watched, object),
            WatchEvent::Gone(object) => {
                let Named { metadata } = serde_json::from_str(object).unwrap_or_default();
                self.gone(watched, &metadata.namespace, &metadata.name);
            }
            WatchEvent::End => {
                if watched == Watched::Config {
                    self.is_config_served = true;
                }
                self.end(watched);
            }
            WatchEvent::Missing => {
                if watched == Watched::Config {
                    self.is_config_served = false;
                }
                self.failing.remove(watched.name());
                self.begin(watched);
                self.end(watched);
            }
            WatchEvent::Failing(error) => {
                self.failing.insert(watched.name(), error.to_string());
            }
            WatchEvent::Working => {
                self.failing.remove(watched.name());
            }
        }
    }

    fn begin(&mut self, watched: Watched) {
        self.in_list.insert(watched.name());
        match watched {
            Watched::Pods => self.cluster.begin_list("", "Pod"),
            Watched::Workloads(kind) => self.cluster.begin_list(kind.group, kind.kind),
            _ => {
                self.listing.insert(watched.name(), BTreeSet::new());
            }
        }
    }

    fn end(&mut self, watched: Watched) {
        match watched {
            Watched::Pods => self.cluster.end_list("", "Pod"),
            Watched::Workloads(kind) => self.cluster.end_list(kind.group, kind.kind),
            _ => {
                let seen = self.listing.remove(watched.name()).unwrap_or_default();
                let known = self.names.get(watched.name()).cloned().unwrap_or_default();
                for (namespace, name) in known.difference(&seen) {
                    self.gone(watched, namespace, name);
                }
            }
        }
        self.waiting.remove(watched.name());
        self.in_list.remove(watched.name());
    }

    fn present(&mut self, watched: Watched, text: &str) {
        if watched == Watched::Pods {
            match serde_json::from_str::<WatchedPod<'_>>(text) {
                Ok(pod) => self.cluster.set_pod(pod),
                Err(error) => {
                    let Named { metadata } = serde_json::from_str(text).unwrap_or_default();
                    tracing::warn!(namespace = metadata.namespace, pod = metadata.name, %error, "failed to decode a pod");
                    let reason = format!("it cannot be decoded: {error}");
                    self.cluster.set_undecided("v1", "Pod", &metadata.namespace, &metadata.name, &reason);
                }
            }
            return;
        }
        let object = match serde_json::from_str::<Value>(text) {
            Ok(object) => object,
            Err(error) => {
                let Named { metadata } = serde_json::from_str(text).unwrap_or_default();
                let reason = format!("it cannot be decoded: {error}");
                tracing::warn!(kind = watched.name(), namespace = metadata.namespace, name = metadata.name, %error, "failed to decode an object");
                self.has_undecoded = true;
                let (api_version, kind) = match watched {
                    Watched::Workloads(kind) => (format!("{}/v1", kind.group), kind.kind),
                    _ => (String::new(), watched.name()),
                };
                self.cluster.set_undecided(&api_version, kind, &metadata.namespace, &metadata.name, &reason);
                return;
            }
        };
        if let Watched::Workloads(kind) = watched {
            // What cannot be judged is kept as undecided.
            let _ = self.cluster.set_workload(kind, &object);
            return;
        }
        let part = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (part("namespace"), part("name"));
        let scope = (!namespace.is_empty()).then_some(namespace.as_str());
        if self.has_undecoded {
            self.cluster.remove_undecided("", watched.name(), &namespace, &name);
        }
        match watched {
            Watched::Namespaces => self.cluster.set_namespace(&object),
            Watched::ServiceAccounts => self.cluster.set_service_account(&namespace, &name),
            Watched::Roles | Watched::ClusterRoles => self.cluster.set_role(scope, &name, Some(&object)),
            Watched::RoleBindings | Watched::ClusterRoleBindings => {
                self.cluster.set_binding(scope, &name, Some(&object));
            }
            Watched::Constraints => self.cluster.set_constraint(&object),
            Watched::Config => self.set_config(object),
            Watched::ConfigMap => self.set_configuration(&object),
            Watched::Instances => {
                if let Some(report) = read_report(&object) {
                    let known =
                        self.reports.remove(&name).filter(|known| known.report.renewed == report.renewed);
                    let since = known.map_or_else(Instant::now, |known| known.since);
                    self.reports.insert(name.clone(), SeenReport { report, since });
                }
            }
            Watched::Pods | Watched::Workloads(_) => {}
        }
        let key = (namespace, name);
        if let Some(seen) = self.listing.get_mut(watched.name()) {
            seen.insert(key.clone());
        }
        self.names.entry(watched.name()).or_default().insert(key);
    }

    fn gone(&mut self, watched: Watched, namespace: &str, name: &str) {
        let scope = (!namespace.is_empty()).then_some(namespace);
        if self.has_undecoded {
            self.cluster.remove_undecided("", watched.name(), namespace, name);
        }
        match watched {
            Watched::Namespaces => self.cluster.remove_namespace(name),
            Watched::Pods => self.cluster.remove_pod(namespace, name),
            Watched::ServiceAccounts => self.cluster.remove_service_account(namespace, name),
            Watched::Workloads(kind) => self.cluster.remove_workload(kind, namespace, name),
            Watched::Roles | Watched::ClusterRoles => self.cluster.set_role(scope, name, None),
            Watched::RoleBindings | Watched::ClusterRoleBindings => {
                self.cluster.set_binding(scope, name, None);
            }
            Watched::Constraints => self.cluster.remove_constraint(name),
            Watched::Config => {
                if name == resource::NAME {
                    self.config = Value::Null;
                }
            }
            Watched::ConfigMap => self.configuration = None,
            Watched::Instances => {
                self.reports.remove(name);
            }
        }
        if let Some(names) = self.names.get_mut(watched.name()) {
            names.remove(&(namespace.to_owned(), name.to_owned()));
        }
    }
}

/// The state, shared, and the news that it changed.
#[derive(Debug)]
pub struct Observed {
    state: Mutex<State>,
    changes: channel::Sender<u64>,
}

impl Observed {
    /// Nothing is known yet but whose rules the API server applies.
    #[must_use]
    pub fn new(compat: Compat) -> Arc<Self> {
        let state = State {
            cluster: Cluster::new(compat),
            waiting: Watched::all().into_iter().map(Watched::name).collect(),
            ..State::default()
        };
        Arc::new(Self { state: Mutex::new(state), changes: channel::Sender::new(0) })
    }

    /// The state. Not to be held while waiting.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A panic falls between two changes of a map; what is missing then is as if a watch had not reported it.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notifications of changes.
    #[must_use]
    pub fn subscribe(&self) -> channel::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notifies every subscriber.
    pub fn notify(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns when everything has been seen once.
    pub async fn synced(&self) {
        let mut changes = self.subscribe();
        while !self.lock().has_synced() {
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Starts all watches. They end when the set is dropped.
    #[must_use]
    pub fn watch(self: &Arc<Self>, api: &Api) -> JoinSet<()> {
        let mut watches = JoinSet::new();
        for watched in Watched::all() {
            let (observed, api) = (Arc::clone(self), api.clone());
            watches.spawn(async move {
                let target = watched.target();
                watch::follow(&api, &target, |event| observed.apply(watched, event)).await;
            });
        }
        watches
    }

    fn apply(&self, watched: Watched, event: WatchEvent<'_>) {
        let is_news = {
            let mut state = self.lock();
            state.apply(watched, event);
            matches!(event, WatchEvent::Failing(_)) || !state.in_list.contains(watched.name())
        };
        if is_news {
            self.notify();
        }
    }
}
