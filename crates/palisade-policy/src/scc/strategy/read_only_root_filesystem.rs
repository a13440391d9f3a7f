//! Whether a container may write to its image's file system.
//!
//! Implements: `readOnlyRootFilesystem`.

use palisade_base::field_error::FieldError;

use super::{NULL, Place};
use crate::scc::constraint::Constraint;

/// The value for a container that leaves it open.
#[must_use]
pub fn assign(constraint: &Constraint) -> Option<bool> {
    constraint.read_only_root_filesystem.then_some(true)
}

pub(in crate::scc) fn validate(
    constraint: &Constraint,
    place: Place<'_>,
    read_only: Option<bool>,
) -> Option<FieldError> {
    if !constraint.read_only_root_filesystem {
        return None;
    }
    let (value, detail) = match read_only {
        Some(true) => return None,
        Some(false) => ("false", "ReadOnlyRootFilesystem must be set to true"),
        None => (NULL, "ReadOnlyRootFilesystem may not be nil and must be set to true"),
    };
    Some(place.invalid(&["readOnlyRootFilesystem"], value, detail))
}
