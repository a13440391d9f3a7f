//! The text of an open document: changes by range, and positions in UTF-16 code units as the protocol counts them.
//!
//! Implements: Language Server Protocol 3.17, "Text Documents". A column beyond the end of its line is the end of the line.

use lsp_types::{Position, Range, TextDocumentContentChangeEvent};
use memchr::memchr2_iter;
use palisade_yaml::Span;
use thiserror::Error;

use crate::{diagnostic::Label, input::MAX_BYTES};

/// Why a change cannot be made: the text of the server would no longer be that of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum ChangeError {
    /// The end is before the start.
    #[error("the range of a change ends before it starts")]
    Reversed,
    /// Nothing of that size is read anywhere else.
    #[error("the text is too large")]
    TooLarge,
}

/// A text and where its lines begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text {
    text: String,
    starts: Vec<usize>,
}

impl Text {
    /// A text.
    #[must_use]
    pub(super) fn new(text: String) -> Self {
        let mut new = Self { text, starts: Vec::new() };
        new.count_lines();
        new
    }

    /// The text itself.
    #[must_use]
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    fn count_lines(&mut self) {
        let bytes = self.text.as_bytes();
        self.starts.clear();
        self.starts.push(0);
        let ends = memchr2_iter(b'\n', b'\r', bytes)
            .filter(|&at| !(bytes.get(at) == Some(&b'\r') && bytes.get(at + 1) == Some(&b'\n')));
        self.starts.extend(ends.map(|at| at + 1));
    }

    /// Makes a change.
    pub(super) fn change(&mut self, change: TextDocumentContentChangeEvent) -> Result<(), ChangeError> {
        match change.range {
            None => self.text = change.text,
            Some(range) => {
                let (start, end) = (self.offset(range.start), self.offset(range.end));
                if start > end {
                    return Err(ChangeError::Reversed);
                }
                if self.text.len() - (end - start) + change.text.len() > MAX_BYTES {
                    *self = Self::new(String::new());
                    return Err(ChangeError::TooLarge);
                }
                self.text.replace_range(start..end, &change.text);
            }
        }
        self.count_lines();
        Ok(())
    }

    /// A line, counted from 0, without its line break, and where it begins.
    #[must_use]
    pub(super) fn line(&self, line: usize) -> Option<(usize, &str)> {
        let start = *self.starts.get(line)?;
        let end = self.starts.get(line + 1).copied().unwrap_or(self.text.len());
        Some((start, self.text.get(start..end)?.trim_end_matches(['\n', '\r'])))
    }

    /// The byte of a position; one inside a character is that character.
    #[must_use]
    pub(super) fn offset(&self, position: Position) -> usize {
        let Some((start, line)) = self.line(index(position.line)) else { return self.text.len() };
        let mut left = index(position.character);
        for (at, character) in line.char_indices() {
            if left < character.len_utf16() {
                return start + at;
            }
            left -= character.len_utf16();
        }
        start + line.len()
    }

    /// The position of a byte.
    #[must_use]
    pub(super) fn position(&self, offset: usize) -> Position {
        let line = self.line_of(offset);
        let (start, text) = self.line(line).unwrap_or_default();
        let before = text.char_indices().take_while(|(at, _)| start + at < offset);
        Position { line: number(line), character: number(before.map(|(_, c)| c.len_utf16()).sum()) }
    }

    /// The line of a byte, counted from 0.
    #[must_use]
    pub(super) fn line_of(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset.min(self.text.len())).saturating_sub(1)
    }

    /// The range of a span.
    #[must_use]
    pub(super) fn range(&self, span: Span) -> Range {
        Range { start: self.position(span.start), end: self.position(span.end.max(span.start)) }
    }

    /// The range of a label, whose columns are characters counted from 1. An empty one gets a character, so that it can be seen.
    #[must_use]
    pub(super) fn range_of(&self, label: &Label) -> Range {
        let start = self.column(label.line, label.column);
        let mut end = self.column(label.end_line, label.end_column).max(start);
        if start == end {
            end.character += 1;
        }
        Range { start, end }
    }

    fn column(&self, line: usize, column: usize) -> Position {
        let line = line.saturating_sub(1);
        let (_, text) = self.line(line).unwrap_or_default();
        // A byte order mark has no column.
        let mark = usize::from(text.starts_with('\u{feff}'));
        let before = text.chars().take(mark + column.saturating_sub(1));
        Position { line: number(line), character: number(before.map(char::len_utf16).sum()) }
    }

    /// A whole line, counted from 1, without the spaces around it.
    #[must_use]
    pub(super) fn line_range(&self, line: usize) -> Range {
        let (start, text) = self.line(line.saturating_sub(1)).unwrap_or_default();
        let indent = text.len() - text.trim_start().len();
        self.range(Span::new(start + indent, start + text.trim_end().len().max(indent)))
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Documents of more than four billion lines do not fit into a message.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use palisade_yaml::LineIndex;

    use super::*;

    fn at(line: u32, character: u32) -> Position {
        Position { line, character }
    }

    fn change(start: Position, end: Position, text: &str) -> TextDocumentContentChangeEvent {
        TextDocumentContentChangeEvent {
            range: Some(Range { start, end }),
            range_length: None,
            text: text.to_owned(),
        }
    }

    #[test]
    fn columns_are_utf_16_code_units() {
        let text = Text::new("a: 😀é漢x\r\nb\rc\n".to_owned());
        for (case, position, offset) in [
            ("before", at(0, 3), 3),
            ("inside the surrogates", at(0, 4), 3),
            ("after the emoji", at(0, 5), 7),
            ("after the accent", at(0, 6), 9),
            ("after the ideograph", at(0, 7), 12),
            ("the end of the line", at(0, 8), 13),
            ("beyond the end of the line", at(0, 99), 13),
            ("after CRLF", at(1, 0), 15),
            ("after CR", at(2, 0), 17),
            ("the empty last line", at(3, 0), 19),
            ("beyond the last line", at(u32::MAX, u32::MAX), 19),
        ] {
            assert_eq!(text.offset(position), offset, "{case}");
        }
        for (offset, position) in
            [(0, at(0, 0)), (7, at(0, 5)), (12, at(0, 7)), (13, at(0, 8)), (14, at(0, 8)), (18, at(2, 1))]
        {
            assert_eq!(text.position(offset), position, "{offset}");
        }
    }

    #[test]
    fn changes_are_made_where_the_client_means_them() {
        let mut text = Text::new("name: 😀\nimage: x\n".to_owned());
        for (case, edit, expected) in [
            ("after an emoji", change(at(0, 8), at(0, 8), "é"), "name: 😀é\nimage: x\n"),
            ("an emoji is deleted", change(at(0, 6), at(0, 8), ""), "name: é\nimage: x\n"),
            ("lines are joined", change(at(0, 7), at(1, 0), ", "), "name: é, image: x\n"),
            ("at the end", change(at(9, 0), at(9, 0), "漢\n字"), "name: é, image: x\n漢\n字"),
            ("after an ideograph", change(at(1, 1), at(2, 1), "!"), "name: é, image: x\n漢!"),
        ] {
            text.change(edit).unwrap();
            assert_eq!(text.as_str(), expected, "{case}");
            assert_eq!(text, Text::new(expected.to_owned()), "{case}");
        }
        assert_eq!(text.change(change(at(1, 0), at(0, 0), "")), Err(ChangeError::Reversed));
        let mut large = Text::new("x".to_owned());
        let twice = "x".repeat(MAX_BYTES / 2);
        assert_eq!(large.change(change(at(0, 0), at(0, 0), &twice)), Ok(()));
        assert_eq!(large.change(change(at(0, 0), at(0, 0), &twice)), Err(ChangeError::TooLarge));
        assert_eq!(large.as_str(), "");
        text.change(TextDocumentContentChangeEvent { range: None, range_length: None, text: "x".into() })
            .unwrap();
        assert_eq!(text.as_str(), "x");
    }

    #[test]
    fn a_label_is_where_its_characters_are() {
        let source = "\u{feff}é😀: 漢字\nb: 1\n";
        let text = Text::new(source.to_owned());
        let label = |start: &str, length: usize| {
            let at = source.find(start).unwrap();
            Label::new(&LineIndex::new(source), source, Span::new(at, at + length), "")
        };
        for (case, label, expected) in [
            ("after a mark, an accent and an emoji", label("漢字", 6), (at(0, 6), at(0, 8))),
            ("the next line", label("1\n", 1), (at(1, 3), at(1, 4))),
            ("over lines", label("字", 5), (at(0, 7), at(1, 1))),
            ("empty", label("b", 0), (at(1, 0), at(1, 1))),
        ] {
            assert_eq!(text.range_of(&label), Range { start: expected.0, end: expected.1 }, "{case}");
        }
    }

    #[test]
    fn random_changes_keep_the_lines_right() {
        let pieces = ["", "a", "\n", "\r", "\r\n", "😀", "漢\n", "é"];
        let mut text = Text::default();
        text.count_lines();
        let mut seed: u32 = 7;
        let mut next = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % below
        };
        for round in 0..2000 {
            let (start, end) = (at(next(6), next(6)), at(next(6), next(6)));
            let (start, end) = if start <= end { (start, end) } else { (end, start) };
            let piece = pieces[next(8) as usize];
            text.change(change(start, end, piece)).unwrap();
            assert_eq!(text.starts, Text::new(text.text.clone()).starts, "{round}");
            let end = text.text.len();
            assert_eq!(text.offset(text.position(end)), end, "{round}");
            if text.text.len() > 60 {
                text = Text::new(String::new());
            }
        }
    }
}
