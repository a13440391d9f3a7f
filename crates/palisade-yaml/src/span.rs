//! Byte ranges of a text, and the lines and columns people count in.
//!
//! Everything else in this crate uses byte offsets; only [`LineIndex`] has lines.

use std::ops::Range;

/// A half-open range of byte offsets into the source text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

impl Span {
    /// The range `start..end`.
    #[must_use]
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// An empty range: a place between two bytes.
    #[must_use]
    pub const fn at(offset: usize) -> Self {
        Self { start: offset, end: offset }
    }

    /// Whether no byte lies inside.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// Whether all of `other` lies inside.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The text of this span; empty if the span does not fit the source.
    #[must_use]
    pub fn text(self, source: &str) -> &str {
        source.get(self.start..self.end).unwrap_or_default()
    }

    /// The span as a range, for slicing.
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

/// A place as editors show it: both numbers count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters (Unicode scalar values), counted from 1.
    pub column: usize,
}

/// Finds the line and column of a byte offset.
///
/// Lines end with LF, CRLF or a lone CR, as in YAML. A byte order mark has no width.
#[derive(Clone, Debug)]
pub struct LineIndex<'s> {
    source: &'s str,
    starts: Vec<usize>,
}

impl<'s> LineIndex<'s> {
    /// Reads the text once.
    #[must_use]
    pub fn new(source: &'s str) -> Self {
        let bytes = source.as_bytes();
        let mut starts = vec![0];
        for at in memchr::memchr2_iter(b'\n', b'\r', bytes) {
            let crlf = bytes.get(at) == Some(&b'\r') && bytes.get(at + 1) == Some(&b'\n');
            if !crlf {
                starts.push(at + 1);
            }
        }
        Self { source, starts }
    }

    /// Line and column of a byte offset. Offsets past the end are the end; offsets inside a character are that
    /// character.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        let mut offset = offset.min(self.source.len());
        while !self.source.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|&start| start <= offset).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or_default();
        let before = self.source.get(start..offset).unwrap_or_default();
        let column = before.trim_start_matches('\u{feff}').chars().count() + 1;
        Position { line, column }
    }

    /// The bytes of a line (counted from 1), without its line break; `None` if there is no such line.
    #[must_use]
    pub fn line_span(&self, line: usize) -> Option<Span> {
        let start = *self.starts.get(line.checked_sub(1)?)?;
        let end = self.starts.get(line).copied().unwrap_or(self.source.len());
        let text = self.source.get(start..end)?;
        Some(Span::new(start, start + text.trim_end_matches(['\n', '\r']).len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_and_characters() {
        let source = "\u{feff}a: 1\r\nß: é\n\rlast";
        let index = LineIndex::new(source);
        for (case, offset, line, column) in [
            ("the byte order mark has no width", 3, 1, 1),
            ("the value after it", 6, 1, 4),
            ("a CRLF belongs to its line", 8, 1, 6),
            ("a line after CRLF", 9, 2, 1),
            ("columns are characters, not bytes", 13, 2, 4),
            ("inside a character", 14, 2, 4),
            ("a lone CR ends a line", 17, 4, 1),
            ("past the end is the end", 999, 4, 5),
        ] {
            assert_eq!(index.position(offset), Position { line, column }, "{case}");
        }
        assert_eq!(index.line_span(2).map(|span| span.text(source)), Some("ß: é"));
        assert_eq!(index.line_span(3).map(|span| span.text(source)), Some(""));
        assert_eq!(index.line_span(5), None);
        assert_eq!(index.line_span(0), None);
    }
}
