//! Fail fast: whether the pods of a workload would be admitted, at the moment the workload is written.
//!
//! The pod that a controller would create is created as a dry run, so that the cluster's real admission decides: every plugin,
//! policy and webhook, in its order, mutating ones included. Only a rejection that is final is one: what could not be found
//! out, and what depends on other objects that may still come or go, is a warning. The webhook is called for its own dry runs,
//! which are about pods and end there.

use std::time::Duration;

use http::Request;
use kube::Client;
use palisade_admission::{
    admission_review::Review,
    response::{Refusal, Response},
};
use palisade_model::{metadata::StringMap, workload::WorkloadKind};
use palisade_policy::exceptions::workload::is_controller;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    calls::{MANAGER, in_words},
    metrics::{FAIL_FAST, Metrics},
};

/// The label of a namespace that decides over the webhook's own setting.
pub const LABEL: &str = "palisade.dev/fail-fast";
/// A dry run takes no longer than this, or two thirds of what is left of the request's time.
const LONGEST: Duration = Duration::from_secs(3);
/// So many dry runs at a time: each calls every other webhook of the cluster.
const AT_ONCE: usize = 16;
/// The uid of an owner that has none yet.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

/// What happens to a workload whose pods would be rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailFastMode {
    /// Nothing is looked at.
    Off,
    /// The client is warned.
    Warn,
    /// The workload is rejected.
    Refuse,
}

impl FailFastMode {
    /// Reads the word of an option or a label.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "off" => Self::Off,
            "warn" => Self::Warn,
            "refuse" => Self::Refuse,
            _ => return None,
        })
    }

    /// The mode of a namespace: its label, if that can be read, before the webhook's own.
    #[must_use]
    pub fn of_namespace(self, labels: &StringMap<'_>) -> Self {
        labels.get(LABEL).and_then(Self::parse).unwrap_or(self)
    }
}

/// What a dry run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DryRun {
    /// The pod would be admitted.
    Admitted,
    /// It would be rejected whenever it is created.
    Rejected(String),
    /// It would be rejected now, and may be admitted later.
    NotNow(String),
    /// That could not be found out.
    Unknown(String),
}

/// The pod that the controller of a workload would create; `None` if there is no controller that creates it itself, its owner
/// was looked at, or the workload is ending.
#[must_use]
pub fn pod_of(kind: &WorkloadKind, workload: &Value, namespace: &str, user: &str) -> Option<Value> {
    let metadata = &workload["metadata"];
    // Its owner was answered for; to reject it here would hide the rejection from the one who wrote the owner.
    if is_made_by_controller(user, kind.kind, metadata) || metadata["deletionTimestamp"].is_string() {
        return None;
    }
    let template = kind.path.iter().try_fold(workload, |value, field| value.get(field))?;
    let name = metadata["name"].as_str().or_else(|| metadata["generateName"].as_str())?;
    let (owner_kind, api_version, of_owner): (&str, &str, &[&str]) = match kind.kind {
        "Deployment" => ("ReplicaSet", "apps/v1", &["pod-template-hash"]),
        "CronJob" | "Job" => ("Job", "batch/v1", JOB_LABELS),
        "DaemonSet" => ("DaemonSet", "apps/v1", &["controller-revision-hash", "pod-template-generation"]),
        "StatefulSet" => {
            ("StatefulSet", "apps/v1", &["controller-revision-hash", "statefulset.kubernetes.io/pod-name"])
        }
        "ReplicaSet" => ("ReplicaSet", "apps/v1", &[]),
        "ReplicationController" => ("ReplicationController", "v1", &[]),
        _ => return None,
    };
    let mut labels = template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    for label in of_owner {
        labels.entry((*label).to_owned()).or_insert_with(|| "dry-run".into());
    }
    // A name of a pod is generated from at most 58 characters of it.
    let prefix: String = name.trim_end_matches('-').chars().take(50).collect();
    let uid = metadata["uid"].as_str().filter(|_| owner_kind == kind.kind).unwrap_or(NO_UID);
    let mut made = json!({
        "generateName": format!("{prefix}-"),
        "namespace": namespace,
        "labels": labels,
        // Without blockOwnerDeletion, which needs a permission on the owner.
        "ownerReferences": [{"apiVersion": api_version, "kind": owner_kind, "name": name, "uid": uid, "controller": true}],
    });
    if let Some(annotations) = template["metadata"].get("annotations").filter(|value| value.is_object()) {
        made["annotations"] = annotations.clone();
    }
    let spec = template.get("spec").filter(|spec| spec.is_object())?;
    Some(json!({"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": spec}))
}

/// Whether a controller of Kubernetes writes this workload for its owner. Everyone who writes a workload can write an owner into it.
fn is_made_by_controller(user: &str, kind: &str, metadata: &Value) -> bool {
    let (controller, of) = match kind {
        "ReplicaSet" => ("deployment-controller", "Deployment"),
        "Job" => ("cronjob-controller", "CronJob"),
        _ => return false,
    };
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    is_controller(user, controller) && owners.any(|owner| owner["controller"] == true && owner["kind"] == of)
}

const JOB_LABELS: &[&str] =
    &["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

/// Whether the controller creates no pods for now.
fn is_idle(workload: &Value) -> bool {
    let spec = &workload["spec"];
    spec["replicas"] == 0 || spec["suspend"] == true || spec["parallelism"] == 0
}

/// What the API server's answer to a dry run means.
#[must_use]
pub fn outcome(code: u16, message: &str) -> DryRun {
    // In texts of the API server. A webhook with side effects cannot be tried; permissions of ours are no verdict on the pod.
    const NO_VERDICT: &[&str] =
        &["does not support dry run", "cannot create resource", "failed calling webhook"];
    // Pod Security decides on the pod alone, and its message contains values of the pod.
    const FINAL: &str = "violates PodSecurity";
    // Quota is free again when other pods end, what is missing may be applied next, and a namespace that ends takes nothing.
    const PASSING: &[&str] =
        &["exceeded quota", "failed quota", "not found", "being terminated", "no PriorityClass"];
    let text = message.replace('\n', " ");
    let words = without_quotations(&text);
    let mentions = |all: &[&str]| !words.contains(FINAL) && all.iter().any(|known| words.contains(known));
    match code {
        200..=299 => DryRun::Admitted,
        400 | 403 | 409 | 422 if mentions(NO_VERDICT) => DryRun::Unknown(text),
        400 | 403 | 422 if mentions(PASSING) => DryRun::NotNow(text),
        400 | 403 | 422 => DryRun::Rejected(text),
        _ => DryRun::Unknown(text),
    }
}

/// A message without what it quotes: names and values are the author's, who could put the words of another message in them.
fn without_quotations(message: &str) -> String {
    let (mut words, mut is_quoted, mut is_escaped) = (String::with_capacity(message.len()), false, false);
    for character in message.chars() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if !is_quoted => words.push(character),
            _ => {}
        }
    }
    words
}

/// Tries the pods of workloads.
pub struct FailFast {
    client: Client,
    mode: FailFastMode,
    permits: Semaphore,
}

impl std::fmt::Debug for FailFast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FailFast").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl FailFast {
    /// With a mode for namespaces that do not have their own.
    #[must_use]
    pub fn new(client: Client, mode: FailFastMode) -> Self {
        Self { client, mode, permits: Semaphore::new(AT_ONCE) }
    }

    /// Adds to the response of a workload what its pods would meet.
    pub(crate) async fn look(
        &self,
        review: &Review<'_>,
        labels: &StringMap<'_>,
        deadline: Instant,
        metrics: &Metrics,
        response: &mut Response,
    ) {
        let mode = self.mode.of_namespace(labels);
        if mode == FailFastMode::Off || response.refused.is_some() {
            return;
        }
        let Some((kind, workload)) = review.changed_workload() else { return };
        let Some(pod) = pod_of(kind, &workload, &review.namespace, &review.user_info.username) else {
            return;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let time = LONGEST.min(left * 2 / 3);
        let outcome = match tokio::time::timeout(time, self.dry_run(&review.namespace, &pod)).await {
            Ok(outcome) => outcome,
            Err(_) => DryRun::Unknown(format!("no response within {} ms", time.as_millis())),
        };
        let result = match outcome {
            DryRun::Admitted => "admitted",
            DryRun::Rejected(why) => {
                let text = format!("pods of this {} would be rejected: {why}", kind.kind);
                // A client may write a workload first and what it needs before it gets replicas.
                if mode == FailFastMode::Refuse && !is_idle(&workload) {
                    response.refused = Some(Refusal::forbidden(&text));
                } else {
                    response.warnings.push(text);
                }
                "rejected"
            }
            DryRun::NotNow(why) => {
                response.warnings.push(format!("pods of this {} would be rejected now: {why}", kind.kind));
                "not_now"
            }
            DryRun::Unknown(why) => {
                let text =
                    format!("cannot determine whether pods of this {} would be admitted: {why}", kind.kind);
                tracing::debug!(namespace = %review.namespace, name = %review.name, why, "dry run without a result");
                response.warnings.push(text);
                "unknown"
            }
        };
        metrics.count_by(&FAIL_FAST, &[("result", result)]);
    }

    async fn dry_run(&self, namespace: &str, pod: &Value) -> DryRun {
        let Ok(_permit) = self.permits.acquire().await else {
            return DryRun::Unknown("the webhook is stopping".to_owned());
        };
        let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldManager={MANAGER}");
        let request =
            Request::post(path).header("content-type", "application/json").body(pod.to_string().into_bytes());
        let request = match request {
            Ok(request) => request,
            Err(error) => return DryRun::Unknown(error.to_string()),
        };
        match self.client.request_text(request).await {
            Ok(_) => DryRun::Admitted,
            Err(kube::Error::Api(status)) => outcome(status.code, &status.message),
            Err(error) => DryRun::Unknown(in_words(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::workload::workload_resource;
    use serde_json::json;

    use super::{DryRun, is_idle, outcome, pod_of};

    #[test]
    fn only_a_final_rejection_is_one() {
        for (code, message, expected) in [
            (201, "", "admitted"),
            (
                403,
                "pods \"web-x\" is forbidden: violates PodSecurity \"restricted:latest\": host namespaces",
                "rejected",
            ),
            (
                403,
                "pods \"web-x\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces, \
                 non-default capabilities (container \"c\" must not include \"not found\" in capabilities.add)",
                "rejected",
            ),
            (
                403,
                "pods \"w\" is forbidden: violates PodSecurity \"baseline:latest\": x (\"a=\"exceeded quota\"\")",
                "rejected",
            ),
            (422, "Pod \"w\" is invalid: a: Unsupported value: \"\\\"failed calling webhook\"", "rejected"),
            (400, "admission webhook \"deny.example.com\" denied the request: no", "rejected"),
            (422, "Pod \"web-x\" is invalid: spec.containers[0].image: Required value", "rejected"),
            (400, "admission webhook \"x\" does not support dry run", "unknown"),
            (
                403,
                "pods is forbidden: User \"u\" cannot create resource \"pods\" in API group \"\"",
                "unknown",
            ),
            (500, "Internal error occurred: failed calling webhook \"x\": timeout", "unknown"),
            (403, "forbidden: failed calling webhook \"x\"", "unknown"),
            (429, "too many requests", "unknown"),
            (503, "", "unknown"),
            (403, "pods \"web-x\" is forbidden: exceeded quota: q, requested: pods=1", "not now"),
            (
                403,
                "pods \"w\" is forbidden: error looking up service account a/b: serviceaccount \"b\" not found",
                "not now",
            ),
            (403, "pods \"w\" is forbidden: no PriorityClass with name x was found", "not now"),
            (403, "unable to create new content in namespace a because it is being terminated", "not now"),
        ] {
            let found = match outcome(code, message) {
                DryRun::Admitted => "admitted",
                DryRun::Rejected(_) => "rejected",
                DryRun::NotNow(_) => "not now",
                DryRun::Unknown(_) => "unknown",
            };
            assert_eq!(found, expected, "{code} {message}");
        }
    }

    #[test]
    fn the_pod_is_the_one_that_the_controller_would_create() {
        let kind = |group, resource| workload_resource(group, resource).unwrap();
        let template = json!({"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": {"containers": []}});
        let deployment = json!({"metadata": {"name": "web", "uid": "u"}, "spec": {"template": template}});
        let pod = pod_of(kind("apps", "deployments"), &deployment, "shop", "jane").unwrap();
        assert_eq!(pod["metadata"]["generateName"], "web-");
        assert_eq!(pod["metadata"]["labels"], json!({"app": "web", "pod-template-hash": "dry-run"}));
        assert_eq!(pod["metadata"]["annotations"], json!({"a": "b"}));
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ReplicaSet");
        assert_eq!(pod["spec"], json!({"containers": []}));
        let cron =
            json!({"metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": {"template": template}}}});
        let pod = pod_of(kind("batch", "cronjobs"), &cron, "shop", "jane").unwrap();
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Job");
        assert_eq!(pod["metadata"]["labels"]["job-name"], "dry-run");
        let set = json!({"metadata": {"name": "web-1"}, "spec": {"template": template}});
        assert!(pod_of(kind("apps", "replicasets"), &set, "shop", "jane").is_some());
        let podless = json!({"metadata": {"name": "t"}, "template": template});
        assert_eq!(pod_of(kind("", "podtemplates"), &podless, "shop", "jane"), None, "no controller");
        assert!(is_idle(&json!({"spec": {"replicas": 0}})) && is_idle(&json!({"spec": {"suspend": true}})));
        assert!(!is_idle(&json!({"spec": {}})));
    }

    #[test]
    fn only_what_a_controller_of_kubernetes_makes_was_answered_for() {
        const ACCOUNT: &str = "system:serviceaccount:kube-system:";
        let template = json!({"spec": {"containers": []}});
        for (case, resource, owner, user, is_looked_at) in [
            ("a Deployment's", ("apps", "replicasets"), "Deployment", "deployment-controller", false),
            ("a CronJob's", ("batch", "jobs"), "CronJob", "cronjob-controller", false),
            ("another controller", ("apps", "replicasets"), "Deployment", "cronjob-controller", true),
            ("made up by a user", ("apps", "replicasets"), "Deployment", "", true),
            ("an owner of another kind", ("apps", "replicasets"), "Web", "deployment-controller", true),
            ("nothing that has owners", ("apps", "deployments"), "Deployment", "deployment-controller", true),
            ("an operator's", ("apps", "statefulsets"), "Database", "", true),
        ] {
            let user = if user.is_empty() { "jane".to_owned() } else { format!("{ACCOUNT}{user}") };
            let owned = json!({"metadata": {"name": "web-1", "ownerReferences": [{"kind": owner, "controller": true}]},
                "spec": {"template": template}});
            let kind = workload_resource(resource.0, resource.1).unwrap();
            assert_eq!(pod_of(kind, &owned, "shop", &user).is_some(), is_looked_at, "{case}");
        }
    }
}
