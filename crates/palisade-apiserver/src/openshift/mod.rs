//! What makes the server an OpenShift one: security context constraints and the `PSAEnforcementConfig`.
//!
//! Implements: OpenShift's admission plugins about constraints, and the objects its operators install. A server that is
//! not requested them has none of this.
//!
//! Leaves to others: what a constraint allows (`palisade_policy::scc`), and the rollout itself
//! (`palisade-controllers`).

mod constraints;
mod exec_restrictions;
mod namespace_ranges;
mod objects;
mod scc_admission;

pub use exec_restrictions::ExecRestrictions;
pub use namespace_ranges::NamespaceSecurityAllocation;
pub(crate) use namespace_ranges::fill as fill_namespace_ranges;
pub use objects::{DefaultSecurityContextConstraints, ValidateSecurityContextConstraints};
pub use scc_admission::SecurityContextConstraint;

use std::sync::Arc;

use palisade_model::compat::Compat;
use palisade_policy::enforcement::resource;
use palisade_policy::scc::built_in;
use serde_json::Value;

use crate::admission_chain::Plugin;
use crate::api::Api;
use crate::meta;
use crate::server::bootstrap;

/// The plugins, in upstream's order.
#[must_use]
pub fn plugins(compat: &Compat) -> Vec<Arc<dyn Plugin>> {
    let constraints = Arc::new(SecurityContextConstraint::new(compat));
    vec![
        Arc::new(NamespaceSecurityAllocation::default()),
        Arc::new(DefaultSecurityContextConstraints),
        constraints.clone(),
        Arc::new(ValidateSecurityContextConstraints),
        Arc::new(ExecRestrictions(constraints)),
    ]
}

/// Makes both kinds, without objects: a snapshot may bring those.
pub(crate) async fn install_definitions(api: &Arc<Api>) {
    put_all(api, definitions()).await;
}

/// Makes what is missing: both kinds, the built-in constraints with their grants, the one configuration object.
pub(crate) async fn install(api: &Arc<Api>) {
    let objects = definitions().into_iter().chain(built_in::objects()).chain(built_in::grants());
    put_all(api, objects.chain([resource::new_object()])).await;
    fill_namespace_ranges(api).await;
}

fn definitions() -> Vec<Value> {
    let definitions = [built_in::CUSTOM_RESOURCE_DEFINITION, resource::CUSTOM_RESOURCE_DEFINITION];
    // swallowed: the tests read every one of them
    definitions.into_iter().filter_map(|text| serde_json::from_str(text).ok()).collect()
}

async fn put_all(api: &Arc<Api>, objects: impl IntoIterator<Item = Value>) {
    for object in objects {
        // Each definition makes the next objects servable.
        let served = api.registry.served();
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        match served.by_kind(text("apiVersion"), text("kind")) {
            Some(entry) => bootstrap::put(api, entry, "", object).await,
            None => {
                tracing::error!(kind = text("kind"), name = meta::meta_text(&object, "name"), "not served");
            }
        }
    }
}
