//! What upstream's controllers do to a definition after it was created: accept its names, establish it, end it.
//!
//! Implements: `k8s.io/apiextensions-apiserver/pkg/controller/{status,establish,finalizer}`.

use serde_json::{Value, json};

use crate::apply::{self, Manager};
use crate::scheme::Kind;

/// The finalizer that keeps a definition until its objects are gone.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

fn condition(kind: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now})
}

/// The definition with its names accepted and established, as the status update of `kube-apiserver` leaves it.
#[must_use]
pub fn establish(kind: &Kind, definition: &Value, now: &str) -> Value {
    let mut new = definition.clone();
    let names = definition.pointer("/spec/names").cloned().unwrap_or(Value::Null);
    if let Some(status) = crate::kinds::section(&mut new, "status") {
        status["acceptedNames"] = names;
        status["conditions"] = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted", now),
        ]);
    }
    kind.canonicalize(&mut new);
    let manager = Manager { name: "kube-apiserver", subresource: "status", now };
    apply::on_update(kind, Some(definition), &mut new, &manager);
    new
}

/// Marks a definition that is being deleted.
pub fn terminate(definition: &mut Value, now: &str) {
    let Some(status) = crate::kinds::section(definition, "status") else { return };
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let new = condition("Terminating", "InstanceDeletionPending", message, now);
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        Some(list) => {
            list.retain(|c| c.get("type").and_then(Value::as_str) != Some("Terminating"));
            list.push(new);
        }
        None => status["conditions"] = json!([new]),
    }
}

/// Whether a definition of this status serves its kinds.
#[must_use]
pub fn is_established(status: &Value) -> bool {
    status.get("conditions").and_then(Value::as_array).is_some_and(|list| {
        list.iter().any(|c| {
            c.get("type").and_then(Value::as_str) == Some("Established")
                && c.get("status").and_then(Value::as_str) == Some("True")
        })
    })
}
