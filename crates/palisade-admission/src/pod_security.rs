//! Pod Security Admission: pods are refused, workloads warned about.
//!
//! Implements: the admission part of Pod Security Admission for pods and pod controllers, its audit annotations
//! and its metrics. Namespaces are judged in [`palisade_policy::standards::namespace`].

use palisade_base::{field_error::aggregate, time::Time, version::NEWEST_MINOR};
use palisade_model::{metadata::StringMap, prepare::Prepared};
use palisade_policy::{
    exceptions::set::{ExceptionSet, ExceptionUse, Excused},
    standards::{
        evaluator::{Evaluator, StandardsOutcome},
        level::{Level, LevelVersion, Version},
        policy::{Exemptions, Mode, Policy},
    },
};

/// Prefix of audit annotations made in process.
pub const AUDIT_PREFIX: &str = "pod-security.kubernetes.io/";

/// Subresources of pods that never change what runs.
const IGNORED_SUBRESOURCES: &[&str] =
    &["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// The exceptions of the cluster, and the moment at which they are applied.
#[derive(Debug, Clone, Copy)]
pub struct ExceptionFacts<'e> {
    /// All of them.
    pub set: &'e ExceptionSet,
    /// The moment.
    pub now: Time,
}

impl ExceptionFacts<'static> {
    /// For callers without exceptions.
    pub const NONE: Self = Self { set: ExceptionSet::EMPTY, now: Time { seconds: 0, micros: 0 } };
}

/// The verdict after exceptions, from the verdict before. Called only for pods that violate something.
pub type Excuse<'e> = dyn Fn(StandardsOutcome) -> Excused + 'e;

/// Who requests what.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// The namespace of the request.
    pub namespace: &'r str,
    /// The user's name.
    pub user: &'r str,
    /// The subresource, empty if none.
    pub subresource: &'r str,
    /// Whether the object is a pod: workloads are never refused.
    pub is_pod: bool,
}

/// The verdict of Pod Security Admission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the pod is refused: `violates PodSecurity "L:V": …`.
    pub denied: Option<String>,
    /// At most one.
    pub warnings: Vec<String>,
    /// Audit annotations without their prefix.
    pub audit: Vec<(&'static str, String)>,
    /// What to count.
    pub counted: Vec<Counted>,
}

/// One increment of a `pod_security_*` counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    /// `pod_security_evaluations_total`.
    Evaluation {
        /// Which mode.
        mode: Mode,
        /// Whether the pod passed.
        allowed: bool,
        /// At which level.
        policy: LevelVersion,
    },
    /// `pod_security_exemptions_total`.
    Exemption,
    /// `pod_security_errors_total`.
    Error {
        /// Whether nothing could be evaluated.
        fatal: bool,
    },
}

/// The label value of a version in metrics.
#[must_use]
pub fn metric_version(policy: LevelVersion) -> String {
    match policy.version {
        _ if policy.level == Level::Privileged => "latest".to_owned(),
        Version::Latest => "latest".to_owned(),
        Version::Minor(minor) if minor <= u64::from(NEWEST_MINOR) => format!("v1.{minor}"),
        Version::Minor(_) => "future".to_owned(),
    }
}

/// Pod Security Admission with its configuration.
#[derive(Debug)]
pub struct PodSecurity {
    /// The rules.
    pub evaluator: Evaluator,
    /// What namespaces without labels get.
    pub defaults: Policy,
    /// Who is never judged.
    pub exemptions: Exemptions,
}

/// What the request alone decides, before the object need be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Screened {
    /// Nothing more to do.
    Done(Verdict),
    /// The pod must be judged by this policy; the text names labels that could not be read.
    Judge(Policy, Option<String>),
}

impl PodSecurity {
    /// Decides by request and namespace alone, as far as that goes.
    #[must_use]
    pub fn screen(&self, request: &Request<'_>, labels: &StringMap<'_>) -> Screened {
        if let Some(verdict) = self.exempt(request) {
            return Screened::Done(verdict);
        }
        let (policy, problems) = Policy::from_labels(labels, &self.defaults);
        if problems.is_empty() {
            if request.is_pod && policy.is_privileged() {
                let counted = Counted::Evaluation {
                    mode: Mode::Enforce,
                    allowed: true,
                    policy: LevelVersion::PRIVILEGED,
                };
                return Screened::Done(Verdict {
                    audit: vec![("enforce-policy", LevelVersion::PRIVILEGED.to_string())],
                    counted: vec![counted],
                    ..Verdict::default()
                });
            }
            let silent = policy.warn.level == Level::Privileged && policy.audit.level == Level::Privileged;
            if !request.is_pod && silent {
                return Screened::Done(Verdict::default());
            }
            return Screened::Judge(policy, None);
        }
        Screened::Judge(policy, Some(format!("Failed to parse policy: {}", aggregate(&problems))))
    }

    /// Requests that are never judged, whatever the namespace's labels: they need not even be known.
    #[must_use]
    pub fn exempt(&self, request: &Request<'_>) -> Option<Verdict> {
        if Self::ignores(request) {
            return Some(Verdict::default());
        }
        let reason = if self.exemptions.namespace(request.namespace) {
            "namespace"
        } else if self.exemptions.user(request.user) {
            "user"
        } else {
            return None;
        };
        Some(exemption(reason))
    }

    /// Whether the request is to a subresource that never changes what runs.
    #[must_use]
    pub fn ignores(request: &Request<'_>) -> bool {
        if request.is_pod {
            IGNORED_SUBRESOURCES.contains(&request.subresource)
        } else {
            !request.subresource.is_empty()
        }
    }

    /// Judges a pod or template by a policy. What exceptions accept is not a violation; their names go into the audit log.
    #[must_use]
    pub fn judge(
        &self,
        policy: &Policy,
        label_error: Option<String>,
        enforce: bool,
        pod: &Prepared<'_>,
        excuse: &Excuse<'_>,
    ) -> Verdict {
        if self.exemptions.runtime_class(pod.spec().runtime_class_name.as_deref()) {
            return exemption("runtimeClass");
        }
        let mut verdict = Verdict::default();
        if let Some(error) = label_error {
            verdict.audit.push(("error", error));
            verdict.counted.push(Counted::Error { fatal: false });
        }
        let mut known: Vec<(LevelVersion, StandardsOutcome)> = Vec::new();
        let mut used: Vec<ExceptionUse> = Vec::new();
        let mut outcome = |policy: LevelVersion| -> Option<String> {
            let position = known.iter().position(|(level, _)| *level == policy).unwrap_or_else(|| {
                let mut outcome = self.evaluator.evaluate(policy, pod);
                if !outcome.allowed() {
                    let excused = excuse(outcome);
                    used.extend(excused.used);
                    outcome = excused.outcome;
                }
                known.push((policy, outcome));
                known.len() - 1
            });
            let (_, outcome) = known.get(position)?;
            (!outcome.allowed()).then(|| outcome.details())
        };
        if enforce {
            verdict.audit.push(("enforce-policy", policy.enforce.to_string()));
            let violation = outcome(policy.enforce);
            verdict.counted.push(Counted::Evaluation {
                mode: Mode::Enforce,
                allowed: violation.is_none(),
                policy: policy.enforce,
            });
            verdict.denied =
                violation.map(|details| format!("violates PodSecurity \"{}\": {details}", policy.enforce));
        }
        if let Some(details) = outcome(policy.audit) {
            let text = format!("would violate PodSecurity \"{}\": {details}", policy.audit);
            verdict.audit.push(("audit-violations", text));
            verdict.counted.push(Counted::Evaluation {
                mode: Mode::Audit,
                allowed: false,
                policy: policy.audit,
            });
        }
        if verdict.denied.is_none()
            && let Some(details) = outcome(policy.warn)
        {
            verdict.warnings.push(format!("would violate PodSecurity \"{}\": {details}", policy.warn));
            verdict.counted.push(Counted::Evaluation {
                mode: Mode::Warn,
                allowed: false,
                policy: policy.warn,
            });
        }
        if !used.is_empty() {
            let mut names: Vec<_> = used.into_iter().map(|used| used.exception).collect();
            names.sort_unstable();
            names.dedup();
            verdict.audit.push(("exceptions", names.join(",")));
        }
        verdict
    }
}

fn exemption(reason: &str) -> Verdict {
    Verdict {
        audit: vec![("exempt", reason.to_owned())],
        counted: vec![Counted::Exemption],
        ..Verdict::default()
    }
}
