//! Changes to text edits: which bytes go, what comes in their place.
//!
//! Works on the nodes as they are written. Everything is computed from the original text, so edits never depend on
//! each other; where two insert at the same place, the inner one comes first.

use std::collections::HashSet;

use super::{
    EditError, TextEdit, Value,
    change::{Action, Change, OwnedStep, Planned},
    style::{Style, column},
    write::{Block, Key, Parent, Tree},
};
use crate::{
    Document, NodeRef, Span,
    document::{Kind, NodeId},
    lines::{line_end, line_start},
};

/// What to do about values that are used in several places.
#[derive(Clone, Copy)]
pub(super) enum Pass<'a> {
    /// Leave aliases alone.
    Direct,
    /// Edit below aliases, unless their anchor (one of these) is edited itself: then both may edit the same.
    Shared(&'a HashSet<NodeId>),
    /// Edit below aliases, and write out all whose anchor is one of these.
    Expanded(&'a HashSet<NodeId>),
}

pub(super) struct Planner<'d> {
    pub(super) document: &'d Document<'d>,
    pub(super) source: &'d str,
    pub(super) style: &'d Style,
    pass: Pass<'d>,
    pub(super) edits: Vec<TextEdit>,
}

/// Where a value stands.
#[derive(Clone, Copy)]
struct Site {
    parent: Parent,
    /// Inside brackets.
    flow: bool,
}

/// An entry of a mapping or an item of a list, as bytes.
#[derive(Clone, Copy)]
pub(super) struct Child {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) dropped: bool,
}

static NOTHING: Change = Change { action: None, children: Vec::new(), appends: Vec::new() };

impl<'d> Planner<'d> {
    pub(super) fn new(document: &'d Document<'_>, style: &'d Style, pass: Pass<'d>) -> Self {
        Self { document, source: document.source(), style, pass, edits: Vec::new() }
    }

    /// The edits, in the order of the source.
    pub(super) fn run(mut self, change: &Change) -> Result<Vec<TextEdit>, EditError> {
        let root = self.document.root();
        let flow = matches!(root.node().kind, Kind::Mapping(root) | Kind::Sequence(root) if root.flow);
        self.value(root, change, Site { parent: Parent::Root, flow })?;
        self.edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
        self.remove_first_line_break();
        self.keep_last_line_break();
        Ok(self.edits)
    }

    pub(super) fn push(&mut self, start: usize, end: usize, text: impl Into<String>) {
        self.edits.push(TextEdit { span: Span::new(start, end), text: text.into() });
    }

    fn visits_everything(&self) -> bool {
        matches!(self.pass, Pass::Expanded(_))
    }

    fn is_dirty(&self, target: NodeId) -> bool {
        match self.pass {
            Pass::Direct => false,
            Pass::Shared(dirty) | Pass::Expanded(dirty) => dirty.contains(&target),
        }
    }

    fn value(&mut self, node: NodeRef<'d>, change: &Change, site: Site) -> Result<(), EditError> {
        if let Kind::Alias(target) = node.node().kind {
            self.alias(node, target, change, site);
            return Ok(());
        }
        if let Some(Action::Set(new)) = &change.action {
            if !Value::of(node).means(new) {
                self.replace(node, &new.clone().into(), site);
            }
            return Ok(());
        }
        if change.is_empty() && !self.visits_everything() {
            return Ok(());
        }
        match node.node().kind {
            Kind::Mapping(_) => self.mapping(node, change, site),
            Kind::Sequence(_) => self.sequence(node, change, site),
            Kind::Scalar(_) | Kind::Alias(_) => {
                if !change.is_empty()
                    && let Planned::Is(new) = change.apply(None)
                {
                    self.replace(node, &new.into(), site);
                }
                Ok(())
            }
        }
    }

    fn alias(&mut self, node: NodeRef<'d>, target: NodeId, change: &Change, site: Site) {
        let dirty = self.is_dirty(target);
        match self.pass {
            Pass::Direct => return,
            Pass::Shared(_) if dirty || change.is_empty() => return,
            Pass::Expanded(_) if !dirty && change.is_empty() => return,
            Pass::Shared(_) | Pass::Expanded(_) => {}
        }
        let old = Value::of(node);
        let Planned::Is(new) = change.apply(Some(old.clone())) else { return };
        if !dirty && new.means(&old) {
            return;
        }
        let tree = match (&old, &new) {
            // Only additions and replacements: the rest can go on coming from the anchor.
            (Value::Map(old), Value::Map(new))
                if !dirty
                    && change.action.is_none()
                    && old.iter().all(|(key, _)| new.iter().any(|(other, _)| other == key)) =>
            {
                let alias = Tree::Alias(node.span().text(self.source).to_owned());
                let own = new.iter().filter(|(key, _)| change.child(key).is_some());
                let own = own.map(|(key, value)| (Key::Text(key.clone()), value.clone().into()));
                Tree::Map(std::iter::once((Key::Merge, alias)).chain(own).collect())
            }
            _ => new.into(),
        };
        self.replace(node, &tree, site);
    }

    fn mapping(&mut self, node: NodeRef<'d>, change: &Change, site: Site) -> Result<(), EditError> {
        let Kind::Mapping(collection) = node.node().kind else { return Ok(()) };
        let pairs = node.written_pairs();
        let is_merge = |key: NodeRef<'_>| self.document.is_merge_key(key.id());
        let mut children: Vec<Child> = pairs.iter().map(|(key, value)| child(*key, *value)).collect();
        let drop_key = |key: &str, children: &mut Vec<Child>| {
            for ((own, _), child) in pairs.iter().zip(children.iter_mut()) {
                child.dropped |= !is_merge(*own) && self.document.key(own.id()) == key;
            }
        };
        let merged = |key: &str| {
            let merges = pairs.iter().filter(|(own, _)| is_merge(*own));
            merges.flat_map(|(_, value)| value.merge_sources()).any(|source| source.entry(key).is_some())
        };
        let mut inserts: Vec<(String, Value)> = Vec::new();
        let mut gone: Vec<&str> = Vec::new();
        let mut write_out_merges = self.visits_everything()
            && pairs.iter().any(|(key, value)| {
                is_merge(*key) && value.merge_sources().iter().any(|source| self.is_dirty(source.id()))
            });
        for (step, below) in &change.children {
            let OwnedStep::Key(key) = step else { continue };
            let entry = node.entry(key);
            let old = entry.as_ref().map(|entry| Value::of(entry.value));
            match (below.apply(old.clone()), entry) {
                (Planned::Is(new), None) => inserts.push((key.clone(), new)),
                (Planned::Is(new), Some(entry)) if entry.merge.is_some() => {
                    if !old.is_some_and(|old| old.means(&new)) {
                        drop_key(key, &mut children);
                        inserts.push((key.clone(), new));
                    }
                }
                (Planned::Is(_), Some(_)) | (Planned::Gone { .. }, None) => {}
                (Planned::Gone { .. }, Some(_)) => {
                    drop_key(key, &mut children);
                    gone.push(key);
                    write_out_merges |= merged(key);
                }
            }
        }
        if write_out_merges {
            for ((key, _), child) in pairs.iter().zip(children.iter_mut()) {
                child.dropped |= is_merge(*key);
            }
            for entry in node.entries().into_iter().filter(|entry| entry.merge.is_some()) {
                let known =
                    inserts.iter().any(|(key, _)| *key == entry.key) || gone.contains(&entry.key.as_ref());
                if !known {
                    drop_key(&entry.key, &mut children);
                    inserts.push((entry.key.into_owned(), Value::of(entry.value)));
                }
            }
        }
        for ((key, _), child) in pairs.iter().zip(&children) {
            let touched = child.dropped || change.child(&self.document.key(key.id())).is_some();
            if touched && self.source.as_bytes().get(key.node().indicator) == Some(&b'?') && !is_merge(*key) {
                let explicit = key.node().indicator < key.node().outer_start;
                if explicit {
                    return Err(EditError::ExplicitKey { key: self.document.key(key.id()).into_owned() });
                }
            }
        }
        let changes_here = !inserts.is_empty() || children.iter().any(|child| child.dropped);
        if changes_here && children.iter().all(|child| child.dropped) {
            self.replace(node, &Value::Map(inserts).into(), site);
            return Ok(());
        }
        let braces = self.source.as_bytes().get(node.span().start) == Some(&b'{');
        if changes_here && collection.flow && !braces {
            // `[key: value]` cannot hold a second entry.
            if let Planned::Is(new) = change.apply(Some(Value::of(node))) {
                self.replace(node, &new.into(), site);
            }
            return Ok(());
        }
        for ((key, value), child) in pairs.iter().zip(&children) {
            if child.dropped || is_merge(*key) {
                continue;
            }
            let below = change.child(&self.document.key(key.id()));
            if below.is_none() && !self.visits_everything() {
                continue;
            }
            // Of a key that occurs twice, or that a `<<` brings as well, only one place counts.
            let effective = below.filter(|_| {
                node.entry(&self.document.key(key.id())).is_some_and(|entry| entry.value.id() == value.id())
            });
            let parent = Parent::Key(column(self.source, key.node().outer_start));
            self.value(*value, effective.unwrap_or(&NOTHING), Site { parent, flow: collection.flow })?;
        }
        if !changes_here {
            return Ok(());
        }
        let inserts: Vec<(Key, Tree)> =
            inserts.into_iter().map(|(key, value)| (Key::Text(key), value.into())).collect();
        if collection.flow {
            self.remove_in_flow(&children);
            let indent = self.flow_indent(&children);
            let entries = inserts.iter().map(|(key, value)| {
                let value = self.style.laid_out(value, &indent);
                format!("{}{}{value}", self.style.key(key, true), self.style.colon())
            });
            let entries: Vec<String> = entries.collect();
            self.insert_in_flow(&children, &entries);
        } else {
            let column = pairs.first().map_or(0, |(key, _)| column(self.source, key.node().indicator));
            self.remove_in_block(&children, column);
            let mut lines = Vec::new();
            for (key, value) in &inserts {
                self.style.block_entry(&mut lines, key, value, column);
            }
            self.insert_in_block(&children, column, &lines);
        }
        Ok(())
    }

    fn sequence(&mut self, node: NodeRef<'d>, change: &Change, site: Site) -> Result<(), EditError> {
        let Kind::Sequence(collection) = node.node().kind else { return Ok(()) };
        let items: Vec<NodeRef<'d>> = node.items().collect();
        let mut children: Vec<Child> = items.iter().map(|item| child(*item, *item)).collect();
        for (index, (item, child)) in items.iter().zip(children.iter_mut()).enumerate() {
            if let Some(below) = change.item(index)
                && let Planned::Gone { .. } = below.apply(Some(Value::of(*item)))
            {
                child.dropped = true;
            }
        }
        let inserts = change.new_items(items.len());
        let changes_here = !inserts.is_empty() || children.iter().any(|child| child.dropped);
        if changes_here && children.iter().all(|child| child.dropped) {
            self.replace(node, &Value::List(inserts).into(), site);
            return Ok(());
        }
        for (index, (item, child)) in items.iter().zip(&children).enumerate() {
            if child.dropped {
                continue;
            }
            let below = change.item(index).unwrap_or(&NOTHING);
            let parent = if collection.flow { site.parent } else { self.dash(*item) };
            self.value(*item, below, Site { parent, flow: collection.flow })?;
        }
        if !changes_here {
            return Ok(());
        }
        let inserts: Vec<Tree> = inserts.into_iter().map(Into::into).collect();
        if collection.flow {
            self.remove_in_flow(&children);
            let indent = self.flow_indent(&children);
            let entries: Vec<String> =
                inserts.iter().map(|item| self.style.laid_out(item, &indent)).collect();
            self.insert_in_flow(&children, &entries);
        } else {
            let dash = items.first().map_or(0, |item| column(self.source, item.node().indicator));
            self.remove_in_block(&children, dash);
            let gap = items.iter().map(|item| self.gap(*item)).find(|gap| !gap.is_empty()).unwrap_or(" ");
            let mut lines = Vec::new();
            for item in &inserts {
                self.style.block_item(&mut lines, item, dash, gap);
            }
            self.insert_in_block(&children, dash, &lines);
        }
        Ok(())
    }

    /// The spaces between a dash and its item; nothing if the item is not on the same line.
    fn gap(&self, item: NodeRef<'_>) -> &'d str {
        let node = item.node();
        let gap = self.source.get(node.indicator + 1..node.outer_start).unwrap_or_default();
        if gap.bytes().all(|byte| byte == b' ') { gap } else { "" }
    }

    fn dash(&self, item: NodeRef<'_>) -> Parent {
        let gap = self.gap(item).len();
        Parent::Dash(column(self.source, item.node().indicator), if gap == 0 { 2 } else { 1 + gap })
    }

    /// Puts a value in the place of another.
    fn replace(&mut self, node: NodeRef<'_>, tree: &Tree, site: Site) {
        let old = node.node();
        let properties = self.source.get(old.outer_start..old.span.start).unwrap_or_default();
        let anchor = properties.split_whitespace().find(|word| old.anchored && word.starts_with('&'));
        let written = !old.outer_span().is_empty();
        if site.flow {
            let indent = self.indentation(old.indicator);
            let text = self.style.laid_out(tree, &indent);
            let text = anchor.map_or_else(|| text.clone(), |anchor| format!("{anchor} {text}"));
            let colon = self.source.as_bytes().get(old.indicator) == Some(&b':');
            let text = match (written, colon) {
                (true, _) => text,
                (false, true) => format!(" {text}"),
                (false, false) => format!(": {text}"),
            };
            self.push(old.outer_start, old.span.end, text);
            return;
        }
        let (was_flow, was_flow_list) = match old.kind {
            Kind::Mapping(old) => (old.flow && old.len > 0, false),
            Kind::Sequence(old) => (old.flow && old.len > 0, old.flow && old.len > 0),
            _ => (false, false),
        };
        let stays_flow = was_flow && matches!(tree, Tree::Map(_) | Tree::List(_));
        let mut block = if stays_flow {
            Block { head: self.style.flow(tree), ..Block::default() }
        } else {
            self.style.block(tree, site.parent, was_flow_list)
        };
        if let Some(anchor) = anchor {
            block = block.with_anchor(anchor);
        }
        let lines = self.joined(&block.lines);
        if site.parent == Parent::Root {
            let own_line = self.source.get(line_start(self.source, old.outer_start)..old.outer_start);
            let own_line =
                own_line.is_none_or(|before| before.trim_start_matches('\u{feff}').trim().is_empty());
            let text = if own_line || block.compact.is_none() {
                block.head
            } else {
                format!("{}{}", self.style.eol, block.head)
            };
            self.push(old.outer_start, old.span.end, text);
            self.push_lines(old.span.end, lines);
            return;
        }
        let after_indicator = old.indicator + 1;
        let between = self.source.get(after_indicator..old.outer_start).unwrap_or_default();
        if between.contains(['\n', '\r']) {
            if !block.head.is_empty() {
                self.push(after_indicator, after_indicator, format!(" {}", block.head));
            }
            let start = line_end(self.source, after_indicator);
            self.push(start, line_end(self.source, old.span.end), lines);
        } else {
            if !written {
                let text = if block.head.is_empty() { String::new() } else { format!(" {}", block.head) };
                self.push(after_indicator, after_indicator, text);
            } else if block.head.is_empty() {
                self.push(after_indicator, old.span.end, "");
            } else {
                self.push(old.outer_start, old.span.end, block.head);
            }
            self.push_lines(old.span.end, lines);
        }
    }
}

fn child(first: NodeRef<'_>, last: NodeRef<'_>) -> Child {
    Child { start: first.node().indicator, end: last.node().span.end, dropped: false }
}
