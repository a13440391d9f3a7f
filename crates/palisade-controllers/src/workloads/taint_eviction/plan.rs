//! Which pods of a node leave, and when: a pure function from taints and tolerations to times.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use palisade_base::scheduling::{Taint, taints, toleration_of};
use serde_json::Value;

use crate::workloads::object::{at, list};

/// The effect that this is about.
const NO_EXECUTE: &str = "NoExecute";

/// A pod of the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leaving {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

/// When pods leave, by uid. What has been decided stays until a taint or a toleration changes it.
pub type Schedule = BTreeMap<String, (Leaving, Timestamp)>;

/// What is done about a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EvictionPlan {
    /// The pods that leave now.
    pub evicted: Vec<Leaving>,
    /// The pods that were to leave and stay.
    pub cancelled: Vec<Leaving>,
    /// The pods that leave later.
    pub schedule: Schedule,
}

/// Whether a node makes pods leave.
#[must_use]
pub fn is_tainted(node: &Value) -> bool {
    taints(node).any(|taint| taint.effect == NO_EXECUTE)
}

/// When a pod leaves that has these taints above it since now; nothing if it stays.
fn leaves_at(spec: &Value, taints: &[Taint<'_>], now: Timestamp) -> Option<Timestamp> {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let Some(toleration) = toleration_of(spec, *taint) else { return Some(now) };
        if let Some(seconds) = toleration.get("tolerationSeconds").and_then(Value::as_i64) {
            shortest = Some(shortest.map_or(seconds, |known| known.min(seconds)));
        }
    }
    let seconds = SignedDuration::from_secs(shortest?.max(0));
    // swallowed: a time after all times never comes
    now.checked_add(seconds).ok()
}

/// The plan for a node and the pods that run there.
#[must_use]
pub fn plan(node: &Value, pods: &[Value], before: &Schedule, now: Timestamp) -> EvictionPlan {
    let taints: Vec<Taint<'_>> = taints(node).filter(|taint| taint.effect == NO_EXECUTE).collect();
    let mut plan = EvictionPlan::default();
    for pod in pods {
        let text = |pointer| at(pod, pointer).as_str().unwrap_or_default().to_owned();
        let ended = matches!(at(pod, "/status/phase").as_str(), Some("Succeeded" | "Failed"));
        if ended || !at(pod, "/metadata/deletionTimestamp").is_null() {
            continue;
        }
        let leaving = Leaving {
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
        };
        let known = before.get(&leaving.uid).map(|(_, at)| *at);
        match leaves_at(at(pod, "/spec"), &taints, now) {
            None if known.is_some() => plan.cancelled.push(leaving),
            None => {}
            Some(at) => {
                // The time runs since the first taint.
                let at = known.map_or(at, |known| known.min(at));
                if at <= now {
                    plan.evicted.push(leaving);
                } else {
                    plan.schedule.insert(leaving.uid.clone(), (leaving, at));
                }
            }
        }
    }
    plan
}

/// The items of a list of pods.
#[must_use]
pub fn items(list_of_pods: &Value) -> &[Value] {
    list(at(list_of_pods, "/items"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(taints: &Value) -> Value {
        json!({"spec": {"taints": taints}})
    }

    fn pod(name: &str, tolerations: &Value) -> Value {
        json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "spec": {"tolerations": tolerations}})
    }

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    /// Seconds from now on, if the pod leaves.
    fn left(taints: &Value, tolerations: &Value) -> Option<i64> {
        let found = plan(&node(taints), &[pod("p", tolerations)], &Schedule::new(), time(100));
        let later = found.schedule.values().next().map(|(_, at)| at.as_second() - 100);
        if found.evicted.is_empty() { later } else { Some(0) }
    }

    #[test]
    fn pods_leave_when_their_toleration_ends() {
        let (a, b) = (
            json!({"key": "a", "value": "1", "effect": "NoExecute"}),
            json!({"key": "b", "effect": "NoExecute"}),
        );
        let exists = |key: &str, seconds: Value| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let forever = |key: &str| json!({"key": key, "operator": "Exists"});
        for (case, taints, tolerations, expected) in [
            ("no taint", json!([]), json!([]), None),
            ("another effect", json!([{"key": "a", "effect": "NoSchedule"}]), json!([]), None),
            ("not tolerated", json!([a]), json!([]), Some(0)),
            ("another key", json!([a]), json!([forever("b")]), Some(0)),
            ("another value", json!([a]), json!([{"key": "a", "value": "2"}]), Some(0)),
            (
                "another effect of the toleration",
                json!([a]),
                json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
                Some(0),
            ),
            ("for ever", json!([a]), json!([forever("a")]), None),
            ("everything", json!([a, b]), json!([{"operator": "Exists"}]), None),
            ("for some time", json!([a]), json!([exists("a", json!(30))]), Some(30)),
            ("no time", json!([a]), json!([exists("a", json!(0))]), Some(0)),
            ("less than none", json!([a]), json!([exists("a", json!(-5))]), Some(0)),
            (
                "the shortest",
                json!([a, b]),
                json!([exists("a", json!(30)), exists("b", json!(20))]),
                Some(20),
            ),
            ("one for ever", json!([a, b]), json!([forever("a"), exists("b", json!(20))]), Some(20)),
            ("one is not tolerated", json!([a, b]), json!([exists("a", json!(30))]), Some(0)),
            ("the first that applies", json!([a]), json!([exists("a", json!(30)), forever("a")]), Some(30)),
            ("longer than time", json!([a]), json!([exists("a", json!(i64::MAX))]), None),
        ] {
            assert_eq!(left(&taints, &tolerations), expected, "{case}");
        }
    }

    #[test]
    fn what_was_decided_stays_until_the_taint_goes() {
        let tainted = node(&json!([{"key": "a", "effect": "NoExecute"}]));
        let tolerations = json!([{"key": "a", "operator": "Exists", "tolerationSeconds": 10}]);
        let pods = [pod("p", &tolerations)];
        let first = plan(&tainted, &pods, &Schedule::new(), time(100));
        assert_eq!(first.schedule["p"].1, time(110));
        let again = plan(&tainted, &pods, &first.schedule, time(105));
        assert_eq!(again.schedule, first.schedule);
        let due = plan(&tainted, &pods, &first.schedule, time(110));
        assert_eq!((due.evicted.len(), due.schedule.len()), (1, 0));
        let healed = plan(&node(&json!([])), &pods, &first.schedule, time(105));
        assert_eq!((healed.cancelled.len(), healed.evicted.len(), healed.schedule.len()), (1, 0, 0));
        let replaced = plan(&tainted, &[pod("q", &tolerations)], &first.schedule, time(105));
        assert_eq!((replaced.cancelled.len(), replaced.schedule["q"].1), (0, time(115)));
    }

    #[test]
    fn pods_that_have_ended_or_are_ending_are_left_alone() {
        let tainted = node(&json!([{"key": "a", "effect": "NoExecute"}]));
        let mut ended = pod("p", &json!([]));
        ended["status"] = json!({"phase": "Succeeded"});
        let mut ending = pod("q", &json!([]));
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(plan(&tainted, &[ended, ending], &Schedule::new(), time(0)), EvictionPlan::default());
    }
}
