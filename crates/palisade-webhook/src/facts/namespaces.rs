//! Namespaces: their labels, and the annotations that constraints read.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use palisade_model::metadata::{ObjectMeta, StringMap};

use super::watch::{Change, Keep, Status};

/// Annotations of namespaces that matter to verdicts; the rest would only take memory.
const ANNOTATIONS: &str = "openshift.io/";

pub(super) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Namespace"), "namespaces")
}

/// What verdicts need of a namespace.
pub(super) fn facts(metadata: kube::core::ObjectMeta) -> ObjectMeta<'static> {
    let map = |entries: Option<BTreeMap<String, String>>| entries.unwrap_or_default().into_iter();
    let annotations = map(metadata.annotations).filter(|(key, _)| key.contains(ANNOTATIONS));
    ObjectMeta {
        name: metadata.name.unwrap_or_default().into(),
        labels: strings(map(metadata.labels)),
        annotations: strings(annotations),
        ..ObjectMeta::default()
    }
}

fn strings(entries: impl Iterator<Item = (String, String)>) -> StringMap<'static> {
    entries.map(|(key, value)| (key.into(), value.into())).collect()
}

/// The namespaces of the cluster.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    pub(super) status: Status,
    known: RwLock<BTreeMap<String, Arc<ObjectMeta<'static>>>>,
}

impl Namespaces {
    pub(super) fn get(&self, name: &str) -> Option<Arc<ObjectMeta<'static>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.known.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Keep for Namespaces {
    type Item = (String, Arc<ObjectMeta<'static>>);

    fn read(&self, object: DynamicObject) -> Self::Item {
        let facts = facts(object.metadata);
        (facts.name.to_string(), Arc::new(facts))
    }

    fn take(&self, change: Change<Self::Item>) {
        change.make(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn status(&self) -> &Status {
        &self.status
    }
}
