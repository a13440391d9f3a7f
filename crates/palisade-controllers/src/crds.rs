//! The kinds that the controllers need, installed where they are missing.
//!
//! OpenShift brings SecurityContextConstraints along, and keeps them: they are made only where they are chosen and there are none, and only
//! those that were made here come with the built-in constraints and their grants.

use palisade_policy::{resources, scc::built_in};
use serde_json::{Value, json};

use crate::api::{Api, ApiError, CUSTOM_RESOURCE_DEFINITIONS, Patch, Resource};

const MANAGER: &str = "palisade-install";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");
/// How long a server may take until it serves a new kind.
const ESTABLISHED_WITHIN: std::time::Duration = std::time::Duration::from_secs(20);

/// Installs what is missing; the kind of constraints only with `constraints`.
pub async fn install(api: &Api, constraints: bool) -> Result<(), ApiError> {
    for ours in resources::DEFINITIONS.iter().filter(|definition| !definition.of_openshift) {
        let Some(object) = definition(ours.text) else { continue };
        let path = CUSTOM_RESOURCE_DEFINITIONS.object(None, ours.name);
        api.patch(&path, MANAGER, Patch::Apply { force: true }, &object).await?;
    }
    if !constraints {
        return Ok(());
    }
    let Some(mut constraints) = definition(built_in::CUSTOM_RESOURCE_DEFINITION) else { return Ok(()) };
    constraints["metadata"]["labels"] = json!({MANAGED_BY: "palisade"});
    let path = CUSTOM_RESOURCE_DEFINITIONS.object(None, name_of(&constraints));
    let existing = match create(api, CUSTOM_RESOURCE_DEFINITIONS, &constraints).await? {
        Some(made) => Some(made),
        None => api.get(&path).await?,
    };
    let is_ours = existing.is_some_and(|object| object["metadata"]["labels"][MANAGED_BY] == "palisade");
    if !is_ours {
        return Ok(());
    }
    served(api, crate::observe::CONSTRAINTS).await?;
    for object in built_in::objects() {
        create(api, crate::observe::CONSTRAINTS, &object).await?;
    }
    for object in built_in::grants() {
        let plural = match object["kind"].as_str() {
            Some("ClusterRole") => "clusterroles",
            _ => "clusterrolebindings",
        };
        create(api, Resource::new(RBAC.0, RBAC.1, plural), &object).await?;
    }
    Ok(())
}

fn definition(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Makes an object; `None` if it is there already.
async fn create(api: &Api, resource: Resource, object: &Value) -> Result<Option<Value>, ApiError> {
    match api.create(&resource.collection(None), MANAGER, object).await {
        Ok(made) => Ok(Some(made)),
        Err(error) if error.is_already_exists() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns when a new kind is served.
async fn served(api: &Api, resource: Resource) -> Result<(), ApiError> {
    let begun = tokio::time::Instant::now();
    loop {
        match api.read(&format!("{}?limit=1", resource.collection(None))).await {
            Err(error) if error.is_not_found() && begun.elapsed() < ESTABLISHED_WITHIN => {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error),
            Ok(_) => return Ok(()),
        }
    }
}
