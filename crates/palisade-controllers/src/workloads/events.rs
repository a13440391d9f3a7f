//! Events of the workload controllers, as client-go's recorder writes them: repeated ones are counted, floods are cut off.
//!
//! Implements: `EventCorrelator` of `k8s.io/client-go/tools/record`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{meta::Meta, object::stamp};
use crate::api::{Api, EVENTS, Patch};

/// So many different messages of a reason are recorded; then they are combined.
const DISTINCT: usize = 10;
/// So many events about an object are written, then one in five minutes.
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// How many objects are remembered.
const REMEMBERED: usize = 4096;

/// What an event is about.
#[derive(Debug, Clone, Copy)]
pub struct About<'o> {
    /// Group and version.
    pub api_version: &'o str,
    /// Kind.
    pub kind: &'o str,
    /// The object.
    pub meta: &'o Meta,
}

/// What has been recorded about an object.
#[derive(Debug, Default)]
struct Recorded {
    tokens: f64,
    at: Option<Timestamp>,
    /// By reason and type: the messages, with the name of their event and how often it was recorded.
    messages: BTreeMap<(String, String), BTreeMap<String, (String, i64)>>,
}

/// How an event is written.
#[derive(Debug, PartialEq, Eq)]
enum EventWrite {
    Create { name: String, message: String },
    Count { name: String, message: String, count: i64 },
    Nothing,
}

impl Recorded {
    fn plan(
        &mut self,
        object: &str,
        is_warning: bool,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> EventWrite {
        let elapsed = self.at.map_or(f64::INFINITY, |at| now.duration_since(at).as_secs_f64());
        self.tokens = (self.tokens + elapsed / REFILL_SECONDS).min(BURST);
        self.at = Some(now);
        let kind = if is_warning { "Warning" } else { "Normal" };
        let known = self.messages.entry((kind.to_owned(), reason.to_owned())).or_default();
        let message = if known.contains_key(message) || known.len() < DISTINCT {
            message.to_owned()
        } else {
            format!("(combined from similar events): {message}")
        };
        // All combined events are one.
        let slot = if message.starts_with("(combined") { "(combined)".to_owned() } else { message.clone() };
        let known = known.entry(slot).or_insert_with(|| (format!("{object}.{:x}", now.as_nanosecond()), 0));
        known.1 += 1;
        if self.tokens < 1.0 {
            return EventWrite::Nothing;
        }
        self.tokens -= 1.0;
        let (name, count) = known.clone();
        if count == 1 {
            EventWrite::Create { name, message }
        } else {
            EventWrite::Count { name, message, count }
        }
    }
}

/// Records the events of one controller.
#[derive(Debug)]
pub struct Recorder {
    api: Api,
    component: &'static str,
    recorded: std::sync::Mutex<BTreeMap<Box<str>, Recorded>>,
}

impl Recorder {
    /// A recorder.
    #[must_use]
    pub fn new(api: Api, component: &'static str) -> Self {
        Self { api, component, recorded: std::sync::Mutex::default() }
    }

    /// Records a normal event.
    pub async fn normal(&self, about: About<'_>, reason: &str, message: &str) {
        self.record(about, false, reason, message).await;
    }

    /// Records a warning.
    pub async fn warning(&self, about: About<'_>, reason: &str, message: &str) {
        self.record(about, true, reason, message).await;
    }

    async fn record(&self, about: About<'_>, is_warning: bool, reason: &str, message: &str) {
        let now = Timestamp::now();
        let write = {
            let mut recorded = self.recorded.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if recorded.len() > REMEMBERED {
                recorded.pop_first();
            }
            let known = recorded.entry(about.meta.uid.clone()).or_default();
            known.plan(&about.meta.name, is_warning, reason, message, now)
        };
        let namespace = if about.meta.namespace.is_empty() { "default" } else { &about.meta.namespace };
        let written = match write {
            EventWrite::Nothing => return,
            EventWrite::Create { name, message } => {
                let event = self.event(about, namespace, &name, is_warning, reason, &message, now);
                self.api.create(&EVENTS.collection(Some(namespace)), MANAGER, &event).await
            }
            EventWrite::Count { name, message, count } => {
                let change = json!({"count": count, "lastTimestamp": stamp(now), "message": message});
                let path = EVENTS.object(Some(namespace), &name);
                match self.api.patch(&path, MANAGER, Patch::Merge, &change).await {
                    // It was deleted meanwhile.
                    Err(error) if error.is_not_found() => {
                        let event = self.event(about, namespace, &name, is_warning, reason, &message, now);
                        self.api.create(&EVENTS.collection(Some(namespace)), MANAGER, &event).await
                    }
                    other => other,
                }
            }
        };
        if let Err(error) = written {
            tracing::debug!(object = &*about.meta.name, reason, %error, "failed to record event");
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of an event")]
    fn event(
        &self,
        about: About<'_>,
        namespace: &str,
        name: &str,
        is_warning: bool,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> Value {
        let meta = about.meta;
        let mut involved = json!({"apiVersion": about.api_version, "kind": about.kind, "name": meta.name,
            "uid": meta.uid, "resourceVersion": meta.revision.to_string()});
        if !meta.namespace.is_empty() {
            involved["namespace"] = json!(meta.namespace);
        }
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": namespace, "name": name},
            "involvedObject": involved, "type": if is_warning { "Warning" } else { "Normal" }, "reason": reason,
            "message": message, "count": 1, "firstTimestamp": stamp(now), "lastTimestamp": stamp(now),
            "source": {"component": self.component}, "reportingComponent": self.component})
    }
}

/// The field manager of kube-controller-manager.
pub const MANAGER: &str = "kube-controller-manager";

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{EventWrite, Recorded};

    #[test]
    fn repeated_events_are_counted_and_floods_are_cut_off() {
        let now = Timestamp::UNIX_EPOCH;
        let mut recorded = Recorded::default();
        let mut record = |message: &str| recorded.plan("web", false, "SuccessfulCreate", message, now);
        let EventWrite::Create { name, .. } = record("Created pod: 0") else { panic!("the first is new") };
        let again = record("Created pod: 0");
        assert_eq!(again, EventWrite::Count { name, message: "Created pod: 0".to_owned(), count: 2 });
        for pod in 1..10 {
            assert!(matches!(record(&format!("Created pod: {pod}")), EventWrite::Create { .. }), "{pod}");
        }
        let EventWrite::Create { message, .. } = record("Created pod: 10") else { panic!("combined") };
        assert_eq!(message, "(combined from similar events): Created pod: 10");
        assert!(matches!(record("Created pod: 11"), EventWrite::Count { count: 2, .. }));
        let written = (12..100).filter(|pod| record(&format!("Created pod: {pod}")) != EventWrite::Nothing);
        assert_eq!(written.count(), 25 - 13);
    }
}
