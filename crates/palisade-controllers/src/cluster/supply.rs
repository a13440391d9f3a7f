//! Whether a workload gets the pods that it requests, as far as its status reports.
//!
//! Implements: the status of workloads in `apps/v1` and `batch/v1`. Deployments, ReplicaSets and ReplicationControllers report
//! rejected pods in the condition `ReplicaFailure`. The others report only numbers: fewer pods than desired may be rejected or
//! not made yet, which is undecided, never compliant.

use palisade_model::workload::WorkloadKind;
use serde_json::Value;

use super::judged::Supply;

/// How much of a message is kept.
const MOST_MESSAGE: usize = 300;

/// What a workload reports.
pub(super) fn supply(kind: &WorkloadKind, object: &Value) -> Supply {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let observed = number("/status/observedGeneration");
    // A status about an older version of the workload reports nothing about this one.
    let is_current = match (observed, number("/metadata/generation")) {
        (Some(observed), Some(generation)) => observed >= generation,
        (_, None) => true,
        (None, Some(_)) => false,
    };
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let failure = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "ReplicaFailure" && condition["status"] == "True");
    if let Some(condition) = failure {
        let message =
            condition["message"].as_str().or(condition["reason"].as_str()).unwrap_or("ReplicaFailure");
        let message: String = message.chars().take(MOST_MESSAGE).collect();
        return if is_current {
            Supply::Rejected(format!("its pods are rejected: {message}"))
        } else {
            Supply::Short(format!("the pods of an older version are rejected: {message}"))
        };
    }
    let of = |pointer: &str| number(pointer).unwrap_or_default();
    let short = |existing: i64, desired: i64| {
        if existing < desired {
            Supply::Short(format!("{existing} of {desired} pods exist and its status does not report why"))
        } else {
            Supply::Enough
        }
    };
    match kind.kind {
        "DaemonSet" if observed.is_some() && is_current => {
            short(of("/status/currentNumberScheduled"), of("/status/desiredNumberScheduled"))
        }
        "StatefulSet" if observed.is_some() && is_current => {
            let (existing, ready) = (of("/status/replicas"), of("/status/readyReplicas"));
            // One pod after another, each when those before it are ready.
            let waits = object["spec"]["podManagementPolicy"] != "Parallel" && ready < existing;
            if waits { Supply::Enough } else { short(existing, number("/spec/replicas").unwrap_or(1)) }
        }
        "Job" if object["status"]["startTime"].is_string() && !has_ended(object) => {
            // After a failure the controller waits before it makes the next pod.
            if object["spec"]["suspend"] == true || of("/status/failed") > 0 || of("/status/terminating") > 0
            {
                return Supply::Enough;
            }
            let left = number("/spec/completions").map(|all| all.saturating_sub(of("/status/succeeded")));
            let parallel = number("/spec/parallelism").unwrap_or(1);
            short(of("/status/active"), left.map_or(parallel, |left| left.min(parallel)))
        }
        _ => Supply::Enough,
    }
}

/// Whether fewer pods exist than a workload requests, for whatever reason.
pub(super) fn lacks_pods(kind: &WorkloadKind, object: &Value) -> bool {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let of = |pointer: &str| number(pointer).unwrap_or_default();
    match kind.kind {
        "DaemonSet" => of("/status/currentNumberScheduled") < of("/status/desiredNumberScheduled"),
        "Job" if has_ended(object) || object["spec"]["suspend"] == true => false,
        "Job" => {
            let left = number("/spec/completions").map(|all| all.saturating_sub(of("/status/succeeded")));
            let parallel = number("/spec/parallelism").unwrap_or(1);
            of("/status/active") < left.map_or(parallel, |left| left.min(parallel))
        }
        // Its Jobs report.
        "CronJob" => false,
        _ => of("/status/replicas") < number("/spec/replicas").unwrap_or(1),
    }
}

/// Whether a Job makes no pods any more.
pub(super) fn has_ended(job: &Value) -> bool {
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        (condition["type"] == "Complete" || condition["type"] == "Failed") && condition["status"] == "True"
    })
}

#[cfg(test)]
mod tests {
    use palisade_model::workload::workload_kind;
    use serde_json::{Value, json};

    use super::{Supply, supply};

    fn of(api_version: &str, kind: &str, mut object: Value) -> &'static str {
        object["metadata"]["generation"] = json!(2);
        match supply(workload_kind(api_version, kind).unwrap(), &object) {
            Supply::Enough => "enough",
            Supply::Rejected(_) => "rejected",
            Supply::Short(_) => "short",
        }
    }

    #[test]
    fn conditions_report_rejected_pods() {
        let status = |observed: i64, status: &str| {
            json!({"status": {"observedGeneration": observed, "conditions": [
                {"type": "ReplicaFailure", "status": status, "reason": "FailedCreate", "message": "pods are forbidden"}]}})
        };
        for (kind, group) in
            [("Deployment", "apps/v1"), ("ReplicaSet", "apps/v1"), ("ReplicationController", "v1")]
        {
            assert_eq!(of(group, kind, status(2, "True")), "rejected", "{kind}");
            assert_eq!(of(group, kind, status(1, "True")), "short", "{kind}");
            assert_eq!(of(group, kind, status(2, "False")), "enough", "{kind}");
            assert_eq!(of(group, kind, json!({"status": {}})), "enough", "{kind}");
        }
    }

    #[test]
    fn numbers_report_missing_pods() {
        for (case, kind, object, expected) in [
            ("no status", "DaemonSet", json!({}), "enough"),
            (
                "all nodes",
                "DaemonSet",
                json!({"status": {"observedGeneration": 2, "desiredNumberScheduled": 3, "currentNumberScheduled": 3}}),
                "enough",
            ),
            (
                "one node less",
                "DaemonSet",
                json!({"status": {"observedGeneration": 2, "desiredNumberScheduled": 3, "currentNumberScheduled": 2}}),
                "short",
            ),
            (
                "an old status",
                "DaemonSet",
                json!({"status": {"observedGeneration": 1, "desiredNumberScheduled": 3}}),
                "enough",
            ),
            (
                "none of one",
                "StatefulSet",
                json!({"status": {"observedGeneration": 2, "replicas": 0}}),
                "short",
            ),
            (
                "scaled to zero",
                "StatefulSet",
                json!({"spec": {"replicas": 0}, "status": {"observedGeneration": 2, "replicas": 0}}),
                "enough",
            ),
            (
                "in order",
                "StatefulSet",
                json!({"spec": {"replicas": 3}, "status": {"observedGeneration": 2, "replicas": 1, "readyReplicas": 0}}),
                "enough",
            ),
            (
                "at once",
                "StatefulSet",
                json!({"spec": {"replicas": 3, "podManagementPolicy": "Parallel"}, "status": {"observedGeneration": 2, "replicas": 1}}),
                "short",
            ),
        ] {
            assert_eq!(of("apps/v1", kind, object), expected, "{kind}: {case}");
        }
        for (case, object, expected) in [
            ("not started", json!({"status": {}}), "enough"),
            ("no pod", json!({"status": {"startTime": "t"}}), "short"),
            ("one pod", json!({"status": {"startTime": "t", "active": 1}}), "enough"),
            ("after a failure", json!({"status": {"startTime": "t", "failed": 1}}), "enough"),
            ("suspended", json!({"spec": {"suspend": true}, "status": {"startTime": "t"}}), "enough"),
            (
                "the last one",
                json!({"spec": {"parallelism": 5, "completions": 3}, "status": {"startTime": "t", "succeeded": 2, "active": 1}}),
                "enough",
            ),
            (
                "complete",
                json!({"status": {"startTime": "t", "conditions": [{"type": "Complete", "status": "True"}]}}),
                "enough",
            ),
        ] {
            assert_eq!(of("batch/v1", "Job", object), expected, "Job: {case}");
        }
    }
}
