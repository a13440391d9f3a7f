//! The metrics of a webhook.
//!
//! Implements: Kubernetes Metrics Reference, `pod_security_*` (by `palisade-admission`), and metrics of our own: reviews by
//! webhook and answer, their duration, the expiry of certificates, the configuration in force.

use std::time::Duration;

use palisade_admission::metrics::Counters;
use palisade_base::metrics::{Metric, Registry};

use crate::answer::Route;

static REVIEWS: Metric = Metric::counter("palisade_webhook_reviews_total", "Reviews by webhook and answer.");
static PATCHES: Metric = Metric::counter("palisade_webhook_patches_total", "Reviews answered with a patch.");
static DURATION: Metric = Metric::histogram(
    "palisade_webhook_review_duration_seconds",
    &[0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.025, 0.1, 1.0, 10.0],
    "Time from a complete request to its answer.",
);
static AUDITED: Metric = Metric::counter(
    "palisade_webhook_constraint_audits_total",
    "Pods that security context constraints would reject or change, in audit mode.",
);
/// Configurations that could not be used.
pub static CONFIGURATION_ERRORS: Metric = Metric::counter(
    "palisade_webhook_configuration_errors_total",
    "Pod Security configurations that could not be used; the last usable one stays in force.",
);
/// Registrations that were written.
pub static REGISTRATIONS: Metric = Metric::counter(
    "palisade_webhook_registrations_total",
    "Webhook configurations that were created or restored.",
);
/// Pods of workloads that were tried.
pub static FAIL_FAST: Metric = Metric::counter(
    "palisade_webhook_fail_fast_total",
    "Dry runs of the pods of written workloads, by result: admitted, rejected, not_now, unknown.",
);
/// Connections without TLS, or without a handshake in time.
pub static REFUSED_CONNECTIONS: Metric = Metric::counter(
    "palisade_webhook_refused_connections_total",
    "Connections without TLS or without a handshake in time.",
);
static CERTIFICATE_EXPIRY: Metric = Metric::gauge(
    "palisade_webhook_certificate_expiry_seconds",
    "End of the serving certificate's validity, in seconds since 1970.",
);
static AUTHORITY_EXPIRY: Metric = Metric::gauge(
    "palisade_webhook_authority_expiry_seconds",
    "End of the authority's validity, in seconds since 1970; 0 if it is not managed by the webhook.",
);
static NAMESPACES: Metric =
    Metric::gauge("palisade_webhook_known_namespaces", "Namespaces in the watch cache.");
static READY: Metric = Metric::gauge("palisade_webhook_ready", "Whether everything needed is known.");
static CONFIGURATION: Metric = Metric::gauge(
    "palisade_webhook_configuration_info",
    "The Pod Security configuration in force, by its revision.",
);

/// How a review ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewOutcome {
    /// Allowed; and whether the object was changed.
    Allowed {
        /// With a patch.
        patched: bool,
    },
    /// Denied.
    Denied,
    /// The request was not a review.
    Failed,
}

/// All metrics of a webhook.
#[derive(Debug)]
pub struct Metrics {
    /// Upstream's.
    pub pod_security: Counters,
    registry: Registry,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::default();
        for webhook in [Route::Mutate, Route::Validate].map(Route::as_str) {
            for answer in ["allowed", "denied", "failed"] {
                registry.declare(&REVIEWS, &[("answer", answer), ("webhook", webhook)]);
            }
            registry.declare(&DURATION, &[("webhook", webhook)]);
        }
        let counters = [&PATCHES, &CONFIGURATION_ERRORS, &REGISTRATIONS, &REFUSED_CONNECTIONS];
        for metric in counters.into_iter().chain([&CERTIFICATE_EXPIRY, &AUTHORITY_EXPIRY]) {
            registry.declare(metric, &[]);
        }
        Self { pod_security: Counters::default(), registry }
    }
}

impl Metrics {
    /// Counts one more.
    pub fn count(&self, metric: &'static Metric) {
        self.registry.increment(metric, &[]);
    }

    /// Counts one of a metric with labels.
    pub fn count_by(&self, metric: &'static Metric, labels: &[(&'static str, &str)]) {
        self.registry.increment(metric, labels);
    }

    /// The value of a metric without labels.
    #[must_use]
    pub fn get(&self, metric: &'static Metric) -> u64 {
        self.registry.get(metric, &[])
    }

    /// Counts a pod that constraints would reject or change.
    pub fn audited(&self, rejects: bool) {
        self.registry.increment(&AUDITED, &[("would", if rejects { "reject" } else { "change" })]);
    }

    /// Counts a review.
    pub fn review(&self, route: Route, outcome: ReviewOutcome, took: Duration) {
        let answer = match outcome {
            ReviewOutcome::Allowed { .. } => "allowed",
            ReviewOutcome::Denied => "denied",
            ReviewOutcome::Failed => "failed",
        };
        let webhook = ("webhook", route.as_str());
        self.registry.increment(&REVIEWS, &[("answer", answer), webhook]);
        if outcome == (ReviewOutcome::Allowed { patched: true }) {
            self.count(&PATCHES);
        }
        self.registry.observe(&DURATION, &[webhook], took);
    }

    /// Sets until when the certificate that is served and the authority behind it are valid, in seconds since 1970.
    pub fn certificates(&self, certificate: i64, authority: Option<i64>) {
        self.registry.set(&CERTIFICATE_EXPIRY, &[], certificate);
        self.registry.set(&AUTHORITY_EXPIRY, &[], authority.unwrap_or_default());
    }

    /// All metrics in Prometheus' text format.
    #[must_use]
    pub fn text(&self, revision: Option<&str>, namespaces: usize, is_ready: bool) -> String {
        self.registry.set(&NAMESPACES, &[], namespaces);
        self.registry.set(&READY, &[], is_ready);
        self.registry.clear(&CONFIGURATION);
        if let Some(revision) = revision {
            self.registry.set(&CONFIGURATION, &[("revision", revision)], 1_u64);
        }
        self.pod_security.text() + &self.registry.text()
    }
}
