//! What a constraint assigns and demands, one file for each area.
//!
//! Implements: OpenShift, "About security context constraints", "Strategies". Every strategy has up to two halves:
//! what it assigns to a pod that leaves the field open, and its problems with the final value.

pub mod capabilities;
pub mod flex_volumes;
pub mod fs_group;
pub mod groups;
pub mod host;
pub mod privilege_escalation;
pub mod privileged;
pub mod read_only_root_filesystem;
pub mod run_as_user;
pub mod se_linux;
pub mod seccomp;
pub mod supplemental_groups;
pub mod sysctls;
pub mod volumes;

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

use palisade_base::{
    field_error::{BadValue, FieldError},
    field_path::FieldPath,
};
use palisade_model::pod_view::ContainerKind;
use thiserror::Error;

/// What `field.Error` prints for a pointer to nothing, up to Kubernetes v1.33.
pub(super) const NULL: &str = "\"null\"";

/// A constraint with an unknown strategy, or an incomplete one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StrategyError {
    /// The type of a strategy is none of the known ones.
    #[error("Unrecognized {area} strategy type {kind}")]
    Unrecognized {
        /// The field, as upstream capitalizes it.
        area: &'static str,
        /// The type.
        kind: String,
    },
    /// `MustRunAs` without the user to run as.
    #[error("MustRunAs requires a UID")]
    UidMissing,
    /// `MustRunAsRange` with the upper end only.
    #[error("MustRunAsRange requires a UIDRangeMin")]
    UidRangeMinMissing,
    /// `MustRunAsRange` with the lower end only.
    #[error("MustRunAsRange requires a UIDRangeMax")]
    UidRangeMaxMissing,
}

/// A security context of a pod or of a container, as upstream names it in errors and where it really is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'s> {
    constraint: &'s str,
    container: Option<(ContainerKind, usize)>,
}

impl<'s> Place<'s> {
    pub(super) const fn pod(constraint: &'s str) -> Self {
        Self { constraint, container: None }
    }

    pub(super) const fn container(constraint: &'s str, kind: ContainerKind, index: usize) -> Self {
        Self { constraint, container: Some((kind, index)) }
    }

    /// A field of the security context.
    pub(super) fn field(&self, fields: &[&'static str]) -> FieldPath {
        let context = match self.container {
            None => FieldPath::of(&["spec", "securityContext"]),
            Some((kind, index)) => {
                FieldPath::of(&["spec", kind.field()]).index(index).field("securityContext")
            }
        };
        context.fields(fields)
    }

    /// What upstream calls a field here: its root is a sentence, not a path.
    pub(super) fn name(&self, fields: &str) -> String {
        let mut name = format!("provider {}: ", self.constraint);
        // Writing to a string cannot fail.
        let _ = match self.container {
            None => write!(name, ".spec.securityContext.{fields}"),
            Some((kind, index)) => write!(name, ".{}[{index}].{fields}", kind.field()),
        };
        name
    }

    /// A value of the security context that does not do; `value` is already printed.
    pub(super) fn invalid(
        &self,
        fields: &[&'static str],
        value: impl fmt::Display,
        detail: impl Into<Cow<'static, str>>,
    ) -> FieldError {
        let value = BadValue::Plain(value.to_string());
        FieldError::invalid(self.field(fields), value, detail).called(self.name(&fields.join(".")))
    }

    /// A field of the security context that must be set.
    pub(super) fn required(&self, fields: &[&'static str], detail: &'static str) -> FieldError {
        FieldError::required(self.field(fields), detail).called(self.name(&fields.join(".")))
    }
}
