//! What is counted, in Prometheus' text format.
//!
//! Implements: Kubernetes Metrics Reference, `pod_security_*` (by `palisade-admission`), and counters of our own: reviews by
//! webhook and answer, how long they took, when certificates end, which configuration is in force.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use palisade_admission::metrics::Counters;

use crate::answer::Route;

/// A counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets, in microseconds.
const BOUNDS: [u64; 12] =
    [25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 25_000, 100_000, 1_000_000, 10_000_000];

/// How long something took.
#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    sum: AtomicU64,
}

impl Histogram {
    fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let position = BOUNDS.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.buckets.get(position) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, labels: &str) {
        let mut below = 0;
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            below += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{}\"}} {below}", seconds(*bound));
        }
        let count = self.count.load(Ordering::Relaxed);
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", seconds(self.sum.load(Ordering::Relaxed)));
        let _ = writeln!(out, "{name}_count{{{labels}}} {count}");
    }
}

/// Microseconds as a decimal number of seconds.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Reviews of one webhook.
#[derive(Debug, Default)]
struct Reviews {
    allowed: Counter,
    denied: Counter,
    failed: Counter,
    patched: Counter,
    time: Histogram,
}

/// What became of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Yes; and whether the object was changed.
    Allowed {
        /// With a patch.
        patched: bool,
    },
    /// No.
    Denied,
    /// It was not one.
    Failed,
}

/// All counters of a webhook.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Upstream's.
    pub pod_security: Counters,
    /// Profiles that could not be given to the nodes.
    pub publish_errors: Counter,
    /// Configurations that could not be used.
    pub configuration_errors: Counter,
    /// Registrations that had to be put right.
    pub registrations: Counter,
    /// Connections that were no TLS, too slow, or ended badly.
    pub refused_connections: Counter,
    certificate_expiry: AtomicI64,
    authority_expiry: AtomicI64,
    mutate: Reviews,
    validate: Reviews,
}

impl Metrics {
    /// Counts a review.
    pub fn review(&self, route: Route, outcome: Outcome, took: Duration) {
        let reviews = match route {
            Route::Mutate => &self.mutate,
            Route::Validate => &self.validate,
        };
        match outcome {
            Outcome::Allowed { patched } => {
                reviews.allowed.increment();
                if patched {
                    reviews.patched.increment();
                }
            }
            Outcome::Denied => reviews.denied.increment(),
            Outcome::Failed => reviews.failed.increment(),
        }
        reviews.time.observe(took);
    }

    /// Says until when the certificate that is served and the authority behind it are valid, in seconds since 1970.
    pub fn certificates(&self, certificate: i64, authority: Option<i64>) {
        self.certificate_expiry.store(certificate, Ordering::Relaxed);
        self.authority_expiry.store(authority.unwrap_or_default(), Ordering::Relaxed);
    }

    /// Everything, as text.
    #[must_use]
    pub fn write(&self, revision: Option<&str>, namespaces: usize, ready: bool) -> String {
        let mut out = String::with_capacity(4096);
        self.pod_security.write(&mut out);
        let both = [("mutate", &self.mutate), ("validate", &self.validate)];
        header(&mut out, "palisade_webhook_reviews_total", "counter", "Reviews by webhook and answer.");
        for (name, reviews) in both {
            for (answer, counter) in
                [("allowed", &reviews.allowed), ("denied", &reviews.denied), ("failed", &reviews.failed)]
            {
                let _ = writeln!(
                    out,
                    "palisade_webhook_reviews_total{{answer=\"{answer}\",webhook=\"{name}\"}} {}",
                    counter.get()
                );
            }
        }
        header(&mut out, "palisade_webhook_patches_total", "counter", "Reviews answered with a patch.");
        let _ = writeln!(out, "palisade_webhook_patches_total {}", self.mutate.patched.get());
        let name = "palisade_webhook_review_duration_seconds";
        header(&mut out, name, "histogram", "Time from a complete request to its answer.");
        for (webhook, reviews) in both {
            reviews.time.write(&mut out, name, &format!("webhook=\"{webhook}\""));
        }
        for (name, help, counter) in [
            (
                "palisade_webhook_publish_errors_total",
                "Profiles that could not be given to the nodes while a pod was admitted.",
                &self.publish_errors,
            ),
            (
                "palisade_webhook_configuration_errors_total",
                "Pod Security configurations that could not be used; the last usable one stays in force.",
                &self.configuration_errors,
            ),
            (
                "palisade_webhook_registrations_total",
                "Webhook configurations that were made or put right.",
                &self.registrations,
            ),
            (
                "palisade_webhook_refused_connections_total",
                "Connections that spoke no TLS or were too slow.",
                &self.refused_connections,
            ),
        ] {
            header(&mut out, name, "counter", help);
            let _ = writeln!(out, "{name} {}", counter.get());
        }
        for (name, help, value) in [
            (
                "palisade_webhook_certificate_expiry_seconds",
                "End of the serving certificate's validity, in seconds since 1970.",
                self.certificate_expiry.load(Ordering::Relaxed),
            ),
            (
                "palisade_webhook_authority_expiry_seconds",
                "End of the authority's validity, in seconds since 1970; 0 if it is somebody else's.",
                self.authority_expiry.load(Ordering::Relaxed),
            ),
            (
                "palisade_webhook_known_namespaces",
                "Namespaces in the watch cache.",
                i64::try_from(namespaces).unwrap_or(i64::MAX),
            ),
            ("palisade_webhook_ready", "Whether everything needed is known.", i64::from(ready)),
        ] {
            header(&mut out, name, "gauge", help);
            let _ = writeln!(out, "{name} {value}");
        }
        let name = "palisade_webhook_configuration_info";
        header(&mut out, name, "gauge", "The Pod Security configuration in force, by its revision.");
        if let Some(revision) = revision {
            let _ = writeln!(out, "{name}{{revision=\"{revision}\"}} 1");
        }
        out
    }
}

fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
