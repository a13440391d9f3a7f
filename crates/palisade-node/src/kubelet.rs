//! The kubelet's part: pods are added, changed and deleted, and each has a worker.
//!
//! Implements: the kubelet's main loop as far as pods are concerned (`pkg/kubelet/kubelet.go`, `pkg/kubelet/pleg`): the
//! pods of this node from the API, changes in the runtime by looking once a second, removal of orphaned pods, the
//! node object and its lease. A runtime that hangs holds up nothing here: it is called in a task of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    future::Future,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use tokio::{sync::mpsc, task::JoinSet};
use tracing::{info, warn};

use crate::{
    api::{PodChange, PodKey},
    cri::client::{Runtime, RuntimeError},
    guards::{
        self,
        report::{GuardRow, rows},
        watch::keep_plugin,
    },
    node::Node,
    node_object,
    pod::RunPod,
    reach::Prober,
    recording,
    runner::{observed::labels, status::conditions_of_others, worker::Worker},
    volumes,
};

/// How often the lease is renewed, and how long it holds: the kubelet's numbers.
const HEARTBEAT: Duration = Duration::from_secs(10);
const LEASE_SECONDS: u32 = 40;

/// What the runtime has of every pod: enough to see that something changed.
type Fingerprints = BTreeMap<String, (PodKey, Vec<(String, i32)>)>;

/// Runs pods until `shutdown`; then leaves their containers running, to be adopted at the next start.
pub async fn run(node: Node, shutdown: impl Future<Output = ()>) {
    for warning in node.config.warnings() {
        warn!("{warning}");
    }
    for folder in [node.config.root_dir.join("pods"), node.config.logs()] {
        if let Err(error) = fs::create_dir_all(&folder) {
            warn!(%error, folder = %folder.display(), "failed to create a folder");
        }
    }
    // A pod that is there from the start is covered like any other.
    let guarding = guard(&node);
    let recording = record(&node);
    let known = async { tokio::join!(node.guards.until_ready(), node.recordings.until_ready()) };
    if tokio::time::timeout(KNOWN_WITHIN, known).await.is_err() {
        warn!(
            "system call guards or recordings are not known yet: containers that start now are reported as exposed, or as not recorded"
        );
    }
    let mut pods = node.source.pods();
    let (sender, mut looks) = mpsc::channel(1);
    let looking = tokio::spawn(keep_looking(node.clone(), sender));
    let beating = tokio::spawn(heartbeat(node.clone()));
    let mut kubelet = Kubelet {
        node,
        workers: BTreeMap::new(),
        seen: Fingerprints::new(),
        listed: false,
        leaving: BTreeMap::new(),
    };
    let mut sweep = tokio::time::interval(Duration::from_secs(1));
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            change = pods.next() => match change {
                Some(change) => kubelet.take(change),
                None => break,
            },
            Some(look) = looks.recv() => kubelet.compare(look),
            _ = sweep.tick() => kubelet.workers.retain(|_, worker| !worker.is_finished()),
        }
    }
    drop((guarding, recording));
    looking.abort();
    beating.abort();
}

/// How long the first pods wait for the guards and recordings of the cluster.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);
/// Changes that come together are reported together.
const GATHER: Duration = Duration::from_millis(100);

/// Keeps the guards of the node known, applied and reported, for as long as the result is kept.
fn guard(node: &Node) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let mut changes = node.source.guards();
    let guards = Arc::clone(&node.guards);
    tasks.spawn(async move {
        while let Some(change) = changes.next().await {
            guards.take(change);
        }
    });
    if let Some(socket) = &node.config.nri_socket {
        tasks.spawn(keep_plugin(socket.clone(), Arc::clone(&node.guards)));
    }
    tasks.spawn(report_guards(node.clone()));
    tasks
}

/// Keeps the recordings of the node known and reported, for as long as the result is kept.
fn record(node: &Node) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let mut changes = node.source.recordings();
    let recordings = node.recordings.clone();
    tasks.spawn(async move {
        while let Some(change) = changes.next().await {
            recordings.take(change);
        }
    });
    tasks.spawn(recording::report::stop_unattended(node.clone()));
    tasks.spawn(recording::report::keep(node.clone()));
    tasks
}

/// Reports which containers are covered, whenever guards or containers change, and once in a while.
async fn report_guards(node: Node) {
    let prober = Prober::new(&node.config.proc, node.config.host_process);
    let mut reported: Option<Vec<serde_json::Value>> = None;
    loop {
        let _ = tokio::time::timeout(HEARTBEAT, node.guards.changed()).await;
        tokio::time::sleep(GATHER).await;
        let rows = match rows(&node.guards, &node.runtime, &prober, guards::now()).await {
            Ok(Some(rows)) => rows,
            Ok(None) => continue,
            Err(error) => {
                warn!(%error, "the containers that guards cover are not known");
                continue;
            }
        };
        let values: Vec<serde_json::Value> = rows.iter().map(GuardRow::to_value).collect();
        // Without a guard there is nothing to report.
        if reported.as_ref().map_or(values.is_empty(), |reported| *reported == values) {
            continue;
        }
        match node.source.write_guard_rows(&node.config.node_name, values.clone()).await {
            Ok(()) => reported = Some(values),
            Err(error) => warn!(%error, "failed to report the containers that guards cover"),
        }
    }
}

struct Kubelet {
    node: Node,
    workers: BTreeMap<String, Worker>,
    seen: Fingerprints,
    /// Whether the pods have been listed: until then none is orphaned.
    listed: bool,
    /// Orphans on their way out.
    leaving: BTreeMap<String, tokio::task::JoinHandle<()>>,
}

impl Kubelet {
    fn take(&mut self, change: PodChange) {
        match change {
            PodChange::All(objects) => {
                let mut present = BTreeSet::new();
                for object in objects {
                    if let Some(uid) = self.apply(object) {
                        present.insert(uid);
                    }
                }
                for (_, worker) in self.workers.iter().filter(|(uid, _)| !present.contains(*uid)) {
                    worker.end();
                }
                self.listed = true;
            }
            PodChange::Applied(object) => {
                self.apply(object);
            }
            PodChange::Gone { uid } => {
                if let Some(worker) = self.workers.get(&uid) {
                    worker.end();
                }
            }
        }
    }

    fn apply(&mut self, object: serde_json::Value) -> Option<String> {
        let uid = object.pointer("/metadata/uid").and_then(serde_json::Value::as_str).map(str::to_owned);
        let pod = match RunPod::from_stored(object, &self.node.config.compat) {
            Ok(pod) => pod,
            Err(error) => {
                warn!(%error, "failed to decode a pod");
                return uid;
            }
        };
        let uid = pod.key.uid.clone();
        match self.workers.get(&uid) {
            Some(worker) if !worker.is_finished() => {
                // Our own status comes back as a change; that is no news.
                let known = worker.pod();
                if known.object.get("spec") != pod.object.get("spec")
                    || known.object.get("metadata").map(without_bookkeeping)
                        != pod.object.get("metadata").map(without_bookkeeping)
                    || !conditions_of_others(&known).eq(conditions_of_others(&pod))
                {
                    worker.update(pod);
                }
            }
            _ => {
                self.workers.insert(uid.clone(), Worker::spawn(self.node.clone(), pod));
            }
        }
        Some(uid)
    }

    fn compare(&mut self, look: Fingerprints) {
        for (uid, now) in &look {
            if self.seen.get(uid).map(|(_, before)| before) != Some(&now.1)
                && let Some(worker) = self.workers.get(uid)
            {
                worker.wake();
            }
        }
        for uid in self.seen.keys().filter(|uid| !look.contains_key(*uid)) {
            if let Some(worker) = self.workers.get(uid) {
                worker.wake();
            }
        }
        if self.listed {
            self.leaving.retain(|_, task| !task.is_finished());
            for (uid, (key, _)) in &look {
                // Twice in a row, so that a pod that is just being removed is left to its worker.
                if !self.workers.contains_key(uid)
                    && self.seen.contains_key(uid)
                    && !self.leaving.contains_key(uid)
                {
                    let task = tokio::spawn(remove_orphan(self.node.clone(), key.clone()));
                    self.leaving.insert(uid.clone(), task);
                }
            }
            self.remove_old_folders(&look);
        }
        if self.seen != look {
            self.node.guards.touch();
        }
        self.seen = look;
    }

    fn remove_old_folders(&self, look: &Fingerprints) {
        let folder = self.node.config.root_dir.join("pods");
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let uid = entry.file_name().to_string_lossy().into_owned();
            if self.workers.contains_key(&uid) || look.contains_key(&uid) || self.seen.contains_key(&uid) {
                continue;
            }
            if let Err(error) = volumes::tear_down(&entry.path()) {
                warn!(%error, uid, "folder of a pod that is gone not removed");
            }
        }
    }
}

fn without_bookkeeping(metadata: &serde_json::Value) -> serde_json::Value {
    let mut metadata = metadata.clone();
    if let serde_json::Value::Object(fields) = &mut metadata {
        fields.remove("resourceVersion");
        fields.remove("managedFields");
        fields.remove("generation");
    }
    metadata
}

async fn keep_looking(node: Node, sender: mpsc::Sender<Fingerprints>) {
    let mut ticks = tokio::time::interval(node.config.relist);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut away = false;
    loop {
        ticks.tick().await;
        match look(&node.runtime, &node.config.manager).await {
            Ok(found) => {
                if std::mem::take(&mut away) {
                    info!("the runtime is back");
                }
                if sender.send(found).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut away, true) {
                    warn!(%error, "the runtime does not answer");
                }
            }
        }
    }
}

async fn look(runtime: &Runtime, manager: &str) -> Result<Fingerprints, RuntimeError> {
    let selector = [(labels::MANAGED_BY, manager)];
    let mut found = Fingerprints::new();
    let mut note = |labels: &BTreeMap<String, String>, id: String, state: i32| {
        let get = |key: &str| labels.get(key).cloned().unwrap_or_default();
        let key = PodKey {
            namespace: get(labels::POD_NAMESPACE),
            name: get(labels::POD_NAME),
            uid: get(labels::POD_UID),
        };
        found.entry(key.uid.clone()).or_insert_with(|| (key, Vec::new())).1.push((id, state));
    };
    for sandbox in runtime.list_pod_sandboxes(&selector).await? {
        note(&sandbox.labels, sandbox.id, sandbox.state);
    }
    for container in runtime.list_containers(&selector).await? {
        note(&container.labels, container.id, container.state);
    }
    for (_, parts) in found.values_mut() {
        parts.sort();
    }
    Ok(found)
}

/// Ends every pod of this node, all at once.
pub async fn remove_pods(node: &Node) {
    match look(&node.runtime, &node.config.manager).await {
        Ok(found) => {
            let removals = found.into_values().map(|(key, _)| remove_orphan(node.clone(), key));
            futures::future::join_all(removals).await;
        }
        Err(error) => warn!(%error, "the pods of the node are left as they are"),
    }
}

/// Removes a pod that the runtime has and the API does not.
pub(crate) async fn remove_orphan(node: Node, key: PodKey) {
    info!(pod = %key, "removing an orphaned pod");
    let selector = [(labels::POD_UID, key.uid.as_str()), (labels::MANAGED_BY, node.config.manager.as_str())];
    let result = async {
        for container in node.runtime.list_containers(&selector).await? {
            node.runtime.stop_container(&container.id, Duration::from_secs(2)).await?;
            node.runtime.remove_container(&container.id).await?;
        }
        for sandbox in node.runtime.list_pod_sandboxes(&selector).await? {
            node.runtime.stop_pod_sandbox(&sandbox.id).await?;
            node.runtime.remove_pod_sandbox(&sandbox.id).await?;
        }
        Ok::<_, RuntimeError>(())
    };
    if let Err(error) = result.await {
        warn!(%error, pod = %key, "failed to remove an orphaned pod");
        return;
    }
    let paths = crate::runner::config::PodPaths::of(&key, &node.config.root_dir, &node.config.logs());
    if let Err(error) = volumes::tear_down(&paths.folder) {
        warn!(%error, pod = %key, "folder of an orphan not removed");
    }
    fs::remove_dir_all(&paths.logs).ok();
}

async fn heartbeat(node: Node) {
    let mut ticks = tokio::time::interval(HEARTBEAT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut written: Option<(serde_json::Value, std::time::Instant)> = None;
    loop {
        ticks.tick().await;
        let answered = node.refresh_features().await;
        let status = node.runtime.status(false).await.ok().and_then(|answer| answer.status);
        let conditions = status.map(|status| status.conditions).unwrap_or_default();
        let object = node_object::node_object(&node, answered, &conditions, jiff::Timestamp::now());
        let core = node_object::without_times(&object);
        // As the kubelet: at once when something changed, every five minutes otherwise.
        let due = written
            .as_ref()
            .is_none_or(|(before, at)| *before != core || at.elapsed() > Duration::from_mins(5));
        if due {
            match node.source.write_node(object).await {
                Ok(()) => written = Some((core, std::time::Instant::now())),
                Err(error) => warn!(%error, "failed to update Node"),
            }
        }
        if let Err(error) = node.source.renew_lease(&node.config.node_name, LEASE_SECONDS).await {
            warn!(%error, "failed to renew Lease");
        }
    }
}
