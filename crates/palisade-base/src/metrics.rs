//! The metrics of a component and their text.
//!
//! Implements: Prometheus, "Exposition formats", text format 0.0.4, as upstream's components serve it.
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>
//!
//! Crates compared: `prometheus-client` writes OpenMetrics, where `# TYPE` names a counter without `_total`; `prometheus` does not
//! bound the number of series, and here labels come from requests; `metrics` has one recorder for a process, and tests run
//! several servers in one.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A metric may have this many series; further ones are left out, so that no client can fill the memory.
const MOST_SERIES: usize = 4096;

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// A counter of time, in seconds.
    Seconds,
    /// Is set.
    Gauge,
    /// Counts durations by these upper bounds, in seconds.
    Histogram(&'static [f64]),
}

/// The name, kind and description of a metric.
#[derive(Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What it counts.
    pub help: &'static str,
}

impl Metric {
    /// A counter.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, help }
    }

    /// A counter of time.
    #[must_use]
    pub const fn seconds(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Seconds, help }
    }

    /// A gauge.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, help }
    }

    /// A histogram of durations.
    #[must_use]
    pub const fn histogram(name: &'static str, bounds: &'static [f64], help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram(bounds), help }
    }
}

/// The labels of a series, in the order they are written in.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

#[derive(Debug, Clone)]
enum Value {
    Number(u64),
    Time(Duration),
    /// How many fell below each bound and not below the one before, and how many in all.
    Histogram(Vec<u64>, u64, Duration),
}

impl Value {
    fn zero(kind: Kind) -> Self {
        match kind {
            Kind::Counter | Kind::Gauge => Self::Number(0),
            Kind::Seconds => Self::Time(Duration::ZERO),
            Kind::Histogram(bounds) => Self::Histogram(vec![0; bounds.len()], 0, Duration::ZERO),
        }
    }
}

/// Series of a metric by their labels, written out.
type Series = BTreeMap<String, Value>;

/// The metrics of a component.
#[derive(Debug, Default)]
pub struct Registry {
    /// Metrics by their name, with their series.
    metrics: Mutex<BTreeMap<&'static str, (&'static Metric, Series)>>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, (&'static Metric, Series)>> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, metric: &'static Metric, labels: Labels<'_>, change: impl FnOnce(&mut Value)) {
        let labels = written(labels);
        let mut metrics = self.lock();
        let (_, series) = metrics.entry(metric.name).or_insert_with(|| (metric, Series::new()));
        if series.len() < MOST_SERIES || series.contains_key(&labels) {
            change(series.entry(labels).or_insert_with(|| Value::zero(metric.kind)));
        }
    }

    /// Counts one more.
    pub fn increment(&self, metric: &'static Metric, labels: Labels<'_>) {
        self.update(metric, labels, |value| {
            if let Value::Number(number) = value {
                *number = number.saturating_add(1);
            }
        });
    }

    /// Makes a series appear before anything has been counted.
    pub fn declare(&self, metric: &'static Metric, labels: Labels<'_>) {
        self.update(metric, labels, |_| {});
    }

    /// Counts time, in seconds.
    pub fn add_time(&self, metric: &'static Metric, labels: Labels<'_>, more: Duration) {
        self.update(metric, labels, |value| {
            if let Value::Time(time) = value {
                *time = time.saturating_add(more);
            }
        });
    }

    /// Sets a gauge.
    pub fn set(&self, metric: &'static Metric, labels: Labels<'_>, number: impl TryInto<u64>) {
        let number = number.try_into().unwrap_or(u64::MAX);
        self.update(metric, labels, |value| *value = Value::Number(number));
    }

    /// Removes all series of a metric: the objects of their labels may be gone.
    pub fn clear(&self, metric: &'static Metric) {
        self.lock().remove(metric.name);
    }

    /// Adds a duration to a histogram.
    pub fn observe(&self, metric: &'static Metric, labels: Labels<'_>, took: Duration) {
        let Kind::Histogram(bounds) = metric.kind else { return };
        self.update(metric, labels, |value| {
            if let Value::Histogram(counts, count, sum) = value {
                let seconds = took.as_secs_f64();
                if let Some(below) = counts.get_mut(bounds.partition_point(|bound| *bound < seconds)) {
                    *below += 1;
                }
                *count += 1;
                *sum = sum.saturating_add(took);
            }
        });
    }

    /// The number of a series, 0 if there is none.
    #[must_use]
    pub fn get(&self, metric: &'static Metric, labels: Labels<'_>) -> u64 {
        let metrics = self.lock();
        let value = metrics.get(metric.name).and_then(|(_, series)| series.get(&written(labels)));
        if let Some(Value::Number(number)) = value { *number } else { 0 }
    }

    /// All metrics that have a series, by name.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, (metric, series)) in &*self.lock() {
            let kind = match metric.kind {
                Kind::Counter | Kind::Seconds => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram(_) => "histogram",
            };
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", metric.help);
            for (labels, value) in series {
                write_series(&mut text, metric, labels, value);
            }
        }
        text
    }
}

fn write_series(text: &mut String, metric: &Metric, labels: &str, value: &Value) {
    let name = metric.name;
    let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = match value {
        Value::Number(number) => writeln!(text, "{name}{braced} {number}"),
        Value::Time(time) => writeln!(text, "{name}{braced} {}", time.as_secs_f64()),
        Value::Histogram(counts, count, sum) => {
            let Kind::Histogram(bounds) = metric.kind else { return };
            let before = if labels.is_empty() { String::new() } else { format!("{labels},") };
            let mut below = 0;
            for (bound, own) in bounds.iter().zip(counts) {
                below += own;
                let _ = writeln!(text, "{name}_bucket{{{before}le=\"{bound}\"}} {below}");
            }
            let sum = sum.as_secs_f64();
            writeln!(
                text,
                "{name}_bucket{{{before}le=\"+Inf\"}} {count}\n{name}_sum{braced} {sum}\n{name}_count{braced} {count}"
            )
        }
    };
}

fn written(labels: Labels<'_>) -> String {
    let mut text =
        String::with_capacity(labels.iter().map(|(name, value)| name.len() + value.len() + 4).sum());
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MOST_SERIES, Metric, Registry};

    static READS: Metric = Metric::counter("reads_total", "Reads.");
    static BUSY: Metric = Metric::seconds("busy_seconds_total", "Time at work.");
    static OPEN: Metric = Metric::gauge("open", "Open files.");
    static TOOK: Metric = Metric::histogram("took_seconds", &[0.001, 0.5], "Durations.");

    #[test]
    fn writes_the_text_that_prometheus_reads() {
        let registry = Registry::default();
        registry.increment(&READS, &[("path", "a \"b\"\\\n"), ("code", "200")]);
        registry.declare(&READS, &[("path", "none"), ("code", "200")]);
        registry.add_time(&BUSY, &[("who", "x")], Duration::from_millis(1500));
        registry.set(&OPEN, &[], 7_usize);
        registry.set(&OPEN, &[], 3_i64);
        for millis in [1, 400, 9000] {
            registry.observe(&TOOK, &[("verb", "GET")], Duration::from_millis(millis));
        }
        let expected = r#"# HELP busy_seconds_total Time at work.
# TYPE busy_seconds_total counter
busy_seconds_total{who="x"} 1.5
# HELP open Open files.
# TYPE open gauge
open 3
# HELP reads_total Reads.
# TYPE reads_total counter
reads_total{path="a \"b\"\\\n",code="200"} 1
reads_total{path="none",code="200"} 0
# HELP took_seconds Durations.
# TYPE took_seconds histogram
took_seconds_bucket{verb="GET",le="0.001"} 1
took_seconds_bucket{verb="GET",le="0.5"} 2
took_seconds_bucket{verb="GET",le="+Inf"} 3
took_seconds_sum{verb="GET"} 9.401
took_seconds_count{verb="GET"} 3
"#;
        assert_eq!(registry.text(), expected);
        assert_eq!(registry.get(&OPEN, &[]), 3);
        registry.clear(&OPEN);
        assert_eq!(registry.get(&OPEN, &[]), 0);
        assert!(!registry.text().contains("open"));
    }

    #[test]
    fn bounds_the_number_of_series() {
        let registry = Registry::default();
        for number in 0..=MOST_SERIES {
            registry.increment(&READS, &[("path", &number.to_string())]);
        }
        assert_eq!(registry.get(&READS, &[("path", "0")]), 1);
        assert_eq!(registry.get(&READS, &[("path", &MOST_SERIES.to_string())]), 0);
        registry.increment(&READS, &[("path", "0")]);
        assert_eq!(registry.get(&READS, &[("path", "0")]), 2);
    }
}
