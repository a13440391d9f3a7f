//! RFC 3339 times as Go reads and writes them, and ages as kubectl prints them.
//!
//! Implements: `time.Parse(time.RFC3339, …)`, `metav1.Time`, `metav1.MicroTime` and
//! `k8s.io/apimachinery/pkg/util/duration.HumanDuration`.

use std::fmt::{self, Write as _};

use thiserror::Error;

use crate::go::{displays_as, quote};

/// A moment: seconds since 1970 and microseconds, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Microseconds in the second.
    pub micros: u32,
}

const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";

/// Why a text is not a time, worded as Go's `time.ParseError`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TimeError {
    /// The text does not have the layout.
    #[error(
        "parsing time {} as {}: cannot parse {} as {}", quote(.text), quote(LAYOUT), quote(.rest), quote(.element)
    )]
    Layout {
        /// The whole text.
        text: String,
        /// What is left where reading ended.
        rest: String,
        /// The part of the layout that was expected there.
        element: &'static str,
    },
    /// A number is too large, or zero where there is no such month or day.
    #[error("parsing time {}: {part} out of range", quote(.text))]
    OutOfRange {
        /// The whole text.
        text: String,
        /// What the number is.
        part: &'static str,
    },
    /// Something follows the time.
    #[error("parsing time {}: extra text: {}", quote(.text), quote(.rest))]
    ExtraText {
        /// The whole text.
        text: String,
        /// What follows.
        rest: String,
    },
}

/// Reads RFC 3339 text.
pub fn parse(text: &str) -> Result<Time, TimeError> {
    let bytes = text.as_bytes();
    let at_end = |from: usize| text.get(from..).unwrap_or_default().to_owned();
    let layout = |from: usize, element: &'static str| TimeError::Layout {
        text: text.to_owned(),
        rest: at_end(from),
        element,
    };
    let digits = |from: usize, count: usize, element: &'static str| -> Result<i64, TimeError> {
        let part = bytes.get(from..from + count).ok_or_else(|| layout(from, element))?;
        if !part.iter().all(u8::is_ascii_digit) {
            return Err(layout(from, element));
        }
        Ok(part.iter().fold(0i64, |n, b| n * 10 + i64::from(b - b'0')))
    };
    let literal = |from: usize, byte: u8, element: &'static str| -> Result<(), TimeError> {
        if bytes.get(from) == Some(&byte) { Ok(()) } else { Err(layout(from, element)) }
    };
    let range = |part: &'static str| TimeError::OutOfRange { text: text.to_owned(), part };
    let year = digits(0, 4, "2006")?;
    literal(4, b'-', "-")?;
    let month = digits(5, 2, "01")?;
    if !(1..=12).contains(&month) {
        return Err(range("month"));
    }
    literal(7, b'-', "-")?;
    let day = digits(8, 2, "02")?;
    literal(10, b'T', "T")?;
    let hour = digits(11, 2, "15")?;
    if hour > 23 {
        return Err(range("hour"));
    }
    literal(13, b':', ":")?;
    let minute = digits(14, 2, "04")?;
    if minute > 59 {
        return Err(range("minute"));
    }
    literal(16, b':', ":")?;
    let second = digits(17, 2, "05")?;
    if second > 59 {
        return Err(range("second"));
    }
    let mut at = 19;
    let mut micros = 0u32;
    if matches!(bytes.get(at), Some(b'.' | b',')) && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
        at += 1;
        let mut weight = 100_000u32;
        while let Some(b) = bytes.get(at).filter(|b| b.is_ascii_digit()) {
            micros += u32::from(b - b'0') * weight;
            weight /= 10;
            at += 1;
        }
    }
    let offset = match bytes.get(at) {
        Some(b'Z') => {
            at += 1;
            0
        }
        Some(sign @ (b'+' | b'-')) if bytes.get(at + 3) == Some(&b':') => {
            let zone = "Z07:00";
            let hours = digits(at + 1, 2, zone).map_err(|_| layout(at, zone))?;
            let minutes = digits(at + 4, 2, zone).map_err(|_| layout(at, zone))?;
            // As in Go, which takes an offset of 24 hours and one of 60 minutes.
            if hours > 24 {
                return Err(range("time zone offset hour"));
            }
            if minutes > 60 {
                return Err(range("time zone offset minute"));
            }
            let seconds = hours * 3600 + minutes * 60;
            at += 6;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return Err(layout(at, "Z07:00")),
    };
    if at != bytes.len() {
        return Err(TimeError::ExtraText { text: text.to_owned(), rest: at_end(at) });
    }
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let last = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if day < 1 || day > last {
        return Err(range("day"));
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    Ok(Time { seconds, micros })
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar (Howard Hinnant's algorithm).
#[must_use]
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
#[must_use]
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

impl Time {
    /// `2006-01-02T15:04:05Z`, with six more digits if `micro`.
    #[must_use]
    pub fn format(self, micro: bool) -> String {
        let mut text = String::with_capacity("2006-01-02T15:04:05.000000Z".len());
        // Writing to a string does not fail.
        let _ = write!(text, "{}", Written { time: self, micro });
        text
    }

    /// Whether `format` gives this text, found without making it.
    #[must_use]
    pub fn is_written_as(self, text: &str, micro: bool) -> bool {
        displays_as(&Written { time: self, micro }, text)
    }
}

struct Written {
    time: Time,
    micro: bool,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Time { seconds, micros } = self.time;
        let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
        let rest = seconds.rem_euclid(86_400);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if self.micro { write!(f, ".{micros:06}Z") } else { f.write_str("Z") }
    }
}

/// A `metav1.Time`: seconds since 1970 as `2006-01-02T15:04:05Z`.
#[must_use]
pub fn rfc3339(seconds: i64) -> String {
    Time { seconds, micros: 0 }.format(false)
}

/// A `metav1.MicroTime`: microseconds since 1970 as `2006-01-02T15:04:05.000000Z`.
#[must_use]
pub fn rfc3339_micro(micros: i64) -> String {
    let rest = u32::try_from(micros.rem_euclid(1_000_000)).unwrap_or_default();
    Time { seconds: micros.div_euclid(1_000_000), micros: rest }.format(true)
}

/// The age kubectl prints for so many seconds: `42s`, `3m5s`, `2d`.
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".into();
    }
    if seconds < 0 {
        return "0s".into();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let with = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    if seconds < 120 {
        return format!("{seconds}s");
    }
    if minutes < 10 {
        return with(minutes, "m", seconds % 60, "s");
    }
    if minutes < 180 {
        return format!("{minutes}m");
    }
    if hours < 8 {
        return with(hours, "h", minutes % 60, "m");
    }
    if hours < 48 {
        return format!("{hours}h");
    }
    let days = hours / 24;
    if hours < 24 * 8 {
        return with(days, "d", hours % 24, "h");
    }
    if hours < 24 * 365 * 2 {
        return format!("{days}d");
    }
    let years = hours / 24 / 365;
    if hours < 24 * 365 * 8 {
        return with(years, "y", days % 365, "d");
    }
    format!("{years}y")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_rfc_3339() {
        for (text, expected) in [
            ("2026-11-15T19:24:00Z", "2026-11-15T19:24:00Z"),
            ("2026-01-01T00:30:00+01:00", "2025-12-31T23:30:00Z"),
            ("2024-02-29T23:59:59.123456789Z", "2024-02-29T23:59:59Z"),
            ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(parse(text).map(|t| t.format(false)), Ok(expected.to_owned()), "{text}");
        }
        assert_eq!(
            parse("2024-02-29T23:59:59.123456789Z").map(|t| t.format(true)),
            Ok("2024-02-29T23:59:59.123456Z".into())
        );
    }

    #[test]
    fn writes_seconds_and_microseconds() {
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59Z");
        assert_eq!(rfc3339_micro(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(rfc3339_micro(1_700_000_000_000_042), "2023-11-14T22:13:20.000042Z");
    }

    #[test]
    fn refuses_in_the_words_of_go() {
        for (text, expected) in [
            ("x", r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#),
            ("", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            ("2024-13-01T00:00:00Z", r#"parsing time "2024-13-01T00:00:00Z": month out of range"#),
            ("2023-02-29T00:00:00Z", r#"parsing time "2023-02-29T00:00:00Z": day out of range"#),
            (
                "2024-01-01T00:00:00-25:00",
                r#"parsing time "2024-01-01T00:00:00-25:00": time zone offset hour out of range"#,
            ),
            (
                "2024-01-01T00:00:00+00:61",
                r#"parsing time "2024-01-01T00:00:00+00:61": time zone offset minute out of range"#,
            ),
            (
                "2024-01-01",
                r#"parsing time "2024-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
        ] {
            let error = parse(text).map_err(|error| error.to_string());
            assert_eq!(error, Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn prints_ages_like_kubectl() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (600, "10m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600 + 60, "9h"),
            (48 * 3600, "2d"),
            (50 * 3600, "2d2h"),
            (9 * 86400, "9d"),
            (3 * 365 * 86400 + 86400, "3y1d"),
            (9 * 365 * 86400, "9y"),
        ] {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }
}
