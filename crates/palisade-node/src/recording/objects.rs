//! The recordings of a node: `ProfileRecording` objects, and which recorder a pod that they select gets.
//!
//! One value is shared by whatever starts containers and by what reports. A recorder is started with the first pod that a recording
//! selects, and kept until the last container that it serves has ended: without it their commands and calls would fail. What keeps a
//! container from being recorded never keeps it from running.
//!
//! Everything that a tenant can cause is bounded, and a bound that is reached is a reason in the statement: recorders of a node and of
//! a namespace, containers and commands of a recorder, names, calls, reasons and denials of a recording.
//!
//! Leaves to others: reading the objects (`palisade_model::profile_recording`), what becomes of the parts of all nodes
//! (`palisade_controllers::recordings`).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use palisade_base::{sha256, time::Time};
use palisade_model::{
    profile::recording::Phase,
    profile_recording::{API_VERSION, KIND, PART_KIND, ProfileRecording, Purpose},
};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::{Notify, watch::Sender};
use tracing::warn;

use super::{Recorder, Run};
use crate::{api::PodKey, guards::now, pod::RunPod};

/// Recorders of a node.
const MAX_RECORDERS: usize = 32;
/// Those of one namespace.
const MAX_OF_NAMESPACE: usize = 8;
/// Pods of one recording that are listed.
const MAX_PODS: usize = 512;
/// Reasons that the node itself has for a loss.
const MAX_LOSSES: usize = 32;
/// The largest part that is written: API servers keep objects of 1.5 MB.
const MAX_PART: usize = 768 << 10;

/// Why an object is no recording, in words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct UnreadableRecording(pub String);

/// A recording as it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRecording {
    /// Which version of the object.
    pub generation: i64,
    /// The recording, or why it is none.
    pub read: Result<ProfileRecording, UnreadableRecording>,
}

impl KnownRecording {
    /// Reads an object of the API.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let read = ProfileRecording::read(object).map_err(|error| UnreadableRecording(error.to_string()));
        Self { generation, read }
    }
}

/// A change among recordings. Names have their namespace before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingChange {
    /// All recordings there are: the start of a watch, or its restart.
    All(BTreeMap<String, KnownRecording>),
    /// One is new or changed.
    Set(String, Box<KnownRecording>),
    /// One is gone.
    Gone(String),
    /// The recordings cannot be watched at the moment; what was known stays.
    Unavailable,
}

/// What one node has recorded for a recording, as it is written to the API.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The recording, with its namespace.
    pub key: String,
    /// Its namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The object.
    pub object: Value,
    /// Whether nothing more comes.
    pub is_last: bool,
}

#[derive(Debug)]
struct Work {
    known: KnownRecording,
    recorder: Option<Arc<Recorder>>,
    pods: BTreeMap<PodKey, Option<Value>>,
    losses: BTreeSet<String>,
    is_ended: bool,
    written: Option<Value>,
}

impl Work {
    fn lose(&mut self, reason: String) {
        if self.losses.len() < MAX_LOSSES {
            self.losses.insert(reason);
        }
    }

    /// The recording, as long as it records.
    fn active(&self, now: Time) -> Option<&ProfileRecording> {
        // swallowed: the controller reports what cannot be read
        self.known.read.as_ref().ok().filter(|read| !self.is_ended && read.counts_at(now))
    }
}

#[derive(Debug, Default)]
struct State {
    /// Those of every pod: `palisade run` has one.
    of_everything: Vec<Arc<Recorder>>,
    works: BTreeMap<String, Work>,
    /// Recorders of recordings that are over, with containers that still run.
    lingering: Vec<Arc<Recorder>>,
}

impl State {
    fn recorders(&self) -> impl Iterator<Item = &Arc<Recorder>> {
        let known = self.works.values().filter_map(|work| work.recorder.as_ref());
        self.of_everything.iter().chain(known).chain(&self.lingering)
    }
}

#[derive(Debug, Default)]
struct Shared {
    root: PathBuf,
    state: RwLock<State>,
    changed: Notify,
    /// Whether recordings were listed, or could not be.
    ready: Sender<bool>,
}

/// Who records a pod, and the ConfigMap and key of the profile that is tried out, if one is.
pub type Assignment = (Arc<Recorder>, Option<(String, String)>);

/// The recordings of a node.
#[derive(Debug, Clone, Default)]
pub struct Recordings(Arc<Shared>);

impl Recordings {
    /// With sockets and journals below this folder.
    #[must_use]
    pub fn below(root: &std::path::Path) -> Self {
        Self(Arc::new(Shared { root: root.to_owned(), ..Shared::default() }))
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records every pod from now on.
    pub fn record_all(&self, recorder: Arc<Recorder>) {
        self.write().of_everything.push(recorder);
    }

    /// Records no more pods; containers that run are served until they end.
    pub fn stop(&self, recorder: &Arc<Recorder>) {
        self.write().of_everything.retain(|known| !Arc::ptr_eq(known, recorder));
    }

    /// Takes a change over.
    pub fn take(&self, change: RecordingChange) {
        let mut state = self.write();
        let is_news = match change {
            RecordingChange::All(all) => {
                let gone: Vec<String> =
                    state.works.keys().filter(|key| !all.contains_key(*key)).cloned().collect();
                for key in gone {
                    self.forget(&mut state, &key);
                }
                let uids: BTreeSet<String> =
                    all.values().filter_map(|known| Some(known.read.as_ref().ok()?.uid.clone())).collect();
                for (key, known) in all {
                    self.set(&mut state, key, known);
                }
                self.remove_old_journals(&uids);
                true
            }
            RecordingChange::Set(key, known) => self.set(&mut state, key, *known),
            RecordingChange::Gone(key) => {
                self.forget(&mut state, &key);
                true
            }
            RecordingChange::Unavailable => false,
        };
        drop(state);
        self.0.ready.send_replace(true);
        if is_news {
            self.0.changed.notify_one();
        }
    }

    /// Whether it is news: the status of a recording changes as often as it is reported.
    fn set(&self, state: &mut State, key: String, known: KnownRecording) -> bool {
        let uid = |known: &KnownRecording| known.read.as_ref().map(|read| read.uid.clone()).ok();
        if let Some(work) = state.works.get_mut(&key) {
            if uid(&work.known) == uid(&known) || uid(&known).is_none() {
                // What can no longer be read records nothing more; what it has is still its own.
                let is_news = work.known != known;
                work.known = known;
                return is_news;
            }
            self.forget(state, &key);
        }
        let mut work = Work {
            known,
            recorder: None,
            pods: BTreeMap::new(),
            losses: BTreeSet::new(),
            is_ended: false,
            written: None,
        };
        // A recorder before this one did not end, or could not report that it did.
        if let Ok(read) = &work.known.read
            && self.journal(&read.uid).is_some_and(|journal| journal.exists())
        {
            match self.start(read) {
                Ok(recorder) => work.recorder = Some(recorder),
                Err(reason) => work.lose(reason.to_string()),
            }
        }
        state.works.insert(key, work);
        true
    }

    /// A recording is gone: what it has is nobody's.
    fn forget(&self, state: &mut State, key: &str) {
        let Some(work) = state.works.remove(key) else { return };
        if let Some(recorder) = work.recorder {
            // What was recorded is dropped with the object.
            let _ = recorder.finish();
            state.lingering.push(recorder);
        }
        if let Ok(read) = &work.known.read {
            self.remove_journal(&read.uid);
        }
    }

    fn folder(&self) -> PathBuf {
        self.0.root.join("recordings")
    }

    /// The journal of a recording; none if its identity is no name of a file.
    fn journal(&self, uid: &str) -> Option<PathBuf> {
        let is_name = !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        is_name.then(|| self.folder().join(format!("{uid}.journal")))
    }

    fn remove_journal(&self, uid: &str) {
        if let Some(journal) = self.journal(uid)
            && let Err(error) = fs::remove_file(&journal)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            warn!(%error, journal = %journal.display(), "journal not removed");
        }
    }

    /// Removes the journals of recordings that are gone.
    fn remove_old_journals(&self, present: &BTreeSet<String>) {
        for entry in fs::read_dir(self.folder()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(uid) = name.strip_suffix(".journal")
                && !present.contains(uid)
            {
                self.remove_journal(uid);
            }
        }
    }

    fn start(&self, recording: &ProfileRecording) -> Result<Arc<Recorder>, StartError> {
        let journal = self.journal(&recording.uid).ok_or(StartError::Identity)?;
        Ok(Arc::new(Recorder::resume(&self.0.root.join("recorder"), &journal)?))
    }

    /// Waits until recordings were listed, or could not be.
    pub async fn until_ready(&self) {
        // swallowed: the sender is here
        let _ = self.0.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Waits until a recording is new, changed or gone.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// What records a pod.
    #[must_use]
    pub fn of_pod(&self, pod: &RunPod) -> Option<Assignment> {
        let now = now();
        {
            let state = self.read();
            if let Some(recorder) = state.of_everything.first() {
                return Some((Arc::clone(recorder), None));
            }
            let mut active = state.works.values().filter_map(|work| work.active(now));
            if !active.any(|read| read.selects(&pod.key.namespace, &pod.metadata.labels)) {
                return None;
            }
        }
        self.assign(pod, now)
    }

    fn assign(&self, pod: &RunPod, now: Time) -> Option<Assignment> {
        let mut state = self.write();
        let state = &mut *state;
        state.lingering.retain(|recorder| !recorder.is_idle());
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for work in state.works.values().filter(|work| work.recorder.is_some()) {
            if let Ok(read) = &work.known.read {
                *counts.entry(read.namespace.clone()).or_default() += 1;
            }
        }
        let mut assigned: Option<(String, Assignment)> = None;
        for work in state.works.values_mut() {
            let Some(read) = work.active(now).cloned() else { continue };
            if !read.selects(&pod.key.namespace, &pod.metadata.labels) {
                continue;
            }
            if let Some((name, _)) = &assigned {
                work.lose(format!(
                    "pod {} is recorded for ProfileRecording {name:?}, and a container has one recorder only",
                    pod.key.name
                ));
                continue;
            }
            if work.recorder.is_none() {
                let of_namespace = counts.entry(read.namespace.clone()).or_default();
                let is_full = *of_namespace >= MAX_OF_NAMESPACE;
                let started =
                    if is_full || counts.values().sum::<usize>() + state.lingering.len() >= MAX_RECORDERS {
                        Err(StartError::TooMany)
                    } else {
                        self.start(&read)
                    };
                match started {
                    Ok(recorder) => {
                        *counts.entry(read.namespace.clone()).or_default() += 1;
                        work.recorder = Some(recorder);
                    }
                    Err(error) => {
                        warn!(%error, recording = read.name, "not recorded");
                        work.lose(format!("pod {} is not recorded: {error}", pod.key.name));
                        continue;
                    }
                }
            }
            if work.pods.len() < MAX_PODS {
                work.pods.insert(pod.key.clone(), controller_of(pod));
            }
            if let Some(recorder) = &work.recorder {
                let candidate = match read.purpose {
                    Purpose::Profile { .. } => None,
                    Purpose::Complain { config_map, key } => Some((config_map, key)),
                };
                assigned = Some((read.name, (Arc::clone(recorder), candidate)));
            }
        }
        assigned.map(|(_, assignment)| assignment)
    }

    /// Whether a recording is at work, so that running containers must be looked at.
    #[must_use]
    pub fn is_active(&self) -> bool {
        let now = now();
        self.read().works.values().any(|work| work.active(now).is_some())
    }

    /// When the next recording ends.
    #[must_use]
    pub fn next_end(&self) -> Option<Time> {
        let now = now();
        self.read().works.values().filter_map(|work| Some(work.active(now)?.until)).min()
    }

    /// Notes a running container of a pod. One that a recording selects and no recorder serves is a loss.
    pub fn note_running(&self, pod: &PodKey, labels: &BTreeMap<String, String>, container: &str, id: &str) {
        let now = now();
        let mut state = self.write();
        if state.recorders().any(|recorder| recorder.has_seen(id)) {
            return;
        }
        let reason =
            format!("container {container:?} of pod {} runs without a recorder: restart it", pod.name);
        for work in state.works.values_mut() {
            if work.active(now).is_none_or(|read| !read.selects(&pod.namespace, labels)) {
                continue;
            }
            match &work.recorder {
                Some(recorder) => recorder.miss(id, &reason),
                None => work.lose(reason.clone()),
            }
        }
    }

    /// Whether a recorder of this process serves or served a container.
    #[must_use]
    pub fn has_seen(&self, id: &str) -> bool {
        self.read().recorders().any(|recorder| recorder.has_seen(id))
    }

    /// Ends the recordings whose end has come, and lets go of recorders that serve nothing more.
    pub fn end_due(&self) {
        let now = now();
        let mut state = self.write();
        let state = &mut *state;
        for work in state.works.values_mut().filter(|work| !work.is_ended) {
            let is_due = work.known.read.as_ref().is_ok_and(|read| !read.counts_at(now));
            if is_due {
                work.is_ended = true;
                if let Some(recorder) = &work.recorder {
                    let _ = recorder.finish();
                }
            }
        }
        state.lingering.retain(|recorder| !recorder.is_idle());
    }

    /// What this node has recorded, as far as it was not written before.
    #[must_use]
    pub fn parts(&self, node: &str) -> Vec<Part> {
        let state = self.read();
        let parts = state.works.iter().filter_map(|(key, work)| part(key, work, node));
        parts
            .filter(|(part, work)| work.written.as_ref() != Some(&part.object))
            .map(|(part, _)| part)
            .collect()
    }

    /// Notes that a part was written. After the last one nothing of it is kept on the node.
    pub fn wrote(&self, part: &Part) {
        let mut state = self.write();
        let state = &mut *state;
        let Some(work) = state.works.get_mut(&part.key) else { return };
        work.written = Some(part.object.clone());
        if part.is_last
            && let Ok(read) = &work.known.read
        {
            self.remove_journal(&read.uid);
        }
    }

    fn each(&self, act: impl Fn(&Recorder)) {
        for recorder in self.read().recorders() {
            act(recorder);
        }
    }

    fn change(&self, id: &str, change: impl Fn(&mut Run)) {
        self.each(|recorder| recorder.change(id, &change));
    }

    /// A container's probes succeed.
    pub(crate) fn ready(&self, id: &str) {
        self.change(id, |run| run.is_ready = true);
    }

    /// A container is about to be stopped.
    pub(crate) fn stopping(&self, id: &str) {
        self.change(id, |run| run.is_stopping = true);
    }

    /// The node executes a command in a container until the result is dropped.
    pub(crate) fn executing(&self, id: &str, phase: Phase) -> Executing {
        self.change(id, |run| run.expected.push(phase));
        Executing { recordings: self.clone(), id: id.to_owned(), phase }
    }
}

/// Why a recording has no recorder on this node.
#[derive(Debug, Error)]
enum StartError {
    #[error("the node records {MAX_OF_NAMESPACE} others of the namespace, or {MAX_RECORDERS} in all")]
    TooMany,
    #[error("its uid is no name of a file")]
    Identity,
    #[error(transparent)]
    Recorder(#[from] super::RecorderError),
}

/// The reference to the controller of a pod.
fn controller_of(pod: &RunPod) -> Option<Value> {
    let owners = pod.object.pointer("/metadata/ownerReferences").and_then(Value::as_array)?;
    let owner = owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))?;
    let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
    Some(
        json!({"apiVersion": text("apiVersion"), "kind": text("kind"), "name": text("name"), "uid": text("uid")}),
    )
}

/// The object of a node for a recording: its name is that of the recording and a digest of that of the node.
fn part<'w>(key: &str, work: &'w Work, node: &str) -> Option<(Part, &'w Work)> {
    let read = work.known.read.as_ref().ok()?;
    if work.pods.is_empty() && work.losses.is_empty() && work.recorder.is_none() {
        return None;
    }
    let digest = sha256::hex(node.as_bytes());
    let name = format!("{}-{}", read.name, digest.get(..16).unwrap_or(&digest));
    let recording = work.recorder.as_ref().map(|recorder| recorder.so_far());
    let mut losses: BTreeSet<String> = work.losses.clone();
    if work.pods.len() >= MAX_PODS {
        losses.insert(format!("there are more than {MAX_PODS} pods on the node"));
    }
    let pods: Vec<Value> = work.pods.keys().map(|pod| json!({"name": pod.name, "uid": pod.uid})).collect();
    let denials: Vec<Value> = work
        .recorder
        .iter()
        .flat_map(|recorder| recorder.denials())
        .map(|(denial, count)| {
            let mut row = json!({"pod": denial.pod.name, "uid": denial.pod.uid, "container": denial.container,
                "call": denial.call.to_string(), "count": count});
            if let (Some(Some(owner)), Some(fields)) = (work.pods.get(&denial.pod), row.as_object_mut()) {
                fields.insert("owner".to_owned(), owner.clone());
            }
            row
        })
        .collect();
    let object = |recorded: Value, losses: &BTreeSet<String>| {
        json!({"apiVersion": API_VERSION, "kind": PART_KIND,
            "metadata": {"name": name, "namespace": read.namespace, "ownerReferences": [
                {"apiVersion": API_VERSION, "kind": KIND, "name": read.name, "uid": read.uid}]},
            "node": node, "observedGeneration": work.known.generation, "ended": work.is_ended, "pods": pods,
            "lossy": losses, "recorded": recorded, "denials": denials})
    };
    let document = recording.map(|recording| recording.to_document());
    let mut whole = object(document.unwrap_or(Value::Null), &losses);
    if whole.to_string().len() > MAX_PART {
        losses.insert(format!("what node {node} has recorded is larger than {MAX_PART} bytes"));
        whole = object(Value::Null, &losses);
    }
    let part = Part {
        key: key.to_owned(),
        namespace: read.namespace.clone(),
        name,
        object: whole,
        is_last: work.is_ended,
    };
    Some((part, work))
}

/// A command that the node executes.
#[derive(Debug)]
pub(crate) struct Executing {
    recordings: Recordings,
    id: String,
    phase: Phase,
}

impl Drop for Executing {
    fn drop(&mut self) {
        let phase = self.phase;
        self.recordings.change(&self.id, |run| {
            if let Some(position) = run.expected.iter().position(|known| *known == phase) {
                run.expected.swap_remove(position);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::{
        pod_view::ContainerKind,
        profile::{architecture::Architecture, recording::unconfined},
    };

    use super::*;
    use crate::recording::Recordable;

    fn object(name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut object = json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "until": "2999-01-01T00:00:00Z"}});
        change(&mut object);
        object
    }

    fn set(recordings: &Recordings, object: &Value) {
        let key = format!("shop/{}", object["metadata"]["name"].as_str().unwrap());
        recordings.take(RecordingChange::Set(key, Box::new(KnownRecording::of(object))));
    }

    fn pod(name: &str, app: &str) -> RunPod {
        RunPod::from_object(json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "labels": {"app": app}, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
            "uid": "r", "controller": true}]}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .unwrap()
    }

    fn what(pod: &RunPod) -> Recordable<'_> {
        Recordable { pod: &pod.key, container: "c", kind: ContainerKind::App, has_probes: false }
    }

    fn losses(recordings: &Recordings, name: &str) -> String {
        let parts = recordings.parts("n1");
        let part = parts.iter().find(|part| part.key == format!("shop/{name}"));
        part.map_or_else(String::new, |part| {
            let recorded = part.object["recorded"]["lossy"].to_string();
            format!("{} {recorded}", part.object["lossy"])
        })
    }

    #[test]
    fn a_pod_is_recorded_by_the_first_recording_that_selects_it() {
        let folder = tempfile::tempdir().unwrap();
        let recordings = Recordings::below(folder.path());
        assert!(recordings.of_pod(&pod("a", "web")).is_none());
        set(&recordings, &object("one", |_| ()));
        set(&recordings, &object("two", |_| ()));
        set(&recordings, &object("over", |object| object["spec"]["until"] = json!("2020-01-01T00:00:00Z")));
        set(&recordings, &object("broken", |object| object["spec"]["until"] = json!("soon")));
        assert!(recordings.of_pod(&pod("a", "db")).is_none(), "another label");
        let (recorder, profile) = recordings.of_pod(&pod("a", "web")).unwrap();
        assert_eq!(profile, None);
        let again = recordings.of_pod(&pod("b", "web")).unwrap().0;
        assert!(Arc::ptr_eq(&recorder, &again), "replicas have one recorder");
        assert!(losses(&recordings, "two").contains("pod a is recorded for ProfileRecording"));
        let parts = recordings.parts("n1");
        assert_eq!(parts.len(), 2, "the others have nothing to report");
        assert_eq!(parts[0].object["pods"].as_array().unwrap().len(), 2);
        assert_eq!(parts[0].object["metadata"]["ownerReferences"][0]["uid"], "uid-one");
        recordings.wrote(&parts[0]);
        assert_eq!(recordings.parts("n1").len(), 1, "what was written is not written again");
        // Its end has come: the recorder stays for the containers that it serves.
        set(&recordings, &object("one", |object| object["spec"]["until"] = json!("2020-01-01T00:00:00Z")));
        recordings.end_due();
        let part = recordings.parts("n1").into_iter().find(|part| part.key == "shop/one").unwrap();
        assert!(part.is_last && part.object["ended"] == true);
        assert!(folder.path().join("recordings/uid-one.journal").exists());
        recordings.wrote(&part);
        assert!(!folder.path().join("recordings/uid-one.journal").exists());
        assert!(recorder.socket().exists());
    }

    #[test]
    fn a_recorder_that_was_killed_is_reported_by_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let recordings = Recordings::below(folder.path());
        set(&recordings, &object("one", |_| ()));
        set(
            &recordings,
            &object("gone", |object| object["spec"]["selector"]["matchLabels"]["app"] = json!("gone")),
        );
        let web = pod("a", "web");
        let (recorder, _) = recordings.of_pod(&web).unwrap();
        assert!(recordings.of_pod(&pod("g", "gone")).is_some());
        recorder.plan(what(&web), &unconfined(Architecture::COMMON).unwrap()).unwrap();
        // Another process finds what it left.
        let next = Recordings::below(folder.path());
        let known = KnownRecording::of(&object("one", |_| ()));
        next.take(RecordingChange::All(BTreeMap::from([("shop/one".to_owned(), known)])));
        let found = losses(&next, "one");
        assert!(found.contains("the recorder ended before the containers did"), "{found}");
        let left: Vec<_> = fs::read_dir(folder.path().join("recordings")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "the journal of a recording that is gone is removed: {left:?}");
    }

    #[test]
    fn a_running_container_that_no_recorder_serves_is_a_loss() {
        let folder = tempfile::tempdir().unwrap();
        let recordings = Recordings::below(folder.path());
        set(&recordings, &object("one", |_| ()));
        let (web, labels) = (pod("a", "web"), BTreeMap::from([("app".to_owned(), "web".to_owned())]));
        let (recorder, _) = recordings.of_pod(&web).unwrap();
        let (_, token) = recorder.plan(what(&web), &unconfined(Architecture::COMMON).unwrap()).unwrap();
        super::super::Recorded { recorder, token }.created("served");
        recordings.note_running(&web.key, &labels, "c", "served");
        recordings.note_running(&web.key, &BTreeMap::new(), "c", "another label");
        assert_eq!(losses(&recordings, "one"), "[] []");
        recordings.note_running(&web.key, &labels, "c", "unserved");
        assert!(
            losses(&recordings, "one")
                .contains("container \\\"c\\\" of pod a runs without a recorder: restart it")
        );
    }

    #[test]
    fn what_a_tenant_can_cause_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let recordings = Recordings::below(folder.path());
        for index in 0..=MAX_OF_NAMESPACE {
            let app = format!("app-{index}");
            set(
                &recordings,
                &object(&app, |object| object["spec"]["selector"]["matchLabels"]["app"] = json!(app)),
            );
        }
        let served = (0..=MAX_OF_NAMESPACE)
            .filter(|index| recordings.of_pod(&pod("a", &format!("app-{index}"))).is_some())
            .count();
        assert_eq!(served, MAX_OF_NAMESPACE);
        let reason = losses(&recordings, &format!("app-{MAX_OF_NAMESPACE}"));
        assert!(reason.contains("the node records 8 others of the namespace"), "{reason}");
        // Containers of one recorder.
        let (recorder, _) = recordings.of_pod(&pod("a", "app-0")).unwrap();
        let base = unconfined(Architecture::COMMON).unwrap();
        let expect = |recorder: &Recorder, index: usize, name: &str| {
            recorder.expect(what(&pod(name, "app")), &base, index.to_string(), None).is_ok()
        };
        let planned = (0..200).filter(|index| expect(&recorder, *index, &format!("p{index}"))).count();
        assert_eq!(planned, 128);
        // A container that is planned again and again is one.
        let (recorder, _) = recordings.of_pod(&pod("a", "app-1")).unwrap();
        assert!((0..200).all(|index| expect(&recorder, index, "same")));
        let escaping = object("x", |object| object["metadata"]["uid"] = json!("../../etc/passwd"));
        set(&recordings, &escaping);
        assert_eq!(recordings.journal("../../etc/passwd"), None);
    }
}
