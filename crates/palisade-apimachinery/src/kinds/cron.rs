//! Cron schedules, checked as upstream checks them.
//!
//! Implements: `github.com/robfig/cron/v3`'s standard parser (five fields and descriptors), its errors included.

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

/// Checks a schedule; the error is upstream's.
pub fn validate(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".into());
    }
    if schedule.starts_with('@') {
        return match schedule {
            "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
            _ => match schedule.strip_prefix("@every ") {
                Some(duration) if is_duration(duration) => Ok(()),
                Some(duration) => Err(format!(
                    "failed to parse duration {schedule}: time: invalid duration {}",
                    palisade_base::go::quote(duration)
                )),
                None => Err(format!("unrecognized descriptor: {schedule}")),
            },
        };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly {} fields, found {}: [{}]",
            FIELDS.len(),
            fields.len(),
            fields.join(" ")
        ));
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

fn range(expression: &str, bounds: &Bounds) -> Result<(), String> {
    let range_and_step: Vec<&str> = expression.split('/').collect();
    let low_and_high: Vec<&str> = range_and_step[0].split('-').collect();
    let single = low_and_high.len() == 1;
    let star = low_and_high[0] == "*" || low_and_high[0] == "?";
    let start = if star { bounds.min } else { number(low_and_high[0], bounds)? };
    let mut end = match low_and_high.as_slice() {
        _ if star => bounds.max,
        [_] => start,
        [_, high] => number(high, bounds)?,
        _ => return Err(format!("too many hyphens: {expression}")),
    };
    let step = match range_and_step.as_slice() {
        [_] => 1,
        [_, step] => {
            if single {
                end = bounds.max;
            }
            integer(step)?
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    if start < bounds.min {
        return Err(format!("beginning of range ({start}) below minimum ({}): {expression}", bounds.min));
    }
    if end > bounds.max {
        return Err(format!("end of range ({end}) above maximum ({}): {expression}", bounds.max));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {expression}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {expression}"));
    }
    Ok(())
}

fn number(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(at) => Ok(bounds.min + u32::try_from(at).unwrap_or(0)),
        None => integer(text),
    }
}

fn integer(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(n) if n < 0 => Err(format!("negative number ({n}) not allowed: {text}")),
        Ok(n) => u32::try_from(n).map_err(|_| format!("failed to parse int from {text}: value out of range")),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax",
            palisade_base::go::quote(text)
        )),
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
            assert_eq!(validate(schedule).err().as_deref(), expected, "{schedule}");
        }
    }
}
