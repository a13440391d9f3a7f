//! The keys that a controller is to look at: each once, not before its time, and never twice at the same time.
//!
//! Implements: the rate limiting work queue of Kubernetes' client library.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::meta::Key;

const FIRST: Duration = Duration::from_millis(5);
/// Upstream waits up to a quarter of an hour; a cluster on one machine has no load to spread that far.
const LONGEST: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Key>,
    waiting: BTreeSet<(Instant, Key)>,
    due: BTreeMap<Key, Instant>,
    queued: HashSet<Key>,
    running: HashSet<Key>,
    again: HashSet<Key>,
    failures: HashMap<Key, u32>,
}

/// A work queue.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

impl Queue {
    /// Adds a key.
    pub fn add(&self, key: Key) {
        let mut state = self.lock();
        if state.running.contains(&key) {
            state.again.insert(key);
        } else if state.queued.insert(key.clone()) {
            state.ready.push_back(key);
            self.changed.notify_one();
        }
    }

    /// Adds a key after a while; the earlier of two times counts.
    pub fn add_after(&self, key: Key, after: Duration) {
        let at = Instant::now() + after;
        let mut state = self.lock();
        if let Some(known) = state.due.get(&key).copied() {
            if known <= at {
                return;
            }
            state.waiting.remove(&(known, key.clone()));
        }
        state.due.insert(key.clone(), at);
        state.waiting.insert((at, key));
        self.changed.notify_one();
    }

    /// The next key; [`Queue::done`] must follow.
    pub async fn next(&self) -> Key {
        loop {
            let wait = {
                let mut state = self.lock();
                let now = Instant::now();
                while let Some((at, _)) = state.waiting.first() {
                    if *at > now {
                        break;
                    }
                    let Some((_, key)) = state.waiting.pop_first() else { break };
                    state.due.remove(&key);
                    if state.running.contains(&key) {
                        state.again.insert(key);
                    } else if state.queued.insert(key.clone()) {
                        state.ready.push_back(key);
                    }
                }
                if let Some(key) = state.ready.pop_front() {
                    state.queued.remove(&key);
                    state.running.insert(key.clone());
                    return key;
                }
                state.waiting.first().map(|(at, _)| *at)
            };
            match wait {
                None => self.changed.notified().await,
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
                }
            }
        }
    }

    /// A key was worked on; one that failed comes back, later each time.
    pub fn done(&self, key: Key, failed: bool) {
        let wait = {
            let mut state = self.lock();
            state.running.remove(&key);
            if state.again.remove(&key) && state.queued.insert(key.clone()) {
                state.ready.push_back(key.clone());
                self.changed.notify_one();
            }
            if failed {
                let failures = state.failures.entry(key.clone()).or_default();
                let wait = FIRST.saturating_mul(1_u32 << (*failures).min(16)).min(LONGEST);
                *failures += 1;
                Some(wait)
            } else {
                state.failures.remove(&key);
                None
            }
        };
        if let Some(wait) = wait {
            self.add_after(key, wait);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::Queue;
    use crate::workloads::meta::Key;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_worked_on_once_at_a_time() {
        let (queue, key) = (Queue::default(), Key::new("n", "a"));
        queue.add(key.clone());
        queue.add(key.clone());
        assert_eq!(queue.next().await, key);
        queue.add(key.clone());
        assert!(timeout(Duration::from_secs(1), queue.next()).await.is_err(), "while it runs");
        queue.done(key.clone(), false);
        assert_eq!(queue.next().await, key, "it changed meanwhile");
        queue.done(key, false);
        assert!(timeout(Duration::from_secs(1), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_back_later_each_time() {
        let (queue, key) = (Queue::default(), Key::new("n", "a"));
        queue.add(key.clone());
        let mut waited = Vec::new();
        for _ in 0..20 {
            let start = Instant::now();
            queue.next().await;
            waited.push(start.elapsed());
            queue.done(key.clone(), true);
        }
        assert!(waited[1] < waited[5] && waited[19] <= Duration::from_secs(61), "{waited:?}");
        queue.next().await;
        queue.done(key.clone(), false);
        queue.add_after(key.clone(), Duration::from_secs(9));
        queue.add_after(key, Duration::from_secs(1));
        let start = Instant::now();
        queue.next().await;
        assert!(start.elapsed() < Duration::from_secs(2), "the earlier time counts");
    }
}
