//! The status of a Deployment: its numbers, and the conditions Available, Progressing and ReplicaFailure. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::plan::{Bounds, Sets};
use crate::workloads::object::{Object, set_count, stamp};

const PROGRESSING: &str = "Progressing";
const FAILURE: &str = "ReplicaFailure";

/// The deadline of a rollout, if it has one.
#[must_use]
pub fn deadline(deployment: &Object) -> Option<i64> {
    let seconds = deployment.int("/spec/progressDeadlineSeconds");
    seconds.filter(|seconds| *seconds != i64::from(i32::MAX))
}

/// Whether the status that was written is that of a complete rollout.
#[must_use]
pub fn is_complete(deployment: &Object) -> bool {
    let has_all =
        |key: &str| deployment.at("/status")[key].as_i64().unwrap_or_default() == deployment.replicas();
    ["replicas", "updatedReplicas", "availableReplicas"].into_iter().all(has_all)
        && deployment.count("/status/observedGeneration") >= deployment.meta.generation
}

/// A condition of a Deployment.
fn condition<'c>(conditions: &'c [Value], kind: &str) -> Option<&'c Value> {
    conditions.iter().find(|one| one["type"] == kind)
}

/// Sets a condition, unless it has this status and reason already. The time of the transition is that of the status.
pub fn set_condition(conditions: &mut Vec<Value>, kind: &str, is: (&str, &str, &str), now: Timestamp) {
    let (status, reason, message) = is;
    let known = condition(conditions, kind);
    if known.is_some_and(|known| known["status"] == status && known["reason"] == reason) {
        return;
    }
    let since =
        known.filter(|known| known["status"] == status).map(|known| known["lastTransitionTime"].clone());
    let since = since.unwrap_or_else(|| stamp(now).into());
    conditions.retain(|one| one["type"] != kind);
    conditions.push(json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastUpdateTime": stamp(now), "lastTransitionTime": since}));
}

/// The status, and when it changes without an event. During a rollout, its progress is a part of it.
#[must_use]
pub fn status(
    deployment: &Object,
    sets: &Sets<'_>,
    is_rollout: bool,
    now: Timestamp,
) -> (Value, Option<SignedDuration>) {
    let sum = |pointer: &str| sets.all().map(|set| set.count(pointer)).sum::<i64>();
    let available = sum("/status/availableReplicas");
    let wanted: i64 = sets.all().map(Object::replicas).sum();
    let updated = sets.new.map_or(0, |new| new.count("/status/replicas"));
    let mut status: Map<String, Value> = deployment.at("/status").as_object().cloned().unwrap_or_default();
    status.insert("observedGeneration".to_owned(), deployment.meta.generation.into());
    set_count(&mut status, "replicas", sum("/status/replicas"));
    set_count(&mut status, "updatedReplicas", updated);
    set_count(&mut status, "readyReplicas", sum("/status/readyReplicas"));
    set_count(&mut status, "availableReplicas", available);
    set_count(&mut status, "unavailableReplicas", (wanted - available).max(0));
    status.insert("terminatingReplicas".to_owned(), sum("/status/terminatingReplicas").into());
    let mut conditions = deployment.list("/status/conditions").to_vec();
    let is_available = available >= deployment.replicas() - Bounds::of(deployment).unavailable;
    let availability = if is_available {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut conditions, "Available", availability, now);
    let mut next = None;
    if is_rollout {
        next = progress(deployment, sets, &status, &mut conditions, now);
        fail(sets, &mut conditions);
    }
    status.insert("conditions".to_owned(), conditions.into());
    (Value::Object(status), next)
}

/// Sets the condition Progressing; when it times out.
fn progress(
    deployment: &Object,
    sets: &Sets<'_>,
    status: &Map<String, Value>,
    conditions: &mut Vec<Value>,
    now: Timestamp,
) -> Option<SignedDuration> {
    let Some(deadline) = deadline(deployment) else {
        conditions.retain(|one| one["type"] != PROGRESSING);
        return None;
    };
    let count = |key: &str| status.get(key).and_then(Value::as_i64).unwrap_or_default();
    let before = |key: &str| deployment.at("/status")[key].as_i64().unwrap_or_default();
    let known = condition(conditions, PROGRESSING).cloned();
    let reason = known.as_ref().and_then(|known| known["reason"].as_str()).unwrap_or_default();
    if count("replicas") == count("updatedReplicas") && reason == "NewReplicaSetAvailable" {
        return None;
    }
    let subject = match sets.new {
        Some(new) => format!("ReplicaSet \"{}\"", new.meta.name),
        None => format!("Deployment \"{}\"", deployment.meta.name),
    };
    let is_complete = ["replicas", "updatedReplicas", "availableReplicas"]
        .into_iter()
        .all(|key| count(key) == deployment.replicas());
    if is_complete {
        let message = format!("{subject} has successfully progressed.");
        set_condition(conditions, PROGRESSING, ("True", "NewReplicaSetAvailable", &message), now);
        return None;
    }
    let old = |of: &dyn Fn(&str) -> i64| of("replicas") - of("updatedReplicas");
    let has_progress = old(&count) < old(&before)
        || ["updatedReplicas", "readyReplicas", "availableReplicas"]
            .into_iter()
            .any(|key| count(key) > before(key));
    if has_progress {
        // The same reason again is progress all the same: its time is that of the last step.
        if let Some(known) = conditions.iter_mut().find(|one| one["type"] == PROGRESSING) {
            known["reason"] = Value::Null;
        }
        let message = format!("{subject} is progressing.");
        set_condition(conditions, PROGRESSING, ("True", "ReplicaSetUpdated", &message), now);
        return Some(SignedDuration::from_secs(deadline.saturating_add(1)));
    }
    let since: Timestamp = known.as_ref()?["lastUpdateTime"].as_str()?.parse().ok()?;
    if matches!(reason, "NewReplicaSetAvailable" | "ProgressDeadlineExceeded") {
        return None;
    }
    let left = SignedDuration::from_secs(deadline) - now.duration_since(since);
    if left.is_negative() {
        let message = format!("{subject} has timed out progressing.");
        set_condition(conditions, PROGRESSING, ("False", "ProgressDeadlineExceeded", &message), now);
        return None;
    }
    Some(left + SignedDuration::from_secs(1))
}

/// Takes over why pods cannot be created, from the new ReplicaSet before the old ones.
fn fail(sets: &Sets<'_>, conditions: &mut Vec<Value>) {
    let failure = |set: &Object| condition(set.list("/status/conditions"), FAILURE).cloned();
    let found = sets.new.and_then(failure).or_else(|| sets.old.iter().find_map(|set| failure(set)));
    let Some(mut found) = found else {
        conditions.retain(|one| one["type"] != FAILURE);
        return;
    };
    let known = condition(conditions, FAILURE);
    if known.is_some_and(|known| known["status"] == found["status"] && known["reason"] == found["reason"]) {
        return;
    }
    found["lastUpdateTime"] = found["lastTransitionTime"].clone();
    conditions.retain(|one| one["type"] != FAILURE);
    conditions.push(found);
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::status;
    use crate::workloads::{deployment::plan::Sets, object::Object};

    fn deployment(status: &Value) -> Object {
        Object::of(json!({"metadata": {"name": "web", "generation": 1}, "spec": {"replicas": 2, "progressDeadlineSeconds": 60,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, "template": {}},
            "status": status}))
        .unwrap()
    }

    fn set(available: i64, conditions: &Value) -> Object {
        Object::of(json!({"metadata": {"name": "web-b"}, "spec": {"replicas": 2, "template": {}},
            "status": {"replicas": 2, "availableReplicas": available, "conditions": conditions}}))
        .unwrap()
    }

    fn reasons(deployment: &Object, set: &Object, now: &str) -> Vec<String> {
        let now: Timestamp = now.parse().unwrap();
        let (status, _) = status(deployment, &Sets::of(deployment, &[set]), true, now);
        let conditions = status["conditions"].as_array().unwrap();
        conditions.iter().map(|one| one["reason"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_rollout_progresses_completes_or_times_out() {
        let waiting = json!({"replicas": 2, "updatedReplicas": 2, "conditions": [{"type": "Progressing", "status": "True",
            "reason": "ReplicaSetUpdated", "lastUpdateTime": "2026-01-01T00:00:00Z"}]});
        for (case, before, available, now, expected) in [
            (
                "first pods",
                json!({}),
                0,
                "2026-01-01T00:00:00Z",
                ["MinimumReplicasUnavailable", "ReplicaSetUpdated"],
            ),
            (
                "complete",
                json!({}),
                2,
                "2026-01-01T00:00:00Z",
                ["MinimumReplicasAvailable", "NewReplicaSetAvailable"],
            ),
            (
                "in time",
                waiting.clone(),
                0,
                "2026-01-01T00:00:59Z",
                ["MinimumReplicasUnavailable", "ReplicaSetUpdated"],
            ),
            (
                "too late",
                waiting,
                0,
                "2026-01-01T00:01:01Z",
                ["MinimumReplicasUnavailable", "ProgressDeadlineExceeded"],
            ),
        ] {
            let mut found = reasons(&deployment(&before), &set(available, &json!([])), now);
            found.sort();
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn rejected_pods_are_reported_by_the_deployment() {
        let failure = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "forbidden"}]);
        let (failing, fine) = (set(0, &failure), set(0, &json!([])));
        let now = "2026-01-01T00:00:00Z";
        assert!(reasons(&deployment(&json!({})), &failing, now).contains(&"FailedCreate".to_owned()));
        let reported = deployment(&json!({"conditions": failure}));
        assert!(
            !reasons(&reported, &fine, now).contains(&"FailedCreate".to_owned()),
            "it ends with its cause"
        );
    }
}
