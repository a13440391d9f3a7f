//! Whose rules an API server applies: what it announces in `/version`, and how clients read it.
//!
//! An emulated release announces nothing, as a real one. A server with Palisade's extensions adds build metadata to
//! `gitVersion`, which every client accepts (semantic versioning, section 10), and an object with its feature gates, which
//! clients that do not use it skip.

use palisade_base::version::{KubeVersion, NEWEST_MINOR, OLDEST_MINOR};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::compat::{Compat, FeatureGates};

/// Build metadata of versions that stand for the newest release with Palisade's extensions.
pub const BUILD: &str = "+palisade";
/// The field of `/version` with the feature gates.
pub const FIELD: &str = "palisade";

const SECCOMP_CONFIG_MAPS: &str = "SeccompConfigMaps";
/// The gate has the name that KEP-6061 gives it.
const SECURITY_PROFILE_OCI_ARTIFACT: &str = "SecurityProfileOCIArtifact";
const APP_ARMOR: &str = "AppArmor";

/// Why the rules of an API server are not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerVersionError {
    /// `gitVersion` is missing or is no version.
    #[error("gitVersion {given} in /version is not a Kubernetes version")]
    NoVersion {
        /// The value as JSON.
        given: String,
    },
    /// The server announces the extensions, and not which.
    #[error("/version announces Palisade's extensions without readable feature gates")]
    NoGates,
}

/// Adds to the version information of an API server whose rules it applies.
pub fn announce(compat: &Compat, info: &mut Map<String, Value>) {
    if !compat.is_designs() {
        return;
    }
    if let Some(Value::String(version)) = info.get_mut("gitVersion") {
        version.push_str(BUILD);
    }
    let FeatureGates { seccomp_config_maps, security_profile_oci_artifact, app_armor } = compat.gates;
    let gates = json!({
        SECCOMP_CONFIG_MAPS: seccomp_config_maps,
        SECURITY_PROFILE_OCI_ARTIFACT: security_profile_oci_artifact,
        APP_ARMOR: app_armor,
    });
    info.insert(FIELD.to_owned(), json!({"featureGates": gates}));
}

/// Whose rules an API server applies, from its version information.
///
/// A release newer than the newest known one is taken for that one, an older one for the oldest.
pub fn announced(info: &Value) -> Result<Compat, ServerVersionError> {
    let given = info.get("gitVersion").unwrap_or(&Value::Null);
    // swallowed: the next line returns the error
    let version = given.as_str().and_then(|text| text.parse::<KubeVersion>().ok());
    let version = version.ok_or_else(|| ServerVersionError::NoVersion { given: given.to_string() })?;
    let is_extended = given.as_str().is_some_and(|text| text.ends_with(BUILD));
    match info.get(FIELD) {
        None if !is_extended => Ok(Compat::kubernetes(version.minor().clamp(OLDEST_MINOR, NEWEST_MINOR))),
        None => Err(ServerVersionError::NoGates),
        Some(announcement) => {
            let gate = |name: &str| {
                let value = announcement.get("featureGates").and_then(|gates| gates.get(name));
                value.and_then(Value::as_bool).ok_or(ServerVersionError::NoGates)
            };
            // A server from before the gate does not have what it is for.
            let announced = announcement.get("featureGates");
            let has_oci_gate =
                announced.is_some_and(|gates| gates.get(SECURITY_PROFILE_OCI_ARTIFACT).is_some());
            let gates = FeatureGates {
                seccomp_config_maps: gate(SECCOMP_CONFIG_MAPS)?,
                security_profile_oci_artifact: has_oci_gate && gate(SECURITY_PROFILE_OCI_ARTIFACT)?,
                app_armor: gate(APP_ARMOR)?,
            };
            Ok(Compat { gates, ..Compat::designs() })
        }
    }
}

/// The version that a kubelet reports in `status.nodeInfo.kubeletVersion`.
#[must_use]
pub fn kubelet_version(kubelet: KubeVersion) -> String {
    match kubelet {
        KubeVersion::Designs => kubelet.git_version() + BUILD,
        KubeVersion::Release { .. } => kubelet.git_version(),
    }
}

/// The kubelet that reports a version; `None` if that is none.
#[must_use]
pub fn kubelet_of(version: &str) -> Option<KubeVersion> {
    // swallowed: None is the answer
    let release = version.parse::<KubeVersion>().ok()?;
    Some(if version.ends_with(BUILD) { KubeVersion::Designs } else { release })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{announce, announced, kubelet_of, kubelet_version};
    use crate::compat::{Compat, FeatureGates};
    use palisade_base::version::KubeVersion;

    fn info(compat: &Compat) -> Value {
        let mut info = json!({"major": "1", "gitVersion": format!("v1.{}.0", compat.api_minor())});
        if let Value::Object(fields) = &mut info {
            announce(compat, fields);
        }
        info
    }

    #[test]
    fn clients_read_what_servers_announce() {
        let gates = |seccomp_config_maps, app_armor| Compat {
            gates: FeatureGates { seccomp_config_maps, app_armor, ..FeatureGates::default() },
            ..Compat::designs()
        };
        let mut with_oci = gates(false, true);
        with_oci.gates.security_profile_oci_artifact = true;
        for compat in
            [gates(false, true), gates(true, true), gates(true, false), with_oci, Compat::kubernetes(24)]
        {
            assert_eq!(announced(&info(&compat)), Ok(compat));
        }
        let mut before = info(&gates(true, true));
        before["palisade"]["featureGates"].as_object_mut().unwrap().remove("SecurityProfileOCIArtifact");
        assert_eq!(announced(&before), Ok(gates(true, true)), "a server from before the gate");
    }

    #[test]
    fn an_emulated_release_announces_nothing() {
        assert_eq!(info(&Compat::kubernetes(37)), json!({"major": "1", "gitVersion": "v1.37.0"}));
    }

    #[test]
    fn distributions_are_the_release_they_are_made_of() {
        for (version, minor) in
            [("v1.30.4+k3s1", 30), ("v1.27.3-gke.100", 27), ("v1.99.0", 37), ("v1.11.0+d4cacc0", 19)]
        {
            assert_eq!(
                announced(&json!({"gitVersion": version})),
                Ok(Compat::kubernetes(minor)),
                "{version}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_release() {
        for info in [
            json!({}),
            json!({"gitVersion": "devel"}),
            json!({"gitVersion": 1}),
            json!({"gitVersion": "v1.37.0+palisade"}),
            json!({"gitVersion": "v1.37.0+palisade", "palisade": {}}),
            json!({"gitVersion": "v1.37.0", "palisade": {"featureGates": {"AppArmor": "yes"}}}),
        ] {
            assert!(announced(&info).is_err(), "{info}");
        }
    }

    #[test]
    fn kubelets_report_their_extensions() {
        for kubelet in [KubeVersion::Designs, KubeVersion::Release { minor: 27, patch: 3 }] {
            assert_eq!(kubelet_of(&kubelet_version(kubelet)), Some(kubelet));
        }
        assert_eq!(kubelet_of("unknown"), None);
    }
}
