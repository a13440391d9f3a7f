//! Profiles that reach the nodes as files named by their content.
//!
//! Implements: ConfigMap profiles beside a stock kubelet. An API server without the type `ConfigMap` gets
//! `Localhost` with `palisade/<sha256>.json`; where the bytes came from is written on the pod. Here are the names that the
//! webhook, the controller and the node agree on. They decide which of them writes, publishes and verifies.

use std::fmt;

use palisade_base::sha256;

/// The API group of our own kinds.
pub const GROUP: &str = "palisade.dev";
/// Their version.
pub const VERSION: &str = "v1alpha1";
/// The folder below the node's seccomp folder that belongs to us.
pub const FOLDER: &str = "palisade";
/// Where the profile of the whole pod came from.
pub const POD_ANNOTATION: &str = "seccomp.palisade.dev/pod";
/// Where the profile of one container came from; its name follows.
pub const CONTAINER_ANNOTATION_PREFIX: &str = "container.seccomp.palisade.dev/";

/// What the profiles of a pod are combined with, if that is not the default of the runtime.
pub const BASELINE_ANNOTATION: &str = "seccomp.palisade.dev/baseline";

/// How many profiles are published for the pods of one namespace.
pub const MOST_IN_NAMESPACE: usize = 32;
/// How many bytes their sources may have together.
pub const MOST_BYTES_IN_NAMESPACE: usize = 2 << 20;

/// On a PublishedProfile: since when no pod has referred to it.
pub const UNREFERENCED_ANNOTATION: &str = "palisade.dev/unreferenced-since";
/// On a PublishedProfile: which of its sources hold another profile by now, `namespace/configmap/key` with commas between.
pub const CHANGED_SOURCES_ANNOTATION: &str = "palisade.dev/changed-sources";

/// The annotation with the origin of a container's profile.
#[must_use]
pub fn container_annotation(container: &str) -> String {
    format!("{CONTAINER_ANNOTATION_PREFIX}{container}")
}

/// The path, below the seccomp folder, of a profile with this hash.
#[must_use]
pub fn published_name(hash: &str) -> String {
    format!("{FOLDER}/{hash}.json")
}

/// The hash in a published path; `None` for any other path.
#[must_use]
pub fn published_hash(path: &str) -> Option<&str> {
    let hash = path.strip_prefix(FOLDER)?.strip_prefix('/')?.strip_suffix(".json")?;
    sha256::is_hex(hash).then_some(hash)
}

/// Where a profile came from: `configmap/<name>/<key>@sha256:<hex>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileSource<'a> {
    /// The ConfigMap, in the pod's namespace.
    pub config_map: &'a str,
    /// The key in its data.
    pub key: &'a str,
    /// What it held.
    pub sha256: &'a str,
}

impl<'a> ProfileSource<'a> {
    /// Reads the value of an annotation; `None` if Palisade did not write it.
    #[must_use]
    pub fn parse(value: &'a str) -> Option<Self> {
        let (reference, sha256) = value.rsplit_once("@sha256:")?;
        let (config_map, key) = reference.strip_prefix("configmap/")?.split_once('/')?;
        let usable =
            !config_map.is_empty() && !key.is_empty() && !key.contains('/') && sha256::is_hex(sha256);
        usable.then_some(Self { config_map, key, sha256 })
    }

    /// The container an annotation is about, `Some(None)` for the whole pod; `None` for annotations of others.
    #[must_use]
    pub fn subject(annotation: &str) -> Option<Option<&str>> {
        if annotation == POD_ANNOTATION {
            return Some(None);
        }
        annotation.strip_prefix(CONTAINER_ANNOTATION_PREFIX).map(Some)
    }
}

impl fmt::Display for ProfileSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configmap/{}/{}@sha256:{}", self.config_map, self.key, self.sha256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_ours() {
        let hash = "a".repeat(64);
        assert_eq!(published_hash(&published_name(&hash)), Some(hash.as_str()));
        for path in [
            "palisade/x.json",
            "other/a.json",
            &format!("palisade/../{hash}.json"),
            &format!("palisade/{hash}"),
            &format!("palisade/{}.json", hash.to_uppercase()),
        ] {
            assert_eq!(published_hash(path), None, "{path}");
        }
    }

    #[test]
    fn a_source_reads_as_it_was_written_and_nothing_else_does() {
        let hash = "0".repeat(64);
        let source = ProfileSource { config_map: "web", key: "block.json", sha256: &hash };
        assert_eq!(ProfileSource::parse(&source.to_string()), Some(source));
        for value in [
            "configmap/web/block.json".to_owned(),
            format!("configmap/web@sha256:{hash}"),
            format!("configmap//k@sha256:{hash}"),
            format!("configmap/web/a/b@sha256:{hash}"),
            format!("localhost/web/k@sha256:{hash}"),
            "configmap/web/k@sha256:abc".to_owned(),
        ] {
            assert_eq!(ProfileSource::parse(&value), None, "{value}");
        }
        assert_eq!(ProfileSource::subject(POD_ANNOTATION), Some(None));
        assert_eq!(ProfileSource::subject("container.seccomp.palisade.dev/web"), Some(Some("web")));
        assert_eq!(ProfileSource::subject("seccomp.security.alpha.kubernetes.io/pod"), None);
    }
}
