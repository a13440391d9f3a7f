//! What the pod strategy of an API server does about security: annotations and fields are brought together, profiles
//! and security contexts validated, users warned.
//!
//! Implements: `palisade_model`'s reading of the seccomp and AppArmor designs and of every release, for pods and for
//! the templates of workloads.

use palisade_apimachinery::{Kind, Status};
use palisade_model::compat::Compat;
use palisade_model::pod::Pod;
use palisade_model::prepare::{Prepared, Subject};
use palisade_model::validation::{
    Scope, validate_annotation_updates, validate_create_in, validate_ephemeral_security_contexts,
    validate_update_security_contexts,
};
use palisade_model::warnings::warnings;
use palisade_model::workload::{WorkloadKind, read_template, workload_resource};
use serde::Deserialize;
use serde_json::Value;

use super::psp;
use crate::admission_chain::{ObjectRules, Operation, Request, RuleReview};

/// The rules, for one release or the extensions.
#[derive(Debug, Clone, Copy)]
pub struct PodRules {
    /// Whose rules.
    pub compat: Compat,
}

impl PodRules {
    fn workload(kind: &Kind, subresource: &str) -> Option<&'static WorkloadKind> {
        let workload = workload_resource(&kind.group, &kind.plural).filter(|workload| workload.built_in)?;
        (subresource.is_empty() || (workload.path.is_empty() && subresource == "ephemeralcontainers"))
            .then_some(workload)
    }

    /// Through `status` nothing of what runs can change, but the annotations of a pod can.
    fn review_status(&self, kind: &Kind, object: &Value, old: &Value) -> Result<RuleReview, Box<Status>> {
        let read = |object| Pod::deserialize(object).map_err(|error| undecodable(kind, &error));
        let (mut pod, before) = (read(object)?, read(old)?);
        pod.spec = before.spec.clone();
        let pod = Prepared::changed(pod, &before, Subject::Pod, &self.compat);
        let errors = validate_annotation_updates(&pod, &Prepared::stored(before, &self.compat));
        Ok(RuleReview { errors, ..RuleReview::default() })
    }
}

impl ObjectRules for PodRules {
    fn review(
        &self,
        kind: &Kind,
        subresource: &str,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<RuleReview, Box<Status>> {
        if psp::is_policy(kind) && subresource.is_empty() {
            return Ok(RuleReview {
                errors: psp::problems(object, &self.compat),
                warnings: if self.compat.is_designs() { psp::warnings(object, old) } else { Vec::new() },
                ..RuleReview::default()
            });
        }
        if let ("status", true, Some(old)) =
            (subresource, kind.group.is_empty() && kind.plural == "pods", old)
        {
            return self.review_status(kind, object, old);
        }
        let Some(workload) = Self::workload(kind, subresource) else { return Ok(RuleReview::default()) };
        let is_pod = workload.path.is_empty();
        let (changes, review) = {
            let read =
                |object| read_template(object, workload.path).map_err(|error| undecodable(kind, &error));
            // A workload without a template is rejected by the validation of its kind.
            let Some(pod) = read(&*object)? else { return Ok(RuleReview::default()) };
            let before = old.map(read).transpose()?.flatten();
            let pod = Prepared::written(pod, before.as_ref(), workload.subject(), &self.compat);
            let problems = match before.filter(|_| is_pod) {
                None => validate_create_in(Scope::SecurityContexts, &pod),
                Some(_) if subresource == "ephemeralcontainers" => validate_ephemeral_security_contexts(&pod),
                Some(before) => {
                    validate_update_security_contexts(&pod, &Prepared::stored(before, &self.compat))
                }
            };
            // Pods are warned about when they are created; workloads whenever their specification changes.
            let unchanged = old.is_some_and(|old| is_pod || old.get("spec") == object.get("spec"));
            let review = RuleReview {
                notices: pod.warnings().to_vec(),
                errors: problems,
                warnings: if unchanged { Vec::new() } else { warnings(&pod) },
            };
            (pod.changes().to_vec(), review)
        };
        for change in &changes {
            change.apply(object);
        }
        Ok(review)
    }
}

/// Reads the pod of a request, as it will be stored, and the stored one that an update replaces.
pub(super) fn read_pod<'r, 'v>(
    request: &Request<'r>,
    object: &'v Value,
    compat: &Compat,
) -> Result<(Prepared<'v>, Option<Pod<'r>>), Box<Status>> {
    let rejected = |error| undecodable(request.kind, &error);
    let old = request.old_object.filter(|_| request.operation == Operation::Update);
    let old = old.map(Pod::deserialize).transpose().map_err(rejected)?;
    let pod = Pod::deserialize(object).map_err(rejected)?;
    Ok((Prepared::written(pod, old.as_ref(), Subject::Pod, compat), old))
}

/// 400: what cannot be read is rejected, by every caller.
pub(super) fn undecodable(kind: &Kind, error: &serde_json::Error) -> Box<Status> {
    Status::bad_request(format!("{} cannot be decoded: {error}", kind.kind))
}
