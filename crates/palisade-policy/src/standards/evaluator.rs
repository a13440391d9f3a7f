//! Which checks run for a level and version, and their joint result.
//!
//! Implements: the registry of Pod Security Admission's policy package. Every check runs, none stops the others;
//! results come in upstream's order, baseline ids before restricted ones. A restricted check may replace a
//! baseline one from the version on in which it exists.

use std::sync::OnceLock;

use palisade_base::version::NEWEST_MINOR;
use palisade_model::{compat::Compat, pod_view::PodView, prepare::Prepared};

use super::{
    cel::CelRules,
    checks::CHECKS,
    finding::Violation,
    level::{Level, LevelVersion},
};

/// A rule of the Pod Security Standards.
#[derive(Debug)]
pub struct Check {
    /// Upstream's id.
    pub id: &'static str,
    /// The lowest level that has it.
    pub level: Level,
    /// Its name in the published standards.
    pub title: &'static str,
    /// Why it exists, in a clause.
    pub why: &'static str,
    /// Its versions, oldest first. Published ones are never edited.
    pub versions: &'static [CheckVersion],
}

/// A version of a check.
#[derive(Debug)]
pub struct CheckVersion {
    /// The first version it applies to, `v1.<since>`.
    pub since: u16,
    /// Baseline checks it replaces.
    pub overrides: &'static [&'static str],
    /// The rule: what it forbids, or nothing.
    pub(crate) run: fn(&PodView<'_, '_>, Options) -> Option<Violation>,
    /// The same rule in CEL: an expression of a text, upstream's sentence about what it forbids, or the empty text.
    pub(crate) cel: fn(&mut CelRules) -> String,
}

/// What a check may need besides the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The newest version known: that of the emulated release.
    pub newest: u16,
    /// Whether `image` volumes are known to be harmless; releases up to v1.32 did not have them.
    pub knows_image_volumes: bool,
    /// Whether a seccomp profile from a ConfigMap counts as one chosen by the cluster's people, like `Localhost`.
    /// True only where the administrator switched the feature on.
    pub config_map_profiles: bool,
    /// Likewise for one from a registry.
    pub oci_profiles: bool,
}

impl Options {
    /// The options of an API server.
    #[must_use]
    pub const fn of(compat: &Compat) -> Self {
        let newest = compat.api_minor();
        Self {
            newest,
            knows_image_volumes: newest >= 33,
            config_map_profiles: compat.has_config_map_profiles(),
            oci_profiles: compat.has_oci_profiles(),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::of(&Compat::designs())
    }
}

/// Judges pods. Cheap to share, cheap to call: a pod that passes costs no allocation.
#[derive(Debug)]
pub struct Evaluator {
    options: Options,
    baseline: RulesByMinor,
    restricted: RulesByMinor,
}

/// The rules of each version, put together when the version is asked for: most evaluators judge by one or two.
type RulesByMinor = Vec<OnceLock<Vec<&'static CheckVersion>>>;

impl Default for Evaluator {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl Evaluator {
    /// Sets up the rules of every version up to the newest.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let newest = options.newest.min(NEWEST_MINOR);
        let options = Options { newest, ..options };
        let versions = || (0..=newest).map(|_| OnceLock::new()).collect();
        Self { options, baseline: versions(), restricted: versions() }
    }

    /// The rules of an API server.
    #[must_use]
    pub fn of(compat: &Compat) -> Self {
        Self::new(Options::of(compat))
    }

    /// The newest version known.
    #[must_use]
    pub const fn newest(&self) -> u16 {
        self.options.newest
    }

    /// Judges a pod or template. Only a prepared one can be judged:
    ///
    /// ```compile_fail
    /// # use palisade_model::{pod::Pod, pod_view::PodView};
    /// # use palisade_policy::standards::{evaluator::Evaluator, level::LevelVersion};
    /// let pod = Pod::default();
    /// Evaluator::default().evaluate(LevelVersion::PRIVILEGED, &PodView::of_pod(&pod));
    /// ```
    ///
    /// ```
    /// # use palisade_model::{compat::Compat, pod::Pod, prepare::{Prepared, Subject}};
    /// # use palisade_policy::standards::{evaluator::Evaluator, level::LevelVersion};
    /// let pod = Prepared::new(Pod::default(), Subject::Pod, &Compat::designs());
    /// assert!(Evaluator::default().evaluate(LevelVersion::PRIVILEGED, &pod).allowed());
    /// ```
    #[must_use]
    pub fn evaluate(&self, policy: LevelVersion, pod: &Prepared<'_>) -> StandardsOutcome {
        let view = &pod.view();
        let versions = match policy.level {
            Level::Privileged => return StandardsOutcome::default(),
            Level::Baseline => &self.baseline,
            Level::Restricted => &self.restricted,
        };
        let minor = policy.version.clamp(self.options.newest);
        let find = || rules(policy.level, minor).map(|(_, rule)| rule).collect();
        let judge = |rules: &[&CheckVersion]| StandardsOutcome {
            violations: rules.iter().filter_map(|rule| (rule.run)(view, self.options)).collect(),
        };
        match versions.get(usize::from(minor)) {
            Some(known) => judge(known.get_or_init(find)),
            None => judge(&find()),
        }
    }
}

/// The checks of a level in a version, in the order of their results.
pub fn rules(level: Level, minor: u16) -> impl Iterator<Item = (&'static Check, &'static CheckVersion)> {
    let current = move |check: &'static Check| {
        check.versions.iter().rev().find(|version| version.since <= minor).map(|version| (check, version))
    };
    let overridden = move |id: &str| {
        level == Level::Restricted
            && CHECKS
                .iter()
                .filter(|check| check.level == Level::Restricted)
                .filter_map(|check| current(check))
                .any(|(_, version)| version.overrides.contains(&id))
    };
    CHECKS
        .iter()
        .filter(move |check| check.level <= level && level != Level::Privileged)
        .filter(move |check| !overridden(check.id))
        .filter_map(move |check| current(check))
}

/// The results of all checks of a level and version.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StandardsOutcome {
    /// The checks that forbid the pod, in upstream's order.
    pub violations: Vec<Violation>,
}

impl StandardsOutcome {
    /// Whether nothing forbids the pod.
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.violations.is_empty()
    }

    /// Upstream's short text: the reasons alone.
    #[must_use]
    pub fn reasons(&self) -> String {
        let mut text = String::new();
        for violation in &self.violations {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(violation.reason);
        }
        text
    }

    /// Upstream's long text: reasons with details.
    #[must_use]
    pub fn details(&self) -> String {
        let mut text = String::new();
        for violation in &self.violations {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(violation.reason);
            if !violation.detail.is_empty() {
                text.push_str(" (");
                text.push_str(&violation.detail);
                text.push(')');
            }
        }
        text
    }
}
