//! What a scalar means: `yes` is true, `0755` is 493, `2024-01-01` is a string.
//!
//! Kubernetes reads YAML with sigs.k8s.io/yaml on go-yaml v2, which is YAML 1.1 with exceptions of its own; this
//! is that resolution, rule by rule, because a manifest means what Kubernetes reads.
//! <https://pkg.go.dev/sigs.k8s.io/yaml>
//!
//! One rule differs: integers in base 2, 8 or 16 that do not fit 64 bits stay strings, as in go-yaml 2.4 and
//! before (later releases keep them as big integers, which no Kubernetes field can hold).

use crate::document::{ScalarStyle, Tag};

/// The value of a scalar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resolved<'a> {
    /// Nothing at all, `~`, or `null`.
    Null,
    /// `true`, `yes`, `on`, `y` and their opposites.
    Bool(bool),
    /// An integer that fits 64 bits with sign.
    Int(i64),
    /// An integer that fits 64 bits only without sign.
    UInt(u64),
    /// Any other number. May be infinite or not a number, which JSON cannot hold.
    Float(f64),
    /// Everything else.
    Str(&'a str),
}

/// Resolves a scalar; `None` if it has a tag that does not fit (`!!int x`).
pub(crate) fn resolve(text: &str, style: ScalarStyle, tag: Tag) -> Option<Resolved<'_>> {
    let string = Resolved::Str(text);
    match tag {
        Tag::None if style == ScalarStyle::Plain => Some(resolve_plain(text)),
        Tag::None | Tag::Str | Tag::Binary | Tag::NonSpecific | Tag::Merge | Tag::Timestamp => Some(string),
        Tag::Null => matches!(resolve_plain(text), Resolved::Null).then_some(Resolved::Null),
        Tag::Bool => match resolve_plain(text) {
            value @ Resolved::Bool(_) => Some(value),
            _ => None,
        },
        Tag::Int => match resolve_plain(text) {
            value @ (Resolved::Int(_) | Resolved::UInt(_)) => Some(value),
            _ => None,
        },
        Tag::Float => match resolve_plain(text) {
            // Upstream converts the same way; 2^53 and above lose their last digits there, too.
            #[allow(clippy::cast_precision_loss)]
            Resolved::Int(value) => Some(Resolved::Float(value as f64)),
            value @ Resolved::Float(_) => Some(value),
            _ => None,
        },
        Tag::Seq | Tag::Map => None,
    }
}

/// Resolves a plain scalar without tag.
pub(crate) fn resolve_plain(text: &str) -> Resolved<'_> {
    let Some(&first) = text.as_bytes().first() else { return Resolved::Null };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => match text {
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                Resolved::Bool(true)
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
                Resolved::Bool(false)
            }
            "~" | "null" | "Null" | "NULL" => Resolved::Null,
            _ => Resolved::Str(text),
        },
        b'.' => match text {
            ".nan" | ".NaN" | ".NAN" => Resolved::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" => Resolved::Float(f64::INFINITY),
            _ => finite_float(text).unwrap_or(Resolved::Str(text)),
        },
        b'+' | b'-' | b'0'..=b'9' => number(text).unwrap_or(Resolved::Str(text)),
        _ => Resolved::Str(text),
    }
}

fn number(text: &str) -> Option<Resolved<'_>> {
    match text {
        "+.inf" | "+.Inf" | "+.INF" => return Some(Resolved::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Resolved::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    // A date such as 2024-01-01 needs no rule: it is neither an integer nor a float, and upstream keeps timestamps
    // as strings.
    let without_underscores;
    let digits = if text.contains('_') {
        without_underscores = text.replace('_', "");
        without_underscores.as_str()
    } else {
        text
    };
    integer(digits).or_else(|| match finite_float(digits) {
        Some(Resolved::Float(value)) => Some(Resolved::Float(value)),
        _ => None,
    })
}

/// Go's `strconv.ParseInt(s, 0, 64)`, then `ParseUint`: the prefix chooses the base, a leading zero means octal.
fn integer(text: &str) -> Option<Resolved<'static>> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (Some(true), text.get(1..)?),
        b'+' => (Some(false), text.get(1..)?),
        _ => (None, text),
    };
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'b' | b'B', _, ..] => (2, digits.get(2..)?),
        [b'0', b'o' | b'O', _, ..] => (8, digits.get(2..)?),
        [b'0', b'x' | b'X', _, ..] => (16, digits.get(2..)?),
        [b'0'] => (10, digits),
        [b'0', ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    // `from_str_radix` takes a sign of its own, which would let `0x-1` through.
    if !digits.as_bytes().first()?.is_ascii_alphanumeric() {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, base).ok()?;
    match sign {
        Some(true) => 0_i64.checked_sub_unsigned(magnitude).map(Resolved::Int),
        _ => match i64::try_from(magnitude) {
            Ok(value) => Some(Resolved::Int(value)),
            Err(_) => sign.is_none().then_some(Resolved::UInt(magnitude)),
        },
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, and within the range of a double.
fn finite_float(text: &str) -> Option<Resolved<'static>> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !mantissa_fits || !exponent_fits {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(Resolved::Float(value))
}

/// A mapping key as the string it becomes in JSON; `None` for null, which JSON has no key for.
pub(crate) fn key_text(value: Resolved<'_>) -> Option<std::borrow::Cow<'_, str>> {
    match value {
        Resolved::Null => None,
        Resolved::Bool(true) => Some("true".into()),
        Resolved::Bool(false) => Some("false".into()),
        Resolved::Int(value) => Some(value.to_string().into()),
        Resolved::UInt(value) => Some(value.to_string().into()),
        Resolved::Float(value) => Some(float_key(value).into()),
        Resolved::Str(text) => Some(text.into()),
    }
}

/// Go's `strconv.FormatFloat(value, 'g', -1, 32)`, which is what upstream turns float keys into.
fn float_key(value: f64) -> String {
    #[allow(clippy::cast_possible_truncation)]
    let value = value as f32;
    if value.is_nan() {
        return ".nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.into();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..21).contains(&exponent) && exponent < 6.max(significant_digits(mantissa)) {
        format!("{value}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
    }
}

fn significant_digits(mantissa: &str) -> i32 {
    // Shortest formatting always decides with a precision of 6 upstream, so more digits do not widen it.
    i32::try_from(mantissa.bytes().filter(u8::is_ascii_digit).count()).unwrap_or(6).min(6)
}

/// Decodes the text of a `!!binary` scalar: standard alphabet with padding, line breaks ignored.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut quartet = 0_u32;
    let mut filled = 0;
    let mut padding = 0;
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                padding += 1;
                0
            }
            b'\r' | b'\n' => continue,
            _ => return None,
        };
        if padding > 2 || (padding > 0 && byte != b'=') || (padding > 0 && filled < 2) {
            return None;
        }
        quartet = (quartet << 6) | u32::from(value);
        filled += 1;
        if filled == 4 {
            let [_, bytes @ ..] = quartet.to_be_bytes();
            out.extend_from_slice(bytes.get(..3 - padding)?);
            quartet = 0;
            filled = 0;
            if padding > 0 {
                padding = 3;
            }
        }
    }
    (filled == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_mean_what_kubernetes_reads() {
        use Resolved::{Bool, Float, Int, Null, Str, UInt};
        for (text, expected) in [
            ("", Null),
            ("~", Null),
            ("NULL", Null),
            ("nULL", Str("nULL")),
            ("yes", Bool(true)),
            ("On", Bool(true)),
            ("y", Bool(true)),
            ("oN", Str("oN")),
            ("off", Bool(false)),
            ("N", Bool(false)),
            ("yes please", Str("yes please")),
            ("0", Int(0)),
            ("-0", Int(0)),
            ("+12", Int(12)),
            ("1_000", Int(1000)),
            ("0755", Int(493)),
            ("-0755", Int(-493)),
            ("0o17", Int(15)),
            ("0x1F", Int(31)),
            ("-0x1F", Int(-31)),
            ("0b101", Int(5)),
            ("0x", Str("0x")),
            ("0x-1", Str("0x-1")),
            ("--1", Str("--1")),
            ("-", Str("-")),
            ("+", Str("+")),
            ("08", Float(8.0)),
            ("9223372036854775807", Int(i64::MAX)),
            ("-9223372036854775808", Int(i64::MIN)),
            ("9223372036854775808", UInt(1 << 63)),
            ("+9223372036854775808", Float(9_223_372_036_854_775_808.0)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("0x1FFFFFFFFFFFFFFFF", Str("0x1FFFFFFFFFFFFFFFF")),
            ("1.5", Float(1.5)),
            ("1.", Float(1.0)),
            (".5", Float(0.5)),
            ("-.5", Float(-0.5)),
            (".5_0", Str(".5_0")),
            ("5_0.5", Float(50.5)),
            (".", Str(".")),
            ("...", Str("...")),
            ("1e3", Float(1000.0)),
            ("1e+3", Float(1000.0)),
            ("1e", Str("1e")),
            ("1e400", Str("1e400")),
            ("1:30", Str("1:30")),
            ("10.0.0.1", Str("10.0.0.1")),
            ("2024-01-01", Str("2024-01-01")),
            ("2024-01-01T00:00:00Z", Str("2024-01-01T00:00:00Z")),
            ("100m", Str("100m")),
            ("64Mi", Str("64Mi")),
            ("1_", Int(1)),
            ("_1", Str("_1")),
            ("inf", Str("inf")),
            ("nan", Str("nan")),
            (".inf", Float(f64::INFINITY)),
            ("-.INF", Float(f64::NEG_INFINITY)),
            ("0E0", Float(0.0)),
            ("é", Str("é")),
        ] {
            assert_eq!(resolve_plain(text), expected, "{text:?}");
        }
        assert!(matches!(resolve_plain(".NaN"), Float(value) if value.is_nan()));
    }

    #[test]
    fn tags_decide_or_do_not_fit() {
        use ScalarStyle::{DoubleQuoted, Plain};
        for (text, style, tag, expected) in [
            ("5", Plain, Tag::Str, Some(Resolved::Str("5"))),
            ("5", DoubleQuoted, Tag::None, Some(Resolved::Str("5"))),
            ("5", DoubleQuoted, Tag::Int, Some(Resolved::Int(5))),
            ("5", Plain, Tag::Float, Some(Resolved::Float(5.0))),
            ("5", Plain, Tag::NonSpecific, Some(Resolved::Str("5"))),
            ("x", Plain, Tag::Int, None),
            ("1.5", Plain, Tag::Int, None),
            ("on", Plain, Tag::Bool, Some(Resolved::Bool(true))),
            ("1", Plain, Tag::Bool, None),
            ("", Plain, Tag::Null, Some(Resolved::Null)),
            ("x", Plain, Tag::Null, None),
            ("x", Plain, Tag::Seq, None),
        ] {
            assert_eq!(resolve(text, style, tag), expected, "{tag:?} {text:?}");
        }
    }

    #[test]
    fn keys_become_strings() {
        for (value, expected) in [
            (Resolved::Int(-7), Some("-7")),
            (Resolved::Bool(true), Some("true")),
            (Resolved::Float(1.5), Some("1.5")),
            (Resolved::Float(1e6), Some("1e+06")),
            (Resolved::Float(123_456.0), Some("123456")),
            (Resolved::Float(0.000_01), Some("1e-05")),
            (Resolved::Float(f64::INFINITY), Some(".inf")),
            (Resolved::Null, None),
        ] {
            assert_eq!(key_text(value).as_deref(), expected, "{value:?}");
        }
    }

    #[test]
    fn base64_is_strict() {
        for (text, expected) in [
            ("", Some(&b""[..])),
            ("aGk=", Some(b"hi")),
            ("aGkh", Some(b"hi!")),
            ("aG\nkh\n", Some(b"hi!")),
            ("aA==", Some(b"h")),
            ("aA=", None),
            ("a", None),
            ("a===", None),
            ("aA==aA==", None),
            ("aG k", None),
        ] {
            assert_eq!(base64(text).as_deref(), expected, "{text:?}");
        }
    }
}
