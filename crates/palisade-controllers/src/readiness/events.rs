//! Events about transitions, recorded once, on the object they are about.
//!
//! Events follow from two versions of the status alone, so that a controller that was killed in between repeats itself
//! at most, and never keeps silent.

use std::{collections::BTreeMap, fmt::Write as _};

use palisade_policy::enforcement::{mode::StatusMode, violations::State};
use serde_json::Value;

use crate::cluster::NamespaceRecord;

/// An event to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The namespace it is about; `None` for the `PSAEnforcementConfig`.
    pub namespace: Option<String>,
    /// Whether someone should look.
    pub is_warning: bool,
    /// One word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// Distinguishes it from an earlier one with the same message: the time of the state it ended.
    pub occasion: String,
}

impl Event {
    /// With the first workload and field that are the cause, if it is about a violation.
    #[must_use]
    pub fn with_cause(mut self, namespace: Option<&NamespaceRecord>) -> Self {
        let blockers =
            namespace.filter(|_| self.is_warning).map(NamespaceRecord::blockers).unwrap_or_default();
        let Some((first, others)) = blockers.split_first() else { return self };
        let Some((cause, more)) = first.causes.split_first() else { return self };
        let _ = write!(self.message, "; {} {}: {}", first.kind, first.name, cause.path);
        if !more.is_empty() {
            let _ = write!(self.message, " and {} more", fields(more.len()));
        }
        let _ = match others.len() {
            0 => Ok(()),
            1 => write!(self.message, ", and 1 other"),
            count => write!(self.message, ", and {count} others"),
        };
        self.message.push_str("; palisade rollout status shows the fix");
        self
    }
}

fn fields(count: usize) -> String {
    if count == 1 { "1 field".to_owned() } else { format!("{count} fields") }
}

/// What changed between two versions of the status.
#[must_use]
pub fn transitions(before: &Value, after: &Value) -> Vec<Event> {
    let mut events = Vec::new();
    let mode = |status: &Value| StatusMode::read(status["enforcementMode"].as_str().unwrap_or_default());
    if mode(before) != mode(after) {
        let (reason, message) = match mode(after) {
            StatusMode::NotEnabled => ("EnforcementDisabled", "enforcement is off"),
            StatusMode::Progressing => {
                ("EnforcementProgressing", "enforcement has begun: labels, then API servers and webhooks")
            }
            StatusMode::Restricted => {
                ("EnforcementRestricted", "every API server and webhook enforces restricted by default")
            }
            StatusMode::Legacy => ("EnforcementLegacy", "enforcement is opted out of"),
        };
        let message = message.to_owned();
        let occasion = condition_times(before);
        events.push(Event { namespace: None, is_warning: false, reason, message, occasion });
    }
    let (old, new) = (entries(before), entries(after));
    for (name, Known { state, why, .. }) in &new {
        let was = old.get(name);
        if was.is_some_and(|was| was.state == *state) {
            continue;
        }
        let occasion = was.map_or_else(String::new, |was| was.since.to_owned());
        let (is_warning, reason, message) = match state {
            State::Current => (
                true,
                "PodSecurityViolation",
                format!("workloads would be refused once Pod Security is enforced: {why}"),
            ),
            State::Previous => {
                (false, "PodSecurityViolationResolved", "no workload would be refused any more".to_owned())
            }
        };
        events.push(Event { namespace: Some((*name).to_owned()), is_warning, reason, message, occasion });
    }
    events
}

/// An entry of the list.
struct Known<'s> {
    state: State,
    why: &'s str,
    since: &'s str,
}

fn entries(status: &Value) -> BTreeMap<&str, Known<'_>> {
    let list = status["violatingNamespaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter()
        .filter_map(|entry| {
            let state = match entry["state"].as_str() {
                Some("Previous") => State::Previous,
                _ => State::Current,
            };
            let why = entry["reason"].as_str().unwrap_or("of no known kind");
            let since = entry["lastTransitionTime"].as_str().unwrap_or_default();
            Some((entry["name"].as_str()?, Known { state, why, since }))
        })
        .collect()
}

/// When conditions last changed: modes come and go, but not twice in the same breath.
fn condition_times(status: &Value) -> String {
    let times = status["conditions"].as_array().into_iter().flatten();
    times
        .filter_map(|condition| condition["lastTransitionTime"].as_str())
        .max()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::transitions;

    #[test]
    fn every_transition_has_one_event_and_nothing_else_has() {
        let status =
            |mode: &str, entries: Value| json!({"enforcementMode": mode, "violatingNamespaces": entries});
        let entry = |name: &str, state: &str| json!({"name": name, "state": state, "reason": "why"});
        let first = status("", json!([entry("a", "Current"), entry("b", "Current")]));
        let second = status("Legacy", json!([entry("a", "Previous"), entry("b", "Current")]));
        let recorded = |before: &Value, after: &Value| -> Vec<String> {
            let shown = |event: super::Event| {
                let about = event.namespace.unwrap_or_else(|| "config".to_owned());
                format!("{about} {} {}", if event.is_warning { "Warning" } else { "Normal" }, event.reason)
            };
            transitions(before, after).into_iter().map(shown).collect()
        };
        assert_eq!(
            recorded(&json!(null), &first),
            ["a Warning PodSecurityViolation", "b Warning PodSecurityViolation"]
        );
        assert_eq!(
            recorded(&first, &second),
            ["config Normal EnforcementLegacy", "a Normal PodSecurityViolationResolved"]
        );
        assert_eq!(recorded(&second, &second), [""; 0]);
        assert_eq!(
            recorded(&second, &status("Legacy", json!([]))),
            [""; 0],
            "a deleted namespace needs no event"
        );
    }
}
