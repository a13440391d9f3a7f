//! What to write on which namespace.

use palisade_policy::{
    enforcement::{
        labels::{Apply, PRIVILEGED_NAMESPACES_MANAGER, plan, privileged_namespace},
        level::LevelSource,
        mode::StatusMode,
        ownership::SYNCER,
        state::{EnforceLabels, Instances, Outputs},
        waves::Rollout,
    },
    standards::level::Level,
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, NamespaceRecord};

/// A server-side apply, by force, to the version of a namespace that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The namespace.
    pub namespace: String,
    /// Its uid: an apply without it makes a namespace that was deleted in the meantime anew.
    pub uid: String,
    /// The version it had.
    pub resource_version: String,
    /// The field manager.
    pub manager: &'static str,
    /// What that manager owns from then on.
    pub apply: Apply,
}

impl Write {
    /// The object to apply.
    #[must_use]
    pub fn to_object(&self) -> Value {
        let mut metadata = json!({"name": self.namespace});
        if !self.uid.is_empty() {
            metadata["uid"] = json!(self.uid);
        }
        if !self.resource_version.is_empty() {
            metadata["resourceVersion"] = json!(self.resource_version);
        }
        if !self.apply.labels.is_empty() {
            metadata["labels"] = json!(self.apply.labels);
        }
        if !self.apply.annotations.is_empty() {
            metadata["annotations"] = json!(self.apply.annotations);
        }
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    }
}

/// What namespaces are to have: what the state of the rollout sets, and the waves allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelPolicy {
    enforce: EnforceLabels,
    instances: Instances,
    is_requested: bool,
    rollout: Option<Rollout>,
}

impl LabelPolicy {
    /// From the state of the rollout.
    #[must_use]
    pub fn new(
        outputs: Outputs,
        levels: LevelSource,
        instances: Instances,
        requested: Level,
        rollout: Option<Rollout>,
    ) -> Self {
        // Where workloads decide, a label is not made stricter before everything is enforced: what runs again tomorrow as it did
        // yesterday must not be rejected on the way.
        let is_on_the_way =
            levels == LevelSource::Workloads && outputs.status != Some(StatusMode::Restricted);
        let enforce = match outputs.enforce_labels {
            EnforceLabels::Set if is_on_the_way => EnforceLabels::Loosen,
            enforce => enforce,
        };
        Self { enforce, instances, is_requested: requested == Level::Restricted, rollout }
    }

    /// What a namespace is to have.
    #[must_use]
    pub fn of(&self, namespace: &NamespaceRecord) -> EnforceLabels {
        let sets = matches!(self.enforce, EnforceLabels::Set | EnforceLabels::Loosen);
        let Some(rollout) = self.rollout.as_ref().filter(|_| sets) else { return self.enforce };
        // Once the global configuration enforces, a namespace without its label is held to `restricted`.
        if self.is_requested && !rollout.is_rolled_back() {
            return self.enforce;
        }
        match rollout.enforce_labels(namespace.labels(), self.instances, self.is_requested) {
            EnforceLabels::Set => self.enforce,
            others => others,
        }
    }
}

/// What to write on one namespace.
#[must_use]
pub fn namespace_labels(namespace: &NamespaceRecord, enforce: EnforceLabels) -> Vec<Write> {
    let view = namespace.view();
    let write = |manager, apply| Write {
        namespace: namespace.name().to_owned(),
        uid: namespace.uid().to_owned(),
        resource_version: namespace.resource_version().to_owned(),
        manager,
        apply,
    };
    let synced = plan(&view, namespace.level().level, enforce).map(|apply| write(SYNCER, apply));
    let privileged = privileged_namespace(view.name, view.labels)
        .filter(|_| !view.is_terminating)
        .map(|apply| write(PRIVILEGED_NAMESPACES_MANAGER, apply));
    synced.into_iter().chain(privileged).collect()
}

/// What to write on all namespaces by a policy.
pub fn all_labels_by<'c>(cluster: &'c Cluster, policy: &'c LabelPolicy) -> impl Iterator<Item = Write> + 'c {
    cluster.namespaces().flat_map(|namespace| namespace_labels(namespace, policy.of(namespace)))
}

/// What to write on all namespaces.
pub fn all_labels(cluster: &Cluster, enforce: EnforceLabels) -> impl Iterator<Item = Write> {
    cluster.namespaces().flat_map(move |namespace| namespace_labels(namespace, enforce))
}
