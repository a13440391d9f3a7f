//! Pods get the constraint that the user or their service account may use, and what it writes into them.
//!
//! Implements: OpenShift's admission plugin `security.openshift.io/SecurityContextConstraint`, from a request to what is
//! reported and written. A constraint that makes no sense is skipped with a warning; upstream refuses every pod then.
//!
//! Leaves to others: the choice and its texts (`palisade_policy::scc::choose`), and where constraints and grants come from.

use palisade_model::{
    change::Change,
    compat::Compat,
    json::from_value,
    metadata::ObjectMeta,
    pod::Pod,
    prepare::{Prepared, Subject as PodSubject},
};
use palisade_policy::scc::{
    choose::{self, Admission, Authorizer, Malformed},
    constraint::ReadError,
    decision::{ConstraintDecision, ConstraintOutcome},
    evaluate::Options,
    mode::ConstraintMode,
    run_level,
    set::ConstraintSet,
    update::is_insignificant,
};
use serde_json::Value;

/// Which half of the plugin runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// A constraint is chosen, and writes into the pod.
    Mutate,
    /// The pod must be what a constraint would have made of it.
    Validate,
}

/// The constraints of a cluster, and what judging by them depends on.
#[derive(Debug, Clone, Copy)]
pub struct Constraints<'c> {
    /// Those that could be read.
    pub set: &'c ConstraintSet,
    /// Those that could not.
    pub unreadable: &'c [ReadError],
    /// What the answer depends on besides pod and constraint.
    pub options: Options,
    /// Whether they are in force, or only report.
    pub mode: ConstraintMode,
}

/// A pod that is created or changed.
#[derive(Clone, Copy)]
pub struct ConstraintRequest<'q> {
    /// Which half of the plugin calls.
    pub pass: Pass,
    /// Whose reading of the pod is judged.
    pub compat: &'q Compat,
    /// The pod as it shall be.
    pub object: &'q Value,
    /// The pod as it is, if it is there already.
    pub old: Option<&'q Value>,
    /// Through which subresource; empty for the pod itself.
    pub subresource: &'q str,
    /// The namespace's name.
    pub namespace: &'q str,
    /// The namespace; `None` if there is no such.
    pub metadata: Option<&'q ObjectMeta<'q>>,
    /// The requesting user's name.
    pub user: &'q str,
    /// The requesting user's groups.
    pub groups: &'q [String],
    /// Grants besides those in the constraints.
    pub authorizer: &'q Authorizer<'q>,
}

/// What became of it.
#[derive(Debug, Default)]
pub struct ConstraintReview {
    /// What to write into the pod.
    pub changes: Vec<Change>,
    /// Why it is refused: the pod's name, and upstream's sentence.
    pub refused: Option<(String, String)>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Annotations for the audit log.
    pub audit: Vec<(String, String)>,
}

/// The audit annotation that reports what constraints would do.
pub const WOULD: &str = "security-context-constraints";

impl ConstraintReview {
    /// The same as a report: nothing is written and nothing is rejected.
    fn reported(self) -> Self {
        let would = match (&self.refused, self.changes.len()) {
            (Some((_, why)), _) => Some(format!("would reject the pod: {why}")),
            (None, 0) => None,
            (None, 1) => Some("would change 1 field of the pod".to_owned()),
            (None, count) => Some(format!("would change {count} fields of the pod")),
        };
        let mut warnings = self.warnings;
        let mut audit = Vec::new();
        if let Some(would) = would {
            warnings.push(format!("SecurityContextConstraints, in audit mode, {would}"));
            audit.push((WOULD.to_owned(), would));
        }
        Self { warnings, audit, ..Self::default() }
    }
}

impl Constraints<'_> {
    /// Judges one request about a pod.
    #[must_use]
    pub fn judge(&self, request: &ConstraintRequest<'_>) -> ConstraintReview {
        match (self.mode, request.pass) {
            (ConstraintMode::Enforce, _) => self.judge_in_force(request),
            // Where there are no constraints yet, there is nothing to report of them.
            (ConstraintMode::Audit, Pass::Mutate) if self.set.is_empty() => ConstraintReview::default(),
            (ConstraintMode::Audit, Pass::Mutate) => self.judge_in_force(request).reported(),
            // What constraints would have written is not there, and was reported before.
            (ConstraintMode::Audit, Pass::Validate) | (ConstraintMode::Off, _) => ConstraintReview::default(),
        }
    }

    fn judge_in_force(&self, request: &ConstraintRequest<'_>) -> ConstraintReview {
        let mut judged = ConstraintReview::default();
        if choose::ignores_subresource(request.subresource) {
            return judged;
        }
        let nothing = ObjectMeta::default();
        let labels = &request.metadata.unwrap_or(&nothing).labels;
        if let Some(warning) = run_level::skip_warning(run_level::PLUGIN, request.namespace, labels) {
            judged.warnings.push(warning);
            return judged;
        }
        let (pod, old) =
            match (from_value::<Pod<'_>>(request.object), request.old.map(from_value::<Pod<'_>>).transpose())
            {
                (Ok(pod), Ok(old)) => (pod, old),
                (Err(error), _) | (_, Err(error)) => {
                    let name = request.object.pointer("/metadata/name").and_then(Value::as_str);
                    let why = format!("cannot decode the pod: {error}");
                    judged.refused = Some((name.unwrap_or("Unknown").to_owned(), why));
                    return judged;
                }
            };
        let pod = match request.pass {
            Pass::Mutate => Prepared::written(pod, old.as_ref(), PodSubject::Pod, request.compat),
            // What was written by then is what will be stored.
            Pass::Validate => Prepared::stored(pod, request.compat),
        };
        let old = old.map(|old| old.metadata).unwrap_or_default();
        let operation = match request.old {
            None => choose::Operation::Create,
            Some(before) => choose::Operation::Update {
                old_annotations: &old.annotations,
                is_insignificant: is_insignificant(before, request.object),
            },
        };
        let chosen = choose::Request {
            operation,
            subresource: request.subresource,
            pod: &pod,
            namespace: request.namespace,
            namespace_annotations: request.metadata.map(|metadata| &metadata.annotations),
            user: request.user,
            groups: request.groups,
            authorizer: request.authorizer,
        };
        let admission = Admission {
            constraints: self.set,
            options: self.options,
            malformed: Malformed::Skip,
            // The constraints are known before the first request, so a missing one was removed on purpose.
            require_standard: false,
        };
        let outcome = match request.pass {
            Pass::Mutate => admission.mutate(&chosen),
            Pass::Validate => admission.validate(&chosen),
        };
        self.report(&outcome, &mut judged);
        match outcome.decision {
            ConstraintDecision::Ignored => {}
            ConstraintDecision::Admitted(admitted) => judged.changes = admitted.changes,
            ConstraintDecision::Refused(refusal) => {
                let name = match pod.pod().metadata.display_name() {
                    "" => "Unknown",
                    name => name,
                };
                judged.refused = Some((name.to_owned(), refusal.to_string()));
            }
        }
        judged
    }

    fn report(&self, outcome: &ConstraintOutcome, judged: &mut ConstraintReview) {
        let unreadable = self.unreadable.iter().map(|error| (error.name.as_str(), error.to_string()));
        let skipped = outcome.skipped.iter().map(|error| (error.constraint.as_str(), error.to_string()));
        for (name, why) in unreadable.chain(skipped) {
            judged.warnings.push(format!("SecurityContextConstraints {name:?} is skipped: {why}"));
        }
        let audit = outcome.audit.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        judged.audit.extend(audit);
    }
}
