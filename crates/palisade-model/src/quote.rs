//! Go's `%q`: how upstream prints strings inside messages.
//!
//! Rust's `{:?}` escapes differently (`\u{..}`, `\0`), so that a message rendered with it would not be
//! upstream's. What counts as printable follows Go's `strconv.IsPrint`: letters, marks, numbers, punctuation,
//! symbols and the ASCII space.

use std::fmt::{self, Write};

/// Displays a string the way Go's `%q` does.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\u{7}' => f.write_str("\\a")?,
                '\u{8}' => f.write_str("\\b")?,
                '\u{c}' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\u{b}' => f.write_str("\\v")?,
                c if is_print(c) => f.write_char(c)?,
                c if (c as u32) < 0x80 => write!(f, "\\x{:02x}", c as u32)?,
                c if (c as u32) < 0x1_0000 => write!(f, "\\u{:04x}", c as u32)?,
                c => write!(f, "\\U{:08x}", c as u32)?,
            }
        }
        f.write_char('"')
    }
}

/// Displays a string as Go's `encoding/json` does by default: HTML characters are escaped as well.
#[derive(Debug, Clone, Copy)]
pub struct JsonQuoted<'a>(pub &'a str);

impl fmt::Display for JsonQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\u{8}' => f.write_str("\\b")?,
                '\u{c}' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => write!(f, "\\u{:04x}", c as u32)?,
                c if (c as u32) < 0x20 => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// `strconv.IsPrint`, near enough for what can stand in a manifest: everything but controls, separators,
/// format characters, surrogates, private use and unassigned planes.
fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    if c.is_control() || c.is_whitespace() {
        return false;
    }
    !matches!(c as u32,
        0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x180e
        | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f
        | 0xd800..=0xf8ff | 0xfdd0..=0xfdef | 0xfeff | 0xfff0..=0xfffb | 0xfffe | 0xffff
        | 0x1_10bd | 0x1_10cd | 0x1_bca0..=0x1_bca3 | 0x1_d173..=0x1_d17a
        | 0xe_0000..=0xe_00ff | 0xe_01f0..=0x10_ffff)
}

#[cfg(test)]
mod tests {
    use super::{JsonQuoted, Quoted};

    #[test]
    fn quotes_as_go_does() {
        for (text, expected) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\u{7}\u{8}\u{c}\n\r\t\u{b}", r#""\a\b\f\n\r\t\v""#),
            ("\0\u{1f}\u{7f}", r#""\x00\x1f\x7f""#),
            ("naïve 世界 😀", r#""naïve 世界 😀""#),
            ("a\u{a0}b", r#""a\u00a0b""#),
            ("\u{feff}", r#""\ufeff""#),
            ("\u{10ffff}", r#""\U0010ffff""#),
        ] {
            assert_eq!(Quoted(text).to_string(), expected, "{text:?}");
        }
    }

    #[test]
    fn escapes_html_in_json() {
        assert_eq!(JsonQuoted("a<b>&\u{1}\n").to_string(), r#""a\u003cb\u003e\u0026\u0001\n""#);
    }
}
