//! Pods without an API server: what `palisade run` and tests use.
//!
//! Objects live in memory. Statuses and events are kept, so that the command that runs the pod can read them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::BoxStream,
};
use palisade_model::guard::{GuardObjectError, SyscallGuard};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::{ApiError, CertificateWish, ConfigMap, PodChange, PodKey, PodSource, Secret};
use crate::{
    events::EventRecord,
    guards::{GuardChange, KnownGuard},
    pod::RunPod,
    recording::objects::{KnownRecording, Part, RecordingChange},
};

/// An in-memory API.
#[derive(Debug, Clone, Default)]
pub struct LocalSource {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<String, Value>,
    statuses: BTreeMap<String, Value>,
    events: BTreeMap<String, EventRecord>,
    config_maps: BTreeMap<(String, String), ConfigMap>,
    secrets: BTreeMap<(String, String), Secret>,
    node: Option<Value>,
    leases: u64,
    watchers: Vec<mpsc::UnboundedSender<PodChange>>,
    guards: BTreeMap<String, KnownGuard>,
    guard_rows: Vec<Value>,
    guard_watchers: Vec<mpsc::UnboundedSender<GuardChange>>,
    /// What was requested, and the request as it is now.
    certificates: Vec<(CertificateWish, Value)>,
    recordings: BTreeMap<String, KnownRecording>,
    recording_watchers: Vec<mpsc::UnboundedSender<RecordingChange>>,
    recording_parts: BTreeMap<String, Value>,
}

impl LocalSource {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        // A panic elsewhere must not take the agent with it; the maps are whole after every statement.
        let result = work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|version| *version = version.wrapping_add(1));
        result
    }

    fn notify(state: &mut State, change: &PodChange) {
        state.watchers.retain(|watcher| watcher.send(change.clone()).is_ok());
    }

    /// Adds or replaces a pod.
    pub fn apply(&self, pod: &RunPod) {
        let object = pod.object.clone();
        self.with(|state| {
            state.pods.insert(pod.key.uid.clone(), object.clone());
            Self::notify(state, &PodChange::Applied(object));
        });
    }

    /// Requests a pod to be stopped, as `kubectl delete` does.
    pub fn delete(&self, uid: &str, grace_seconds: Option<i64>) {
        self.with(|state| {
            let Some(pod) = state.pods.get_mut(uid) else { return };
            let grace = grace_seconds
                .or_else(|| pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64))
                .unwrap_or(30);
            if let Some(Value::Object(metadata)) = pod.get_mut("metadata") {
                metadata.insert("deletionTimestamp".to_owned(), jiff::Timestamp::now().to_string().into());
                metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
            }
            let object = pod.clone();
            Self::notify(state, &PodChange::Applied(object));
        });
    }

    /// Adds or replaces a guard.
    pub fn put_guard(&self, object: &Value) -> Result<(), GuardObjectError> {
        let guard = SyscallGuard::read(object)?;
        let name = guard.name.clone();
        let known = KnownGuard { generation: 1, read: Ok(guard) };
        self.with(|state| {
            state.guards.insert(name, known);
            let change = GuardChange::All(state.guards.clone());
            state.guard_watchers.retain(|watcher| watcher.send(change.clone()).is_ok());
        });
        Ok(())
    }

    /// Adds or replaces a recording.
    pub fn put_recording(&self, object: &Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let key = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
        let known = KnownRecording::of(object);
        self.with(|state| {
            state.recordings.insert(key.clone(), known.clone());
            let change = RecordingChange::Set(key, Box::new(known));
            state.recording_watchers.retain(|watcher| watcher.send(change.clone()).is_ok());
        });
    }

    /// Removes a recording.
    pub fn remove_recording(&self, key: &str) {
        self.with(|state| {
            state.recordings.remove(key);
            let change = RecordingChange::Gone(key.to_owned());
            state.recording_watchers.retain(|watcher| watcher.send(change.clone()).is_ok());
        });
    }

    /// What was last written for a recording.
    #[must_use]
    pub fn recording_part(&self, key: &str) -> Option<Value> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).recording_parts.get(key).cloned()
    }

    /// Which containers each guard covers, as it was last written.
    #[must_use]
    pub fn guard_rows(&self) -> Vec<Value> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).guard_rows.clone()
    }

    /// Adds or replaces a ConfigMap.
    pub fn put_config_map(&self, namespace: &str, name: &str, map: ConfigMap) {
        self.with(|state| state.config_maps.insert((namespace.to_owned(), name.to_owned()), map));
    }

    /// Removes a ConfigMap.
    pub fn remove_config_map(&self, namespace: &str, name: &str) {
        self.with(|state| state.config_maps.remove(&(namespace.to_owned(), name.to_owned())));
    }

    /// Adds or replaces a Secret.
    pub fn put_secret(&self, namespace: &str, name: &str, secret: Secret) {
        self.with(|state| state.secrets.insert((namespace.to_owned(), name.to_owned()), secret));
    }

    /// The status last written for a pod.
    #[must_use]
    pub fn status(&self, uid: &str) -> Option<Value> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).statuses.get(uid).cloned()
    }

    /// The events about a pod, oldest first.
    #[must_use]
    pub fn events(&self, uid: &str) -> Vec<EventRecord> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events: Vec<_> =
            state.events.values().filter(|event| event.pod.uid == uid).cloned().collect();
        events.sort_by(|a, b| (a.first, &a.name).cmp(&(b.first, &b.name)));
        events
    }

    /// Whether the pod is still there.
    #[must_use]
    pub fn has_pod(&self, uid: &str) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pods.contains_key(uid)
    }

    /// The node object and how often its lease was renewed.
    #[must_use]
    pub fn node(&self) -> (Option<Value>, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.node.clone(), state.leases)
    }

    /// The certificates that were requested, oldest first.
    #[must_use]
    pub fn certificate_wishes(&self) -> Vec<CertificateWish> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.certificates.iter().map(|(wish, _)| wish.clone()).collect()
    }

    /// Answers a request as a signer does; without an answer it stays pending.
    pub fn answer_certificate(&self, number: usize, request: Value) {
        self.with(|state| {
            if let Some((_, known)) = state.certificates.get_mut(number) {
                *known = request;
            }
        });
    }

    /// A signal for every change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl PodSource for LocalSource {
    fn pods(&self) -> BoxStream<'static, PodChange> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.with(|state| {
            let all = PodChange::All(state.pods.values().cloned().collect());
            if sender.send(all).is_ok() {
                state.watchers.push(sender);
            }
        });
        futures::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|change| (change, receiver))
        })
        .boxed()
    }

    fn guards(&self) -> BoxStream<'static, GuardChange> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.with(|state| {
            if sender.send(GuardChange::All(state.guards.clone())).is_ok() {
                state.guard_watchers.push(sender);
            }
        });
        futures::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|change| (change, receiver))
        })
        .boxed()
    }

    fn recordings(&self) -> BoxStream<'static, RecordingChange> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.with(|state| {
            if sender.send(RecordingChange::All(state.recordings.clone())).is_ok() {
                state.recording_watchers.push(sender);
            }
        });
        futures::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|change| (change, receiver))
        })
        .boxed()
    }

    fn write_recording(&self, part: Part) -> BoxFuture<'_, Result<(), ApiError>> {
        self.with(|state| state.recording_parts.insert(part.key, part.object));
        async { Ok(()) }.boxed()
    }

    fn write_guard_rows<'a>(&'a self, _: &'a str, rows: Vec<Value>) -> BoxFuture<'a, Result<(), ApiError>> {
        self.with(|state| state.guard_rows = rows);
        async { Ok(()) }.boxed()
    }

    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<ConfigMap>, ApiError>> {
        let key = (namespace.to_owned(), name.to_owned());
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let found = state.config_maps.get(&key).cloned();
        async move { Ok(found) }.boxed()
    }

    fn config_maps<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<ConfigMap>, ApiError>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let found = state
            .config_maps
            .iter()
            .filter(|((at, _), _)| at == namespace)
            .map(|(_, map)| map.clone())
            .collect();
        async move { Ok(found) }.boxed()
    }

    fn secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Secret>, ApiError>> {
        let key = (namespace.to_owned(), name.to_owned());
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let found = state.secrets.get(&key).cloned();
        async move { Ok(found) }.boxed()
    }

    fn trust_bundles(&self) -> BoxFuture<'_, Result<Vec<Value>, ApiError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn services<'a>(&'a self, _: &'a str, _: bool) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn service_account_token<'a>(
        &'a self,
        _pod: &'a PodKey,
        account: &'a str,
        _audience: Option<&'a str>,
        _expiration_seconds: i64,
    ) -> BoxFuture<'a, Result<String, ApiError>> {
        let text = format!("service account {account:?} has no token without an API server");
        async move { Err(ApiError::Other(text)) }.boxed()
    }

    fn request_certificate<'a>(
        &'a self,
        _pod: &'a RunPod,
        wish: CertificateWish,
    ) -> BoxFuture<'a, Result<String, ApiError>> {
        let name = self.with(|state| {
            state.certificates.push((wish, Value::Object(serde_json::Map::new())));
            format!("req-{}", state.certificates.len() - 1)
        });
        async move { Ok(name) }.boxed()
    }

    fn certificate_request<'a>(
        &'a self,
        _namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut requests = state.certificates.iter().enumerate();
        let found = requests.find(|(number, _)| name == format!("req-{number}"));
        let found = found.map(|(_, (_, request))| request.clone());
        async move { Ok(found) }.boxed()
    }

    fn write_status<'a>(&'a self, pod: &'a PodKey, status: Value) -> BoxFuture<'a, Result<(), ApiError>> {
        self.with(|state| {
            if let Some(Value::Object(object)) = state.pods.get_mut(&pod.uid) {
                object.insert("status".to_owned(), status.clone());
            }
            state.statuses.insert(pod.uid.clone(), status);
        });
        async { Ok(()) }.boxed()
    }

    fn write_event(&self, event: EventRecord) -> BoxFuture<'_, Result<(), ApiError>> {
        self.with(|state| state.events.insert(event.name.clone(), event));
        async { Ok(()) }.boxed()
    }

    fn finish_deletion<'a>(&'a self, pod: &'a PodKey) -> BoxFuture<'a, Result<(), ApiError>> {
        self.with(|state| {
            state.pods.remove(&pod.uid);
            Self::notify(state, &PodChange::Gone { uid: pod.uid.clone() });
        });
        async { Ok(()) }.boxed()
    }

    fn write_node(&self, node: Value) -> BoxFuture<'_, Result<(), ApiError>> {
        self.with(|state| state.node = Some(node));
        async { Ok(()) }.boxed()
    }

    fn read_node<'a>(&'a self, _node: &'a str) -> BoxFuture<'a, Result<Option<Value>, ApiError>> {
        let found = self.node().0;
        async move { Ok(found) }.boxed()
    }

    /// Without an API server there are no classes: a pod names the handler itself.
    fn runtime_handler<'a>(&'a self, class: &'a str) -> BoxFuture<'a, Result<Option<String>, ApiError>> {
        async move { Ok(Some(class.to_owned())) }.boxed()
    }

    fn label_node<'a>(
        &'a self,
        node: &'a str,
        labels: BTreeMap<String, String>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        self.with(|state| {
            state.node = Some(serde_json::json!({"metadata": {"name": node, "labels": labels}}));
        });
        async { Ok(()) }.boxed()
    }

    fn renew_lease<'a>(&'a self, _node: &'a str, _seconds: u32) -> BoxFuture<'a, Result<(), ApiError>> {
        self.with(|state| state.leases += 1);
        async { Ok(()) }.boxed()
    }
}
