//! `ProfilePolicy`: pods get the default profile of their namespace's policies and may name only allowed ones.
//!
//! A policy that cannot be read is reported as a warning and left out: one mistake must not stop every pod.

use palisade_model::{
    change::Change,
    compat::Compat,
    metadata::StringMap,
    pod::Pod,
    prepare::{Prepared, Subject},
};
use palisade_policy::profiles::policy::ProfilePolicy;
use serde::Deserialize;
use serde_json::Value;

/// A stored policy, as far as it could be read.
#[derive(Debug, Clone)]
pub struct StoredPolicy {
    name: String,
    read: Result<ProfilePolicy, String>,
}

impl StoredPolicy {
    /// Reads an object of the API.
    pub fn read<'de, D: serde::Deserializer<'de>>(name: &str, object: D) -> Self {
        let read = ProfilePolicy::deserialize(object).map_err(|error| error.to_string());
        Self { name: name.to_owned(), read }
    }
}

/// The policies for a namespace, in the given order, and what is wrong with those that are left out.
#[must_use]
pub fn select<'p>(
    stored: impl IntoIterator<Item = &'p StoredPolicy>,
    namespace_labels: &StringMap<'_>,
) -> (Vec<&'p ProfilePolicy>, Vec<String>) {
    let (mut policies, mut warnings) = (Vec::new(), Vec::new());
    for entry in stored {
        match &entry.read {
            Ok(policy) if !policy.selects(namespace_labels) => {}
            Ok(policy) => {
                let problems = policy.problems();
                if problems.is_empty() {
                    policies.push(policy);
                } else {
                    let problems = problems.join("; ");
                    warnings.push(format!("ProfilePolicy {:?} is not applied: {problems}", entry.name));
                }
            }
            Err(error) => {
                warnings.push(format!("ProfilePolicy {:?} is not applied: {error}", entry.name));
            }
        }
    }
    (policies, warnings)
}

/// What the policies write into a new pod.
#[must_use]
pub fn defaults(policies: &[&ProfilePolicy], object: &Value, compat: &Compat) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut object = object.clone();
    for policy in policies {
        let made = match Pod::deserialize(&object) {
            Ok(pod) => policy.defaults(&Prepared::new(pod, Subject::Pod, compat)),
            // What cannot be read as a pod is refused by validation, in better words.
            Err(_) => break,
        };
        for change in &made {
            change.apply(&mut object);
        }
        changes.extend(made);
    }
    changes
}

/// Why the policies refuse a pod; `None` if they do not.
#[must_use]
pub fn refusal(policies: &[&ProfilePolicy], pod: &Prepared<'_>) -> Option<String> {
    let violations: Vec<String> = policies
        .iter()
        .flat_map(|policy| policy.violations(pod))
        .map(|violation| format!("{}: {}", violation.at, violation.message))
        .collect();
    (!violations.is_empty()).then(|| violations.join(", "))
}
