//! How much is published for a namespace, and how much stays that no pod refers to. Pure.
//!
//! Profiles become files on a tmpfs of each node that all namespaces share. What is published for one namespace is bounded in number
//! and size, and so is what pods leave behind, so that creating and deleting pods fills nothing.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use palisade_model::profile::published::{MOST_BYTES_IN_NAMESPACE, MOST_IN_NAMESPACE};

use super::observe::Index;

/// Bounds on what is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileLimits {
    /// Profiles that the pods of one namespace refer to.
    pub per_namespace: usize,
    /// Their sources together, in bytes.
    pub bytes_per_namespace: usize,
    /// Profiles of all namespaces that no pod refers to.
    pub unreferenced: usize,
    /// Their sources together, in bytes.
    pub unreferenced_bytes: usize,
}

impl Default for ProfileLimits {
    fn default() -> Self {
        Self {
            per_namespace: MOST_IN_NAMESPACE,
            bytes_per_namespace: MOST_BYTES_IN_NAMESPACE,
            unreferenced: 128,
            unreferenced_bytes: 8 << 20,
        }
    }
}

/// Profiles that were published and may not be observed yet: for which namespace, and the size of their sources.
pub(super) type Fresh = BTreeMap<String, (String, usize)>;

/// What is published for a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PublishedFor {
    count: usize,
    bytes: usize,
}

impl PublishedFor {
    /// The profiles that the pods of a namespace refer to, without `except`.
    pub(super) fn namespace(index: &Index, fresh: &Fresh, namespace: &str, except: &str) -> Self {
        let pods = index.pods.iter().filter(|((own, _), _)| own == namespace);
        let names: BTreeSet<&String> = pods.flat_map(|(_, pod)| pod.references.keys()).collect();
        let observed = names.into_iter().filter_map(|name| Some((name, index.profiles.get(name)?.size)));
        let fresh =
            fresh.iter().filter(|(name, (own, _))| own == namespace && !index.profiles.contains_key(*name));
        observed.chain(fresh.map(|(name, (_, size))| (name, *size))).filter(|(name, _)| *name != except).fold(
            Self { count: 0, bytes: 0 },
            |sum, (_, size)| Self { count: sum.count + 1, bytes: sum.bytes + size },
        )
    }

    /// Why another profile of this size is not published; `None` if there is room for it.
    pub(super) fn problem(self, limits: &ProfileLimits, namespace: &str, size: usize) -> Option<String> {
        let ProfileLimits { per_namespace, bytes_per_namespace, .. } = *limits;
        if self.count >= per_namespace {
            Some(format!(
                "the pods of namespace {namespace} have {} profiles of at most {per_namespace}",
                self.count
            ))
        } else if self.bytes + size > bytes_per_namespace {
            Some(format!(
                "the profiles of namespace {namespace} have {} bytes of at most {bytes_per_namespace}",
                self.bytes + size
            ))
        } else {
            None
        }
    }
}

/// Profiles without pods beyond what may stay, those that have been without for longest: they do not wait for the end of the grace
/// period.
pub(super) fn excess_unreferenced(index: &Index, limits: &ProfileLimits) -> BTreeSet<String> {
    let referenced = index.referenced();
    let unreferenced = index.profiles.iter().filter(|(name, _)| !referenced.contains_key(name.as_str()));
    let mut newest_first: Vec<_> = unreferenced
        .map(|(name, profile)| (Reverse(profile.unreferenced_since.or(profile.created)), name, profile.size))
        .collect();
    newest_first.sort();
    let (mut count, mut bytes) = (0, 0);
    let mut excess = BTreeSet::new();
    for (_, name, size) in newest_first {
        count += 1;
        bytes += size;
        if count > limits.unreferenced || bytes > limits.unreferenced_bytes {
            excess.insert(name.clone());
        }
    }
    excess
}

#[cfg(test)]
mod tests {
    use palisade_base::sha256;
    use serde_json::json;

    use super::*;

    const LIMITS: ProfileLimits = ProfileLimits {
        per_namespace: 2,
        bytes_per_namespace: 100,
        unreferenced: 2,
        unreferenced_bytes: 100,
    };

    fn hash(text: &str) -> String {
        sha256::hex(text.as_bytes())
    }

    fn put_pod(index: &mut Index, namespace: &str, text: &str) {
        let hash = hash(text);
        index.set_pod(
            &json!({"metadata": {"namespace": namespace, "name": format!("p-{hash}"), "annotations": {
            "seccomp.palisade.dev/pod": format!("configmap/m/k@sha256:{hash}")}},
            "spec": {"securityContext": {"seccompProfile": {"type": "Localhost",
                "localhostProfile": format!("palisade/{hash}.json")}}}}),
        );
    }

    fn publish(index: &mut Index, text: &str, since: Option<&str>) {
        index.set_profile(&json!({"metadata": {"name": hash(text), "annotations": {
            "palisade.dev/unreferenced-since": since}}, "spec": {"profile": text}}));
    }

    #[test]
    fn a_namespace_that_has_enough_gets_no_more_and_takes_nothing_from_others() {
        let (mut index, mut fresh) = (Index::default(), Fresh::new());
        let large = "x".repeat(99);
        for (namespace, text) in [
            ("crowded", "a"),
            ("crowded", "b"),
            ("crowded", "c"),
            ("other", "c"),
            ("large", &large),
            ("large", "d"),
        ] {
            put_pod(&mut index, namespace, text);
        }
        let problem = |index: &Index, fresh: &Fresh, namespace: &str, text: &str| {
            PublishedFor::namespace(index, fresh, namespace, &hash(text)).problem(
                &LIMITS,
                namespace,
                text.len(),
            )
        };
        assert_eq!(problem(&index, &fresh, "crowded", "c"), None, "nothing is published yet");
        publish(&mut index, "a", None);
        fresh.insert(hash("a"), ("crowded".to_owned(), 1));
        assert_eq!(problem(&index, &fresh, "crowded", "c"), None, "what is observed counts once");
        fresh.insert(hash("b"), ("crowded".to_owned(), 1));
        let full = "the pods of namespace crowded have 2 profiles of at most 2";
        assert_eq!(problem(&index, &fresh, "crowded", "c").as_deref(), Some(full));
        assert_eq!(problem(&index, &fresh, "crowded", "a"), None, "what is there can be repaired");
        assert_eq!(problem(&index, &fresh, "other", "c"), None, "another namespace has room");
        publish(&mut index, &large, None);
        assert_eq!(problem(&index, &fresh, "large", "d"), None);
        let full = "the profiles of namespace large have 101 bytes of at most 100";
        assert_eq!(problem(&index, &fresh, "large", "dd").as_deref(), Some(full));
    }

    #[test]
    fn what_pods_left_behind_is_bounded_and_the_oldest_goes_first() {
        let mut index = Index::default();
        for (text, since) in [("a", "01"), ("b", "02"), ("c", "03"), ("d", "04")] {
            publish(&mut index, text, Some(&format!("2026-01-01T00:00:{since}Z")));
        }
        assert_eq!(excess_unreferenced(&index, &LIMITS), BTreeSet::from([hash("a"), hash("b")]));
        put_pod(&mut index, "n", "a");
        assert_eq!(
            excess_unreferenced(&index, &LIMITS),
            BTreeSet::from([hash("b")]),
            "what a pod needs stays"
        );
        publish(&mut index, &"x".repeat(98), Some("2026-01-01T00:00:05Z"));
        assert_eq!(
            excess_unreferenced(&index, &LIMITS),
            BTreeSet::from([hash("b"), hash("c")]),
            "bytes count too"
        );
    }
}
