//! Whether a container may be privileged.
//!
//! Implements: `allowPrivilegedContainer`.

use palisade_model::{problem::Problem, security_context::SecurityContext};

use super::Place;
use crate::scc::constraint::Constraint;

pub(in crate::scc) fn validate(
    constraint: &Constraint,
    place: Place<'_>,
    context: Option<&SecurityContext<'_>>,
) -> Option<Problem> {
    let privileged = context.and_then(|context| context.privileged) == Some(true);
    (privileged && !constraint.allow_privileged_container)
        .then(|| place.invalid(&["privileged"], true, "Privileged containers are not allowed"))
}
