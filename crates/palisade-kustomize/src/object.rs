//! An object of a build, with the names that it had.

use crate::tree::{Node, Origin};

/// What identifies an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// API group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty if it has none.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Id {
    pub(crate) fn of(node: &Node) -> Self {
        let text = |path: &[&str]| node.text(path).to_owned();
        Self {
            api_version: text(&["apiVersion"]),
            kind: text(&["kind"]),
            namespace: text(&["metadata", "namespace"]),
            name: text(&["metadata", "name"]),
        }
    }

    /// The namespace that counts: an object without one is in `default`.
    pub(crate) fn effective_namespace(&self) -> &str {
        if self.namespace.is_empty() || is_cluster_scoped(&self.kind) { "default" } else { &self.namespace }
    }

    pub(crate) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    pub(crate) fn version(&self) -> &str {
        self.api_version.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it means the same object.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.api_version == other.api_version
            && self.kind == other.kind
            && self.name == other.name
            && self.effective_namespace() == other.effective_namespace()
    }

    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// An object of a build.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its value.
    pub node: Node,
    /// What identified it before, the first first.
    pub(crate) before: Vec<Id>,
    /// The kustomizations that it came through, the innermost first.
    pub(crate) layers: Vec<usize>,
    /// Whether its name gets a hash at the end.
    pub(crate) hashed: bool,
}

impl Object {
    pub(crate) fn new(node: Node) -> Self {
        Self { node, before: Vec::new(), layers: Vec::new(), hashed: false }
    }

    /// What identifies it.
    #[must_use]
    pub fn id(&self) -> Id {
        Id::of(&self.node)
    }

    pub(crate) fn first_id(&self) -> Id {
        self.before.first().cloned().unwrap_or_else(|| self.id())
    }

    /// Everything that identifies it or did.
    pub(crate) fn ids(&self) -> Vec<Id> {
        let mut ids = self.before.clone();
        ids.push(self.id());
        ids
    }

    /// Remembers what identifies it, before that changes.
    pub(crate) fn remember(&mut self) {
        let id = self.id();
        if self.before.last() != Some(&id) {
            self.before.push(id);
        }
    }

    pub(crate) fn set_text(&mut self, path: &[&str], text: &str, origin: Option<Origin>) {
        let Some((last, parents)) = path.split_last() else { return };
        if let Some(parent) = self.node.descend(parents, origin) {
            parent.set(last, Node::made(text.into(), origin));
        }
    }

    /// Where the template of the pods is, for the kinds that kustomize knows.
    pub(crate) fn template(&self) -> Option<&'static [&'static str]> {
        Some(match self.node.text(&["kind"]) {
            "ReplicationController" | "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet" | "Job" => {
                &["spec", "template"]
            }
            "CronJob" => &["spec", "jobTemplate", "spec", "template"],
            _ => return None,
        })
    }
}

/// Kinds without a namespace.
const CLUSTER_SCOPED: &[&str] = &[
    "APIService",
    "CSIDriver",
    "CSINode",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "ComponentStatus",
    "CustomResourceDefinition",
    "FlowSchema",
    "IngressClass",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PodSecurityPolicy",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "RuntimeClass",
    "SelfSubjectAccessReview",
    "SelfSubjectRulesReview",
    "StorageClass",
    "SubjectAccessReview",
    "TokenReview",
    "ValidatingWebhookConfiguration",
    "VolumeAttachment",
];

pub(crate) fn is_cluster_scoped(kind: &str) -> bool {
    CLUSTER_SCOPED.contains(&kind)
}
