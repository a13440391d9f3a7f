//! The agent beside a kubelet, on a real cluster: `palisade node --mode=agent`.
//!
//! The kubelet runs the pods; this one puts published profiles where the kubelet finds them, reports what the node
//! supports, and compares running containers with what their pods declare. Profiles are files named by their content,
//! `<root-dir>/seccomp/palisade/<sha256>.json`, on a tmpfs: written whole, read-only, verified when the agent starts, when
//! they are touched and every minute, and removed when they are unreferenced. The webhook has rewritten ConfigMap
//! references to these names; `PublishedProfile` objects hold the sources. What is written is a source intersected with its baseline,
//! by default the default profile of the runtime of this node: it can only restrict.
//!
//! | module | job |
//! | --- | --- |
//! | [`plan`] | which profiles, in which order (pure) |
//! | [`files`], [`watch`] | how they stay what they are |
//! | `pods` | what the node's pods refer to |
//! | [`report`] | the report (pure) |
//! | [`cluster`] | every call to the API server |
//! | [`metrics`] | numbers |

pub mod cluster;
pub mod files;
pub mod metrics;
pub mod plan;
mod pods;
pub mod report;
pub mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    io,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use palisade_base::{causes::root_cause, metrics::Registry, sha256, version::KubeVersion};
pub use palisade_model::profile::published::{published_hash, published_name};
use palisade_model::{
    compat::Compat,
    profile::baseline::{Baseline, Restricted, published_sha256},
    server_version::kubelet_of,
};
use serde_json::Value;
use tokio::{task::JoinSet, time::Instant};
use tracing::{info, warn};

use self::{
    cluster::{Cluster, PublishedChange},
    files::{Folder, Found, Place, file_name, is_full, is_leftover, profile_of},
    plan::{Missing, Wanted},
    pods::Pods,
    report::{Findings, HeldProfile, without_time},
    watch::{FolderWatch, Touched},
};
use crate::{
    api::{PodKey, PodSource as _, kube::KubeSource},
    cri::client::{EndpointError, Runtime},
    guards::{self, Guards, report::rows, watch::keep_plugin},
    kernel::probe::NodeFeatures,
    node::NodeConfig,
    node_object,
    profiles::{
        baseline::{Bounds, CombineError},
        check_document,
    },
    reach::Prober,
    verify::{unverified_containers, verify_pod},
};

/// How the agent works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The node: its name, its runtime, its folders.
    pub node: NodeConfig,
    /// How often files and containers are verified even if nothing happens.
    pub verify_every: Duration,
    /// How large the tmpfs may become, in bytes.
    pub tmpfs_size: u64,
    /// Whether the kubelet's version in the Node decides whose rules apply.
    pub follow_kubelet: bool,
}

impl Settings {
    /// The usual settings of a node.
    #[must_use]
    pub const fn new(node: NodeConfig) -> Self {
        Self { node, verify_every: Duration::from_mins(1), tmpfs_size: 64 << 20, follow_kubelet: true }
    }
}

/// Changes that come together are answered together.
const GATHER: Duration = Duration::from_millis(50);
/// After a failure, the first and the longest wait.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// A report without changes is written again after this time, as a sign of life.
const HEARTBEAT: Duration = Duration::from_mins(5);
/// The same event is recorded at most this often.
const RECORD_AGAIN: Duration = Duration::from_mins(10);
/// No more incidents than these become events in that time.
const MOST_INCIDENT_EVENTS: usize = 100;

/// Publishes, reports and verifies until `shutdown`.
pub async fn run(
    settings: Settings,
    client: Client,
    metrics: Arc<Registry>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), EndpointError> {
    let runtime = Runtime::new(&settings.node.runtime_endpoint, settings.node.runtime_timeout)?;
    let mut pod_changes = KubeSource::new(client.clone(), &settings.node.node_name).pods();
    let mut agent = Agent::new(settings, client, runtime, metrics);
    let mut published_changes = agent.cluster.published();
    // In a task of its own: a container that is created while a report is written must have every guard.
    let mut tasks = JoinSet::new();
    let mut guard_changes = agent.cluster.guards();
    let guards = Arc::clone(&agent.guards);
    let watched = Arc::clone(&guards);
    tasks.spawn(async move {
        while let Some(change) = guard_changes.next().await {
            watched.take(change);
        }
    });
    if let Some(socket) = &agent.settings.node.nri_socket {
        tasks.spawn(keep_plugin(socket.clone(), Arc::clone(&guards)));
    }
    let mut probe_at = Instant::now() + agent.settings.verify_every;
    agent.learn_node().await;
    let mut verify = tokio::time::interval(agent.settings.verify_every);
    verify.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut work_at = Instant::now();
    let mut wait = RETRY.0;
    tokio::pin!(shutdown);
    loop {
        let soon = |work_at: Instant| work_at.min(Instant::now() + GATHER);
        tokio::select! {
            () = &mut shutdown => return Ok(()),
            Some(change) = pod_changes.next() => {
                if agent.take_pods(change) {
                    // Until now there was nothing to compare containers with.
                    verify.reset_immediately();
                }
                probe_at = soon(probe_at);
                work_at = soon(work_at);
            }
            () = guards.changed() => probe_at = soon(probe_at),
            () = tokio::time::sleep_until(probe_at) => {
                agent.probe_guards().await;
                probe_at = Instant::now() + agent.settings.verify_every;
                work_at = soon(work_at);
            }
            Some(change) = published_changes.next() => {
                agent.take_published(change);
                work_at = soon(work_at);
            }
            touched = touched(agent.watch.as_ref()) => {
                agent.look_at(&touched).await;
                // At once: a kubelet may be about to read it.
                work_at = Instant::now();
            }
            _ = verify.tick() => {
                agent.verify().await;
                work_at = soon(work_at);
            }
            () = tokio::time::sleep_until(work_at) => {
                let done = agent.work().await;
                wait = if done { RETRY.0 } else { (wait * 2).min(RETRY.1) };
                work_at = Instant::now() + if done { HEARTBEAT } else { wait };
            }
        }
    }
}

async fn touched(watch: Option<&FolderWatch>) -> Touched {
    match watch {
        Some(watch) => watch.touched().await.unwrap_or_else(|error| {
            warn!(%error, "the folder cannot be watched");
            Touched { everything: true, ..Touched::default() }
        }),
        None => std::future::pending().await,
    }
}

struct Agent {
    settings: Settings,
    place: Place,
    cluster: Cluster,
    runtime: Runtime,
    metrics: Arc<Registry>,
    pods: Pods,
    /// Published profiles, with the sources that hold another one by now.
    published: BTreeMap<String, Vec<String>>,
    /// A list on its way.
    listed: BTreeMap<String, Vec<String>>,
    pods_known: bool,
    published_known: bool,
    findings: Findings,
    guards: Arc<Guards>,
    prober: Prober,
    watch: Option<FolderWatch>,
    /// The node's identity, for events about it.
    node_uid: Option<String>,
    labelled: Option<BTreeMap<String, String>>,
    taint_lifted: bool,
    reported: Option<(Value, Instant)>,
    recorded: BTreeMap<String, Instant>,
    /// Differences between declarations and the kernel that have their event, by pod and note.
    drifting: BTreeSet<(String, String)>,
    /// When the last events about differences were recorded.
    drift_events: Vec<Instant>,
    /// How many bytes were held when there was no space left.
    full_with: Option<u64>,
    /// Incidents that are not recorded yet, and when the last ones were.
    incident_notes: Vec<String>,
    incident_events: Vec<Instant>,
}

impl Agent {
    fn new(settings: Settings, client: Client, runtime: Runtime, metrics: Arc<Registry>) -> Self {
        let node = &settings.node;
        let place =
            Place { seccomp_root: node.profile_folder().root().to_owned(), size: settings.tmpfs_size };
        let features = NodeFeatures::of_kernel(&node.proc, &node.sys);
        metrics::declare(&metrics);
        let guards = Arc::new(Guards::new(Some(Arc::clone(&metrics))));
        let prober = Prober::new(&node.proc, node.host_process);
        Self {
            guards,
            prober,
            cluster: Cluster::new(client, &node.node_name),
            place,
            runtime,
            metrics,
            pods: Pods::default(),
            published: BTreeMap::new(),
            listed: BTreeMap::new(),
            pods_known: false,
            published_known: false,
            findings: Findings { features, ..Findings::default() },
            watch: None,
            node_uid: None,
            labelled: None,
            taint_lifted: false,
            reported: None,
            recorded: BTreeMap::new(),
            drifting: BTreeSet::new(),
            drift_events: Vec::new(),
            full_with: None,
            incident_notes: Vec::new(),
            incident_events: Vec::new(),
            settings,
        }
    }

    /// The kubelet decides whose rules apply; the API server has the Node.
    async fn learn_node(&mut self) {
        let node = match self.cluster.node().await {
            Ok(Some(node)) => node,
            Ok(None) => return warn!(node = self.settings.node.node_name, "there is no such node"),
            Err(error) => return self.api_failed("node not read", &error),
        };
        self.node_uid = node.metadata.uid;
        let info = node.status.and_then(|status| status.node_info);
        // Until the runtime responds itself: `containerd://2.3.4`.
        if let Some((name, version)) =
            info.as_ref().and_then(|info| info.container_runtime_version.split_once("://"))
            && !self.findings.runtime_answers
        {
            self.take_runtime(name, version);
        }
        let version = info.map(|info| info.kubelet_version);
        if self.settings.follow_kubelet
            && let Some(kubelet) = version.as_deref().and_then(kubelet_of)
        {
            let known = &self.settings.node.compat;
            let release = match kubelet {
                KubeVersion::Designs => Compat { gates: known.gates, ..Compat::designs() },
                KubeVersion::Release { minor, .. } => Compat::kubernetes(minor),
            };
            self.settings.node.compat = Compat { kubelet, seccomp_default: known.seccomp_default, ..release };
        }
    }

    fn api_failed(&self, what: &str, error: &kube::Error) {
        warn!(error = %root_cause(error), "{what}");
        self.metrics.increment(&metrics::API_ERRORS, &[]);
    }

    /// Takes a change over; whether the pods are known from now on.
    fn take_pods(&mut self, change: crate::api::PodChange) -> bool {
        let known = matches!(change, crate::api::PodChange::All(_)) && !self.pods_known;
        self.pods_known |= known;
        self.pods.take(change, &self.settings.node.compat);
        let pods = &self.pods;
        self.findings.verified.retain(|uid, _| pods.contains(uid));
        known
    }

    fn take_published(&mut self, change: PublishedChange) {
        match change {
            PublishedChange::Begin => self.listed.clear(),
            PublishedChange::Set { sha256, changed_sources } => {
                self.listed.insert(sha256.clone(), changed_sources.clone());
                if self.published_known {
                    self.published.insert(sha256, changed_sources);
                }
            }
            PublishedChange::Done => {
                self.published = std::mem::take(&mut self.listed);
                self.published_known = true;
            }
            PublishedChange::Gone { sha256 } => drop(self.published.remove(&sha256)),
        }
    }

    /// The folder, watched.
    fn folder(&mut self) -> Option<Folder> {
        let folder = match self.place.open() {
            Ok(folder) => folder,
            Err(error) => {
                if self.findings.folder.is_none() {
                    warn!(%error, "no place for profiles");
                }
                self.findings.folder = Some(error.to_string());
                self.findings.held.clear();
                self.watch = None;
                return None;
            }
        };
        self.findings.folder = None;
        if folder.fresh && !self.findings.held.is_empty() {
            // The tmpfs was unmounted: everything in it is gone.
            self.findings.incidents.happened("palisade", "Unmounted", Timestamp::now());
            self.metrics.increment(&metrics::PROFILE_INCIDENTS, &[("found", "Unmounted")]);
            self.incident_notes.push(format!("{} was unmounted", self.place.path().display()));
            self.findings.held.clear();
        }
        // A new tmpfs may have the very numbers of the old one.
        if folder.fresh || self.watch.as_ref().is_none_or(|watch| !watch.is_on(&folder)) {
            match FolderWatch::new(&folder) {
                Ok(watch) => self.watch = Some(watch),
                // Verifying every minute goes on.
                Err(error) => warn!(%error, "the folder cannot be watched"),
            }
        }
        Some(folder)
    }

    /// The folder was touched.
    async fn look_at(&mut self, touched: &Touched) {
        if touched.everything {
            // It may have ended with what it watched.
            self.watch = None;
        }
        let Some(folder) = self.folder() else { return };
        let names: BTreeSet<String> = if touched.everything {
            let held = self.findings.held.keys().map(|hash| file_name(hash));
            held.chain(folder.names().unwrap_or_default()).collect()
        } else {
            touched.names.clone()
        };
        self.inspect(&folder, &names).await;
    }

    /// Compares files with what they should be; what is wrong is no longer held, and so comes anew.
    async fn inspect(&mut self, folder: &Folder, names: &BTreeSet<String>) {
        let present: BTreeSet<String> = folder.names().unwrap_or_default().into_iter().collect();
        for name in names {
            let known =
                profile_of(name).and_then(|hash| Some((hash, self.findings.held.get(hash)?.applied.clone())));
            let (what, found) = match known {
                Some((hash, applied)) => match folder.inspect(hash, &applied) {
                    Ok(Found::Intact) => continue,
                    Ok(Found::Deleted) => (hash.to_owned(), "Deleted"),
                    Ok(Found::Changed) => (hash.to_owned(), "Changed"),
                    Ok(Found::Replaced) => (hash.to_owned(), "Replaced"),
                    Err(error) => {
                        warn!(%error, name, "not verified");
                        continue;
                    }
                },
                None if !present.contains(name) => continue,
                // Left by an agent before this one, which was killed or was not yet informed: it counts once it is verified.
                None if profile_of(name)
                    .is_some_and(|hash| !self.published_known || !self.pods_known || self.needs(hash)) =>
                {
                    continue;
                }
                None if is_leftover(name) => {
                    folder.remove(name).ok();
                    continue;
                }
                None => (name.clone(), "Unexpected"),
            };
            self.findings.held.remove(&what);
            if found == "Unexpected" {
                match folder.remove(name) {
                    Ok(()) => self.findings.incidents.happened(&what, found, Timestamp::now()),
                    Err(error) => {
                        warn!(%error, name, "not removed");
                        continue;
                    }
                }
                self.findings.incidents.repaired(&what);
            } else {
                self.findings.incidents.happened(&what, found, Timestamp::now());
            }
            let kind = match found {
                "Deleted" | "Changed" | "Replaced" => found,
                _ => "Unexpected",
            };
            self.metrics.increment(&metrics::PROFILE_INCIDENTS, &[("found", kind)]);
            warn!(what, found, "a seccomp profile was tampered with");
            let note =
                format!("{}/{name} was not as the agent left it: {found}", self.place.path().display());
            self.incident_notes.push(note);
        }
        self.record_incidents().await;
    }

    /// Records each incident as an event of its own. A client that tampers without end does not fill the cluster with
    /// events: the report and the metric still count what is beyond the limit.
    async fn record_incidents(&mut self) {
        let now = Instant::now();
        self.incident_events.retain(|at| now.duration_since(*at) < RECORD_AGAIN);
        for note in std::mem::take(&mut self.incident_notes) {
            if self.incident_events.len() < MOST_INCIDENT_EVENTS {
                self.incident_events.push(now);
                self.cluster.record_on_node(&self.node_reference(), "SeccompProfileTampered", note).await;
            }
        }
    }

    /// The node's uid, as far as it is known, for events about it.
    fn node_reference(&self) -> String {
        self.node_uid.clone().unwrap_or_else(|| self.settings.node.node_name.clone())
    }

    fn needs(&self, hash: &str) -> bool {
        self.published.contains_key(hash)
            || self.pods.iter().any(|(_, pod)| pod.profiles.iter().any(|(_, own, _)| own == hash))
    }

    async fn record_on_node(&mut self, reason: &str, note: String) {
        if self.may_record(&note) {
            self.cluster.record_on_node(&self.node_reference(), reason, note).await;
        }
    }

    fn may_record(&mut self, note: &str) -> bool {
        let now = Instant::now();
        self.recorded.retain(|_, at| now.duration_since(*at) < RECORD_AGAIN);
        self.recorded.insert(note.to_owned(), now).is_none()
    }

    /// Puts in place what is missing, removes what is unreferenced, lifts the taint, reports. Whether all of it was done.
    async fn work(&mut self) -> bool {
        self.record_incidents().await;
        let mut done = self.put_in_place().await;
        self.findings.older = self.pods.older(&self.published);
        done &= self.lift_taint().await;
        done &= self.label().await;
        done & self.report().await
    }

    async fn put_in_place(&mut self) -> bool {
        if !(self.pods_known && self.published_known) {
            return true;
        }
        self.findings.wanted = Wanted {
            needed: self.pods.needed(),
            namespaces: self.pods.namespaces(),
            published: self.published.keys().cloned().collect(),
        };
        let Some(folder) = self.folder() else { return false };
        let wanted = self.findings.wanted.clone();
        // What is unreferenced is removed before anything is written.
        let unwanted: Vec<String> = folder
            .names()
            .unwrap_or_default()
            .into_iter()
            .filter(|name| profile_of(name).is_some_and(|hash| !wanted.contains(hash)))
            .collect();
        for name in unwanted {
            match folder.remove(&name) {
                Ok(()) => drop(profile_of(&name).map(|hash| self.findings.held.remove(hash))),
                Err(error) => warn!(%error, name, "not removed"),
            }
        }
        self.findings.missing.retain(|hash, _| wanted.contains(hash));
        let bytes = |held: &BTreeMap<String, HeldProfile>| held.values().map(|held| held.size).sum::<u64>();
        let has_room = self.full_with.is_none_or(|full| bytes(&self.findings.held) < full);
        for hash in wanted.in_order() {
            // What no pod waits for is not tried again before something was removed.
            let fits = has_room || wanted.needed.contains_key(hash);
            let tried = self.findings.missing.get(hash) == Some(&Missing::Full);
            if !self.findings.held.contains_key(hash) && (fits || !tried) {
                self.put(&folder, hash, &wanted).await;
            }
        }
        let is_full = self.findings.missing.values().any(|missing| *missing == Missing::Full);
        self.full_with = is_full.then(|| bytes(&self.findings.held));
        let (held, missing) = (self.findings.held.len(), self.findings.missing.len());
        self.metrics.set(&metrics::PROFILES, &[("state", "held")], held);
        self.metrics.set(&metrics::PROFILES, &[("state", "missing")], missing);
        self.metrics.set(&metrics::PROFILE_BYTES, &[], bytes(&self.findings.held));
        self.metrics.set(&metrics::PROFILES_READY, &[], self.findings.ready());
        self.findings.ready()
    }

    async fn put(&mut self, folder: &Folder, hash: &str, wanted: &Wanted) {
        let missing = match self.composed(hash).await {
            Err(missing) => missing,
            Ok((source, restricted)) => {
                let held =
                    HeldProfile { applied: restricted.sha256, source, size: restricted.text.len() as u64 };
                // An agent before this one may have left it, or it was put back after tampering.
                if matches!(folder.inspect(hash, &held.applied), Ok(Found::Intact)) {
                    return self.hold(hash, held);
                }
                match self.write(folder, hash, &restricted.text, wanted) {
                    Ok(()) => return self.hold(hash, held),
                    Err(error) if is_full(&error) => Missing::Full,
                    Err(error) => Missing::Failed(error.to_string()),
                }
            }
        };
        // Something that is neither the profile nor replaced by it must not be read for it.
        if folder.names().is_ok_and(|names| names.contains(&file_name(hash))) {
            folder.remove(&file_name(hash)).ok();
        }
        self.record_missing(hash, &missing).await;
        self.findings.missing.insert(hash.to_owned(), missing);
    }

    /// What belongs under a published name on this node: the hash of the source, and the source combined with its baseline.
    async fn composed(&mut self, name: &str) -> Result<(String, Restricted), Missing> {
        let published = match self.cluster.profile(name).await {
            Ok(Some(published)) => published,
            Ok(None) => return Err(Missing::Unpublished),
            Err(error) => {
                self.api_failed("profile not read", &error);
                return Err(Missing::Failed(format!("the API server does not give it: {error}")));
            }
        };
        let baseline = match &published.baseline {
            None => Baseline::default(),
            Some(text) => Baseline::parse(text)
                .ok_or_else(|| Missing::Unusable(format!("its baseline cannot be read: {text:?}")))?,
        };
        let source = sha256::hex(published.profile.as_bytes());
        if published_sha256(&source, &baseline) != name {
            return Err(Missing::Unusable("the bytes have another hash than their name".to_owned()));
        }
        check_document(&published.profile).map_err(|error| Missing::Unusable(format!("it {error}")))?;
        let bounds = Bounds::of_node(&self.findings.features).with_baseline(baseline);
        let folder = self.settings.node.profile_folder();
        let text = published.profile;
        let combined = tokio::task::spawn_blocking(move || {
            bounds.combine(&text, &folder).map_err(|error| match error {
                CombineError::Baseline(_) => Missing::Failed(format!("it {error}")),
                CombineError::Restrict(_) => Missing::Unusable(format!("it {error}")),
            })
        });
        let restricted = combined.await.map_err(|error| Missing::Failed(error.to_string()))??;
        Ok((source, restricted))
    }

    /// Another runtime has another default: what was made of the former one is made anew.
    fn take_runtime(&mut self, name: &str, version: &str) {
        let features = &mut self.findings.features;
        if features.runtime_name != name || features.runtime_version != version {
            name.clone_into(&mut features.runtime_name);
            version.clone_into(&mut features.runtime_version);
            self.findings.held.clear();
        }
    }

    fn hold(&mut self, hash: &str, held: HeldProfile) {
        self.findings.missing.remove(hash);
        self.findings.held.insert(hash.to_owned(), held);
        self.findings.incidents.repaired(hash);
        self.findings.incidents.repaired("palisade");
    }

    /// Writes a profile. If the file system is full, what pods of this node wait for replaces what none does, and what takes more than
    /// its share.
    fn write(&mut self, folder: &Folder, hash: &str, text: &str, wanted: &Wanted) -> io::Result<()> {
        let mut written = folder.write(hash, text.as_bytes());
        while wanted.needed.contains_key(hash) && written.as_ref().is_err_and(is_full) {
            let held = self.findings.held.iter().map(|(hash, held)| (hash.clone(), held.size)).collect();
            let other = wanted.makes_room(&held, hash, text.len() as u64).map(str::to_owned);
            let Some(other) = other else { break };
            folder.remove(&file_name(&other))?;
            self.findings.held.remove(&other);
            self.findings.missing.insert(other, Missing::Full);
            written = folder.write(hash, text.as_bytes());
        }
        if written.is_ok() {
            self.metrics.increment(&metrics::PROFILE_WRITES, &[]);
        }
        written
    }

    async fn record_missing(&mut self, hash: &str, missing: &Missing) {
        let note = format!("seccomp profile {}: {}", published_name(hash), missing.reason());
        let waiting: Vec<_> = self
            .pods
            .iter()
            .filter(|(_, known)| known.profiles.iter().any(|(_, own, _)| own == hash))
            .map(|(_, known)| known.pod.key.clone())
            .collect();
        for pod in waiting {
            if self.may_record(&format!("{}: {note}", pod.uid)) {
                self.cluster.record_pod_event(&pod, "SeccompProfileMissing", note.clone()).await;
            }
        }
        if *missing == Missing::Full {
            self.record_on_node(
                "SeccompProfilesFull",
                "no space left on the tmpfs of seccomp profiles".to_owned(),
            )
            .await;
        }
    }

    async fn lift_taint(&mut self) -> bool {
        if self.taint_lifted || !(self.pods_known && self.published_known && self.findings.ready()) {
            return true;
        }
        match self.cluster.lift_taint().await {
            Ok(lifted) => {
                if lifted {
                    info!(taint = cluster::NOT_READY_TAINT, "profiles are in place: taint lifted");
                }
                self.taint_lifted = true;
                true
            }
            Err(error) => {
                self.api_failed("taint not lifted", &error);
                false
            }
        }
    }

    async fn label(&mut self) -> bool {
        let labels = node_object::labels(&self.findings.features, true);
        if self.labelled.as_ref() == Some(&labels) {
            return true;
        }
        match self.cluster.label(&labels).await {
            Ok(()) => {
                self.labelled = Some(labels);
                true
            }
            Err(error) => {
                self.api_failed("node not labelled", &error);
                false
            }
        }
    }

    async fn report(&mut self) -> bool {
        self.metrics.set(&metrics::DRIFT, &[], self.findings.drift());
        self.metrics.set(&metrics::OLDER_PROFILES, &[], self.findings.older.len());
        self.metrics.set(&metrics::VERIFIED_CONTAINERS, &[], self.findings.compared());
        let unverified = self.findings.unverified.as_ref().map_or(0, Vec::len);
        self.metrics.set(&metrics::UNVERIFIED_CONTAINERS, &[], unverified);
        if !(self.pods_known && self.published_known) {
            return true;
        }
        let before = self.reported.as_ref().map(|(status, _)| status);
        let status = self.findings.status(before, Timestamp::now());
        if let Some((reported, at)) = &self.reported
            && at.elapsed() < HEARTBEAT
            && without_time(reported) == without_time(&status)
        {
            return true;
        }
        match self.cluster.write_report(&status).await {
            Ok(()) => {
                self.metrics.increment(&metrics::REPORT_WRITES, &[]);
                self.reported = Some((status, Instant::now()));
                true
            }
            Err(error) => {
                self.api_failed("failed to update the report", &error);
                false
            }
        }
    }

    /// Looks at every file and every container, whether or not there was an event.
    async fn verify(&mut self) {
        if self.node_uid.is_none() {
            self.learn_node().await;
        }
        if let Some(folder) = self.folder() {
            let held = self.findings.held.keys().map(|hash| file_name(hash));
            let names = held.chain(folder.names().unwrap_or_default()).collect();
            self.inspect(&folder, &names).await;
        }
        let node = &self.settings.node;
        let mut features = NodeFeatures::of_kernel(&node.proc, &node.sys);
        self.findings.runtime_answers = features.query_runtime(&self.runtime).await.is_ok();
        if !self.findings.runtime_answers {
            // What it reported before still holds.
            let known = &self.findings.features;
            features.runtime_name.clone_from(&known.runtime_name);
            features.runtime_version.clone_from(&known.runtime_version);
            features.supplemental_groups_policy = known.supplemental_groups_policy;
            features.runtime_disables_app_armor = known.runtime_disables_app_armor;
        }
        let (name, version) = (features.runtime_name.clone(), features.runtime_version.clone());
        self.take_runtime(&name, &version);
        self.findings.features = features;
        if self.findings.runtime_answers && self.pods_known {
            self.verify_containers().await;
        }
    }

    /// Finds out from the kernel which containers each guard covers.
    async fn probe_guards(&mut self) {
        match rows(&self.guards, &self.runtime, &self.prober, guards::now()).await {
            Ok(Some(rows)) => {
                let exposed: usize = rows.iter().map(|row| row.exposed.len()).sum();
                self.metrics.set(&metrics::EXPOSED_CONTAINERS, &[], exposed);
                self.findings.guards = rows;
            }
            Ok(None) => {}
            // What was found before may no longer hold: no container counts as covered.
            Err(error) => {
                warn!(%error, "the containers that guards cover are not known");
                for row in &mut self.findings.guards {
                    row.covered = 0;
                }
            }
        }
        self.findings.guard_plugin = self.guards.plugin();
    }

    async fn verify_containers(&mut self) {
        let mut alarms = Vec::new();
        let mut failed = BTreeSet::new();
        for (uid, known) in self.pods.iter() {
            match verify_pod(&self.settings.node, &self.runtime, None, &known.pod).await {
                Ok(report) => {
                    for container in &report.containers {
                        for row in container.rows.iter().filter(|row| !row.ok) {
                            let because =
                                row.note.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
                            let note = format!(
                                "container {}: {} is {} where the pod declares {}{because}",
                                container.container, row.check, row.kernel, row.declared
                            );
                            alarms.push((known.pod.key.clone(), note));
                        }
                    }
                    self.findings.verified.insert(uid.clone(), report);
                }
                Err(error) => {
                    warn!(%error, pod = %known.pod.key, "not verified");
                    // What was found before may no longer hold.
                    self.findings.verified.remove(uid);
                    failed.insert(known.pod.key.uid.clone());
                }
            }
        }
        let reports = self.pods.iter().filter_map(|(uid, known)| {
            self.findings.verified.get(uid).map(|report| (&known.pod.key, report))
        });
        let unverified = unverified_containers(&self.runtime, &reports.collect::<Vec<_>>()).await;
        self.findings.unverified = match unverified {
            Ok(found) => Some(found.into_iter().map(|(_, text)| text).collect()),
            Err(error) => {
                warn!(%error, "failed to list containers");
                None
            }
        };
        self.record_drift(alarms, &failed).await;
    }

    /// Records each difference as an event of its own when it appears. One that went away and comes back is a new incident; one of a
    /// pod that could not be compared this time is still the same. Beyond the limit, events follow as time passes.
    async fn record_drift(&mut self, alarms: Vec<(PodKey, String)>, failed: &BTreeSet<String>) {
        let now = Instant::now();
        self.drift_events.retain(|at| now.duration_since(*at) < RECORD_AGAIN);
        let found: BTreeSet<(String, String)> =
            alarms.iter().map(|(pod, note)| (pod.uid.clone(), note.clone())).collect();
        self.drifting.retain(|known| found.contains(known) || failed.contains(&known.0));
        for (pod, note) in alarms {
            let key = (pod.uid.clone(), note.clone());
            if !self.drifting.contains(&key) && self.drift_events.len() < MOST_INCIDENT_EVENTS {
                self.drift_events.push(now);
                self.drifting.insert(key);
                warn!(%pod, note, "a container does not run as its pod declares");
                self.cluster.record_pod_event(&pod, "SecurityDrift", note).await;
            }
        }
    }
}
