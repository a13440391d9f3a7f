//! When a schedule is due, in a time zone. Pure.
//!
//! Implements: `SpecSchedule.Next` and `ConstantDelaySchedule.Next` of `github.com/robfig/cron/v3`: an hour that a change to summer time
//! skips is not due, and an hour that comes twice is due twice.

use jiff::{SignedDuration, Timestamp, ToSpan as _, tz::TimeZone};
use palisade_base::cron::{Schedule, ScheduleError};
use thiserror::Error;

/// A date that does not come within so many years never comes.
const YEARS: i16 = 5;

/// Why a schedule cannot be followed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ZonedScheduleError {
    /// It is not one.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// There is no such time zone.
    #[error("provided bad location {0}: unknown time zone {0}")]
    Zone(String),
}

/// A schedule in a time zone.
#[derive(Debug, Clone)]
pub struct ZonedSchedule {
    schedule: Schedule,
    zone: TimeZone,
}

/// The time zone of a name, as the IANA database writes it.
#[must_use]
pub fn time_zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok().filter(|zone| zone.iana_name() == Some(name))
}

impl ZonedSchedule {
    /// Reads a schedule. A zone in its text counts before the other one; without any, it is UTC.
    pub fn read(text: &str, zone: Option<&str>) -> Result<Self, ZonedScheduleError> {
        let (own, rest) = Schedule::split_zone(text);
        let zone = match own.or(zone) {
            None => TimeZone::UTC,
            Some(name) => time_zone(name).ok_or_else(|| ZonedScheduleError::Zone(name.to_owned()))?,
        };
        Ok(Self { schedule: Schedule::read(rest)?, zone })
    }

    /// The first moment after another one; none if there is none within five years.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let second = Timestamp::from_second(after.as_second()).ok()?;
        let later = |at: Timestamp, seconds: i64| at.checked_add(SignedDuration::from_secs(seconds)).ok();
        let (minute, hour, month) = match self.schedule {
            Schedule::Every(seconds) => return later(second, i64::try_from(seconds).ok()?),
            Schedule::At { minute, hour, month, .. } => (minute, hour, month),
        };
        let mut at = later(second, 1)?.to_zoned(self.zone.clone());
        let last = at.year().checked_add(YEARS)?;
        while at.year() <= last {
            let into_hour = i64::from(at.minute()) * 60 + i64::from(at.second());
            let has = |field: palisade_base::cron::Field, value: i8| {
                u32::try_from(value).is_ok_and(|value| field.contains(value))
            };
            let weekday = at.weekday().to_sunday_zero_offset();
            let has_day = u32::try_from(at.day())
                .is_ok_and(|day| self.schedule.has_day(day, u32::try_from(weekday).unwrap_or_default()));
            at = if !has(month, at.month()) {
                let next = at.date().first_of_month().checked_add(1.month()).ok()?;
                next.to_zoned(self.zone.clone()).ok()?
            } else if !has_day {
                at.date().tomorrow().ok()?.to_zoned(self.zone.clone()).ok()?
            } else if !has(hour, at.hour()) {
                later(at.timestamp(), 3600 - into_hour)?.to_zoned(self.zone.clone())
            } else if !has(minute, at.minute()) || at.second() != 0 {
                later(at.timestamp(), 60 - i64::from(at.second()))?.to_zoned(self.zone.clone())
            } else {
                return Some(at.timestamp());
            };
        }
        None
    }

    /// A moment as Go prints it in this zone.
    #[must_use]
    pub fn stamp(&self, at: Timestamp) -> String {
        let zoned = at.to_zoned(self.zone.clone());
        let format = if zoned.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
        zoned.strftime(format).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{ZonedSchedule, ZonedScheduleError};

    #[test]
    fn the_next_moment_is_that_of_the_cron_library() {
        for (case, schedule, zone, after, expected) in [
            ("each minute", "* * * * *", None, "2026-01-01T00:00:30Z", Some("2026-01-01T00:01:00Z")),
            ("not the same one", "0 * * * *", None, "2026-01-01T00:00:00Z", Some("2026-01-01T01:00:00Z")),
            ("the next year", "0 0 1 1 *", None, "2026-01-01T00:00:00Z", Some("2027-01-01T00:00:00Z")),
            ("a leap day", "0 0 29 2 *", None, "2026-01-01T00:00:00Z", Some("2028-02-29T00:00:00Z")),
            ("never", "0 0 31 2 *", None, "2026-01-01T00:00:00Z", None),
            ("a weekday", "30 9 * * MON", None, "2026-01-01T00:00:00Z", Some("2026-01-05T09:30:00Z")),
            ("every", "@every 90s", None, "2026-01-01T00:00:00.5Z", Some("2026-01-01T00:01:30Z")),
            ("a zone", "0 9 * * *", Some("Asia/Tokyo"), "2026-01-01T00:00:00Z", Some("2026-01-02T00:00:00Z")),
            (
                "a zone in the text",
                "TZ=Asia/Tokyo 0 9 * * *",
                None,
                "2025-12-31T00:00:00Z",
                Some("2026-01-01T00:00:00Z"),
            ),
            (
                "an hour that is skipped",
                "30 2 * * *",
                Some("Europe/Berlin"),
                "2026-03-28T12:00:00Z",
                Some("2026-03-30T00:30:00Z"),
            ),
            (
                "an hour that comes twice",
                "30 2 * * *",
                Some("Europe/Berlin"),
                "2026-10-25T00:30:00Z",
                Some("2026-10-25T01:30:00Z"),
            ),
            (
                "half an hour off",
                "0 * * * *",
                Some("Asia/Kolkata"),
                "2026-01-01T00:00:00Z",
                Some("2026-01-01T00:30:00Z"),
            ),
        ] {
            let found = ZonedSchedule::read(schedule, zone).unwrap().next(after.parse().unwrap());
            assert_eq!(found, expected.map(|at| at.parse().unwrap()), "{case}");
        }
    }

    #[test]
    fn zones_are_those_of_the_database() {
        let error = ZonedSchedule::read("* * * * *", Some("asia/tokyo")).unwrap_err();
        assert_eq!(error, ZonedScheduleError::Zone("asia/tokyo".to_owned()));
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let stamp = |zone| ZonedSchedule::read("* * * * *", zone).unwrap().stamp(at);
        assert_eq!(stamp(Some("Asia/Tokyo")), "2026-01-01T09:00:00+09:00");
        assert_eq!(stamp(None), "2026-01-01T00:00:00Z");
    }
}
