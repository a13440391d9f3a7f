//! The pods of the node, reduced to what the agent needs of them.

use std::collections::{BTreeMap, BTreeSet};

use palisade_model::{
    compat::Compat,
    effective::effective_contexts,
    profile::{
        ProfileRef,
        baseline::{Baseline, published_sha256},
        published::{
            BASELINE_ANNOTATION, CONTAINER_ANNOTATION_PREFIX, POD_ANNOTATION, ProfileSource, published_hash,
        },
    },
};
use serde_json::Value;
use tracing::warn;

use super::report::OlderProfile;
use crate::{api::PodChange, pod::RunPod};

/// A pod, and the published profiles its containers have.
#[derive(Debug)]
pub(super) struct KnownPod {
    pub(super) pod: RunPod,
    /// Container, profile, and where it came from.
    pub(super) profiles: Vec<(String, String, Option<String>)>,
}

/// The pods of the node that have not ended.
#[derive(Debug, Default)]
pub(super) struct Pods {
    by_uid: BTreeMap<String, KnownPod>,
}

impl Pods {
    /// Takes a change over.
    pub(super) fn take(&mut self, change: PodChange, compat: &Compat) {
        match change {
            PodChange::All(objects) => {
                let present: BTreeSet<String> = objects.iter().filter_map(uid).collect();
                for object in objects {
                    self.put(object, compat);
                }
                self.by_uid.retain(|uid, _| present.contains(uid));
            }
            PodChange::Applied(object) => self.put(object, compat),
            PodChange::Gone { uid } => drop(self.by_uid.remove(&uid)),
        }
    }

    fn put(&mut self, mut object: Value, compat: &Compat) {
        let phase = object.pointer("/status/phase").and_then(Value::as_str);
        if matches!(phase, Some("Succeeded" | "Failed")) {
            if let Some(uid) = uid(&object) {
                self.by_uid.remove(&uid);
            }
            return;
        }
        slim(&mut object);
        match RunPod::from_object(object) {
            Ok(pod) => {
                let profiles = profiles(&pod, compat);
                self.by_uid.insert(pod.key.uid.clone(), KnownPod { pod, profiles });
            }
            Err(error) => warn!(%error, "pod not understood"),
        }
    }

    /// All of them, by identity.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &KnownPod)> {
        self.by_uid.iter()
    }

    /// Whether a pod is still there.
    pub(super) fn contains(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// How many pods refer to each profile.
    pub(super) fn needed(&self) -> BTreeMap<String, usize> {
        let mut needed = BTreeMap::new();
        for known in self.by_uid.values() {
            let hashes: BTreeSet<&String> = known.profiles.iter().map(|(_, hash, _)| hash).collect();
            for hash in hashes {
                *needed.entry(hash.clone()).or_default() += 1;
            }
        }
        needed
    }

    /// The namespaces of the pods that refer to each profile.
    pub(super) fn namespaces(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut namespaces: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for known in self.by_uid.values() {
            for (_, hash, _) in &known.profiles {
                namespaces.entry(hash.clone()).or_default().insert(known.pod.key.namespace.clone());
            }
        }
        namespaces
    }

    /// Containers whose source holds another profile by now, according to what is written on the published ones.
    pub(super) fn older(&self, published: &BTreeMap<String, Vec<String>>) -> Vec<OlderProfile> {
        let mut older = Vec::new();
        for known in self.by_uid.values() {
            let key = &known.pod.key;
            for (container, sha256, source) in &known.profiles {
                let Some(source) = source else { continue };
                let place = format!("{}/{source}", key.namespace);
                if published.get(sha256).is_some_and(|changed| changed.contains(&place)) {
                    older.push(OlderProfile {
                        namespace: key.namespace.clone(),
                        pod: key.name.clone(),
                        container: container.clone(),
                        sha256: sha256.clone(),
                        source: format!("configmap/{source}"),
                    });
                }
            }
        }
        older.sort();
        older
    }
}

fn uid(object: &Value) -> Option<String> {
    object.pointer("/metadata/uid")?.as_str().map(str::to_owned)
}

/// Takes out what is large and decides nothing: a full node has hundreds of these in memory.
fn slim(object: &mut Value) {
    let Value::Object(fields) = object else { return };
    fields.remove("status");
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        metadata.remove("managedFields");
        metadata.remove("ownerReferences");
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
    }
    if let Some(Value::Object(spec)) = fields.get_mut("spec") {
        for part in ["affinity", "tolerations", "topologySpreadConstraints", "volumes", "imagePullSecrets"] {
            spec.remove(part);
        }
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::Object(container) = container {
                    for part in [
                        "env",
                        "envFrom",
                        "livenessProbe",
                        "readinessProbe",
                        "startupProbe",
                        "lifecycle",
                        "args",
                        "volumeMounts",
                        "ports",
                        "resources",
                    ] {
                        container.remove(part);
                    }
                }
            }
        }
    }
}

fn profiles(pod: &RunPod, compat: &Compat) -> Vec<(String, String, Option<String>)> {
    let prepared = pod.prepared(compat);
    let annotations = &pod.metadata.annotations;
    let stated = annotations.get(BASELINE_ANNOTATION);
    let baseline = stated.map_or_else(|| Some(Baseline::default()), |text| Baseline::parse(text));
    effective_contexts(&prepared)
        .iter()
        .filter_map(|context| {
            let Ok(ProfileRef::Localhost(path)) = &context.seccomp.profile else { return None };
            let hash = published_hash(path)?;
            let own = annotations.get(&format!("{CONTAINER_ANNOTATION_PREFIX}{}", context.container));
            let source = own
                .or_else(|| annotations.get(POD_ANNOTATION))
                .and_then(|value| ProfileSource::parse(value))
                .filter(|source| {
                    baseline.as_ref().is_some_and(|known| published_sha256(source.sha256, known) == hash)
                })
                .map(|source| format!("{}/{}", source.config_map, source.key));
            Some((context.container.to_owned(), hash.to_owned(), source))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn profiles_and_their_age_are_known_by_container() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let field = |hash: &str| json!({"seccompProfile": {"type": "Localhost", "localhostProfile": format!("palisade/{hash}.json")}});
        let mut object = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": {
                "seccomp.palisade.dev/pod": format!("configmap/m/k@sha256:{a}"),
                "container.seccomp.palisade.dev/two": format!("configmap/m/other@sha256:{b}")}},
            "spec": {"securityContext": field(&a), "containers": [{"name": "one", "image": "i"},
                {"name": "two", "image": "i", "securityContext": field(&b)},
                {"name": "three", "image": "i", "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}]}});
        let compat = Compat::kubernetes(31);
        let mut pods = Pods::default();
        pods.take(PodChange::All(vec![object.clone()]), &compat);
        assert_eq!(pods.needed(), BTreeMap::from([(a.clone(), 1), (b.clone(), 1)]));
        let published =
            BTreeMap::from([(a.clone(), vec!["n/m/k".to_owned()]), (b, vec!["other/m/other".to_owned()])]);
        let older: Vec<_> =
            pods.older(&published).into_iter().map(|row| (row.container, row.source)).collect();
        assert_eq!(older, [("one".to_owned(), "configmap/m/k".to_owned())]);
        object["status"] = json!({"phase": "Failed"});
        pods.take(PodChange::Applied(object), &compat);
        assert!(pods.needed().is_empty(), "a pod that has ended needs nothing");
    }
}
