//! How long to wait before trying again.
//!
//! Implements: the kubelet's crash-loop back-off (`client-go/util/flowcontrol/backoff.go` and `doBackOff`): 10 s, doubled
//! up to 5 min, measured from the last exit, forgotten after 10 min of running. The first restart is immediate. Time is a
//! parameter.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

/// The first wait.
pub const INITIAL: Duration = Duration::from_secs(10);
/// The longest wait.
pub const MAX: Duration = Duration::from_mins(5);

/// Waits by key.
#[derive(Debug, Clone, Default)]
pub struct BackOff {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    wait: Duration,
    updated: Timestamp,
}

impl BackOff {
    /// The wait in force for something that last failed at `failed`, and when it ends; `None` if it may be tried now.
    #[must_use]
    pub fn waiting(&self, key: &str, failed: Timestamp, now: Timestamp) -> Option<(Duration, Timestamp)> {
        let entry = self.entries.get(key)?;
        if is_forgotten(*entry, failed) {
            return None;
        }
        let until = failed + entry.wait;
        (now < until).then_some((entry.wait, until))
    }

    /// Notes another try of something that last failed at `failed`.
    pub fn tried(&mut self, key: &str, failed: Timestamp, now: Timestamp) {
        let known = self.entries.get(key).copied().filter(|entry| !is_forgotten(*entry, failed));
        let wait = known.map_or(INITIAL, |entry| (entry.wait * 2).min(MAX));
        self.entries.insert(key.to_owned(), Entry { wait, updated: now });
    }
}

fn is_forgotten(entry: Entry, failed: Timestamp) -> bool {
    failed.duration_since(entry.updated).as_secs() > 600
}

/// A duration as Go prints it: `10s`, `1m20s`, `5m0s`.
#[must_use]
pub fn in_go(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{BackOff, in_go};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    #[test]
    fn waits_double_up_to_five_minutes() {
        let mut back_off = BackOff::default();
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            // The container exits at once; the next start is delayed.
            if let Some((wait, until)) = back_off.waiting("c", at(now), at(now)) {
                waits.push(in_go(wait));
                now = until.as_second() - 1_000_000;
                assert!(back_off.waiting("c", at(now) - wait, at(now)).is_none(), "the wait ends");
                back_off.tried("c", at(now) - wait, at(now));
            } else {
                waits.push("0s".to_owned());
                back_off.tried("c", at(now), at(now));
            }
        }
        assert_eq!(waits, ["0s", "10s", "20s", "40s", "1m20s", "2m40s", "5m0s", "5m0s"]);
    }

    #[test]
    fn ten_good_minutes_are_a_new_start() {
        let mut back_off = BackOff::default();
        for second in [0, 1, 2] {
            back_off.tried("c", at(second), at(second));
        }
        assert_eq!(back_off.waiting("c", at(3), at(3)).unwrap().0, Duration::from_secs(40));
        assert!(back_off.waiting("c", at(603), at(603)).is_none());
        back_off.tried("c", at(603), at(603));
        assert_eq!(back_off.waiting("c", at(604), at(604)).unwrap().0, Duration::from_secs(10));
        assert!(back_off.waiting("other", at(604), at(604)).is_none());
    }

    #[test]
    fn durations_read_as_in_go() {
        for (seconds, text) in [(0, "0s"), (80, "1m20s"), (300, "5m0s"), (3661, "1h1m1s")] {
            assert_eq!(in_go(Duration::from_secs(seconds)), text);
        }
    }
}
