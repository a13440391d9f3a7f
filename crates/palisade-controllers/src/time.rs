//! The clock, in the two ways the API writes it.

use std::time::Duration;

use jiff::Timestamp;
use palisade_base::time::{Time, rfc3339, rfc3339_micro};

/// Now, to the second: `2026-01-01T00:00:00Z`.
pub(crate) fn seconds() -> String {
    rfc3339(Timestamp::now().as_second())
}

/// Now, to the microsecond, as Leases have it.
#[must_use]
pub fn micros() -> String {
    rfc3339_micro(Timestamp::now().as_microsecond())
}

/// This moment, as exceptions are compared with it.
pub(crate) fn now() -> Time {
    Time { seconds: Timestamp::now().as_second(), micros: 0 }
}

/// How long it is until a moment, in seconds since 1970.
pub(crate) fn until(moment: i64) -> Duration {
    let left = i128::from(moment) * 1000 - i128::from(Timestamp::now().as_millisecond());
    // A moment that has passed is now; one that is too far to count never comes.
    u64::try_from(left.max(0)).map_or(Duration::MAX, Duration::from_millis)
}

/// The day, since 1970.
pub(crate) fn today() -> i64 {
    Timestamp::now().as_second().div_euclid(86_400)
}

/// How many seconds ago that was; `None` if it is no time.
pub(crate) fn seconds_since(text: &str) -> Option<i64> {
    let then: Timestamp = text.parse().ok()?;
    Some(Timestamp::now().as_second().saturating_sub(then.as_second()))
}

#[cfg(test)]
mod tests {
    use super::{micros, seconds, seconds_since};

    #[test]
    fn what_is_written_can_be_read() {
        assert_eq!(seconds().len(), "2026-01-01T00:00:00Z".len());
        assert_eq!(micros().len(), "2026-01-01T00:00:00.000000Z".len());
        assert!(seconds_since(&micros()).is_some_and(|ago| (0..5).contains(&ago)));
        assert_eq!(seconds_since("yesterday"), None);
    }
}
