//! Numbers about the agent, for Prometheus, and whether it is well, for the kubelet.
//!
//! Implements: the text exposition format 0.0.4, `/healthz` and `/readyz` as Kubernetes components have them.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Write as _,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

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

    fn answer(&self, method: &Method, path: &str) -> (StatusCode, String) {
        match (method, path) {
            (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, self.text()),
            (&Method::GET | &Method::HEAD, "/healthz" | "/livez") => (StatusCode::OK, "ok".to_owned()),
            (&Method::GET | &Method::HEAD, "/readyz")
                if self.get("palisade_node_profiles_ready", "") == 1 =>
            {
                (StatusCode::OK, "ok".to_owned())
            }
            (&Method::GET | &Method::HEAD, "/readyz") => {
                (StatusCode::SERVICE_UNAVAILABLE, "profiles are not in place yet".to_owned())
            }
            (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, "not found".to_owned()),
            _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET".to_owned()),
        }
    }
}

/// Answers until `shutdown`.
pub async fn serve(listener: TcpListener, metrics: Metrics, shutdown: impl Future<Output = ()>) {
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // No file descriptors left, perhaps: not a reason to spin.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let metrics = metrics.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let (status, text) = metrics.answer(request.method(), request.uri().path());
                let mut response = Response::new(Full::new(Bytes::from(text)));
                *response.status_mut() = status;
                let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
                std::future::ready(Ok::<_, Infallible>(response))
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(5))
                .serve_connection(TokioIo::new(stream), service);
            // Nobody needs a connection for longer than a scrape takes.
            let _ = tokio::time::timeout(Duration::from_secs(30), connection).await;
        });
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

    #[test]
    fn readiness_is_that_profiles_are_in_place() {
        let metrics = Metrics::default();
        let ask = |path: &str| metrics.answer(&Method::GET, path).0.as_u16();
        assert_eq!((ask("/healthz"), ask("/readyz"), ask("/x")), (200, 503, 404));
        metrics.set("palisade_node_profiles_ready", "", 1);
        assert_eq!(ask("/readyz"), 200);
        assert_eq!(metrics.answer(&Method::POST, "/metrics").0.as_u16(), 405);
    }
}
