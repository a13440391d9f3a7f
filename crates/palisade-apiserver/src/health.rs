//! `/healthz`, `/livez` and `/readyz`, whole and check by check.
//!
//! Implements: Kubernetes API health endpoints. <https://kubernetes.io/docs/reference/using-api/health-checks/>

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use palisade_apimachinery::Status;

use crate::http::{Query, Reply};

/// Whether the server can serve, and whether it is about to stop.
#[derive(Debug, Default)]
pub struct Health {
    started: AtomicBool,
    stopping: AtomicBool,
}

/// What upstream's server reports as steps of its start. This one has one start, and each of them has finished when it has.
const START: &[&str] = &[
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

fn checks(endpoint: &str) -> Vec<&'static str> {
    let (before, after): (&[&'static str], &[&'static str]) = match endpoint {
        "readyz" => (&["ping", "log", "etcd", "etcd-readiness", "informer-sync"], &["shutdown"]),
        "healthz" => (&["ping", "log", "loopback-serving-certificate", "etcd"], &[]),
        _ => (&["ping", "log", "etcd"], &[]),
    };
    [before, START, after].concat()
}

impl Health {
    /// The first objects are in place.
    pub fn set_started(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// New work should go elsewhere.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    fn failure(&self, check: &str) -> Option<&'static str> {
        match check {
            step if START.contains(&step) && !self.started.load(Ordering::Acquire) => Some("not finished"),
            "shutdown" if self.stopping.load(Ordering::Acquire) => Some("process is shutting down"),
            _ => None,
        }
    }

    /// Answers one of the three endpoints, or one of its checks. `note` is what `/readyz?verbose` reports besides.
    pub fn answer(
        &self,
        path: &str,
        query: &Query,
        note: impl FnOnce() -> Option<String>,
    ) -> Result<Reply, Box<Status>> {
        let (endpoint, check) = match path.trim_start_matches('/').split_once('/') {
            Some((endpoint, check)) => (endpoint, check),
            None => (path.trim_start_matches('/'), ""),
        };
        let checks = checks(endpoint);
        if !check.is_empty() {
            let Some(known) = checks.iter().find(|c| **c == check) else {
                return Err(Status::page_not_found());
            };
            return Ok(match self.failure(known) {
                None => Reply::text(200, "ok"),
                Some(why) => Reply::text(500, format!("internal server error: {why}\n")),
            });
        }
        let excluded: Vec<&str> = query.all("exclude").collect();
        let mut text = String::new();
        let mut failed = false;
        for check in &checks {
            let line = if excluded.contains(check) {
                format!("[+]{check} excluded: ok\n")
            } else if self.failure(check).is_some() {
                failed = true;
                format!("[-]{check} failed: reason withheld\n")
            } else {
                format!("[+]{check} ok\n")
            };
            text.push_str(&line);
        }
        for unknown in excluded.iter().filter(|e| !checks.contains(e)) {
            let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {unknown:?}");
        }
        if endpoint == "readyz"
            && (failed || query.has("verbose"))
            && let Some(note) = note()
        {
            text.push_str(&note);
        }
        if failed {
            let _ = writeln!(text, "{endpoint} check failed");
            return Ok(Reply::text(500, text));
        }
        if query.has("verbose") {
            let _ = writeln!(text, "{endpoint} check passed");
            return Ok(Reply::text(200, text));
        }
        Ok(Reply::text(200, "ok"))
    }
}
