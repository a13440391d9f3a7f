//! The constraints every OpenShift cluster has.
//!
//! Implements: the manifests of OpenShift's API server operator, value by value; the descriptions are our own. A
//! ClusterRole `system:openshift:scc:<name>` goes with each, and everyone may use `restricted-v2` and `restricted-v3`.

use serde_json::{Value, json};

use super::{constraint::Constraint, set::ConstraintSet};

/// A built-in constraint.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// The name.
    pub name: &'static str,
    /// The object, as JSON.
    pub manifest: &'static str,
    /// Whether it is written once and then left to the administrators.
    pub create_only: bool,
}

macro_rules! built_in {
    ($($name:literal $create_only:literal),+ $(,)?) => {
        &[$(BuiltIn {
            name: $name,
            manifest: include_str!(concat!("../../manifests/scc/", $name, ".json")),
            create_only: $create_only,
        }),+]
    };
}

/// All of them, by name.
pub const BUILT_IN: &[BuiltIn] = built_in![
    "anyuid" true,
    "hostaccess" true,
    "hostmount-anyuid" true,
    "hostmount-anyuid-v2" true,
    "hostnetwork" true,
    "hostnetwork-v2" false,
    "nested-container" false,
    "nonroot" true,
    "nonroot-v2" false,
    "privileged" true,
    "restricted" true,
    "restricted-v2" false,
    "restricted-v3" false,
];

/// The kind itself, as a CustomResourceDefinition.
pub const CUSTOM_RESOURCE_DEFINITION: &str =
    include_str!("../../manifests/crds/securitycontextconstraints.json");

/// Those without which upstream's admission takes its cache for unfinished, by name.
pub const STANDARD: [&str; 10] = [
    "anyuid",
    "hostaccess",
    "hostmount-anyuid",
    "hostnetwork",
    "hostnetwork-v2",
    "nonroot",
    "nonroot-v2",
    "privileged",
    "restricted",
    "restricted-v2",
];

/// Those that the group `system:authenticated` may use.
pub const FOR_EVERYONE: [&str; 2] = ["restricted-v2", "restricted-v3"];

/// The ClusterRole that lets its holders use a constraint.
#[must_use]
pub fn cluster_role(constraint: &str) -> String {
    format!("system:openshift:scc:{constraint}")
}

/// Whether a constraint of this name is built in, and so has its ClusterRole.
#[must_use]
pub fn is_built_in(constraint: &str) -> bool {
    BUILT_IN.iter().any(|built_in| built_in.name == constraint)
}

/// The built-in constraints as objects of the API.
pub fn objects() -> impl Iterator<Item = Value> {
    // swallowed: the tests read every one of them
    BUILT_IN.iter().filter_map(|built_in| serde_json::from_str(built_in.manifest).ok())
}

/// The roles that let their holders use a built-in constraint, and the bindings that give some to everyone.
pub fn grants() -> impl Iterator<Item = Value> {
    let role = |name: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": cluster_role(name)},
            "rules": [{
                "apiGroups": ["security.openshift.io"],
                "resources": ["securitycontextconstraints"],
                "resourceNames": [name],
                "verbs": ["use"],
            }],
        })
    };
    let binding = |name: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": cluster_role(name)},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": cluster_role(name),
            },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Group",
                "name": "system:authenticated",
            }],
        })
    };
    let roles = BUILT_IN.iter().map(move |built_in| role(built_in.name));
    roles.chain(FOR_EVERYONE.into_iter().map(binding))
}

/// The built-in constraints.
#[must_use]
pub fn constraints() -> ConstraintSet {
    // swallowed: the tests read every one of them
    ConstraintSet::new(objects().filter_map(|object| Constraint::read(&object).ok()).collect())
}

#[cfg(test)]
mod tests {
    use palisade_model::metadata::StringMap;

    use serde_json::Value;

    use super::{BUILT_IN, CUSTOM_RESOURCE_DEFINITION, STANDARD, constraints, objects};
    use crate::{
        scc::{
            constraint::Constraint, namespace_ranges::NamespaceRanges, order::points,
            to_standard::implied_level,
        },
        standards::level::Level,
    };

    #[test]
    fn every_manifest_can_be_read_and_bears_its_name() {
        let names: Vec<_> =
            objects().map(|object| Constraint::read(&object).unwrap().metadata.name).collect();
        assert_eq!(names, BUILT_IN.iter().map(|built_in| built_in.name).collect::<Vec<_>>());
        assert!(STANDARD.iter().all(|name| names.iter().any(|own| own == name)));
    }

    /// Not a validator: what the schema requires is there, and nothing that it does not declare.
    #[test]
    fn the_schema_knows_every_field_of_every_manifest() {
        let definition: Value = serde_json::from_str(CUSTOM_RESOURCE_DEFINITION).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let known = schema["properties"].as_object().unwrap();
        for object in objects() {
            let fields = object.as_object().unwrap();
            assert!(fields.keys().all(|field| known.contains_key(field)), "{object}");
            let required = schema["required"].as_array().unwrap();
            assert!(required.iter().all(|field| fields.contains_key(field.as_str().unwrap())), "{object}");
        }
        // And our own type has every field of the schema.
        let every = serde_json::to_value(Constraint::default()).unwrap();
        let unknown = known.keys().filter(|field| every.get(field).is_none()).collect::<Vec<_>>();
        assert_eq!(unknown, ["apiVersion", "kind"]);
    }

    #[test]
    fn order_score_and_level_are_those_of_the_documented_table() {
        use Level::{Baseline, Privileged, Restricted};
        let annotations: StringMap<'_> = serde_json::from_str(
            r#"{"openshift.io/sa.scc.uid-range":"1000650000/10000","openshift.io/sa.scc.mcs":"s0:c26,c5"}"#,
        )
        .unwrap();
        let namespace = NamespaceRanges::new("ns", &annotations);
        let constraints = constraints();
        let table: Vec<_> = constraints
            .iter()
            .map(|c| (c.name(), points(c), implied_level(c, &namespace).unwrap().level))
            .collect();
        assert_eq!(
            table,
            [
                ("anyuid", 154_950, Baseline),
                ("restricted-v2", 132_010, Restricted),
                ("restricted-v3", 132_010, Restricted),
                ("restricted", 134_800, Baseline),
                ("nested-container", 135_020, Privileged),
                ("nonroot-v2", 142_010, Restricted),
                ("nonroot", 144_800, Baseline),
                ("hostmount-anyuid", 254_950, Privileged),
                ("hostmount-anyuid-v2", 284_950, Privileged),
                ("hostnetwork-v2", 1_332_010, Privileged),
                ("hostnetwork", 1_334_800, Privileged),
                ("hostaccess", 1_434_800, Privileged),
                ("privileged", 3_089_000, Privileged),
            ]
        );
    }
}
