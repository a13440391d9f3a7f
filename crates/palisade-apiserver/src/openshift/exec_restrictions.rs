//! Who may not create a pod as it is may not run commands in it either.
//!
//! Implements: OpenShift's admission plugin `security.openshift.io/SCCExecRestrictions`: for `exec` and `attach`, the stored pod is
//! admitted once more as if the user created it, and any constraint may be chosen.

use std::sync::Arc;

use palisade_admission::constraints::Pass;
use palisade_apimachinery::Status;
use palisade_apimachinery::scheme::LATEST;
use serde_json::Value;

use super::SecurityContextConstraint;
use crate::admission_chain::{Admission, Notes, Operation, Plugin, Request};

/// The plugin.
#[derive(Debug)]
pub struct ExecRestrictions(pub(super) Arc<SecurityContextConstraint>);

impl Plugin for ExecRestrictions {
    fn name(&self) -> &'static str {
        "security.openshift.io/SCCExecRestrictions"
    }

    fn validate(&self, request: &Request<'_>, _: Option<&Value>, _: &mut Notes) -> Admission {
        let is_pod = request.kind.group.is_empty() && request.kind.plural == "pods";
        if request.operation != Operation::Connect
            || !is_pod
            || !matches!(request.subresource, "exec" | "attach")
        {
            return Ok(());
        }
        let Some(stored) = request.cluster.get("pods", request.namespace, request.name) else {
            return Err(Status::not_found(request.kind.resource_name(), request.name));
        };
        let kind = LATEST.by_kind("", "v1", "Pod").ok_or_else(|| Status::internal("pods are not known"))?;
        let mut pod = Value::Object(stored.parse());
        if let Value::Object(fields) = &mut pod {
            fields.insert("apiVersion".to_owned(), "v1".into());
            fields.insert("kind".to_owned(), "Pod".into());
        }
        let create =
            Request { operation: Operation::Create, kind, subresource: "", old_object: None, ..*request };
        // What the plugin would write into a new pod, and note about it, is of no interest.
        match self.0.run(Pass::Mutate, &create, &pod, &mut Notes::default()) {
            Ok(_) => Ok(()),
            Err(status) => Err(request.forbidden(&format!(
                "{} operation is not allowed because the pod's security context exceeds your permissions: {}",
                request.subresource, status.message
            ))),
        }
    }
}
