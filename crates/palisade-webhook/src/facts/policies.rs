//! `ProfilePolicy` objects, by name.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use palisade_admission::profile_policies::StoredPolicy;
use palisade_policy::profiles::policy;
use serde_json::json;

use super::watch::{Change, Keep, Status};
use crate::shared::Shared;

pub(super) fn resource() -> ApiResource {
    let (group, version) = policy::API_VERSION.split_once('/').unwrap_or(("", policy::API_VERSION));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, policy::KIND), "profilepolicies")
}

/// The policies of the cluster.
#[derive(Debug, Default)]
pub(super) struct Policies {
    pub(super) status: Status,
    by_name: Mutex<BTreeMap<String, StoredPolicy>>,
    all: Shared<Vec<StoredPolicy>>,
}

impl Policies {
    pub(super) fn all(&self) -> Arc<Vec<StoredPolicy>> {
        self.all.get()
    }
}

impl Keep for Policies {
    type Item = (String, StoredPolicy);

    fn read(&self, object: DynamicObject) -> Self::Item {
        let name = object.metadata.name.unwrap_or_default();
        let object = json!({"metadata": {"name": name}, "spec": object.data.get("spec")});
        let policy = StoredPolicy::read(&name, &object);
        (name, policy)
    }

    fn take(&self, change: Change<Self::Item>) {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        change.make(&mut by_name);
        self.all.set(by_name.values().cloned().collect());
    }

    fn status(&self) -> &Status {
        &self.status
    }
}
