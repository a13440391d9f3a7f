//! `?timeout=5s`: how long the API server will wait.
//!
//! Implements: Go's `time.ParseDuration`, as far as an API server writes one.

use std::time::Duration;

/// The duration in a query; `None` if there is none that can be read.
pub(super) fn in_query(query: Option<&str>) -> Option<Duration> {
    let value = query?.split('&').find_map(|pair| pair.strip_prefix("timeout="))?;
    parse(value)
}

fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = 0.0_f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(digits)?;
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(unit_end)?;
        let factor = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" | "%C2%B5s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        // swallowed: without a duration the limit of the server applies
        seconds += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    // swallowed: without a duration the limit of the server applies
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::in_query;

    #[test]
    fn reads_what_an_api_server_writes() {
        for (query, millis) in [
            ("timeout=5s", Some(5_000)),
            ("a=b&timeout=1m30s", Some(90_000)),
            ("timeout=1.5s", Some(1_500)),
            ("timeout=250ms&x", Some(250)),
            ("timeout=0", Some(0)),
            ("timeout=", None),
            ("timeout=5", None),
            ("timeout=s", None),
            ("timeout=-5s", None),
            ("timeout=5parsecs", None),
            ("timeout=1..2s", None),
            ("timeout=99999999999999999999999h", None),
            ("", None),
        ] {
            assert_eq!(in_query(Some(query)), millis.map(Duration::from_millis), "{query}");
        }
        assert_eq!(in_query(None), None);
    }
}
