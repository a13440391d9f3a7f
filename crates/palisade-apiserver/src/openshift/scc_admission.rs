//! Pods get the constraint that the user or their service account may use, and what it writes into them.
//!
//! Implements: OpenShift's admission plugin `security.openshift.io/SecurityContextConstraint`. A constraint that makes
//! no sense is skipped with a warning; upstream refuses every pod then.
//!
//! Leaves to others: what is judged and reported (`palisade_admission::constraints`), the choice and its texts
//! (`palisade_policy::scc::choose`).

use palisade_admission::constraints::{ConstraintRequest, ConstraintReview, Constraints as Judges, Pass};
use palisade_apimachinery::Status;
use palisade_model::change::Change;
use palisade_model::compat::Compat;
use palisade_model::metadata::ObjectMeta;
use palisade_policy::scc::choose::{Identity, Subject};
use palisade_policy::scc::evaluate::Options;
use palisade_policy::scc::mode::ConstraintMode;
use palisade_policy::scc::run_level;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::constraints::Constraints;
use crate::admission_chain::{Admission, InReview, Notes, Operation, Plugin, Request};
use crate::auth::UserInfo;
use crate::auth::rbac::Attributes;

/// The plugin.
#[derive(Debug)]
pub struct SecurityContextConstraint {
    compat: Compat,
    options: Options,
    constraints: Constraints,
}

impl SecurityContextConstraint {
    /// The plugin for a release or Palisade's extensions.
    #[must_use]
    pub fn new(compat: &Compat) -> Self {
        let options = Options {
            config_map_profiles: compat.has_config_map_profiles(),
            oci_profiles: compat.has_oci_profiles(),
            ..Options::default()
        };
        Self { compat: *compat, options, constraints: Constraints::default() }
    }

    pub(super) fn run(
        &self,
        pass: Pass,
        request: &Request<'_>,
        object: &Value,
        notes: &mut Notes,
    ) -> Result<Vec<Change>, Box<Status>> {
        let is_pod = request.kind.group.is_empty() && request.kind.plural == "pods";
        if !is_pod || !matches!(request.operation, Operation::Create | Operation::Update) {
            return Ok(Vec::new());
        }
        let stored: Option<Map<String, Value>> =
            request.cluster.get("namespaces", "", request.namespace).map(|namespace| namespace.parse());
        let namespace = stored.as_ref().and_then(|stored| metadata(stored.get("metadata")));
        let reading = self.constraints.read(request.cluster);
        let judges = Judges {
            set: &reading.constraints,
            unreadable: &reading.errors,
            options: self.options,
            mode: ConstraintMode::Enforce,
        };
        let ConstraintReview { changes, refused, warnings, audit } = judges.judge(&ConstraintRequest {
            pass,
            compat: &self.compat,
            object,
            old: request.old_object.filter(|_| request.operation == Operation::Update),
            subresource: request.subresource,
            namespace: request.namespace,
            metadata: namespace.as_ref(),
            user: &request.user.name,
            groups: &request.user.groups,
            authorizer: &|identity, constraint| may_use(request, identity, constraint),
        });
        // Both passes may report the same; each is kept once, in the order of the first.
        for warning in warnings {
            if !notes.warnings.contains(&warning) {
                notes.warnings.push(warning);
            }
        }
        for (key, value) in audit {
            if !notes.audit.iter().any(|(known, _)| *known == key) {
                notes.audit.push((key, value));
            }
        }
        match refused {
            Some((name, why)) => Err(Status::forbidden(request.kind.resource_name(), &name, &why)),
            None => Ok(changes),
        }
    }
}

impl Plugin for SecurityContextConstraint {
    fn name(&self) -> &'static str {
        run_level::PLUGIN
    }

    fn admit(&self, request: &Request<'_>, object: &mut InReview, notes: &mut Notes) -> Admission {
        for change in self.run(Pass::Mutate, request, object, notes)? {
            change.apply(object);
        }
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>, notes: &mut Notes) -> Admission {
        let Some(object) = object else { return Ok(()) };
        self.run(Pass::Validate, request, object, notes).map(|_| ())
    }
}

/// Whether a user may `use` a constraint in the namespace of the request.
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
        node: "",
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

fn metadata(value: Option<&Value>) -> Option<ObjectMeta<'_>> {
    // swallowed: a namespace that cannot be read has no ranges, and a pod without ranges is rejected
    value.and_then(|metadata| ObjectMeta::deserialize(metadata).ok())
}
