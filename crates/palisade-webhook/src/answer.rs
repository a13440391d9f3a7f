//! From the bytes of a review to the bytes of its answer.
//!
//! What is read from the cluster is read here, the verdict is `palisade-admission`'s. A review that finds everything in the
//! watches is answered without waiting for anything.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant as Clock},
};

use palisade_admission::{
    admission_review::{Needs, PodSecurityFacts, Review, ReviewError, Unavailable},
    config_map_profiles::Profiles,
    constraints::{Constraints, WOULD},
    mutation::{self, Mutation},
    pod_security::ExceptionFacts,
    profile_policies::{StoredPolicy, select},
    response::{Refusal, Response},
    rules::Rules,
    validation,
};
use palisade_base::{
    time::Time,
    version::{NEWEST_MINOR, OLDEST_MINOR},
};
use palisade_model::{
    compat::{Compat, FeatureGates},
    pod::Pod,
    prepare::Prepared,
};
use palisade_policy::{
    scc::{choose::Identity, evaluate, mode::ConstraintMode},
    standards::namespace::Limit,
};
use palisade_serve::certificate;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    configuration::Follower,
    facts::{ClusterFacts, ConstraintFacts, LookupError},
    fail_fast::FailFast,
    metrics::{Metrics, ReviewOutcome},
    shared::Shared,
};

/// Looking at the pods of a namespace may take this long, or half of what is left of the request's time.
const EXISTING_PODS: Duration = Duration::from_secs(1);
/// Upstream looks at no more pods than these.
const UPSTREAM_PODS: usize = 3000;

/// Which webhook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The one that changes objects.
    Mutate,
    /// The one that judges them.
    Validate,
}

impl Route {
    /// The last part of its path.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
        }
    }
}

/// Answers reviews.
#[derive(Debug)]
pub struct Answerer {
    /// What is known of the cluster.
    pub facts: ClusterFacts,
    /// What is in force.
    pub configuration: Arc<Follower>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    rules: Shared<Rules>,
    limit: Limit,
    fail_fast: Option<FailFast>,
}

impl Answerer {
    /// By the rules of a release, or beside an API server whose release is yet to be found out.
    #[must_use]
    pub fn new(
        facts: ClusterFacts,
        configuration: Arc<Follower>,
        metrics: Arc<Metrics>,
        emulate: Option<Compat>,
        gates: FeatureGates,
    ) -> Self {
        let rules = emulate.map_or_else(
            // What a newer release leaves to us does no harm beside an older one.
            || Rules::beside(NEWEST_MINOR).with_gates(gates),
            Rules::Instead,
        );
        let limit = if emulate.is_some() { Limit::Pods(UPSTREAM_PODS) } else { Limit::None };
        Self { facts, configuration, metrics, rules: Shared::new(rules), limit, fail_fast: None }
    }

    /// The same, which tries the pods of workloads.
    #[must_use]
    pub fn with_fail_fast(self, fail_fast: Option<FailFast>) -> Self {
        Self { fail_fast, ..self }
    }

    /// The API server that calls is `v1.<minor>`.
    pub fn serve_beside(&self, minor: u16) {
        if let Rules::Beside(Compat { gates, .. }) = *self.rules.get() {
            self.rules.set(Rules::beside(minor).with_gates(gates));
            self.configuration.judge_as(Compat::kubernetes(minor.clamp(OLDEST_MINOR, NEWEST_MINOR)));
        }
    }

    /// Answers a review, by a moment.
    pub async fn answer(&self, route: Route, body: &[u8], deadline: Instant) -> Result<Vec<u8>, ReviewError> {
        let began = Clock::now();
        let review = match Review::parse(body) {
            Ok(review) => review,
            Err(error) => {
                self.metrics.review(route, ReviewOutcome::Failed, began.elapsed());
                return Err(error);
            }
        };
        let response = match route {
            Route::Mutate => self.mutate(&review, deadline).await,
            Route::Validate => self.validate(&review, deadline).await,
        };
        if !response.counted.is_empty() {
            let resource = review.metric_resource();
            let operation = lower_case(&review.operation);
            self.metrics.pod_security.count(
                &operation,
                resource,
                &review.request_sub_resource,
                &response.counted,
            );
        }
        if let Some((_, would)) = response.audit.iter().find(|(key, _)| key == WOULD) {
            self.metrics.audited(would.starts_with("would reject"));
        }
        let outcome = match response.refused {
            Some(_) => ReviewOutcome::Denied,
            None => ReviewOutcome::Allowed { patched: !response.patch.is_empty() },
        };
        if let Some(refusal) = &response.refused {
            tracing::debug!(
                namespace = %review.namespace, name = %review.name, code = refusal.code, message = refusal.message,
                "refused"
            );
        }
        let bytes = response.to_bytes(&review.uid).map_err(ReviewError::Undecodable);
        self.metrics.review(route, outcome, began.elapsed());
        bytes
    }

    /// All policies, if they are needed.
    async fn policies(&self, needed: bool, deadline: Instant) -> Result<Arc<Vec<StoredPolicy>>, LookupError> {
        if needed { self.facts.policies(deadline).await } else { Ok(Arc::default()) }
    }

    async fn mutate(&self, review: &Review<'_>, deadline: Instant) -> Response {
        let rules = *self.rules.get();
        let mutation = match Mutation::of(review, &rules) {
            Ok(Some(mutation)) => mutation,
            Ok(None) => return Response::default(),
            Err(unreadable) => return *unreadable,
        };
        let stored = match self.policies(mutation.is_new_pod(), deadline).await {
            Ok(stored) => stored,
            Err(why) => return unknown("ProfilePolicies", &why),
        };
        let mode = self.facts.constraint_mode;
        let constraints = match self.facts.constraints() {
            Ok(constraints) => constraints.filter(|_| review.is_pod()),
            // swallowed: what only reports rejects nothing
            Err(_) if mode == ConstraintMode::Audit => None,
            Err(why) => return unknown("SecurityContextConstraints", &why),
        };
        let namespace = if stored.is_empty() && constraints.is_none() {
            None
        } else {
            match self.facts.namespace(&review.namespace, deadline).await {
                Ok(namespace) => Some(namespace),
                // swallowed: what only reports rejects nothing
                Err(_) if stored.is_empty() && mode == ConstraintMode::Audit => None,
                Err(why) => return unknown(&format!("namespace {:?}", review.namespace), &why),
            }
        };
        let policies =
            namespace.as_ref().map_or_else(Default::default, |namespace| select(&*stored, &namespace.labels));
        let wanted = mutation.config_maps(&policies.policies);
        let profiles = if wanted.is_empty() {
            Profiles::default()
        } else {
            self.facts.profiles.read(&review.namespace, &wanted, deadline).await
        };
        let grants = |identity: &Identity<'_>, constraint: &str| {
            constraints.as_ref().is_some_and(|facts| {
                facts.grants.may_use(identity.name, identity.groups, &review.namespace, constraint)
            })
        };
        mutation.answer(&mutation::MutationFacts {
            policies,
            profiles,
            constraints: constraints
                .as_ref()
                .filter(|_| namespace.is_some())
                .map(|facts| (judges(facts, &rules, mode), &grants as _)),
            namespace: namespace.as_deref(),
        })
    }

    async fn validate(&self, review: &Review<'_>, deadline: Instant) -> Response {
        if review.is_profile_policy() {
            return validation::validate_policy(review);
        }
        if review.is_security_exception() {
            return validation::validate_exception(review);
        }
        if review.is_app_armor_profile() {
            return validation::validate_app_armor_profile(review);
        }
        let rules = *self.rules.get();
        let configured = match self.configuration.current() {
            Ok(configured) => configured,
            Err(why) if review.is_pod() || review.metric_resource() == "namespace" => {
                return Response::refuse(Refusal::internal(&why.to_string()));
            }
            Err(why) => {
                return Response { audit: vec![("error".into(), why.to_string())], ..Response::default() };
            }
        };
        let security = &configured.security;
        let judged_by_policies = validation::concerns_policies(review) && !review.is_mirror_pod();
        let warned_by_policies = review.workload().is_some_and(|kind| !kind.path.is_empty());
        let stored = match self.policies(judged_by_policies || warned_by_policies, deadline).await {
            Ok(stored) => stored,
            Err(why) if judged_by_policies => return unknown("ProfilePolicies", &why),
            Err(_) => Arc::default(), // swallowed: a workload is only warned, and its pods are judged
        };
        let mode = self.facts.constraint_mode;
        let constraints = match self.facts.constraints() {
            // What only reports has reported when the pod was mutated.
            _ if mode == ConstraintMode::Audit => None,
            Ok(constraints) => constraints.filter(|_| judged_by_policies),
            Err(why) if judged_by_policies => return unknown("SecurityContextConstraints", &why),
            Err(_) => None, // swallowed: constraints do not apply to this request
        };
        let needs = review.needs(security);
        let mut namespace = None;
        let (mut listed, mut budget) = (Err(LookupError::Pending("pods")), None);
        if let Needs::Pods(name, _) = needs {
            let left = deadline.saturating_duration_since(Instant::now());
            let time = EXISTING_PODS.min(left / 2);
            budget = Some((Clock::now(), time));
            listed = self.facts.pods(name, time).await;
        } else if matches!(needs, Needs::Namespace(_)) || !stored.is_empty() || constraints.is_some() {
            namespace = Some(self.facts.namespace(&review.namespace, deadline).await);
        }
        let known = match &namespace {
            Some(Ok(known)) => Some(&**known),
            Some(Err(why)) if judged_by_policies && !(stored.is_empty() && constraints.is_none()) => {
                return unknown(&format!("namespace {:?}", review.namespace), why);
            }
            // swallowed: no policy applies, or the error is in the facts of Pod Security
            _ => None,
        };
        let pod_security = match needs {
            Needs::Nothing => PodSecurityFacts::Nothing,
            Needs::Namespace(_) => PodSecurityFacts::Namespace(match &namespace {
                Some(Ok(known)) => Ok(&known.labels),
                Some(Err(why)) => Err(Unavailable(why.to_string())),
                None => Err(Unavailable("it was not looked up".to_owned())),
            }),
            Needs::Pods(..) => {
                let pods = |list| pods_in(list, &rules.reading());
                let listed = listed.as_deref().map_err(|why| Unavailable(why.to_string()));
                PodSecurityFacts::Pods(listed.and_then(pods))
            }
        };
        let policies = known.map_or_else(Default::default, |namespace| select(&*stored, &namespace.labels));
        let grants = |identity: &Identity<'_>, constraint: &str| {
            constraints.as_ref().is_some_and(|facts| {
                facts.grants.may_use(identity.name, identity.groups, &review.namespace, constraint)
            })
        };
        let exceptions = self.facts.exceptions();
        let expired = || budget.is_some_and(|(began, time)| began.elapsed() > time);
        let mut response = {
            let facts = validation::ValidationFacts {
                pod_security,
                exceptions: ExceptionFacts {
                    set: &exceptions,
                    now: Time { seconds: certificate::now(), micros: 0 },
                },
                policies,
                constraints: constraints.as_ref().map(|facts| (judges(facts, &rules, mode), &grants as _)),
                namespace: known,
            };
            validation::validate(review, security, &rules, &facts, self.limit, expired)
        };
        if let Some(fail_fast) = self.fail_fast.as_ref().filter(|_| warned_by_policies) {
            match self.facts.namespace(&review.namespace, deadline).await {
                Ok(namespace) => {
                    let (labels, metrics) = (&namespace.labels, &self.metrics);
                    fail_fast.look(review, labels, deadline, metrics, &mut response).await;
                }
                Err(why) => tracing::debug!(%why, "no dry run: the namespace is not known"),
            }
        }
        response
    }
}

/// Refuses what cannot be looked into.
fn unknown(what: &str, why: &LookupError) -> Response {
    Response::refuse(Refusal::internal(&format!("failed to lookup {what}: {why}")))
}

fn judges<'f>(facts: &'f ConstraintFacts, rules: &Rules, mode: ConstraintMode) -> Constraints<'f> {
    let config_map_profiles = rules.resolves_config_maps();
    let options = evaluate::Options { config_map_profiles, ..evaluate::Options::default() };
    Constraints { set: &facts.set, unreadable: &facts.unreadable, options, mode }
}

fn pods_in<'l>(list: &'l str, compat: &Compat) -> Result<Vec<Prepared<'l>>, Unavailable> {
    #[derive(Deserialize)]
    struct List<'l> {
        #[serde(borrow, default)]
        items: Vec<Pod<'l>>,
    }
    let list: List<'_> = serde_json::from_str(list).map_err(|error| Unavailable(error.to_string()))?;
    Ok(list.items.into_iter().map(|pod| Prepared::stored(pod, compat)).collect())
}

/// Operations are in upper case in reviews and in lower case in metrics.
fn lower_case(operation: &str) -> Cow<'static, str> {
    match operation {
        "CREATE" => Cow::Borrowed("create"),
        "UPDATE" => Cow::Borrowed("update"),
        other => Cow::Owned(other.to_lowercase()),
    }
}
