//! What a validating webhook answers: yes or no, by Pod Security, ProfilePolicies and constraints.
//!
//! The order is the embedded API server's: what the API server itself would refuse (where it is answered for), then
//! policies, Pod Security Admission, constraints. The first no is the answer; warnings and audit annotations of
//! all that were consulted go along.

use palisade_model::{
    change::Change,
    compat::Compat,
    metadata::ObjectMeta,
    pod_view::PodView,
    prepare::Prepared,
    profile::{apparmor_profile, published},
    workload::WorkloadKind,
};
use palisade_policy::{
    exceptions::object::SecurityException, profiles::policy::config_map_baseline, scc::choose::Authorizer,
    standards::namespace::Limit,
};

use crate::{
    admission_review::{PodSecurityFacts, Review, ReviewFacts, Unreadable},
    app_armor_profiles, config_map_profiles,
    constraints::{ConstraintRequest, ConstraintReview, Constraints, Pass},
    mutation::future_pod,
    pod_security::{ExceptionFacts, PodSecurity},
    profile_policies::{self, Selection},
    response::{Refusal, Response},
    review::{Reviewed, review_create, review_ephemeral_containers, review_update},
    rules::Rules,
};

/// What was looked up for a validation.
pub struct ValidationFacts<'f> {
    /// What Pod Security Admission requested.
    pub pod_security: PodSecurityFacts<'f>,
    /// The exceptions of the cluster.
    pub exceptions: ExceptionFacts<'f>,
    /// The policies for the namespace.
    pub policies: Selection<'f>,
    /// The constraints, and grants besides those in them, where they are in force.
    pub constraints: Option<(Constraints<'f>, &'f Authorizer<'f>)>,
    /// The namespace; `None` if there is no such, or nothing needed it.
    pub namespace: Option<&'f ObjectMeta<'static>>,
}

impl std::fmt::Debug for ValidationFacts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValidationFacts").field("pod_security", &self.pod_security).finish_non_exhaustive()
    }
}

/// Whether policies and constraints apply to a request: pods and what is debugged in them.
#[must_use]
pub fn concerns_policies(review: &Review<'_>) -> bool {
    review.is_pod()
        && match review.operation.as_ref() {
            "CREATE" => review.request_sub_resource.is_empty(),
            // Annotations of a running pod may change, and so may what counts on an older node.
            "UPDATE" => matches!(review.request_sub_resource.as_ref(), "" | "ephemeralcontainers"),
            _ => false,
        }
}

/// Answers a review of a `ProfilePolicy` that is written: one that could not be applied would reject every pod it is for.
#[must_use]
pub fn validate_policy(review: &Review<'_>) -> Response {
    if !matches!(review.operation.as_ref(), "CREATE" | "UPDATE") {
        return Response::default();
    }
    match review.object_value().map(|object| profile_policies::problems(&object)) {
        Err(error) => Response::unreadable(error),
        Ok(problems) if problems.is_empty() => Response::default(),
        Ok(problems) => {
            Response::refuse(Refusal::invalid("palisade.dev", "ProfilePolicy", &review.name, problems))
        }
    }
}

/// Answers a review of a `SecurityException` that is written: one that cannot be read would count for nothing.
#[must_use]
pub fn validate_exception(review: &Review<'_>) -> Response {
    if !matches!(review.operation.as_ref(), "CREATE" | "UPDATE") {
        return Response::default();
    }
    let object = match review.object_value() {
        Ok(object) => object,
        Err(error) => return Response::unreadable(error),
    };
    match SecurityException::read(&object) {
        Ok(_) => Response::default(),
        Err(error) => Response::refuse(Refusal::invalid(
            "palisade.dev",
            "SecurityException",
            &review.name,
            error.problems(&object),
        )),
    }
}

/// Answers a review of an `AppArmorProfile` that is written: one that nodes would not load.
#[must_use]
pub fn validate_app_armor_profile(review: &Review<'_>) -> Response {
    if !matches!(review.operation.as_ref(), "CREATE" | "UPDATE") {
        return Response::default();
    }
    match review.object_value().map(|object| app_armor_profiles::problems(&object)) {
        Err(error) => Response::unreadable(error),
        Ok(problems) if problems.is_empty() => Response::default(),
        Ok(problems) => {
            Response::refuse(Refusal::invalid("palisade.dev", "AppArmorProfile", &review.name, problems))
        }
    }
}

/// Answers a review. `expired` returns true when looking at the pods of a namespace has to end.
#[must_use]
pub fn validate(
    review: &Review<'_>,
    security: &PodSecurity,
    rules: &Rules,
    facts: &ValidationFacts<'_>,
    limit: Limit,
    expired: impl FnMut() -> bool,
) -> Response {
    if let Err(error) = review.check_resource() {
        return Response::unreadable(error);
    }
    if review.is_mirror_pod() {
        return Response::default();
    }
    let mut response = own_part(review, rules);
    if response.refused.is_some() {
        return response;
    }
    if concerns_policies(review) {
        response.join(by_policies(review, rules, facts).unwrap_or_else(Response::unreadable));
    }
    if response.refused.is_none() {
        let reading = rules.reading();
        // swallowed: the answer notes a workload that cannot be read
        let future = future_pod(review, rules, &facts.policies).unwrap_or_default();
        if let Some(why) = future.rejected {
            response.warnings.push(format!("pods of this workload will be rejected: {why}"));
        }
        let own = ReviewFacts {
            pod_security: &facts.pod_security,
            future: future.object.as_ref(),
            exceptions: facts.exceptions,
        };
        response.join(review.answer(security, &reading, own, limit, expired));
    }
    if response.refused.is_none() && concerns_policies(review) {
        response.join(by_constraints(review, rules, facts).unwrap_or_else(Response::unreadable));
    }
    response
}

/// The result of the API server's own validation, where it is answered for.
fn own_part(review: &Review<'_>, rules: &Rules) -> Response {
    let (Some(compat), Some(kind)) = (rules.instead(), review.workload()) else { return Response::default() };
    if !matches!(review.operation.as_ref(), "CREATE" | "UPDATE") {
        return Response::default();
    }
    own_validation(review, kind, compat).unwrap_or_else(Response::unreadable)
}

fn own_validation(review: &Review<'_>, kind: &WorkloadKind, compat: &Compat) -> Result<Response, Unreadable> {
    let object = review.object_value()?;
    let old = review.old_object_value()?;
    let is_pod = kind.path.is_empty();
    let reviewed = match (&old, review.request_sub_resource.as_ref()) {
        (Some(old), "ephemeralcontainers") if is_pod => review_ephemeral_containers(&object, old, compat),
        (Some(old), "") if is_pod => review_update(&object, old, compat),
        (None, "") => review_create(&object, kind, compat),
        // Workloads are written as they are made; only a change of the specification is worth a word.
        (Some(old), "") if old.get("spec") != object.get("spec") => review_create(&object, kind, compat),
        _ => Ok(Reviewed::default()),
    };
    let Reviewed { problems, warnings, .. } =
        reviewed.map_err(|error| ("failed to decode object", Some(error.to_string())))?;
    let refused =
        (!problems.is_empty()).then(|| Refusal::invalid(kind.group, kind.kind, &review.name, problems));
    Ok(Response { refused, warnings, ..Response::default() })
}

fn by_policies(
    review: &Review<'_>,
    rules: &Rules,
    facts: &ValidationFacts<'_>,
) -> Result<Response, Unreadable> {
    let mut response = Response::default();
    let is_ephemeral = review.request_sub_resource == "ephemeralcontainers";
    // Nothing else that an update changes can name another profile.
    if (review.operation == "CREATE" || is_ephemeral) && review.may_mention(apparmor_profile::PREFIX) {
        let object = review.object_value()?;
        let problems = app_armor_profiles::of_other_namespaces(&object, &review.namespace, is_ephemeral);
        if !problems.is_empty() {
            return Ok(Response::refuse(Refusal::invalid("", "Pod", &review.name, problems)));
        }
    }
    if let Some(why) = facts.policies.refusal() {
        return Ok(Response::refuse(Refusal::forbidden_pod(&review.name, &why)));
    }
    let policies = &facts.policies.policies;
    let beside = rules.instead().is_none();
    let may_have_source =
        || review.may_mention("seccomp.palisade.dev/") || review.may_mention(published::FOLDER);
    if policies.is_empty() && !(beside && may_have_source()) {
        return Ok(response);
    }
    let mut pod = review.pod()?;
    if beside {
        let problems = match (review.operation.as_ref(), review.request_sub_resource.as_ref()) {
            ("CREATE", _) => {
                let baseline = config_map_baseline(policies);
                let mut problems = config_map_profiles::of_registries(&PodView::of_pod(&pod));
                problems.extend(config_map_profiles::contradictions(&pod, baseline.as_ref()));
                problems
            }
            (_, "ephemeralcontainers") => config_map_profiles::ephemeral_without_source(&pod),
            _ => Vec::new(),
        };
        if !problems.is_empty() {
            response.refused = Some(Refusal::invalid("", "Pod", pod.metadata.display_name(), problems));
            return Ok(response);
        }
    }
    config_map_profiles::restore(&mut pod);
    let refusal = profile_policies::refusal(policies, &Prepared::stored(pod, &rules.policy_reading()));
    response.refused = refusal.map(|why| Refusal::forbidden_pod(&review.name, &why));
    Ok(response)
}

fn by_constraints(
    review: &Review<'_>,
    rules: &Rules,
    facts: &ValidationFacts<'_>,
) -> Result<Response, Unreadable> {
    let Some((constraints, authorizer)) = &facts.constraints else { return Ok(Response::default()) };
    let object = review.object_value()?;
    let old = review.old_object_value()?;
    let judged = constraints.judge(&ConstraintRequest {
        pass: Pass::Validate,
        compat: &rules.reading(),
        object: &object,
        old: old.as_ref(),
        subresource: &review.request_sub_resource,
        namespace: &review.namespace,
        metadata: facts.namespace,
        user: &review.user_info.username,
        groups: &review.user_info.groups,
        authorizer: *authorizer,
    });
    Ok(constraint_response(judged).1)
}

/// The verdict of constraints, as a response. An API server puts the webhook's name before the key of an annotation and a
/// slash between, so the key's own prefix goes.
pub(crate) fn constraint_response(judged: ConstraintReview) -> (Vec<Change>, Response) {
    let refused = judged.refused.map(|(name, why)| Refusal::forbidden_pod(&name, &why));
    let audit = judged.audit.into_iter().map(|(key, value)| {
        let short = key.rsplit('/').next().unwrap_or(&key).to_owned();
        (short.into(), value)
    });
    let audit = audit.collect();
    (judged.changes, Response { refused, warnings: judged.warnings, audit, ..Response::default() })
}
