//! Resource quantities: `100m`, `1.5Gi`, `2e3`, and their canonical form.
//!
//! Implements: `k8s.io/apimachinery/pkg/api/resource`,
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>. Values are kept as whole
//! billionths, the smallest unit there is; anything finer is rounded up, as upstream does.

use std::cmp::Ordering;
use std::fmt;

/// An amount and the way it was written.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    DecimalExponent,
    BinarySi,
    DecimalSi,
}

/// Why a text is no quantity; the messages are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityError {
    /// The text does not look like one.
    Format,
    /// The number cannot be read.
    Numeric,
    /// The unit is unknown.
    Suffix,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => {
                "quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            Self::Numeric => "unable to parse numeric part of quantity",
            Self::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl std::error::Error for QuantityError {}

const NANO: i128 = 1_000_000_000;
/// Upstream caps quantities at the largest 64-bit number.
const MAX: i128 = (i64::MAX as i128) * NANO;

impl Quantity {
    /// Reads a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        if text == "0" {
            return Ok(Self { nanos: 0, format: Format::DecimalSi });
        }
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let whole_end = rest.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
        let (whole, rest) = rest.split_at(whole_end);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => {
                let end = rest.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
                rest.split_at(end)
            }
            None => ("", rest),
        };
        check_suffix_shape(suffix)?;
        let (base, exponent, format) = read_suffix(suffix).ok_or(QuantityError::Suffix)?;
        let amount = amount(whole, fraction, base, exponent);
        let nanos = amount.min(MAX);
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }

    /// Whether it is less than nothing.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is a whole number of `10^-digits`.
    #[must_use]
    pub fn is_multiple_of(self, digits: u32) -> bool {
        digits >= 9 || self.nanos % 10i128.pow(9 - digits) == 0
    }

    /// The amount rounded up to thousandths.
    #[must_use]
    pub fn milli(self) -> i64 {
        let unit = NANO / 1000;
        i64::try_from(div_ceil(self.nanos, unit)).unwrap_or(i64::MAX)
    }

    /// The amount rounded up to a whole number.
    #[must_use]
    pub fn whole(self) -> i64 {
        i64::try_from(div_ceil(self.nanos, NANO)).unwrap_or(i64::MAX)
    }

    /// The sum, written like `self`.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos), format: self.format }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

fn div_ceil(n: i128, unit: i128) -> i128 {
    n.div_euclid(unit) + i128::from(n.rem_euclid(unit) != 0)
}

fn check_suffix_shape(suffix: &str) -> Result<(), QuantityError> {
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    if rest.bytes().all(|b| b.is_ascii_digit()) { Ok(()) } else { Err(QuantityError::Format) }
}

fn read_suffix(suffix: &str) -> Option<(u32, i32, Format)> {
    let decimal = |exponent| Some((10, exponent, Format::DecimalSi));
    let binary = |exponent| Some((2, exponent, Format::BinarySi));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let exponent: i32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
            Some((10, exponent, Format::DecimalExponent))
        }
    }
}

/// The amount in billionths, rounded up, capped somewhere above [`MAX`].
fn amount(whole: &str, fraction: &str, base: u32, exponent: i32) -> i128 {
    // The value is digits * 10^-len(fraction) * base^exponent; digits beyond what an i128 holds do not matter, because
    // a number with that many digits is capped, and a fraction that long is rounded up by its first dropped digit.
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    if whole.is_empty() && fraction.is_empty() {
        return 0;
    }
    let mut shift = 9i64;
    let mut factor = 1i128;
    if base == 10 {
        shift += i64::from(exponent);
    } else {
        factor = 1i128 << exponent.clamp(0, 60);
    }
    // Read as many digits as the shift keeps, then decide about the rest.
    let mut value = 0i128;
    let mut remainder = false;
    let place = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(shift);
    for (at, digit) in (0i64..).zip(whole.bytes().chain(fraction.bytes())) {
        // Binary units multiply afterwards, so keep more digits of the fraction for them.
        let keep = if base == 2 { place.saturating_add(9) } else { place };
        if at < keep {
            value = value.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
        } else if digit != b'0' {
            remainder = true;
        }
        if value > i128::MAX / 100 {
            return MAX;
        }
    }
    let read = i64::try_from(whole.len() + fraction.len()).unwrap_or(i64::MAX);
    if base == 2 {
        let missing = place.saturating_add(9) - read;
        for _ in 0..missing.clamp(0, 40) {
            value = value.saturating_mul(10);
        }
        let Some(scaled) = value.checked_mul(factor) else { return MAX };
        let unit = NANO;
        return div_ceil(scaled, unit).saturating_add(i128::from(remainder && scaled % unit == 0));
    }
    for _ in 0..(place - read).clamp(0, 60) {
        value = value.saturating_mul(10);
    }
    value.saturating_add(i128::from(remainder))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let mut format = self.format;
        if format == Format::BinarySi && (self.nanos.abs() < 1024 * NANO || self.nanos % NANO != 0) {
            format = Format::DecimalSi;
        }
        if format == Format::BinarySi {
            let mut number = self.nanos / NANO;
            let mut power = 0;
            while number % 1024 == 0 && power < 6 {
                number /= 1024;
                power += 1;
            }
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power];
            return write!(f, "{number}{suffix}");
        }
        let mut number = self.nanos;
        let mut exponent = -9;
        while number % 1000 == 0 && exponent < 18 {
            number /= 1000;
            exponent += 3;
        }
        if format == Format::DecimalExponent {
            return if exponent == 0 { write!(f, "{number}") } else { write!(f, "{number}e{exponent}") };
        }
        let suffix = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            0 => "",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            _ => "E",
        };
        write!(f, "{number}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_form_is_upstreams() {
        for (text, expected) in [
            ("0", "0"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1500", "1500"),
            ("1000", "1k"),
            ("2e3", "2e3"),
            ("1E", "1E"),
            ("1E3", "1e3"),
            ("0.0000000001", "1n"),
            ("0.1Ki", "102400m"),
            ("512", "512"),
            ("1Ki", "1Ki"),
            ("0.5Mi", "512Ki"),
            ("500Ki", "500Ki"),
            ("-1", "-1"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
            ("99999999999999999999", "9223372036854775807"),
            ("+5", "5"),
            (".5", "500m"),
        ] {
            assert_eq!(Quantity::parse(text).map(|q| q.to_string()), Ok(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn refuses_what_upstream_refuses() {
        for (text, expected) in [
            ("", QuantityError::Format),
            ("abc", QuantityError::Format),
            ("1x", QuantityError::Format),
            ("1kk", QuantityError::Suffix),
            ("1 Gi", QuantityError::Format),
            ("1e", QuantityError::Suffix),
        ] {
            assert_eq!(Quantity::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn compares_by_amount() {
        assert_eq!(Quantity::parse("1Gi"), Quantity::parse("1024Mi"));
        assert!(Quantity::parse("1G").unwrap() < Quantity::parse("1Gi").unwrap());
        assert_eq!(Quantity::parse("1500u").unwrap().milli(), 2);
        assert!(!Quantity::parse("1500u").unwrap().is_multiple_of(3));
    }
}
