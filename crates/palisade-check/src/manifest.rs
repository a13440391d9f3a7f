//! The objects of a document: the document itself, or the items of a `List`.

use palisade_model::{
    profile::published::GROUP,
    spelling::nearest,
    workload::{WORKLOADS, WorkloadKind, group_of, workload_kind},
};
use palisade_yaml::{Document, NodeRef, Resolved, View};

use crate::source_map::ObjectSource;

/// One object of a document.
#[derive(Debug)]
pub struct Object<'d> {
    /// Its value.
    pub node: NodeRef<'d>,
    /// Its place.
    pub source: ObjectSource<'d>,
    /// As written, or implied by the list it is in.
    pub api_version: &'d str,
    /// As written, or implied by the list it is in.
    pub kind: &'d str,
    /// How it holds a pod, if it does.
    pub workload: Option<&'static WorkloadKind>,
}

impl Object<'_> {
    /// A string of its metadata.
    #[must_use]
    pub fn metadata(&self, field: &str) -> Option<&str> {
        self.node.get("metadata").and_then(|metadata| metadata.get(field)).and_then(NodeRef::as_str)
    }

    /// Its name, or the prefix of a generated one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.metadata("name").or_else(|| self.metadata("generateName"))
    }

    /// Whether it has the parts of an object besides its names.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.node.get("metadata").is_some() || self.node.get("spec").is_some()
    }

    /// Whether it may be a Kubernetes object, well written or not.
    #[must_use]
    pub fn looks_like_one(&self) -> bool {
        let named = !self.api_version.is_empty() || !self.kind.is_empty();
        self.workload.is_some()
            || (!self.api_version.is_empty() && !self.kind.is_empty())
            || (named && self.has_body())
    }

    /// What is wrong with a `List`, whose items are then not among the objects.
    #[must_use]
    pub fn list_problem(&self) -> Option<String> {
        let View::Mapping(entries) = self.node.view() else { return None };
        if self.kind != "List" || !group_of(self.api_version).is_empty() {
            return None;
        }
        let known = ["apiVersion", "kind", "metadata", "items"];
        let unknown = entries.iter().find(|entry| !known.contains(&&*entry.key));
        match (self.node.get("items").map(NodeRef::view), unknown) {
            (Some(View::Mapping(_)), _) => Some("items is a mapping, and must be a list".to_owned()),
            (Some(View::Scalar(value)), _) if value != Resolved::Null => {
                Some("items is a scalar, and must be a list".to_owned())
            }
            (_, Some(entry)) => {
                let near = nearest(&entry.key, known).map(|near| format!("; did you mean {near}?"));
                Some(format!(
                    "the List has no items, and the unknown field {:?}{}",
                    entry.key,
                    near.unwrap_or_default()
                ))
            }
            _ => None,
        }
    }

    /// What is wrong with an item of a list: only objects can be items.
    #[must_use]
    pub fn item_problem(&self) -> Option<String> {
        let is_object = matches!(self.node.view(), View::Mapping(_));
        (!is_object).then(|| "not a Kubernetes object: an item of a list must be a mapping".to_owned())
    }
}

/// All objects of a document, in its order. Lists may hold lists; the reader bounds how deep.
#[must_use]
pub fn objects<'d>(document: &'d Document<'d>) -> Vec<Object<'d>> {
    let mut found = Vec::new();
    collect(document, document.root(), &mut Vec::new(), None, &mut found);
    found
}

fn collect<'d>(
    document: &'d Document<'d>,
    node: NodeRef<'d>,
    items: &mut Vec<usize>,
    implied: Option<(&'d str, &'d str)>,
    found: &mut Vec<Object<'d>>,
) {
    let text = |field: &str| node.get(field).and_then(NodeRef::as_str);
    let (api_version, kind) = match (text("apiVersion"), text("kind"), implied) {
        (Some(api_version), Some(kind), _) => (api_version, kind),
        // Items of a typed list, such as a `PodList`, may omit apiVersion and kind.
        (_, _, Some(implied)) => implied,
        (api_version, kind, None) => (api_version.unwrap_or_default(), kind.unwrap_or_default()),
    };
    if let Some(item_kind) = kind.strip_suffix("List")
        && let Some(list) = node.get("items").map(NodeRef::target).filter(|list| list.is_sequence())
    {
        let implied = (!item_kind.is_empty()).then_some((api_version, item_kind));
        for (index, item) in list.items().enumerate() {
            items.push(index);
            collect(document, item.target(), items, implied, found);
            items.pop();
        }
        return;
    }
    // Without an apiVersion no API server takes it, whatever its kind.
    let workload = workload_kind(api_version, kind).filter(|_| !api_version.is_empty());
    let source = ObjectSource::new(document, items.clone());
    found.push(Object { node, source, api_version, kind, workload });
}

/// The kinds of Palisade's own group.
const OWN_KINDS: [&str; 9] = [
    "AppArmorProfile",
    "NodeRecording",
    "NodeSecurityReport",
    "PodSecurityRollout",
    "ProfilePolicy",
    "ProfileRecording",
    "PublishedProfile",
    "SecurityException",
    "SyscallGuard",
];

/// A group without a dot is Kubernetes' own: no custom resource can be in it.
struct OwnGroup {
    group: &'static str,
    versions: &'static [&'static str],
    kinds: &'static [&'static str],
}

/// The groups whose names have no dot, with everything a manifest may hold of them. In the core group that includes what
/// clients write by that version: kubeconfigs, and the kinds of OpenShift 3.
static OWN_GROUPS: &[OwnGroup] = &[
    OwnGroup {
        group: "",
        versions: &["v1"],
        kinds: &[
            "Binding",
            "BuildConfig",
            "ComponentStatus",
            "Config",
            "ConfigMap",
            "DeploymentConfig",
            "Endpoints",
            "Event",
            "Group",
            "ImageStream",
            "LimitRange",
            "List",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "Project",
            "RangeAllocation",
            "ReplicationController",
            "ResourceQuota",
            "Role",
            "RoleBinding",
            "Route",
            "Secret",
            "SecurityContextConstraints",
            "Service",
            "ServiceAccount",
            "Status",
            "Template",
            "User",
        ],
    },
    OwnGroup {
        group: "apps",
        versions: &["v1", "v1beta1", "v1beta2"],
        kinds: &[
            "ControllerRevision",
            "DaemonSet",
            "Deployment",
            "DeploymentRollback",
            "ReplicaSet",
            "Scale",
            "StatefulSet",
        ],
    },
    OwnGroup {
        group: "autoscaling",
        versions: &["v1", "v2", "v2beta1", "v2beta2"],
        kinds: &["HorizontalPodAutoscaler", "Scale"],
    },
    OwnGroup {
        group: "batch",
        versions: &["v1", "v1beta1", "v2alpha1"],
        kinds: &["CronJob", "Job", "JobTemplate", "ScheduledJob"],
    },
    OwnGroup {
        group: "extensions",
        versions: &["v1beta1"],
        kinds: &[
            "DaemonSet",
            "Deployment",
            "DeploymentRollback",
            "Ingress",
            "NetworkPolicy",
            "PodSecurityPolicy",
            "ReplicaSet",
            "Scale",
        ],
    },
    OwnGroup {
        group: "policy",
        versions: &["v1", "v1beta1"],
        kinds: &["Eviction", "PodDisruptionBudget", "PodSecurityPolicy"],
    },
];

/// What is wrong with the names of an object that would be a Kubernetes object if they were right, and how to mend it.
#[must_use]
pub fn misnamed(api_version: &str, kind: &str) -> Option<(String, Option<String>)> {
    let did_you_mean = |name: &str| Some(format!("did you mean {name}?"));
    if api_version.is_empty() {
        let own = || OWN_GROUPS.iter().flat_map(|own| own.kinds).copied();
        let near = nearest(kind, own()).filter(|_| !kind.is_empty())?;
        let workload = WORKLOADS.iter().find(|entry| entry.kind == near && entry.built_in);
        let help = workload.and_then(|entry| {
            let slash = if entry.group.is_empty() { "" } else { "/" };
            did_you_mean(&format!("apiVersion: {}{slash}v1", entry.group))
        });
        return Some((format!("this {kind} has no apiVersion"), help));
    }
    if kind.is_empty() {
        return Some((format!("this object of {api_version} has no kind"), None));
    }
    let (group, version) = (group_of(api_version), api_version.rsplit('/').next().unwrap_or_default());
    if group == GROUP {
        let what =
            || (format!("{api_version} has no kind {kind}"), nearest(kind, OWN_KINDS).and_then(did_you_mean));
        let single = kind.strip_suffix("List").unwrap_or(kind);
        return (!OWN_KINDS.contains(&single)).then(what);
    }
    if group.contains('.') {
        let groups = WORKLOADS.iter().map(|entry| entry.group).filter(|known| known.contains('.'));
        let meant = nearest(group, groups).filter(|known| *known != group);
        let near = meant.filter(|known| WORKLOADS.iter().any(|e| e.group == *known && e.kind == kind))?;
        return Some((
            format!("{kind} of {api_version} is not known"),
            did_you_mean(&format!("{near}/{version}")),
        ));
    }
    let Some(own) = OWN_GROUPS.iter().find(|own| own.group == group) else {
        // Tools such as Skaffold write their configuration in the same form.
        let is_workload = WORKLOADS.iter().any(|entry| entry.kind == kind);
        let near = nearest(group, OWN_GROUPS.iter().map(|own| own.group).filter(|group| !group.is_empty()));
        if near.is_none() && !is_workload {
            return None;
        }
        let help = near.and_then(|near| did_you_mean(&format!("{near}/{version}")));
        return Some((format!("there is no API group {group:?}"), help));
    };
    if let Some(problem) = unknown_version(api_version) {
        return Some(problem);
    }
    let single = kind.strip_suffix("List").filter(|single| !single.is_empty()).unwrap_or(kind);
    if own.kinds.contains(&kind) || own.kinds.contains(&single) {
        return None;
    }
    let elsewhere = OWN_GROUPS.iter().find(|other| other.kinds.contains(&kind));
    let help = match elsewhere {
        Some(other) => {
            let version = other.versions.first().copied().unwrap_or_default();
            let slash = if other.group.is_empty() { "" } else { "/" };
            did_you_mean(&format!("apiVersion: {}{slash}{version}", other.group))
        }
        None => nearest(kind, own.kinds.iter().copied()).and_then(did_you_mean),
    };
    Some((format!("{api_version} has no kind {kind}"), help))
}

/// What is wrong with the version of an object in one of Kubernetes' own groups.
#[must_use]
pub fn unknown_version(api_version: &str) -> Option<(String, Option<String>)> {
    let (group, version) = (group_of(api_version), api_version.rsplit('/').next().unwrap_or_default());
    let own = OWN_GROUPS.iter().find(|own| own.group == group)?;
    if own.versions.contains(&version) {
        return None;
    }
    let newest = own.versions.first().copied().unwrap_or_default();
    let slash = if group.is_empty() { "" } else { "/" };
    Some((
        format!("unknown apiVersion {api_version:?}"),
        Some(format!("did you mean {group}{slash}{newest}?")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_of_kubernetes_own_kinds_are_found() {
        for (api_version, kind, expected) in [
            ("apps/v1", "Deploymnt", Some("apps/v1 has no kind Deploymnt; did you mean Deployment?")),
            ("apps/v1", "deployment", Some("apps/v1 has no kind deployment; did you mean Deployment?")),
            ("v1", "Deployment", Some("v1 has no kind Deployment; did you mean apiVersion: apps/v1?")),
            ("app/v1", "Deployment", Some("there is no API group \"app\"; did you mean apps/v1?")),
            ("apps/v2", "Thing", Some("unknown apiVersion \"apps/v2\"; did you mean apps/v1?")),
            ("", "Pod", Some("this Pod has no apiVersion; did you mean apiVersion: v1?")),
            ("", "Job", Some("this Job has no apiVersion; did you mean apiVersion: batch/v1?")),
            ("v1", "", Some("this object of v1 has no kind")),
            (
                "argoproj.oi/v1alpha1",
                "Rollout",
                Some("Rollout of argoproj.oi/v1alpha1 is not known; did you mean argoproj.io/v1alpha1?"),
            ),
            ("v1", "Service", None),
            ("v1", "ServiceList", None),
            ("v1", "Config", None),
            ("example.com/v1", "Deployment", None),
            ("batch.volcano.sh/v1alpha1", "Job", None),
            ("", "", None),
            ("", "something else", None),
        ] {
            let found = misnamed(api_version, kind).map(|(what, help)| match help {
                Some(help) => format!("{what}; {help}"),
                None => what,
            });
            assert_eq!(found.as_deref(), expected, "{api_version} {kind}");
        }
    }
}
