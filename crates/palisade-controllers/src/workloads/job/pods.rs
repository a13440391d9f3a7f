//! The pods of a Job: what their template gets, and what they show. Pure.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::policy::{Failure, failure};
use crate::workloads::{
    meta::controller_reference,
    object::Object,
    pod::{Phase, Pod},
    replica_set::plan::pod_of,
};

/// The finalizer of a pod that its Job has not counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The annotation and label with the completion index.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often the index has failed.
const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// How often it has failed in ways that do not count.
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// A generated name is continued by five characters, and has at most 63.
const LONGEST_PREFIX: usize = 58;

/// The completion index of a pod.
#[must_use]
pub fn index(pod: &Pod) -> Option<i64> {
    pod.meta.annotation(INDEX).and_then(|text| text.parse().ok()).filter(|index| *index >= 0)
}

/// Whether its Job has still to count it.
#[must_use]
pub fn is_tracked(pod: &Pod) -> bool {
    pod.meta.has_finalizer(TRACKING)
}

/// Whether only pods that have failed are replaced, and not those that are being deleted.
#[must_use]
pub fn replaces_failed_only(job: &Object) -> bool {
    job.text("/spec/podReplacementPolicy") == "Failed" || job.at("/spec/podFailurePolicy").is_object()
}

/// Whether a pod counts as failed. One that is being deleted may never get that far.
#[must_use]
pub fn is_failed(job: &Object, pod: &Pod) -> bool {
    match pod.phase {
        Phase::Failed => true,
        Phase::Succeeded => false,
        _ => pod.meta.is_deleting() && !replaces_failed_only(job),
    }
}

fn number(pod: &Pod, annotation: &str) -> i64 {
    pod.meta.annotation(annotation).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// How often the index of a pod had failed before it, in ways that count.
#[must_use]
pub fn failures(pod: &Pod) -> i64 {
    number(pod, FAILURES)
}

/// How often the index of a pod had failed before it.
#[must_use]
pub fn all_failures(pod: &Pod) -> i64 {
    failures(pod) + number(pod, IGNORED)
}

/// When a pod ended.
#[must_use]
pub fn ended(pod: &Pod) -> Option<Timestamp> {
    let grace_period = SignedDuration::from_secs(pod.meta.grace_period);
    let deleted = pod.meta.deleted.and_then(|end| end.checked_sub(grace_period).ok());
    pod.ended.or(pod.unready_since).or(deleted).or(pod.meta.created)
}

/// A pod of a Job; of an index, if there are indexes, in place of a failed one.
#[must_use]
pub fn pod(job: &Object, index: Option<i64>, replaced: Option<&Pod>) -> Value {
    let reference = controller_reference("batch/v1", "Job", &job.meta);
    let mut pod = pod_of(job.at("/spec/template"), &job.meta, &reference);
    let metadata = &mut pod["metadata"];
    let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|one| one == TRACKING) {
        finalizers.push(json!(TRACKING));
    }
    metadata["finalizers"] = finalizers.into();
    let Some(index) = index else { return pod };
    metadata["annotations"][INDEX] = json!(index.to_string());
    metadata["labels"][INDEX] = json!(index.to_string());
    if job.at("/spec/backoffLimitPerIndex").is_number() {
        let (mut counted, mut ignored) = (0, 0);
        if let Some(replaced) = replaced {
            counted = failures(replaced);
            ignored = number(replaced, IGNORED);
            if failure(job, replaced) == Failure::Ignore {
                ignored += 1;
            } else {
                counted += 1;
            }
        }
        metadata["annotations"][FAILURES] = json!(counted.to_string());
        if ignored > 0 {
            metadata["annotations"][IGNORED] = json!(ignored.to_string());
        }
    }
    let ending = format!("-{index}-");
    let name = &job.meta.name;
    let prefix = name.get(..LONGEST_PREFIX.saturating_sub(ending.len())).unwrap_or(name);
    metadata["generateName"] = json!(format!("{prefix}{ending}"));
    let spec = &mut pod["spec"];
    spec["hostname"] = json!(format!("{name}-{index}"));
    let variable = json!({"name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.labels['{INDEX}']")}}});
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            let mut env = container["env"].as_array().cloned().unwrap_or_default();
            if !env.iter().any(|one| one["name"] == variable["name"]) {
                env.push(variable.clone());
            }
            container["env"] = env.into();
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::pod;
    use crate::workloads::{mirror::Mirrored as _, object::Object, pod::Pod};

    #[test]
    fn an_indexed_pod_knows_its_index_and_its_failures() {
        let name = "a".repeat(60);
        let job = Object::of(
            json!({"metadata": {"name": name, "uid": "u"}, "spec": {"backoffLimitPerIndex": 1, "template":
            {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}}}),
        )
        .unwrap();
        let failed = Pod::read(
            r#"{"metadata":{"annotations":{"batch.kubernetes.io/job-index-failure-count":"1"}},"status":{"phase":"Failed"}}"#,
        );
        let made = pod(&job, Some(12), Some(&failed.unwrap()));
        let metadata = &made["metadata"];
        assert_eq!(metadata["labels"], json!({"a": "b", "batch.kubernetes.io/job-completion-index": "12"}));
        assert_eq!(metadata["annotations"]["batch.kubernetes.io/job-index-failure-count"], "2");
        assert_eq!(metadata["generateName"], format!("{}-12-", "a".repeat(54)));
        assert_eq!(metadata["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
        let env = &made["spec"]["containers"][0]["env"][0];
        assert_eq!(
            env["valueFrom"]["fieldRef"]["fieldPath"],
            "metadata.labels['batch.kubernetes.io/job-completion-index']"
        );
        assert_eq!(pod(&job, None, None)["spec"]["containers"][0].get("env"), None);
    }
}
