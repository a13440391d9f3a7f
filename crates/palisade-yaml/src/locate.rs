//! Finds the tokens between the events: dashes, colons, brackets, anchors, comments.
//!
//! The event parser says what a document is made of, but its positions count characters, begin a block scalar
//! after its header, and leave out indicators and comments. So this cursor walks the source along with the events.
//! Between two scalars there is nothing but white space, comments, indicators and node properties, which makes the
//! walk simple; how scalars end is told by the events, except for quoted ones, whose end is plain to see.

use crate::{Span, document::ScalarStyle};

/// A place in the source that only moves forward.
#[derive(Debug)]
pub(crate) struct Cursor<'s> {
    source: &'s str,
    ascii: bool,
    at: usize,
    /// A character index of the event parser, and the byte offset it stands for.
    anchor: (usize, usize),
    comments: Vec<Span>,
}

impl<'s> Cursor<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        Self { source, ascii: source.is_ascii(), at: 0, anchor: (0, 0), comments: Vec::new() }
    }

    /// Begins again at `offset`, where the event parser counts characters from 0.
    pub(crate) fn restart(&mut self, offset: usize) {
        self.at = offset;
        self.anchor = (0, offset);
        let kept = self.comments.partition_point(|comment| comment.start < offset);
        self.comments.truncate(kept);
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn into_comments(self) -> Vec<Span> {
        self.comments
    }

    fn bytes(&self) -> &'s [u8] {
        self.source.as_bytes()
    }

    pub(crate) fn byte(&self) -> Option<u8> {
        self.bytes().get(self.at).copied()
    }

    /// Steps over `byte` if it is next.
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let found = self.byte() == Some(byte);
        if found {
            self.at += 1;
        }
        found
    }

    /// Steps over `?` if it is next and stands alone.
    pub(crate) fn eat_question_mark(&mut self) -> bool {
        let alone = matches!(self.bytes().get(self.at + 1), None | Some(b' ' | b'\t' | b'\n' | b'\r'));
        alone && self.eat(b'?')
    }

    /// Steps over white space and comments.
    pub(crate) fn trivia(&mut self) {
        loop {
            match self.byte() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(b'#') => self.comment(),
                _ => return,
            }
        }
    }

    fn comment(&mut self) {
        let end = line_end(self.source, self.at);
        self.comments.push(Span::new(self.at, end));
        self.at = end;
    }

    /// Steps over all that may stand between documents: directives, `...`, byte order marks.
    pub(crate) fn between_documents(&mut self) {
        loop {
            self.trivia();
            let rest = self.bytes().get(self.at..).unwrap_or_default();
            let line_start = matches!(self.bytes().get(self.at.wrapping_sub(1)), None | Some(b'\n' | b'\r'));
            match rest {
                [0xef, 0xbb, 0xbf, ..] => self.at += 3,
                [b'%', ..] if line_start => self.at = line_end(self.source, self.at),
                [b'.', b'.', b'.', after @ ..] if line_start && ends_marker(after) => self.at += 3,
                _ => return,
            }
        }
    }

    /// Steps over `---`.
    pub(crate) fn eat_marker(&mut self) -> Option<Span> {
        let found = self.bytes().get(self.at..)?.starts_with(b"---");
        found.then(|| {
            self.at += 3;
            Span::new(self.at - 3, self.at)
        })
    }

    /// Steps over an anchor and a tag, as many of them as the event has.
    pub(crate) fn properties(&mut self, mut anchor: bool, mut tag: bool) {
        loop {
            match self.byte() {
                Some(b'&') if anchor => anchor = false,
                Some(b'!') if tag => tag = false,
                _ => return,
            }
            let verbatim = self.bytes().get(self.at..).is_some_and(|rest| rest.starts_with(b"!<"));
            while let Some(byte) = self.byte() {
                let ends = match byte {
                    b' ' | b'\t' | b'\n' | b'\r' => true,
                    b',' | b'[' | b']' | b'{' | b'}' => !verbatim,
                    _ => false,
                };
                if ends {
                    break;
                }
                self.at += 1;
            }
            if anchor || tag {
                self.trivia();
            }
        }
    }

    /// Notes that the event parser's character `index` is the current place.
    pub(crate) fn sync(&mut self, index: usize) {
        self.anchor = (index, self.at);
    }

    /// The byte offset of a character index of the event parser.
    pub(crate) fn offset_of(&self, index: usize) -> usize {
        let (known, offset) = self.anchor;
        match index.checked_sub(known) {
            Some(characters) => self.advance(offset, characters),
            None => offset,
        }
    }

    fn advance(&self, from: usize, characters: usize) -> usize {
        if self.ascii {
            return (from + characters).min(self.source.len());
        }
        let rest = self.source.get(from..).unwrap_or_default();
        rest.char_indices().nth(characters).map_or(self.source.len(), |(width, _)| from + width)
    }

    /// Steps over a scalar whose first byte is next; `characters` is its length by the event parser, counted from
    /// `counted_from`, and `end` the character index of its end.
    pub(crate) fn scalar(
        &mut self,
        style: ScalarStyle,
        counted_from: usize,
        characters: usize,
        end: usize,
    ) -> Span {
        let start = self.at;
        match style {
            ScalarStyle::Plain => {
                self.at = self.advance(counted_from, characters).max(start);
                Span::new(start, self.at)
            }
            ScalarStyle::SingleQuoted => self.single_quoted(start),
            ScalarStyle::DoubleQuoted => self.double_quoted(start),
            ScalarStyle::Literal | ScalarStyle::Folded => self.block_scalar(start, end),
        }
    }

    fn single_quoted(&mut self, start: usize) -> Span {
        let bytes = self.bytes();
        let mut at = start + 1;
        loop {
            match memchr::memchr(b'\'', bytes.get(at..).unwrap_or_default()) {
                None => at = bytes.len(),
                Some(found) if bytes.get(at + found + 1) == Some(&b'\'') => {
                    at += found + 2;
                    continue;
                }
                Some(found) => at += found + 1,
            }
            self.at = at;
            return Span::new(start, at);
        }
    }

    fn double_quoted(&mut self, start: usize) -> Span {
        let bytes = self.bytes();
        let mut at = start + 1;
        while let Some(found) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
            at += found + 1;
            if bytes.get(at - 1) == Some(&b'"') {
                self.at = at;
                return Span::new(start, at);
            }
            at += 1;
        }
        self.at = bytes.len();
        Span::new(start, self.at)
    }

    /// The event's end is where the next token begins. The span ends with the last line that belongs to the value:
    /// empty lines after it belong only to a scalar that keeps them (`|+`).
    fn block_scalar(&mut self, start: usize, end: usize) -> Span {
        self.at = start + 1;
        let mut keep = false;
        while let Some(byte @ (b'+' | b'-' | b'0'..=b'9')) = self.byte() {
            keep |= byte == b'+';
            self.at += 1;
        }
        let header = self.at;
        while let Some(b' ' | b'\t') = self.byte() {
            self.at += 1;
        }
        if self.byte() == Some(b'#') {
            self.comment();
        }
        let end = self.offset_of(end).max(self.at);
        self.at = end;
        let mut content = self.source.get(header..end).unwrap_or_default();
        // Spaces after the last line break are the indentation of the next token, unless the text ends here.
        let indentation = content.trim_end_matches(' ');
        if end < self.source.len() && indentation.ends_with(['\n', '\r']) {
            content = indentation;
        }
        let content = if keep { strip_line_break(content) } else { content.trim_end_matches(['\n', '\r']) };
        Span::new(start, header + content.len())
    }

    /// Steps over `*name`.
    pub(crate) fn alias(&mut self, characters: usize) -> Span {
        let start = self.at;
        self.at = self.advance(start, characters);
        Span::new(start, self.at)
    }
}

/// The end of the line `offset` is on, without its line break.
pub(crate) fn line_end(source: &str, offset: usize) -> usize {
    let rest = source.as_bytes().get(offset..).unwrap_or_default();
    memchr::memchr2(b'\n', b'\r', rest).map_or(source.len(), |found| offset + found)
}

/// The start of the line `offset` is on.
pub(crate) fn line_start(source: &str, offset: usize) -> usize {
    let before = source.as_bytes().get(..offset).unwrap_or_default();
    memchr::memrchr2(b'\n', b'\r', before).map_or(0, |found| found + 1)
}

fn strip_line_break(text: &str) -> &str {
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix(['\n', '\r'])).unwrap_or(text)
}

/// Whether what follows `---` or `...` makes it a marker.
pub(crate) fn ends_marker(after: &[u8]) -> bool {
    matches!(after.first(), None | Some(b' ' | b'\t' | b'\n' | b'\r'))
}
