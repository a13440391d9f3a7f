//! `/metrics` in Prometheus' text format, with upstream's names.
//!
//! Implements: Kubernetes Metrics Reference, `apiserver_request_*`.
//! <https://kubernetes.io/docs/reference/instrumentation/metrics/>

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use palisade_base::metrics::{Metric, Registry};

use crate::http::RequestInfo;

static REQUESTS: Metric = Metric::counter(
    "apiserver_request_total",
    "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, \
     component, and HTTP response code.",
);
static DURATION: Metric = Metric::histogram(
    "apiserver_request_duration_seconds",
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0],
    "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, \
     subresource, scope and component.",
);
static LONG_RUNNING: Metric = Metric::gauge(
    "apiserver_longrunning_requests",
    "[STABLE] Gauge of all active long-running apiserver requests.",
);
static TERMINATED: Metric = Metric::counter(
    "apiserver_terminated_watchers_total",
    "[ALPHA] Counter of watchers closed due to unresponsiveness broken by resource type.",
);

/// The metrics of a server.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Everything that is counted, except by plugins.
    pub registry: Registry,
    watchers: Arc<AtomicI64>,
}

/// Counts a watch as long as it lives.
#[derive(Debug)]
pub struct WatchGuard(Arc<AtomicI64>);

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Counts a watch that begins.
    #[must_use]
    pub fn watch(&self) -> WatchGuard {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        WatchGuard(self.watchers.clone())
    }

    /// Counts a watch that was ended because its client took nothing.
    pub fn terminated_watch(&self, group: &str, resource: &str) {
        self.registry.increment(&TERMINATED, &[("group", group), ("resource", resource)]);
    }

    /// Counts a request. Those that find nothing are counted together.
    pub fn request(&self, info: &RequestInfo, code: u16, elapsed: Duration) {
        let (mut group, mut resource, mut scope, mut subresource, mut version) = ("", "", "", "", "");
        if info.is_resource && code != 404 {
            (group, resource) = (&info.group, &info.resource);
            (subresource, version) = (&info.subresource, &info.version);
            scope = match (info.named, info.namespace.is_empty()) {
                (true, _) => "resource",
                (false, false) => "namespace",
                (false, true) => "cluster",
            };
        } else if code != 404 {
            subresource = &info.path;
        }
        let code = code.to_string();
        let labels = [
            ("code", code.as_str()),
            ("component", "apiserver"),
            ("group", group),
            ("resource", resource),
            ("scope", scope),
            ("subresource", subresource),
            ("verb", upstream_verb(info.verb)),
            ("version", version),
        ];
        self.registry.increment(&REQUESTS, &labels);
        // A watch lasts as long as its client likes: that is not the duration of a response.
        if info.verb != "watch" {
            self.registry.observe(&DURATION, labels.get(1..).unwrap_or_default(), elapsed);
        }
    }

    /// All metrics in Prometheus' text format.
    #[must_use]
    pub fn text(&self) -> String {
        self.registry.set(&LONG_RUNNING, &[("verb", "WATCH")], self.watchers.load(Ordering::Relaxed));
        self.registry.text()
    }
}

fn upstream_verb(verb: &str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}
