//! Events about pods, counted rather than repeated.
//!
//! Implements: the kubelet's event recorder as far as users see it: the same reason and message about the same object is
//! one event whose count grows (`client-go/tools/record`). Writing is the [`crate::api::PodSource`]'s.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::Timestamp;
use palisade_base::{sha256, time::rfc3339};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::api::{PodKey, PodSource};

/// Whether an event is good or bad news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[allow(missing_docs, reason = "the names are the API's own")]
pub enum EventType {
    Normal,
    Warning,
}

impl EventType {
    /// The API's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event as it stands after its latest occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// The object's name; stays the same while the count grows.
    pub name: String,
    /// What it is about.
    pub pod: PodKey,
    /// The container it is about, as a field path; empty for the whole pod.
    pub field_path: String,
    /// Good or bad news.
    pub kind: EventType,
    /// CamelCase word for machines.
    pub reason: String,
    /// Sentence for people.
    pub message: String,
    /// How often it happened.
    pub count: u32,
    /// When it happened first.
    pub first: Timestamp,
    /// When it happened last.
    pub last: Timestamp,
}

impl EventRecord {
    /// The API object.
    #[must_use]
    pub fn object(&self, node: &str) -> Value {
        let mut involved = json!({"apiVersion": "v1", "kind": "Pod", "namespace": self.pod.namespace,
            "name": self.pod.name, "uid": self.pod.uid});
        if !self.field_path.is_empty()
            && let Value::Object(fields) = &mut involved
        {
            fields.insert("fieldPath".to_owned(), self.field_path.clone().into());
        }
        let seconds = |time: Timestamp| rfc3339(time.as_second());
        json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": self.pod.namespace, "name": self.name},
            "involvedObject": involved, "type": self.kind.as_str(), "reason": self.reason,
            "message": self.message, "count": self.count, "firstTimestamp": seconds(self.first),
            "lastTimestamp": seconds(self.last), "source": {"component": "kubelet", "host": node},
            "reportingComponent": "kubelet", "reportingInstance": node})
    }
}

/// Remembers recorded events, and hands every change to a writer that may be slow.
#[derive(Debug, Clone)]
pub struct Recorder {
    known: Arc<Mutex<BTreeMap<String, EventRecord>>>,
    named: Arc<AtomicU64>,
    queue: mpsc::Sender<EventRecord>,
}

// As in client-go: the oldest is forgotten first.
const REMEMBERED: usize = 4096;

impl Recorder {
    /// A recorder and the task that writes what it records. An API server that is slow or away loses events, nothing
    /// else.
    pub fn new(source: Arc<dyn PodSource>) -> Self {
        let (queue, mut events) = mpsc::channel::<EventRecord>(1024);
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                if let Err(error) = source.write_event(event).await {
                    tracing::debug!(%error, "failed to record an event");
                }
            }
        });
        Self { known: Arc::default(), named: Arc::default(), queue }
    }

    /// Records an event on a pod, or on one of its containers.
    pub fn record(&self, pod: &PodKey, field_path: &str, kind: EventType, reason: &str, message: &str) {
        let now = Timestamp::now();
        let identity = sha256::hex(
            format!("{}\0{field_path}\0{}\0{reason}\0{message}", pod.uid, kind.as_str()).as_bytes(),
        );
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let event = known
            .entry(identity.clone())
            .and_modify(|event| {
                event.count = event.count.saturating_add(1);
                event.last = now;
            })
            .or_insert_with(|| EventRecord {
                // A pod's name may be as long as an object's; the event's must not be longer. In the order of time, as
                // lists are sorted by name.
                name: format!("{}.{:x}", pod.name.chars().take(230).collect::<String>(), self.next_name(now)),
                pod: pod.clone(),
                field_path: field_path.to_owned(),
                kind,
                reason: reason.to_owned(),
                message: message.to_owned(),
                count: 1,
                first: now,
                last: now,
            })
            .clone();
        if known.len() > REMEMBERED
            && let Some(oldest) = known.iter().min_by_key(|(_, event)| event.last).map(|(key, _)| key.clone())
        {
            known.remove(&oldest);
        }
        drop(known);
        tracing::debug!(pod = %pod, reason, message, "event");
        self.queue.try_send(event).ok();
    }

    /// Nanoseconds since 1970 that no other event is named by.
    fn next_name(&self, now: Timestamp) -> u64 {
        let now = u64::try_from(now.as_nanosecond()).unwrap_or_default();
        let next = |last: u64| last.saturating_add(1).max(now);
        let step = |last| Some(next(last));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.named.fetch_update(set, fetch, step).map_or(now, next)
    }

    /// Forgets a pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, event| event.pod.uid != uid);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{EventType, Recorder};
    use crate::api::{PodKey, local::LocalSource};

    #[tokio::test]
    async fn the_same_news_is_counted_not_repeated() {
        let source = LocalSource::default();
        let recorder = Recorder::new(Arc::new(source.clone()));
        let pod = PodKey { namespace: "n".into(), name: "p".into(), uid: "u".into() };
        for _ in 0..3 {
            recorder.record(&pod, "spec.containers{c}", EventType::Warning, "Failed", "Error: x");
        }
        recorder.record(&pod, "", EventType::Normal, "Pulled", "y");
        while source.events("u").iter().map(|event| event.count).sum::<u32>() < 4 {
            tokio::task::yield_now().await;
        }
        let found: Vec<_> = source.events("u").into_iter().map(|event| (event.reason, event.count)).collect();
        assert!(found.contains(&("Failed".to_owned(), 3)) && found.contains(&("Pulled".to_owned(), 1)));
        let object = source.events("u").into_iter().find(|e| e.count == 3).unwrap().object("node");
        assert_eq!(object.pointer("/involvedObject/fieldPath").unwrap(), "spec.containers{c}");
        recorder.forget("u");
        recorder.record(&pod, "", EventType::Normal, "Pulled", "y");
        assert!(recorder.known.lock().unwrap().len() == 1);
    }
}
