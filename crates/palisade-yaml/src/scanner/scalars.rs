//! Scalars: plain, quoted and block, with their folding.
//!
//! A scalar on one line and without escapes is a slice of the source; only the others are copied.

use std::borrow::Cow;

use super::{Scanner, Token, TokenKind, error};
use crate::{Error, ErrorKind, Span, document::ScalarStyle};

/// The line breaks between two pieces of folded text.
#[derive(Clone, Copy, Default)]
struct Fold {
    /// Whether there is a line break at all.
    broken: bool,
    /// Empty lines after it.
    empty_lines: usize,
}

impl Fold {
    fn write(self, out: &mut String) {
        match self.empty_lines {
            0 => out.push(' '),
            lines => out.extend(std::iter::repeat_n('\n', lines)),
        }
    }
}

impl<'s> Scanner<'s> {
    pub(super) fn plain_scalar(&mut self) -> Result<Token<'s>, Box<Error>> {
        let start = self.at;
        let mut end = start;
        let mut copied: Option<String> = None;
        let mut fold = Fold::default();
        // Where the indentation of a continuation line must not be left of.
        let least = self.indent.map_or(0, |indent| indent + 1);
        let flow = self.in_flow();
        loop {
            if self.at_document_marker() || (self.byte(0) == Some(b'#') && self.at > start) {
                break;
            }
            let piece = self.at;
            self.skip_plain_text(flow);
            if self.at > piece {
                if fold.broken {
                    let text = copied.get_or_insert_with(|| self.slice(start, end).to_owned());
                    fold.write(text);
                    text.push_str(self.source.get(piece..self.at).unwrap_or_default());
                    fold = Fold::default();
                } else if let Some(text) = &mut copied {
                    text.push_str(self.source.get(end..self.at).unwrap_or_default());
                }
                end = self.at;
            }
            if !self.is_blank() && !self.is_break() {
                break;
            }
            fold = self.skip_plain_blanks(least)?;
            if !flow && self.column() < least {
                break;
            }
        }
        if fold.broken {
            self.simple_key_allowed = true;
        }
        if end == start {
            return Err(error(start, "expected a value here"));
        }
        let text = copied.map_or_else(|| Cow::Borrowed(self.slice(start, end)), Cow::Owned);
        Ok(Token { kind: TokenKind::Scalar(text, ScalarStyle::Plain), span: Span::new(start, end) })
    }

    /// Steps over the characters of a plain scalar up to the next white space or the end.
    fn skip_plain_text(&mut self, flow: bool) {
        while let Some(byte) = self.byte(0) {
            let ends = match byte {
                b' ' | b'\t' | b'\n' | b'\r' => true,
                b':' => self.is_blank_or_end(1),
                b',' | b'?' | b'[' | b']' | b'{' | b'}' => flow,
                _ => false,
            };
            if ends {
                return;
            }
            self.at += 1;
        }
    }

    fn skip_plain_blanks(&mut self, least: usize) -> Result<Fold, Box<Error>> {
        let mut fold = Fold::default();
        while self.is_blank() || self.is_break() {
            if self.is_break() {
                fold.empty_lines += usize::from(fold.broken);
                fold.broken = true;
                self.skip_line_break();
            } else {
                let tab = self.byte(0) == Some(b'\t');
                if tab && fold.broken && self.column() < least {
                    return Err(error(self.at, "a tab cannot be used for indentation"));
                }
                self.at += 1;
            }
        }
        Ok(fold)
    }

    fn slice(&self, start: usize, end: usize) -> &'s str {
        self.source.get(start..end).unwrap_or_default()
    }

    pub(super) fn quoted_scalar(&mut self) -> Result<Token<'s>, Box<Error>> {
        let start = self.at;
        let single = self.byte(0) == Some(b'\'');
        self.at += 1;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let simple = rest.iter().position(|byte| match byte {
            b'\n' | b'\r' => true,
            b'\'' => single,
            b'"' | b'\\' => !single,
            _ => false,
        });
        let quote = if single { b'\'' } else { b'"' };
        let closed = simple.filter(|&length| {
            rest.get(length) == Some(&quote) && !(single && rest.get(length + 1) == Some(&quote))
        });
        let text = match closed {
            Some(length) => {
                self.at += length + 1;
                Cow::Borrowed(self.slice(start + 1, start + 1 + length))
            }
            None => Cow::Owned(self.quoted_text(start, single)?),
        };
        let style = if single { ScalarStyle::SingleQuoted } else { ScalarStyle::DoubleQuoted };
        Ok(Token { kind: TokenKind::Scalar(text, style), span: Span::new(start, self.at) })
    }

    /// The text of a quoted scalar with escapes or line breaks.
    fn quoted_text(&mut self, start: usize, single: bool) -> Result<String, Box<Error>> {
        let mut text = String::new();
        loop {
            if self.at_document_marker() || self.at >= self.bytes.len() {
                return Err(error(start, "this quote is never closed"));
            }
            // A line break that is escaped leaves no trace, and takes the indentation after it along.
            let mut escaped_break = false;
            let mut piece = self.at;
            while let Some(byte) = self.byte(0) {
                match byte {
                    b' ' | b'\t' | b'\n' | b'\r' => break,
                    b'\'' if single => {
                        if self.byte(1) != Some(b'\'') {
                            break;
                        }
                        text.push_str(self.slice(piece, self.at + 1));
                        self.at += 2;
                        piece = self.at;
                    }
                    b'"' if !single => break,
                    b'\\' if !single => {
                        text.push_str(self.slice(piece, self.at));
                        self.at += 1;
                        if self.is_break() {
                            self.skip_line_break();
                            escaped_break = true;
                            piece = self.at;
                            break;
                        }
                        text.push(self.escape()?);
                        piece = self.at;
                    }
                    _ => self.at += 1,
                }
            }
            text.push_str(self.slice(piece, self.at));
            if !escaped_break && self.byte(0) == Some(if single { b'\'' } else { b'"' }) {
                self.at += 1;
                return Ok(text);
            }
            let blanks = self.at;
            let mut fold = Fold { broken: escaped_break, empty_lines: 0 };
            let mut spaces_end = blanks;
            while self.is_blank() || self.is_break() {
                if self.is_break() {
                    fold.empty_lines += usize::from(fold.broken);
                    fold.broken = true;
                    self.skip_line_break();
                } else {
                    self.at += 1;
                    if !fold.broken {
                        spaces_end = self.at;
                    }
                }
            }
            if escaped_break {
                text.extend(std::iter::repeat_n('\n', fold.empty_lines));
            } else if fold.broken {
                fold.write(&mut text);
            } else {
                text.push_str(self.slice(blanks, spaces_end));
            }
        }
    }

    /// The character of an escape; the backslash is behind us.
    fn escape(&mut self) -> Result<char, Box<Error>> {
        let start = self.at - 1;
        let simple = match self.byte(0) {
            Some(b'0') => '\0',
            Some(b'a') => '\u{7}',
            Some(b'b') => '\u{8}',
            Some(b't' | b'\t') => '\t',
            Some(b'n') => '\n',
            Some(b'v') => '\u{b}',
            Some(b'f') => '\u{c}',
            Some(b'r') => '\r',
            Some(b'e') => '\u{1b}',
            Some(byte @ (b' ' | b'"' | b'\'' | b'\\' | b'/')) => char::from(byte),
            Some(b'N') => '\u{85}',
            Some(b'_') => '\u{a0}',
            Some(b'L') => '\u{2028}',
            Some(b'P') => '\u{2029}',
            Some(b'x') => return self.code(start, 2),
            Some(b'u') => return self.code(start, 4),
            Some(b'U') => return self.code(start, 8),
            _ => {
                let width =
                    self.source.get(self.at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
                let span = Span::new(start, self.at + width);
                return Err(Error::new(
                    ErrorKind::Syntax,
                    span,
                    "there is no such escape: write `\\\\` for a backslash",
                ));
            }
        };
        self.at += 1;
        Ok(simple)
    }

    fn code(&mut self, start: usize, digits: usize) -> Result<char, Box<Error>> {
        self.at += 1;
        let bad = |end: usize, message: &str| Error::new(ErrorKind::Syntax, Span::new(start, end), message);
        let value = self
            .hexadecimal(digits)
            .ok_or_else(|| bad(self.at, "this escape needs more hexadecimal digits"))?;
        // JSON writes characters beyond U+FFFF as two escapes.
        let value = match value {
            0xd800..=0xdbff if digits == 4 && self.byte(0) == Some(b'\\') && self.byte(1) == Some(b'u') => {
                self.at += 2;
                match self.hexadecimal(4) {
                    Some(low @ 0xdc00..=0xdfff) => 0x1_0000 + ((value - 0xd800) << 10) + (low - 0xdc00),
                    _ => value,
                }
            }
            other => other,
        };
        char::from_u32(value).ok_or_else(|| bad(self.at, "this escape is no Unicode character"))
    }

    fn hexadecimal(&mut self, digits: usize) -> Option<u32> {
        let text = self.source.get(self.at..self.at + digits)?;
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.at += digits;
        u32::from_str_radix(text, 16).ok()
    }

    pub(super) fn block_scalar(&mut self) -> Result<Token<'s>, Box<Error>> {
        let start = self.at;
        let literal = self.byte(0) == Some(b'|');
        self.at += 1;
        let mut chomp = None;
        let mut increment = None;
        while let Some(byte) = self.byte(0) {
            match byte {
                b'+' | b'-' if chomp.is_none() => chomp = Some(byte),
                b'1'..=b'9' if increment.is_none() => increment = Some(usize::from(byte - b'0')),
                b'0' => return Err(error(self.at, "the indentation of a block of text cannot be 0")),
                _ => break,
            }
            self.at += 1;
        }
        let header = self.at;
        let mut end = header;
        while self.is_blank() {
            self.at += 1;
        }
        if self.byte(0) == Some(b'#') {
            self.comment();
        }
        if self.at < self.bytes.len() && !self.is_break() {
            return Err(error(self.at, "the text after `|` or `>` begins on the next line"));
        }
        if self.is_break() {
            self.skip_line_break();
        }
        let parent = self.indent.map_or(0, |indent| indent + 1);
        let mut indent = increment.map(|increment| self.indent.unwrap_or(0) + increment);
        let mut text = String::new();
        let mut empty_lines = self.block_breaks(&mut indent, parent, &mut end)?;
        let indent = indent.unwrap_or(parent.max(1));
        let mut line_break = false;
        let mut was_indented = false;
        while self.column() == indent && self.at < self.bytes.len() {
            // A line that begins with white space is not folded.
            let indented = self.is_blank();
            if line_break {
                if !literal && !was_indented && !indented {
                    if empty_lines == 0 {
                        text.push(' ');
                    }
                } else {
                    text.push('\n');
                }
            }
            text.extend(std::iter::repeat_n('\n', empty_lines));
            was_indented = indented;
            let line = self.at;
            self.at = crate::lines::line_end(self.source, line);
            text.push_str(self.slice(line, self.at));
            end = self.at;
            // A text without a line break at its end gets one from upstream's line reader.
            line_break = true;
            if self.is_break() {
                self.skip_line_break();
            }
            let mut known = Some(indent);
            let mut blank_end = end;
            empty_lines = self.block_breaks(&mut known, parent, &mut blank_end)?;
            if chomp == Some(b'+') {
                end = blank_end;
            }
        }
        if chomp != Some(b'-') && line_break {
            text.push('\n');
        }
        if chomp == Some(b'+') {
            text.extend(std::iter::repeat_n('\n', empty_lines));
        } else if text.is_empty() {
            end = header;
        }
        let style = if literal { ScalarStyle::Literal } else { ScalarStyle::Folded };
        Ok(Token { kind: TokenKind::Scalar(text.into(), style), span: Span::new(start, end) })
    }

    /// Steps over indentation and empty lines, and counts the lines. Finds out the indentation if it is not known:
    /// that of the first line that is not empty. `end` becomes the end of the last empty line.
    fn block_breaks(
        &mut self,
        indent: &mut Option<usize>,
        parent: usize,
        end: &mut usize,
    ) -> Result<usize, Box<Error>> {
        let mut lines = 0;
        let mut widest = 0;
        loop {
            while self.byte(0) == Some(b' ') && indent.is_none_or(|indent| self.column() < indent) {
                self.at += 1;
            }
            widest = widest.max(self.column());
            if self.byte(0) == Some(b'\t') && indent.is_none_or(|indent| self.column() < indent) {
                return Err(error(self.at, "a tab cannot be used for indentation"));
            }
            if !self.is_break() {
                break;
            }
            *end = self.at;
            lines += 1;
            self.skip_line_break();
        }
        if indent.is_none() {
            *indent = Some(widest.max(parent).max(1));
        }
        Ok(lines)
    }
}
