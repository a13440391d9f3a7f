//! A rolling update: old pods go, or new ones come first, within the limits of the strategy. Pure.

use jiff::Timestamp;

use super::plan::{ByNode, DaemonChange, is_updated, pod_spec, suits};
use crate::workloads::{deployment::plan::scaled, object::Object, pod::Pod};

/// How many nodes may have two pods, and how many none that is available.
#[must_use]
pub fn limits(set: &Object, desired: i64) -> (i64, i64) {
    if set.text("/spec/updateStrategy/type") != "RollingUpdate" {
        return (0, 0);
    }
    let surge = set.at("/spec/updateStrategy/rollingUpdate/maxSurge");
    // Whether it surges does not depend on the number of nodes.
    let surge = scaled(surge, desired.max(1), true);
    let unavailable = set.at("/spec/updateStrategy/rollingUpdate/maxUnavailable");
    let unavailable = if unavailable.is_null() { 1 } else { scaled(unavailable, desired, true) };
    (surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable })
}

/// The pods of a node with the new template and with another one, if there is no more than one of each.
fn pair<'p>(set: &Object, pods: &[&'p Pod], hash: &str) -> Option<(Option<&'p Pod>, Option<&'p Pod>)> {
    let present = pods.iter().copied().filter(|pod| !pod.meta.is_deleting());
    let (new, old): (Vec<&Pod>, Vec<&Pod>) = present.partition(|pod| is_updated(set, pod, hash));
    (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
}

/// A step of a rolling update.
#[must_use]
pub fn roll<'p>(
    set: &Object,
    nodes: &[&'p Object],
    pods: &ByNode<'p>,
    hash: &str,
    now: Timestamp,
) -> DaemonChange<'p> {
    let spec = pod_spec(set);
    let runs = |name: &str| nodes.iter().any(|node| &*node.meta.name == name && suits(&spec, node).0);
    let suited: Vec<&str> =
        nodes.iter().filter(|node| suits(&spec, node).0).map(|node| &*node.meta.name).collect();
    let desired = i64::try_from(suited.len()).unwrap_or(i64::MAX);
    let (surge, unavailable) = limits(set, desired);
    let min_ready = set.count("/spec/minReadySeconds");
    let is_available = |pod: &Pod| pod.is_available(min_ready, now);
    // Nodes that have no pod yet are not available.
    let mut all = pods.clone();
    for node in suited {
        all.entry(node).or_default();
    }
    let mut change = DaemonChange::default();
    if surge == 0 {
        let (mut missing, mut candidates) = (0, Vec::new());
        for pods in all.values() {
            match pair(set, pods, hash) {
                None | Some((None, None) | (Some(_), Some(_))) => missing += 1,
                Some((Some(new), None)) => missing += i64::from(!is_available(new)),
                Some((None, Some(old))) if is_available(old) => candidates.push(old),
                Some((None, Some(old))) => {
                    change.delete.push(old);
                    missing += 1;
                }
            }
        }
        let more = usize::try_from(unavailable - missing).unwrap_or_default();
        change.delete.extend(candidates.into_iter().take(more));
        return change;
    }
    let (mut surging, mut available, mut candidates, mut misplaced) = (0, 0, Vec::new(), Vec::new());
    for (name, pods) in &all {
        let Some((new, old)) = pair(set, pods, hash) else {
            surging += 1;
            continue;
        };
        available += i64::from(old.or(new).is_some_and(is_available));
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) => match (is_available(old), runs(name)) {
                (false, false) => change.delete.push(old),
                (false, true) => change.create.push(name),
                (true, false) => misplaced.push(old),
                (true, true) => candidates.push(*name),
            },
            (Some(new), Some(old)) if is_available(new) => change.delete.push(old),
            (Some(_), Some(_)) => surging += 1,
        }
    }
    // A pod on a node that suits no longer stays until another one is available.
    change
        .delete
        .extend(misplaced.into_iter().take(usize::try_from(available - desired).unwrap_or_default()));
    change.create.extend(candidates.into_iter().take(usize::try_from(surge - surging).unwrap_or_default()));
    change
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{limits, roll};
    use crate::workloads::{
        daemon_set::plan::{
            by_node,
            tests::{node, now, on, set},
        },
        object::Object,
        pod::Pod,
    };

    #[test]
    fn old_pods_are_replaced_within_the_limits() {
        let names = ["a", "b", "c"];
        let nodes: Vec<Object> = names.iter().map(|name| node(name, &json!({}))).collect();
        let nodes: Vec<&Object> = nodes.iter().collect();
        let one = json!({"maxUnavailable": 1});
        let two = json!({"maxUnavailable": 2});
        let surge = json!({"maxSurge": 1, "maxUnavailable": 0});
        let pod = |place: &str, hash: &str, phase: &str| on(place, hash, phase, &json!({}));
        let old = |phase: &str| {
            vec![pod("a1@a", "old", phase), pod("b1@b", "old", phase), pod("c1@c", "old", phase)]
        };
        let with = |mut pods: Vec<Pod>, more: Vec<Pod>| {
            pods.extend(more);
            pods
        };
        for (case, strategy, pods, expected) in [
            ("one at a time", &one, old("Ready"), "-a1"),
            ("two at a time", &two, old("Ready"), "-a1 -b1"),
            ("what is not available goes anyway", &one, old("Pending"), "-a1 -b1 -c1"),
            (
                "waits for the new one",
                &one,
                with(old("Ready")[1..].to_vec(), vec![pod("a2@a", "new", "Pending")]),
                "",
            ),
            ("goes on", &one, with(old("Ready")[1..].to_vec(), vec![pod("a2@a", "new", "Ready")]), "-b1"),
            ("a node without a pod counts", &one, old("Ready")[1..].to_vec(), ""),
            ("a surge comes first", &surge, old("Ready"), "+a"),
            ("and waits", &surge, with(old("Ready"), vec![pod("a2@a", "new", "Pending")]), ""),
            (
                "then the old one goes",
                &surge,
                with(old("Ready"), vec![pod("a2@a", "new", "Ready")]),
                "-a1 +b",
            ),
        ] {
            let pods: Vec<&Pod> = pods.iter().collect();
            let change = roll(&set(strategy, &json!({})), &nodes, &by_node(&pods), "new", now());
            let deleted = change.delete.iter().map(|pod| format!("-{}", pod.meta.name));
            let steps: Vec<String> =
                deleted.chain(change.create.iter().map(|node| format!("+{node}"))).collect();
            assert_eq!(steps.join(" "), expected, "{case}");
        }
    }

    #[test]
    fn a_rollout_can_always_move() {
        for (case, strategy, expected) in [
            ("nothing given", json!({}), (0, 1)),
            ("none unavailable", json!({"maxUnavailable": 0}), (0, 1)),
            ("percentages round up", json!({"maxUnavailable": "10%"}), (0, 1)),
            ("a surge", json!({"maxSurge": "50%", "maxUnavailable": 0}), (2, 0)),
        ] {
            assert_eq!(limits(&set(&strategy, &Value::Null), 3), expected, "{case}");
        }
    }
}
