//! Custom resources of a cluster: those with a pod template are evaluated by it.
//!
//! Read once, through discovery: which kinds a cluster has is its own business. What cannot be listed is undecided.

use palisade_controllers::api::Api;
use serde_json::{Value, json};

/// As many objects as one answer holds.
const PAGE: usize = 500;

/// Groups whose kinds are read elsewhere, or make no pods. Custom resources may be in other groups of `k8s.io`.
const BUILT_IN: &[&str] = &[
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "apps.openshift.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "config.openshift.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "extensions",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "metrics.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "palisade.dev",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "security.openshift.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Every custom resource; where a kind cannot be listed, its `apiVersion` and `kind` and why.
pub(super) async fn list(api: &Api) -> Vec<(Value, Option<String>)> {
    let mut found = Vec::new();
    let missing = |api_version: &str, kind: &str, why: &str| {
        (json!({"apiVersion": api_version, "kind": kind}), Some(format!("cannot be listed: {why}")))
    };
    let groups = match api.get("/apis").await {
        Ok(groups) => groups.unwrap_or_default(),
        Err(error) => return vec![missing("", "APIGroupList", &error.to_string())],
    };
    for group in groups["groups"].as_array().into_iter().flatten() {
        let name = group["name"].as_str().unwrap_or_default();
        let Some(api_version) = group.pointer("/preferredVersion/groupVersion").and_then(Value::as_str)
        else {
            continue;
        };
        if BUILT_IN.contains(&name) {
            continue;
        }
        let resources = match api.get(&format!("/apis/{api_version}")).await {
            Ok(resources) => resources.unwrap_or_default(),
            Err(error) => {
                found.push(missing(api_version, "APIResourceList", &error.to_string()));
                continue;
            }
        };
        for resource in resources["resources"].as_array().into_iter().flatten() {
            let text = |key: &str| resource[key].as_str().unwrap_or_default();
            let verbs = resource["verbs"].as_array();
            let is_listed = verbs.into_iter().flatten().any(|verb| verb == "list");
            if !is_listed || text("name").contains('/') {
                continue;
            }
            let mut token = String::new();
            loop {
                let path = format!("/apis/{api_version}/{}?limit={PAGE}&continue={token}", text("name"));
                let page = match api.get(&path).await {
                    Ok(Some(page)) => page,
                    Ok(None) => break,
                    Err(error) => {
                        found.push(missing(api_version, text("kind"), &error.to_string()));
                        break;
                    }
                };
                for item in page["items"].as_array().into_iter().flatten() {
                    let mut item = item.clone();
                    if let Value::Object(fields) = &mut item {
                        fields.insert("apiVersion".to_owned(), api_version.into());
                        fields.insert("kind".to_owned(), text("kind").into());
                    }
                    found.push((item, None));
                }
                // Tokens are opaque, and made of what a query takes.
                page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
                if token.is_empty() {
                    break;
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::BUILT_IN;

    #[test]
    fn custom_resources_in_groups_of_kubernetes_are_listed() {
        assert!(BUILT_IN.is_sorted());
        for (group, expected) in [
            ("rbac.authorization.k8s.io", true),
            ("palisade.dev", true),
            ("sparkoperator.k8s.io", false),
            ("jobset.x-k8s.io", false),
            ("notpalisade.dev", false),
        ] {
            assert_eq!(BUILT_IN.contains(&group), expected, "{group}");
        }
    }
}
