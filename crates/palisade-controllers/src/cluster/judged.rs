//! What the standards say of a pod, kept small.
//!
//! Almost every pod complies, and costs two bytes and a pointer to nothing. Replicas violate for the same causes: those
//! are kept once.

use std::{collections::HashSet, sync::Arc};

use palisade_model::{compat::Compat, prepare::Prepared};
use palisade_policy::standards::{
    evaluator::{Evaluator, Outcome},
    level::{Level, LevelVersion, Version},
};

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

/// An object that a level would refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// Its kind.
    pub kind: &'static str,
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
}

/// The causes at each level.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Causes {
    baseline: Vec<Cause>,
    restricted: Vec<Cause>,
}

#[derive(Debug)]
struct Detail {
    kind: &'static str,
    name: Box<str>,
    owner: Option<(Box<str>, Box<str>)>,
    /// Unless it is [`DEFAULT_ACCOUNT`].
    service_account: Option<Box<str>>,
    constraint: Option<Box<str>>,
    causes: Arc<Causes>,
}

/// A pod after judgement.
#[derive(Debug)]
pub(super) struct Judged {
    /// The strictest level that the pod complies with.
    pub(super) complies: Level,
    pub(super) is_by_user: bool,
    /// The list that brought it, see [`super::Cluster::begin_list`].
    pub(super) list: u8,
    detail: Option<Box<Detail>>,
}

impl Judged {
    /// The pod as a blocker of a level; `None` if it complies.
    pub(super) fn blocker(&self, level: Level) -> Option<Blocker> {
        let detail = self.detail.as_ref().filter(|_| level > self.complies)?;
        let causes = match level {
            Level::Restricted => &detail.causes.restricted,
            Level::Baseline | Level::Privileged => &detail.causes.baseline,
        };
        Some(Blocker {
            kind: detail.kind,
            name: detail.name.to_string(),
            owner: detail.owner.as_ref().map(|(kind, name)| (kind.to_string(), name.to_string())),
            service_account: detail.service_account.as_deref().unwrap_or(DEFAULT_ACCOUNT).to_owned(),
            constraint: detail.constraint.as_deref().map(str::to_owned),
            is_by_user: self.is_by_user,
            causes: causes.clone(),
        })
    }
}

/// Judges, and keeps every distinct set of causes once.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// Whose reading of pods is judged.
    pub(super) compat: Compat,
    evaluator: Evaluator,
    known: HashSet<Arc<Causes>>,
    /// At how many sets the unused ones are thrown out next.
    prune_at: usize,
}

impl Judge {
    pub(super) fn new(evaluator: Evaluator) -> Self {
        Self { evaluator, ..Self::default() }
    }

    pub(super) fn judge(&mut self, pod: &Prepared<'_>, subject: &Subject<'_>) -> Judged {
        let at = |level| self.evaluator.evaluate(LevelVersion::new(level, Version::Latest), pod);
        let restricted = at(Level::Restricted);
        if restricted.allowed() {
            return Judged {
                complies: Level::Restricted,
                is_by_user: subject.is_by_user,
                list: subject.list,
                detail: None,
            };
        }
        let baseline = at(Level::Baseline);
        let complies = if baseline.allowed() { Level::Baseline } else { Level::Privileged };
        let causes = self.intern(Causes { baseline: causes(&baseline), restricted: causes(&restricted) });
        let detail = Detail {
            kind: subject.kind,
            name: subject.name.into(),
            owner: subject.owner.map(|(kind, name)| (kind.into(), name.into())),
            service_account: Some(subject.service_account)
                .filter(|account| !matches!(*account, "" | DEFAULT_ACCOUNT))
                .map(Into::into),
            constraint: subject.constraint.map(Into::into),
            causes,
        };
        Judged {
            complies,
            is_by_user: subject.is_by_user,
            list: subject.list,
            detail: Some(Box::new(detail)),
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

fn causes(outcome: &Outcome) -> Vec<Cause> {
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
