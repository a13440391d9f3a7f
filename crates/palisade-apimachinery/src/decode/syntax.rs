//! Go's words for malformed JSON.
//!
//! Implements: the state machine of `encoding/json`'s scanner, only far enough to name the first error. It runs after
//! the real parser has refused the text, so speed does not matter.

use thiserror::Error;

/// The error Go's decoder would report for `body`, or `fallback` if Go would accept it.
#[must_use]
pub fn syntax_error(body: &[u8], fallback: &str) -> String {
    let mut scanner = Scanner { body, at: 0 };
    match scanner.document() {
        Err(error) => error.to_string(),
        Ok(()) => fallback.to_owned(),
    }
}

struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
}

/// The first error in a JSON text, worded as `encoding/json` does.
#[derive(Debug, Error)]
enum SyntaxError {
    /// The text ends inside a value.
    #[error("unexpected end of JSON input")]
    UnexpectedEnd,
    /// A byte that cannot be there.
    #[error("invalid character {} {context}", quote_char(*.byte))]
    InvalidCharacter { byte: u8, context: &'static str },
    /// A byte inside `true`, `false` or `null` that is not the next of it.
    #[error("invalid character {} in literal {word} (expecting {})", quote_char(*.byte), quote_char(*.expected))]
    InvalidLiteral { byte: u8, word: &'static str, expected: u8 },
    /// Values inside values without end.
    #[error("exceeded max depth")]
    TooDeep,
}

type Scanned = Result<(), SyntaxError>;

impl Scanner<'_> {
    fn document(&mut self) -> Scanned {
        self.value(0)?;
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.invalid("after top-level value")),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn invalid(&self, context: &'static str) -> SyntaxError {
        match self.peek() {
            None => SyntaxError::UnexpectedEnd,
            Some(byte) => SyntaxError::InvalidCharacter { byte, context },
        }
    }

    fn value(&mut self, depth: usize) -> Scanned {
        // Go's limit is 10,000, but the parser has given up long before: do not overflow the stack on its behalf.
        if depth > 500 {
            return Err(SyntaxError::TooDeep);
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.invalid("looking for beginning of value")),
        }
    }

    fn object(&mut self, depth: usize) -> Scanned {
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.invalid("looking for beginning of object key string"));
            }
            self.string()?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.invalid("after object key"));
            }
            self.at += 1;
            self.value(depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.invalid("after object key:value pair")),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Scanned {
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.invalid("after array element")),
            }
        }
    }

    fn string(&mut self) -> Scanned {
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(SyntaxError::UnexpectedEnd),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
                        Some(b'u') => {
                            self.at += 1;
                            for _ in 0..4 {
                                if !self.peek().is_some_and(|b| b.is_ascii_hexdigit()) {
                                    return Err(self.invalid("in \\u hexadecimal character escape"));
                                }
                                self.at += 1;
                            }
                        }
                        _ => return Err(self.invalid("in string escape code")),
                    }
                }
                Some(byte) if byte < 0x20 => return Err(self.invalid("in string literal")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Scanned {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.invalid("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.invalid("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !matches!(self.peek(), Some(b'0'..=b'9')) {
                return Err(self.invalid("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(())
    }

    fn literal(&mut self, word: &'static str) -> Scanned {
        for expected in word.bytes() {
            match self.peek() {
                Some(byte) if byte == expected => self.at += 1,
                Some(byte) => return Err(SyntaxError::InvalidLiteral { byte, word, expected }),
                None => return Err(SyntaxError::UnexpectedEnd),
            }
        }
        Ok(())
    }
}

fn quote_char(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".into(),
        b'"' => "'\"'".into(),
        0x20..=0x7e if byte != b'\\' => format!("'{}'", char::from(byte)),
        b'\\' => r"'\\'".into(),
        b'\n' => r"'\n'".into(),
        b'\r' => r"'\r'".into(),
        b'\t' => r"'\t'".into(),
        0xa1..=0xff if byte != 0xad => format!("'{}'", char::from(byte)),
        0x80..=0xff => format!("'\\u{byte:04x}'"),
        _ => format!("'\\x{byte:02x}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_errors_like_encoding_json() {
        for (body, expected) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("{]", "invalid character ']' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 2}", "invalid character '2' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("nul", "unexpected end of JSON input"),
            ("nuff", "invalid character 'f' in literal null (expecting 'l')"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("\"\\q\"", "invalid character 'q' in string escape code"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("kind: x", "invalid character 'k' looking for beginning of value"),
            ("{}", "fine"),
        ] {
            assert_eq!(syntax_error(body.as_bytes(), "fine"), expected, "{body}");
        }
    }
}
