//! What a failed pod means, and when enough indexes have succeeded: pod failure policy and success policy. Pure.
//!
//! Implements: `podFailurePolicy` and `successPolicy`, <https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy>.

use serde_json::Value;

use super::indexes::Indexes;
use crate::workloads::{
    object::{Object, at, list},
    pod::{Exit, Pod},
};

/// What follows from a failed pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It counts towards the limits.
    Count,
    /// It does not count.
    Ignore,
    /// Its index fails.
    Index,
    /// The Job fails, for this reason.
    Job(String),
}

impl Failure {
    /// Whether the pod counts as failed.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        *self != Self::Ignore
    }
}

/// What follows from a failed pod, by the first rule that matches.
#[must_use]
pub fn failure(job: &Object, pod: &Pod) -> Failure {
    for (number, rule) in job.list("/spec/podFailurePolicy/rules").iter().enumerate() {
        let action = rule["action"].as_str().unwrap_or_default();
        let pod_name = || format!("{}/{}", pod.meta.namespace, pod.meta.name);
        let why = if rule["onExitCodes"].is_object() {
            matching_exit(pod, &rule["onExitCodes"]).map(|exit| {
                format!(
                    "Container {} for pod {} failed with exit code {} matching {action} rule at index {number}",
                    exit.container,
                    pod_name(),
                    exit.code
                )
            })
        } else {
            matching_condition(pod, &rule["onPodConditions"]).map(|condition| {
                format!(
                    "Pod {} has condition {condition} matching {action} rule at index {number}",
                    pod_name()
                )
            })
        };
        let Some(why) = why else { continue };
        match action {
            "Ignore" => return Failure::Ignore,
            "FailIndex" => return Failure::Index,
            "FailJob" => return Failure::Job(why),
            "Count" => return Failure::Count,
            _ => {}
        }
    }
    Failure::Count
}

fn matching_exit<'p>(pod: &'p Pod, rule: &Value) -> Option<&'p Exit> {
    let container = rule["containerName"].as_str();
    let is_listed = |exit: &Exit| list(&rule["values"]).iter().any(|value| value.as_i64() == Some(exit.code));
    pod.exits.iter().find(|exit| {
        exit.code != 0
            && container.is_none_or(|name| name == &*exit.container)
            && match rule["operator"].as_str() {
                Some("In") => is_listed(exit),
                Some("NotIn") => !is_listed(exit),
                _ => false,
            }
    })
}

fn matching_condition<'p>(pod: &'p Pod, patterns: &Value) -> Option<&'p str> {
    let matches = |kind: &str, status: &str| {
        list(patterns)
            .iter()
            .any(|pattern| pattern["type"] == kind && pattern["status"].as_str().unwrap_or("True") == status)
    };
    pod.conditions.iter().find(|(kind, status)| matches(kind, status)).map(|(kind, _)| &**kind)
}

/// Why enough indexes have succeeded, by the first rule that is met.
#[must_use]
pub fn success(job: &Object, succeeded: &Indexes, completions: i64) -> Option<String> {
    let rules = list(at(&job.value, "/spec/successPolicy/rules"));
    if succeeded.is_empty() {
        return None;
    }
    let is_met = |rule: &Value| {
        let count = rule["succeededCount"].as_i64();
        match rule["succeededIndexes"].as_str() {
            Some(text) => {
                let required = Indexes::read(text, completions);
                succeeded.shared(&required) >= count.unwrap_or_else(|| required.len())
            }
            None => count.is_some_and(|count| succeeded.len() >= count),
        }
    };
    rules.iter().position(is_met).map(|number| format!("Matched rules at index {number}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Failure, failure, success};
    use crate::workloads::{job::indexes::Indexes, mirror::Mirrored as _, object::Object, pod::Pod};

    #[test]
    fn the_first_rule_that_matches_decides() {
        let job = Object::of(json!({"metadata": {}, "spec": {"podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}},
            {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [1]}},
        ]}}}))
        .unwrap();
        let pod = |container: &str, code: i64, disrupted: &str| {
            Pod::read(&format!(
                r#"{{"metadata":{{"namespace":"n","name":"p"}},"status":{{"phase":"Failed",
                    "conditions":[{{"type":"DisruptionTarget","status":"{disrupted}"}}],
                    "containerStatuses":[{{"name":"{container}","state":{{"terminated":{{"exitCode":{code}}}}}}}]}}}}"#
            ))
            .unwrap()
        };
        let fails = "Container main for pod n/p failed with exit code 42 matching FailJob rule at index 1";
        for (case, pod, expected) in [
            ("a disruption", pod("main", 42, "True"), Failure::Ignore),
            ("an exit code", pod("main", 42, "False"), Failure::Job(fails.to_owned())),
            ("of another container", pod("side", 42, "False"), Failure::Count),
            ("the index", pod("side", 7, "False"), Failure::Index),
            ("zero is no failure", pod("main", 0, "False"), Failure::Count),
            ("no rule", pod("main", 1, "False"), Failure::Count),
        ] {
            assert_eq!(failure(&job, &pod), expected, "{case}");
        }
    }

    #[test]
    fn success_needs_the_indexes_or_the_number_of_a_rule() {
        let job = |rules: serde_json::Value| {
            Object::of(json!({"metadata": {}, "spec": {"successPolicy": {"rules": rules}}})).unwrap()
        };
        for (case, rules, succeeded, expected) in [
            ("none succeeded", json!([{"succeededCount": 0}]), "", None),
            ("a number", json!([{"succeededCount": 2}]), "0,5", Some(0)),
            ("too few", json!([{"succeededCount": 3}]), "0,5", None),
            ("all of these", json!([{"succeededIndexes": "0,5"}]), "0,5,6", Some(0)),
            ("not all of these", json!([{"succeededIndexes": "0,5"}]), "0,6", None),
            ("some of these", json!([{"succeededIndexes": "0-5", "succeededCount": 1}]), "3,9", Some(0)),
            ("the second rule", json!([{"succeededCount": 9}, {"succeededIndexes": "1"}]), "1", Some(1)),
        ] {
            let found = success(&job(rules), &Indexes::read(succeeded, 10), 10);
            assert_eq!(found, expected.map(|at| format!("Matched rules at index {at}")), "{case}");
        }
    }
}
