//! Which events to record, and the condition's sentence.

use std::collections::BTreeMap;

use crate::cluster::RejectedWorkload;

/// An event lives for an hour in most clusters: one that still holds is renewed well before.
pub const RENEWED_AFTER: i64 = 30 * 60;
/// How many events are recorded at once; the others follow.
pub const MOST_AT_ONCE: usize = 20;
/// How many workloads a sentence names.
const MOST_NAMED: usize = 3;
/// How much of each message it has.
const MOST_MESSAGE: usize = 200;

/// The last event of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its message.
    pub message: String,
    /// When it was recorded, in seconds since 1970.
    pub at: i64,
}

/// The last event of each workload, by the unique id of the workload.
pub type Events = BTreeMap<String, Recorded>;

/// Workloads that get an event now: what is rejected for a new reason, or still, for long.
#[must_use]
pub fn due<'w>(rejected: &'w [RejectedWorkload], recorded: &Events, now: i64) -> Vec<&'w RejectedWorkload> {
    let is_due = |workload: &&RejectedWorkload| match recorded.get(&workload.uid) {
        Some(event) => event.message != workload.message || now - event.at >= RENEWED_AFTER,
        None => true,
    };
    rejected.iter().filter(is_due).take(MOST_AT_ONCE).collect()
}

/// Workloads whose pods are rejected, in a sentence of bounded length; `None` if there are none. It stays the same from try to
/// try, so that a status with it is written only if something changed.
#[must_use]
pub fn describe(rejected: &[RejectedWorkload]) -> Option<String> {
    let count = match rejected.len() {
        0 => return None,
        1 => "the pods of 1 workload are rejected".to_owned(),
        count => format!("the pods of {count} workloads are rejected"),
    };
    let named = rejected.iter().take(MOST_NAMED).map(|workload| {
        let message: String = workload.message.chars().take(MOST_MESSAGE).collect();
        format!("{} {} in namespace {}: {message}", workload.kind, workload.name, workload.namespace)
    });
    Some(format!("{count}: {}", named.collect::<Vec<_>>().join("; ")))
}

#[cfg(test)]
mod tests {
    use super::{Events, MOST_AT_ONCE, RENEWED_AFTER, Recorded, describe, due};
    use crate::cluster::{RejectedBy, RejectedWorkload};

    fn workload(name: &str, message: &str) -> RejectedWorkload {
        RejectedWorkload {
            namespace: "team".to_owned(),
            kind: "Deployment",
            name: name.to_owned(),
            api_version: "apps/v1".to_owned(),
            uid: format!("uid-{name}"),
            by: RejectedBy::PodSecurity,
            message: message.to_owned(),
        }
    }

    #[test]
    fn an_event_is_recorded_once_for_each_message_and_renewed() {
        let rejected = [workload("web", "privileged")];
        let names = |recorded: &Events, now: i64| due(&rejected, recorded, now).len();
        let event = |message: &str| {
            Events::from([("uid-web".to_owned(), Recorded { message: message.to_owned(), at: 100 })])
        };
        for (case, recorded, now, expected) in [
            ("none yet", Events::new(), 100, 1),
            ("recorded", event("privileged"), 101, 0),
            ("another message", event("hostNetwork"), 101, 1),
            ("nearly gone", event("privileged"), 100 + RENEWED_AFTER, 1),
        ] {
            assert_eq!(names(&recorded, now), expected, "{case}");
        }
    }

    #[test]
    fn a_thousand_rejected_workloads_are_reported_in_parts() {
        let rejected: Vec<_> = (0..1000).map(|number| workload(&format!("web-{number}"), "no")).collect();
        assert_eq!(due(&rejected, &Events::new(), 0).len(), MOST_AT_ONCE);
        let sentence = describe(&rejected).unwrap();
        assert!(sentence.starts_with(
            "the pods of 1000 workloads are rejected: Deployment web-0 in namespace team: no; Deployment web-1"
        ));
        assert!(sentence.len() < 1000, "{sentence}");
        assert_eq!(describe(&[]), None);
    }
}
