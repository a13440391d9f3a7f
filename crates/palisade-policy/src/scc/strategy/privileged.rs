//! Whether a container may be privileged.
//!
//! Implements: `allowPrivilegedContainer`.

use palisade_base::field_error::FieldError;
use palisade_model::security_context::SecurityContext;

use super::Place;
use crate::scc::constraint::Constraint;

pub(in crate::scc) fn validate(
    constraint: &Constraint,
    place: Place<'_>,
    context: Option<&SecurityContext<'_>>,
) -> Option<FieldError> {
    let privileged = context.and_then(|context| context.privileged) == Some(true);
    (privileged && !constraint.allow_privileged_container)
        .then(|| place.invalid(&["privileged"], true, "Privileged containers are not allowed"))
}
