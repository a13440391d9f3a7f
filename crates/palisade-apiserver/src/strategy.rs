//! The steps around storing an object, and the few facts about kinds that only a server needs.

use palisade_apimachinery::rest::{self, CreateContext, Extra};
use palisade_apimachinery::{Kind, Status};
use palisade_base::field_error::FieldError;
use serde_json::Value;

use crate::admission_chain::RuleReview;
use crate::admission_policies;
use crate::api::Call;
use crate::certificates;
use crate::meta;
use crate::webhooks;

/// Completes and validates a new object; returns warnings.
pub(crate) fn before_create(
    call: &Call<'_>,
    kind: &Kind,
    object: &mut Value,
    now: &str,
    sent: &mut Vec<String>,
) -> Result<Vec<String>, Box<Status>> {
    certificates::before_create(kind, object, call.user);
    let RuleReview { notices, mut errors, warnings } = call.api.rules.review(kind, "", object, None)?;
    sent.extend(notices);
    errors.extend(condition_errors(kind, object, None));
    errors.extend(certificates::errors(kind, object, None));
    let extra = Extra { errors, warnings };
    let context = CreateContext {
        namespace: if kind.namespaced { &call.info.namespace } else { "" },
        now,
        uid: &meta::new_uid(),
        suffix: &meta::random_suffix(),
    };
    rest::before_create(kind, object, &context, &extra)
}

/// Completes and validates a changed object; returns warnings.
pub(crate) fn before_update(
    call: &Call<'_>,
    kind: &Kind,
    subresource: &str,
    object: &mut Value,
    old: &Value,
    sent: &mut Vec<String>,
) -> Result<Vec<String>, Box<Status>> {
    certificates::before_update(kind, object, old);
    let RuleReview { notices, mut errors, warnings } =
        call.api.rules.review(kind, subresource, object, Some(old))?;
    sent.extend(notices);
    errors.extend(condition_errors(kind, object, Some(old)));
    errors.extend(certificates::errors(kind, object, Some(old)));
    let extra = Extra { errors, warnings };
    rest::before_update(kind, object, old, subresource, &extra)
}

/// What is wrong with the expressions of a webhook configuration or admission policy; those that were stored before are let be.
fn condition_errors(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if kind.group != "admissionregistration.k8s.io" {
        return Vec::new();
    }
    let changed = |field: &str| old.is_none_or(|old| old.get(field) != object.get(field));
    if kind.kind.ends_with("AdmissionPolicy") {
        return if changed("spec") { admission_policies::compile_errors(object) } else { Vec::new() };
    }
    if changed("webhooks") { webhooks::compile_errors(object) } else { Vec::new() }
}

/// Kinds that are updated without a resource version only by mistake.
#[must_use]
pub(crate) fn needs_resource_version(kind: &Kind) -> bool {
    kind.is_custom()
        || matches!(
            (kind.group.as_str(), kind.plural.as_str()),
            ("coordination.k8s.io", "leases") | ("apiextensions.k8s.io", "customresourcedefinitions")
        )
}

/// Kinds where replacing what is not there makes it.
#[must_use]
pub(crate) fn may_create_on_update(kind: &Kind) -> bool {
    matches!(
        (kind.group.as_str(), kind.plural.as_str()),
        ("" | "events.k8s.io", "events")
            | ("", "endpoints" | "services" | "limitranges")
            | ("coordination.k8s.io", "leases" | "leasecandidates")
            | ("node.k8s.io", "runtimeclasses")
            | (
                "rbac.authorization.k8s.io",
                "roles" | "clusterroles" | "rolebindings" | "clusterrolebindings"
            )
    )
}

/// Kinds whose deletion is answered with the object instead of a `Status`.
#[must_use]
pub(crate) fn returns_deleted_object(kind: &Kind) -> bool {
    matches!(
        (kind.group.as_str(), kind.plural.as_str()),
        (
            "",
            "pods"
                | "podtemplates"
                | "persistentvolumeclaims"
                | "persistentvolumes"
                | "resourcequotas"
                | "serviceaccounts"
                | "services"
                | "namespaces"
        ) | ("policy", "podsecuritypolicies")
            | ("apiextensions.k8s.io", _)
    )
}
