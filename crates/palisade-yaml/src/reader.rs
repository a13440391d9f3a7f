//! Events to documents: the only code that knows the event parser.
//!
//! Implements YAML 1.2.2 as far as saphyr-parser does, with the limits and refusals of [`ErrorKind`]. Documents are
//! independent: a mistake in one does not hide the others, because reading goes on at the next `---`, which is where
//! Kubernetes splits a stream before it parses anything.

use std::{borrow::Cow, collections::HashMap};

use saphyr_parser::{Event, Parser, ScanError};

use crate::{
    DuplicateKey, Error, ErrorKind, Limits, Span,
    document::{Collection, Comment, Document, Kind, Node, NodeId, Scalar, ScalarStyle, Tag},
    locate::{Cursor, ends_marker},
    message, scalar,
};

/// What was read from a text.
#[derive(Clone, Debug)]
pub struct Parsed<'s> {
    /// The documents without errors, in the order of the source. Empty ones are left out.
    pub documents: Vec<Document<'s>>,
    /// What is wrong, at most one error for each of the other documents.
    pub errors: Vec<Error>,
    pub(crate) source: &'s str,
    pub(crate) comments: Vec<Comment<'s>>,
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
    let mut documents = Vec::new();
    let mut errors = Vec::new();
    if source.len() > limits.max_bytes {
        let message =
            format!("the text has {} bytes, more than the limit of {}", source.len(), limits.max_bytes);
        errors.push(Error::new(ErrorKind::TooLarge, Span::at(0), message));
        return Parsed { documents, errors, source, comments: Vec::new() };
    }
    let mut reader = Reader {
        source,
        limits,
        cursor: Cursor::new(source),
        nodes: Vec::new(),
        children: Vec::new(),
        pending: Vec::new(),
        stack: Vec::new(),
        anchors: HashMap::new(),
        duplicates: Vec::new(),
        aliases: 0,
        marker: None,
        start: 0,
        index: 0,
    };
    let mut from = 0;
    loop {
        reader.cursor.restart(from);
        let Err(mut error) = reader.stream(from, &mut documents) else { break };
        error.document = reader.index;
        reader.index += 1;
        // An error may be noticed only at the marker it should have come before.
        let begin = crate::locate::line_start(source, error.span.start).max(reader.start + 1).max(from + 1);
        errors.push(error);
        match next_marker(source, begin - 1) {
            Some(marker) if errors.len() < limits.max_errors => from = marker,
            _ => break,
        }
    }
    let comments = reader.cursor.into_comments();
    finish(source, documents, errors, &comments)
}

/// The next `---` that begins a line, whose line break is at `offset` or later.
fn next_marker(source: &str, offset: usize) -> Option<usize> {
    let bytes = source.as_bytes();
    let mut at = offset;
    loop {
        at += memchr::memmem::find(bytes.get(at..)?, b"\n---")? + 1;
        if ends_marker(bytes.get(at + 3..)?) {
            return Some(at);
        }
    }
}

/// The text of the last line before `offset` that has any.
fn last_line_before(source: &str, offset: usize) -> Option<Span> {
    let end = source.get(..offset)?.trim_end().len();
    let start = crate::locate::line_start(source, end);
    let indent = source.get(start..end)?.len() - source.get(start..end)?.trim_start().len();
    (start + indent < end).then_some(Span::new(start + indent, end))
}

/// Fills in what needs the whole text: where documents end, and the lines.
fn finish<'s>(
    source: &'s str,
    mut documents: Vec<Document<'s>>,
    errors: Vec<Error>,
    comments: &[Span],
) -> Parsed<'s> {
    let mut next = source.len();
    for document in documents.iter_mut().rev() {
        let failed = errors.iter().filter(|error| error.document > document.index);
        let limit = failed.map(|error| crate::locate::line_start(source, error.span.start)).min();
        document.span.end =
            limit.map_or(next, |limit| limit.clamp(document.span.end, next.max(document.span.end)));
        next = document.span.start;
    }
    let mut lines = Lines { source, at: 0, line: 1 };
    for document in &mut documents {
        document.line = lines.line_of(document.node(document.root).outer_start);
    }
    let mut lines = Lines { source, at: 0, line: 1 };
    let comments = comments
        .iter()
        .map(|&span| {
            let before =
                source.get(crate::locate::line_start(source, span.start)..span.start).unwrap_or_default();
            Comment {
                span,
                text: span.text(source).get(1..).unwrap_or_default().trim(),
                line: lines.line_of(span.start),
                own_line: before.trim_start_matches('\u{feff}').trim().is_empty(),
            }
        })
        .collect();
    Parsed { documents, errors, source, comments }
}

/// Counts lines for offsets that never go back.
struct Lines<'s> {
    source: &'s str,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    fn line_of(&mut self, offset: usize) -> usize {
        let bytes = self.source.as_bytes();
        for found in memchr::memchr2_iter(b'\n', b'\r', bytes.get(self.at..offset).unwrap_or_default()) {
            let at = self.at + found;
            let crlf = bytes.get(at) == Some(&b'\r') && bytes.get(at + 1) == Some(&b'\n');
            self.line += usize::from(!crlf);
        }
        self.at = self.at.max(offset);
        self.line
    }
}

/// A collection that is not closed yet.
struct Frame {
    node: NodeId,
    /// The event parser's number for its anchor, 0 for none.
    anchor: usize,
    /// Where its children begin in `Reader::pending`.
    first: usize,
    shape: Shape,
    /// Nodes, with all aliases written out.
    weight: u64,
    /// Levels below, with all aliases written out.
    height: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    BlockSequence,
    FlowSequence,
    BlockMapping,
    FlowMapping,
    /// `[key: value]`: a mapping without braces.
    FlowPair,
}

impl Shape {
    fn is_mapping(self) -> bool {
        matches!(self, Self::BlockMapping | Self::FlowMapping | Self::FlowPair)
    }
}

#[derive(Clone, Copy)]
struct Anchor {
    node: NodeId,
    weight: u64,
    height: usize,
}

struct Reader<'s, 'l> {
    source: &'s str,
    limits: &'l Limits,
    cursor: Cursor<'s>,
    nodes: Vec<Node<'s>>,
    children: Vec<NodeId>,
    pending: Vec<NodeId>,
    stack: Vec<Frame>,
    anchors: HashMap<usize, Anchor>,
    duplicates: Vec<DuplicateKey>,
    aliases: usize,
    marker: Option<Span>,
    start: usize,
    index: usize,
}

/// Where a node stands.
struct Place {
    indicator: usize,
    /// After the indicator, where a value that is not written would stand.
    empty: usize,
}

impl<'s> Reader<'s, '_> {
    fn stream(&mut self, from: usize, documents: &mut Vec<Document<'s>>) -> Result<(), Error> {
        let mut parser = Parser::new_from_str(self.source.get(from..).unwrap_or_default());
        self.begin(None);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| self.syntax(from, &error))?;
            let characters = (span.start.index(), span.end.index());
            match event {
                Event::Nothing | Event::StreamStart => {}
                Event::StreamEnd => self.cursor.between_documents(),
                Event::DocumentStart(explicit) => {
                    self.cursor.between_documents();
                    let marker = if explicit { self.cursor.eat_marker() } else { None };
                    self.begin(marker);
                }
                Event::DocumentEnd => documents.extend(self.document()),
                Event::Alias(anchor) => self.alias(anchor, characters)?,
                Event::Scalar(text, style, anchor, tag) => {
                    self.scalar(text, style, anchor, tag.as_deref(), characters)?;
                }
                Event::SequenceStart(anchor, tag) => self.open(false, anchor, tag.as_deref(), characters)?,
                Event::MappingStart(anchor, tag) => self.open(true, anchor, tag.as_deref(), characters)?,
                Event::SequenceEnd | Event::MappingEnd => self.close()?,
            }
        }
        Ok(())
    }

    fn begin(&mut self, marker: Option<Span>) {
        self.nodes.clear();
        self.children.clear();
        self.pending.clear();
        self.stack.clear();
        self.anchors.clear();
        self.duplicates.clear();
        self.aliases = 0;
        self.start = marker.map_or(self.cursor.at(), |marker| marker.start);
        self.marker = marker;
    }

    /// The document that ends here; `None` if there is nothing in it.
    fn document(&mut self) -> Option<Document<'s>> {
        let root = self.pending.pop()?;
        let node = self.nodes.get(root.index())?;
        let nothing = node.outer_span().is_empty() && matches!(node.kind, Kind::Scalar(_));
        if nothing {
            return None;
        }
        let index = self.index;
        self.index += 1;
        Some(Document {
            source: self.source,
            span: Span::new(self.start, node.span.end),
            nodes: std::mem::take(&mut self.nodes),
            children: std::mem::take(&mut self.children),
            root,
            index,
            marker: self.marker,
            line: 0,
            duplicates: std::mem::take(&mut self.duplicates),
            has_aliases: self.aliases > 0,
        })
    }

    fn syntax(&self, from: usize, error: &ScanError) -> Error {
        let rest = self.source.get(from..).unwrap_or_default();
        let at = error.marker().index();
        let start = rest.char_indices().nth(at).map_or(self.source.len(), |(width, _)| from + width);
        let rest = self.source.get(start..).unwrap_or_default();
        let (kind, message) = message::syntax(error.info());
        if kind == ErrorKind::UnknownAnchor {
            let ends = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']' | '{' | '}');
            let alias = rest.split(ends).next().unwrap_or_default();
            return Error::new(kind, Span::new(start, start + alias.len()), message::unknown_anchor(alias));
        }
        let width = rest.chars().next().map_or(0, char::len_utf8);
        let mut span = Span::new(start, start + width);
        if message::is_about_the_line_before(error.info()) {
            span = last_line_before(self.source, start).unwrap_or(span);
        }
        let open = self.stack.iter().rev().find(|frame| !matches!(frame.shape, Shape::FlowPair));
        let open = open.filter(|frame| matches!(frame.shape, Shape::FlowSequence | Shape::FlowMapping));
        let bracket = open.and_then(|frame| self.nodes.get(frame.node.index()));
        Error {
            related: bracket.map(|node| {
                let at = node.span.start;
                (Span::new(at, at + 1), "the bracket that is open here".to_owned())
            }),
            ..Error::new(kind, span, message)
        }
    }

    /// Steps over the indicators before a node.
    fn place(&mut self) -> Result<Place, Error> {
        let Some(frame) = self.stack.last() else {
            let empty = self.cursor.at();
            self.cursor.trivia();
            return Ok(Place { indicator: self.cursor.at(), empty });
        };
        let children = self.pending.len() - frame.first;
        let before = self.cursor.at();
        match frame.shape {
            Shape::BlockSequence => {
                self.cursor.trivia();
                let indicator = self.cursor.at();
                self.expect(b'-')?;
                Ok(self.after(indicator))
            }
            Shape::FlowSequence => {
                self.cursor.trivia();
                if children > 0 {
                    self.expect(b',')?;
                    self.cursor.trivia();
                }
                let indicator = self.cursor.at();
                Ok(Place { indicator, empty: indicator })
            }
            Shape::BlockMapping | Shape::FlowMapping | Shape::FlowPair if children.is_multiple_of(2) => {
                self.cursor.trivia();
                if frame.shape == Shape::FlowMapping && children > 0 && self.cursor.eat(b',') {
                    self.cursor.trivia();
                }
                let indicator = self.cursor.at();
                self.cursor.eat_question_mark();
                Ok(self.after(indicator))
            }
            Shape::BlockMapping | Shape::FlowMapping | Shape::FlowPair => {
                self.cursor.trivia();
                let indicator = self.cursor.at();
                if self.cursor.eat(b':') {
                    Ok(self.after(indicator))
                } else {
                    Ok(Place { indicator: before, empty: before })
                }
            }
        }
    }

    fn after(&mut self, indicator: usize) -> Place {
        let empty = self.cursor.at();
        self.cursor.trivia();
        Place { indicator: if empty > indicator { indicator } else { self.cursor.at() }, empty }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Error> {
        if self.cursor.eat(byte) {
            return Ok(());
        }
        let message = format!("expected `{}` here", char::from(byte));
        Err(Error::new(ErrorKind::Syntax, Span::at(self.cursor.at()), message))
    }

    fn add(&mut self, node: Node<'s>, anchor: usize, weight: u64, height: usize) -> Result<NodeId, Error> {
        if self.nodes.len() >= self.limits.max_nodes {
            let message = format!("the document has more than {} values", self.limits.max_nodes);
            return Err(Error::new(ErrorKind::TooLarge, node.span, message));
        }
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        if anchor != 0 {
            self.anchors.insert(anchor, Anchor { node: id, weight, height });
        }
        self.nodes.push(node);
        Ok(id)
    }

    /// Counts a finished node towards its parent.
    fn count(&mut self, id: NodeId, weight: u64, height: usize) -> Result<(), Error> {
        self.pending.push(id);
        let mut total = weight;
        if let Some(parent) = self.stack.last_mut() {
            parent.weight = parent.weight.saturating_add(weight);
            parent.height = parent.height.max(height + 1);
            total = parent.weight;
        }
        if self.aliases > 0 && total > self.limits.max_expanded_nodes {
            let span = self.nodes.get(id.index()).map_or(Span::at(self.cursor.at()), |node| node.span);
            let message =
                format!("written out, the aliases make more than {} values", self.limits.max_expanded_nodes);
            return Err(Error::new(ErrorKind::AliasBomb, span, message));
        }
        Ok(())
    }

    fn too_deep(&self, span: Span) -> Error {
        let message = format!("nested deeper than {} levels", self.limits.max_depth);
        Error::new(ErrorKind::TooDeep, span, message)
    }

    fn alias(&mut self, anchor: usize, (start, end): (usize, usize)) -> Result<(), Error> {
        let place = self.place()?;
        self.cursor.sync(start);
        let span = self.cursor.alias(end.saturating_sub(start));
        // The event parser keeps anchors from document to document; YAML does not.
        let Some(&target) = self.anchors.get(&anchor) else {
            return Err(Error::new(
                ErrorKind::UnknownAnchor,
                span,
                message::unknown_anchor(span.text(self.source)),
            ));
        };
        if self.stack.iter().any(|frame| frame.node == target.node) {
            let message = format!("`{}` is inside the value it stands for", span.text(self.source));
            return Err(Error::new(ErrorKind::CyclicAlias, span, message));
        }
        if self.stack.len() + target.height > self.limits.max_depth {
            return Err(self.too_deep(span));
        }
        self.aliases += 1;
        let node = Node {
            span,
            outer_start: span.start,
            indicator: place.indicator,
            anchored: false,
            kind: Kind::Alias(target.node),
        };
        let id = self.add(node, 0, 0, 0)?;
        self.count(id, target.weight, target.height)
    }

    fn scalar(
        &mut self,
        text: Cow<'s, str>,
        style: saphyr_parser::ScalarStyle,
        anchor: usize,
        tag: Option<&saphyr_parser::Tag>,
        (start, end): (usize, usize),
    ) -> Result<(), Error> {
        let style = match style {
            saphyr_parser::ScalarStyle::Plain => ScalarStyle::Plain,
            saphyr_parser::ScalarStyle::SingleQuoted => ScalarStyle::SingleQuoted,
            saphyr_parser::ScalarStyle::DoubleQuoted => ScalarStyle::DoubleQuoted,
            saphyr_parser::ScalarStyle::Literal => ScalarStyle::Literal,
            saphyr_parser::ScalarStyle::Folded => ScalarStyle::Folded,
        };
        let place = self.place()?;
        let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        let written = !(text.is_empty() && style == ScalarStyle::Plain);
        let properties = anchor != 0 || tag.is_some();
        let outer_start = if written || properties { self.cursor.at() } else { place.empty };
        if properties {
            self.cursor.sync(start);
            self.cursor.properties(anchor != 0, tag.is_some());
        }
        let span = if written {
            if properties {
                self.cursor.trivia();
            } else if !block {
                self.cursor.sync(start);
            }
            self.cursor.scalar(style, outer_start, end.saturating_sub(start), end)
        } else {
            Span::at(if properties { self.cursor.at() } else { place.empty })
        };
        let tag_value = self.tag(tag, Span::new(outer_start, span.end))?;
        let text = self.borrow(text, span, style);
        let mut scalar = Scalar { text, style, tag: tag_value };
        if scalar.tag != Tag::None {
            self.check_tag(&mut scalar, Span::new(outer_start, span.end))?;
        }
        let node = Node {
            span,
            outer_start,
            indicator: place.indicator.min(outer_start),
            anchored: anchor != 0,
            kind: Kind::Scalar(scalar),
        };
        let id = self.add(node, anchor, 1, 0)?;
        self.count(id, 1, 0)
    }

    /// Prefers the source's own bytes to the event's copy of them.
    fn borrow(&self, text: Cow<'s, str>, span: Span, style: ScalarStyle) -> Cow<'s, str> {
        let inner = match style {
            ScalarStyle::Plain => span,
            _ => Span::new(span.start + 1, span.end.saturating_sub(1)),
        };
        match self.source.get(inner.start..inner.end) {
            Some(verbatim) if verbatim == text => Cow::Borrowed(verbatim),
            _ => text,
        }
    }

    fn tag(&self, tag: Option<&saphyr_parser::Tag>, span: Span) -> Result<Tag, Error> {
        let Some(tag) = tag else { return Ok(Tag::None) };
        let full = [tag.handle.as_str(), tag.suffix.as_str()].concat();
        if full == "!" {
            return Ok(Tag::NonSpecific);
        }
        match full.strip_prefix("tag:yaml.org,2002:") {
            Some("str") => Ok(Tag::Str),
            Some("int") => Ok(Tag::Int),
            Some("bool") => Ok(Tag::Bool),
            Some("float") => Ok(Tag::Float),
            Some("null") => Ok(Tag::Null),
            Some("binary") => Ok(Tag::Binary),
            Some("timestamp") => Ok(Tag::Timestamp),
            Some("merge") => Ok(Tag::Merge),
            Some("seq") => Ok(Tag::Seq),
            Some("map") => Ok(Tag::Map),
            _ => {
                let written = span.text(self.source);
                let name = written.split_whitespace().find(|word| word.starts_with('!')).unwrap_or(&full);
                let message = format!("the tag `{name}` is not known to Kubernetes");
                Err(Error::new(ErrorKind::InvalidTag, span, message))
            }
        }
    }

    fn check_tag(&self, scalar: &mut Scalar<'s>, span: Span) -> Result<(), Error> {
        if scalar.tag == Tag::Binary {
            let Some(bytes) = scalar::base64(&scalar.text) else {
                return Err(Error::new(ErrorKind::InvalidTag, span, "the value of `!!binary` is not base64"));
            };
            scalar.text = Cow::Owned(String::from_utf8_lossy(&bytes).into_owned());
            return Ok(());
        }
        if scalar::resolve(&scalar.text, scalar.style, scalar.tag).is_some() {
            return Ok(());
        }
        let message = format!("the value does not fit its tag: `{}`", span.text(self.source));
        Err(Error::new(ErrorKind::InvalidTag, span, message))
    }

    fn open(
        &mut self,
        mapping: bool,
        anchor: usize,
        tag: Option<&saphyr_parser::Tag>,
        (start, end): (usize, usize),
    ) -> Result<(), Error> {
        let place = self.place()?;
        let outer_start = self.cursor.at();
        if anchor != 0 || tag.is_some() {
            self.cursor.properties(anchor != 0, tag.is_some());
            self.cursor.trivia();
        }
        let at = self.cursor.at();
        let in_flow = self.stack.last().is_some_and(|frame| {
            matches!(frame.shape, Shape::FlowSequence | Shape::FlowMapping | Shape::FlowPair)
        });
        let shape = match (mapping, self.cursor.byte()) {
            // A pair's event is an empty span before the key, which may itself begin with a brace.
            (true, Some(b'{')) if end > start => {
                self.cursor.eat(b'{');
                Shape::FlowMapping
            }
            (true, _) if in_flow => Shape::FlowPair,
            // A block mapping whose first key is a flow collection.
            (true, _) => Shape::BlockMapping,
            (false, Some(b'[')) => {
                self.cursor.eat(b'[');
                Shape::FlowSequence
            }
            (false, _) => Shape::BlockSequence,
        };
        if self.stack.len() >= self.limits.max_depth {
            return Err(self.too_deep(Span::at(at)));
        }
        match self.tag(tag, Span::new(outer_start, at))? {
            Tag::None | Tag::NonSpecific => {}
            Tag::Map if mapping => {}
            Tag::Seq if !mapping => {}
            _ => {
                let message = format!("a {} cannot have this tag", if mapping { "mapping" } else { "list" });
                return Err(Error::new(ErrorKind::InvalidTag, Span::new(outer_start, at), message));
            }
        }
        let collection = Collection { first: 0, len: 0, flow: false, overlapping: false };
        let node = Node {
            span: Span::at(at),
            outer_start,
            indicator: place.indicator.min(outer_start),
            anchored: anchor != 0,
            kind: if mapping { Kind::Mapping(collection) } else { Kind::Sequence(collection) },
        };
        let id = self.add(node, anchor, 1, 0)?;
        self.stack.push(Frame { node: id, anchor, first: self.pending.len(), shape, weight: 1, height: 0 });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        let Some(frame) = self.stack.last() else {
            return Err(Error::new(ErrorKind::Syntax, Span::at(self.cursor.at()), "nothing to close here"));
        };
        let shape = frame.shape;
        if let Shape::FlowSequence | Shape::FlowMapping = shape {
            self.cursor.trivia();
            if self.cursor.eat(b',') {
                self.cursor.trivia();
            }
            self.expect(if shape == Shape::FlowSequence { b']' } else { b'}' })?;
        }
        let Some(frame) = self.stack.pop() else { return Ok(()) };
        let first = self.children.len();
        self.children.extend(self.pending.drain(frame.first..));
        let mut overlapping = false;
        if shape.is_mapping() {
            overlapping = self.check_keys(first)?;
        }
        let end = match shape {
            Shape::FlowSequence | Shape::FlowMapping => self.cursor.at(),
            _ => self.children.get(first..).and_then(<[NodeId]>::last).map_or(self.cursor.at(), |&last| {
                self.nodes.get(last.index()).map_or(self.cursor.at(), |node| node.span.end)
            }),
        };
        let collection = Collection {
            first: u32::try_from(first).unwrap_or(u32::MAX),
            len: u32::try_from(self.children.len() - first).unwrap_or(u32::MAX),
            flow: !matches!(shape, Shape::BlockMapping | Shape::BlockSequence),
            overlapping,
        };
        if let Some(node) = self.nodes.get_mut(frame.node.index()) {
            node.span.end = end.max(node.span.start);
            node.kind =
                if shape.is_mapping() { Kind::Mapping(collection) } else { Kind::Sequence(collection) };
        }
        if frame.anchor != 0 {
            let anchor = Anchor { node: frame.node, weight: frame.weight, height: frame.height };
            self.anchors.insert(frame.anchor, anchor);
        }
        self.count(frame.node, frame.weight, frame.height)
    }

    /// Refuses keys that JSON cannot have, notes those that occur twice; says whether entries can override others.
    fn check_keys(&mut self, first: usize) -> Result<bool, Error> {
        let pairs = self.children.get(first..).unwrap_or_default().as_chunks::<2>().0;
        let node = |id: NodeId| self.nodes.get(id.index());
        let mut keys: Vec<(Cow<'_, str>, Span)> = Vec::with_capacity(pairs.len());
        let mut merges = false;
        for &[key, value] in pairs {
            let Some(written) = node(key) else { continue };
            let target = match written.kind {
                Kind::Alias(target) => node(target),
                _ => Some(written),
            };
            let text = match target.map(|target| &target.kind) {
                Some(Kind::Scalar(scalar)) if scalar.is_merge_key() => {
                    merges = true;
                    self.check_merge(value)?;
                    continue;
                }
                Some(Kind::Scalar(scalar)) => scalar.key(),
                _ => None,
            };
            let Some(text) = text else {
                let message = match target.map(|target| &target.kind) {
                    Some(Kind::Mapping(_)) => "a mapping cannot be a key",
                    Some(Kind::Sequence(_)) => "a list cannot be a key",
                    _ => "null cannot be a key",
                };
                return Err(Error::new(ErrorKind::InvalidKey, written.span, message));
            };
            keys.push((text, written.span));
        }
        let duplicates = duplicates(&keys);
        let overlapping = merges || !duplicates.is_empty();
        self.duplicates.extend(duplicates);
        Ok(overlapping)
    }

    fn check_merge(&self, value: NodeId) -> Result<(), Error> {
        let node = |id: NodeId| self.nodes.get(id.index());
        let is_mapping = |id: NodeId| match node(id).map(|node| &node.kind) {
            Some(Kind::Mapping(_)) => true,
            Some(&Kind::Alias(target)) => {
                matches!(node(target).map(|node| &node.kind), Some(Kind::Mapping(_)))
            }
            _ => false,
        };
        let wrong = match node(value).map(|node| &node.kind) {
            Some(Kind::Sequence(items)) => {
                let first = items.first as usize;
                let items = self.children.get(first..first + items.len as usize).unwrap_or_default();
                items.iter().copied().find(|&item| !is_mapping(item))
            }
            _ => (!is_mapping(value)).then_some(value),
        };
        let Some(wrong) = wrong.and_then(node) else { return Ok(()) };
        let message = "`<<` takes a mapping or a list of mappings";
        Err(Error::new(ErrorKind::InvalidMerge, wrong.span, message))
    }
}

/// Most mappings are small: comparing all pairs beats hashing.
fn duplicates(keys: &[(Cow<'_, str>, Span)]) -> Vec<DuplicateKey> {
    const SMALL: usize = 12;
    let mut found = Vec::new();
    let mut note = |key: &str, first: Span, second: Span| {
        found.push(DuplicateKey { key: key.to_owned(), first, second });
    };
    if keys.len() <= SMALL {
        for (at, (key, second)) in keys.iter().enumerate() {
            if let Some((_, first)) = keys.iter().take(at).find(|(earlier, _)| earlier == key) {
                note(key, *first, *second);
            }
        }
    } else {
        let mut seen = HashMap::with_capacity(keys.len());
        for (key, span) in keys {
            if let Some(&first) = seen.get(key.as_ref()) {
                note(key, first, *span);
            } else {
                seen.insert(key.as_ref(), *span);
            }
        }
    }
    found
}
