//! The status of a guard, from the guard and the reports of nodes. Pure: time is a parameter.

use std::collections::BTreeMap;

use palisade_base::time::{Time, rfc3339};
use palisade_model::guard::SyscallGuard;
use serde_json::{Value, json};

/// How many containers are listed; their number is exact.
const MOST_ROWS: usize = 1000;

/// A report is too old to count after this time: a node writes at least every five minutes.
const STALE_AFTER: i64 = 15 * 60;

/// What a node reports about a guard, and when.
struct NodeRow<'r> {
    node: &'r str,
    row: Option<&'r Value>,
    is_stale: bool,
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or_default()
}

fn rows<'r>(name: &str, generation: i64, reports: &'r [Value], now: Time) -> Vec<NodeRow<'r>> {
    let mut found: BTreeMap<&str, NodeRow<'r>> = BTreeMap::new();
    for report in reports {
        let node = report.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let guards = report.pointer("/status/guards").and_then(Value::as_array);
        let row = guards.into_iter().flatten().find(|row| text(row, "name") == name);
        let row = row.filter(|row| row.get("observedGeneration").and_then(Value::as_i64) == Some(generation));
        let observed = report.pointer("/status/observedAt").and_then(Value::as_str).unwrap_or_default();
        // swallowed: a report without a time is stale
        let observed = palisade_base::time::parse(observed).ok();
        let is_stale = observed.is_none_or(|at| now.seconds.saturating_sub(at.seconds) > STALE_AFTER);
        found.insert(node, NodeRow { node, row, is_stale });
    }
    found.into_values().collect()
}

fn condition(
    before: Option<&Value>,
    kind: &str,
    holds: Option<bool>,
    (reason, message): (&str, String),
    now: Time,
) -> Value {
    let status = match holds {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let known = before.and_then(|status| status.get("conditions")).and_then(Value::as_array);
    let same = known
        .into_iter()
        .flatten()
        .find(|known| text(known, "type") == kind && text(known, "status") == status);
    let since =
        same.map_or_else(|| rfc3339(now.seconds), |known| text(known, "lastTransitionTime").to_owned());
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
}

/// The status of a guard as its object and the reports have it.
#[must_use]
pub fn status(guard: &Value, reports: &[Value], now: Time) -> Value {
    let name = guard.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let generation = guard.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let before = guard.get("status");
    let read = SyscallGuard::read(guard);
    let (holds, reason) = match &read {
        Ok(guard) if guard.counts_at(now) => (true, ("Valid", "the guard can be applied".to_owned())),
        Ok(_) => (false, ("Expired", "its end has come: the calls are no longer forbidden".to_owned())),
        Err(error) => (false, ("Invalid", error.to_string())),
    };
    let counts = holds || read.is_err();
    let accepted = condition(before, "Accepted", Some(holds), reason, now);
    let rows = rows(name, generation, reports, now);
    let current = || rows.iter().filter(|row| !row.is_stale).filter_map(|row| Some((row.node, row.row?)));
    let sum = |key: &str| current().map(|(_, row)| number(row, key)).sum::<u64>();
    let mut containers: Vec<Value> = Vec::new();
    for (node, row) in current() {
        for container in row.get("containers").and_then(Value::as_array).into_iter().flatten() {
            let mut container = container.clone();
            if let Some(fields) = container.as_object_mut() {
                fields.insert("node".to_owned(), node.into());
            }
            containers.push(container);
        }
    }
    containers.truncate(MOST_ROWS);
    let (covered, exempt, exposed) = (sum("covered"), sum("exempt"), sum("exposed"));
    let silent: Vec<&str> =
        rows.iter().filter(|row| row.is_stale || row.row.is_none()).map(|row| row.node).collect();
    let (enforced, reason) = match (counts, exposed, silent.as_slice()) {
        (false, _, _) => (Some(false), ("Expired", "the guard has ended".to_owned())),
        (true, 1.., _) => {
            (Some(false), ("Exposed", format!("{exposed} containers are exposed: restart them")))
        }
        (true, 0, [first, others @ ..]) => {
            let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
            (None, ("NotReported", format!("node {first}{more} has not reported about it")))
        }
        (true, 0, []) if rows.is_empty() => (None, ("NoNodes", "no node has reported".to_owned())),
        (true, 0, []) => (Some(true), ("Covered", format!("{covered} containers are covered"))),
    };
    let enforced = condition(before, "Enforced", enforced, reason, now);
    json!({"observedGeneration": generation, "nodes": current().count(), "covered": covered, "exempt": exempt,
        "exposed": exposed, "containers": containers, "conditions": [accepted, enforced]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(change: impl FnOnce(&mut Value)) -> Value {
        let mut guard = json!({"metadata": {"name": "g", "generation": 2}, "spec": {"calls": ["ptrace"], "reason": "r",
            "until": "2030-01-01T00:00:00Z"}});
        change(&mut guard);
        guard
    }

    fn report(node: &str, generation: i64, at: &str, exposed: &[&str]) -> Value {
        let containers: Vec<Value> = exposed
            .iter()
            .map(|pod| json!({"namespace": "n", "pod": pod, "container": "c", "reason": "restart it"}))
            .collect();
        json!({"metadata": {"name": node}, "status": {"observedAt": at, "guards": [{"name": "g", "observedGeneration": generation,
            "state": "Active", "covered": 2, "exempt": 1, "exposed": exposed.len(), "containers": containers}]}})
    }

    #[test]
    fn a_guard_is_enforced_only_where_every_node_proves_it() {
        let now = palisade_base::time::parse("2026-01-01T00:10:00Z").unwrap();
        let recent = "2026-01-01T00:09:00Z";
        let other = json!({"metadata": {"name": "b"}, "status": {"observedAt": recent}});
        for (case, guard, reports, expected) in [
            (
                "covered",
                guard(|_| ()),
                vec![report("a", 2, recent, &[])],
                "True Valid, True Covered, 1 nodes, 2 covered, 0 exposed",
            ),
            (
                "exposed on one of two",
                guard(|_| ()),
                vec![report("a", 2, recent, &[]), report("b", 2, recent, &["p", "q"])],
                "True Valid, False Exposed, 2 nodes, 4 covered, 2 exposed",
            ),
            (
                "a node without the guard",
                guard(|_| ()),
                vec![report("a", 2, recent, &[]), other],
                "True Valid, Unknown NotReported, 1 nodes, 2 covered, 0 exposed",
            ),
            (
                "an older version",
                guard(|_| ()),
                vec![report("a", 1, recent, &[])],
                "True Valid, Unknown NotReported, 0 nodes, 0 covered, 0 exposed",
            ),
            (
                "an old report",
                guard(|_| ()),
                vec![report("a", 2, "2025-12-31T00:00:00Z", &[])],
                "True Valid, Unknown NotReported, 0 nodes, 0 covered, 0 exposed",
            ),
            ("no node", guard(|_| ()), vec![], "True Valid, Unknown NoNodes, 0 nodes, 0 covered, 0 exposed"),
            (
                "expired",
                guard(|guard| guard["spec"]["until"] = json!("2025-01-01T00:00:00Z")),
                vec![report("a", 2, recent, &[])],
                "False Expired, False Expired, 1 nodes, 2 covered, 0 exposed",
            ),
            (
                "malformed",
                guard(|guard| guard["spec"]["calls"] = json!(["ptracee"])),
                vec![report("a", 2, recent, &["p"])],
                "False Invalid, False Exposed, 1 nodes, 2 covered, 1 exposed",
            ),
        ] {
            let status = status(&guard, &reports, now);
            let condition = |index: usize| {
                let condition = &status["conditions"][index];
                format!("{} {}", text(condition, "status"), text(condition, "reason"))
            };
            let found = format!(
                "{}, {}, {} nodes, {} covered, {} exposed",
                condition(0),
                condition(1),
                status["nodes"],
                status["covered"],
                status["exposed"]
            );
            assert_eq!(found, expected, "{case}");
            assert_eq!(
                status["containers"].as_array().unwrap().len() as u64,
                number(&status, "exposed"),
                "{case}"
            );
        }
    }

    #[test]
    fn conditions_keep_their_times() {
        let at = |minute: u8| palisade_base::time::parse(&format!("2026-01-01T00:{minute:02}:00Z")).unwrap();
        let first = status(&guard(|_| ()), &[report("a", 2, "2026-01-01T00:00:00Z", &[])], at(1));
        let known = guard(|guard| guard["status"] = first);
        let second = status(&known, &[report("a", 2, "2026-01-01T00:00:00Z", &["p"])], at(2));
        assert_eq!(second["conditions"][0]["lastTransitionTime"], "2026-01-01T00:01:00Z");
        assert_eq!(second["conditions"][1]["lastTransitionTime"], "2026-01-01T00:02:00Z");
        assert_eq!(second["containers"][0]["node"], "a");
    }
}
