//! `ProfilePolicy` as a plugin: pods get the default profile of their namespace's policies and may name only allowed ones.
//!
//! A policy that cannot be read is reported as a warning and left out: one mistake must not stop every pod.

use palisade_apimachinery::Status;
use palisade_model::compat::Compat;
use palisade_model::pod_view::PodView;
use palisade_policy::profiles::policy::ProfilePolicy;
use serde_json::Value;

use super::namespace_labels;
use super::rules::read_pod;
use crate::admission_chain::{Notes, Operation, Plugin, Request};

/// Where policies are stored.
const RESOURCE: &str = "profilepolicies.palisade.dev";

/// The plugin.
#[derive(Debug, Clone, Copy)]
pub struct ProfilePolicyPlugin {
    /// Whose rules about annotations.
    pub compat: Compat,
}

impl ProfilePolicyPlugin {
    /// The policies for the namespace of a request, by name.
    fn policies(request: &Request<'_>, notes: &mut Notes) -> Vec<ProfilePolicy> {
        let stored = request.cluster.list(RESOURCE, "");
        if stored.is_empty() {
            return Vec::new();
        }
        let labels = namespace_labels(request).unwrap_or_default();
        let mut policies = Vec::new();
        for object in stored {
            match serde_json::from_slice::<ProfilePolicy>(&object.json) {
                Ok(policy) => {
                    if !policy.selects(&labels) {
                        continue;
                    }
                    let problems = policy.problems();
                    if problems.is_empty() {
                        policies.push(policy);
                    } else {
                        notes.warnings.push(format!(
                            "ProfilePolicy {:?} is not applied: {}",
                            object.name(),
                            problems.join("; ")
                        ));
                    }
                }
                Err(error) => {
                    notes.warnings.push(format!("ProfilePolicy {:?} is not applied: {error}", object.name()));
                }
            }
        }
        policies
    }

    fn concerns(request: &Request<'_>) -> bool {
        let is_pod = request.kind.group.is_empty() && request.kind.plural == "pods";
        match request.operation {
            Operation::Create => is_pod && request.subresource.is_empty(),
            // Annotations of a running pod may change, and so may what counts on an older node.
            Operation::Update => is_pod && matches!(request.subresource, "" | "ephemeralcontainers"),
            _ => false,
        }
    }
}

impl Plugin for ProfilePolicyPlugin {
    fn name(&self) -> &'static str {
        "ProfilePolicy"
    }

    fn admit(&self, request: &Request<'_>, object: &mut Value, _: &mut Notes) -> Result<(), Box<Status>> {
        if request.operation != Operation::Create || !Self::concerns(request) {
            return Ok(());
        }
        // Mistakes in policies are told once, by the judging pass.
        for policy in Self::policies(request, &mut Notes::default()) {
            let changes = match read_pod(object, &self.compat) {
                Some(pod) => policy.defaults(&PodView::of_pod(&pod)),
                None => return Ok(()),
            };
            for change in &changes {
                change.apply(object);
            }
        }
        Ok(())
    }

    fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Value>,
        notes: &mut Notes,
    ) -> Result<(), Box<Status>> {
        let Some(object) = object.filter(|_| Self::concerns(request)) else { return Ok(()) };
        let policies = Self::policies(request, notes);
        if policies.is_empty() {
            return Ok(());
        }
        let Some(pod) = read_pod(object, &self.compat) else { return Ok(()) };
        let view = PodView::of_pod(&pod);
        let violations: Vec<String> = policies
            .iter()
            .flat_map(|policy| policy.violations(&view, &self.compat))
            .map(|violation| format!("{}: {}", violation.at, violation.message))
            .collect();
        if violations.is_empty() { Ok(()) } else { Err(request.forbidden(&violations.join(", "))) }
    }
}
