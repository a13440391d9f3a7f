//! Every kind of ours, as a CustomResourceDefinition: the one place `palisade install`, `palisade controller --install-crds`
//! and the embedded API server take them from.
//!
//! Implements: `apiextensions.k8s.io/v1` with structural schemas, in what API servers since v1.24 support.

use serde_json::Value;

use crate::{
    enforcement::{resource, waves},
    scc::built_in,
};

/// AppArmor profiles of namespaces.
pub const APP_ARMOR_PROFILES: &str = include_str!("../manifests/crds/apparmorprofiles.json");
/// Which profiles pods may name.
pub const PROFILE_POLICIES: &str = include_str!("../manifests/crds/profilepolicies.json");
/// The bytes of a profile, by their hash.
pub const PUBLISHED_PROFILES: &str = include_str!("../manifests/crds/publishedprofiles.json");
/// What a node supports and enforces.
pub const NODE_SECURITY_REPORTS: &str = include_str!("../manifests/crds/nodesecurityreports.json");
/// Findings that are accepted for a while.
pub const SECURITY_EXCEPTIONS: &str = include_str!("../manifests/crds/securityexceptions.json");
/// System calls that no container may make.
pub const SYSCALL_GUARDS: &str = include_str!("../manifests/crds/syscallguards.json");

/// Workloads whose system calls are recorded.
pub const PROFILE_RECORDINGS: &str = include_str!("../manifests/crds/profilerecordings.json");
/// What one node has recorded.
pub const NODE_RECORDINGS: &str = include_str!("../manifests/crds/noderecordings.json");

/// A definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// The name of the definition, `<plural>.<group>`.
    pub name: &'static str,
    /// The definition, as JSON.
    pub text: &'static str,
    /// Whether OpenShift brings it along, in which case theirs must be left alone.
    pub of_openshift: bool,
}

/// All of them, by name.
pub const DEFINITIONS: &[Definition] = &[
    Definition { name: "apparmorprofiles.palisade.dev", text: APP_ARMOR_PROFILES, of_openshift: false },
    Definition { name: "noderecordings.palisade.dev", text: NODE_RECORDINGS, of_openshift: false },
    Definition { name: "nodesecurityreports.palisade.dev", text: NODE_SECURITY_REPORTS, of_openshift: false },
    Definition {
        name: "podsecurityrollouts.palisade.dev",
        text: waves::CUSTOM_RESOURCE_DEFINITION,
        of_openshift: false,
    },
    Definition { name: "profilepolicies.palisade.dev", text: PROFILE_POLICIES, of_openshift: false },
    Definition { name: "profilerecordings.palisade.dev", text: PROFILE_RECORDINGS, of_openshift: false },
    Definition {
        name: "psaenforcementconfigs.config.openshift.io",
        text: resource::CUSTOM_RESOURCE_DEFINITION,
        of_openshift: false,
    },
    Definition { name: "publishedprofiles.palisade.dev", text: PUBLISHED_PROFILES, of_openshift: false },
    Definition {
        name: "securitycontextconstraints.security.openshift.io",
        text: built_in::CUSTOM_RESOURCE_DEFINITION,
        of_openshift: true,
    },
    Definition { name: "securityexceptions.palisade.dev", text: SECURITY_EXCEPTIONS, of_openshift: false },
    Definition { name: "syscallguards.palisade.dev", text: SYSCALL_GUARDS, of_openshift: false },
];

/// The definitions as objects, by name.
#[must_use]
pub fn custom_resource_definitions() -> Vec<Value> {
    // swallowed: the tests read every one of them
    DEFINITIONS.iter().filter_map(|definition| serde_json::from_str(definition.text).ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{DEFINITIONS, custom_resource_definitions};

    /// What apiextensions requires of every node of a structural schema that these schemas could get wrong.
    fn structural(path: &str, schema: &Value, problems: &mut Vec<String>) {
        if schema["type"].as_str().is_none() && schema["x-kubernetes-int-or-string"] != true {
            problems.push(format!("{path} has no type"));
        }
        for unknown_to_older_servers in ["x-kubernetes-validations", "$ref", "oneOf", "const", "definitions"]
        {
            if schema.get(unknown_to_older_servers).is_some() {
                problems.push(format!("{path} has {unknown_to_older_servers}"));
            }
        }
        if schema["x-kubernetes-list-type"] == "map" {
            // A server-side apply that empties such a list leaves a null behind on older servers, which their own
            // validation then refuses. Conditions are never empty.
            if !path.ends_with(".conditions") && !path.ends_with(".violatingNamespaces") {
                problems.push(format!("{path} is a map and may become empty"));
            }
            let required = schema["items"]["required"].as_array().cloned().unwrap_or_default();
            for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
                if !required.contains(key) {
                    problems.push(format!("{path}: map key {key} is not required"));
                }
            }
        }
        for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if schema["properties"].get(required).is_none() {
                problems.push(format!("{path}: required {required} is not described"));
            }
        }
        for (name, part) in schema["properties"].as_object().into_iter().flatten() {
            let own = path.is_empty() && !matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            if own && part["description"].as_str().is_none_or(str::is_empty) {
                problems.push(format!("{path}.{name} is not described: kubectl explain shows nothing"));
            }
            structural(&format!("{path}.{name}"), part, problems);
        }
        for nested in ["items", "additionalProperties"] {
            if schema[nested].is_object() {
                structural(&format!("{path}[]"), &schema[nested], problems);
            }
        }
    }

    #[test]
    fn schemas_are_structural_and_described() {
        let objects = custom_resource_definitions();
        assert_eq!(objects.len(), DEFINITIONS.len());
        for (definition, object) in DEFINITIONS.iter().zip(&objects) {
            let spec = &object["spec"];
            assert_eq!(object["metadata"]["name"], definition.name);
            let made =
                format!("{}.{}", spec["names"]["plural"].as_str().unwrap(), spec["group"].as_str().unwrap());
            assert_eq!(made, definition.name);
            let is_namespaced =
                definition.name.contains("recordings.") || definition.name.starts_with("apparmorprofiles.");
            assert_eq!(spec["scope"], if is_namespaced { "Namespaced" } else { "Cluster" });
            let mut problems = Vec::new();
            for version in spec["versions"].as_array().unwrap() {
                structural("", &version["schema"]["openAPIV3Schema"], &mut problems);
                assert!(!version["additionalPrinterColumns"].as_array().unwrap().is_empty());
            }
            assert!(problems.is_empty(), "{}: {problems:#?}", definition.name);
        }
    }
}
