//! What SCC admission decided, in data and in upstream's sentences.
//!
//! Implements: the texts of OpenShift's admission plugin `security.openshift.io/SecurityContextConstraint`.

use palisade_base::{
    field_error::{FieldError, aggregate},
    go::Quoted,
};
use palisade_model::{change::Change, pod::Pod};
use thiserror::Error;

use super::{
    audit::Audit,
    choose::{REQUIRED, Subject},
    provider::ProviderError,
};

/// What became of a request.
#[derive(Debug, Clone)]
pub struct ConstraintOutcome {
    /// The decision.
    pub decision: ConstraintDecision,
    /// What goes to the audit log.
    pub audit: Audit,
    /// Constraints that were skipped; worth a warning in the log, a metric or an event.
    pub skipped: Vec<ProviderError>,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConstraintDecision {
    /// Constraints do not apply.
    Ignored,
    /// A constraint allows it.
    Admitted(Admitted),
    /// None does, or something is wrong.
    Refused(Refusal),
}

/// By what a pod was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The constraint.
    pub constraint: String,
    /// Through whom it could be used.
    pub subject: Subject,
    /// What to write into the pod; nothing in the validating pass.
    pub changes: Vec<Change>,
}

/// Why a pod was refused: upstream's sentences, without their beginning (see [`Refusal::message`]).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The constraint a pod requires cannot change.
    #[error("invalid change of required security context constraint annotation: {REQUIRED}")]
    RequiredChanged,
    /// Another constraint was chosen than the one required.
    #[error("required scc/{required} does not match the suggested scc/{suggested}")]
    RequiredNotSuggested {
        /// The one required.
        required: String,
        /// The one chosen.
        suggested: String,
    },
    /// Built-in constraints are missing.
    #[error("securitycontextconstraints.security.openshift.io cache is missing {}", .names.join(", "))]
    StandardMissing {
        /// The missing ones.
        names: Vec<&'static str>,
    },
    /// The required constraint does not exist.
    #[error(
        "failed to retrieve the required SCC {0}: securitycontextconstraints.security.openshift.io {0} not found",
        Quoted(.name)
    )]
    RequiredMissing {
        /// The one required.
        name: String,
    },
    /// There are no constraints.
    #[error("no SecurityContextConstraints found in cluster")]
    NoConstraints,
    /// There is no such namespace.
    #[error("error fetching namespace {0}: namespace {0} not found", Quoted(.namespace))]
    NamespaceMissing {
        /// The namespace.
        namespace: String,
    },
    /// The namespace was not given its ranges yet.
    #[error("error fetching namespace {}: unable to find annotation {annotation}", Quoted(.namespace))]
    AnnotationMissing {
        /// The namespace.
        namespace: String,
        /// What is missing.
        annotation: &'static str,
    },
    /// Constraints make no sense, and none is left or none may be skipped.
    #[error("{}", aggregate(.0))]
    Malformed(Vec<ProviderError>),
    /// No constraint admits the pod.
    #[error("unable to validate against any security context constraint: {text}")]
    NotValidated {
        /// The problems of each constraint with it, in order.
        problems: Vec<FieldError>,
        /// The same, as upstream prints it in this pass.
        text: String,
    },
}

impl Refusal {
    /// The whole sentence, as the API server's `Forbidden` status has it.
    #[must_use]
    pub fn message(&self, pod: &Pod<'_>) -> String {
        let name = match pod.metadata.display_name() {
            "" => "Unknown",
            name => name,
        };
        format!("pods {} is forbidden: {self}", Quoted(name))
    }
}

impl ConstraintOutcome {
    pub(super) fn ignored() -> Self {
        Self { decision: ConstraintDecision::Ignored, audit: Audit::default(), skipped: Vec::new() }
    }

    pub(super) fn refused(refusal: Refusal) -> Self {
        Self { decision: ConstraintDecision::Refused(refusal), audit: Audit::default(), skipped: Vec::new() }
    }
}
