//! What is known of a pod or template, kept small.
//!
//! Almost every pod complies, and costs a few bytes and a pointer to nothing. Replicas violate for the same causes: those
//! are kept once. A pod complies only because it was judged: there is no default, and what cannot be judged is undecided.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use palisade_base::time::Time;
use palisade_model::{compat::Compat, prepare::Prepared};
use palisade_policy::{
    exceptions::{set::NamespaceExceptions, workload::Workload},
    standards::{
        evaluator::{Evaluator, StandardsOutcome},
        level::{Level, LevelVersion, Version},
    },
};

/// A moment at which no exception has ended.
const FIRST: Time = Time { seconds: i64::MIN, micros: 0 };

/// The service account of pods that name none.
pub(super) const DEFAULT_ACCOUNT: &str = "default";

/// One field that a level forbids.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cause {
    /// The check that forbids it.
    pub check: &'static str,
    /// Where the field is, or should be.
    pub path: String,
    /// What is wrong, in a phrase.
    pub summary: String,
    /// What is allowed.
    pub allowed: &'static str,
}

/// An object that a level rejects, or whose pods are rejected already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Its kind.
    pub kind: Cow<'static, str>,
    /// Its name.
    pub name: String,
    /// The kind and name of the workload that controls it.
    pub owner: Option<(String, String)>,
    /// Its service account.
    pub service_account: String,
    /// The constraint that admitted it, or would.
    pub constraint: Option<String>,
    /// Whether it got that constraint through a user rather than its service account.
    pub is_by_user: bool,
    /// The fields that are wrong.
    pub causes: Vec<Cause>,
    /// Why its pods are rejected whatever the level is; `None` if they are not.
    pub rejection: Option<String>,
}

impl Blocker {
    /// Whether everything that is wrong with a pod is wrong with this workload's template.
    pub(super) fn explains(&self, pod: &Self) -> bool {
        let is_in_template = |path: &str, of_pod: &str| {
            path.strip_suffix(of_pod).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'))
        };
        let has = |cause: &Cause| {
            self.causes
                .iter()
                .any(|own| own.summary == cause.summary && is_in_template(&own.path, &cause.path))
        };
        pod.rejection.is_none()
            && (&pod.service_account, &pod.constraint, pod.is_by_user)
                == (&self.service_account, &self.constraint, self.is_by_user)
            && pod.causes.iter().all(has)
    }
}

/// An object of which it is not known whether a level rejects it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undecided {
    /// Its kind.
    pub kind: Cow<'static, str>,
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What a pod or template comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It complies with this level, and with no stricter one.
    Complies(Level),
    /// It complies with this level, but its pods are rejected for another reason.
    Rejected(Level),
    /// It complies with this level, but fewer pods exist than it requests, and it does not report why.
    Short(Level),
    /// It cannot be judged.
    Undecided,
}

impl Standing {
    /// The strictest level that it is known to comply with.
    pub(super) const fn level(self) -> Option<Level> {
        match self {
            Self::Complies(level) | Self::Rejected(level) | Self::Short(level) => Some(level),
            Self::Undecided => None,
        }
    }
}

/// What a workload reports of the pods that it requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Supply {
    /// As many pods as requested, or no report.
    Enough,
    /// Pods are rejected.
    Rejected(String),
    /// Fewer pods than requested.
    Short(String),
}

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'p> {
    pub(super) kind: &'static str,
    pub(super) name: &'p str,
    pub(super) owner: Option<(&'p str, &'p str)>,
    /// Nothing means [`DEFAULT_ACCOUNT`].
    pub(super) service_account: &'p str,
    pub(super) constraint: Option<&'p str>,
    pub(super) is_by_user: bool,
    pub(super) list: u8,
    /// What an exception has to name.
    pub(super) workloads: &'p [Workload],
}

/// The causes at each level.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Causes {
    baseline: Vec<Cause>,
    restricted: Vec<Cause>,
}

impl Causes {
    fn of(baseline: &StandardsOutcome, restricted: &StandardsOutcome) -> Self {
        Self { baseline: causes(baseline), restricted: causes(restricted) }
    }

    /// Those of the lower level, then those that the stricter one adds.
    fn all(&self) -> Vec<Cause> {
        let is_new = |cause: &&Cause| {
            !self.baseline.iter().any(|known| (known.check, &known.path) == (cause.check, &cause.path))
        };
        self.baseline.iter().chain(self.restricted.iter().filter(is_new)).cloned().collect()
    }
}

#[derive(Debug)]
struct Detail {
    kind: Cow<'static, str>,
    name: Box<str>,
    owner: Option<(Box<str>, Box<str>)>,
    /// Unless it is [`DEFAULT_ACCOUNT`].
    service_account: Option<Box<str>>,
    constraint: Option<Box<str>>,
    /// Nothing where the object was not judged, or complies without exceptions.
    causes: Option<Arc<Causes>>,
    /// Those that no exception accepts.
    remaining: Option<Arc<Causes>>,
    /// Why its pods are rejected, are missing, or cannot be judged.
    reason: Option<Box<str>>,
    /// The workload whose need it counts for.
    workload: Option<Arc<str>>,
}

/// A pod or template after judgement.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) standing: Standing,
    /// The strictest level that it complies with without exceptions.
    bare: Level,
    pub(super) is_by_user: bool,
    /// Whether an exception in force accepts something in it.
    pub(super) is_excused: bool,
    /// Whether an exception may be why it was admitted: one names something in it, in force or ended.
    pub(super) is_excusable: bool,
    /// The list that brought it, see [`super::Cluster::begin_list`].
    pub(super) list: u8,
    detail: Option<Box<Detail>>,
}

impl Judged {
    /// An object that cannot be judged.
    pub(super) fn undecided(kind: impl Into<Cow<'static, str>>, name: &str, reason: &str, list: u8) -> Self {
        let detail = Detail {
            kind: kind.into(),
            name: name.into(),
            owner: None,
            service_account: None,
            constraint: None,
            causes: None,
            remaining: None,
            reason: Some(reason.into()),
            workload: None,
        };
        Self {
            standing: Standing::Undecided,
            bare: Level::Privileged,
            is_by_user: false,
            is_excused: false,
            is_excusable: false,
            list,
            detail: Some(Box::new(detail)),
        }
    }

    /// The level that it needs: what cannot be judged may need anything.
    pub(super) fn need(&self) -> Level {
        self.standing.level().unwrap_or(Level::Privileged)
    }

    /// Counts for the need of a workload from now on.
    pub(super) fn remember(&mut self, workload: Arc<str>) {
        if let Some(detail) = &mut self.detail {
            detail.workload = Some(workload);
        }
    }

    /// The workload whose need it counts for.
    pub(super) fn workload(&self) -> Option<&Arc<str>> {
        self.detail.as_ref()?.workload.as_ref()
    }

    /// The object as a blocker of a level; `None` if the level lets it and its pods be.
    pub(super) fn blocker(&self, level: Level) -> Option<Blocker> {
        let complies = self.standing.level()?;
        let detail = self.detail.as_ref().filter(|_| level > complies || self.is_rejected())?;
        let causes = detail.remaining.as_ref().filter(|_| level > complies).map(|causes| match level {
            Level::Restricted => causes.restricted.clone(),
            Level::Baseline | Level::Privileged => causes.baseline.clone(),
        });
        Some(self.as_blocker(detail, causes.unwrap_or_default()))
    }

    const fn is_rejected(&self) -> bool {
        matches!(self.standing, Standing::Rejected(_))
    }

    fn as_blocker(&self, detail: &Detail, causes: Vec<Cause>) -> Blocker {
        Blocker {
            kind: detail.kind.clone(),
            name: detail.name.to_string(),
            owner: detail.owner.as_ref().map(|(kind, name)| (kind.to_string(), name.to_string())),
            service_account: detail.service_account.as_deref().unwrap_or(DEFAULT_ACCOUNT).to_owned(),
            constraint: detail.constraint.as_deref().map(str::to_owned),
            is_by_user: self.is_by_user,
            causes,
            rejection: detail.reason.as_deref().filter(|_| self.is_rejected()).map(str::to_owned),
        }
    }

    /// The object with everything that any level forbids, what exceptions accept included; `None` if nothing does and its pods are
    /// not rejected.
    pub(super) fn finding(&self) -> Option<Blocker> {
        self.standing.level()?;
        let is_found = Level::Restricted > self.bare || self.is_rejected();
        let detail = self.detail.as_ref().filter(|_| is_found)?;
        let causes = detail.causes.as_ref().map(|causes| causes.all());
        Some(self.as_blocker(detail, causes.unwrap_or_default()))
    }

    /// Whether no level forbids anything in it, without exceptions, and it is known to have its pods.
    pub(super) fn is_compliant(&self) -> bool {
        self.standing == Standing::Complies(Level::Restricted) && self.bare == Level::Restricted
    }

    /// Whether exceptions can change what it comes to.
    pub(super) fn depends_on_exceptions(&self) -> bool {
        self.standing.level().is_some() && self.bare < Level::Restricted
    }

    /// Why it is not known whether a level rejects the object or its pods; `None` if it is known.
    pub(super) fn doubt(&self, level: Level) -> Option<Undecided> {
        let is_known = match self.standing {
            Standing::Complies(_) | Standing::Rejected(_) => true,
            Standing::Short(complies) => level > complies,
            Standing::Undecided => false,
        };
        let detail = self.detail.as_ref().filter(|_| !is_known)?;
        Some(Undecided {
            kind: detail.kind.clone(),
            name: detail.name.to_string(),
            reason: detail.reason.as_deref().unwrap_or("it cannot be judged").to_owned(),
        })
    }
}

/// Judges, and keeps every distinct set of causes once.
#[derive(Debug)]
pub(super) struct Judge {
    /// Whose reading of pods is judged.
    pub(super) compat: Compat,
    evaluator: Evaluator,
    known: HashSet<Arc<Causes>>,
    /// At how many sets the unused ones are thrown out next.
    prune_at: usize,
}

impl Judge {
    pub(super) fn new(compat: Compat) -> Self {
        Self { compat, evaluator: Evaluator::of(&compat), known: HashSet::new(), prune_at: 0 }
    }

    /// Judges a pod. What exceptions accept counts as compliant, where there are any.
    pub(super) fn judge(
        &mut self,
        pod: &Prepared<'_>,
        subject: &Subject<'_>,
        supply: &Supply,
        exceptions: Option<&NamespaceExceptions<'_>>,
    ) -> Judged {
        let at = |level| self.evaluator.evaluate(LevelVersion::new(level, Version::Latest), pod);
        let restricted = at(Level::Restricted);
        let (mut is_excused, mut is_excusable) = (false, false);
        let (bare, level, causes, remaining) = if restricted.allowed() {
            (Level::Restricted, Level::Restricted, None, None)
        } else {
            let baseline = at(Level::Baseline);
            let (bare, causes) = (level_of(&baseline, &restricted), Causes::of(&baseline, &restricted));
            let causes = self.intern(causes);
            let (mut level, mut remaining) = (bare, Arc::clone(&causes));
            if let Some(exceptions) = exceptions {
                let ended_too = NamespaceExceptions { now: FIRST, ..*exceptions };
                is_excusable = !ended_too.excuse(restricted.clone(), pod, subject.workloads).used.is_empty()
                    || !ended_too.excuse(baseline.clone(), pod, subject.workloads).used.is_empty();
                if is_excusable {
                    let baseline = exceptions.excuse(baseline, pod, subject.workloads);
                    let restricted = exceptions.excuse(restricted, pod, subject.workloads);
                    is_excused = !(baseline.used.is_empty() && restricted.used.is_empty());
                    level = level_of(&baseline.outcome, &restricted.outcome);
                    remaining = self.intern(Causes::of(&baseline.outcome, &restricted.outcome));
                }
            }
            (bare, level, Some(causes), Some(remaining))
        };
        let (standing, reason) = match supply {
            Supply::Enough => (Standing::Complies(level), None),
            Supply::Rejected(reason) => (Standing::Rejected(level), Some(reason.as_str().into())),
            Supply::Short(reason) => (Standing::Short(level), Some(reason.as_str().into())),
        };
        let is_clean = standing == Standing::Complies(Level::Restricted) && bare == Level::Restricted;
        let detail = (!is_clean).then(|| {
            Box::new(Detail {
                kind: Cow::Borrowed(subject.kind),
                name: subject.name.into(),
                owner: subject.owner.map(|(kind, name)| (kind.into(), name.into())),
                service_account: Some(subject.service_account)
                    .filter(|account| !matches!(*account, "" | DEFAULT_ACCOUNT))
                    .map(Into::into),
                constraint: subject.constraint.map(Into::into),
                causes,
                remaining,
                reason,
                workload: None,
            })
        });
        Judged {
            standing,
            bare,
            is_by_user: subject.is_by_user,
            is_excused,
            is_excusable,
            list: subject.list,
            detail,
        }
    }

    fn intern(&mut self, causes: Causes) -> Arc<Causes> {
        if let Some(known) = self.known.get(&causes) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.prune_at {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.prune_at = (self.known.len() * 2).max(1024);
        }
        let causes = Arc::new(causes);
        self.known.insert(Arc::clone(&causes));
        causes
    }
}

/// The strictest level that a verdict at both of them allows.
fn level_of(baseline: &StandardsOutcome, restricted: &StandardsOutcome) -> Level {
    match (baseline.allowed(), restricted.allowed()) {
        (true, true) => Level::Restricted,
        (true, false) => Level::Baseline,
        (false, _) => Level::Privileged,
    }
}

pub(super) fn causes(outcome: &StandardsOutcome) -> Vec<Cause> {
    outcome
        .violations
        .iter()
        .flat_map(|violation| violation.findings.iter().map(move |finding| (violation.check, finding)))
        .map(|(check, finding)| Cause {
            check,
            path: finding.path.to_string(),
            summary: finding.summary.clone(),
            allowed: finding.allowed,
        })
        .collect()
}
