//! Numbers about the agent, for Prometheus.
//!
//! Implements: the text exposition format 0.0.4. Serving them is the command line's.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

/// A metric: its name, its type, what it tells.
type Described = (&'static str, &'static str, &'static str);

const METRICS: &[Described] = &[
    ("palisade_node_api_errors_total", "counter", "Requests to the API server that failed."),
    ("palisade_node_drift", "gauge", "Differences between what pods declare and what the kernel enforces."),
    ("palisade_node_older_profiles", "gauge", "Containers that run a profile its ConfigMap no longer holds."),
    ("palisade_node_profile_bytes", "gauge", "Size of all profiles in place."),
    (
        "palisade_node_profile_incidents_total",
        "counter",
        "Profiles found deleted, changed or replaced, and files that should not be there.",
    ),
    ("palisade_node_profile_writes_total", "counter", "Profiles put in place."),
    ("palisade_node_profiles", "gauge", "Profiles on the node, in place or missing."),
    ("palisade_node_profiles_ready", "gauge", "Whether every profile is in place."),
    ("palisade_node_report_writes_total", "counter", "How often the report was written."),
    ("palisade_node_verified_containers", "gauge", "Containers that were compared with the kernel."),
];

/// The numbers, shared between the agent and whoever asks.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    values: Arc<Mutex<BTreeMap<(&'static str, &'static str), u64>>>,
}

impl Metrics {
    /// Sets a gauge; `labels` is empty or such as `state="held"`.
    pub fn set(&self, name: &'static str, labels: &'static str, value: usize) {
        let value = u64::try_from(value).unwrap_or(u64::MAX);
        self.values.lock().unwrap_or_else(PoisonError::into_inner).insert((name, labels), value);
    }

    /// Counts one more.
    pub fn count(&self, name: &'static str, labels: &'static str) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry((name, labels)).or_default();
        *value = value.saturating_add(1);
    }

    /// A number as it stands.
    #[must_use]
    pub fn get(&self, name: &'static str, labels: &'static str) -> u64 {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.get(&(name, labels)).copied().unwrap_or_default()
    }

    /// All of them as text.
    #[must_use]
    pub fn text(&self) -> String {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut text = String::new();
        for (name, kind, help) in METRICS {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for ((_, labels), value) in values.range((*name, "")..).take_while(|((own, _), _)| own == name) {
                let _ = match *labels {
                    "" => writeln!(text, "{name} {value}"),
                    labels => writeln!(text, "{name}{{{labels}}} {value}"),
                };
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_read_as_prometheus_wants_them() {
        let metrics = Metrics::default();
        metrics.set("palisade_node_profiles", "state=\"held\"", 3);
        metrics.set("palisade_node_profiles", "state=\"missing\"", 1);
        metrics.count("palisade_node_profile_writes_total", "");
        let text = metrics.text();
        assert!(
            text.contains(
                "palisade_node_profiles{state=\"held\"} 3\npalisade_node_profiles{state=\"missing\"} 1\n"
            ),
            "{text}"
        );
        assert!(text.contains(
            "# TYPE palisade_node_profile_writes_total counter\npalisade_node_profile_writes_total 1\n"
        ));
        let names: Vec<_> = METRICS.iter().map(|(name, _, _)| name).collect();
        assert!(names.is_sorted());
    }
}
