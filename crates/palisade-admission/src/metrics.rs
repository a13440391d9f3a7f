//! The counters of Pod Security Admission.
//!
//! Implements: Kubernetes Metrics Reference, `pod_security_*`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard};

use crate::pod_security::{Counted, metric_version};

/// Series at most for each counter: what is beyond is left out, since their labels come from requests.
const MOST_SERIES: usize = 1024;

type Series = Mutex<BTreeMap<String, u64>>;

fn lock(series: &Series) -> MutexGuard<'_, BTreeMap<String, u64>> {
    series.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn increment(series: &Series, labels: String) {
    let mut series = lock(series);
    if series.len() < MOST_SERIES || series.contains_key(&labels) {
        *series.entry(labels).or_default() += 1;
    }
}

/// A label's value between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Counters by their labels, written out.
#[derive(Debug)]
pub struct Counters {
    evaluations: Series,
    exemptions: Series,
    errors: Series,
}

impl Default for Counters {
    fn default() -> Self {
        let counters =
            Self { evaluations: Mutex::default(), exemptions: Mutex::default(), errors: Mutex::default() };
        // Upstream shows these from the start.
        for operation in ["create", "update"] {
            let labels = evaluation("allow", "privileged", "latest", "enforce", operation, "pod", "");
            lock(&counters.evaluations).insert(labels, 0);
            for resource in ["pod", "controller"] {
                lock(&counters.exemptions).insert(exemption(operation, resource, ""), 0);
            }
        }
        counters
    }
}

fn evaluation(
    decision: &str,
    level: &str,
    version: &str,
    mode: &str,
    operation: &str,
    resource: &str,
    subresource: &str,
) -> String {
    format!(
        "decision=\"{decision}\",mode=\"{mode}\",policy_level=\"{level}\",policy_version=\"{version}\",\
         request_operation=\"{operation}\",resource=\"{resource}\",subresource=\"{subresource}\""
    )
}

fn exemption(operation: &str, resource: &str, subresource: &str) -> String {
    format!("request_operation=\"{operation}\",resource=\"{resource}\",subresource=\"{subresource}\"")
}

impl Counters {
    /// Counts what a verdict says about a request: its operation in lower case, whether it is about a `pod`, a
    /// `namespace` or a `controller`, and the subresource.
    pub fn count(&self, operation: &str, resource: &str, subresource: &str, counted: &[Counted]) {
        let clean = subresource.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let subresource = if clean { Cow::Borrowed(subresource) } else { Cow::Owned(escaped(subresource)) };
        for entry in counted {
            match entry {
                Counted::Evaluation { mode, allowed, policy } => {
                    let decision = if *allowed { "allow" } else { "deny" };
                    let labels = evaluation(
                        decision,
                        policy.level.as_str(),
                        &metric_version(*policy),
                        mode.as_str(),
                        operation,
                        resource,
                        &subresource,
                    );
                    increment(&self.evaluations, labels);
                }
                Counted::Exemption => {
                    let labels = exemption(operation, resource, &subresource);
                    increment(&self.exemptions, labels);
                }
                Counted::Error { fatal } => {
                    let labels =
                        format!("fatal=\"{fatal}\",{}", exemption(operation, resource, &subresource));
                    increment(&self.errors, labels);
                }
            }
        }
    }

    /// The counters in Prometheus' text format.
    pub fn write(&self, out: &mut String) {
        for (name, help, series) in [
            (
                "pod_security_errors_total",
                "Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted \
                 profile being used for evaluation.",
                &self.errors,
            ),
            (
                "pod_security_evaluations_total",
                "Number of policy evaluations that occurred, not counting ignored or exempt requests.",
                &self.evaluations,
            ),
            (
                "pod_security_exemptions_total",
                "Number of exempt requests, not counting ignored or out of scope requests.",
                &self.exemptions,
            ),
        ] {
            let series = lock(series);
            if series.is_empty() {
                continue;
            }
            let _ = writeln!(out, "# HELP {name} [ALPHA] {help}\n# TYPE {name} counter");
            for (labels, count) in series.iter() {
                let _ = writeln!(out, "{name}{{{labels}}} {count}");
            }
        }
    }
}
