//! The metrics of the controllers.
//!
//! What can be read from the state is read when the metrics are requested; only what would be lost is counted.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use palisade_base::metrics::{Metric, Registry};
use palisade_policy::enforcement::classify::Class;

use crate::{
    cluster::{NamespaceRecord, RejectedBy, RejectedWorkload},
    observe::State,
    reports::plan::{ClusterFindings, Outcome},
};

static LEADER: Metric = Metric::gauge("palisade_controller_leader", "Whether this process leads.");
static SYNCED: Metric = Metric::gauge("palisade_controller_synced", "Whether all watches have synced.");
static WRITES: Metric = Metric::counter("palisade_controller_writes_total", "Writes to the API server.");
static TURNS: Metric = Metric::counter("palisade_controller_turns_total", "Reconciliations of a controller.");
static TURN_SECONDS: Metric =
    Metric::seconds("palisade_controller_turn_seconds_total", "Total time of reconciliations.");
static NAMESPACES: Metric =
    Metric::gauge("palisade_rollout_namespaces", "Namespaces by the verdict of enforcement.");
static VIOLATING: Metric =
    Metric::gauge("palisade_rollout_violating_namespaces", "Violating namespaces by class.");
static UNLABELLED: Metric =
    Metric::gauge("palisade_rollout_unlabelled_namespaces", "Managed namespaces without an enforce label.");
static SKIPPED: Metric = Metric::gauge("palisade_rollout_skipped_constraints", "Invalid constraints.");
static MODE: Metric =
    Metric::gauge("palisade_rollout_mode", "The mode in the status of PSAEnforcementConfig.");
static INSTANCES: Metric =
    Metric::gauge("palisade_rollout_instances", "Instances that report, by the level they enforce.");
static EVALUATED: Metric = Metric::gauge(
    "palisade_rollout_last_evaluation_timestamp_seconds",
    "When all namespaces were last evaluated.",
);

static REJECTED: Metric = Metric::gauge(
    "palisade_workload_pods_rejected",
    "Workloads whose pods are rejected: the first hundred, by namespace, kind and name.",
);
static REJECTED_COUNT: Metric = Metric::gauge(
    "palisade_workloads_with_rejected_pods",
    "All workloads whose pods are rejected, by what rejects them.",
);

static VIOLATION: Metric = Metric::gauge(
    "palisade_pod_security_violation",
    "Fields of workloads that the level of their namespace forbids: the first two hundred, by namespace, kind and name.",
);
static FINDINGS: Metric = Metric::gauge(
    "palisade_pod_security_findings",
    "All findings in reports: fail is what the level of the namespace forbids, warn what a stricter one would.",
);

/// How many workloads have a series of their own.
const MOST_WORKLOADS: usize = 100;

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Done.
    Done,
    /// The object has changed in the meantime; the controller decides again.
    Conflict,
    /// The object is gone.
    Gone,
    /// The API server rejected it, or could not be reached.
    Failed,
}

impl WriteOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Failed => "failed",
        }
    }
}

/// The metrics of a process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    is_leader: AtomicBool,
    findings: Mutex<Option<ClusterFindings>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::default();
        registry.declare(&EVALUATED, &[]);
        Self { registry, is_leader: AtomicBool::new(false), findings: Mutex::default() }
    }
}

impl Metrics {
    /// A controller wrote something.
    pub fn wrote(&self, controller: &'static str, outcome: WriteOutcome) {
        self.registry.increment(&WRITES, &[("controller", controller), ("outcome", outcome.as_str())]);
    }

    /// A controller took a turn.
    pub fn turn(&self, controller: &'static str, took: Duration) {
        self.registry.increment(&TURNS, &[("controller", controller)]);
        self.registry.add_time(&TURN_SECONDS, &[("controller", controller)], took);
    }

    /// Whether this process leads.
    pub fn lead(&self, leads: bool) {
        self.is_leader.store(leads, Ordering::Relaxed);
        if !leads {
            self.set_findings(None);
        }
    }

    /// What reports contain now; `None`: this process writes none.
    pub fn set_findings(&self, found: Option<ClusterFindings>) {
        *self.findings.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// When all namespaces were last evaluated, in seconds since 1970.
    pub fn evaluated(&self, seconds: i64) {
        self.registry.set(&EVALUATED, &[], seconds);
    }

    /// Whether this process leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }

    /// All metrics in Prometheus' text format.
    #[must_use]
    pub fn text(&self, state: &State) -> String {
        self.registry.set(&LEADER, &[], self.is_leader());
        self.registry.set(&SYNCED, &[], state.has_synced());
        self.measure_rollout(state);
        self.measure_rejected(&state.cluster.rejected_workloads());
        self.measure_findings();
        self.registry.text()
    }

    fn measure_findings(&self) {
        let registry = &self.registry;
        registry.clear(&VIOLATION);
        registry.clear(&FINDINGS);
        let found = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(found) = &*found else { return };
        for outcome in Outcome::ALL {
            registry.set(&FINDINGS, &[("result", outcome.as_str())], found.counts.of(outcome));
        }
        for (namespace, row) in &found.violations {
            let labels = [
                ("namespace", namespace.as_str()),
                ("kind", &row.kind),
                ("name", &row.name),
                ("policy", row.policy),
                ("rule", row.rule),
                ("field", &row.field),
            ];
            registry.set(&VIOLATION, &labels, true);
        }
    }

    /// Names come from users, so that only a bounded number of them become series.
    fn measure_rejected(&self, rejected: &[RejectedWorkload]) {
        let registry = &self.registry;
        registry.clear(&REJECTED);
        for workload in rejected.iter().take(MOST_WORKLOADS) {
            let labels = [
                ("namespace", workload.namespace.as_str()),
                ("kind", workload.kind),
                ("name", &workload.name),
                ("by", workload.by.as_str()),
            ];
            registry.set(&REJECTED, &labels, true);
        }
        for by in RejectedBy::ALL {
            let count = rejected.iter().filter(|workload| workload.by == by).count();
            registry.set(&REJECTED_COUNT, &[("by", by.as_str())], count);
        }
    }

    fn measure_rollout(&self, state: &State) {
        let (registry, cluster) = (&self.registry, &state.cluster);
        let tally = cluster.tally();
        for (verdict, count) in
            [("clean", tally.clean), ("violating", tally.violating), ("inconclusive", tally.inconclusive)]
        {
            registry.set(&NAMESPACES, &[("verdict", verdict)], count);
        }
        let mut classes: BTreeMap<Class, usize> = Class::ALL.into_iter().map(|class| (class, 0)).collect();
        if tally.violating > 0 {
            for class in cluster.namespaces().filter_map(NamespaceRecord::class) {
                *classes.entry(class).or_default() += 1;
            }
        }
        for (class, count) in classes {
            registry.set(&VIOLATING, &[("condition", class.condition())], count);
        }
        registry.set(&UNLABELLED, &[], cluster.unlabelled().len());
        registry.set(&SKIPPED, &[], cluster.skipped_constraints().len());
        let mode = state.config["status"]["enforcementMode"].as_str().unwrap_or_default();
        for known in ["", "Progressing", "Restricted", "Legacy"] {
            registry.set(&MODE, &[("mode", known)], known == mode);
        }
        let mut levels: BTreeMap<String, usize> = BTreeMap::new();
        for seen in state.reports.values().filter(|seen| seen.is_alive()) {
            let level = seen.report.enforce.map_or_else(String::new, |level| level.to_string());
            *levels.entry(level).or_default() += 1;
        }
        registry.clear(&INSTANCES);
        for (level, count) in levels {
            registry.set(&INSTANCES, &[("enforce", &level)], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MOST_WORKLOADS, Metrics, RejectedBy, RejectedWorkload, State, WriteOutcome};

    #[test]
    fn rejected_workloads_have_a_bounded_number_of_series() {
        let metrics = Metrics::default();
        let workload = |number: usize| RejectedWorkload {
            namespace: "team".to_owned(),
            kind: "Deployment",
            name: format!("web-{number:04}"),
            api_version: "apps/v1".to_owned(),
            uid: String::new(),
            by: RejectedBy::PodSecurity,
            message: "no".to_owned(),
        };
        let series = |metrics: &Metrics| {
            let text = metrics.registry.text();
            let lines = text.lines().filter(|line| line.starts_with("palisade_workload_pods_rejected{"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        metrics.measure_rejected(&(0..250).map(workload).collect::<Vec<_>>());
        assert_eq!(series(&metrics).len(), MOST_WORKLOADS);
        let text = metrics.registry.text();
        let count = "palisade_workloads_with_rejected_pods{by=\"PodSecurity\"} 250";
        assert!(text.lines().any(|line| line == count), "{text}");
        metrics.measure_rejected(&[workload(7)]);
        let one = "palisade_workload_pods_rejected{namespace=\"team\",kind=\"Deployment\",name=\"web-0007\",by=\"PodSecurity\"} 1";
        assert_eq!(series(&metrics), [one]);
    }

    #[test]
    fn writes_counters_and_the_state_of_the_rollout() {
        let metrics = Metrics::default();
        metrics.wrote("label-syncer", WriteOutcome::Done);
        metrics.wrote("label-syncer", WriteOutcome::Done);
        metrics.turn("readiness", Duration::from_millis(1500));
        metrics.lead(true);
        let text = metrics.text(&State::default());
        for line in [
            "palisade_controller_leader 1",
            "palisade_controller_writes_total{controller=\"label-syncer\",outcome=\"done\"} 2",
            "palisade_controller_turn_seconds_total{controller=\"readiness\"} 1.5",
            "palisade_rollout_namespaces{verdict=\"violating\"} 0",
            "palisade_rollout_mode{mode=\"\"} 1",
        ] {
            assert!(text.lines().any(|own| own == line), "{line} in\n{text}");
        }
    }
}
