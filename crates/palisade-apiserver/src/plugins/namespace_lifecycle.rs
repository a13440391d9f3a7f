//! Objects only go into namespaces that exist and are not on their way out; some namespaces stay for ever.
//!
//! Implements: Admission Control, "NamespaceLifecycle".
//! <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#namespacelifecycle>

use palisade_apimachinery::Status;
use palisade_apimachinery::status::{Cause, GroupName};
use serde_json::Value;

use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};

/// Cannot be deleted.
const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

/// The plugin.
#[derive(Debug, Clone, Copy)]
pub struct NamespaceLifecycle;

impl NamespaceLifecycle {
    fn check(request: &Request<'_>) -> Result<(), Box<Status>> {
        if request.operation == Operation::Delete
            && request.is("", "namespaces")
            && IMMORTAL.contains(&request.name)
        {
            return Err(request.forbidden("this namespace may not be deleted"));
        }
        if request.namespace.is_empty()
            || (request.kind.group.is_empty() && request.kind.plural == "namespaces")
        {
            return Ok(());
        }
        // Reviews are not stored, and who may not delete a pod of a lost namespace could never clean up.
        if matches!(request.operation, Operation::Delete | Operation::Connect)
            || (request.kind.group == "authorization.k8s.io"
                && request.kind.plural == "localsubjectaccessreviews")
        {
            return Ok(());
        }
        let Some(namespace) = request.cluster.get("namespaces", "", request.namespace) else {
            return Err(Status::not_found(GroupName::new("", "namespaces"), request.namespace));
        };
        if request.operation != Operation::Create {
            return Ok(());
        }
        let terminating = namespace.view(|json| Terminating::read(json));
        if !terminating.0 {
            return Ok(());
        }
        let name = request.namespace;
        let mut status = request.forbidden(&format!(
            "unable to create new content in namespace {name} because it is being terminated"
        ));
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: "NamespaceTerminating".into(),
                message: format!("namespace {name} is being terminated"),
                field: "metadata.namespace".to_owned(),
            });
        }
        Err(status)
    }
}

impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn admit(&self, request: &Request<'_>, _: &mut InReview, _: &mut Notes) -> Admission {
        Self::check(request)
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        if object.is_none() { Self::check(request) } else { Ok(()) }
    }
}

/// Whether a namespace is on its way out.
struct Terminating(bool);

impl Terminating {
    fn read(json: &[u8]) -> Self {
        // swallowed: nothing is created in a namespace that cannot be read
        let Ok(object) = serde_json::from_slice::<Value>(json) else { return Self(true) };
        Self(object.pointer("/metadata/deletionTimestamp").is_some_and(|t| !t.is_null()))
    }
}
