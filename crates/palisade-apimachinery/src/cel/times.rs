//! Durations and timestamps, in nanoseconds.

use palisade_base::time;

use super::budget::Fault;
use super::value::Val;

pub(super) const SECOND: i128 = 1_000_000_000;
/// 0001-01-01 and the end of 9999.
const RANGE: std::ops::RangeInclusive<i128> =
    -62_135_596_800 * SECOND..=253_402_300_799 * SECOND + (SECOND - 1);

/// A timestamp within the years 1 to 9999.
pub(super) fn timestamp(nanos: i128) -> Result<Val, Fault> {
    if RANGE.contains(&nanos) { Ok(Val::Timestamp(nanos)) } else { Fault::error("timestamp overflow") }
}

/// RFC 3339.
pub(super) fn parse_timestamp(text: &str) -> Option<i128> {
    let parsed = time::parse(text).ok()?;
    // The parser keeps microseconds; three more digits may follow.
    let fraction = text.split_once('.').map_or("", |(_, rest)| rest);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).take(9);
    let (nanos, _) = digits.fold((0_i128, SECOND / 10), |(sum, weight), digit| {
        (sum + i128::from(digit - b'0') * weight, weight / 10)
    });
    Some(i128::from(parsed.seconds) * SECOND + nanos)
}

pub(super) fn show_timestamp(nanos: i128) -> String {
    let seconds = i64::try_from(nanos.div_euclid(SECOND)).unwrap_or_default();
    let whole = time::Time { seconds, micros: 0 }.format(false);
    match nanos.rem_euclid(SECOND) {
        0 => whole,
        fraction => {
            let digits = format!("{fraction:09}");
            format!("{}.{}Z", whole.trim_end_matches('Z'), digits.trim_end_matches('0'))
        }
    }
}

/// Go's durations: `1h30m`, `-1.5s`, `250ms`.
pub(super) fn parse_duration(text: &str) -> Option<i128> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0_i128;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let unit = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3600 * SECOND,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 19 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut part = whole.checked_mul(unit)?;
        let mut weight = unit;
        for digit in fraction.bytes() {
            weight /= 10;
            part = part.checked_add(i128::from(digit - b'0') * weight)?;
        }
        sum = sum.checked_add(part)?;
        rest = tail;
    }
    let sum = if negative { -sum } else { sum };
    i64::try_from(sum).ok().map(i128::from)
}

pub(super) fn show_duration(nanos: i128) -> String {
    let fraction = format!("{:09}", nanos.unsigned_abs() % 1_000_000_000);
    let fraction = fraction.trim_end_matches('0');
    let sign = if nanos < 0 { "-" } else { "" };
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{dot}{fraction}s", nanos.unsigned_abs() / 1_000_000_000)
}

/// `getHours()` and its relatives. Timestamps are read in UTC, or at a fixed offset such as `+02:00`.
pub(super) fn getter(name: &str, value: &Val, zone: &[Val]) -> Result<Val, Fault> {
    let number = |number: i128| Ok(Val::Int(i64::try_from(number).unwrap_or(i64::MAX)));
    match (value, zone) {
        (Val::Duration(nanos), []) => match name {
            "getHours" => number(nanos / (3600 * SECOND)),
            "getMinutes" => number(nanos / (60 * SECOND)),
            "getSeconds" => number(nanos / SECOND),
            "getMilliseconds" => number(nanos / 1_000_000),
            _ => Fault::overload(),
        },
        (Val::Timestamp(nanos), zone) => {
            let offset = match zone {
                [] => 0,
                [Val::String(zone)] => match offset(zone) {
                    Some(offset) => offset,
                    None => return Fault::error(format!("unknown time zone {zone}")),
                },
                _ => return Fault::overload(),
            };
            let seconds = i64::try_from(nanos.div_euclid(SECOND)).unwrap_or_default() + offset;
            let (year, month, day) = time::civil_from_days(seconds.div_euclid(86_400));
            let rest = seconds.rem_euclid(86_400);
            let found = match name {
                "getFullYear" => year,
                "getMonth" => month - 1,
                "getDate" => day,
                "getDayOfMonth" => day - 1,
                "getDayOfWeek" => (seconds.div_euclid(86_400) + 4).rem_euclid(7),
                "getDayOfYear" => seconds.div_euclid(86_400) - time::days_from_civil(year, 1, 1),
                "getHours" => rest / 3600,
                "getMinutes" => rest / 60 % 60,
                "getSeconds" => rest % 60,
                "getMilliseconds" => i64::try_from(nanos.rem_euclid(SECOND) / 1_000_000).unwrap_or_default(),
                _ => return Fault::overload(),
            };
            Ok(Val::Int(found))
        }
        _ => Fault::overload(),
    }
}

fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "UTC" | "Z") {
        return Some(0);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    ((0..24).contains(&hours) && (0..60).contains(&minutes)).then_some(sign * (hours * 3600 + minutes * 60))
}
