//! What the controllers count, in the text format of Prometheus.
//!
//! Implements: Prometheus, "Exposition formats". What can be read from the state is read when somebody asks; only what
//! would be forgotten is counted here.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use palisade_policy::enforcement::classify::Class;

use crate::{cluster::NamespaceRecord, observe::State};

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Done.
    Done,
    /// Somebody else was faster; it is decided anew.
    Conflict,
    /// The object is gone.
    Gone,
    /// The API server refused, or could not be asked.
    Failed,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Failed => "failed",
        }
    }
}

#[derive(Debug, Default)]
struct Turns {
    count: u64,
    nanos: u64,
}

/// Counters.
#[derive(Debug, Default)]
pub struct Metrics {
    writes: Mutex<BTreeMap<(&'static str, Outcome), u64>>,
    turns: Mutex<BTreeMap<&'static str, Turns>>,
    is_leader: AtomicBool,
    evaluated_at: AtomicU64,
}

impl Metrics {
    /// A controller wrote something.
    pub fn wrote(&self, controller: &'static str, outcome: Outcome) {
        *lock(&self.writes).entry((controller, outcome)).or_default() += 1;
    }

    /// A controller took a turn.
    pub fn turn(&self, controller: &'static str, took: Duration) {
        let mut turns = lock(&self.turns);
        let own = turns.entry(controller).or_default();
        own.count += 1;
        own.nanos = own.nanos.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Whether this process leads.
    pub fn lead(&self, leads: bool) {
        self.is_leader.store(leads, Ordering::Relaxed);
    }

    /// When all namespaces were last evaluated, in seconds since 1970.
    pub fn evaluated(&self, seconds: i64) {
        self.evaluated_at.store(u64::try_from(seconds).unwrap_or_default(), Ordering::Relaxed);
    }

    /// Whether this process leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }

    /// All of it.
    #[must_use]
    pub fn render(&self, state: &State) -> String {
        let mut out = String::new();
        head(&mut out, "palisade_controller_leader", "gauge", "Whether this process leads.");
        let _ = writeln!(out, "palisade_controller_leader {}", u8::from(self.is_leader()));
        head(&mut out, "palisade_controller_synced", "gauge", "Whether everything has been seen once.");
        let _ = writeln!(out, "palisade_controller_synced {}", u8::from(state.has_synced()));
        head(&mut out, "palisade_controller_writes_total", "counter", "Writes to the API server.");
        for ((controller, outcome), count) in &*lock(&self.writes) {
            let outcome = outcome.as_str();
            let _ = writeln!(
                out,
                "palisade_controller_writes_total{{controller=\"{controller}\",outcome=\"{outcome}\"}} {count}"
            );
        }
        head(&mut out, "palisade_controller_turns_total", "counter", "How often a controller looked.");
        for (controller, turns) in &*lock(&self.turns) {
            let count = turns.count;
            let _ = writeln!(out, "palisade_controller_turns_total{{controller=\"{controller}\"}} {count}");
        }
        head(&mut out, "palisade_controller_turn_seconds_total", "counter", "How long that took in all.");
        for (controller, turns) in &*lock(&self.turns) {
            let seconds = Duration::from_nanos(turns.nanos).as_secs_f64();
            let _ = writeln!(
                out,
                "palisade_controller_turn_seconds_total{{controller=\"{controller}\"}} {seconds}"
            );
        }
        self.rollout(state, &mut out);
        out
    }

    fn rollout(&self, state: &State, out: &mut String) {
        let cluster = &state.cluster;
        let tally = cluster.tally();
        head(out, "palisade_rollout_namespaces", "gauge", "Namespaces by what they would suffer.");
        for (verdict, count) in
            [("clean", tally.clean), ("violating", tally.violating), ("inconclusive", tally.inconclusive)]
        {
            let _ = writeln!(out, "palisade_rollout_namespaces{{verdict=\"{verdict}\"}} {count}");
        }
        head(out, "palisade_rollout_violating_namespaces", "gauge", "Violating namespaces by class.");
        let mut classes: BTreeMap<Class, usize> = Class::ALL.into_iter().map(|class| (class, 0)).collect();
        if tally.violating > 0 {
            for class in cluster.namespaces().filter_map(NamespaceRecord::class) {
                *classes.entry(class).or_default() += 1;
            }
        }
        for (class, count) in classes {
            let name = class.condition();
            let _ = writeln!(out, "palisade_rollout_violating_namespaces{{condition=\"{name}\"}} {count}");
        }
        head(
            out,
            "palisade_rollout_unlabelled_namespaces",
            "gauge",
            "Managed namespaces without an enforce label.",
        );
        let _ = writeln!(out, "palisade_rollout_unlabelled_namespaces {}", cluster.unlabelled().len());
        head(out, "palisade_rollout_skipped_constraints", "gauge", "Constraints that make no sense.");
        let _ = writeln!(out, "palisade_rollout_skipped_constraints {}", cluster.skipped_constraints().len());
        head(out, "palisade_rollout_mode", "gauge", "The mode in the status of PSAEnforcementConfig.");
        let mode = state.config["status"]["enforcementMode"].as_str().unwrap_or_default();
        for known in ["", "Progressing", "Restricted", "Legacy"] {
            let _ = writeln!(out, "palisade_rollout_mode{{mode=\"{known}\"}} {}", u8::from(known == mode));
        }
        head(out, "palisade_rollout_instances", "gauge", "Instances that report, by the level they enforce.");
        let mut levels: BTreeMap<String, usize> = BTreeMap::new();
        for seen in state.reports.values().filter(|seen| seen.is_alive()) {
            let level = seen.report.enforce.map_or_else(String::new, |level| level.to_string());
            *levels.entry(level).or_default() += 1;
        }
        for (level, count) in levels {
            let _ = writeln!(out, "palisade_rollout_instances{{enforce=\"{level}\"}} {count}");
        }
        head(
            out,
            "palisade_rollout_last_evaluation_timestamp_seconds",
            "gauge",
            "When all namespaces were last evaluated.",
        );
        let at = self.evaluated_at.load(Ordering::Relaxed);
        let _ = writeln!(out, "palisade_rollout_last_evaluation_timestamp_seconds {at}");
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Metrics, Outcome, State};

    #[test]
    fn everything_is_told_in_the_format_of_prometheus() {
        let metrics = Metrics::default();
        metrics.wrote("label-syncer", Outcome::Done);
        metrics.wrote("label-syncer", Outcome::Done);
        metrics.turn("readiness", Duration::from_millis(1500));
        metrics.lead(true);
        let text = metrics.render(&State::default());
        for line in [
            "palisade_controller_leader 1",
            "palisade_controller_writes_total{controller=\"label-syncer\",outcome=\"done\"} 2",
            "palisade_controller_turn_seconds_total{controller=\"readiness\"} 1.5",
            "palisade_rollout_namespaces{verdict=\"violating\"} 0",
            "palisade_rollout_mode{mode=\"\"} 1",
        ] {
            assert!(text.lines().any(|own| own == line), "{line} in\n{text}");
        }
        let names: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        assert_eq!(names.len(), text.lines().filter(|line| line.starts_with("# HELP")).count());
    }
}
