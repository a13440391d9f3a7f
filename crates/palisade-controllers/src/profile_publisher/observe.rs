//! What pods refer to, what is published, and what ConfigMaps hold: reduced to what decides.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use palisade_base::sha256;
use palisade_model::profile::{
    baseline::{Baseline, published_sha256},
    published::{
        BASELINE_ANNOTATION, CHANGED_SOURCES_ANNOTATION, ProfileSource, UNREFERENCED_ANNOTATION,
        published_hash,
    },
};
use serde_json::Value;

/// A key of a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields are the API's own")]
pub struct SourceKey {
    pub namespace: String,
    pub config_map: String,
    pub key: String,
}

impl std::fmt::Display for SourceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.config_map, self.key)
    }
}

/// A source as a pod names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields are those of the annotations")]
pub struct NamedSource {
    pub source: SourceKey,
    /// What it held when the pod was admitted.
    pub sha256: String,
    /// What it is combined with, if not with the default of the runtime.
    pub baseline: Option<String>,
}

/// What a source holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceState {
    /// A text with this hash.
    Holds(String),
    /// No such ConfigMap, or no such key in it.
    Gone,
}

/// A pod that has not ended, as far as profiles go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRecord {
    /// Its identity.
    pub uid: String,
    /// Every profile it refers to, by what it is published as, with what it names for it.
    pub references: BTreeMap<String, BTreeSet<NamedSource>>,
}

/// A published profile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileRecord {
    /// Its identity.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Whether its bytes have the hash it is named by.
    pub intact: bool,
    /// How large its source is, in bytes.
    pub size: usize,
    /// Since when it is unreferenced, as marked on it.
    pub unreferenced_since: Option<Timestamp>,
    /// What is written on it about changed sources.
    pub changed_sources: String,
    /// Its status, as written.
    pub status: Value,
}

/// Everything observed.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// Pods that refer to published profiles, by namespace and name.
    pub pods: BTreeMap<(String, String), PodRecord>,
    /// Published profiles, by hash.
    pub profiles: BTreeMap<String, ProfileRecord>,
    /// What sources held when last read.
    pub sources: BTreeMap<SourceKey, SourceState>,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl Index {
    /// A pod is there or has changed.
    pub fn set_pod(&mut self, pod: &Value) {
        let key = (text(pod, "/metadata/namespace").to_owned(), text(pod, "/metadata/name").to_owned());
        let references = references(pod, &key.0);
        if references.is_empty() || matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
            self.pods.remove(&key);
        } else {
            self.pods.insert(key, PodRecord { uid: text(pod, "/metadata/uid").to_owned(), references });
        }
    }

    /// A pod is gone.
    pub fn remove_pod(&mut self, pod: &Value) {
        let key = (text(pod, "/metadata/namespace").to_owned(), text(pod, "/metadata/name").to_owned());
        self.pods.remove(&key);
    }

    /// A published profile is there or has changed.
    pub fn set_profile(&mut self, object: &Value) {
        let name = text(object, "/metadata/name").to_owned();
        let annotation = |key: &str| object.get("metadata")?.get("annotations")?.get(key)?.as_str();
        let record = ProfileRecord {
            uid: text(object, "/metadata/uid").to_owned(),
            resource_version: text(object, "/metadata/resourceVersion").to_owned(),
            created: text(object, "/metadata/creationTimestamp").parse().ok(),
            intact: is_intact(object, &name),
            size: text(object, "/spec/profile").len(),
            // A mark that cannot be read does not count: the time begins anew.
            unreferenced_since: annotation(UNREFERENCED_ANNOTATION).and_then(|time| time.parse().ok()),
            changed_sources: annotation(CHANGED_SOURCES_ANNOTATION).unwrap_or_default().to_owned(),
            status: object.get("status").cloned().unwrap_or(Value::Null),
        };
        self.profiles.insert(name, record);
    }

    /// A published profile is gone.
    pub fn remove_profile(&mut self, object: &Value) {
        self.profiles.remove(text(object, "/metadata/name"));
    }

    /// Every source that a pod names; those that several name come as often.
    pub fn named_sources(&self) -> impl Iterator<Item = &SourceKey> {
        self.pods.values().flat_map(|pod| pod.references.values().flatten()).map(|named| &named.source)
    }

    /// The namespaces of all sources.
    #[must_use]
    pub fn source_namespaces(&self) -> BTreeSet<&str> {
        self.named_sources().map(|source| source.namespace.as_str()).collect()
    }

    /// Every profile that pods refer to: how many do, and which sources they name.
    #[must_use]
    pub fn referenced(&self) -> BTreeMap<&str, (usize, BTreeSet<&NamedSource>)> {
        let mut found: BTreeMap<&str, (usize, BTreeSet<&NamedSource>)> = BTreeMap::new();
        for (hash, sources) in self.pods.values().flat_map(|pod| &pod.references) {
            let entry = found.entry(hash).or_default();
            entry.0 += 1;
            entry.1.extend(sources);
        }
        found
    }
}

/// Whether a published profile is what its name stands for.
fn is_intact(object: &Value, name: &str) -> bool {
    let stated = object.pointer("/spec/baseline").and_then(Value::as_str);
    let baseline = stated.map_or_else(|| Some(Baseline::default()), Baseline::parse);
    let source = sha256::hex(text(object, "/spec/profile").as_bytes());
    baseline.is_some_and(|baseline| published_sha256(&source, &baseline) == name)
}

/// The profiles a pod refers to: by a field, and by where the webhook wrote down that it came from.
fn references(pod: &Value, namespace: &str) -> BTreeMap<String, BTreeSet<NamedSource>> {
    let mut found: BTreeMap<String, BTreeSet<NamedSource>> = BTreeMap::new();
    let contexts = ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .filter_map(|list| pod.get("spec")?.get(list)?.as_array())
        .flatten()
        .chain(pod.get("spec"))
        .filter_map(|holder| holder.get("securityContext"));
    for context in contexts {
        let path = text(context, "/seccompProfile/localhostProfile");
        if text(context, "/seccompProfile/type") == "Localhost"
            && let Some(hash) = published_hash(path)
        {
            found.entry(hash.to_owned()).or_default();
        }
    }
    let annotations = pod.pointer("/metadata/annotations").and_then(Value::as_object);
    let stated = annotations.and_then(|entries| entries.get(BASELINE_ANNOTATION)?.as_str());
    // A pod whose baseline cannot be read has no source of what it refers to.
    let Some(baseline) = stated.map_or_else(|| Some(Baseline::default()), Baseline::parse) else {
        return found;
    };
    for (key, value) in annotations.into_iter().flatten() {
        if ProfileSource::subject(key).is_some()
            && let Some(source) = value.as_str().and_then(ProfileSource::parse)
        {
            let key = SourceKey {
                namespace: namespace.to_owned(),
                config_map: source.config_map.to_owned(),
                key: source.key.to_owned(),
            };
            // Annotations can be added to a pod that runs, fields cannot: what no field names was not admitted.
            if let Some(sources) = found.get_mut(&published_sha256(source.sha256, &baseline)) {
                sources.insert(NamedSource {
                    source: key,
                    sha256: source.sha256.to_owned(),
                    baseline: (!baseline.is_default()).then(|| baseline.to_string()),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_found_wherever_a_pod_can_write_them() {
        let hash = |letter: &str| letter.repeat(64);
        let field = |letter: &str| json!({"seccompProfile": {"type": "Localhost", "localhostProfile": format!("palisade/{}.json", hash(letter))}});
        let mut pod = json!({"metadata": {"namespace": "n", "name": "p", "uid": "u", "annotations": {
                "container.seccomp.palisade.dev/b": format!("configmap/m/k@sha256:{}", hash("b")),
                "seccomp.palisade.dev/pod": "nonsense", "other": format!("configmap/m/k@sha256:{}", hash("9"))}},
            "spec": {"securityContext": field("a"),
                "containers": [{"name": "b", "securityContext": field("b")},
                    {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "mine.json"}}}],
                "initContainers": [{"securityContext": field("c")}],
                "ephemeralContainers": [{"securityContext": field("d")}]}});
        let mut index = Index::default();
        index.set_pod(&pod);
        let found: Vec<String> = index
            .referenced()
            .iter()
            .map(|(hash, (pods, sources))| format!("{} {pods} {}", &hash[..1], sources.len()))
            .collect();
        assert_eq!(found, ["a 1 0", "b 1 1", "c 1 0", "d 1 0"]);
        pod["status"]["phase"] = json!("Succeeded");
        index.set_pod(&pod);
        assert!(index.referenced().is_empty(), "a pod that has ended needs nothing");
    }

    #[test]
    fn hashes_as_sha256sum_does() {
        assert_eq!(sha256::hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
