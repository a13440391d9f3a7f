//! Pods get the constraint that the user or their service account may use, and what it writes into them.
//!
//! Implements: OpenShift's admission plugin `security.openshift.io/SecurityContextConstraint`. A constraint that makes
//! no sense is skipped with a warning; upstream refuses every pod then.
//!
//! Leaves to others: the choice and its texts (`palisade_policy::scc::choose`).

use palisade_apimachinery::Status;
use palisade_model::compat::Compat;
use palisade_model::metadata::ObjectMeta;
use palisade_model::pod::Pod;
use palisade_policy::scc::choose::{self, Admission, Identity, Malformed, Subject};
use palisade_policy::scc::decision::{Decision, Outcome};
use palisade_policy::scc::evaluate::Options;
use palisade_policy::scc::run_level;
use palisade_policy::scc::update::is_insignificant;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::constraints::{Constraints, Reading};
use crate::admission_chain::{Notes, Operation, Plugin, Request};
use crate::auth::UserInfo;
use crate::auth::rbac::Attributes;

/// The plugin.
#[derive(Debug)]
pub struct SecurityContextConstraint {
    options: Options,
    constraints: Constraints,
}

/// Which half of the plugin runs.
#[derive(Debug, Clone, Copy)]
enum Pass {
    Mutate,
    Validate,
}

impl SecurityContextConstraint {
    /// The plugin for a release or the designs.
    #[must_use]
    pub fn new(compat: &Compat) -> Self {
        let options = Options { config_map_profiles: compat.is_designs(), ..Options::default() };
        Self { options, constraints: Constraints::default() }
    }

    /// Whether constraints have a say, and what the user is told if they do not.
    fn concerns(request: &Request<'_>, namespace: &ObjectMeta<'_>, notes: &mut Notes) -> bool {
        match run_level::skip_warning(run_level::PLUGIN, request.namespace, &namespace.labels) {
            Some(warning) => {
                note(&mut notes.warnings, warning);
                false
            }
            None => true,
        }
    }

    fn run(
        &self,
        pass: Pass,
        request: &Request<'_>,
        object: &Value,
        notes: &mut Notes,
    ) -> Result<Option<Outcome>, Box<Status>> {
        let is_pod = request.kind.group.is_empty() && request.kind.plural == "pods";
        if !is_pod || !matches!(request.operation, Operation::Create | Operation::Update) {
            return Ok(None);
        }
        let stored: Option<Map<String, Value>> =
            request.cluster.get("namespaces", "", request.namespace).map(|namespace| namespace.parse());
        let namespace = stored.as_ref().and_then(|stored| metadata(stored.get("metadata")));
        if !Self::concerns(request, &namespace.clone().unwrap_or_default(), notes) {
            return Ok(None);
        }
        // What cannot be read as a pod is refused by validation, in better words.
        let Ok(pod) = Pod::deserialize(object) else { return Ok(None) };
        let reading = self.constraints.read(request.cluster);
        let old_annotations = request.old_object.and_then(|old| metadata(old.get("metadata")));
        let old_annotations = old_annotations.map(|metadata| metadata.annotations).unwrap_or_default();
        let operation = match request.old_object {
            Some(old) if request.operation == Operation::Update => choose::Operation::Update {
                old_annotations: &old_annotations,
                is_insignificant: is_insignificant(old, object),
            },
            _ => choose::Operation::Create,
        };
        let authorizer = |identity: &Identity<'_>, constraint: &str| may_use(request, identity, constraint);
        let asked = choose::Request {
            operation,
            subresource: request.subresource,
            pod: &pod,
            namespace: request.namespace,
            namespace_annotations: namespace.as_ref().map(|metadata| &metadata.annotations),
            user: &request.user.name,
            groups: &request.user.groups,
            authorizer: &authorizer,
        };
        let admission = Admission {
            constraints: &reading.constraints,
            options: self.options,
            malformed: Malformed::Skip,
            // The store is never half filled, so a missing constraint was removed on purpose.
            require_standard: false,
        };
        let outcome = match pass {
            Pass::Mutate => admission.mutate(&asked),
            Pass::Validate => admission.validate(&asked),
        };
        report(&reading, &outcome, notes);
        if let Decision::Refused(refusal) = &outcome.decision {
            let name = match pod.metadata.display_name() {
                "" => "Unknown",
                name => name,
            };
            return Err(Status::forbidden(request.kind.resource_name(), name, &refusal.to_string()));
        }
        Ok(Some(outcome))
    }
}

impl Plugin for SecurityContextConstraint {
    fn name(&self) -> &'static str {
        run_level::PLUGIN
    }

    fn admit(&self, request: &Request<'_>, object: &mut Value, notes: &mut Notes) -> Result<(), Box<Status>> {
        let outcome = self.run(Pass::Mutate, request, object, notes)?;
        if let Some(Outcome { decision: Decision::Admitted(admitted), .. }) = outcome {
            for change in &admitted.changes {
                change.apply(object);
            }
        }
        Ok(())
    }

    fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Value>,
        notes: &mut Notes,
    ) -> Result<(), Box<Status>> {
        let Some(object) = object else { return Ok(()) };
        self.run(Pass::Validate, request, object, notes).map(|_| ())
    }
}

/// Whether somebody may `use` a constraint in the namespace of the request.
fn may_use(request: &Request<'_>, identity: &Identity<'_>, constraint: &str) -> bool {
    let attributes = Attributes {
        verb: "use",
        group: "security.openshift.io",
        version: "v1",
        resource: "securitycontextconstraints",
        subresource: "",
        namespace: request.namespace,
        name: constraint,
        path: "",
    };
    match identity.subject {
        Subject::User => request.cluster.authorized(request.user, &attributes),
        Subject::ServiceAccount => {
            let groups = identity.groups.to_vec();
            let account = UserInfo { name: identity.name.to_owned(), groups, ..UserInfo::default() };
            request.cluster.authorized(&account, &attributes)
        }
    }
}

/// What the user and the audit log are told. Both passes may say the same; once is enough, and the first word counts.
fn report(reading: &Reading, outcome: &Outcome, notes: &mut Notes) {
    let unreadable = reading.errors.iter().map(|error| (error.name.as_str(), error.to_string()));
    let skipped = outcome.skipped.iter().map(|error| (error.constraint.as_str(), error.to_string()));
    for (name, why) in unreadable.chain(skipped) {
        note(&mut notes.warnings, format!("SecurityContextConstraints {name:?} is skipped: {why}"));
    }
    for (key, value) in outcome.audit.iter() {
        if !notes.audit.iter().any(|(known, _)| known == key) {
            notes.audit.push((key.to_owned(), value.to_owned()));
        }
    }
}

fn note(warnings: &mut Vec<String>, warning: String) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

fn metadata(value: Option<&Value>) -> Option<ObjectMeta<'_>> {
    value.and_then(|metadata| ObjectMeta::deserialize(metadata).ok())
}
