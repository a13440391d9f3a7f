//! The counters of Pod Security Admission.
//!
//! Implements: Kubernetes Metrics Reference, `pod_security_*`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use palisade_admission::pod_security::{Counted, metric_version};

use crate::admission_chain::{Operation, Request};
use crate::storage::lock;

/// Counters by their labels, written out.
#[derive(Debug)]
pub(super) struct Counters {
    evaluations: Mutex<BTreeMap<String, u64>>,
    exemptions: Mutex<BTreeMap<String, u64>>,
    errors: Mutex<BTreeMap<String, u64>>,
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
    /// Counts what a verdict says.
    pub(super) fn count(&self, request: &Request<'_>, counted: &[Counted]) {
        let operation = if request.operation == Operation::Create { "create" } else { "update" };
        let resource =
            if request.kind.group.is_empty() && request.kind.plural == "pods" { "pod" } else { "controller" };
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
                        request.subresource,
                    );
                    *lock(&self.evaluations).entry(labels).or_default() += 1;
                }
                Counted::Exemption => {
                    let labels = exemption(operation, resource, request.subresource);
                    *lock(&self.exemptions).entry(labels).or_default() += 1;
                }
                Counted::Error { fatal } => {
                    let labels =
                        format!("fatal=\"{fatal}\",{}", exemption(operation, resource, request.subresource));
                    *lock(&self.errors).entry(labels).or_default() += 1;
                }
            }
        }
    }

    /// The counters in Prometheus' text format.
    pub(super) fn write(&self, out: &mut String) {
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
