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

const LIVE: &[&str] = &["ping", "log", "etcd", "poststarthook/rbac/bootstrap-roles"];
const READY: &[&str] =
    &["ping", "log", "etcd", "informer-sync", "poststarthook/rbac/bootstrap-roles", "shutdown"];

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
            "poststarthook/rbac/bootstrap-roles" if !self.started.load(Ordering::Acquire) => {
                Some("not finished")
            }
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
        let checks = if endpoint == "readyz" { READY } else { LIVE };
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
        for check in checks {
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
