//! `/metrics` in Prometheus' text format, with upstream's names.
//!
//! Implements: Kubernetes Metrics Reference, `apiserver_request_*`.
//! <https://kubernetes.io/docs/reference/instrumentation/metrics/>

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::http::RequestInfo;
use crate::storage::lock;

/// Upper bounds of the duration histogram, in seconds.
const BUCKETS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Labels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
}

#[derive(Debug, Default, Clone)]
struct Histogram {
    counts: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

#[derive(Debug, Default)]
struct Series {
    codes: BTreeMap<u16, u64>,
    duration: Histogram,
    response_bytes: u64,
}

/// The counters of a server.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<Labels, Series>>,
    watchers: Arc<AtomicI64>,
    /// Watches that were ended because their client took nothing, by resource.
    terminated: Mutex<BTreeMap<(String, String), u64>>,
}

/// Counts a watch as long as it lives.
#[derive(Debug)]
pub struct WatchGuard(Arc<AtomicI64>);

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Paths and resources that nobody serves are counted together: who asks for random paths must not fill our memory.
const MAX_SERIES: usize = 4096;

impl Metrics {
    /// Counts a watch that begins.
    #[must_use]
    pub fn watch(&self) -> WatchGuard {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        WatchGuard(self.watchers.clone())
    }

    /// Counts a watch that was ended because its client took nothing.
    pub fn terminated_watch(&self, group: &str, resource: &str) {
        *lock(&self.terminated).entry((group.to_owned(), resource.to_owned())).or_default() += 1;
    }

    /// Counts a request.
    pub fn request(&self, info: &RequestInfo, code: u16, bytes: u64, elapsed: Duration) {
        let labels = if info.is_resource && code != 404 {
            let scope = match (info.named, info.namespace.is_empty()) {
                (true, _) => "resource",
                (false, false) => "namespace",
                (false, true) => "cluster",
            };
            Labels {
                verb: upstream_verb(info.verb),
                group: info.group.clone(),
                version: info.version.clone(),
                resource: info.resource.clone(),
                subresource: info.subresource.clone(),
                scope,
            }
        } else {
            let known = if code == 404 { String::new() } else { info.path.clone() };
            Labels {
                verb: upstream_verb(info.verb),
                group: String::new(),
                version: String::new(),
                resource: String::new(),
                subresource: known,
                scope: "",
            }
        };
        let mut requests = lock(&self.requests);
        if requests.len() >= MAX_SERIES && !requests.contains_key(&labels) {
            return;
        }
        let series = requests.entry(labels).or_default();
        *series.codes.entry(code).or_default() += 1;
        series.response_bytes = series.response_bytes.saturating_add(bytes);
        // A watch lasts as long as its client likes: that is not the duration of an answer.
        if info.verb != "watch" {
            let seconds = elapsed.as_secs_f64();
            let at = BUCKETS.partition_point(|bound| *bound < seconds);
            if let Some(count) = series.duration.counts.get_mut(at) {
                *count += 1;
            }
            series.duration.count += 1;
            series.duration.sum += seconds;
        }
    }

    /// Writes the counters.
    pub fn render(&self, out: &mut String) {
        let requests = lock(&self.requests);
        out.push_str(
            "# HELP apiserver_request_total [STABLE] Counter of apiserver requests broken out for each verb, dry run \
             value, group, version, resource, scope, component, and HTTP response code.\n\
             # TYPE apiserver_request_total counter\n",
        );
        for (labels, series) in requests.iter() {
            for (code, count) in &series.codes {
                let _ = writeln!(out, "apiserver_request_total{{code=\"{code}\",{}}} {count}", text(labels));
            }
        }
        out.push_str(
            "# HELP apiserver_request_duration_seconds [STABLE] Response latency distribution in seconds for each verb, \
             dry run value, group, version, resource, subresource, scope and component.\n\
             # TYPE apiserver_request_duration_seconds histogram\n",
        );
        for (labels, series) in requests.iter().filter(|(_, s)| s.duration.count > 0) {
            let labels = text(labels);
            let mut cumulative = 0;
            for (bound, count) in BUCKETS.iter().zip(&series.duration.counts) {
                cumulative += count;
                let _ = writeln!(
                    out,
                    "apiserver_request_duration_seconds_bucket{{{labels},le=\"{bound}\"}} {cumulative}"
                );
            }
            let Histogram { count, sum, .. } = &series.duration;
            let _ =
                writeln!(out, "apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(out, "apiserver_request_duration_seconds_sum{{{labels}}} {sum}");
            let _ = writeln!(out, "apiserver_request_duration_seconds_count{{{labels}}} {count}");
        }
        drop(requests);
        let watchers = self.watchers.load(Ordering::Relaxed);
        let _ = writeln!(
            out,
            "# HELP apiserver_longrunning_requests [STABLE] Gauge of all active long-running apiserver requests.\n\
             # TYPE apiserver_longrunning_requests gauge\n\
             apiserver_longrunning_requests{{verb=\"WATCH\"}} {watchers}"
        );
        out.push_str(
            "# HELP apiserver_terminated_watchers_total [ALPHA] Counter of watchers closed due to unresponsiveness broken \
             by resource type.\n# TYPE apiserver_terminated_watchers_total counter\n",
        );
        for ((group, resource), count) in lock(&self.terminated).iter() {
            let _ = writeln!(
                out,
                "apiserver_terminated_watchers_total{{group=\"{group}\",resource=\"{resource}\"}} {count}"
            );
        }
    }
}

fn text(labels: &Labels) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!(
        "component=\"apiserver\",group=\"{}\",resource=\"{}\",scope=\"{}\",subresource=\"{}\",verb=\"{}\",version=\"{}\"",
        escape(&labels.group),
        escape(&labels.resource),
        labels.scope,
        escape(&labels.subresource),
        labels.verb,
        escape(&labels.version)
    )
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
