//! What a mutating webhook answers: the fields that an object lacks, as a patch.
//!
//! Implements: sync of legacy annotations where the API server no longer does it, ConfigMap profiles on a stock cluster,
//! the defaults of ProfilePolicies and of security context constraints. Everything here may be called again on its
//! own answer, and then changes nothing. Looking things up is left to the caller: [`Mutation::config_maps`] lists
//! which ConfigMaps are needed.

use std::collections::BTreeSet;

use palisade_base::{
    field_error::{FieldError, aggregate},
    field_path::{FieldPath, PathStep},
    go::Quoted,
};
use palisade_model::{
    change::{Change, NewValue},
    compat::Compat,
    json,
    metadata::ObjectMeta,
    pod::Pod,
    pod_view::PodView,
    prepare::{Prepared, Subject},
    profile::{ProfileRef, baseline::Baseline, config_map::Source},
    sync,
    warnings::deprecated_annotations,
    workload::WorkloadKind,
};
use palisade_policy::{
    profiles::policy::{ProfilePolicy, config_map_baseline},
    scc::choose::Authorizer,
};
use serde_json::Value;

use crate::{
    admission_review::{Review, Unreadable},
    config_map_profiles::{self, Fault, Profiles, Refused, assume_resolved},
    constraints::{ConstraintRequest, Constraints, Pass},
    json_patch,
    profile_policies::{self, Selection},
    response::{Refusal, Response},
    rules::Rules,
    validation::concerns_policies,
};

/// A request that may have to be changed.
#[derive(Debug)]
pub struct Mutation<'r, 'a> {
    review: &'r Review<'a>,
    kind: &'static WorkloadKind,
    pod: Pod<'a>,
    rules: Rules,
}

/// What was looked up for a mutation.
#[derive(Default)]
pub struct MutationFacts<'f> {
    /// The policies for the namespace.
    pub policies: Selection<'f>,
    /// The profiles in ConfigMaps that [`Mutation::config_maps`] requested.
    pub profiles: Profiles,
    /// The constraints, and grants besides those in them, where they are in force.
    pub constraints: Option<(Constraints<'f>, &'f Authorizer<'f>)>,
    /// The namespace; `None` if there is no such, or nothing needed it.
    pub namespace: Option<&'f ObjectMeta<'static>>,
}

impl std::fmt::Debug for MutationFacts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MutationFacts").field("profiles", &self.profiles).finish_non_exhaustive()
    }
}

impl<'r, 'a> Mutation<'r, 'a> {
    /// Reads a request; nothing if there is nothing in it that is ever changed. The error is the answer to a request that
    /// cannot be read: it must not pass as one that needs no change.
    pub fn of(review: &'r Review<'a>, rules: &Rules) -> Result<Option<Self>, Box<Response>> {
        review.check_resource().map_err(|error| Box::new(Response::unreadable(error)))?;
        let Some(kind) = review.workload() else {
            // What is a pod by its resource and something else by its kind cannot be read.
            let read = concerns_policies(review).then(|| review.pod()).transpose();
            return read.map(|_| None).map_err(|error| Box::new(Response::unreadable(error)));
        };
        let concerned = match (kind.subject(), review.operation.as_ref()) {
            // Constraints write into the debugging containers of pods that are there already; a pod that is applied again
            // gets back what was rewritten in it.
            (Subject::Pod, "UPDATE") => {
                matches!(review.request_sub_resource.as_ref(), "" | "ephemeralcontainers")
            }
            (Subject::Pod, "CREATE") | (Subject::Template(_), "CREATE" | "UPDATE") => {
                review.request_sub_resource.is_empty()
            }
            _ => false,
        };
        if !concerned || review.is_mirror_pod() {
            return Ok(None);
        }
        let read = review.pod_or_template(kind).map_err(|error| Box::new(Response::unreadable(error)));
        Ok(read?.map(|pod| Self { review, kind, pod, rules: *rules }))
    }

    /// Whether this is a new pod, for which policies have defaults.
    #[must_use]
    pub fn is_new_pod(&self) -> bool {
        self.kind.path.is_empty() && self.review.operation == "CREATE"
    }

    /// The profiles in ConfigMaps of the request's namespace that must be looked up.
    #[must_use]
    pub fn config_maps(&self, policies: &[&ProfilePolicy]) -> Vec<Source> {
        // What a pod runs with was settled when it was made.
        if !self.rules.resolves_config_maps() || (self.kind.path.is_empty() && !self.is_new_pod()) {
            return Vec::new();
        }
        let view = self.kind.subject().view(&self.pod);
        let mut wanted: BTreeSet<Source> =
            config_map_profiles::references(&view).into_iter().map(|reference| reference.source).collect();
        if self.is_new_pod() {
            let pod = Prepared::new(self.pod.clone(), Subject::Pod, &self.rules.reading());
            let defaults = policies.iter().flat_map(|policy| policy.defaults(&pod));
            wanted.extend(defaults.filter_map(|change| config_map_in(&change)));
        }
        wanted.into_iter().map(|source| Source { hash: None, ..source }).collect()
    }

    /// The response to the request, from what was looked up.
    #[must_use]
    pub fn answer(&self, facts: &MutationFacts<'_>) -> Response {
        self.try_answer(facts).unwrap_or_else(Response::unreadable)
    }

    fn try_answer(&self, facts: &MutationFacts<'_>) -> Result<Response, Unreadable> {
        if let Some(compat) = self.rules.instead() {
            return if self.review.operation == "CREATE" {
                self.answer_as(compat)
            } else {
                Ok(Response::default())
            };
        }
        match self.kind.subject() {
            Subject::Template(_) => self.answer_template(facts),
            Subject::Pod if self.review.operation == "CREATE" => self.answer_pod(facts),
            Subject::Pod if self.review.request_sub_resource.is_empty() => self.answer_applied_again(),
            Subject::Pod => self.answer_update(facts),
        }
    }

    fn object(&self) -> Result<Value, Unreadable> {
        self.review.object_value()
    }

    /// Changes of the object as a patch.
    fn patch(&self, changes: &[Change]) -> Result<Vec<u8>, Unreadable> {
        if changes.is_empty() { Ok(Vec::new()) } else { Ok(patch(&self.object()?, changes)) }
    }

    fn answer_template(&self, facts: &MutationFacts<'_>) -> Result<Response, Unreadable> {
        let view = self.kind.subject().view(&self.pod);
        let mut response = Response::default();
        let of_registries = config_map_profiles::of_registries(&view).into_iter();
        response.warnings.extend(of_registries.map(|problem| format!("{problem}; pods will be refused")));
        if !self.rules.resolves_config_maps() {
            let problems = config_map_profiles::disabled(&view).into_iter();
            response.warnings.extend(problems.map(|problem| format!("{problem}; pods will be refused")));
            return Ok(response);
        }
        for ((name, key), profile) in &facts.profiles {
            if let Err(Fault::Unusable(problem)) = profile {
                let text = format!("seccomp profile configmap/{name}/{key}: {problem}; pods will be refused");
                response.warnings.push(text);
            }
        }
        response.patch = self.patch(&config_map_profiles::move_in_template(&view))?;
        Ok(response)
    }

    fn answer_pod(&self, facts: &MutationFacts<'_>) -> Result<Response, Unreadable> {
        if let Some(why) = facts.policies.refusal() {
            return Ok(Response::refuse(Refusal::forbidden_pod(&self.review.name, &why)));
        }
        let of_registries = config_map_profiles::of_registries(&PodView::of_pod(&self.pod));
        if !of_registries.is_empty() {
            return Ok(Response::refuse(self.refusal(Refused::Invalid(of_registries))));
        }
        let mut response = Response::default();
        let mut draft = Draft::default();
        let baseline = config_map_baseline(&facts.policies.policies);
        match self.resolved(&facts.profiles, baseline.as_ref()) {
            Ok(changes) => draft.extend(changes),
            Err(refused) => return Ok(Response::refuse(self.refusal(refused))),
        }
        self.fill_fields(&mut draft, &mut response)?;
        let policies = &facts.policies.policies;
        if !policies.is_empty() {
            let object = draft.applied(|| self.object())?;
            let mut defaults = profile_policies::defaults(policies, object, &self.rules.reading())
                .map_err(|error| undecodable(&error))?;
            if !self.rules.sets_app_armor() {
                defaults.retain(|change| !is_app_armor(change));
            }
            for source in defaults.iter().filter_map(config_map_in).collect::<Vec<_>>() {
                match self.resolved_default(&source, &facts.profiles, baseline.as_ref()) {
                    Ok(changes) => defaults.extend(changes),
                    Err(refused) => return Ok(Response::refuse(self.refusal(refused))),
                }
            }
            draft.extend(defaults);
        }
        if let Some((constraints, authorizer)) = &facts.constraints {
            let object = draft.applied(|| self.object())?;
            let refused = self.constrain(constraints, *authorizer, object, None, facts, &mut response);
            match refused {
                Ok(changes) => draft.extend(changes),
                Err(refusal) => response.refused = Some(*refusal),
            }
        }
        response.patch = self.patch(&draft.changes)?;
        Ok(response)
    }

    fn resolved(&self, profiles: &Profiles, baseline: Option<&Baseline>) -> Result<Vec<Change>, Refused> {
        if self.rules.resolves_config_maps() {
            return config_map_profiles::resolve(&self.pod, profiles, baseline);
        }
        match config_map_profiles::disabled(&PodView::of_pod(&self.pod)) {
            problems if problems.is_empty() => Ok(Vec::new()),
            problems => Err(Refused::Invalid(problems)),
        }
    }

    fn resolved_default(
        &self,
        source: &Source,
        profiles: &Profiles,
        baseline: Option<&Baseline>,
    ) -> Result<Vec<Change>, Refused> {
        let why = match baseline {
            _ if !self.rules.resolves_config_maps() => config_map_profiles::DISABLED,
            None => config_map_profiles::NOT_ALLOWED,
            Some(baseline) => {
                return config_map_profiles::resolve_default(source, profiles, baseline, &self.pod);
            }
        };
        let at = FieldPath::of(&["spec", "securityContext", "seccompProfile"]);
        Err(Refused::Invalid(vec![FieldError::invalid(at, Quoted(&source.to_string()), why)]))
    }

    fn answer_applied_again(&self) -> Result<Response, Unreadable> {
        let changes = config_map_profiles::rewrite_again(&self.pod, &self.review.old_pod()?);
        Ok(Response { patch: self.patch(&changes)?, ..Response::default() })
    }

    /// A debugging container may be given what the pod's constraint demands.
    fn answer_update(&self, facts: &MutationFacts<'_>) -> Result<Response, Unreadable> {
        let mut response = Response::default();
        let Some((constraints, authorizer)) = &facts.constraints else { return Ok(response) };
        let old = self.review.old_object_value()?;
        let before = self.object()?;
        match self.constrain(constraints, *authorizer, &before, old.as_ref(), facts, &mut response) {
            Ok(changes) => response.patch = patch(&before, &changes),
            Err(refusal) => response.refused = Some(*refusal),
        }
        Ok(response)
    }

    fn constrain(
        &self,
        constraints: &Constraints<'_>,
        authorizer: &Authorizer<'_>,
        object: &Value,
        old: Option<&Value>,
        facts: &MutationFacts<'_>,
        response: &mut Response,
    ) -> Result<Vec<Change>, Box<Refusal>> {
        let review = self.review;
        let judged = constraints.judge(&ConstraintRequest {
            pass: Pass::Mutate,
            compat: &self.rules.reading(),
            object,
            old,
            subresource: &review.request_sub_resource,
            namespace: &review.namespace,
            metadata: facts.namespace,
            user: &review.user_info.username,
            groups: &review.user_info.groups,
            authorizer,
        });
        let (changes, answered) = crate::validation::constraint_response(judged);
        let refused = answered.refused.clone();
        response.join(Response { refused: None, ..answered });
        refused.map_or(Ok(changes), |refusal| Err(Box::new(refusal)))
    }

    /// What an API server of a release would have written itself.
    fn answer_as(&self, compat: &Compat) -> Result<Response, Unreadable> {
        // What is invalid is reported once the object is whole, by the validating webhook.
        let pod = Prepared::new(self.pod.clone(), self.kind.subject(), compat);
        let patch = self.patch(pod.changes())?;
        Ok(Response { warnings: pod.warnings().to_vec(), patch, ..Response::default() })
    }

    fn fill_fields(&self, draft: &mut Draft, response: &mut Response) -> Result<(), Unreadable> {
        if self.pod.metadata.annotations.is_empty() {
            return Ok(());
        }
        let object;
        let mut pod = if draft.changes.is_empty() {
            self.pod.clone()
        } else {
            object = draft.applied(|| self.object())?.clone();
            json::from_value::<Pod<'_>>(&object).map_err(|error| undecodable(&error))?
        };
        // The texts are those of Palisade's extensions, with which annotations still work.
        let deprecations = deprecated_annotations(&PodView::of_pod(&pod), &Compat::designs());
        let (changes, warnings) = filled(&mut pod, &self.rules);
        response.warnings.extend(warnings);
        if !changes.is_empty() {
            response.warnings.extend(deprecations);
        }
        draft.extend(changes);
        Ok(())
    }

    fn refusal(&self, refused: Refused) -> Refusal {
        match refused {
            Refused::Invalid(problems) => {
                Refusal::invalid("", "Pod", self.pod.metadata.display_name(), problems)
            }
            Refused::Unavailable(why) => Refusal::internal(&why),
        }
    }
}

fn is_app_armor(change: &Change) -> bool {
    matches!(change.at.steps().last(), Some(PathStep::Field(name)) if name == "appArmorProfile")
}

/// The ConfigMap that a default profile refers to.
fn config_map_in(change: &Change) -> Option<Source> {
    match &change.to {
        NewValue::Profile(field) => match field.reference()? {
            ProfileRef::ConfigMap { name, key } => {
                Some(Source { name: name.to_string(), key: key.to_string(), hash: None })
            }
            _ => None,
        },
        _ => None,
    }
}

fn undecodable(error: &serde_json::Error) -> Unreadable {
    ("failed to decode object", Some(error.to_string()))
}

fn patch(before: &Value, changes: &[Change]) -> Vec<u8> {
    let mut after = before.clone();
    apply(changes, &mut after);
    json_patch::to_bytes(before, &after)
}

fn apply(changes: &[Change], object: &mut Value) {
    for change in changes {
        change.apply(object);
    }
}

/// The fields that annotations become here, and warnings about them.
fn filled(pod: &mut Pod<'_>, rules: &Rules) -> (Vec<Change>, Vec<String>) {
    let (mut changes, mut warnings) = (Vec::new(), Vec::new());
    // A Windows pod may not have the fields, and its annotations never meant anything.
    if pod.spec.is_windows() {
        return (changes, warnings);
    }
    if rules.fills_seccomp() {
        changes.extend(sync::fill_seccomp(pod));
    }
    if rules.fills_app_armor() {
        let synced = sync::fill_app_armor(pod);
        changes.extend(synced.changes);
        warnings.extend(synced.warnings);
    }
    (changes, warnings)
}

/// The pod that a controller will create from the template of a workload.
#[derive(Debug, Default)]
pub struct FuturePod {
    /// As it will be after mutation; `None` if mutation will change nothing in it.
    pub object: Option<Value>,
    /// Why policies will reject it.
    pub rejected: Option<String>,
}

/// The pod of a written workload as [`Mutation`] will leave it, so that a workload is warned about what its pods will meet.
/// Constraints are left out: which one admits a pod depends on who creates it.
pub fn future_pod(
    review: &Review<'_>,
    rules: &Rules,
    selection: &Selection<'_>,
) -> Result<FuturePod, Unreadable> {
    let written = matches!(review.operation.as_ref(), "CREATE" | "UPDATE");
    let Some(kind) = review.workload().filter(|kind| !kind.path.is_empty() && written) else {
        return Ok(FuturePod::default());
    };
    if rules.instead().is_some() || !review.request_sub_resource.is_empty() {
        return Ok(FuturePod::default());
    }
    if let Some(why) = selection.refusal() {
        return Ok(FuturePod { rejected: Some(why), ..FuturePod::default() });
    }
    let policies = &selection.policies;
    if policies.is_empty() && !review.may_mention("seccomp") && !review.may_mention("apparmor") {
        return Ok(FuturePod::default());
    }
    let workload = review.object_value()?;
    let template = kind.path.iter().try_fold(&workload, |value, field| value.get(field));
    let Some(template) = template.filter(|template| template.is_object()) else {
        return Ok(FuturePod::default());
    };
    let mut object = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"],
    });
    let reading = rules.reading();
    let unusable = {
        let pod = pod_in(&object)?;
        let view = PodView::of_pod(&pod);
        let mut problems = config_map_profiles::without_source(&view);
        problems.extend(config_map_profiles::of_registries(&view));
        if rules.resolves_config_maps() && config_map_baseline(policies).is_none() {
            problems.extend(config_map_profiles::not_allowed(&view));
        }
        (!problems.is_empty()).then(|| aggregate(&problems))
    };
    let mut referred = None;
    if rules.resolves_config_maps() {
        let (as_referred, resolved) = {
            let pod = pod_in(&object)?;
            (assume_resolved(&pod, true), assume_resolved(&pod, false))
        };
        if !as_referred.is_empty() {
            let mut object = object.clone();
            apply(&as_referred, &mut object);
            referred = Some(object);
        }
        apply(&resolved, &mut object);
    }
    let fields = filled(&mut pod_in(&object)?, rules).0;
    apply(&fields, &mut object);
    let mut defaults =
        profile_policies::defaults(policies, &object, &reading).map_err(|error| undecodable(&error))?;
    defaults.retain(|change| rules.sets_app_armor() || !is_app_armor(change));
    apply(&defaults, &mut object);
    let judged = pod_in(referred.as_ref().unwrap_or(&object))?;
    let rejected = unusable
        .or_else(|| profile_policies::refusal(policies, &Prepared::stored(judged, &rules.policy_reading())));
    Ok(FuturePod { object: Some(object), rejected })
}

fn pod_in(object: &Value) -> Result<Pod<'_>, Unreadable> {
    json::from_value(object).map_err(|error| undecodable(&error))
}

/// Changes so far, and the object with them; most pods need neither.
#[derive(Default)]
struct Draft {
    changes: Vec<Change>,
    object: Option<Value>,
}

impl Draft {
    fn extend(&mut self, changes: Vec<Change>) {
        if let Some(object) = &mut self.object {
            apply(&changes, object);
        }
        self.changes.extend(changes);
    }

    fn applied(
        &mut self,
        original: impl FnOnce() -> Result<Value, Unreadable>,
    ) -> Result<&Value, Unreadable> {
        let object = if let Some(object) = self.object.take() {
            object
        } else {
            let mut object = original()?;
            apply(&self.changes, &mut object);
            object
        };
        Ok(self.object.insert(object))
    }
}
