//! Which resources are served: the built-in kinds of the emulated release, and those of custom resource definitions.
//!
//! A kind is a table entry. What is special about one is in `palisade-apimachinery`, which knows objects, or in a
//! subresource's file.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use palisade_apimachinery::{Kind, KubeVersion, Scheme};
use serde_json::{Map, Value};

use crate::openapi::Documents;
use crate::storage::{Bucket, Range, Store, read, write};

/// The group resource of custom resource definitions.
pub const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// A served resource.
#[derive(Debug)]
pub struct Entry {
    /// Its kind.
    pub kind: Arc<Kind>,
    /// Where its objects are.
    pub bucket: Arc<Bucket>,
    /// The start of an object's JSON: `{"kind":"Pod","apiVersion":"v1",`.
    pub prefix: Box<str>,
    /// For custom resources, the definition is being deleted: nothing new may come.
    pub terminating: bool,
}

impl Entry {
    fn new(kind: Arc<Kind>, store: &Store, terminating: bool) -> Self {
        let prefix = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version());
        let bucket = store.bucket(&kind.resource_name().to_string());
        Self { kind, bucket, prefix: prefix.into(), terminating }
    }

    /// The object with `apiVersion` and `kind`.
    #[must_use]
    pub fn typed(&self, mut object: Map<String, Value>) -> Value {
        object.insert("apiVersion".to_owned(), self.kind.api_version().into());
        object.insert("kind".to_owned(), self.kind.kind.as_str().into());
        Value::Object(object)
    }

    /// The key of an object.
    #[must_use]
    pub fn key(&self, namespace: &str, name: &str) -> String {
        crate::meta::key(self.kind.namespaced, namespace, name)
    }

    /// Whether the resource has a verb.
    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        self.kind.verbs.contains(&verb)
    }
}

/// The resources served at one moment.
#[derive(Debug, Default)]
pub struct Served {
    at: u64,
    /// Every resource, built-in ones first.
    pub entries: Vec<Arc<Entry>>,
    by_path: HashMap<(String, String, String), Arc<Entry>>,
    /// What is told about them.
    pub(crate) openapi: Documents,
}

impl Served {
    /// The resource behind a path.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Entry>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Whether a group, or a version of it, is served.
    #[must_use]
    pub fn has_group(&self, group: &str, version: Option<&str>) -> bool {
        self.entries.iter().any(|e| e.kind.group == group && version.is_none_or(|v| e.kind.version == v))
    }

    /// Whether a group is built in, and not made by definitions.
    #[must_use]
    pub fn is_builtin(&self, group: &str) -> bool {
        self.entries.iter().any(|e| e.kind.group == group && !e.kind.is_custom())
    }

    /// The resource of a kind.
    #[must_use]
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Entry>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.entries
            .iter()
            .find(|e| e.kind.group == group && e.kind.version == version && e.kind.kind == kind)
    }

    /// One entry for each group resource that objects are stored for.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let mut seen = std::collections::HashSet::new();
        self.entries.iter().filter(move |e| e.has_verb("list") && seen.insert(e.bucket.name().clone()))
    }
}

/// The registry.
#[derive(Debug)]
pub struct Registry {
    scheme: Scheme,
    store: Store,
    definitions: Arc<Bucket>,
    served: RwLock<Arc<Served>>,
}

impl Registry {
    /// The registry of a release.
    #[must_use]
    pub fn new(version: KubeVersion, store: &Store) -> Self {
        let registry = Self {
            scheme: Scheme::new(version),
            store: store.clone(),
            definitions: store.bucket(CRDS),
            served: RwLock::default(),
        };
        registry.rebuild();
        registry
    }

    /// The built-in kinds.
    #[must_use]
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// What is served now. Definitions that changed are read again.
    #[must_use]
    pub fn served(&self) -> Arc<Served> {
        let served = read(&self.served).clone();
        if served.at == self.definitions.changed_at() { served } else { self.rebuild() }
    }

    /// Whether a definition names a built-in resource. It is never served: its objects would lie among those that the
    /// server itself acts on, without their validation and escalation checks.
    #[must_use]
    pub fn is_builtin_resource(&self, definition: &Value) -> bool {
        let text = |at: &str| definition.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
        self.scheme.kinds().iter().any(|kind| kind.group == group && kind.plural == plural)
    }

    fn rebuild(&self) -> Arc<Served> {
        let at = self.definitions.changed_at();
        let builtin = self.scheme.kinds().iter().map(|kind| Entry::new(kind.clone(), &self.store, false));
        let mut entries: Vec<Arc<Entry>> = builtin.map(Arc::new).collect();
        for definition in self.definitions.list(&Range::All).objects {
            let definition = Value::Object(definition.parse());
            if !palisade_apimachinery::crd::establish::is_established(&definition) {
                continue;
            }
            let terminating = crate::meta::is_deleting(&definition);
            if self.is_builtin_resource(&definition) {
                continue;
            }
            for kind in palisade_apimachinery::crd::kinds(&definition, self.scheme.version()) {
                entries.push(Arc::new(Entry::new(kind, &self.store, terminating)));
            }
        }
        let by_path = entries
            .iter()
            .map(|e| ((e.kind.group.clone(), e.kind.version.clone(), e.kind.plural.clone()), e.clone()))
            .collect();
        let served = Arc::new(Served { at, entries, by_path, openapi: Documents::default() });
        *write(&self.served) = served.clone();
        served
    }
}
