//! Workloads whose pods Pod Security rejects: what stops a wave.
//!
//! Implements: the condition `ReplicaFailure` of Deployments, ReplicaSets and ReplicationControllers, and the event
//! `FailedCreate` that every controller of workloads records. Pods that are rejected for another reason, such as a quota, are
//! no matter of the rollout.

use palisade_model::workload::WorkloadKind;
use palisade_policy::enforcement::waves::Rejection;
use serde_json::Value;

use super::Cluster;

/// What the message of Pod Security Admission has, in the API server and in a webhook.
const REJECTED: &str = "violates PodSecurity";
/// How much of a message is kept.
const MOST_MESSAGE: usize = 300;

fn shortened(message: &str) -> String {
    message.chars().take(MOST_MESSAGE).collect()
}

impl Cluster {
    /// The workloads of a namespace whose pods Pod Security rejects.
    pub fn rejections(&self, namespace: &str) -> impl Iterator<Item = &Rejection> {
        self.rejections.get(namespace).into_iter().flat_map(|all| all.values())
    }

    /// A workload was seen: whether it reports that its pods are rejected.
    pub(super) fn set_rejection(&mut self, kind: &WorkloadKind, namespace: &str, name: &str, object: &Value) {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let failure = conditions.into_iter().flatten().find(|condition| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["type"] == "ReplicaFailure"
                && condition["status"] == "True"
                && message.contains(REJECTED)
        });
        let key = format!("condition {}/{name}", kind.kind);
        let rejection = failure.map(|condition| Rejection {
            namespace: namespace.to_owned(),
            workload: self.workload_of(namespace, kind.kind, name).to_string(),
            message: shortened(condition["message"].as_str().unwrap_or_default()),
            since: condition["lastTransitionTime"].as_str().unwrap_or_default().to_owned(),
        });
        self.keep_rejection(namespace, key, rejection);
    }

    /// A workload is gone.
    pub(super) fn remove_rejection(&mut self, namespace: &str, kind: &str, name: &str) {
        if self.rejections.contains_key(namespace) {
            self.keep_rejection(namespace, format!("condition {kind}/{name}"), None);
        }
    }

    /// An event was seen; without an object it is gone.
    pub fn set_event(&mut self, namespace: &str, name: &str, object: Option<&Value>) {
        let rejection = object.and_then(|object| {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
            let message = text("/message").filter(|message| message.contains(REJECTED))?;
            let (kind, owner) = (text("/involvedObject/kind")?, text("/involvedObject/name")?);
            (object["reason"] == "FailedCreate").then(|| {
                // The first time counts: the same workload is retried for ever.
                let times = ["/firstTimestamp", "/eventTime", "/metadata/creationTimestamp"];
                Rejection {
                    namespace: namespace.to_owned(),
                    workload: self.workload_of(namespace, kind, owner).to_string(),
                    message: shortened(message),
                    since: times.into_iter().find_map(text).unwrap_or_default().to_owned(),
                }
            })
        });
        self.keep_rejection(namespace, format!("event {name}"), rejection);
    }

    fn keep_rejection(&mut self, namespace: &str, key: String, rejection: Option<Rejection>) {
        match rejection {
            Some(rejection) => {
                self.rejections.entry(namespace.to_owned()).or_default().insert(key, rejection);
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

    use super::Cluster;

    fn found(cluster: &Cluster) -> Vec<String> {
        cluster
            .rejections("team")
            .map(|rejection| format!("{} {}", rejection.workload, rejection.since))
            .collect()
    }

    #[test]
    fn rejected_pods_are_found_in_conditions_and_events() {
        const MESSAGE: &str =
            r#"pods "web-x" is forbidden: violates PodSecurity "restricted:latest": privileged"#;
        let mut cluster = Cluster::with_levels(Compat::default(), LevelSource::Workloads);
        let replica_set = workload_kind("apps/v1", "ReplicaSet").unwrap();
        let object = |message: &str| {
            json!({"metadata": {"name": "web-1", "namespace": "team", "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": true}]},
                "spec": {"template": {"spec": {"containers": []}}},
                "status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": message,
                                           "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
        };
        assert!(cluster.set_workload(replica_set, &object("exceeded quota")));
        assert_eq!(found(&cluster), [""; 0], "not a matter of the rollout");
        assert!(cluster.set_workload(replica_set, &object(MESSAGE)));
        assert_eq!(found(&cluster), ["Deployment/web 2026-01-01T00:00:00Z"]);
        cluster.remove_workload(replica_set, "team", "web-1");
        assert_eq!(found(&cluster), [""; 0]);
        let event = |reason: &str, message: &str| -> Value {
            json!({"reason": reason, "message": message, "eventTime": null, "firstTimestamp": "2026-01-02T00:00:00Z",
                   "lastTimestamp": "2026-01-09T00:00:00Z", "involvedObject": {"kind": "DaemonSet", "name": "agent"}})
        };
        cluster.set_event("team", "agent.1", Some(&event("FailedCreate", MESSAGE)));
        assert_eq!(found(&cluster), ["DaemonSet/agent 2026-01-02T00:00:00Z"]);
        cluster.set_event("team", "agent.2", Some(&event("FailedScheduling", MESSAGE)));
        cluster.set_event("team", "agent.1", None);
        assert_eq!(found(&cluster), [""; 0]);
    }
}
