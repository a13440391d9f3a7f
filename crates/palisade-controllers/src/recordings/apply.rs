//! Watches recordings, the parts of the nodes and the pods that run meanwhile, and writes status, ConfigMaps and events.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use palisade_base::{
    causes::root_cause,
    time::{Time, rfc3339},
};
use palisade_model::profile_recording::{
    API_VERSION, KIND, PART_KIND, PART_RESOURCE, ProfileRecording, RESOURCE,
};
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinHandle, time::Instant};
use tracing::{debug, warn};

use super::plan::{
    DenialEvent, NotWritten, RecordingPlan, StartedPod, completed, is_completed, next_look, plan,
};
use crate::guards::apply::{plain, reflected, resource};

/// Name of the controller.
pub const NAME: &str = "profile-recordings";
/// Who writes.
const FIELD_MANAGER: &str = "palisade-profile-recordings";
/// Changes come in bursts; what can wait this long is written together.
const BURST: Duration = Duration::from_millis(500);
/// How often everything is looked at although nothing changed.
const RESYNC: Duration = Duration::from_secs(30);
/// How often the counts of a recording become events.
const EVENTS_EVERY: Duration = Duration::from_secs(30);

fn core(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: String::new(),
        version: "v1".to_owned(),
        api_version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// A pod that has started, as the watch of pods has it.
#[derive(Debug, Clone)]
struct SeenPod {
    namespace: String,
    labels: BTreeMap<String, String>,
    pod: StartedPod,
}

type Seen = Arc<Mutex<BTreeMap<String, SeenPod>>>;

/// A pod of which a container has started. Its phase does not show that of init containers.
fn seen(object: &DynamicObject) -> Option<SeenPod> {
    let has_started = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"]
        .iter()
        .filter_map(|list| object.data.get("status")?.get(*list)?.as_array())
        .flatten()
        .any(|status| {
            ["/state/running", "/state/terminated", "/lastState/terminated"]
                .iter()
                .any(|path| status.pointer(path).is_some_and(|state| !state.is_null()))
        });
    let node = object.data.pointer("/spec/nodeName").and_then(Value::as_str);
    has_started.then(|| SeenPod {
        namespace: object.metadata.namespace.clone().unwrap_or_default(),
        labels: object.metadata.labels.clone().unwrap_or_default(),
        pod: StartedPod {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
            node: node.unwrap_or_default().to_owned(),
        },
    })
}

/// Keeps every pod that has started, by identity, until it is taken. Pods that are gone since stay.
async fn watch_pods(client: Client, found: Seen) {
    let api: Api<DynamicObject> = Api::all_with(client, &core("Pod", "pods"));
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(pod) | Event::Apply(pod) | Event::Delete(pod)) => {
                if let Some(pod) = seen(&pod) {
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.insert(pod.pod.uid.clone(), pod);
                }
            }
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => debug!(error = %root_cause(&error), "watch of pods interrupted"),
        }
    }
}

/// Puts recordings together until `shutdown`.
pub async fn run(client: Client, shutdown: impl Future<Output = ()>) {
    let changed = Arc::new(Notify::new());
    let (recordings, mut watching_recordings) = reflected(&client, resource(KIND, RESOURCE), &changed);
    let (parts, mut watching_parts) = reflected(&client, resource(PART_KIND, PART_RESOURCE), &changed);
    let writing = async {
        if recordings.wait_until_ready().await.is_err() || parts.wait_until_ready().await.is_err() {
            return;
        }
        let mut writer = Writer::new(client.clone());
        loop {
            let recordings = plain(&recordings.state());
            let next = writer.write(&recordings, plain(&parts.state())).await;
            let _ = tokio::time::timeout(next, changed.notified()).await;
            tokio::time::sleep(BURST).await;
        }
    };
    let watching = async {
        loop {
            tokio::select! {
                Some(()) = watching_recordings.next() => {}
                Some(()) = watching_parts.next() => {}
                else => return,
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = watching => {}
        () = shutdown => {}
    }
}

/// A watch that ends with it.
struct PodWatch(JoinHandle<()>);

impl Drop for PodWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Writer {
    client: Client,
    seen: Seen,
    /// Which recordings the watch of pods was started for: one that is new must see the pods that run.
    watched: BTreeSet<String>,
    watch: Option<PodWatch>,
    /// Pods of a recording that are not in its status yet.
    started: BTreeMap<String, BTreeSet<StartedPod>>,
    written: BTreeMap<String, Value>,
    /// The events of a recording: when they were last written, and with which counts.
    events: BTreeMap<String, (Instant, BTreeMap<String, u64>)>,
}

fn uid(object: &Value) -> String {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl Writer {
    fn new(client: Client) -> Self {
        Self {
            client,
            seen: Seen::default(),
            watched: BTreeSet::new(),
            watch: None,
            started: BTreeMap::new(),
            written: BTreeMap::new(),
            events: BTreeMap::new(),
        }
    }

    /// Writes what changed; how long until the next look.
    async fn write(&mut self, recordings: &[Value], parts: Vec<Value>) -> Duration {
        let now = Timestamp::now();
        let now = Time { seconds: now.as_second(), micros: now.subsec_microsecond().unsigned_abs() };
        let active: Vec<&Value> = recordings.iter().filter(|object| !is_completed(object)).collect();
        self.watch_for(&active);
        let mut of_namespace: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for part in parts {
            let namespace = part.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
            of_namespace.entry(namespace.to_owned()).or_default().push(part);
        }
        for object in &active {
            let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
            let parts = of_namespace.get(namespace).map(Vec::as_slice).unwrap_or_default();
            let uid = uid(object);
            let started: Vec<StartedPod> = self.started.get(&uid).into_iter().flatten().cloned().collect();
            let planned = plan(object, parts, &started, now);
            self.apply(object, &uid, planned, now).await;
        }
        let present: BTreeSet<String> = recordings.iter().map(uid).collect();
        self.started.retain(|uid, _| present.contains(uid));
        self.written.retain(|uid, _| present.contains(uid));
        self.events.retain(|uid, _| present.contains(uid));
        let next = active.iter().filter_map(|object| next_look(object, now)).min();
        let next = next.and_then(|at| u64::try_from(at - now.seconds).ok()).map(Duration::from_secs);
        next.unwrap_or(RESYNC).min(RESYNC)
    }

    /// Watches pods as long as there are recordings, and takes those over that they select.
    fn watch_for(&mut self, active: &[&Value]) {
        let recordings: Vec<ProfileRecording> =
            // swallowed: what cannot be read is in its status
            active.iter().filter_map(|object| ProfileRecording::read(object).ok()).collect();
        {
            let found = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
            for pod in found.into_values() {
                for recording in &recordings {
                    if recording.selects(&pod.namespace, &pod.labels) {
                        self.started.entry(recording.uid.clone()).or_default().insert(pod.pod.clone());
                    }
                }
            }
        }
        let uids: BTreeSet<String> = recordings.into_iter().map(|recording| recording.uid).collect();
        if uids.is_empty() {
            self.watch = None;
        } else if self.watch.is_none() || !uids.is_subset(&self.watched) {
            let watch = watch_pods(self.client.clone(), Arc::clone(&self.seen));
            self.watch = Some(PodWatch(tokio::spawn(watch)));
        }
        self.watched = uids;
    }

    async fn apply(&mut self, object: &Value, uid: &str, planned: RecordingPlan, now: Time) {
        let RecordingPlan { mut status, config_map, events } = planned;
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        if let Some(map) = config_map {
            let of = map.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
            match self.create_config_map(namespace, &of, &map).await {
                Ok(written) => status = completed(status, &of, written, now),
                // Tried again: nothing of the recording is lost meanwhile.
                Err(error) => {
                    warn!(recording = name, error = %root_cause(&error), "failed to write a recorded profile");
                    return;
                }
            }
        }
        let is_last = is_completed(&json!({"status": status}));
        self.record(uid, namespace, text("/metadata/creationTimestamp"), events, is_last, now).await;
        if self.written.get(uid) == Some(&status) {
            return;
        }
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource(KIND, RESOURCE));
        let patch = json!({"apiVersion": API_VERSION, "kind": KIND,
            "metadata": {"name": name, "namespace": namespace, "uid": uid}, "status": status});
        let params = PatchParams::apply(FIELD_MANAGER).force();
        match api.patch_status(name, &params, &Patch::Apply(patch)).await {
            Ok(_) => {
                self.started.remove(uid);
                self.written.insert(uid.to_owned(), status);
            }
            Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => {}
            Err(error) => {
                warn!(recording = name, error = %root_cause(&error), "failed to write the status of a recording");
            }
        }
    }

    /// Creates a ConfigMap; one that is there is left as it is, and is fine if it holds the same.
    async fn create_config_map(
        &self,
        namespace: &str,
        name: &str,
        map: &Value,
    ) -> Result<Result<(), NotWritten>, kube::Error> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &core("ConfigMap", "configmaps"));
        let object = serde_json::from_value(map.clone()).map_err(kube::Error::SerdeError)?;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(Ok(())),
            Err(kube::Error::Api(answer)) if answer.code == 409 => {
                let known = api.get_opt(name).await?;
                let is_same = known.is_some_and(|known| known.data.get("data") == map.get("data"));
                Ok(if is_same { Ok(()) } else { Err(NotWritten::Exists { name: name.to_owned() }) })
            }
            // It will not become valid: an invalid name, a namespace that is going, a quota.
            Err(kube::Error::Api(answer)) if matches!(answer.code, 403 | 422) => {
                Ok(Err(NotWritten::Rejected(answer.message.clone())))
            }
            Err(error) => Err(error),
        }
    }

    /// Records the calls that a profile would deny on the owners of the pods.
    async fn record(
        &mut self,
        recording: &str,
        namespace: &str,
        since: &str,
        events: Vec<DenialEvent>,
        is_last: bool,
        now: Time,
    ) {
        let known = self.events.get(recording);
        if events.is_empty() || known.is_some_and(|(at, _)| !is_last && at.elapsed() < EVENTS_EVERY) {
            return;
        }
        let mut counts = known.map(|(_, counts)| counts.clone()).unwrap_or_default();
        for event in events {
            if counts.get(&event.digest) == Some(&event.count) {
                continue;
            }
            match self.write_event(namespace, since, &event, now).await {
                Ok(()) => drop(counts.insert(event.digest, event.count)),
                Err(error) => warn!(error = %root_cause(&error), "cannot record an event"),
            }
        }
        self.events.insert(recording.to_owned(), (Instant::now(), counts));
    }

    async fn write_event(
        &self,
        namespace: &str,
        since: &str,
        event: &DenialEvent,
        now: Time,
    ) -> Result<(), kube::Error> {
        let mut owner = self.deployment_of(namespace, &event.owner).await?;
        if let Some(fields) = owner.as_object_mut() {
            fields.insert("namespace".to_owned(), namespace.into());
        }
        let of: String =
            owner.get("name").and_then(Value::as_str).unwrap_or_default().chars().take(200).collect();
        let name = format!("{}.{}", of.trim_end_matches(['-', '.']), event.digest);
        let object = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
            "involvedObject": owner, "type": "Warning", "reason": "SeccompProfileWouldDeny", "message": event.message,
            "count": event.count, "firstTimestamp": since, "lastTimestamp": rfc3339(now.seconds),
            "source": {"component": FIELD_MANAGER}, "reportingComponent": FIELD_MANAGER,
            "reportingInstance": FIELD_MANAGER});
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &core("Event", "events"));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(&name, &params, &Patch::Apply(object)).await.map(drop)
    }

    /// The Deployment of a ReplicaSet: what people have written. Any other owner is itself.
    async fn deployment_of(&self, namespace: &str, owner: &Value) -> Result<Value, kube::Error> {
        let text = |key: &str| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        if (text("apiVersion"), text("kind")) != ("apps/v1", "ReplicaSet") {
            return Ok(owner.clone());
        }
        let kind = ApiResource {
            group: "apps".to_owned(),
            api_version: "apps/v1".to_owned(),
            ..core("ReplicaSet", "replicasets")
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind);
        let set = api.get_opt(text("name")).await?;
        let set = set.filter(|set| set.metadata.uid.as_deref() == Some(text("uid")));
        let references = set.and_then(|set| set.metadata.owner_references).unwrap_or_default();
        let found = references.into_iter().find(|reference| reference.controller == Some(true));
        Ok(found.map_or_else(
            || owner.clone(),
            |found| {
                json!({"apiVersion": found.api_version, "kind": found.kind, "name": found.name, "uid": found.uid})
            },
        ))
    }
}
