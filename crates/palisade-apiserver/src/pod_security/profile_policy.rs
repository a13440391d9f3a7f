//! `ProfilePolicy` as a plugin: pods get the default profile of their namespace's policies and may name only allowed ones.
//!
//! A policy that cannot be applied is rejected when it is written. One that is stored all the same (another release wrote it)
//! rejects the pods it is for.

use std::sync::Arc;

use palisade_admission::profile_policies::{self, StoredPolicy, defaults, refusal, select};
use palisade_apimachinery::Status;
use palisade_base::field_path::FieldPath;
use palisade_model::{
    change::{Change, NewValue},
    compat::Compat,
    profile::published::BASELINE_ANNOTATION,
};
use palisade_policy::profiles::policy::{ProfilePolicy, tenant_baseline};
use serde_json::Value;

use super::namespace_labels;
use super::rules::{read_pod, undecodable};
use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};
use crate::storage::Object;

/// Where policies are stored.
const RESOURCE: &str = "profilepolicies.palisade.dev";

/// What a pod states that its profiles from ConfigMaps and registries are combined with.
fn stated_baseline(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(BASELINE_ANNOTATION)?.as_str()
}

/// What pods of the namespace state, if that is not the default of the runtime.
fn required_baseline(policies: &[&ProfilePolicy]) -> Option<String> {
    tenant_baseline(policies).filter(|baseline| !baseline.is_default()).map(|baseline| baseline.to_string())
}

/// The plugin.
#[derive(Debug, Clone, Copy)]
pub struct ProfilePolicyPlugin {
    /// Whose rules about annotations.
    pub compat: Compat,
}

impl ProfilePolicyPlugin {
    /// The policies of the server, by name.
    fn stored(request: &Request<'_>) -> Vec<StoredPolicy> {
        let read = |object: Arc<Object>| match serde_json::from_slice(&object.json) {
            Ok(value) => StoredPolicy::read(object.name(), &value),
            Err(error) => StoredPolicy::unreadable(object.name(), &error.to_string()),
        };
        request.cluster.list(RESOURCE, "").into_iter().map(read).collect()
    }

    const fn has_profiles_of_tenants(&self) -> bool {
        self.compat.has_config_map_profiles() || self.compat.has_oci_profiles()
    }

    fn judge_policy(request: &Request<'_>, object: &Value) -> Result<(), Box<Status>> {
        if !matches!(request.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        let problems = profile_policies::problems(object);
        if problems.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(request.kind.kind_name(), request.name, &problems, request.kind.emulated))
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

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        if request.operation != Operation::Create || !Self::concerns(request) {
            return Ok(());
        }
        let stored = Self::stored(request);
        if stored.is_empty() {
            return Ok(());
        }
        // Policies that cannot be applied are the judging pass's business.
        let selection = select(&stored, &namespace_labels(request)?);
        let changes = defaults(&selection.policies, object, &self.compat)
            .map_err(|error| undecodable(request.kind, &error))?;
        for change in changes {
            change.apply(object);
        }
        // One that is stated where none is required is rejected by the judging pass.
        if self.has_profiles_of_tenants()
            && let Some(baseline) = required_baseline(&selection.policies)
        {
            let at = FieldPath::of(&["metadata", "annotations"]).key(BASELINE_ANNOTATION);
            Change { at, to: NewValue::Text(baseline) }.apply(object);
        }
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let Some(object) = object else { return Ok(()) };
        if request.is("palisade.dev", "profilepolicies") {
            return Self::judge_policy(request, object);
        }
        if !Self::concerns(request) {
            return Ok(());
        }
        let stored = Self::stored(request);
        let with_baseline = self.has_profiles_of_tenants();
        if stored.is_empty() && !with_baseline {
            return Ok(());
        }
        let selection = select(&stored, &namespace_labels(request)?);
        if let Some(why) = selection.refusal() {
            return Err(request.forbidden(&why));
        }
        let policies = &selection.policies;
        let (pod, _) = read_pod(request, object, &self.compat)?;
        let created = request.operation == Operation::Create;
        let mut why = refusal(policies, &pod);
        // Updates may not change it.
        if with_baseline && created && stated_baseline(object) != required_baseline(policies).as_deref() {
            let text = "is set by the ProfilePolicy objects of the namespace";
            why = why.or_else(|| Some(format!("metadata.annotations[{BASELINE_ANNOTATION}]: {text}")));
        }
        why.map_or(Ok(()), |why| Err(request.forbidden(&why)))
    }
}
