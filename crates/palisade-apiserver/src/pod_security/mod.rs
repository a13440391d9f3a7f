//! Pods as this product sees them, put into the server: the rules of storing them, Pod Security Admission, allowed
//! profiles and the profile strategies of PodSecurityPolicy.
//!
//! Leaves to others: what is allowed and why (`palisade-model`, `palisade-policy`, `palisade-admission`); here requests
//! are turned into their questions and answers into statuses, warnings and audit annotations.

mod app_armor_profiles;
mod exceptions;
mod existing_pods;
mod existing_templates;
mod plugin;
mod profile_policy;
mod psp;
mod rules;

pub use app_armor_profiles::AppArmorProfilePlugin;
pub use exceptions::SecurityExceptionPlugin;
pub use plugin::PodSecurityPlugin;
pub use profile_policy::ProfilePolicyPlugin;
pub use psp::PodSecurityPolicyPlugin;
pub use rules::PodRules;

use palisade_apimachinery::Status;
use palisade_base::go::Quoted;
use palisade_model::metadata::StringMap;

use crate::admission_chain::Request;

/// The labels of the namespace of a request.
fn namespace_labels(request: &Request<'_>) -> Result<StringMap<'static>, Box<Status>> {
    let namespace = request.cluster.get("namespaces", "", request.namespace);
    let Some(namespace) = namespace else {
        // A pod cannot be judged without its namespace's labels.
        return Err(Status::internal(format!("failed to lookup namespace {}", Quoted(request.namespace))));
    };
    let owned = namespace.labels().map(|(key, value)| (key.to_owned().into(), value.to_owned().into()));
    Ok(owned.collect())
}
