//! Namespaces: their labels, and the annotations that constraints read.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use palisade_model::metadata::{ObjectMeta, StringMap};

use super::watch::{Keep, Status};

/// Annotations of namespaces that matter to verdicts; the rest would only take memory.
const ANNOTATIONS: &str = "openshift.io/";

pub(super) fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Namespace"), "namespaces")
}

/// What verdicts need of a namespace.
pub(super) fn facts(metadata: kube::core::ObjectMeta) -> ObjectMeta<'static> {
    let map =
        |entries: Option<std::collections::BTreeMap<String, String>>| entries.unwrap_or_default().into_iter();
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

type Known = HashMap<String, Arc<ObjectMeta<'static>>>;

/// The namespaces of the cluster.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    pub(super) status: Status,
    known: RwLock<Known>,
}

impl Namespaces {
    pub(super) fn get(&self, name: &str) -> Option<Arc<ObjectMeta<'static>>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.known.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Keep for Namespaces {
    type Item = Arc<ObjectMeta<'static>>;

    fn read(&self, object: DynamicObject) -> Self::Item {
        Arc::new(facts(object.metadata))
    }

    fn replace(&self, items: Vec<Self::Item>) {
        let known = items.into_iter().map(|item| (item.name.to_string(), item)).collect();
        self.change(|current| *current = known);
    }

    fn put(&self, item: Self::Item) {
        self.change(|known| {
            known.insert(item.name.to_string(), item);
        });
    }

    fn remove(&self, item: &Self::Item) {
        self.change(|known| {
            known.remove(item.name.as_str());
        });
    }

    fn status(&self) -> &Status {
        &self.status
    }
}
