//! `SecurityException` objects, by name.
//!
//! Until the watch has seen them all there are none: a pod that an exception is for is rejected rather than admitted by guess.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use palisade_policy::exceptions::{
    object::{API_VERSION, KIND, RESOURCE},
    set::ExceptionSet,
};
use serde_json::{Value, json};

use super::watch::{Change, Keep, Status};
use crate::shared::Shared;

pub(super) fn resource() -> ApiResource {
    let (group, version) = API_VERSION.split_once('/').unwrap_or(("", API_VERSION));
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, KIND), RESOURCE)
}

/// The exceptions of the cluster.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    pub(super) status: Status,
    by_name: Mutex<BTreeMap<String, Value>>,
    all: Shared<ExceptionSet>,
}

impl Exceptions {
    pub(super) fn all(&self) -> Arc<ExceptionSet> {
        self.all.get()
    }
}

impl Keep for Exceptions {
    type Item = (String, Value);

    fn read(&self, object: DynamicObject) -> Self::Item {
        let name = object.metadata.name.unwrap_or_default();
        let (api_version, kind) = object
            .types
            .map_or((API_VERSION.to_owned(), KIND.to_owned()), |types| (types.api_version, types.kind));
        let object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": object.data.get("spec"),
        });
        (name, object)
    }

    fn take(&self, change: Change<Self::Item>) {
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        change.make(&mut by_name);
        let set = ExceptionSet::read(by_name.values());
        for unreadable in set.unreadable() {
            tracing::warn!(
                name = unreadable.name,
                error = unreadable.error,
                "exception cannot be read and does not count"
            );
        }
        self.all.set(set);
    }

    fn status(&self) -> &Status {
        &self.status
    }

    /// A role of an earlier release does not grant it. Without exceptions nothing more is admitted.
    fn can_be_forbidden(&self) -> bool {
        true
    }
}
