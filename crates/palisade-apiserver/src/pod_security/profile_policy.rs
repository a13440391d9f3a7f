//! `ProfilePolicy` as a plugin: pods get the default profile of their namespace's policies and may name only allowed ones.
//!
//! A policy that cannot be read is reported as a warning and left out: one mistake must not stop every pod.

use std::sync::Arc;

use palisade_admission::profile_policies::{StoredPolicy, defaults, refusal, select};
use palisade_apimachinery::Status;
use palisade_model::compat::Compat;
use serde_json::Value;

use super::namespace_labels;
use super::rules::{read_pod, undecodable};
use crate::admission_chain::{Notes, Operation, Plugin, Request};
use crate::storage::Object;

/// Where policies are stored.
const RESOURCE: &str = "profilepolicies.palisade.dev";

/// The plugin.
#[derive(Debug, Clone, Copy)]
pub struct ProfilePolicyPlugin {
    /// Whose rules about annotations.
    pub compat: Compat,
}

impl ProfilePolicyPlugin {
    /// The policies of the server, by name.
    fn stored(request: &Request<'_>) -> Vec<StoredPolicy> {
        let read = |object: Arc<Object>| {
            StoredPolicy::read(object.name(), &mut serde_json::Deserializer::from_slice(&object.json))
        };
        request.cluster.list(RESOURCE, "").into_iter().map(read).collect()
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
        let stored = Self::stored(request);
        if stored.is_empty() {
            return Ok(());
        }
        // Mistakes in policies are told once, by the judging pass.
        let (policies, _) = select(&stored, &namespace_labels(request)?);
        for change in defaults(&policies, object, &self.compat) {
            change.apply(object);
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
        let stored = Self::stored(request);
        if stored.is_empty() {
            return Ok(());
        }
        let (policies, warnings) = select(&stored, &namespace_labels(request)?);
        notes.warnings.extend(warnings);
        let old = request.old_object.filter(|_| request.operation == Operation::Update);
        let pod = read_pod(object, old, &self.compat).map_err(|error| undecodable(request.kind, &error))?;
        refusal(&policies, &pod).map_or(Ok(()), |why| Err(request.forbidden(&why)))
    }
}
