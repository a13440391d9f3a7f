//! The global `PodSecurityConfiguration` for a state of the rollout.
//!
//! Implements: OpenShift's config observer for Pod Security Admission. Only the level that is enforced by default ever
//! differs: everything is warned about and noted as `restricted` at all times.

use serde_json::{Value, json};

use crate::standards::level::Level;

/// May create any pod: it builds images on behalf of others.
const BUILD_CONTROLLER: &str = "system:serviceaccount:openshift-infra:build-controller";

/// The configuration.
#[must_use]
pub fn pod_security_configuration(enforce: Level) -> Value {
    json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {
            "enforce": enforce.as_str(),
            "enforce-version": "latest",
            "audit": "restricted",
            "audit-version": "latest",
            "warn": "restricted",
            "warn-version": "latest",
        },
        "exemptions": {
            "usernames": [BUILD_CONTROLLER],
            "runtimeClasses": [],
            "namespaces": [],
        },
    })
}

/// A short name for exactly this configuration: instances report it, so that what runs can be compared with what was configured.
#[must_use]
pub fn revision(configuration: &Value) -> String {
    fingerprint(&configuration.to_string())
}

/// A short name for a text. FNV-1a: collisions by accident must be unlikely; deliberate ones do no harm.
#[must_use]
pub fn fingerprint(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The level that a configuration enforces by default: upstream's own default where it names none. `None` if it makes no
/// sense.
#[must_use]
pub fn enforced_by_default(configuration: &Value) -> Option<Level> {
    let defaults = match configuration.get("defaults") {
        None | Some(Value::Null) => return Some(Level::Privileged),
        Some(defaults) => defaults.as_object()?,
    };
    match defaults.get("enforce") {
        None | Some(Value::Null) => Some(Level::Privileged),
        Some(level) => match level.as_str()? {
            "" => Some(Level::Privileged),
            level => level.parse().ok(), // swallowed: the caller takes `None` for a configuration it cannot read
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Level, enforced_by_default, pod_security_configuration, revision};

    #[test]
    fn only_the_enforced_level_differs() {
        let (legacy, enforcing) =
            (pod_security_configuration(Level::Privileged), pod_security_configuration(Level::Restricted));
        assert_eq!(enforced_by_default(&legacy), Some(Level::Privileged));
        assert_eq!(enforced_by_default(&enforcing), Some(Level::Restricted));
        let mut same = legacy.clone();
        same["defaults"]["enforce"] = enforcing["defaults"]["enforce"].clone();
        assert_eq!(same, enforcing);
        assert_ne!(revision(&legacy), revision(&enforcing));
        assert_eq!(revision(&legacy).len(), 16);
    }

    #[test]
    fn what_a_configuration_leaves_out_is_privileged() {
        for (configuration, expected) in [
            (json!({}), Some(Level::Privileged)),
            (json!({"defaults": null}), Some(Level::Privileged)),
            (json!({"defaults": {"warn": "restricted"}}), Some(Level::Privileged)),
            (json!({"defaults": {"enforce": ""}}), Some(Level::Privileged)),
            (json!({"defaults": {"enforce": "baseline"}}), Some(Level::Baseline)),
            (json!({"defaults": {"enforce": "strict"}}), None),
            (json!({"defaults": {"enforce": 7}}), None),
            (json!({"defaults": 7}), None),
        ] {
            assert_eq!(enforced_by_default(&configuration), expected, "{configuration}");
        }
    }
}
