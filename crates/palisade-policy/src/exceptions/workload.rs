//! Which workload a pod belongs to, by what its author cannot make up.
//!
//! Labels, names and owner references are written by the user that creates a pod. An exception for a workload is bound to the object
//! of that kind and name, so a new pod belongs to a workload only if the controller of that kind requests it: the API server
//! authenticates the requester, and a controller copies the name from the object it works for. A pod that a user creates
//! belongs to no workload, whatever it declares.
//!
//! A Deployment makes its pods through a ReplicaSet, and a CronJob through a Job. Their names are derived as the controllers
//! derive them. Users who can write the ReplicaSets of a Deployment can change its pods without Palisade, too.

use std::fmt;

use palisade_model::{
    metadata::{ObjectMeta, StringMap},
    workload::WorkloadKind,
};

/// The kinds that an exception can name.
pub const KINDS: &[&str] = &[
    "Pod",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
    "ReplicationController",
];

/// Controllers of Kubernetes that create pods, and the kind they create them for.
const CONTROLLERS: &[(&str, &str)] = &[
    ("replicaset-controller", "ReplicaSet"),
    ("statefulset-controller", "StatefulSet"),
    ("daemon-set-controller", "DaemonSet"),
    ("job-controller", "Job"),
    ("replication-controller", "ReplicationController"),
];
/// What the user name of a controller begins with, where each has its own credentials.
const CONTROLLER_PREFIX: &str = "system:serviceaccount:kube-system:";
/// The user of all controllers, where they share theirs.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// The label with which a Deployment names its ReplicaSets.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// A workload by kind and name, in a namespace that is known from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Workload {
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// The name.
    pub name: String,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// Where a pod comes from, which decides what is believed of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance<'r> {
    /// This user requests to create it.
    CreatedBy(&'r str),
    /// The API server stores it. Its owner is believed: nothing is admitted on this account, the next pod is judged again.
    Stored,
    /// It is read from a file, or changed by a request: nothing shows who creates it.
    Unknown,
}

/// Whether a user is this controller of Kubernetes.
#[must_use]
pub fn is_controller(user: &str, controller: &str) -> bool {
    user == CONTROLLER_MANAGER || user.strip_prefix(CONTROLLER_PREFIX) == Some(controller)
}

/// The users that create pods for a kind.
pub(super) fn requesters(kind: &str) -> Option<[String; 2]> {
    let (controller, _) = CONTROLLERS.iter().find(|(_, own)| *own == kind)?;
    Some([CONTROLLER_MANAGER.to_owned(), format!("{CONTROLLER_PREFIX}{controller}")])
}

/// The kind of that name, if an exception can name it.
#[must_use]
pub fn kind_of(name: &str) -> Option<&'static str> {
    KINDS.iter().copied().find(|kind| *kind == name)
}

/// What a pod belongs to: itself, and the workloads that it is made for.
#[must_use]
pub fn of_pod(metadata: &ObjectMeta<'_>, provenance: Provenance<'_>) -> Vec<Workload> {
    let mut workloads = Vec::new();
    if !metadata.name.is_empty() {
        workloads.push(Workload { kind: "Pod", name: metadata.name.as_str().to_owned() });
    }
    let Some(owner) = metadata.owner_references.iter().find(|owner| owner.controller == Some(true)) else {
        return workloads;
    };
    let owner_kind = owner.kind.as_str();
    let is_proven = match provenance {
        Provenance::Unknown => false,
        Provenance::Stored => CONTROLLERS.iter().any(|(_, kind)| *kind == owner_kind),
        Provenance::CreatedBy(user) => CONTROLLERS
            .iter()
            .any(|(controller, kind)| *kind == owner_kind && is_controller(user, controller)),
    };
    let Some(kind) = kind_of(owner_kind).filter(|_| is_proven && !owner.name.is_empty()) else {
        return workloads;
    };
    let name = owner.name.as_str();
    workloads.push(Workload { kind, name: name.to_owned() });
    workloads.extend(behind(kind, name, &metadata.labels));
    workloads
}

/// The workload that makes another: known by the name that its controller derives, and by the labels of its pods.
fn behind(kind: &str, name: &str, labels: &StringMap<'_>) -> Option<Workload> {
    let (kind, name) = match kind {
        "ReplicaSet" => labels
            .get(TEMPLATE_HASH)
            .and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'))
            .map(|name| ("Deployment", name)),
        // The scheduled time in minutes, which has had eight digits since 1989.
        "Job" => name
            .rsplit_once('-')
            .filter(|(_, minutes)| minutes.len() >= 8 && minutes.bytes().all(|byte| byte.is_ascii_digit()))
            .map(|(name, _)| ("CronJob", name)),
        _ => None,
    }
    .filter(|(_, name)| !name.is_empty())?;
    Some(Workload { kind, name: name.to_owned() })
}

/// What the template of a workload belongs to: the workload. Custom resources cannot be named by an exception.
#[must_use]
pub fn of_template(kind: &WorkloadKind, name: &str) -> Vec<Workload> {
    let known = kind_of(kind.kind).filter(|_| kind.built_in && !name.is_empty());
    known.map(|kind| Workload { kind, name: name.to_owned() }).into_iter().collect()
}

/// What a template that a cluster stores belongs to: its workload, and the one that the pods of both belong to in the end.
#[must_use]
pub fn of_made_template(kind: &WorkloadKind, name: &str, labels: &StringMap<'_>) -> Vec<Workload> {
    let mut workloads = of_template(kind, name);
    if let Some(own) = workloads.first() {
        workloads.extend(behind(own.kind, name, labels));
    }
    workloads
}

#[cfg(test)]
mod tests {
    use palisade_model::workload::workload_kind;

    use super::{Provenance, of_pod, of_template};

    const REPLICA_SETS: Provenance<'_> =
        Provenance::CreatedBy("system:serviceaccount:kube-system:replicaset-controller");

    fn owned(kind: &str, owner: &str, provenance: Provenance<'_>) -> Vec<String> {
        let text = format!(
            r#"{{"name":"p","labels":{{"pod-template-hash":"7d9f"}},"ownerReferences":[{{"kind":"{kind}","name":"{owner}","uid":"u","controller":true}}]}}"#
        );
        of_pod(&serde_json::from_str(&text).unwrap(), provenance).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pod_belongs_to_the_workload_whose_controller_requests_it() {
        let jobs = Provenance::CreatedBy("system:serviceaccount:kube-system:job-controller");
        let shared = Provenance::CreatedBy("system:kube-controller-manager");
        for (kind, owner, provenance, expected) in [
            ("ReplicaSet", "web-7d9f", REPLICA_SETS, &["Pod/p", "ReplicaSet/web-7d9f", "Deployment/web"][..]),
            ("ReplicaSet", "web-7d9f", shared, &["Pod/p", "ReplicaSet/web-7d9f", "Deployment/web"]),
            ("ReplicaSet", "web", REPLICA_SETS, &["Pod/p", "ReplicaSet/web"]),
            ("ReplicaSet", "-7d9f", REPLICA_SETS, &["Pod/p", "ReplicaSet/-7d9f"]),
            ("Job", "backup-29000000", jobs, &["Pod/p", "Job/backup-29000000", "CronJob/backup"]),
            ("Job", "backup-1", jobs, &["Pod/p", "Job/backup-1"]),
            (
                "ReplicaSet",
                "web-7d9f",
                Provenance::Stored,
                &["Pod/p", "ReplicaSet/web-7d9f", "Deployment/web"],
            ),
        ] {
            assert_eq!(owned(kind, owner, provenance), expected, "{kind} {owner} {provenance:?}");
        }
    }

    #[test]
    fn an_owner_that_a_user_writes_is_not_believed() {
        for (kind, provenance) in [
            ("ReplicaSet", Provenance::CreatedBy("jane")),
            ("ReplicaSet", Provenance::CreatedBy("system:serviceaccount:shop:replicaset-controller")),
            ("ReplicaSet", Provenance::CreatedBy("system:serviceaccount:kube-system:job-controller")),
            ("DaemonSet", REPLICA_SETS),
            ("Deployment", Provenance::CreatedBy("system:serviceaccount:kube-system:deployment-controller")),
            ("ReplicaSet", Provenance::Unknown),
            ("Rollout", Provenance::Stored),
        ] {
            assert_eq!(owned(kind, "web-7d9f", provenance), ["Pod/p"], "{kind} {provenance:?}");
        }
        let text =
            r#"{"generateName":"p-","ownerReferences":[{"kind":"ReplicaSet","name":"web","uid":"u"}]}"#;
        assert_eq!(of_pod(&serde_json::from_str(text).unwrap(), REPLICA_SETS), []);
    }

    #[test]
    fn a_template_belongs_to_its_workload_if_the_kind_is_built_in() {
        for (api_version, kind, expected) in [
            ("apps/v1", "Deployment", &["Deployment/web"][..]),
            ("batch/v1", "CronJob", &["CronJob/web"]),
            ("apps.kruise.io/v1alpha1", "DaemonSet", &[]),
            ("argoproj.io/v1alpha1", "Rollout", &[]),
        ] {
            let kind = workload_kind(api_version, kind).unwrap();
            let workloads: Vec<_> = of_template(kind, "web").iter().map(ToString::to_string).collect();
            assert_eq!(workloads, expected, "{api_version}");
        }
    }
}
