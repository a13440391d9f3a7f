//! Cron schedules, read as upstream reads them.
//!
//! Implements: `github.com/robfig/cron/v3`'s standard parser (five fields and descriptors), its errors included. Crates for cron schedules
//! read another syntax: seconds, `L` and `#`, Sunday as 7, or both days instead of either. When a schedule is due is up to the caller,
//! who has time zones.

use thiserror::Error;

use crate::go;

/// A field: its bounds and the names it accepts.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// Why a schedule is rejected, worded as the cron library does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the fields are those of the message")]
pub enum ScheduleError {
    /// There is no text.
    #[error("empty spec string")]
    Empty,
    /// `@every` without a duration that Go reads.
    #[error("failed to parse duration {schedule}: time: invalid duration {}", go::quote(.duration))]
    Duration { schedule: String, duration: String },
    /// A name after `@` that does not exist.
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    /// More or fewer than five fields.
    #[error("expected exactly {} fields, found {}: [{}]", FIELDS.len(), .0.len(), .0.join(" "))]
    FieldCount(Vec<String>),
    /// More than one `-` in a range.
    #[error("too many hyphens: {0}")]
    Hyphens(String),
    /// More than one `/` in a range.
    #[error("too many slashes: {0}")]
    Slashes(String),
    /// A range that starts before the first value of its field.
    #[error("beginning of range ({start}) below minimum ({min}): {range}")]
    BelowMinimum { start: u32, min: u32, range: String },
    /// A range that ends after the last value of its field.
    #[error("end of range ({end}) above maximum ({max}): {range}")]
    AboveMaximum { end: u32, max: u32, range: String },
    /// A range that ends before it starts.
    #[error("beginning of range ({start}) beyond end of range ({end}): {range}")]
    Reversed { start: u32, end: u32, range: String },
    /// A step of zero.
    #[error("step of range should be a positive number: {0}")]
    StepZero(String),
    /// A number below zero.
    #[error("negative number ({number}) not allowed: {text}")]
    Negative { number: i64, text: String },
    /// A number that Go's `int` does not hold.
    #[error("failed to parse int from {0}: value out of range")]
    TooLarge(String),
    /// Not a number.
    #[error("failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax", go::quote(.text))]
    NotANumber { text: String },
}

/// The values of a field, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    bits: u64,
    /// Whether it is `*` or `?`.
    is_any: bool,
}

impl Field {
    /// Whether it has a value.
    #[must_use]
    pub fn contains(self, value: u32) -> bool {
        value < u64::BITS && self.bits & (1 << value) != 0
    }
}

/// A schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// Once in so many seconds.
    Every(u64),
    /// At these minutes, hours and days.
    At {
        /// Minutes of the hour.
        minute: Field,
        /// Hours of the day.
        hour: Field,
        /// Days of the month.
        day: Field,
        /// Months, from one.
        month: Field,
        /// Days of the week, from Sunday as zero.
        weekday: Field,
    },
}

impl Schedule {
    /// Reads a schedule without a time zone.
    pub fn read(text: &str) -> Result<Self, ScheduleError> {
        if text.is_empty() {
            return Err(ScheduleError::Empty);
        }
        let text = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        if text.starts_with('@') {
            let Some(every) = text.strip_prefix("@every ") else {
                return Err(ScheduleError::Descriptor(text.to_owned()));
            };
            return match duration_seconds(every) {
                // Less than a second is one.
                Some(seconds) => Ok(Self::Every(seconds.max(1))),
                None => {
                    Err(ScheduleError::Duration { schedule: text.to_owned(), duration: every.to_owned() })
                }
            };
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err(ScheduleError::FieldCount(fields.into_iter().map(str::to_owned).collect()));
        };
        let [minutes, hours, days, months, weekdays] = &FIELDS;
        Ok(Self::At {
            minute: field(minute, minutes)?,
            hour: field(hour, hours)?,
            day: field(day, days)?,
            month: field(month, months)?,
            weekday: field(weekday, weekdays)?,
        })
    }

    /// Splits `TZ=ZONE` from a schedule.
    #[must_use]
    pub fn split_zone(text: &str) -> (Option<&str>, &str) {
        let zoned = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ="));
        match zoned.and_then(|zoned| zoned.split_once(' ')) {
            Some((zone, rest)) => (Some(zone), rest.trim()),
            None => (None, text),
        }
    }

    /// Whether a day is one of the schedule. If both fields of days are restricted, one of them is enough.
    #[must_use]
    pub fn has_day(&self, day_of_month: u32, day_of_week: u32) -> bool {
        let Self::At { day, weekday, .. } = self else { return false };
        let (by_month, by_week) = (day.contains(day_of_month), weekday.contains(day_of_week));
        if day.is_any || weekday.is_any { by_month && by_week } else { by_month || by_week }
    }
}

/// A duration as Go writes it, in whole seconds; zero if it is negative.
#[must_use]
pub fn duration_seconds(text: &str) -> Option<u64> {
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    let mut nanos: u128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, unit) = rest.split_at(digits);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let units: [(&str, u128); 8] = [
            ("ns", 1),
            ("us", 1_000),
            ("µs", 1_000),
            ("μs", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("h", 3_600_000_000_000),
        ];
        let (name, factor) = units.into_iter().find(|(name, _)| unit.starts_with(name))?;
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        nanos = nanos.checked_add(whole.checked_mul(factor)?)?;
        let mut scale = factor;
        for digit in fraction.chars() {
            scale /= 10;
            nanos = nanos.checked_add(u128::from(digit.to_digit(10)?) * scale)?;
        }
        rest = unit.strip_prefix(name)?;
    }
    // Go's durations are 63 bits of nanoseconds.
    i64::try_from(nanos).ok()?;
    if negative { Some(0) } else { u64::try_from(nanos / 1_000_000_000).ok() }
}

fn field(text: &str, bounds: &Bounds) -> Result<Field, ScheduleError> {
    let mut field = Field { bits: 0, is_any: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (bits, is_any) = range(part, bounds)?;
        field.bits |= bits;
        field.is_any |= is_any;
    }
    Ok(field)
}

fn range(expression: &str, bounds: &Bounds) -> Result<(u64, bool), ScheduleError> {
    let range = || expression.to_owned();
    let range_and_step: Vec<&str> = expression.split('/').collect();
    let low_and_high: Vec<&str> = range_and_step[0].split('-').collect();
    let single = low_and_high.len() == 1;
    let star = low_and_high[0] == "*" || low_and_high[0] == "?";
    let start = if star { bounds.min } else { number(low_and_high[0], bounds)? };
    let mut end = match low_and_high.as_slice() {
        _ if star => bounds.max,
        [_] => start,
        [_, high] => number(high, bounds)?,
        _ => return Err(ScheduleError::Hyphens(range())),
    };
    let step = match range_and_step.as_slice() {
        [_] => 1,
        [_, step] => {
            if single {
                end = bounds.max;
            }
            integer(step)?
        }
        _ => return Err(ScheduleError::Slashes(range())),
    };
    if start < bounds.min {
        return Err(ScheduleError::BelowMinimum { start, min: bounds.min, range: range() });
    }
    if end > bounds.max {
        return Err(ScheduleError::AboveMaximum { end, max: bounds.max, range: range() });
    }
    if start > end {
        return Err(ScheduleError::Reversed { start, end, range: range() });
    }
    if step == 0 {
        return Err(ScheduleError::StepZero(range()));
    }
    let bits = (start..=end)
        .step_by(usize::try_from(step).unwrap_or(usize::MAX))
        .fold(0, |bits, value| bits | 1 << value);
    Ok((bits, star && step == 1))
}

fn number(text: &str, bounds: &Bounds) -> Result<u32, ScheduleError> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(at) => Ok(bounds.min + u32::try_from(at).unwrap_or(0)),
        None => integer(text),
    }
}

fn integer(text: &str) -> Result<u32, ScheduleError> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(ScheduleError::Negative { number, text: text.to_owned() }),
        Ok(number) => u32::try_from(number).map_err(|_| ScheduleError::TooLarge(text.to_owned())),
        Err(_) => Err(ScheduleError::NotANumber { text: text.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_errors_like_the_cron_library() {
        for (schedule, expected) in [
            ("* * * * *", None),
            ("*/5 1-3 1,15 jan-mar MON", None),
            ("@daily", None),
            ("@every 1h30m", None),
            ("nope", Some("expected exactly 5 fields, found 1: [nope]")),
            ("60 * * * *", Some("end of range (60) above maximum (59): 60")),
            ("* * 0 * *", Some("beginning of range (0) below minimum (1): 0")),
            ("5-1 * * * *", Some("beginning of range (5) beyond end of range (1): 5-1")),
            ("*/0 * * * *", Some("step of range should be a positive number: */0")),
            ("x * * * *", Some("failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax")),
            ("@never", Some("unrecognized descriptor: @never")),
        ] {
            let error = Schedule::read(schedule).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected, "{schedule}");
        }
    }

    #[test]
    fn reads_ranges_steps_names_and_durations() {
        let minutes = |text: &str| match Schedule::read(text) {
            Ok(Schedule::At { minute, .. }) => {
                (0..60).filter(|value| minute.contains(*value)).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(minutes("*/20 * * * *"), [0, 20, 40]);
        assert_eq!(minutes("50/5 * * * *"), [50, 55]);
        assert_eq!(minutes("1-7/3,9 * * * ?"), [1, 4, 7, 9]);
        assert_eq!(minutes("@daily"), [0]);
        for (text, seconds) in [("1h30m", 5400), ("1.5m", 90), ("10ms", 1), ("-5s", 1), ("0", 1)] {
            assert_eq!(Schedule::read(&format!("@every {text}")), Ok(Schedule::Every(seconds)), "{text}");
        }
        for text in ["", "h", "1", "1x", "1..5s", "--1s"] {
            assert!(Schedule::read(&format!("@every {text}")).is_err(), "{text}");
        }
        assert_eq!(Schedule::split_zone("TZ=Asia/Tokyo  0 * * * *"), (Some("Asia/Tokyo"), "0 * * * *"));
    }

    #[test]
    fn either_day_is_enough_if_both_are_restricted() {
        for (schedule, day, weekday, expected) in [
            ("0 0 13 * FRI", 13, 1, true),
            ("0 0 13 * FRI", 12, 5, true),
            ("0 0 13 * FRI", 12, 1, false),
            ("0 0 * * FRI", 13, 1, false),
            ("0 0 13 * *", 12, 5, false),
            ("0 0 */2 * FRI", 2, 5, true),
        ] {
            let found = Schedule::read(schedule).unwrap().has_day(day, weekday);
            assert_eq!(found, expected, "{schedule} on {day}, {weekday}");
        }
    }
}
