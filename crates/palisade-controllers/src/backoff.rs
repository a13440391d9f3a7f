//! How long to wait before trying again, and with what.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);

/// Twice as long after each failure, a little more or less so that many do not come back together.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        let wait = FIRST.saturating_mul(1_u32 << self.failures.min(8)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let [random, ..] = *uuid::Uuid::new_v4().as_bytes();
        wait + wait / 512 * u32::from(random)
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Objects that could not be written: they are retried after a while, and do not delay others.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    failed: BTreeMap<String, String>,
    retry_at: Option<Instant>,
    backoff: Backoff,
}

impl Failures {
    /// A write ended; `why` if it failed.
    pub(crate) fn note(&mut self, name: String, why: Option<String>) {
        match why {
            Some(why) => {
                self.failed.insert(name, why);
            }
            None => {
                self.failed.remove(&name);
            }
        }
    }

    /// Whether an object has failed and is not to be tried yet.
    pub(crate) fn is_waiting(&self, name: &str) -> bool {
        self.failed.contains_key(name) && self.retry_at.is_some_and(|at| Instant::now() < at)
    }

    /// What is to be tried again now.
    pub(crate) fn due(&mut self) -> BTreeSet<String> {
        if self.retry_at.is_none_or(|at| Instant::now() < at) {
            return BTreeSet::new();
        }
        self.retry_at = None;
        self.failed.keys().cloned().collect()
    }

    /// All writes of a turn have ended: reports what fails, and returns how long to wait.
    pub(crate) fn settle(&mut self, report: impl FnOnce(Option<String>)) -> Option<Duration> {
        report(self.failed.values().next().cloned());
        if self.failed.is_empty() {
            self.backoff.reset();
            self.retry_at = None;
        } else if self.retry_at.is_none() {
            self.retry_at = Some(Instant::now() + self.backoff.next());
        }
        self.wait()
    }

    /// How long until something is to be tried again.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.retry_at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, FIRST, Failures, LONGEST};

    #[test]
    fn waits_longer_and_longer_but_not_for_ever() {
        let mut backoff = Backoff::default();
        assert!((FIRST..FIRST * 2).contains(&backoff.next()));
        let waits: Vec<_> = (0..20).map(|_| backoff.next()).collect();
        assert!(waits[0] < waits[3] && waits[19] >= LONGEST && waits[19] < LONGEST * 2);
        backoff.reset();
        assert!(backoff.next() < FIRST * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_retried_and_reported_until_they_succeed() {
        let mut failures = Failures::default();
        let mut reported = None;
        failures.note("a".to_owned(), Some("why".to_owned()));
        let wait = failures.settle(|why| reported = why).unwrap();
        assert_eq!(reported.as_deref(), Some("why"));
        assert!(failures.is_waiting("a") && !failures.is_waiting("b"));
        assert!(failures.due().is_empty());
        tokio::time::sleep(wait).await;
        assert!(!failures.is_waiting("a"));
        assert_eq!(failures.due().into_iter().collect::<Vec<_>>(), ["a"]);
        failures.note("a".to_owned(), None);
        assert_eq!(failures.settle(|why| reported = why), None);
        assert_eq!(reported, None);
    }
}
