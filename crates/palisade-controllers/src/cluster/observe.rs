//! One door for objects of every kind: from a watch, from a dump, from a folder of manifests.

use std::collections::BTreeSet;

use palisade_model::workload::{group_of, workload_kind};
use palisade_policy::scc::{allocate::Allocator, built_in, choose::VALIDATED, namespace_ranges::UID_RANGE};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Cluster, WatchedPod, counted};

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It counts.
    Used,
    /// Its kind decides nothing here.
    Irrelevant,
    /// It should count, and cannot be read.
    Unreadable,
    /// It holds pods, and nothing is known of what its kind makes of them.
    Undecided,
}

/// Kinds that hold pods without making any.
const RECORDS: [(&str, &str); 4] = [
    ("apps", "ControllerRevision"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("metrics.k8s.io", "PodMetrics"),
    ("metrics.k8s.io", "PodMetricsList"),
];

/// The label with which an API server names every namespace.
const METADATA_NAME: &str = "kubernetes.io/metadata.name";

/// Whether an object of an unknown kind holds the spec of a pod somewhere.
#[must_use]
pub fn holds_pod(api_version: &str, kind: &str, object: &Value) -> bool {
    fn search(value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(search),
            Value::Object(fields) => {
                let containers = fields.get("containers").and_then(Value::as_array);
                containers.is_some_and(|all| all.iter().any(|container| container.get("image").is_some()))
                    || fields.values().any(search)
            }
            _ => false,
        }
    }
    let (group, is_known) = (group_of(api_version), workload_kind(api_version, kind).is_some());
    !is_known && !RECORDS.contains(&(group, kind)) && search(object)
}

/// Whether an object shows that its cluster admits pods by SecurityContextConstraints: a constraint, a grant of one, or what
/// their admission, the range allocator or the label syncer writes and reads.
#[must_use]
pub fn is_of_openshift(object: &Value) -> bool {
    const GROUP: &str = "security.openshift.io";
    const ROLES: &str = "system:openshift:scc:";
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let keys = |field: &str| object["metadata"][field].as_object().into_iter().flat_map(|map| map.keys());
    let is_key = |key: &String| {
        key == VALIDATED
            || key.starts_with("openshift.io/sa.scc.")
            || key.starts_with("security.openshift.io/")
    };
    let grants =
        |rule: &Value| rule["apiGroups"].as_array().into_iter().flatten().any(|group| group == GROUP);
    group_of(text("/apiVersion")) == GROUP
        || keys("labels").chain(keys("annotations")).any(is_key)
        || text("/roleRef/name").starts_with(ROLES)
        || text("/metadata/name").starts_with(ROLES)
        || object["rules"].as_array().into_iter().flatten().any(grants)
}

impl Cluster {
    /// An object was seen.
    pub fn observe(&mut self, object: &Value) -> Seen {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let scope = (!namespace.is_empty()).then_some(namespace);
        match (group_of(api_version), kind) {
            ("", "Namespace") => self.set_namespace(object),
            ("", "ServiceAccount") => self.set_service_account(namespace, name),
            ("", "Pod") => {
                let pod = match WatchedPod::deserialize(object) {
                    Ok(pod) => pod,
                    Err(error) => {
                        let reason = format!("it cannot be decoded: {error}");
                        self.set_undecided(api_version, kind, namespace, name, &reason);
                        return Seen::Unreadable;
                    }
                };
                // Only what an API server created has an identity.
                let (is_new, list) = (object["metadata"].get("uid").is_none(), self.list_of("", "Pod"));
                self.judge_pod(pod, is_new, list, || counted::what_decides_of_pod(object));
            }
            ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => self.set_role(scope, name, Some(object)),
            ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
                self.set_binding(scope, name, Some(object));
            }
            ("security.openshift.io", "SecurityContextConstraints") => {
                self.set_constraint(object);
                if self.unreadable_constraints.contains_key(name) {
                    return Seen::Unreadable;
                }
            }
            // Nothing makes pods out of these by itself.
            ("", "PodTemplate") => return Seen::Irrelevant,
            _ => match workload_kind(api_version, kind) {
                Some(workload) if self.set_workload(workload, object) => {}
                Some(_) => return Seen::Unreadable,
                None if holds_pod(api_version, kind, object) => {
                    let reason = "it holds a pod, and its kind is not known";
                    self.set_undecided(api_version, kind, namespace, name, reason);
                    return Seen::Undecided;
                }
                None => return Seen::Irrelevant,
            },
        }
        Seen::Used
    }

    /// Adds the constraints every OpenShift cluster has, and who may use them there.
    pub fn add_openshift_defaults(&mut self) {
        for object in built_in::grants() {
            self.observe(&object);
        }
        for object in built_in::objects() {
            self.set_constraint(&object);
        }
    }

    /// Adds what a running cluster would have and manifests leave out: namespaces that are only mentioned, their
    /// `default` service account, and ranges.
    pub fn assume_what_manifests_leave_out(&mut self) {
        let missing: Vec<String> = self
            .namespaces
            .values()
            .filter(|record| !record.exists())
            .map(|record| record.name().to_owned())
            .collect();
        for name in missing {
            let labels = json!({METADATA_NAME: name});
            self.set_namespace(&json!({"metadata": {"name": name, "labels": labels}}));
        }
        let mut allocator = Allocator::default();
        for range in self.namespaces().filter_map(|record| record.annotations().get(UID_RANGE)) {
            allocator.reserve(range);
        }
        let names: BTreeSet<String> = self.namespaces.keys().cloned().collect();
        for name in &names {
            if let Some(record) = self.namespaces.get_mut(name)
                && !record.annotations().contains(UID_RANGE)
                && let Some(ranges) = allocator.allocate()
            {
                record.assume_ranges(&ranges);
            }
            self.set_service_account(name, "default");
            self.refresh(name, true);
        }
    }
}
