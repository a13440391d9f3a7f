//! Whether a cluster is OpenShift, which brings parts of the rollout along.
//!
//! OpenShift has a label syncer, a controller for namespace ranges, and a config observer of its own; they follow the
//! `FeatureGate`, not the status of `PSAEnforcementConfig`. Where they run, Palisade's must not: both would write the same
//! labels. What OpenShift's API servers enforce is in the object `KubeAPIServer`, which is read as their report.
//!
//! Implements: `operator.openshift.io/v1` `KubeAPIServer`, `spec.observedConfig` and `status.nodeStatuses`.

use std::{fmt, str::FromStr};

use serde_json::Value;
use thiserror::Error;

use super::instances::Report;
use crate::standards::level::Level;

/// What a cluster is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Platform {
    /// Any Kubernetes.
    #[default]
    Kubernetes,
    /// OpenShift.
    OpenShift,
}

impl Platform {
    /// From the list of API groups (`/apis`). The group `config.openshift.io` alone proves nothing: Palisade's own
    /// `PSAEnforcementConfig` is in it, but only as v1alpha1. The projects are served by OpenShift's own API server.
    #[must_use]
    pub fn of(groups: &Value) -> Self {
        let serves = |group: &Value, name: &str, version: &str| {
            let versions = group["versions"].as_array();
            group["name"] == name && versions.into_iter().flatten().any(|own| own["version"] == version)
        };
        let groups = groups["groups"].as_array();
        let is_openshift = groups.into_iter().flatten().any(|group| {
            serves(group, "config.openshift.io", "v1") || serves(group, "project.openshift.io", "v1")
        });
        if is_openshift { Self::OpenShift } else { Self::Kubernetes }
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::OpenShift => "openshift",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be kubernetes or openshift")]
pub struct PlatformError;

impl FromStr for Platform {
    type Err = PlatformError;
    fn from_str(text: &str) -> Result<Self, PlatformError> {
        [Self::Kubernetes, Self::OpenShift]
            .into_iter()
            .find(|platform| platform.as_str() == text)
            .ok_or(PlatformError)
    }
}

/// The component that OpenShift's API servers are reported as.
pub const KUBE_APISERVER: &str = "kube-apiserver";

/// What OpenShift's API servers enforce by default, from the operator's `KubeAPIServer` object; `None` if it is another one.
/// The level counts only if every node runs the newest revision: others may still enforce something else.
#[must_use]
pub fn read_kube_apiserver(object: &Value) -> Option<Report> {
    if object["metadata"]["name"] != "cluster" {
        return None;
    }
    let defaults = "/spec/observedConfig/admission/pluginConfig/PodSecurity/configuration/defaults/enforce";
    let newest = object.pointer("/status/latestAvailableRevision").and_then(Value::as_i64);
    let nodes = object.pointer("/status/nodeStatuses").and_then(Value::as_array);
    let is_current = newest.is_some_and(|newest| {
        nodes.is_some_and(|nodes| {
            !nodes.is_empty() && nodes.iter().all(|node| node["currentRevision"].as_i64() == Some(newest))
        })
    });
    // The revision is made from the configuration, some time after that was observed.
    let is_observed = object.pointer("/status/observedGeneration") == object.pointer("/metadata/generation");
    let level = object.pointer(defaults).and_then(Value::as_str);
    // swallowed: a level that cannot be read is not known, which never counts as enforcing
    let level = level.and_then(|level| level.parse::<Level>().ok());
    Some(Report {
        name: format!("{}cluster", super::instances::lease_name(KUBE_APISERVER, "")),
        component: KUBE_APISERVER.to_owned(),
        revision: newest.map(|newest| newest.to_string()).unwrap_or_default(),
        enforce: level.filter(|_| is_current && is_observed),
        observed: None,
        renewed: String::new(),
        lasts: u32::MAX,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Level, Platform, read_kube_apiserver};

    #[test]
    fn openshift_is_recognised_by_what_only_it_serves() {
        let groups = |all: &[(&str, &str)]| {
            let all: Vec<Value> = all
                .iter()
                .map(|(name, version)| json!({"name": name, "versions": [{"version": version}]}))
                .collect();
            json!({"groups": all})
        };
        for (case, served, expected) in [
            ("plain", groups(&[("apps", "v1")]), Platform::Kubernetes),
            (
                "our own kinds",
                groups(&[("config.openshift.io", "v1alpha1"), ("security.openshift.io", "v1")]),
                Platform::Kubernetes,
            ),
            ("a route for an operator", groups(&[("route.openshift.io", "v1")]), Platform::Kubernetes),
            ("its configuration", groups(&[("config.openshift.io", "v1")]), Platform::OpenShift),
            ("its projects", groups(&[("project.openshift.io", "v1")]), Platform::OpenShift),
            ("nothing", json!(null), Platform::Kubernetes),
        ] {
            assert_eq!(Platform::of(&served), expected, "{case}");
        }
    }

    #[test]
    fn the_level_of_openshifts_api_servers_counts_once_every_node_runs_it() {
        let object = |level: &str, newest: i64, nodes: &[i64]| {
            let nodes: Vec<Value> = nodes.iter().map(|node| json!({"currentRevision": node})).collect();
            json!({"metadata": {"name": "cluster", "generation": 3},
                "spec": {"observedConfig": {"admission": {"pluginConfig": {"PodSecurity": {"configuration": {
                    "defaults": {"enforce": level}}}}}}},
                "status": {"observedGeneration": 3, "latestAvailableRevision": newest, "nodeStatuses": nodes}})
        };
        let enforced = |object: &Value| read_kube_apiserver(object).unwrap().enforce;
        assert_eq!(enforced(&object("restricted", 7, &[7, 7, 7])), Some(Level::Restricted));
        assert_eq!(enforced(&object("restricted", 7, &[7, 6, 7])), None);
        assert_eq!(enforced(&object("restricted", 7, &[])), None);
        assert_eq!(enforced(&object("privileged", 7, &[7])), Some(Level::Privileged));
        assert_eq!(enforced(&object("nonsense", 7, &[7])), None);
        let mut behind = object("restricted", 7, &[7]);
        behind["metadata"]["generation"] = json!(4);
        assert_eq!(enforced(&behind), None);
        assert!(read_kube_apiserver(&json!({"metadata": {"name": "other"}})).is_none());
        let report = read_kube_apiserver(&object("restricted", 7, &[7])).unwrap();
        assert_eq!(
            report.describe(None),
            "kube-apiserver cluster enforces restricted, by a configuration of its own"
        );
    }
}
