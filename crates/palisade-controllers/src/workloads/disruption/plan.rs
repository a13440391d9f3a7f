//! The status of a budget. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::workloads::{
    deployment::plan::scaled,
    object::{Object, stamp},
    pod::Pod,
};

/// An eviction that was admitted is carried out within this time, or it does not count.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// How many pods the owners of the selected pods want.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedScale {
    /// So many; and pods that have no owner.
    Known(i64, Vec<String>),
    /// An owner that has no scale.
    Unknown(String),
}

/// What the status becomes.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetStatus {
    /// The status.
    pub status: Value,
    /// Pods that were to be evicted and are still there.
    pub not_deleted: Vec<String>,
    /// When the status changes without an event.
    pub again: Option<SignedDuration>,
}

/// Whether the owners of pods matter to a budget.
#[must_use]
pub fn needs_scale(budget: &Object) -> bool {
    !budget.at("/spec/maxUnavailable").is_null() || budget.at("/spec/minAvailable").is_string()
}

/// Computes the status of a budget.
#[must_use]
pub fn status(budget: &Object, pods: &[&Pod], scale: &ExpectedScale, now: Timestamp) -> BudgetStatus {
    let mut status: Map<String, Value> = budget.at("/status").as_object().cloned().unwrap_or_default();
    status.insert("observedGeneration".to_owned(), json!(budget.meta.generation));
    let scale = match scale {
        _ if !needs_scale(budget) => count(pods.iter()),
        ExpectedScale::Known(scale, _) => *scale,
        ExpectedScale::Unknown(why) => {
            // Nothing may be evicted while it is not known how many there are to be.
            status.insert("disruptionsAllowed".to_owned(), json!(0));
            for key in ["currentHealthy", "desiredHealthy", "expectedPods"] {
                status.entry(key).or_insert_with(|| json!(0));
            }
            set_condition(budget, &mut status, ("False", "SyncFailed", why), now);
            return BudgetStatus { status: status.into(), not_deleted: Vec::new(), again: None };
        }
    };
    let most = budget.at("/spec/maxUnavailable");
    let least = budget.at("/spec/minAvailable");
    let desired =
        if most.is_null() { scaled(least, scale, true) } else { (scale - scaled(most, scale, true)).max(0) };
    let (mut disrupted, mut not_deleted, mut again) = (Map::new(), Vec::new(), None);
    for pod in pods.iter().filter(|pod| !pod.meta.is_deleting()) {
        let evicted = &budget.at("/status/disruptedPods")[&*pod.meta.name];
        let Some(at) = evicted.as_str().and_then(|at| at.parse::<Timestamp>().ok()) else { continue };
        let left = DELETION_TIMEOUT - now.duration_since(at);
        if left.is_positive() {
            disrupted.insert(pod.meta.name.to_string(), evicted.clone());
            again = Some(again.map_or(left, |again: SignedDuration| again.min(left)));
        } else {
            not_deleted.push(pod.meta.name.to_string());
        }
    }
    let is_healthy =
        |pod: &&&Pod| pod.is_ready && !pod.meta.is_deleting() && !disrupted.contains_key(&*pod.meta.name);
    let healthy = count(pods.iter().filter(is_healthy));
    let allowed = if scale > 0 { (healthy - desired).max(0) } else { 0 };
    for (key, value) in [
        ("currentHealthy", healthy),
        ("desiredHealthy", desired),
        ("expectedPods", scale),
        ("disruptionsAllowed", allowed),
    ] {
        status.insert(key.to_owned(), json!(value));
    }
    if disrupted.is_empty() {
        status.remove("disruptedPods");
    } else {
        status.insert("disruptedPods".to_owned(), disrupted.into());
    }
    let is = if allowed > 0 { ("True", "SufficientPods", "") } else { ("False", "InsufficientPods", "") };
    set_condition(budget, &mut status, is, now);
    BudgetStatus { status: status.into(), not_deleted, again }
}

fn set_condition(budget: &Object, status: &mut Map<String, Value>, is: (&str, &str, &str), now: Timestamp) {
    let (value, reason, message) = is;
    let known = budget.list("/status/conditions").iter().find(|one| one["type"] == "DisruptionAllowed");
    let since =
        known.filter(|known| known["status"] == value).map(|known| known["lastTransitionTime"].clone());
    let mut conditions: Vec<Value> = budget
        .list("/status/conditions")
        .iter()
        .filter(|one| one["type"] != "DisruptionAllowed")
        .cloned()
        .collect();
    conditions.push(json!({"type": "DisruptionAllowed", "status": value, "reason": reason, "message": message,
        "observedGeneration": budget.meta.generation, "lastTransitionTime": since.unwrap_or_else(|| stamp(now).into())}));
    status.insert("conditions".to_owned(), conditions.into());
}

fn count<T>(items: impl Iterator<Item = T>) -> i64 {
    i64::try_from(items.count()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::{ExpectedScale, status};
    use crate::workloads::{mirror::Mirrored as _, object::Object, pod::Pod};

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn budget(spec: &Value, status: &Value) -> Object {
        Object::of(json!({"metadata": {"name": "b", "generation": 2}, "spec": spec, "status": status}))
            .unwrap()
    }

    fn pods(ready: usize, others: usize) -> Vec<Pod> {
        let pod = |at: usize| {
            let status = json!({"conditions": [{"type": "Ready", "status": if at < ready { "True" } else { "False" }}]});
            Pod::read(
                &json!({"metadata": {"name": format!("p{at}"), "uid": at.to_string()}, "status": status})
                    .to_string(),
            )
            .unwrap()
        };
        (0..ready + others).map(pod).collect()
    }

    #[test]
    fn as_many_pods_may_go_as_the_budget_leaves() {
        for (case, spec, ready, others, scale, expected) in [
            ("a number that is available", json!({"minAvailable": 2}), 3, 0, 3, (1, 3, 2, 3)),
            ("a percentage rounds up", json!({"minAvailable": "50%"}), 3, 0, 3, (1, 3, 2, 3)),
            ("a number that is not", json!({"maxUnavailable": 1}), 3, 0, 3, (1, 3, 2, 3)),
            ("pods that are missing", json!({"maxUnavailable": 1}), 2, 1, 3, (0, 2, 2, 3)),
            ("none at all", json!({"maxUnavailable": "100%"}), 3, 0, 3, (3, 3, 0, 3)),
            ("pods without an owner", json!({"minAvailable": 1}), 2, 0, 0, (1, 2, 1, 2)),
            ("no pods", json!({"minAvailable": 1}), 0, 0, 0, (0, 0, 1, 0)),
        ] {
            let pods = pods(ready, others);
            let scale = ExpectedScale::Known(scale, vec![]);
            let found =
                status(&budget(&spec, &json!({})), &pods.iter().collect::<Vec<_>>(), &scale, now()).status;
            let count = |key: &str| found[key].as_i64().unwrap();
            let found = (
                count("disruptionsAllowed"),
                count("currentHealthy"),
                count("desiredHealthy"),
                count("expectedPods"),
            );
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn an_eviction_counts_until_its_time_is_over() {
        let evicted = json!({"disruptedPods": {"p0": "2026-01-01T00:59:00Z", "p1": "2026-01-01T00:50:00Z", "gone": "2026-01-01T00:59:00Z"}});
        let pods = pods(3, 0);
        let scale = ExpectedScale::Known(3, vec![]);
        let found = status(
            &budget(&json!({"minAvailable": 1}), &evicted),
            &pods.iter().collect::<Vec<_>>(),
            &scale,
            now(),
        );
        assert_eq!(found.status["disruptedPods"], json!({"p0": "2026-01-01T00:59:00Z"}));
        assert_eq!((&found.status["currentHealthy"], found.not_deleted), (&json!(2), vec!["p1".to_owned()]));
        assert_eq!(found.again.map(|again| again.as_secs()), Some(60));
    }

    #[test]
    fn nothing_may_go_while_the_scale_is_not_known() {
        let pods = pods(3, 0);
        let scale = ExpectedScale::Unknown("no scale".to_owned());
        let found = status(
            &budget(&json!({"maxUnavailable": 1}), &json!({})),
            &pods.iter().collect::<Vec<_>>(),
            &scale,
            now(),
        );
        assert_eq!(
            (&found.status["disruptionsAllowed"], &found.status["conditions"][0]["reason"]),
            (&json!(0), &json!("SyncFailed"))
        );
    }
}
