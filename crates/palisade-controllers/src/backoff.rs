//! How long to wait before trying again.

use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::{Backoff, FIRST, LONGEST};

    #[test]
    fn waits_longer_and_longer_but_not_for_ever() {
        let mut backoff = Backoff::default();
        assert!((FIRST..FIRST * 2).contains(&backoff.next()));
        let waits: Vec<_> = (0..20).map(|_| backoff.next()).collect();
        assert!(waits[0] < waits[3] && waits[19] >= LONGEST && waits[19] < LONGEST * 2);
        backoff.reset();
        assert!(backoff.next() < FIRST * 2);
    }
}
