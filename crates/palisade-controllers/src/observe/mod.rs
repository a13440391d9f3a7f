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
use palisade_policy::{
    enforcement::{
        feature_gate,
        instances::{Configuration, Report, read_config_map, read_report},
        level::LevelSource,
        platform::{KUBE_APISERVER, Platform, read_kube_apiserver},
        resource,
        waves::{self, Rollout},
    },
    exceptions::set::ExceptionSet,
    standards::level::Level,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::watch as channel,
    task::JoinSet,
    time::{Instant, sleep},
};

use self::{kinds::Watched, watch::WatchEvent};
use crate::{
    api::Api,
    cluster::Cluster,
    config_observer::plan::{instances, requested},
    time,
};

pub use self::kinds::ROLLOUT;
pub(crate) use self::kinds::{CONFIG, CONSTRAINTS, version_of};

/// How often the time is compared with the end of exceptions, at least.
const CLOCK_CHECK: Duration = Duration::from_mins(1);

/// What a rollout depends on, which decides what is watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scope {
    /// Where levels come from.
    pub levels: LevelSource,
    /// What the cluster is.
    pub platform: Platform,
    /// Whether only workloads and their events are watched: no controller of a rollout runs, and its rights may be missing.
    pub workloads_only: bool,
    /// Whether pods and exceptions are watched too, because reports are written.
    pub reports: bool,
    /// Whether what exceptions accept counts as compliant.
    pub count_exceptions: bool,
}

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
    /// The `PodSecurityRollout`; null if there is none.
    pub rollout: Value,
    /// Whether the cluster's own `FeatureGate` enables the rollout; `None` if it has none.
    pub gate: Option<bool>,
    /// What the cluster is.
    pub platform: Platform,
    /// The `SecurityException` objects, by name, where reports are written or exceptions count.
    pub exceptions: BTreeMap<String, Value>,
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
    /// Seen just now.
    #[must_use]
    pub fn now(report: Report) -> Self {
        Self { report, since: Instant::now() }
    }

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

    /// The `PodSecurityRollout` was seen. As above, an older one changes nothing.
    pub fn set_rollout(&mut self, object: Value) {
        let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
        if object["metadata"]["name"] != waves::NAME {
            return;
        }
        let is_same = self.rollout["metadata"]["uid"] == object["metadata"]["uid"];
        if is_same && version(&object).zip(version(&self.rollout)).is_some_and(|(new, old)| new < old) {
            return;
        }
        self.rollout = object;
    }

    /// The waves, if there are any.
    #[must_use]
    pub fn waves(&self) -> Option<Rollout> {
        (!self.rollout.is_null()).then(|| Rollout::read(&self.rollout))
    }

    /// Passes on what the index depends on besides objects: the day, and what is enforced where there is no label.
    pub fn catch_up(&mut self) {
        self.cluster.set_today(time::today());
        self.cluster.set_now(time::now());
        let current = self.configuration.as_ref();
        let alive = self.reports.values().filter(|seen| seen.is_alive()).map(|seen| &seen.report);
        let enforces = requested(current) == Level::Restricted
            || instances(alive, current) != palisade_policy::enforcement::state::Instances::None;
        self.cluster.set_default_enforce(Some(if enforces { Level::Restricted } else { Level::Privileged }));
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
        self.count_exceptions(watched);
    }

    /// Passes exceptions on, once all that are listed are there.
    fn count_exceptions(&mut self, watched: Watched) {
        let is_whole = !self.in_list.contains(watched.name());
        if watched == Watched::Exceptions && is_whole && self.cluster.counts_exceptions() {
            self.cluster.set_exceptions(ExceptionSet::read(self.exceptions.values()));
        }
    }

    fn present(&mut self, watched: Watched, text: &str) {
        if watched == Watched::Pods {
            if let Err(error) = self.cluster.set_pod(text) {
                let Named { metadata } = serde_json::from_str(text).unwrap_or_default();
                tracing::warn!(namespace = metadata.namespace, pod = metadata.name, %error, "failed to decode a pod");
                let reason = format!("it cannot be decoded: {error}");
                self.cluster.set_undecided("v1", "Pod", &metadata.namespace, &metadata.name, &reason);
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
            Watched::Rollout => self.set_rollout(object),
            Watched::FeatureGates => {
                if name == feature_gate::NAME {
                    // While it reports nothing, what is known stays.
                    self.gate = feature_gate::enabled(&object).or(self.gate);
                }
            }
            Watched::KubeApiServers => {
                if let Some(report) = read_kube_apiserver(&object) {
                    self.reports.insert(report.name.clone(), SeenReport::now(report));
                }
            }
            Watched::Events => self.cluster.set_event(&namespace, &name, Some(&object)),
            Watched::Exceptions => {
                self.exceptions.insert(name.clone(), object);
                self.count_exceptions(watched);
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
            Watched::Rollout => {
                if name == waves::NAME {
                    self.rollout = Value::Null;
                }
            }
            Watched::FeatureGates => {
                if name == feature_gate::NAME {
                    self.gate = None;
                }
            }
            Watched::KubeApiServers => {
                self.reports.retain(|_, seen| seen.report.component != KUBE_APISERVER);
            }
            Watched::Events => self.cluster.set_event(namespace, name, None),
            Watched::Exceptions => {
                self.exceptions.remove(name);
                self.count_exceptions(watched);
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
    scope: Scope,
    changes: channel::Sender<u64>,
}

impl Observed {
    /// Nothing is known yet but whose rules the API server applies.
    #[must_use]
    pub fn new(compat: Compat, scope: Scope) -> Arc<Self> {
        let mut cluster = Cluster::with_levels(compat, scope.levels);
        cluster.set_today(time::today());
        if scope.count_exceptions {
            cluster.count_exceptions(time::now());
        }
        // Until it is known what is enforced, no template counts as what a namespace needs.
        cluster.set_default_enforce(None);
        let state = State {
            cluster,
            platform: scope.platform,
            waiting: Watched::all(scope).into_iter().map(Watched::name).collect(),
            ..State::default()
        };
        Arc::new(Self { state: Mutex::new(state), scope, changes: channel::Sender::new(0) })
    }

    /// The state. Not to be held while waiting.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A panic falls between two changes of a map; what is missing then is as if a watch had not reported it.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is watched.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        self.scope
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
        for watched in Watched::all(self.scope) {
            let (observed, api) = (Arc::clone(self), api.clone());
            watches.spawn(async move {
                let target = watched.target();
                watch::follow(&api, &target, |event| observed.apply(watched, event)).await;
            });
        }
        if self.scope.count_exceptions {
            watches.spawn(Arc::clone(self).end_exceptions());
        }
        watches
    }

    /// Notifies every subscriber when an exception ends: no event comes with that.
    async fn end_exceptions(self: Arc<Self>) {
        let mut changes = self.subscribe();
        loop {
            let next = {
                let mut state = self.lock();
                if state.cluster.set_now(time::now()) {
                    drop(state);
                    self.notify();
                    continue;
                }
                state.cluster.next_end()
            };
            // The clock of the machine may be set in between.
            let wait = next.map_or(CLOCK_CHECK, |end| time::until(end).min(CLOCK_CHECK));
            tokio::select! {
                () = sleep(wait) => {}
                next = changes.changed() => if next.is_err() {
                    return std::future::pending().await;
                },
            }
        }
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
