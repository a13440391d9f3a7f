//! The cluster's own feature gates, where it has the object.
//!
//! Implements: `FeatureGate` of `config.openshift.io/v1`, `status.featureGates`: the gates by version. While a cluster is
//! upgraded there is more than one version; a gate counts as enabled only if all of them enable it.

use serde_json::Value;

/// The gate of the rollout.
pub const GATE: &str = "OpenShiftPodSecurityAdmission";
/// The name of the one object there is.
pub const NAME: &str = "cluster";

/// Whether the object enables the gate; `None` if it is not the cluster's object, or reports nothing yet: then what is known
/// stays. A gate that is not named is not in the feature set.
#[must_use]
pub fn enabled(object: &Value) -> Option<bool> {
    if object["metadata"]["name"] != NAME {
        return None;
    }
    let versions = object.pointer("/status/featureGates").and_then(Value::as_array)?;
    let names = |version: &Value| {
        let enabled = version["enabled"].as_array();
        enabled.into_iter().flatten().any(|gate| gate["name"] == GATE)
    };
    (!versions.is_empty()).then(|| versions.iter().all(names))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{GATE, enabled};

    #[test]
    fn a_gate_is_enabled_if_every_version_enables_it() {
        let on = |version: &str| json!({"version": version, "enabled": [{"name": GATE}], "disabled": []});
        let off = |version: &str| json!({"version": version, "enabled": [{"name": "Other"}]});
        let object =
            |gates: Value| json!({"metadata": {"name": "cluster"}, "status": {"featureGates": gates}});
        for (case, object, expected) in [
            ("on", object(json!([on("4.20")])), Some(true)),
            ("off", object(json!([off("4.20")])), Some(false)),
            ("in the middle of an upgrade", object(json!([on("4.21"), off("4.20")])), Some(false)),
            ("on in both", object(json!([on("4.21"), on("4.20")])), Some(true)),
            ("nothing reported yet", object(json!([])), None),
            ("no status", json!({"metadata": {"name": "cluster"}}), None),
            (
                "another object",
                json!({"metadata": {"name": "x"}, "status": {"featureGates": [on("1")]}}),
                None,
            ),
        ] {
            assert_eq!(enabled(&object), expected, "{case}");
        }
    }
}
