//! Tokens to events: documents, collections, scalars, in order.
//!
//! The grammar of libyaml as a machine with a stack of states, so that depth costs no stack of ours. Every event carries
//! where its tokens are; what they mean is the [reader](crate::reader)'s business.

use std::borrow::Cow;

use crate::{
    Error, ErrorKind, Span,
    document::ScalarStyle,
    scanner::{Scanner, Token, TokenKind},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    DocumentStart,
    DocumentContent,
    DocumentEnd,
    BlockNode,
    BlockSequenceEntry {
        first: bool,
    },
    /// A list that is not indented deeper than the key it belongs to.
    IndentlessSequenceEntry,
    BlockMappingKey {
        first: bool,
    },
    BlockMappingValue,
    FlowSequenceEntry {
        first: bool,
    },
    PairKey,
    PairValue,
    PairEnd,
    FlowMappingKey {
        first: bool,
    },
    FlowMappingValue,
    FlowMappingEmptyValue,
    End,
}

/// What comes next in a text.
#[derive(Debug)]
pub(crate) enum Event<'s> {
    StreamEnd,
    /// With its `---`, if there is one.
    DocumentStart(Option<Span>),
    DocumentEnd,
    Node(NodeEvent<'s>),
    /// The end of a list or mapping; the offset after its bracket, if it has one.
    End(Option<usize>),
}

/// A scalar, an alias, or the beginning of a collection.
#[derive(Debug)]
pub(crate) struct NodeEvent<'s> {
    /// The `-`, `:` or `?` before it.
    pub(crate) indicator: Option<usize>,
    pub(crate) anchor: Option<Span>,
    pub(crate) tag: Option<Span>,
    pub(crate) span: Span,
    pub(crate) content: Content<'s>,
}

#[derive(Debug)]
pub(crate) enum Content<'s> {
    Alias,
    Scalar(Cow<'s, str>, ScalarStyle),
    Sequence(Layout),
    Mapping(Layout),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Block,
    /// In brackets or braces.
    Flow,
    /// `[key: value]`: a mapping without braces.
    Pair,
}

#[derive(Debug)]
pub(crate) struct Grammar<'s> {
    scanner: Scanner<'s>,
    state: State,
    states: Vec<State>,
    /// The end of the last token that was consumed: where a value that is not written stands.
    last_end: usize,
    /// The indicator the next node belongs to.
    indicator: Option<usize>,
}

impl<'s> Grammar<'s> {
    pub(crate) fn new(scanner: Scanner<'s>, from: usize) -> Self {
        Self { scanner, state: State::DocumentStart, states: Vec::new(), last_end: from, indicator: None }
    }

    /// Where the next token begins.
    pub(crate) fn at(&mut self) -> Result<usize, Box<Error>> {
        self.scanner.peek().map(|token| token.span.start)
    }

    pub(crate) fn into_comments(self) -> Vec<Span> {
        self.scanner.comments()
    }

    pub(crate) fn next(&mut self) -> Result<Event<'s>, Box<Error>> {
        match self.state {
            State::DocumentStart => self.document_start(),
            State::DocumentContent => self.document_content(),
            State::DocumentEnd => self.document_end(),
            State::BlockNode => self.node(true, false),
            State::BlockSequenceEntry { first } => self.block_sequence_entry(first),
            State::IndentlessSequenceEntry => self.indentless_sequence_entry(),
            State::BlockMappingKey { first } => self.block_mapping_key(first),
            State::BlockMappingValue => self.block_mapping_value(),
            State::FlowSequenceEntry { first } => self.flow_sequence_entry(first),
            State::PairKey => self.pair_key(),
            State::PairValue => self.pair_value(),
            State::PairEnd => {
                self.state = State::FlowSequenceEntry { first: false };
                Ok(Event::End(None))
            }
            State::FlowMappingKey { first } => self.flow_mapping_key(first),
            State::FlowMappingValue => self.flow_mapping_value(),
            State::FlowMappingEmptyValue => Ok(self.empty(State::FlowMappingKey { first: false })),
            State::End => Ok(Event::StreamEnd),
        }
    }

    fn kind(&mut self) -> Result<&TokenKind<'s>, Box<Error>> {
        self.scanner.peek().map(|token| &token.kind)
    }

    fn take(&mut self) -> Result<Token<'s>, Box<Error>> {
        let token = self.scanner.next()?;
        self.last_end = token.span.end;
        Ok(token)
    }

    /// Consumes a `-`, `:` or `?`, which the next node belongs to. The `?` of an implicit key is not there.
    fn take_indicator(&mut self) -> Result<(), Box<Error>> {
        let before = self.last_end;
        let token = self.take()?;
        if token.span.is_empty() {
            self.last_end = before;
        } else {
            self.indicator = Some(token.span.start);
        }
        Ok(())
    }

    fn pop(&mut self) {
        self.state = self.states.pop().unwrap_or(State::End);
    }

    fn expected(&mut self, what: &str) -> Box<Error> {
        let span = match self.scanner.peek() {
            Ok(token) => match token.kind {
                TokenKind::StreamEnd => Span::at(token.span.start),
                _ => Span::new(token.span.start, token.span.end.max(token.span.start + 1)),
            },
            Err(error) => return error,
        };
        Error::new(ErrorKind::Syntax, span, what)
    }

    /// A value that is not written.
    fn empty(&mut self, next: State) -> Event<'s> {
        self.state = next;
        Event::Node(NodeEvent {
            indicator: self.indicator.take(),
            anchor: None,
            tag: None,
            span: Span::at(self.last_end),
            content: Content::Scalar(Cow::Borrowed(""), ScalarStyle::Plain),
        })
    }

    fn document_start(&mut self) -> Result<Event<'s>, Box<Error>> {
        while matches!(self.kind()?, TokenKind::DocumentEnd) {
            self.take()?;
        }
        let mut directives = false;
        while matches!(self.kind()?, TokenKind::Directive) {
            self.take()?;
            directives = true;
        }
        match self.kind()? {
            TokenKind::StreamEnd if !directives => {
                self.state = State::End;
                Ok(Event::StreamEnd)
            }
            TokenKind::DocumentStart => {
                let marker = self.take()?.span;
                self.states.push(State::DocumentEnd);
                self.state = State::DocumentContent;
                Ok(Event::DocumentStart(Some(marker)))
            }
            _ if directives => Err(self.expected("expected `---` after the directives")),
            _ => {
                self.states.push(State::DocumentEnd);
                self.state = State::BlockNode;
                Ok(Event::DocumentStart(None))
            }
        }
    }

    fn document_content(&mut self) -> Result<Event<'s>, Box<Error>> {
        match self.kind()? {
            TokenKind::Directive
            | TokenKind::DocumentStart
            | TokenKind::DocumentEnd
            | TokenKind::StreamEnd => {
                self.pop();
                let next = self.state;
                Ok(self.empty(next))
            }
            _ => self.node(true, false),
        }
    }

    fn document_end(&mut self) -> Result<Event<'s>, Box<Error>> {
        self.state = State::DocumentStart;
        match self.kind()? {
            TokenKind::DocumentEnd | TokenKind::DocumentStart | TokenKind::StreamEnd => {
                Ok(Event::DocumentEnd)
            }
            _ => {
                let message = "expected the end of the document here: check the indentation, or begin a new one with `---`";
                Err(self.expected(message))
            }
        }
    }

    fn node(&mut self, block: bool, indentless: bool) -> Result<Event<'s>, Box<Error>> {
        let indicator = self.indicator.take();
        if matches!(self.kind()?, TokenKind::Alias) {
            let span = self.take()?.span;
            self.pop();
            return Ok(Event::Node(NodeEvent {
                indicator,
                anchor: None,
                tag: None,
                span,
                content: Content::Alias,
            }));
        }
        let (mut anchor, mut tag) = (None, None);
        loop {
            match self.kind()? {
                TokenKind::Anchor if anchor.is_none() => anchor = Some(self.take()?.span),
                TokenKind::Tag if tag.is_none() => tag = Some(self.take()?.span),
                _ => break,
            }
        }
        let start = self.scanner.peek()?.span.start;
        let event = |span, content| Ok(Event::Node(NodeEvent { indicator, anchor, tag, span, content }));
        match self.kind()? {
            TokenKind::BlockEntry if indentless => {
                self.state = State::IndentlessSequenceEntry;
                event(Span::at(start), Content::Sequence(Layout::Block))
            }
            TokenKind::Scalar(..) => {
                self.pop();
                let token = self.take()?;
                match token.kind {
                    TokenKind::Scalar(text, style) => event(token.span, Content::Scalar(text, style)),
                    _ => Err(self.expected("expected a value here")),
                }
            }
            TokenKind::FlowSequenceStart => {
                self.state = State::FlowSequenceEntry { first: true };
                event(Span::at(start), Content::Sequence(Layout::Flow))
            }
            TokenKind::FlowMappingStart => {
                self.state = State::FlowMappingKey { first: true };
                event(Span::at(start), Content::Mapping(Layout::Flow))
            }
            TokenKind::BlockSequenceStart if block => {
                self.state = State::BlockSequenceEntry { first: true };
                event(Span::at(start), Content::Sequence(Layout::Block))
            }
            TokenKind::BlockMappingStart if block => {
                self.state = State::BlockMappingKey { first: true };
                event(Span::at(start), Content::Mapping(Layout::Block))
            }
            _ if anchor.is_some() || tag.is_some() => {
                self.pop();
                event(Span::at(self.last_end), Content::Scalar(Cow::Borrowed(""), ScalarStyle::Plain))
            }
            _ => Err(self.expected("expected a value here")),
        }
    }

    fn block_sequence_entry(&mut self, first: bool) -> Result<Event<'s>, Box<Error>> {
        if first {
            self.take()?;
        }
        match self.kind()? {
            TokenKind::BlockEntry => {
                self.take_indicator()?;
                let next = State::BlockSequenceEntry { first: false };
                if matches!(self.kind()?, TokenKind::BlockEntry | TokenKind::BlockEnd) {
                    return Ok(self.empty(next));
                }
                self.states.push(next);
                self.node(true, false)
            }
            TokenKind::BlockEnd => self.end(None),
            _ => Err(self.expected("expected `-` here: check the indentation of this line")),
        }
    }

    /// Ends a collection with the token that is next.
    fn end(&mut self, bracket: Option<()>) -> Result<Event<'s>, Box<Error>> {
        let before = self.last_end;
        let token = self.take()?;
        self.pop();
        if bracket.is_some() {
            return Ok(Event::End(Some(token.span.end)));
        }
        self.last_end = before;
        Ok(Event::End(None))
    }

    fn indentless_sequence_entry(&mut self) -> Result<Event<'s>, Box<Error>> {
        if !matches!(self.kind()?, TokenKind::BlockEntry) {
            self.pop();
            return Ok(Event::End(None));
        }
        self.take_indicator()?;
        match self.kind()? {
            TokenKind::BlockEntry | TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd => {
                Ok(self.empty(State::IndentlessSequenceEntry))
            }
            _ => {
                self.states.push(State::IndentlessSequenceEntry);
                self.node(true, false)
            }
        }
    }

    fn block_mapping_key(&mut self, first: bool) -> Result<Event<'s>, Box<Error>> {
        if first {
            self.take()?;
        }
        match self.kind()? {
            TokenKind::Key => {
                self.take_indicator()?;
                match self.kind()? {
                    TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd => {
                        Ok(self.empty(State::BlockMappingValue))
                    }
                    _ => {
                        self.states.push(State::BlockMappingValue);
                        self.node(true, true)
                    }
                }
            }
            TokenKind::BlockEnd => self.end(None),
            _ => Err(self.expected("expected a key here: check the indentation of this line")),
        }
    }

    fn block_mapping_value(&mut self) -> Result<Event<'s>, Box<Error>> {
        let next = State::BlockMappingKey { first: false };
        if !matches!(self.kind()?, TokenKind::Value) {
            return Ok(self.empty(next));
        }
        self.take_indicator()?;
        match self.kind()? {
            TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd => Ok(self.empty(next)),
            _ => {
                self.states.push(next);
                self.node(true, true)
            }
        }
    }

    fn flow_sequence_entry(&mut self, first: bool) -> Result<Event<'s>, Box<Error>> {
        if first {
            self.take()?;
        } else if !matches!(self.kind()?, TokenKind::FlowSequenceEnd) {
            if !matches!(self.kind()?, TokenKind::FlowEntry) {
                return Err(self.expected("expected `,` or `]` here"));
            }
            self.take()?;
        }
        let token = self.scanner.peek()?;
        match token.kind {
            TokenKind::FlowSequenceEnd => self.end(Some(())),
            TokenKind::Key => {
                let span = Span::at(token.span.start);
                self.take_indicator()?;
                self.state = State::PairKey;
                Ok(Event::Node(NodeEvent {
                    indicator: None,
                    anchor: None,
                    tag: None,
                    span,
                    content: Content::Mapping(Layout::Pair),
                }))
            }
            _ => {
                self.states.push(State::FlowSequenceEntry { first: false });
                self.node(false, false)
            }
        }
    }

    fn pair_key(&mut self) -> Result<Event<'s>, Box<Error>> {
        match self.kind()? {
            TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowSequenceEnd => {
                Ok(self.empty(State::PairValue))
            }
            _ => {
                self.states.push(State::PairValue);
                self.node(false, false)
            }
        }
    }

    fn pair_value(&mut self) -> Result<Event<'s>, Box<Error>> {
        if !matches!(self.kind()?, TokenKind::Value) {
            return Ok(self.empty(State::PairEnd));
        }
        self.take_indicator()?;
        match self.kind()? {
            TokenKind::FlowEntry | TokenKind::FlowSequenceEnd => Ok(self.empty(State::PairEnd)),
            _ => {
                self.states.push(State::PairEnd);
                self.node(false, false)
            }
        }
    }

    fn flow_mapping_key(&mut self, first: bool) -> Result<Event<'s>, Box<Error>> {
        if first {
            self.take()?;
        } else if !matches!(self.kind()?, TokenKind::FlowMappingEnd) {
            if !matches!(self.kind()?, TokenKind::FlowEntry) {
                return Err(self.expected("expected `,` or `}` here"));
            }
            self.take()?;
        }
        match self.kind()? {
            TokenKind::FlowMappingEnd => self.end(Some(())),
            TokenKind::Key => {
                self.take_indicator()?;
                match self.kind()? {
                    TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowMappingEnd => {
                        Ok(self.empty(State::FlowMappingValue))
                    }
                    _ => {
                        self.states.push(State::FlowMappingValue);
                        self.node(false, false)
                    }
                }
            }
            _ => {
                self.states.push(State::FlowMappingEmptyValue);
                self.node(false, false)
            }
        }
    }

    fn flow_mapping_value(&mut self) -> Result<Event<'s>, Box<Error>> {
        let next = State::FlowMappingKey { first: false };
        if !matches!(self.kind()?, TokenKind::Value) {
            return Ok(self.empty(next));
        }
        self.take_indicator()?;
        match self.kind()? {
            TokenKind::FlowEntry | TokenKind::FlowMappingEnd => Ok(self.empty(next)),
            _ => {
                self.states.push(next);
                self.node(false, false)
            }
        }
    }
}
