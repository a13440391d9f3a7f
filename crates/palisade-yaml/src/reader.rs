//! Reads all documents of a text.
//!
//! Documents are independent: a mistake in one does not hide the others, because reading goes on at the next `---`,
//! which is where Kubernetes splits a stream before it parses anything.

use crate::{
    Comment, Document, Error, ErrorKind, Limits, Span,
    builder::Builder,
    grammar::{Event, Grammar},
    lines::{LineCounter, line_start},
    scanner::Scanner,
};

/// What was read from a text.
#[derive(Clone, Debug)]
pub struct Parsed<'s> {
    /// The documents without errors, in the order of the source. Empty ones are left out.
    pub documents: Vec<Document<'s>>,
    /// What is wrong, at most one error for each of the other documents.
    pub errors: Vec<Error>,
    source: &'s str,
    comments: Vec<Comment<'s>>,
}

impl<'s> Parsed<'s> {
    /// The text that was read.
    #[must_use]
    pub const fn source(&self) -> &'s str {
        self.source
    }

    /// Every comment of the text (up to an error, and again after the next `---`), in the order of the source.
    #[must_use]
    pub fn comments(&self) -> &[Comment<'s>] {
        &self.comments
    }
}

/// Reads all documents of a text, YAML or JSON.
#[must_use]
pub fn parse<'s>(source: &'s str, limits: &Limits) -> Parsed<'s> {
    let mut reader =
        Reader { source, limits, documents: Vec::new(), comments: Vec::new(), index: 0, start: 0 };
    let mut errors = Vec::new();
    if source.len() > limits.max_bytes {
        let message =
            format!("the text has {} bytes, more than the limit of {}", source.len(), limits.max_bytes);
        errors.push(*Error::new(ErrorKind::TooLarge, Span::at(0), message));
        return Parsed { documents: Vec::new(), errors, source, comments: Vec::new() };
    }
    let mut from = 0;
    while let Err(mut error) = reader.stream(from) {
        error.document = reader.index;
        error.span.start = error.span.start.min(source.len());
        error.span.end = ceil_char_boundary(source, error.span.end);
        reader.index += 1;
        // An error may be noticed only at the marker it should have come before.
        let begin = line_start(source, error.span.start).max(reader.start + 1).max(from + 1);
        errors.push(*error);
        match next_marker(source, begin - 1) {
            Some(marker) if errors.len() < limits.max_errors => from = marker,
            _ => break,
        }
        let kept = reader.comments.partition_point(|comment| comment.start < from);
        reader.comments.truncate(kept);
    }
    reader.finish(errors)
}

fn ceil_char_boundary(source: &str, offset: usize) -> usize {
    (offset..source.len()).find(|&offset| source.is_char_boundary(offset)).unwrap_or(source.len())
}

/// The next `---` that begins a line, whose line break is at `offset` or later.
fn next_marker(source: &str, offset: usize) -> Option<usize> {
    let bytes = source.as_bytes();
    let mut at = offset;
    loop {
        at += memchr::memmem::find(bytes.get(at..)?, b"\n---")? + 1;
        if matches!(bytes.get(at + 3), None | Some(b' ' | b'\t' | b'\n' | b'\r')) {
            return Some(at);
        }
    }
}

struct Reader<'s, 'l> {
    source: &'s str,
    limits: &'l Limits,
    documents: Vec<Document<'s>>,
    comments: Vec<Span>,
    /// How many documents have been read, with or without errors.
    index: usize,
    /// Where the current document begins.
    start: usize,
}

impl<'s> Reader<'s, '_> {
    /// Reads documents until the end, or an error.
    fn stream(&mut self, from: usize) -> Result<(), Box<Error>> {
        self.start = from;
        let mut grammar = Grammar::new(Scanner::new(self.source, from), from);
        let result = self.documents(&mut grammar);
        self.comments.extend(grammar.into_comments());
        result
    }

    fn documents(&mut self, grammar: &mut Grammar<'s>) -> Result<(), Box<Error>> {
        let mut builder = Builder::new(self.source, self.limits);
        loop {
            match grammar.next().map_err(|error| builder.explain(error))? {
                Event::StreamEnd => return Ok(()),
                Event::DocumentStart(found) => {
                    self.start = match found {
                        Some(marker) => marker.start,
                        None => grammar.at()?,
                    };
                }
                Event::Node(node) => builder.node(node)?,
                Event::End(bracket) => builder.end(bracket)?,
                Event::DocumentEnd => {
                    let end = grammar.at()?;
                    self.refuse_control_characters(self.start, end)?;
                    let built = std::mem::replace(&mut builder, Builder::new(self.source, self.limits));
                    if let Some(document) = built.finish(self.index, self.start) {
                        self.documents.push(document);
                        self.index += 1;
                    }
                }
            }
        }
    }

    /// Upstream's reader takes no control characters but tabs and line breaks, wherever they are.
    fn refuse_control_characters(&self, start: usize, end: usize) -> Result<(), Box<Error>> {
        let bytes = self.source.as_bytes().get(start..end).unwrap_or_default();
        let control = |byte: &u8| (*byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r')) || *byte == 0x7f;
        // Whole chunks at a time, which compiles to vector instructions; there is hardly ever one.
        let clean =
            bytes.chunks(64).all(|chunk| !chunk.iter().fold(false, |found, byte| found | control(byte)));
        match if clean { None } else { bytes.iter().position(control) } {
            None => Ok(()),
            Some(found) => {
                let at = start + found;
                let code = bytes.get(found).copied().unwrap_or_default();
                let message = format!("the control character U+{code:04X} cannot be part of YAML");
                Err(Error::new(ErrorKind::Syntax, Span::new(at, at + 1), message))
            }
        }
    }

    /// Fills in what needs the whole text: where documents end, and the lines.
    fn finish(mut self, errors: Vec<Error>) -> Parsed<'s> {
        let source = self.source;
        let mut next = source.len();
        for document in self.documents.iter_mut().rev() {
            let failed = errors.iter().filter(|error| error.document > document.index);
            let limit = failed.map(|error| line_start(source, error.span.start)).min();
            let end = document.span.end;
            document.span.end = limit.map_or(next, |limit| limit.clamp(end, next.max(end)));
            next = document.span.start;
        }
        let mut lines = LineCounter::new(source);
        for document in &mut self.documents {
            document.line = lines.line_of(document.node(document.root).outer_start);
        }
        let mut lines = LineCounter::new(source);
        let comments = self.comments.iter().map(|&span| {
            let before = source.get(line_start(source, span.start)..span.start).unwrap_or_default();
            Comment {
                span,
                text: span.text(source).get(1..).unwrap_or_default().trim(),
                line: lines.line_of(span.start),
                own_line: before.trim_start_matches('\u{feff}').trim().is_empty(),
            }
        });
        Parsed { comments: comments.collect(), documents: self.documents, errors, source }
    }
}
