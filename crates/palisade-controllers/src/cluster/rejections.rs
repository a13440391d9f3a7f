//! Workloads whose pods admission rejects: what is reported on them, and what stops a wave.
//!
//! Implements: the condition `ReplicaFailure` of Deployments, ReplicaSets and ReplicationControllers, and the event
//! `FailedCreate` that every controller of workloads records. A condition ends with the rejection. An event outlives it, and
//! therefore counts only while its workload lacks pods. Only what Pod Security rejects stops a wave: a quota, for example, is no
//! matter of the rollout.

use std::collections::BTreeMap;

use palisade_model::workload::{WORKLOADS, WorkloadKind};
use palisade_policy::enforcement::waves::Rejection;
use serde_json::Value;

use super::{Cluster, template::Template};

/// How much of a message the status of a wave has.
const MOST_IN_WAVES: usize = 300;
/// How much of a message is kept.
const MOST_MESSAGE: usize = 1000;

/// What kube-controller-manager puts before the message of events that it combines.
const COMBINED: &str = "(combined from similar events): ";

/// What rejects the pods of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectedBy {
    /// The Pod Security Standards, in the API server or in a webhook.
    PodSecurity,
    /// Security context constraints.
    SecurityContextConstraints,
    /// A ValidatingAdmissionPolicy.
    AdmissionPolicy,
    /// A webhook that denies, or that cannot be called.
    Webhook,
    /// A quota.
    ResourceQuota,
    /// Another plugin, or validation.
    Other,
}

impl RejectedBy {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::PodSecurity,
        Self::SecurityContextConstraints,
        Self::AdmissionPolicy,
        Self::Webhook,
        Self::ResourceQuota,
        Self::Other,
    ];

    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PodSecurity => "PodSecurity",
            Self::SecurityContextConstraints => "SecurityContextConstraints",
            Self::AdmissionPolicy => "ValidatingAdmissionPolicy",
            Self::Webhook => "Webhook",
            Self::ResourceQuota => "ResourceQuota",
            Self::Other => "Other",
        }
    }

    /// What a message of the API server is of; `None` if it is no rejection, but a failed connection, for example.
    fn of(message: &str) -> Option<Self> {
        let has = |part: &str| message.contains(part);
        Some(match () {
            () if has("violates PodSecurity") => Self::PodSecurity,
            () if has("unable to validate against any security context constraint") => {
                Self::SecurityContextConstraints
            }
            () if has("ValidatingAdmissionPolicy") && has("denied request") => Self::AdmissionPolicy,
            () if has("admission webhook") || has("failed calling webhook") => Self::Webhook,
            () if has("exceeded quota") || has("failed quota") => Self::ResourceQuota,
            () if has(" is forbidden") || has(" is invalid: ") => Self::Other,
            () => return None,
        })
    }
}

/// A workload whose pods are rejected now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RejectedWorkload {
    /// Its namespace.
    pub namespace: String,
    /// Its kind: the Deployment, where a ReplicaSet of it reports.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its API version.
    pub api_version: String,
    /// Its unique id.
    pub uid: String,
    /// What rejects its pods.
    pub by: RejectedBy,
    /// The message, without the name of the pod, which differs each time.
    pub message: String,
}

/// A report of rejected pods: a condition or an event.
#[derive(Debug)]
pub(super) struct Report {
    rejection: Rejection,
    by: RejectedBy,
    /// The message without what differs each time.
    cause: Box<str>,
    /// When this was last reported, RFC 3339.
    last: String,
    /// The object that it was reported on.
    kind: String,
    name: String,
    /// Whether this is an event, which outlives what it reports.
    is_event: bool,
}

/// The reports of a namespace by where they were seen.
pub(super) type Reports = BTreeMap<String, Report>;

fn shortened(message: &str, most: usize) -> String {
    message.chars().take(most).collect()
}

/// A message without the words of the controller and the name of the pod: those differ from try to try.
fn cause(message: &str) -> String {
    let mut text = of_pods(message).to_owned();
    // A webhook that wraps the message of Pod Security names the pod as well.
    for (before, after) in [("pods \"", "\" is forbidden: "), ("Pod \"", "\" is invalid: ")] {
        if let Some(start) = text.find(before)
            && let Some(rest) = text.get(start + before.len()..)
            && let Some(length) = rest.find(after)
            && rest.get(..length).is_some_and(|name| !name.contains([' ', '"']))
        {
            let end = start + before.len() + length + after.len();
            text.replace_range(start..end, if before == "Pod \"" { "the pod is invalid: " } else { "" });
        }
    }
    shortened(&text, MOST_MESSAGE)
}

/// What an event reports, without the words of the controller that records it.
fn of_pods(message: &str) -> &str {
    let message = message.strip_prefix(COMBINED).unwrap_or(message);
    if let Some(rest) = message.strip_prefix("Error creating: ") {
        return rest;
    }
    let rest = of_stateful_set(message, "Pod").and_then(|rest| rest.split_once(" failed error: "));
    rest.map_or(message, |(_, rest)| rest)
}

/// Whether an event is about something else than pods: a claim for storage, or the Job of a CronJob.
fn is_of_others(message: &str) -> bool {
    let message = message.strip_prefix(COMBINED).unwrap_or(message);
    of_stateful_set(message, "Claim").is_some() || message.starts_with("Error creating job")
}

/// What follows `create <object> ` in an event of a StatefulSet. kube-controller-manager capitalises the verb, depending on the
/// release.
fn of_stateful_set<'m>(message: &'m str, object: &str) -> Option<&'m str> {
    let rest = message.strip_prefix("create ").or_else(|| message.strip_prefix("Create "))?;
    rest.strip_prefix(object)?.strip_prefix(' ')
}

fn workload_kind_named(kind: &str) -> Option<&'static WorkloadKind> {
    WORKLOADS.iter().find(|workload| workload.kind == kind)
}

impl Cluster {
    /// The workloads of a namespace whose pods Pod Security rejects, or rejected a short time ago.
    pub fn rejections(&self, namespace: &str) -> impl Iterator<Item = &Rejection> {
        let reports = self.rejections.get(namespace).into_iter().flat_map(BTreeMap::values);
        reports
            .filter(move |report| {
                report.by == RejectedBy::PodSecurity
                    && (report.is_event || self.template_of(namespace, &report.kind, &report.name).is_some())
            })
            .map(|report| &report.rejection)
    }

    /// Workloads whose pods are rejected now, by namespace, kind and name.
    #[must_use]
    pub fn rejected_workloads(&self) -> Vec<RejectedWorkload> {
        let mut found: BTreeMap<(&str, &str, String), (&str, RejectedWorkload)> = BTreeMap::new();
        for (namespace, reports) in &self.rejections {
            for report in reports.values() {
                let Some(own) = self.template_of(namespace, &report.kind, &report.name) else { continue };
                if report.is_event && !own.lacks_pods {
                    continue;
                }
                let top = self.controlling(namespace, own);
                let workload = RejectedWorkload {
                    namespace: namespace.clone(),
                    kind: top.kind.kind,
                    name: top.name.to_string(),
                    api_version: match top.kind.group {
                        "" => "v1".to_owned(),
                        group => format!("{group}/v1"),
                    },
                    uid: top.uid.to_string(),
                    by: report.by,
                    message: report.cause.to_string(),
                };
                let key = (namespace.as_str(), top.kind.kind, top.name.to_string());
                // The newest report counts: a condition keeps the message of the first rejection.
                let is_newer = found.get(&key).is_none_or(|(last, _)| *last < report.last.as_str());
                if is_newer {
                    found.insert(key, (&report.last, workload));
                }
            }
        }
        found.into_values().map(|(_, workload)| workload).collect()
    }

    fn template_of(&self, namespace: &str, kind: &str, name: &str) -> Option<&Template> {
        let kind = workload_kind_named(kind)?;
        let template = self.namespaces.get(namespace)?.templates.get(&self.key(kind.group, kind.kind, name));
        template.map(Box::as_ref)
    }

    /// The workload that controls another in the end, as far as it is there.
    fn controlling<'c>(&'c self, namespace: &str, template: &'c Template) -> &'c Template {
        let mut top = template;
        // No chain of owners is longer.
        for _ in 0..3 {
            let owner =
                top.owner().and_then(|owner| self.template_of(namespace, owner.kind.kind, &owner.name));
            let Some(owner) = owner else { break };
            top = owner;
        }
        top
    }

    /// A workload was seen: whether it reports that its pods are rejected.
    pub(super) fn set_rejection(&mut self, kind: &WorkloadKind, namespace: &str, name: &str, object: &Value) {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let failure = conditions.into_iter().flatten().find_map(|condition| {
            let message = condition["message"].as_str().unwrap_or_default();
            let holds = condition["type"] == "ReplicaFailure" && condition["status"] == "True";
            let by = RejectedBy::of(message).filter(|_| holds)?;
            Some((by, message, condition["lastTransitionTime"].as_str().unwrap_or_default()))
        });
        let key = format!("condition {}/{name}", kind.kind);
        let report = failure.map(|(by, message, since)| Report {
            rejection: Rejection {
                namespace: namespace.to_owned(),
                workload: self.workload_of(namespace, kind.kind, name).to_string(),
                message: shortened(message, MOST_IN_WAVES),
                since: since.to_owned(),
            },
            by,
            cause: cause(message).into(),
            last: since.to_owned(),
            kind: kind.kind.to_owned(),
            name: name.to_owned(),
            is_event: false,
        });
        self.keep_rejection(namespace, key, report);
    }

    /// A workload is gone.
    pub(super) fn remove_rejection(&mut self, namespace: &str, kind: &str, name: &str) {
        if self.rejections.contains_key(namespace) {
            self.keep_rejection(namespace, format!("condition {kind}/{name}"), None);
        }
    }

    /// An event was seen; without an object it is gone.
    pub fn set_event(&mut self, namespace: &str, name: &str, object: Option<&Value>) {
        let report = object.and_then(|object| {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
            let message = text("/message").filter(|message| !is_of_others(message))?;
            let by = RejectedBy::of(message)?;
            let (kind, owner) = (text("/involvedObject/kind")?, text("/involvedObject/name")?);
            (object["reason"] == "FailedCreate").then(|| {
                // The first time counts for a wave: the same workload is retried for ever.
                let first = ["/firstTimestamp", "/eventTime", "/metadata/creationTimestamp"];
                let last = ["/series/lastObservedTime", "/lastTimestamp"];
                let since = first.into_iter().find_map(text).unwrap_or_default();
                Report {
                    rejection: Rejection {
                        namespace: namespace.to_owned(),
                        workload: self.workload_of(namespace, kind, owner).to_string(),
                        message: shortened(message, MOST_IN_WAVES),
                        since: since.to_owned(),
                    },
                    by,
                    cause: cause(message).into(),
                    last: last.into_iter().find_map(text).unwrap_or(since).to_owned(),
                    kind: kind.to_owned(),
                    name: owner.to_owned(),
                    is_event: true,
                }
            })
        });
        self.keep_rejection(namespace, format!("event {name}"), report);
    }

    fn keep_rejection(&mut self, namespace: &str, key: String, report: Option<Report>) {
        match report {
            Some(report) => {
                self.rejections.entry(namespace.to_owned()).or_default().insert(key, report);
            }
            None => {
                if let Some(all) = self.rejections.get_mut(namespace) {
                    all.remove(&key);
                    if all.is_empty() {
                        self.rejections.remove(namespace);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::{compat::Compat, workload::workload_kind};
    use palisade_policy::enforcement::level::LevelSource;
    use serde_json::{Value, json};

    use super::{Cluster, RejectedBy, cause};

    const MESSAGE: &str =
        r#"pods "web-x" is forbidden: violates PodSecurity "restricted:latest": privileged"#;

    fn found(cluster: &Cluster) -> Vec<String> {
        cluster
            .rejections("team")
            .map(|rejection| format!("{} {}", rejection.workload, rejection.since))
            .collect()
    }

    fn now(cluster: &Cluster) -> Vec<String> {
        let line = |workload: super::RejectedWorkload| {
            let super::RejectedWorkload { namespace, kind, name, uid, by, message, .. } = workload;
            format!("{namespace} {kind}/{name} {uid} {}: {message}", by.as_str())
        };
        cluster.rejected_workloads().into_iter().map(line).collect()
    }

    fn event(kind: &str, name: &str, message: &str) -> Value {
        json!({"reason": "FailedCreate", "message": message, "eventTime": null,
               "firstTimestamp": "2026-01-02T00:00:00Z", "lastTimestamp": "2026-01-09T00:00:00Z",
               "involvedObject": {"kind": kind, "name": name}})
    }

    /// A workload with the numbers of its status.
    fn workload(kind: &str, name: &str, spec: &Value, status: &Value) -> Value {
        let mut object = json!({"metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}")},
            "spec": {"template": {"spec": {"containers": []}}}, "status": status});
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        if kind == "ReplicaSet" {
            object["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": true}]);
        }
        object
    }

    #[test]
    fn rejected_pods_are_found_in_conditions_and_events() {
        let mut cluster = Cluster::with_levels(Compat::default(), LevelSource::Workloads);
        let replica_set = workload_kind("apps/v1", "ReplicaSet").unwrap();
        let object = |message: &str| {
            let condition = json!({"type": "ReplicaFailure", "status": "True", "message": message,
                                   "lastTransitionTime": "2026-01-01T00:00:00Z"});
            workload("ReplicaSet", "web-1", &json!({}), &json!({"conditions": [condition]}))
        };
        assert!(cluster.set_workload(replica_set, &object("exceeded quota")));
        assert_eq!(found(&cluster), [""; 0], "not a matter of the rollout");
        assert!(cluster.set_workload(replica_set, &object(MESSAGE)));
        assert_eq!(found(&cluster), ["Deployment/web 2026-01-01T00:00:00Z"]);
        cluster.remove_workload(replica_set, "team", "web-1");
        assert_eq!(found(&cluster), [""; 0]);
        let event = |reason: &str| {
            let mut event = event("DaemonSet", "agent", &format!("Error creating: {MESSAGE}"));
            event["reason"] = json!(reason);
            event
        };
        cluster.set_event("team", "agent.1", Some(&event("FailedCreate")));
        assert_eq!(found(&cluster), ["DaemonSet/agent 2026-01-02T00:00:00Z"]);
        cluster.set_event("team", "agent.2", Some(&event("FailedScheduling")));
        cluster.set_event("team", "agent.1", None);
        assert_eq!(found(&cluster), [""; 0]);
    }

    #[test]
    fn a_list_without_the_workload_ends_its_rejection() {
        let mut cluster = Cluster::with_levels(Compat::default(), LevelSource::Workloads);
        let replica_set = workload_kind("apps/v1", "ReplicaSet").unwrap();
        let status = json!({"conditions": [{"type": "ReplicaFailure", "status": "True", "message": MESSAGE,
                                            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        assert!(cluster.set_workload(replica_set, &workload("ReplicaSet", "web-1", &json!({}), &status)));
        assert_eq!((found(&cluster).len(), now(&cluster).len()), (1, 1));
        cluster.begin_list("apps", "ReplicaSet");
        cluster.end_list("apps", "ReplicaSet");
        assert_eq!((found(&cluster).len(), now(&cluster).len()), (0, 0));
    }

    #[test]
    fn a_workload_is_rejected_as_long_as_it_lacks_the_pods() {
        let forbidden = format!("Error creating: {MESSAGE}");
        let stateful = format!("Create Pod db-0 in StatefulSet db failed error: {MESSAGE}");
        for (kind, group, spec, message, lacking, complete) in [
            (
                "DaemonSet",
                "apps/v1",
                json!({}),
                &forbidden,
                json!({"desiredNumberScheduled": 1, "currentNumberScheduled": 0}),
                json!({"desiredNumberScheduled": 1, "currentNumberScheduled": 1}),
            ),
            (
                "StatefulSet",
                "apps/v1",
                json!({"replicas": 2}),
                &stateful,
                json!({"replicas": 1, "readyReplicas": 1}),
                json!({"replicas": 2}),
            ),
            (
                "Job",
                "batch/v1",
                json!({"completions": 1, "parallelism": 1}),
                &forbidden,
                json!({"startTime": "t", "failed": 1}),
                json!({"startTime": "t", "failed": 1, "active": 1}),
            ),
            (
                "ReplicationController",
                "v1",
                json!({"replicas": 1}),
                &forbidden,
                json!({}),
                json!({"replicas": 1}),
            ),
        ] {
            let mut cluster = Cluster::with_levels(Compat::default(), LevelSource::Workloads);
            let table = workload_kind(group, kind).unwrap();
            cluster.set_event("team", "e", Some(&event(kind, "db", message)));
            assert_eq!(now(&cluster), [""; 0], "{kind}: the workload itself was not seen yet");
            assert!(cluster.set_workload(table, &workload(kind, "db", &spec, &lacking)));
            let expected = format!(
                "team {kind}/db uid-db PodSecurity: violates PodSecurity \"restricted:latest\": privileged"
            );
            assert_eq!(now(&cluster), [expected], "{kind}");
            assert!(cluster.set_workload(table, &workload(kind, "db", &spec, &complete)));
            assert_eq!(now(&cluster), [""; 0], "{kind}: the event is left, the pods are there");
        }
    }

    #[test]
    fn the_newest_message_is_reported_once_on_the_deployment() {
        let mut cluster = Cluster::with_levels(Compat::default(), LevelSource::Workloads);
        let (deployment, replica_set) = (
            workload_kind("apps/v1", "Deployment").unwrap(),
            workload_kind("apps/v1", "ReplicaSet").unwrap(),
        );
        let status = json!({"conditions": [{"type": "ReplicaFailure", "status": "True", "message": MESSAGE,
                                            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let of = |kind: &str, name: &str| workload(kind, name, &json!({"replicas": 1}), &status);
        assert!(cluster.set_workload(replica_set, &of("ReplicaSet", "web-1")));
        assert!(cluster.set_workload(deployment, &of("Deployment", "web")));
        let quota =
            r#"Error creating: pods "web-1-abcde" is forbidden: exceeded quota: q, requested: pods=1"#;
        cluster.set_event("team", "e", Some(&event("ReplicaSet", "web-1", quota)));
        assert_eq!(
            now(&cluster),
            ["team Deployment/web uid-web ResourceQuota: exceeded quota: q, requested: pods=1"]
        );
    }

    #[test]
    fn messages_name_what_rejects_and_not_the_pod() {
        let combined = format!("(combined from similar events): Error creating: {MESSAGE}");
        for (message, by, expected) in [
            (
                MESSAGE,
                Some(RejectedBy::PodSecurity),
                r#"violates PodSecurity "restricted:latest": privileged"#,
            ),
            (
                &combined,
                Some(RejectedBy::PodSecurity),
                r#"violates PodSecurity "restricted:latest": privileged"#,
            ),
            (
                r#"Error creating: admission webhook "w.example" denied the request: pods "a-b" is forbidden: no"#,
                Some(RejectedBy::Webhook),
                r#"admission webhook "w.example" denied the request: no"#,
            ),
            (
                r#"Error creating: Internal error occurred: failed calling webhook "w.example": refused"#,
                Some(RejectedBy::Webhook),
                r#"Internal error occurred: failed calling webhook "w.example": refused"#,
            ),
            (
                r#"Error creating: pods "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"#,
                Some(RejectedBy::AdmissionPolicy),
                "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            ),
            (
                r#"Error creating: pods "a-" is forbidden: unable to validate against any security context constraint: []"#,
                Some(RejectedBy::SecurityContextConstraints),
                "unable to validate against any security context constraint: []",
            ),
            (
                r#"Error creating: Pod "a" is invalid: spec.containers: Required value"#,
                Some(RejectedBy::Other),
                "the pod is invalid: spec.containers: Required value",
            ),
            (
                r#"Error creating: pods "a" is forbidden: error looking up service account t/s: not found"#,
                Some(RejectedBy::Other),
                "error looking up service account t/s: not found",
            ),
            (
                "Error creating: Post \"https://127.0.0.1/api\": connection refused",
                None,
                "Post \"https://127.0.0.1/api\": connection refused",
            ),
        ] {
            assert_eq!(RejectedBy::of(message), by, "{message}");
            assert_eq!(cause(message), expected, "{message}");
        }
    }

    #[test]
    fn events_of_stateful_sets_are_read_in_either_case() {
        for verb in ["create", "Create"] {
            let pod = format!("{verb} Pod db-0 in StatefulSet db failed error: {MESSAGE}");
            assert_eq!(cause(&pod), r#"violates PodSecurity "restricted:latest": privileged"#, "{verb}");
            let mut cluster = Cluster::with_levels(Compat::default(), LevelSource::Workloads);
            let claim = format!(
                r#"{verb} Claim data-db-0 for Pod db-0 in StatefulSet db failed error: persistentvolumeclaims "data-db-0" is forbidden: exceeded quota: q"#
            );
            cluster.set_event("team", "e", Some(&event("StatefulSet", "db", &claim)));
            assert!(cluster.rejections.is_empty(), "{verb}: a claim is not a pod");
        }
    }
}
