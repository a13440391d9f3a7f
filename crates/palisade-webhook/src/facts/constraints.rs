//! Security context constraints, and who may use them by roles.
//!
//! Constraints are judged with all of them or not at all: while one of the watches is cold, no pod is let through.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use kube::{
    Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use palisade_policy::scc::{constraint::ReadError, grants::Grants, set::ConstraintSet};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    reading::LookupError,
    watch::{Change, Keep, Status, follow},
};
use crate::shared::Shared;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The constraints of the cluster and the grants of roles.
#[derive(Debug, Default)]
pub struct ConstraintFacts {
    /// Constraints that could be read.
    pub set: ConstraintSet,
    /// Objects that are none.
    pub unreadable: Vec<ReadError>,
    /// Who may use which.
    pub grants: Grants,
}

/// Follows constraints, roles and bindings.
#[derive(Debug)]
pub(super) struct ConstraintWatch {
    objects: Arc<Objects>,
    roles: [Arc<Rbac>; 4],
    shared: Arc<Known>,
}

#[derive(Debug, Default)]
struct Known {
    constraints: Mutex<BTreeMap<String, Value>>,
    grants: Mutex<Grants>,
    current: Shared<ConstraintFacts>,
}

impl Known {
    fn rebuild(&self) {
        let constraints = self.constraints.lock().unwrap_or_else(PoisonError::into_inner);
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (set, unreadable) = ConstraintSet::read(constraints.values());
        self.current.set(ConstraintFacts { set, unreadable, grants });
    }
}

impl Default for ConstraintWatch {
    fn default() -> Self {
        let shared = Arc::new(Known::default());
        let rbac = |part| {
            Arc::new(Rbac { part, status: Status::default(), seen: Mutex::default(), known: shared.clone() })
        };
        Self {
            objects: Arc::new(Objects { status: Status::default(), known: shared.clone() }),
            roles: [
                rbac(Part::ClusterRoles),
                rbac(Part::Roles),
                rbac(Part::ClusterRoleBindings),
                rbac(Part::RoleBindings),
            ],
            shared,
        }
    }
}

impl ConstraintWatch {
    pub(super) fn watch(&self, client: &Client, tasks: &mut JoinSet<()>) {
        let kind = GroupVersionKind::gvk("security.openshift.io", "v1", "SecurityContextConstraints");
        let resource = ApiResource::from_gvk_with_plural(&kind, "securitycontextconstraints");
        tasks.spawn(follow(client.clone(), resource, self.objects.clone()));
        for rbac in &self.roles {
            let (kind, plural) = rbac.part.names();
            let kind = GroupVersionKind::gvk(RBAC, "v1", kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, plural);
            tasks.spawn(follow(client.clone(), resource, rbac.clone()));
        }
    }

    pub(super) fn waits_for(&self) -> Option<&'static str> {
        if !self.objects.status.is_ready() {
            return Some("securitycontextconstraints");
        }
        self.roles.iter().find(|rbac| !rbac.status.is_ready()).map(|rbac| rbac.part.names().1)
    }

    pub(super) fn current(&self) -> Result<Arc<ConstraintFacts>, LookupError> {
        match self.waits_for() {
            Some(what) => Err(LookupError::Pending(what)),
            None => Ok(self.shared.current.get()),
        }
    }
}

#[derive(Debug)]
struct Objects {
    status: Status,
    known: Arc<Known>,
}

impl Keep for Objects {
    type Item = (String, Value);

    fn read(&self, object: DynamicObject) -> Self::Item {
        let name = object.metadata.name.unwrap_or_default();
        let mut value = object.data;
        value["metadata"] = json!({"name": name});
        (name, value)
    }

    fn take(&self, change: Change<Self::Item>) {
        change.make(&mut self.known.constraints.lock().unwrap_or_else(PoisonError::into_inner));
        self.known.rebuild();
    }

    fn status(&self) -> &Status {
        &self.status
    }
}

#[derive(Debug, Clone, Copy)]
enum Part {
    ClusterRoles,
    Roles,
    ClusterRoleBindings,
    RoleBindings,
}

impl Part {
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::ClusterRoles => ("ClusterRole", "clusterroles"),
            Self::Roles => ("Role", "roles"),
            Self::ClusterRoleBindings => ("ClusterRoleBinding", "clusterrolebindings"),
            Self::RoleBindings => ("RoleBinding", "rolebindings"),
        }
    }

    fn set(self, grants: &mut Grants, entry: &Entry) -> bool {
        let Entry { namespace, name, object } = entry;
        match self {
            Self::ClusterRoles | Self::Roles => grants.set_role(namespace.as_deref(), name, object),
            Self::ClusterRoleBindings | Self::RoleBindings => {
                grants.set_binding(namespace.as_deref(), name, object)
            }
        }
    }

    fn remove(self, grants: &mut Grants, namespace: Option<&str>, name: &str) -> bool {
        match self {
            Self::ClusterRoles | Self::Roles => grants.remove_role(namespace, name),
            Self::ClusterRoleBindings | Self::RoleBindings => grants.remove_binding(namespace, name),
        }
    }
}

struct Entry {
    namespace: Option<String>,
    name: String,
    object: Value,
}

impl Entry {
    fn key(&self) -> (Option<String>, String) {
        (self.namespace.clone(), self.name.clone())
    }
}

type Names = std::collections::BTreeSet<(Option<String>, String)>;

/// One of the four kinds of RBAC. Only names are kept beside the grants, to forget those that went unseen.
#[derive(Debug)]
struct Rbac {
    part: Part,
    status: Status,
    seen: Mutex<Names>,
    known: Arc<Known>,
}

impl Keep for Rbac {
    type Item = Entry;

    fn read(&self, object: DynamicObject) -> Entry {
        Entry {
            namespace: object.metadata.namespace,
            name: object.metadata.name.unwrap_or_default(),
            object: object.data,
        }
    }

    fn take(&self, change: Change<Entry>) {
        let changed = {
            let mut grants = self.known.grants.lock().unwrap_or_else(PoisonError::into_inner);
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            match change {
                Change::All(entries) => {
                    let now: Names = entries.iter().map(Entry::key).collect();
                    for (namespace, name) in seen.difference(&now) {
                        self.part.remove(&mut grants, namespace.as_deref(), name);
                    }
                    for entry in &entries {
                        self.part.set(&mut grants, entry);
                    }
                    *seen = now;
                    true
                }
                Change::Put(entry) => {
                    seen.insert(entry.key());
                    self.part.set(&mut grants, &entry)
                }
                Change::Gone(entry) => {
                    seen.remove(&entry.key());
                    self.part.remove(&mut grants, entry.namespace.as_deref(), &entry.name)
                }
            }
        };
        if changed {
            self.known.rebuild();
        }
    }

    fn status(&self) -> &Status {
        &self.status
    }
}
