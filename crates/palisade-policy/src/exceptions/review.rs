//! Which exceptions deserve a second look: unreadable, expired, unused or broader than they need be.

use std::fmt;

use palisade_base::time::Time;

use super::{
    object::{Allowance, SecurityException},
    set::{ExceptionSet, ExceptionUse},
};
use crate::profiles::policy::LabelSelector;

/// An exception that ends later than this is not reviewed often enough.
const LONGEST_DAYS: i64 = 366;
const DAY: i64 = 24 * 60 * 60;

/// Why an exception is broader than a reader expects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breadth {
    /// Its selector picks every namespace.
    EveryNamespace,
    /// Its selector only excludes, and picks namespaces that do not exist yet.
    OtherNamespaces,
    /// It names no workload.
    EveryPod,
    /// It narrows by labels of the pod alone, which the author of a pod sets.
    PodLabels,
    /// It ends in more than a year.
    FarEnd,
    /// What it allows amounts to control of the node: this control and value.
    Node(String),
}

impl fmt::Display for Breadth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EveryNamespace => f.write_str("selects every namespace"),
            Self::OtherNamespaces => f.write_str("selects every namespace but some, new ones included"),
            Self::EveryPod => f.write_str("names no workload: every pod of the namespaces is covered"),
            Self::PodLabels => {
                f.write_str("narrows by pod labels alone, which every user who can create pods can set")
            }
            Self::FarEnd => write!(f, "ends in more than {LONGEST_DAYS} days"),
            Self::Node(what) => write!(f, "allows {what}, which amounts to control of the node"),
        }
    }
}

/// The state of one exception.
#[derive(Debug, Clone, PartialEq)]
pub struct ExceptionReview<'e> {
    /// Its name.
    pub name: &'e str,
    /// The exception, or why it cannot be applied.
    pub read: Result<&'e SecurityException, &'e str>,
    /// Whether it has ended.
    pub expired: bool,
    /// How many findings it removed.
    pub used: usize,
    /// Entries of `allow` that removed nothing.
    pub unused_allowances: Vec<usize>,
    /// Why it is broad.
    pub breadth: Vec<Breadth>,
}

impl ExceptionReview<'_> {
    /// Whether it is in force and removed nothing: it can be deleted.
    #[must_use]
    pub const fn is_unused(&self) -> bool {
        self.read.is_ok() && !self.expired && self.used == 0
    }

    /// Whether there is nothing to change about it.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.read.is_ok()
            && !self.expired
            && self.used > 0
            && self.unused_allowances.is_empty()
            && self.breadth.is_empty()
    }
}

/// Reviews every exception, by name. `used` is what they removed from the verdicts of all pods and templates.
#[must_use]
pub fn review<'e>(set: &'e ExceptionSet, used: &[ExceptionUse], now: Time) -> Vec<ExceptionReview<'e>> {
    let mut reviews: Vec<_> = set
        .readable()
        .iter()
        .map(|exception| {
            let own = || used.iter().filter(|found| found.exception == exception.name);
            let expired = !exception.counts_at(now);
            let unused = |index: &usize| !own().any(|found| found.allowance == *index);
            ExceptionReview {
                name: &exception.name,
                read: Ok(exception),
                expired,
                used: own().count(),
                unused_allowances: if expired {
                    Vec::new()
                } else {
                    (0..exception.allow.len()).filter(unused).collect()
                },
                breadth: breadth(exception, now),
            }
        })
        .collect();
    reviews.extend(set.unreadable().iter().map(|unreadable| ExceptionReview {
        name: &unreadable.name,
        read: Err(&unreadable.error),
        expired: false,
        used: 0,
        unused_allowances: Vec::new(),
        breadth: Vec::new(),
    }));
    reviews.sort_by(|a, b| a.name.cmp(b.name));
    reviews
}

/// Why an exception is broad; empty for a narrow one.
#[must_use]
pub fn breadth(exception: &SecurityException, now: Time) -> Vec<Breadth> {
    let mut found = Vec::new();
    if exception.namespaces.is_empty() {
        match exception.namespace_selector.as_ref() {
            Some(selector) if !is_empty(selector) && only_excludes(selector) => {
                found.push(Breadth::OtherNamespaces);
            }
            Some(selector) if !is_empty(selector) => {}
            _ => found.push(Breadth::EveryNamespace),
        }
    }
    if exception.workloads.is_empty() {
        let narrowed = exception.pod_selector.as_ref().is_some_and(|selector| !is_empty(selector));
        found.push(if narrowed { Breadth::PodLabels } else { Breadth::EveryPod });
    }
    if exception.until.seconds.saturating_sub(now.seconds) > LONGEST_DAYS * DAY {
        found.push(Breadth::FarEnd);
    }
    found.extend(exception.allow.iter().filter_map(node));
    found.dedup();
    found
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.is_empty() && selector.match_expressions.is_empty()
}

fn only_excludes(selector: &LabelSelector) -> bool {
    let excludes = |operator: &str| matches!(operator, "NotIn" | "DoesNotExist");
    selector.match_labels.is_empty()
        && selector.match_expressions.iter().all(|expression| excludes(&expression.operator))
}

/// Findings that leave no boundary between the container and its node.
fn node(allowance: &Allowance) -> Option<Breadth> {
    let values = allowance.values.as_deref().unwrap_or_default();
    let named = |dangerous: &[&str]| values.iter().find(|value| dangerous.contains(&value.as_str()));
    let value = match allowance.control {
        "privileged" | "windowsHostProcess" => named(&["true"]),
        "hostPathVolumes" => {
            named(&["/", "/etc", "/proc", "/root", "/var", "/run", "/var/run", "/dev", "/sys"])
        }
        "capabilities_baseline" | "capabilities_restricted" => {
            named(&["ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO", "BPF"])
        }
        _ => None,
    }?;
    Some(Breadth::Node(format!("{} {value:?}", allowance.control)))
}
