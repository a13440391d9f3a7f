//! Which resources are served: the built-in kinds of the emulated release, and those of custom resource definitions.
//!
//! A kind is a table entry. What is special about one is in `palisade-apimachinery`, which describes objects, or in a
//! subresource's file.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use bytes::Bytes;
use palisade_apimachinery::crd::{Definition, Versions};
use palisade_apimachinery::decode::{DecodeError, decode_type};
use palisade_apimachinery::{Kind, Scheme};
use palisade_base::version::KubeVersion;
use serde_json::{Map, Value};

use crate::openapi::Documents;
use crate::storage::{Bucket, Object, Range, Store, lock, read, write};

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
    /// The other versions of a custom resource.
    pub versions: Option<Arc<Versions>>,
}

impl Entry {
    fn new(kind: Arc<Kind>, store: &Store, terminating: bool, versions: Option<Arc<Versions>>) -> Self {
        let prefix = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",", kind.kind, kind.api_version());
        let bucket = store.bucket(&kind.resource_name().to_string());
        Self { kind, bucket, prefix: prefix.into(), terminating, versions }
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

/// A definition and the resources it adds.
#[derive(Debug)]
pub(crate) struct Defined {
    /// The definition as stored.
    object: Arc<Object>,
    /// What was read from it.
    pub(crate) definition: Definition,
    /// Its resources; none before it is established.
    entries: Vec<Arc<Entry>>,
}

/// The resources served at one moment.
///
/// A change of one definition costs what that definition costs: everything about the others is taken over.
#[derive(Debug, Default)]
pub struct Served {
    at: u64,
    /// Every resource, built-in ones first.
    pub entries: Vec<Arc<Entry>>,
    by_path: HashMap<(String, String, String), Arc<Entry>>,
    /// The definitions by name, those that are not served included.
    pub(crate) definitions: BTreeMap<Box<str>, Arc<Defined>>,
    /// What discovery reports about them.
    pub(crate) openapi: Documents,
    /// Aggregated discovery of all groups but the core one, by version, with its hash.
    pub(crate) discovery: [OnceLock<(Bytes, String)>; 2],
}

impl Served {
    /// The resource behind a path.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Entry>> {
        self.by_path.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The revision of the definitions that it was made of.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.at
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
    builtin: Vec<Arc<Entry>>,
    served: RwLock<Arc<Served>>,
    /// Held while `served` is made anew, so that two requests do not read the same definition.
    rebuilding: Mutex<()>,
}

impl Registry {
    /// The registry of a release.
    #[must_use]
    pub fn new(version: KubeVersion, store: &Store) -> Self {
        let scheme = Scheme::new(version);
        let builtin =
            scheme.kinds().iter().map(|kind| Arc::new(Entry::new(kind.clone(), store, false, None)));
        let registry = Self {
            builtin: builtin.collect(),
            scheme,
            store: store.clone(),
            definitions: store.bucket(CRDS),
            served: RwLock::default(),
            rebuilding: Mutex::default(),
        };
        registry.rebuild();
        registry
    }

    /// What is served now. Definitions that changed are read again.
    #[must_use]
    pub fn served(&self) -> Arc<Served> {
        let served = read(&self.served).clone();
        if served.at == self.definitions.changed_at() { served } else { self.rebuild() }
    }

    /// Whether a resource is built in. A definition of the same name is never served: its objects would lie among those
    /// that the server itself acts on, without their validation and escalation checks.
    #[must_use]
    pub fn is_builtin_resource(&self, group: &str, plural: &str) -> bool {
        self.scheme.kinds().iter().any(|kind| kind.group == group && kind.plural == plural)
    }

    fn rebuild(&self) -> Arc<Served> {
        let _alone = lock(&self.rebuilding);
        let before = read(&self.served).clone();
        let at = self.definitions.changed_at();
        if before.at == at && !before.entries.is_empty() {
            return before;
        }
        let mut definitions = BTreeMap::new();
        for object in self.definitions.list(&Range::All).objects {
            let known = before.definitions.get(object.name());
            let defined = match known {
                Some(known) if known.object.revision == object.revision => Some(known.clone()),
                known => self.read_definition(&object, known.map(|known| &**known)),
            };
            definitions.extend(defined.map(|defined| (object.name().into(), defined)));
        }
        let mut entries = self.builtin.clone();
        entries.extend(definitions.values().flat_map(|defined| defined.entries.iter().cloned()));
        let by_path = entries
            .iter()
            .map(|e| ((e.kind.group.clone(), e.kind.version.clone(), e.kind.plural.clone()), e.clone()))
            .collect();
        let openapi = Documents::new(&entries, &before.openapi);
        let served =
            Arc::new(Served { at, entries, by_path, definitions, openapi, discovery: Default::default() });
        *write(&self.served) = served.clone();
        served
    }

    fn read_definition(&self, object: &Arc<Object>, before: Option<&Defined>) -> Option<Arc<Defined>> {
        let known = before.map(|before| &before.definition);
        let definition = match Definition::read(&object.json, self.scheme.version(), known) {
            Ok(definition) => definition,
            Err(error) => {
                tracing::error!(definition = object.name(), %error, "definition cannot be read and is not served");
                return None;
            }
        };
        let is_served = |kind: &&Arc<Kind>| !self.is_builtin_resource(&kind.group, &kind.plural);
        let established = definition.kinds.iter().filter(|_| definition.established).filter(is_served);
        let entries = established
            .map(|kind| {
                let versions = definition.versions.clone();
                Arc::new(Entry::new(kind.clone(), &self.store, definition.deleting, versions))
            })
            .collect();
        Some(Arc::new(Defined { object: object.clone(), definition, entries }))
    }
}

/// Whether records can be read as objects of a release's kinds, for [`Store::open_checked`]. What no built-in kind is
/// stored under is a custom resource, whose schema may have changed since: it must be an object, no more.
pub fn readable(version: KubeVersion) -> impl Fn(&str, &[u8]) -> Result<(), DecodeError> + Sync {
    let mut kinds: HashMap<String, Vec<Arc<Kind>>> = HashMap::new();
    for kind in Scheme::new(version).kinds() {
        kinds.entry(kind.resource_name().to_string()).or_default().push(kind.clone());
    }
    move |resource, json| {
        let Some(kinds) = kinds.get(resource) else {
            let read = serde_json::from_slice::<Map<String, Value>>(json);
            return read.map(|_| ()).map_err(|error| DecodeError::Syntax(error.to_string()));
        };
        let mut read = Ok(());
        for kind in kinds {
            read = decode_type(kind.schema(), kind.emulated, json).map(|_| ());
            if read.is_ok() {
                break;
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::storage::{Expect, Write};

    fn definition(plural: &str, description: &str, established: bool) -> Value {
        let schema = json!({"type": "object", "description": description});
        let status = if established { "True" } else { "False" };
        json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": plural},
                     "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
            "status": {"conditions": [{"type": "Established", "status": status}]},
        })
    }

    async fn put(store: &Store, definition: &Value) {
        let (bucket, key) = (store.bucket(CRDS), crate::meta::meta_text(definition, "name").to_owned());
        let expect = bucket.get(&key).map_or(Expect::Absent, |known| Expect::Revision(known.revision));
        let scheme = &palisade_apimachinery::scheme::LATEST;
        let kind = scheme.by_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
        let typed = kind.read(definition.clone()).unwrap();
        store.commit(Write::store(bucket, &key, expect, typed, Vec::new())).await.unwrap();
    }

    fn kind(served: &Served, plural: &str) -> Arc<Kind> {
        served.find("example.com", "v1", plural).unwrap().kind.clone()
    }

    #[tokio::test]
    async fn a_change_of_one_definition_reads_no_other() {
        let store = Store::in_memory();
        let registry = Registry::new(KubeVersion::LATEST, &store);
        put(&store, &definition("as", "one", true)).await;
        put(&store, &definition("bs", "one", true)).await;
        let before = registry.served();
        put(&store, &definition("bs", "two", true)).await;
        let after = registry.served();
        assert!(Arc::ptr_eq(&kind(&before, "as"), &kind(&after, "as")));
        assert!(!Arc::ptr_eq(&kind(&before, "bs"), &kind(&after, "bs")));
        assert!(Arc::ptr_eq(&after, &registry.served()), "nothing changed");
    }

    #[tokio::test]
    async fn schemas_are_hashed_again_only_if_they_changed() {
        let store = Store::in_memory();
        let registry = Registry::new(KubeVersion::LATEST, &store);
        let hashed = |kind: &Kind| {
            let mut hashed = false;
            kind.schema_fingerprint(|_| {
                hashed = true;
                [0; 32]
            });
            hashed
        };
        let mut first = definition("as", "one", true);
        put(&store, &first).await;
        assert!(hashed(&kind(&registry.served(), "as")));
        first["metadata"]["labels"] = json!({"a": "b"});
        put(&store, &first).await;
        assert!(!hashed(&kind(&registry.served(), "as")), "another revision, the same schema");
        put(&store, &definition("as", "two", true)).await;
        assert!(hashed(&kind(&registry.served(), "as")));
    }

    #[tokio::test]
    async fn definitions_are_served_from_the_moment_they_are_established() {
        let store = Store::in_memory();
        let registry = Registry::new(KubeVersion::LATEST, &store);
        put(&store, &definition("as", "one", false)).await;
        assert!(registry.served().find("example.com", "v1", "as").is_none());
        put(&store, &definition("as", "one", true)).await;
        assert!(registry.served().find("example.com", "v1", "as").is_some());
    }
}
