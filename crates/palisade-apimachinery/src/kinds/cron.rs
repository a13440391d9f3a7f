//! Cron schedules, checked as upstream checks them.
//!
//! Implements: `github.com/robfig/cron/v3`'s standard parser (five fields and descriptors), its errors included.

use palisade_base::go;
use thiserror::Error;

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
pub(crate) enum ScheduleError {
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

/// Checks a schedule.
pub(crate) fn validate(schedule: &str) -> Result<(), ScheduleError> {
    if schedule.is_empty() {
        return Err(ScheduleError::Empty);
    }
    if schedule.starts_with('@') {
        return match schedule {
            "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
            _ => match schedule.strip_prefix("@every ") {
                Some(duration) if is_duration(duration) => Ok(()),
                Some(duration) => Err(ScheduleError::Duration {
                    schedule: schedule.to_owned(),
                    duration: duration.to_owned(),
                }),
                None => Err(ScheduleError::Descriptor(schedule.to_owned())),
            },
        };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(ScheduleError::FieldCount(fields.into_iter().map(str::to_owned).collect()));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for part in field.split(',').filter(|p| !p.is_empty()) {
            range(part, bounds)?;
        }
    }
    Ok(())
}

fn is_duration(text: &str) -> bool {
    let mut rest = text;
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if digits == 0 {
            return false;
        }
        rest = &rest[digits..];
        let Some(unit) = ["ns", "us", "ms", "s", "m", "h"].iter().find(|u| rest.starts_with(**u)) else {
            return false;
        };
        rest = &rest[unit.len()..];
        any = true;
    }
    any
}

fn range(expression: &str, bounds: &Bounds) -> Result<(), ScheduleError> {
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
    Ok(())
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
            let error = validate(schedule).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected, "{schedule}");
        }
    }
}
