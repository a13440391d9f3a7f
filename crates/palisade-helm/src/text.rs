//! Text that knows where each byte comes from: the place in a template, and the values that went into it.

use std::{ops::Range as Span, rc::Rc};

use crate::parse::Range;

/// A path in the values of the chart, by number; 0 is none.
pub(crate) type PathId = u32;
/// A set of paths, by number; 0 is empty.
pub(crate) type SetId = u32;
/// A source, by number; 0 is none.
pub(crate) type SourceId = u32;
/// The conditions around an action, by number; 0 is none.
pub(crate) type ScopeId = u32;

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Source {
    /// The template; `u32::MAX` for none.
    pub(crate) file: u32,
    /// The action, or the literal that the mark's place is in.
    pub(crate) span: Range,
    /// The values that the bytes are made of.
    pub(crate) data: SetId,
    /// The values that decided that they are written.
    pub(crate) scope: ScopeId,
}

pub(crate) const NO_FILE: u32 = u32::MAX;

/// The end of a run of bytes with the same source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) end: u32,
    pub(crate) source: SourceId,
    /// Where in the template a literal begins.
    pub(crate) at: u32,
}

/// A text with its marks; without marks it has no source of its own.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) text: Rc<str>,
    pub(crate) marks: Rc<[Mark]>,
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self { text: text.into(), marks: Rc::new([]) }
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self { text: text.into(), marks: Rc::new([]) }
    }
}

impl Text {
    /// The source of the byte at an offset.
    pub(crate) fn source_at(&self, at: usize) -> SourceId {
        let index = self.marks.partition_point(|mark| mark.end as usize <= at);
        self.marks.get(index).map_or(0, |mark| mark.source)
    }

    /// The text with every separator of documents on a line of its own.
    ///
    /// Helm splits manifests at `---` at the beginning of a line, whatever comes after it; in YAML `---# text` and `---kind: Pod` are no
    /// separators. The line feed that is put in has the source of the separator.
    pub(crate) fn separated(self) -> Self {
        let is_joined = |at: &usize| {
            let begins = *at == 0 || self.text.as_bytes().get(at - 1) == Some(&b'\n');
            let next = self.text.as_bytes().get(at + 3);
            begins && next.is_some_and(|next| !next.is_ascii_whitespace())
        };
        let joined: Vec<usize> = self.text.match_indices("---").map(|(at, _)| at).filter(is_joined).collect();
        if joined.is_empty() {
            return self;
        }
        let mut out = Out::default();
        let mut written = 0;
        for at in joined {
            out.push(&self, written..at + 3);
            out.push_str("\n", self.source_at(at));
            written = at + 3;
        }
        out.push(&self, written..self.text.len());
        out.finish()
    }

    /// A part of the text with its marks.
    pub(crate) fn slice(&self, range: Span<usize>) -> Self {
        let mut out = Out::default();
        out.push(self, range);
        out.finish()
    }
}

/// The place of a mark that is no literal: its source has the place of the action.
pub(crate) const NOT_LITERAL: u32 = u32::MAX;

/// A text under way.
#[derive(Debug, Default)]
pub(crate) struct Out {
    pub(crate) text: String,
    pub(crate) marks: Vec<Mark>,
}

fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Out {
    /// Appends text of one source.
    pub(crate) fn push_str(&mut self, text: &str, source: SourceId) {
        self.push_literal(text, source, NOT_LITERAL);
    }

    /// Appends a piece of a template that begins at `at`.
    pub(crate) fn push_literal(&mut self, text: &str, source: SourceId, at: u32) {
        if text.is_empty() {
            return;
        }
        self.text.push_str(text);
        let end = narrow(self.text.len());
        let before = self.marks.len().checked_sub(2).and_then(|index| self.marks.get(index));
        let begin = before.map_or(0, |mark| mark.end);
        if let Some(last) = self.marks.last_mut()
            && last.source == source
            && (last.at == at && at == NOT_LITERAL
                || at != NOT_LITERAL && last.at != NOT_LITERAL && last.at + (last.end - begin) == at)
        {
            last.end = end;
            return;
        }
        self.marks.push(Mark { end, source, at });
    }

    /// Appends a part of a text with its marks.
    pub(crate) fn push(&mut self, text: &Text, range: Span<usize>) {
        let Some(part) = text.text.get(range.clone()) else { return };
        if part.is_empty() {
            return;
        }
        if text.marks.is_empty() {
            self.push_str(part, 0);
            return;
        }
        let mut at = range.start;
        let mut index = text.marks.partition_point(|mark| mark.end as usize <= at);
        while at < range.end {
            let begin =
                index.checked_sub(1).and_then(|before| text.marks.get(before)).map_or(0, |m| m.end as usize);
            let Some(mark) = text.marks.get(index) else {
                self.push_str(text.text.get(at..range.end).unwrap_or_default(), 0);
                return;
            };
            let end = (mark.end as usize).min(range.end);
            let piece = text.text.get(at..end).unwrap_or_default();
            let skipped = narrow(at.saturating_sub(begin));
            let place = if mark.at == NOT_LITERAL { NOT_LITERAL } else { mark.at.saturating_add(skipped) };
            self.push_literal(piece, mark.source, place);
            at = end;
            index += 1;
        }
    }

    pub(crate) fn push_whole(&mut self, text: &Text) {
        self.push(text, 0..text.text.len());
    }

    pub(crate) fn finish(self) -> Text {
        // Text of no source at all needs no marks.
        let unmarked = self.marks.iter().all(|mark| mark.source == 0);
        let marks: Rc<[Mark]> = if unmarked { Rc::new([]) } else { self.marks.into() };
        Text { text: self.text.into(), marks }
    }
}
