//! Text to tokens, the way Kubernetes' YAML library does it.
//!
//! Follows the token rules of libyaml, which go-yaml v2 is a translation of: implicit keys on one line, indentation
//! that counts in block style only (a `]` may stand left of its key), tabs as white space wherever they do not
//! indent. A reader that keeps to the letter of YAML 1.2 refuses manifests that `kubectl apply` takes.
//! <https://yaml.org/spec/1.1/>, <https://pkg.go.dev/gopkg.in/yaml.v2>
//!
//! Scalars are read in [`scalars`](self::scalars).

mod scalars;

use std::{borrow::Cow, collections::VecDeque};

use crate::{Error, ErrorKind, Span, document::ScalarStyle};

/// A token and its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Token<'s> {
    pub(crate) kind: TokenKind<'s>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind<'s> {
    StreamEnd,
    /// `%YAML` and the like, the whole line.
    Directive,
    /// `---`
    DocumentStart,
    /// `...`
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    /// `[`
    FlowSequenceStart,
    /// `]`
    FlowSequenceEnd,
    /// `{`
    FlowMappingStart,
    /// `}`
    FlowMappingEnd,
    /// `-`
    BlockEntry,
    /// `,`
    FlowEntry,
    /// `?`, or nothing before an implicit key
    Key,
    /// `:`
    Value,
    /// `*name`
    Alias,
    /// `&name`
    Anchor,
    /// `!name`
    Tag,
    Scalar(Cow<'s, str>, ScalarStyle),
}

/// A place where a key may have begun: only the `:` after it decides.
#[derive(Clone, Copy, Debug, Default)]
struct SimpleKey {
    possible: bool,
    /// Nothing but a key can stand here.
    required: bool,
    token: usize,
    at: usize,
    line_start: usize,
}

#[derive(Debug)]
pub(crate) struct Scanner<'s> {
    source: &'s str,
    bytes: &'s [u8],
    at: usize,
    line_start: usize,
    tokens: VecDeque<Token<'s>>,
    /// How many tokens have been handed out.
    taken: usize,
    /// Whether it is clear what the first waiting token is.
    ready: bool,
    /// The column of the current block collection; `None` outside of any.
    indent: Option<usize>,
    indents: Vec<Option<usize>>,
    simple_key_allowed: bool,
    /// One for each open bracket, and one for block style.
    simple_keys: Vec<SimpleKey>,
    comments: Vec<Span>,
    ended: bool,
}

impl<'s> Scanner<'s> {
    pub(crate) fn new(source: &'s str, from: usize) -> Self {
        Self {
            source,
            bytes: source.as_bytes(),
            at: from,
            line_start: from,
            tokens: VecDeque::new(),
            taken: 0,
            ready: false,
            indent: None,
            indents: Vec::new(),
            simple_key_allowed: true,
            simple_keys: vec![SimpleKey::default()],
            comments: Vec::new(),
            ended: false,
        }
    }

    pub(crate) fn comments(self) -> Vec<Span> {
        self.comments
    }

    /// The next token, which stays.
    pub(crate) fn peek(&mut self) -> Result<&Token<'s>, Box<Error>> {
        self.fill()?;
        self.tokens.front().ok_or_else(|| error(self.at, "the text has ended"))
    }

    /// The next token, which goes.
    pub(crate) fn next(&mut self) -> Result<Token<'s>, Box<Error>> {
        self.fill()?;
        let token = self.tokens.pop_front().ok_or_else(|| error(self.at, "the text has ended"))?;
        self.taken += 1;
        self.ready = false;
        Ok(token)
    }

    /// Reads on until it is clear what the first waiting token is: it may turn out to be a key.
    #[inline]
    fn fill(&mut self) -> Result<(), Box<Error>> {
        if self.ready { Ok(()) } else { self.decide() }
    }

    fn decide(&mut self) -> Result<(), Box<Error>> {
        while !self.ready {
            if !self.tokens.is_empty() {
                self.forget_stale_keys()?;
                let undecided = self.simple_keys.iter().any(|key| key.possible && key.token == self.taken);
                self.ready = !undecided || self.ended;
            }
            if !self.ready {
                self.fetch()?;
            }
        }
        Ok(())
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn column(&self) -> usize {
        self.at - self.line_start
    }

    fn in_flow(&self) -> bool {
        self.simple_keys.len() > 1
    }

    /// Whether white space or the end of the text is `ahead`.
    fn is_blank_or_end(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), None | Some(b' ' | b'\t' | b'\n' | b'\r'))
    }

    fn is_break(&self) -> bool {
        matches!(self.byte(0), Some(b'\n' | b'\r'))
    }

    fn is_blank(&self) -> bool {
        matches!(self.byte(0), Some(b' ' | b'\t'))
    }

    fn skip_line_break(&mut self) {
        self.at += if self.byte(0) == Some(b'\r') && self.byte(1) == Some(b'\n') { 2 } else { 1 };
        self.line_start = self.at;
    }

    /// Whether `---` or `...` begins here.
    fn at_document_marker(&self) -> bool {
        self.column() == 0
            && matches!(self.bytes.get(self.at..self.at + 3), Some(b"---" | b"..."))
            && self.is_blank_or_end(3)
    }

    fn push(&mut self, kind: TokenKind<'s>, start: usize) {
        self.tokens.push_back(Token { kind, span: Span::new(start, self.at) });
    }

    fn fetch(&mut self) -> Result<(), Box<Error>> {
        self.skip_to_next_token();
        self.forget_stale_keys()?;
        let column = self.column();
        self.unroll_indent(Some(column));
        let Some(byte) = self.byte(0) else { return self.stream_end() };
        let start = self.at;
        if column == 0 && byte == b'%' {
            self.leave_blocks()?;
            self.at = crate::lines::line_end(self.source, start);
            self.push(TokenKind::Directive, start);
            return Ok(());
        }
        if self.at_document_marker() {
            self.leave_blocks()?;
            self.at += 3;
            self.push(if byte == b'-' { TokenKind::DocumentStart } else { TokenKind::DocumentEnd }, start);
            let rest =
                self.source.get(self.at..crate::lines::line_end(self.source, self.at)).unwrap_or_default();
            let rest = rest.trim_start_matches([' ', '\t']);
            if byte == b'.' && !rest.is_empty() && !rest.starts_with('#') {
                return Err(error(start, "nothing can follow `...` on its line"));
            }
            return Ok(());
        }
        match byte {
            b'[' => self.flow_start(TokenKind::FlowSequenceStart),
            b'{' => self.flow_start(TokenKind::FlowMappingStart),
            b']' => self.flow_end(TokenKind::FlowSequenceEnd),
            b'}' => self.flow_end(TokenKind::FlowMappingEnd),
            b',' if self.in_flow() => {
                self.remove_simple_key()?;
                self.simple_key_allowed = true;
                self.at += 1;
                self.push(TokenKind::FlowEntry, start);
                Ok(())
            }
            b'-' if self.is_blank_or_end(1) => self.block_entry(),
            b'?' if self.in_flow() || self.is_blank_or_end(1) => self.explicit_key(),
            b':' if self.in_flow() || self.is_blank_or_end(1) => self.value(),
            b'*' => self.name(TokenKind::Alias),
            b'&' => self.name(TokenKind::Anchor),
            b'!' => self.tag(),
            b'|' | b'>' if !self.in_flow() => {
                self.remove_simple_key()?;
                self.simple_key_allowed = true;
                let token = self.block_scalar()?;
                self.tokens.push_back(token);
                Ok(())
            }
            b'\'' | b'"' => {
                self.save_simple_key()?;
                self.simple_key_allowed = false;
                let token = self.quoted_scalar()?;
                self.tokens.push_back(token);
                Ok(())
            }
            b'\t' => Err(error(start, "a tab cannot be used for indentation")),
            b',' | b'%' | b'@' | b'`' | b'|' | b'>' => {
                Err(error(start, "a text cannot begin with this character: put it in quotes"))
            }
            _ => {
                self.save_simple_key()?;
                self.simple_key_allowed = false;
                let token = self.plain_scalar()?;
                self.tokens.push_back(token);
                Ok(())
            }
        }
    }

    fn skip_to_next_token(&mut self) {
        loop {
            match self.byte(0) {
                Some(b' ') => self.at += 1,
                Some(b'\t') if self.in_flow() || !self.simple_key_allowed => self.at += 1,
                Some(b'#') => self.comment(),
                Some(b'\n' | b'\r') => {
                    self.skip_line_break();
                    if !self.in_flow() {
                        self.simple_key_allowed = true;
                    }
                }
                Some(0xef)
                    if self.column() == 0
                        && self.bytes.get(self.at..self.at + 3) == Some(b"\xef\xbb\xbf") =>
                {
                    self.at += 3;
                    self.line_start = self.at;
                }
                _ => return,
            }
        }
    }

    fn comment(&mut self) {
        let end = crate::lines::line_end(self.source, self.at);
        self.comments.push(Span::new(self.at, end));
        self.at = end;
    }

    fn stream_end(&mut self) -> Result<(), Box<Error>> {
        self.leave_blocks()?;
        self.ended = true;
        self.push(TokenKind::StreamEnd, self.at);
        Ok(())
    }

    /// Ends all block collections.
    fn leave_blocks(&mut self) -> Result<(), Box<Error>> {
        self.unroll_indent(None);
        self.remove_simple_key()?;
        self.simple_key_allowed = false;
        Ok(())
    }

    fn flow_start(&mut self, kind: TokenKind<'s>) -> Result<(), Box<Error>> {
        self.save_simple_key()?;
        self.simple_keys.push(SimpleKey::default());
        self.simple_key_allowed = true;
        self.at += 1;
        self.push(kind, self.at - 1);
        Ok(())
    }

    fn flow_end(&mut self, kind: TokenKind<'s>) -> Result<(), Box<Error>> {
        self.remove_simple_key()?;
        if !self.in_flow() {
            return Err(error(self.at, "this bracket closes nothing"));
        }
        self.simple_keys.pop();
        self.simple_key_allowed = false;
        self.at += 1;
        self.push(kind, self.at - 1);
        Ok(())
    }

    fn block_entry(&mut self) -> Result<(), Box<Error>> {
        if self.in_flow() {
            return Err(error(self.at, "`-` cannot begin an item inside brackets: separate items with `,`"));
        }
        if !self.simple_key_allowed {
            return Err(error(self.at, "a list cannot begin here: put it on a line of its own"));
        }
        self.roll_indent(self.column(), None, TokenKind::BlockSequenceStart, self.at);
        self.remove_simple_key()?;
        self.simple_key_allowed = true;
        self.at += 1;
        self.push(TokenKind::BlockEntry, self.at - 1);
        Ok(())
    }

    fn explicit_key(&mut self) -> Result<(), Box<Error>> {
        if !self.in_flow() {
            if !self.simple_key_allowed {
                return Err(error(self.at, "a key cannot begin here"));
            }
            self.roll_indent(self.column(), None, TokenKind::BlockMappingStart, self.at);
        }
        self.remove_simple_key()?;
        self.simple_key_allowed = !self.in_flow();
        self.at += 1;
        self.push(TokenKind::Key, self.at - 1);
        Ok(())
    }

    fn value(&mut self) -> Result<(), Box<Error>> {
        let key = self.simple_keys.last().copied().unwrap_or_default();
        if key.possible {
            let place = key.token - self.taken;
            self.tokens.insert(place, Token { kind: TokenKind::Key, span: Span::at(key.at) });
            let column = key.at - key.line_start;
            self.roll_indent(column, Some(place), TokenKind::BlockMappingStart, key.at);
            self.remove_possible_key();
            self.simple_key_allowed = false;
        } else {
            if !self.in_flow() {
                if !self.simple_key_allowed {
                    let message = "a value cannot begin here: check the indentation, or quote a text that contains `: `";
                    return Err(error(self.at, message));
                }
                self.roll_indent(self.column(), None, TokenKind::BlockMappingStart, self.at);
            }
            self.simple_key_allowed = !self.in_flow();
        }
        self.at += 1;
        self.push(TokenKind::Value, self.at - 1);
        Ok(())
    }

    /// An anchor or alias.
    fn name(&mut self, kind: TokenKind<'s>) -> Result<(), Box<Error>> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.at;
        self.at += 1;
        while matches!(self.byte(0), Some(b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-')) {
            self.at += 1;
        }
        let ends = self.is_blank_or_end(0)
            || matches!(self.byte(0), Some(b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`'));
        if self.at == start + 1 || !ends {
            let message = "the name of an anchor is made of letters, digits, `-` and `_`";
            return Err(Error::new(ErrorKind::Syntax, Span::new(start, self.at), message));
        }
        self.push(kind, start);
        Ok(())
    }

    fn tag(&mut self) -> Result<(), Box<Error>> {
        self.save_simple_key()?;
        self.simple_key_allowed = false;
        let start = self.at;
        while !self.is_blank_or_end(0) {
            self.at += 1;
        }
        let text = self.source.get(start..self.at).unwrap_or_default();
        if !text.starts_with("!<") && text.contains([',', '[', ']', '{', '}']) {
            let message = "a tag is followed by white space";
            return Err(Error::new(ErrorKind::Syntax, Span::new(start, self.at), message));
        }
        self.push(TokenKind::Tag, start);
        Ok(())
    }

    /// Notes that a key may begin here.
    fn save_simple_key(&mut self) -> Result<(), Box<Error>> {
        if !self.simple_key_allowed {
            return Ok(());
        }
        self.remove_simple_key()?;
        let key = SimpleKey {
            possible: true,
            required: !self.in_flow() && self.indent == Some(self.column()),
            token: self.taken + self.tokens.len(),
            at: self.at,
            line_start: self.line_start,
        };
        if let Some(last) = self.simple_keys.last_mut() {
            *last = key;
        }
        Ok(())
    }

    /// What may have been a key is none.
    fn remove_simple_key(&mut self) -> Result<(), Box<Error>> {
        if let Some(key) = self.simple_keys.last()
            && key.possible
            && key.required
        {
            return Err(self.missing_colon(*key));
        }
        self.remove_possible_key();
        Ok(())
    }

    fn remove_possible_key(&mut self) {
        if let Some(key) = self.simple_keys.last_mut() {
            key.possible = false;
        }
    }

    /// A key has to end on its line, and not too far away, so that reading ahead has an end.
    fn forget_stale_keys(&mut self) -> Result<(), Box<Error>> {
        const FAR: usize = 1024;
        let (at, line_start) = (self.at, self.line_start);
        let last = (self.taken + self.tokens.len()).wrapping_sub(1);
        for key in &mut self.simple_keys {
            if !key.possible {
                continue;
            }
            // A long text directly before its colon needs no reading ahead.
            let far = at - key.at > FAR && key.token != last;
            if key.line_start != line_start || far {
                if key.required {
                    let key = *key;
                    return Err(self.missing_colon(key));
                }
                key.possible = false;
            }
        }
        Ok(())
    }

    fn missing_colon(&self, key: SimpleKey) -> Box<Error> {
        let end = crate::lines::line_end(self.source, key.at);
        let text = self.source.get(key.at..end).unwrap_or_default();
        let end = key.at + text.find(" #").unwrap_or(text.len());
        let text = self.source.get(key.at..end).unwrap_or_default();
        let span = Span::new(key.at, key.at + text.trim_end().len());
        Error::new(ErrorKind::Syntax, span, "expected `:` after this key")
    }

    /// Begins a block collection if the column requires it.
    fn roll_indent(&mut self, column: usize, place: Option<usize>, kind: TokenKind<'s>, at: usize) {
        if self.in_flow() || self.indent.is_some_and(|indent| indent >= column) {
            return;
        }
        self.indents.push(self.indent);
        self.indent = Some(column);
        let place = place.unwrap_or(self.tokens.len());
        self.tokens.insert(place, Token { kind, span: Span::at(at) });
    }

    /// Ends the block collections that are indented deeper.
    fn unroll_indent(&mut self, column: Option<usize>) {
        if self.in_flow() {
            return;
        }
        while self.indent > column {
            self.indent = self.indents.pop().flatten();
            self.push(TokenKind::BlockEnd, self.at);
        }
    }
}

fn error(at: usize, message: &str) -> Box<Error> {
    Error::new(ErrorKind::Syntax, Span::new(at, at + 1), message)
}
