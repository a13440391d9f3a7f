//! Constraint objects on their way into the store: gaps are filled, nonsense is refused.
//!
//! Implements: OpenShift's admission plugins `security.openshift.io/DefaultSecurityContextConstraints` and
//! `security.openshift.io/ValidateSecurityContextConstraints`; the rules are `palisade_policy::scc::object`'s.

use palisade_apimachinery::Status;
use palisade_policy::scc::constraint::Constraint;
use palisade_policy::scc::object;
use serde_json::Value;

use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};

fn concerns(request: &Request<'_>) -> bool {
    request.is("security.openshift.io", "securitycontextconstraints")
        && matches!(request.operation, Operation::Create | Operation::Update)
}

/// The plugin that fills gaps.
#[derive(Debug, Clone, Copy)]
pub struct DefaultSecurityContextConstraints;

impl Plugin for DefaultSecurityContextConstraints {
    fn name(&self) -> &'static str {
        "security.openshift.io/DefaultSecurityContextConstraints"
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, _: &mut Notes) -> Admission {
        if concerns(request)
            // swallowed: the judging pass rejects what cannot be read
            && let Ok(constraint) = Constraint::read(object)
        {
            for change in object::defaults(&constraint, object) {
                change.apply(object);
            }
        }
        Ok(())
    }
}

/// The plugin that refuses nonsense.
#[derive(Debug, Clone, Copy)]
pub struct ValidateSecurityContextConstraints;

impl Plugin for ValidateSecurityContextConstraints {
    fn name(&self) -> &'static str {
        "security.openshift.io/ValidateSecurityContextConstraints"
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, _: &mut Notes) -> Admission {
        let Some(object) = object.filter(|_| concerns(request)) else { return Ok(()) };
        let constraint = Constraint::read(object).map_err(|error| {
            Status::bad_request(format!("SecurityContextConstraints cannot be decoded: {}", error.source))
        })?;
        let errors = object::validate(&constraint);
        if errors.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(request.kind.kind_name(), request.name, &errors, request.kind.emulated))
    }
}
