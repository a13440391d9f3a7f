//! Events to one document, with the limits and refusals of [`ErrorKind`].

use std::{borrow::Cow, collections::HashMap};

use crate::{
    DuplicateKey, Error, ErrorKind, Limits, Span,
    document::{Collection, Document, Kind, Node, NodeId, Scalar, ScalarStyle, Tag},
    grammar::{Content, Layout, NodeEvent},
    scalar,
};

/// A collection that is not closed yet.
struct Frame<'s> {
    node: NodeId,
    anchor: Option<&'s str>,
    mapping: bool,
    layout: Layout,
    /// Where its children begin in `Builder::pending`.
    first: usize,
    /// Nodes, with all aliases written out.
    weight: u64,
    /// Levels below, with all aliases written out.
    height: usize,
}

#[derive(Clone, Copy)]
struct Anchor {
    node: NodeId,
    weight: u64,
    height: usize,
}

pub(crate) struct Builder<'s, 'l> {
    source: &'s str,
    limits: &'l Limits,
    nodes: Vec<Node<'s>>,
    children: Vec<NodeId>,
    /// Finished nodes whose collection is still open.
    pending: Vec<NodeId>,
    open: Vec<Frame<'s>>,
    anchors: HashMap<&'s str, Anchor>,
    duplicates: Vec<DuplicateKey>,
    has_aliases: bool,
}

impl<'s, 'l> Builder<'s, 'l> {
    pub(crate) fn new(source: &'s str, limits: &'l Limits) -> Self {
        Self {
            source,
            limits,
            // Most manifests have a value every dozen bytes.
            nodes: Vec::with_capacity((source.len() / 12).min(256)),
            children: Vec::with_capacity((source.len() / 12).min(256)),
            pending: Vec::new(),
            open: Vec::new(),
            anchors: HashMap::new(),
            duplicates: Vec::new(),
            has_aliases: false,
        }
    }

    /// The document; `None` if there is nothing in it.
    pub(crate) fn finish(mut self, index: usize, start: usize) -> Option<Document<'s>> {
        let root = self.pending.pop()?;
        let node = self.nodes.get(root.index())?;
        if node.outer_span().is_empty() && matches!(node.kind, Kind::Scalar(_)) {
            return None;
        }
        Some(Document {
            source: self.source,
            span: Span::new(start, node.span.end),
            nodes: self.nodes,
            children: self.children,
            root,
            index,
            line: 0,
            duplicates: self.duplicates,
            has_aliases: self.has_aliases,
        })
    }

    /// Adds to a syntax error what is known about the place.
    pub(crate) fn explain(&self, mut error: Box<Error>) -> Box<Error> {
        let bracket = self.open.iter().rfind(|frame| frame.layout != Layout::Pair);
        let bracket = bracket.filter(|frame| frame.layout == Layout::Flow);
        if let Some(node) = bracket.and_then(|frame| self.nodes.get(frame.node.index())) {
            let at = node.span.start;
            error.related = Some((Span::new(at, at + 1), "the bracket that is open here".to_owned()));
        }
        error
    }

    pub(crate) fn node(&mut self, event: NodeEvent<'s>) -> Result<(), Box<Error>> {
        let NodeEvent { indicator, anchor, tag, span, content } = event;
        let outer_start =
            [anchor, tag].into_iter().flatten().map(|span| span.start).fold(span.start, usize::min);
        let anchor = anchor.map(|span| self.text(Span::new(span.start + 1, span.end)));
        let outer = Span::new(outer_start, span.end.max(tag.map_or(0, |tag| tag.end)));
        let node = |kind| Node {
            span,
            outer_start,
            indicator: indicator.unwrap_or(outer_start),
            anchored: anchor.is_some(),
            kind,
        };
        let tag = tag.map_or(Ok(Tag::None), |tag| self.tag(tag))?;
        match content {
            Content::Alias => {
                let target = self.target(span)?;
                self.has_aliases = true;
                let id = self.add(node(Kind::Alias(target.node)))?;
                self.count(id, target.weight, target.height)
            }
            Content::Scalar(text, style) => {
                let scalar = self.scalar(text, style, tag, outer)?;
                let id = self.add(node(Kind::Scalar(scalar)))?;
                if let Some(name) = anchor {
                    self.anchors.insert(name, Anchor { node: id, weight: 1, height: 0 });
                }
                self.count(id, 1, 0)
            }
            Content::Sequence(layout) | Content::Mapping(layout) => {
                let mapping = matches!(content, Content::Mapping(_));
                if self.open.len() >= self.limits.max_depth {
                    return Err(self.too_deep(span));
                }
                let fits = match tag {
                    Tag::None | Tag::NonSpecific => true,
                    Tag::Map => mapping,
                    Tag::Seq => !mapping,
                    _ => false,
                };
                if !fits {
                    let message =
                        format!("a {} cannot have this tag", if mapping { "mapping" } else { "list" });
                    return Err(Error::new(ErrorKind::InvalidTag, outer, message));
                }
                let collection =
                    Collection { first: 0, len: 0, flow: layout != Layout::Block, overlapping: false };
                let kind = if mapping { Kind::Mapping(collection) } else { Kind::Sequence(collection) };
                let id = self.add(node(kind))?;
                if let Some(name) = anchor {
                    self.anchors.insert(name, Anchor { node: id, weight: 1, height: 0 });
                }
                let first = self.pending.len();
                self.open.push(Frame { node: id, anchor, mapping, layout, first, weight: 1, height: 0 });
                Ok(())
            }
        }
    }

    fn text(&self, span: Span) -> &'s str {
        self.source.get(span.range()).unwrap_or_default()
    }

    fn add(&mut self, node: Node<'s>) -> Result<NodeId, Box<Error>> {
        if self.nodes.len() >= self.limits.max_nodes {
            let message = format!("the document has more than {} values", self.limits.max_nodes);
            return Err(Error::new(ErrorKind::TooLarge, node.span, message));
        }
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        Ok(id)
    }

    /// Counts a finished node towards its collection.
    fn count(&mut self, id: NodeId, weight: u64, height: usize) -> Result<(), Box<Error>> {
        self.pending.push(id);
        let mut total = weight;
        if let Some(parent) = self.open.last_mut() {
            parent.weight = parent.weight.saturating_add(weight);
            parent.height = parent.height.max(height + 1);
            total = parent.weight;
        }
        if self.has_aliases && total > self.limits.max_expanded_nodes {
            let span = self.nodes.get(id.index()).map_or(Span::at(0), |node| node.span);
            let message =
                format!("written out, the aliases make more than {} values", self.limits.max_expanded_nodes);
            return Err(Error::new(ErrorKind::AliasBomb, span, message));
        }
        Ok(())
    }

    fn too_deep(&self, span: Span) -> Box<Error> {
        let message = format!("nested deeper than {} levels", self.limits.max_depth);
        Error::new(ErrorKind::TooDeep, span, message)
    }

    /// What an alias stands for.
    fn target(&self, span: Span) -> Result<Anchor, Box<Error>> {
        let alias = self.text(span);
        let name = self.text(Span::new(span.start + 1, span.end));
        let Some(&target) = self.anchors.get(name) else {
            let message = format!("`{alias}` has no anchor `&{name}` before it in this document");
            return Err(Error::new(ErrorKind::UnknownAnchor, span, message));
        };
        if self.open.iter().any(|frame| frame.node == target.node) {
            let message = format!("`{alias}` is inside the value it stands for");
            return Err(Error::new(ErrorKind::CyclicAlias, span, message));
        }
        if self.open.len() + target.height > self.limits.max_depth {
            return Err(self.too_deep(span));
        }
        Ok(target)
    }

    fn tag(&self, span: Span) -> Result<Tag, Box<Error>> {
        let written = self.text(span);
        let verbatim = written.strip_prefix("!<").and_then(|rest| rest.strip_suffix('>'));
        let name = verbatim
            .map_or_else(|| written.strip_prefix("!!"), |full| full.strip_prefix("tag:yaml.org,2002:"));
        match name {
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
            _ if written == "!" => Ok(Tag::NonSpecific),
            _ => {
                let message = format!("the tag `{written}` is not known to Kubernetes");
                Err(Error::new(ErrorKind::InvalidTag, span, message))
            }
        }
    }

    fn scalar(
        &self,
        text: Cow<'s, str>,
        style: ScalarStyle,
        tag: Tag,
        span: Span,
    ) -> Result<Scalar<'s>, Box<Error>> {
        if tag == Tag::Binary {
            let Some(bytes) = scalar::base64(&text) else {
                return Err(Error::new(ErrorKind::InvalidTag, span, "the value of `!!binary` is not base64"));
            };
            let text = Cow::Owned(String::from_utf8_lossy(&bytes).into_owned());
            return Ok(Scalar { text, style, tag });
        }
        if tag != Tag::None && scalar::resolve(&text, style, tag).is_none() {
            let message = format!("the value does not fit its tag: `{}`", self.text(span));
            return Err(Error::new(ErrorKind::InvalidTag, span, message));
        }
        Ok(Scalar { text, style, tag })
    }

    pub(crate) fn end(&mut self, bracket: Option<usize>) -> Result<(), Box<Error>> {
        let Some(frame) = self.open.pop() else { return Ok(()) };
        let first = self.children.len();
        self.children.extend(self.pending.drain(frame.first..));
        let overlapping = frame.mapping && self.check_keys(first)?;
        let last = self.children.get(first..).and_then(<[NodeId]>::last);
        let last_end = last.and_then(|last| self.nodes.get(last.index())).map(|node| node.span.end);
        let collection = Collection {
            first: u32::try_from(first).unwrap_or(u32::MAX),
            len: u32::try_from(self.children.len() - first).unwrap_or(u32::MAX),
            flow: frame.layout != Layout::Block,
            overlapping,
        };
        if let Some(node) = self.nodes.get_mut(frame.node.index()) {
            node.span.end = bracket.or(last_end).unwrap_or(node.span.start).max(node.span.start);
            node.kind = if frame.mapping { Kind::Mapping(collection) } else { Kind::Sequence(collection) };
        }
        if let Some(name) = frame.anchor
            && let Some(anchor) = self.anchors.get_mut(name)
            // The name may have been given to another node inside.
            && anchor.node == frame.node
        {
            anchor.weight = frame.weight;
            anchor.height = frame.height;
        }
        self.count(frame.node, frame.weight, frame.height)
    }

    /// Refuses keys that JSON cannot have, notes those that occur twice; returns whether entries can override others.
    fn check_keys(&mut self, first: usize) -> Result<bool, Box<Error>> {
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
            let text = match (&written.kind, target.map(|target| &target.kind)) {
                (Kind::Scalar(scalar), _) if scalar.is_merge_key() => {
                    merges = true;
                    self.check_merge(value)?;
                    continue;
                }
                (_, Some(Kind::Scalar(scalar))) => scalar.key(),
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

    fn check_merge(&self, value: NodeId) -> Result<(), Box<Error>> {
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
