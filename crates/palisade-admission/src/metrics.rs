//! The counters of Pod Security Admission.
//!
//! Implements: Kubernetes Metrics Reference, `pod_security_*`.

use palisade_base::metrics::{Metric, Registry};

use crate::pod_security::{Counted, metric_version};

static ERRORS: Metric = Metric::counter(
    "pod_security_errors_total",
    "[ALPHA] Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted \
     profile being used for evaluation.",
);
static EVALUATIONS: Metric = Metric::counter(
    "pod_security_evaluations_total",
    "[ALPHA] Number of policy evaluations that occurred, not counting ignored or exempt requests.",
);
static EXEMPTIONS: Metric = Metric::counter(
    "pod_security_exemptions_total",
    "[ALPHA] Number of exempt requests, not counting ignored or out of scope requests.",
);

/// The counters of an API server or webhook.
#[derive(Debug)]
pub struct Counters(Registry);

impl Default for Counters {
    fn default() -> Self {
        let registry = Registry::default();
        // Upstream shows these from the start.
        for operation in ["create", "update"] {
            registry.declare(
                &EVALUATIONS,
                &[
                    ("decision", "allow"),
                    ("mode", "enforce"),
                    ("policy_level", "privileged"),
                    ("policy_version", "latest"),
                    ("request_operation", operation),
                    ("resource", "pod"),
                    ("subresource", ""),
                ],
            );
            for resource in ["pod", "controller"] {
                registry.declare(
                    &EXEMPTIONS,
                    &[("request_operation", operation), ("resource", resource), ("subresource", "")],
                );
            }
        }
        Self(registry)
    }
}

impl Counters {
    /// Counts a verdict about a request: its operation in lower case, whether it is about a `pod`, a
    /// `namespace` or a `controller`, and the subresource.
    pub fn count(&self, operation: &str, resource: &str, subresource: &str, counted: &[Counted]) {
        let request =
            [("request_operation", operation), ("resource", resource), ("subresource", subresource)];
        let [operation, resource, subresource] = request;
        for entry in counted {
            match entry {
                Counted::Evaluation { mode, allowed, policy } => {
                    let labels = [
                        ("decision", if *allowed { "allow" } else { "deny" }),
                        ("mode", mode.as_str()),
                        ("policy_level", policy.level.as_str()),
                        ("policy_version", &metric_version(*policy)),
                        operation,
                        resource,
                        subresource,
                    ];
                    self.0.increment(&EVALUATIONS, &labels);
                }
                Counted::Exemption => self.0.increment(&EXEMPTIONS, &request),
                Counted::Error { fatal } => {
                    let fatal = if *fatal { "true" } else { "false" };
                    self.0.increment(&ERRORS, &[("fatal", fatal), operation, resource, subresource]);
                }
            }
        }
    }

    /// The counters in Prometheus' text format.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.text()
    }
}
