//! `PSAEnforcementConfig` as a kind of the API: what it is called, and its schema.
//!
//! Implements: `PSAEnforcementConfig`, "New API". The design names neither group nor plural nor the name of the one
//! object there is; these are the ones OpenShift's conventions lead to.

use serde_json::{Value, json};

/// The API group.
pub const GROUP: &str = "config.openshift.io";
/// The version.
pub const VERSION: &str = "v1alpha1";
/// The kind.
pub const KIND: &str = "PSAEnforcementConfig";
/// The plural name.
pub const PLURAL: &str = "psaenforcementconfigs";
/// The name of the one object there is.
pub const NAME: &str = "cluster";

/// The kind itself, as a CustomResourceDefinition.
pub const CUSTOM_RESOURCE_DEFINITION: &str = include_str!("../../manifests/crds/psaenforcementconfigs.json");

/// The object as it is created where there is none, without any setting.
#[must_use]
pub fn new_object() -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": KIND,
        "metadata": {"name": NAME},
        "spec": {"enforcementMode": ""},
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{CUSTOM_RESOURCE_DEFINITION, GROUP, KIND, PLURAL, VERSION};
    use crate::enforcement::{
        classify::Reason,
        mode::{SpecMode, StatusMode},
    };

    #[test]
    fn the_definition_matches_the_code() {
        let definition: Value = serde_json::from_str(CUSTOM_RESOURCE_DEFINITION).unwrap();
        assert_eq!(definition["metadata"]["name"], format!("{PLURAL}.{GROUP}"));
        assert_eq!(definition["spec"]["names"]["kind"], KIND);
        let version = &definition["spec"]["versions"][0];
        assert_eq!(version["name"], VERSION);
        let schema = &version["schema"]["openAPIV3Schema"]["properties"];
        let allowed = |part: &str| -> Vec<&str> {
            let values = schema[part]["properties"]["enforcementMode"]["enum"].as_array().unwrap();
            values.iter().filter_map(Value::as_str).collect()
        };
        assert!(allowed("spec").iter().all(|mode| mode.parse::<SpecMode>().is_ok()));
        assert_eq!(allowed("spec").len(), 3);
        assert!(allowed("status").iter().all(|mode| StatusMode::read(mode).as_str() == *mode));
        assert_eq!(allowed("status").len(), 4);
        let entry = &schema["status"]["properties"]["violatingNamespaces"]["items"]["properties"];
        let text = entry["reason"]["description"].as_str().unwrap();
        for reason in
            [Reason::MisconfiguredOpenShift, Reason::SyncerDisabled, Reason::InsufficientConstraints]
        {
            let (prefix, _) = reason.as_str().split_once(':').unwrap();
            assert!(text.contains(prefix), "{prefix}");
        }
    }
}
