//! Custom resources of a cluster: those with a pod template are evaluated by it.
//!
//! Read once, through discovery: which kinds a cluster has is its own business. What cannot be listed is undecided.

use palisade_controllers::api::Api;
use serde_json::{Value, json};

/// As many objects as one answer holds.
const PAGE: usize = 500;

/// Groups whose kinds are read elsewhere, or make no pods.
fn is_built_in(group: &str) -> bool {
    matches!(group, "apps" | "batch" | "autoscaling" | "policy" | "extensions" | "apps.openshift.io")
        || group.ends_with(".k8s.io")
        || group.ends_with("palisade.dev")
        || matches!(group, "security.openshift.io" | "config.openshift.io")
}

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
        if is_built_in(name) {
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
