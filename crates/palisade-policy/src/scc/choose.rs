//! Which constraint admits a pod, for whom, and the text of the refusal.
//!
//! Implements: OpenShift's admission plugin `security.openshift.io/SecurityContextConstraint`, mutating and
//! validating pass. One constraint that makes no sense in a namespace is skipped and reported; upstream refuses
//! every pod then, and so does [`Malformed::RefuseAll`]. Looking things up, waiting for caches and applying the
//! changes is left to the caller.

use std::fmt;

use palisade_base::{
    field_error::{FieldError, aggregate},
    field_path::FieldPath,
    go::Quoted,
};
use palisade_model::{
    change::{Change, NewValue},
    metadata::StringMap,
    pod_view::ContainerKind,
    prepare::Prepared,
};

use super::{
    audit::Audit,
    built_in,
    constraint::Constraint,
    decision::{Admitted, ConstraintDecision, ConstraintOutcome, Refusal},
    evaluate::{Evaluation, Options, evaluate},
    namespace_ranges::NamespaceRanges,
    order::Rank,
    provider::{Provider, ProviderError, ProviderErrorKind},
    set::ConstraintSet,
};

/// Annotation of a pod: the constraint that admitted it.
pub const VALIDATED: &str = "openshift.io/scc";
/// Annotation of a pod: the only constraint to be considered.
pub const REQUIRED: &str = "openshift.io/required-scc";
/// Annotation of a pod: through whom the constraint could be used.
pub const SUBJECT_TYPE: &str = "security.openshift.io/validated-scc-subject-type";

/// Subresources that change nothing a constraint cares about.
const IGNORED_SUBRESOURCES: [&str; 8] =
    ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Whether constraints never look at requests to a subresource of pods: their bodies need not even be pods.
#[must_use]
pub fn ignores_subresource(subresource: &str) -> bool {
    IGNORED_SUBRESOURCES.contains(&subresource)
}

/// Who may use a constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The requesting user.
    User,
    /// The pod's service account.
    ServiceAccount,
}

impl Subject {
    /// As the annotation writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::ServiceAccount => "serviceaccount",
        }
    }
}

/// A user or service account, for the authorizer.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'r> {
    /// Their role in the request.
    pub subject: Subject,
    /// The name.
    pub name: &'r str,
    /// The groups.
    pub groups: &'r [String],
}

/// Whether someone may `use` the constraint of a name in the pod's namespace; an error counts as no.
pub type Authorizer<'r> = dyn Fn(&Identity<'_>, &str) -> bool + 'r;

/// What is done to a pod.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'r> {
    /// It is new.
    Create,
    /// It changes.
    Update {
        /// Its annotations before.
        old_annotations: &'r StringMap<'r>,
        /// Whether nothing changes that matters, see [`super::update::is_insignificant`].
        is_insignificant: bool,
    },
}

/// A request to admit a pod.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    /// What is done.
    pub operation: Operation<'r>,
    /// Through which subresource; empty for the pod itself.
    pub subresource: &'r str,
    /// The pod as it shall be.
    pub pod: &'r Prepared<'r>,
    /// The namespace's name.
    pub namespace: &'r str,
    /// The namespace's annotations; `None` if there is no such namespace.
    pub namespace_annotations: Option<&'r StringMap<'r>>,
    /// The requesting user's name.
    pub user: &'r str,
    /// The requesting user's groups.
    pub groups: &'r [String],
    /// Grants besides those in the constraints.
    pub authorizer: &'r Authorizer<'r>,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("operation", &self.operation)
            .field("subresource", &self.subresource)
            .field("namespace", &self.namespace)
            .field("pod", &self.pod.pod().metadata.display_name())
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// What a constraint that makes no sense in a namespace does to the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Malformed {
    /// Nothing: it is skipped and reported.
    #[default]
    Skip,
    /// Every pod is refused, as upstream does.
    RefuseAll,
}

/// Judges requests by the constraints of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Admission<'s> {
    /// The constraints.
    pub constraints: &'s ConstraintSet,
    /// What the answer depends on besides pod and constraint.
    pub options: Options,
    /// What to do with a constraint that makes no sense.
    pub malformed: Malformed,
    /// Whether to refuse everything while one of the built-in constraints is missing. Upstream does, because it
    /// takes that for a cache that is still empty.
    pub require_standard: bool,
}

/// The half of the plugin that is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Mutate,
    Validate,
}

/// What a constraint may change in this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutable {
    Everything,
    EphemeralContainers,
    Nothing,
}

/// A usable constraint and what it makes of the pod.
struct Chosen<'x> {
    index: usize,
    provider: &'x Provider<'x>,
    subject: Subject,
    evaluation: Evaluation<'x>,
}

const FINAL_VALIDATION: &str = "failures final validation after mutating admission";

impl<'s> Admission<'s> {
    /// The mutating pass: chooses a constraint, and returns what it writes into the pod.
    #[must_use]
    pub fn mutate(&self, request: &Request<'_>) -> ConstraintOutcome {
        if is_ignored(request) {
            return ConstraintOutcome::ignored();
        }
        let annotations = &request.pod.pod().metadata.annotations;
        if let Operation::Update { old_annotations, .. } = request.operation
            && old_annotations.get(REQUIRED).unwrap_or_default()
                != annotations.get(REQUIRED).unwrap_or_default()
        {
            return ConstraintOutcome::refused(Refusal::RequiredChanged);
        }
        let mutable = match request.operation {
            Operation::Create => Mutable::Everything,
            Operation::Update { .. } if request.subresource == "ephemeralcontainers" => {
                Mutable::EphemeralContainers
            }
            Operation::Update { .. } => Mutable::Nothing,
        };
        self.decide(request, Pass::Mutate, mutable, "")
    }

    /// The validating pass: the pod as it is must be what a constraint would make of it.
    #[must_use]
    pub fn validate(&self, request: &Request<'_>) -> ConstraintOutcome {
        if is_ignored(request) {
            return ConstraintOutcome::ignored();
        }
        let annotations = &request.pod.pod().metadata.annotations;
        let required = annotations.get(REQUIRED).unwrap_or_default();
        let hint = annotations.get(VALIDATED).unwrap_or_default();
        if !required.is_empty() && required != hint {
            let (required, suggested) = (required.to_owned(), hint.to_owned());
            return ConstraintOutcome::refused(Refusal::RequiredNotSuggested { required, suggested });
        }
        self.decide(request, Pass::Validate, Mutable::Nothing, hint)
    }

    fn decide(&self, request: &Request<'_>, pass: Pass, mutable: Mutable, hint: &str) -> ConstraintOutcome {
        let candidates = match self.candidates(request, mutable, hint) {
            Ok(candidates) => candidates,
            Err(refusal) => return ConstraintOutcome::refused(refusal),
        };
        let namespace = match namespace_of(request) {
            Ok(namespace) => namespace,
            Err(refusal) => return ConstraintOutcome::refused(refusal),
        };
        let (mut providers, mut skipped) = (Vec::with_capacity(candidates.len()), Vec::new());
        for constraint in candidates {
            match Provider::new(constraint, &namespace) {
                Ok(provider) => providers.push(provider),
                Err(error) => skipped.push(error),
            }
        }
        if let Some(refusal) = self.refuse_malformed(&providers, &skipped) {
            return ConstraintOutcome { skipped, ..ConstraintOutcome::refused(refusal) };
        }
        let mut search = Search::new(request, self.options, &providers);
        let chosen = search.run(mutable);
        if chosen.is_none() {
            search.hint_at_restricted();
        }
        let audit = search.audit(mutable, hint, chosen.as_ref());
        let decision = match chosen {
            Some(chosen) => ConstraintDecision::Admitted(chosen.admitted(request, pass)),
            None => ConstraintDecision::Refused(search.refusal(pass, &skipped)),
        };
        ConstraintOutcome { decision, audit, skipped }
    }

    /// A constraint without sense is skipped as long as another is left; a namespace without ranges is not the
    /// constraint's fault, and passing over the restricted ones for it would be wrong.
    fn refuse_malformed(&self, providers: &[Provider<'_>], errors: &[ProviderError]) -> Option<Refusal> {
        let fatal = |error: &&ProviderError| {
            self.malformed == Malformed::RefuseAll
                || providers.is_empty()
                || !matches!(error.kind, ProviderErrorKind::Strategy(_))
        };
        let fatal: Vec<_> = errors.iter().filter(fatal).cloned().collect();
        (!fatal.is_empty()).then_some(Refusal::Malformed(fatal))
    }

    /// The constraints to try, in order.
    fn candidates(
        &self,
        request: &Request<'_>,
        mutable: Mutable,
        hint: &str,
    ) -> Result<Vec<&'s Constraint>, Refusal> {
        if self.require_standard {
            let missing =
                built_in::STANDARD.iter().copied().filter(|name| self.constraints.get(name).is_none());
            let names: Vec<_> = missing.collect();
            if !names.is_empty() {
                return Err(Refusal::StandardMissing { names });
            }
        }
        let required = request.pod.pod().metadata.annotations.get(REQUIRED).unwrap_or_default();
        if !required.is_empty() {
            let found = self.constraints.get(required);
            return found
                .map(|constraint| vec![constraint])
                .ok_or_else(|| Refusal::RequiredMissing { name: required.to_owned() });
        }
        if self.constraints.is_empty() {
            return Err(Refusal::NoConstraints);
        }
        let mut candidates: Vec<_> = self.constraints.iter().collect();
        if mutable != Mutable::Everything {
            candidates.sort_by_key(|constraint| constraint.name() != hint);
        }
        Ok(candidates)
    }
}

fn is_ignored(request: &Request<'_>) -> bool {
    ignores_subresource(request.subresource)
        || request.pod.spec().is_windows()
        || matches!(request.operation, Operation::Update { is_insignificant: true, .. })
}

fn namespace_of<'r>(request: &Request<'r>) -> Result<NamespaceRanges<'r>, Refusal> {
    let name = || request.namespace.to_owned();
    let annotations =
        request.namespace_annotations.ok_or_else(|| Refusal::NamespaceMissing { namespace: name() })?;
    let namespace = NamespaceRanges::new(request.namespace, annotations);
    match namespace.missing() {
        Some(annotation) => Err(Refusal::AnnotationMissing { namespace: name(), annotation }),
        None => Ok(namespace),
    }
}

/// The walk over the constraints of one pass.
struct Search<'x> {
    request: &'x Request<'x>,
    options: Options,
    providers: &'x [Provider<'x>],
    service_account: Option<(String, [String; 2])>,
    problems: Vec<FieldError>,
    denied: Vec<&'x str>,
    failures: Vec<(&'x str, String)>,
}

impl<'x> Search<'x> {
    fn new(request: &'x Request<'x>, options: Options, providers: &'x [Provider<'x>]) -> Self {
        let account = request.pod.spec().service_account();
        let namespace = request.namespace;
        // Without system:authenticated, as upstream: see the recordings of `create-axis-subjects`.
        let service_account = (!account.is_empty()).then(|| {
            let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
            (format!("system:serviceaccount:{namespace}:{account}"), groups)
        });
        Self {
            request,
            options,
            providers,
            service_account,
            problems: Vec::new(),
            denied: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Through whom a constraint may be used; the service account comes first.
    fn subject(&self, constraint: &Constraint) -> Option<Subject> {
        let may_use = |identity: Identity<'_>| {
            let applies = constraint.users.iter().any(|user| user == identity.name)
                || identity.groups.iter().any(|group| constraint.groups.contains(group))
                || (self.request.authorizer)(&identity, constraint.name());
            applies.then_some(identity.subject)
        };
        let account = self
            .service_account
            .as_ref()
            .and_then(|(name, groups)| may_use(Identity { subject: Subject::ServiceAccount, name, groups }));
        let Request { user, groups, .. } = *self.request;
        account.or_else(|| may_use(Identity { subject: Subject::User, name: user, groups }))
    }

    fn evaluate(&self, provider: &'x Provider<'x>) -> Evaluation<'x> {
        evaluate(provider, self.request.pod, self.options)
    }

    /// The first constraint that may be used and allows the pod without changing more than may change.
    fn run(&mut self, mutable: Mutable) -> Option<Chosen<'x>> {
        for (index, provider) in self.providers.iter().enumerate() {
            let constraint = provider.constraint();
            let Some(subject) = self.subject(constraint) else {
                self.denied.push(constraint.name());
                self.problems.push(not_usable(constraint.name()));
                continue;
            };
            let mut evaluation = self.evaluate(provider);
            if !evaluation.allowed() {
                self.failures.push((constraint.name(), aggregate(&evaluation.problems)));
                self.problems.append(&mut evaluation.problems);
                continue;
            }
            let fits = match mutable {
                Mutable::Everything => true,
                Mutable::EphemeralContainers => {
                    evaluation.changes_nothing_but(Some(ContainerKind::Ephemeral))
                }
                Mutable::Nothing => evaluation.changes_nothing_but(None),
            };
            if fits {
                return Some(Chosen { index, provider, subject, evaluation });
            }
            self.failures.push((constraint.name(), FINAL_VALIDATION.to_owned()));
        }
        None
    }

    /// Clusters that took `restricted` away from everyone get a word about it.
    fn hint_at_restricted(&mut self) {
        let provider =
            |name: &str| self.providers.iter().find(|provider| provider.constraint().name() == name);
        if provider("restricted-v2").is_none() || !self.denied.contains(&"restricted") {
            return;
        }
        if provider("restricted").is_some_and(|restricted| self.evaluate(restricted).allowed()) {
            let detail = "the pod fails to validate against the `restricted-v2` security context constraint, but \
                          would validate successfully against the `restricted` security context constraint";
            let problem =
                FieldError::forbidden(FieldPath::root(), detail).called("no access to scc/restricted");
            self.problems.push(problem);
        }
    }

    fn audit(&self, mutable: Mutable, hint: &str, chosen: Option<&Chosen<'_>>) -> Audit {
        let mut audit = Audit::default();
        let name = chosen.map(|chosen| chosen.provider.constraint().name());
        if mutable == Mutable::Everything {
            audit.denied(&self.denied);
            for (constraint, why) in &self.failures {
                audit.too_restrictive(constraint, why.clone());
            }
            audit.reason(match chosen {
                Some(chosen) => self.reason(chosen),
                None if self.failures.is_empty() => "all denied".to_owned(),
                None => "all too restrictive or denied".to_owned(),
            });
            return audit;
        }
        if !hint.is_empty() && name != Some(hint) {
            match self.failures.iter().find(|(constraint, _)| *constraint == hint) {
                Some((_, why)) => audit.too_restrictive(hint, why.clone()),
                None => audit.denied_validation(hint, ""),
            }
            match name {
                Some(name) => audit.reason_validation(hint, name),
                None => audit.denied_validation(hint, ", and no other matched"),
            }
        }
        if let Some(name) = name {
            audit.chosen(name);
        }
        audit
    }

    /// Why the chosen constraint comes before the next one that would have done.
    fn reason(&self, chosen: &Chosen<'_>) -> String {
        let constraint = chosen.provider.constraint();
        let name = Quoted(constraint.name());
        let next = self.providers.iter().skip(chosen.index + 1).find(|provider| {
            self.subject(provider.constraint()).is_some() && self.evaluate(provider).allowed()
        });
        let Some(next) = next.map(Provider::constraint) else {
            return format!("{name} is the only one not too restrictive and not denied");
        };
        let reason = Rank::of(constraint).reason_over(&Rank::of(next));
        let next = Quoted(next.name());
        format!("{name} is most restrictive, not denied, and chosen over {next} because {name} {reason}")
    }

    fn refusal(self, pass: Pass, skipped: &[ProviderError]) -> Refusal {
        let mut problems = self.problems;
        problems.extend(skipped.iter().map(|error| {
            let name = format!("provider {}", Quoted(&error.constraint));
            FieldError::forbidden(FieldPath::root(), format!("skipped: {error}")).called(name)
        }));
        let text = match pass {
            Pass::Mutate if problems.is_empty() => "<nil>".to_owned(),
            Pass::Mutate => aggregate(&problems),
            Pass::Validate => {
                let list = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
                format!("[{list}]")
            }
        };
        Refusal::NotValidated { problems, text }
    }
}

fn not_usable(constraint: &str) -> FieldError {
    FieldError::forbidden(FieldPath::root(), "not usable by user or serviceaccount")
        .called(format!("provider {}", Quoted(constraint)))
}

impl Chosen<'_> {
    fn admitted(&self, request: &Request<'_>, pass: Pass) -> Admitted {
        let constraint = self.provider.constraint().name();
        let mut changes = Vec::new();
        if pass == Pass::Mutate {
            changes = self.evaluation.changes();
            for (key, value) in [(VALIDATED, constraint), (SUBJECT_TYPE, self.subject.as_str())] {
                if request.pod.pod().metadata.annotations.get(key) != Some(value) {
                    let at = FieldPath::of(&["metadata", "annotations"]).key(key);
                    changes.push(Change { at, to: NewValue::Text(value.to_owned()) });
                }
            }
        }
        Admitted { constraint: constraint.to_owned(), subject: self.subject, changes }
    }
}
