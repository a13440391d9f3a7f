//! Changes to text edits: which bytes go, what comes in their place.
//!
//! Works on the nodes as they are written. Everything is computed from the original text, so edits never depend on
//! each other; where two insert at the same place, the inner one comes first.

use std::collections::HashSet;

use super::{
    EditError, TextEdit, Value,
    change::{Action, Change, Outcome, OwnedStep},
    style::{Style, column},
    write::{Block, Key, Parent, Tree},
};
use crate::{
    Document, NodeRef, ScalarStyle, Span,
    document::{Kind, Node, NodeId},
    locate::{line_end, line_start},
};

/// What to do about values that are used in several places.
#[derive(Clone, Copy)]
pub(super) enum Pass<'a> {
    /// Leave aliases alone.
    Direct,
    /// Edit below aliases, unless their anchor (one of these) is edited itself: then both may want the same.
    Shared(&'a HashSet<NodeId>),
    /// Edit below aliases, and write out all whose anchor is one of these.
    Expanded(&'a HashSet<NodeId>),
}

pub(super) struct Planner<'d> {
    document: &'d Document<'d>,
    source: &'d str,
    style: &'d Style,
    pass: Pass<'d>,
    edits: Vec<TextEdit>,
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
struct Child {
    start: usize,
    end: usize,
    dropped: bool,
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

    /// The first lines of a text have no line break before them, so the one after has to go.
    fn remove_first_line_break(&mut self) {
        let mut end = self.first_byte();
        let mut last = None;
        for (at, edit) in self.edits.iter().enumerate() {
            if !edit.text.is_empty() || edit.span.start != end {
                break;
            }
            end = edit.span.end;
            last = Some(at);
        }
        let next = self.next_line(end);
        // What is removed from within the first line is none of our business.
        let lines = end > self.first_byte() && line_end(self.source, end) == end;
        if lines
            && let Some(next) = next
            && let Some(edit) = last.and_then(|at| self.edits.get_mut(at))
        {
            edit.span.end = next;
        }
    }

    /// When everything after a block scalar goes, the line break at its end has to stay: it is a part of the value.
    fn keep_last_line_break(&mut self) {
        let mut start = self.source.len();
        let mut first = None;
        for (at, edit) in self.edits.iter().enumerate().rev() {
            if !edit.text.is_empty() || edit.span.end != start {
                break;
            }
            start = edit.span.start;
            first = Some(at);
        }
        let ends_scalar = self.block_scalars().any(|node| line_end(self.source, node.span.end) == start);
        if ends_scalar
            && let Some(next) = self.next_line(start)
            && let Some(edit) = first.and_then(|at| self.edits.get_mut(at))
        {
            edit.span.start = next;
        }
    }

    fn block_scalars(&self) -> impl Iterator<Item = &'d Node<'d>> {
        self.document.nodes.iter().filter(|node| {
            matches!(&node.kind, Kind::Scalar(scalar)
                if matches!(scalar.style, ScalarStyle::Literal | ScalarStyle::Folded))
        })
    }

    fn push(&mut self, start: usize, end: usize, text: impl Into<String>) {
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
                    && let Outcome::Is(new) = change.apply(None)
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
        let Outcome::Is(new) = change.apply(Some(old.clone())) else { return };
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
                (Outcome::Is(new), None) => inserts.push((key.clone(), new)),
                (Outcome::Gone { .. }, None) => {}
                (Outcome::Is(new), Some(entry)) if entry.merge.is_some() => {
                    if !old.is_some_and(|old| old.means(&new)) {
                        drop_key(key, &mut children);
                        inserts.push((key.clone(), new));
                    }
                }
                (Outcome::Is(_), Some(_)) => {}
                (Outcome::Gone { .. }, Some(_)) => {
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
            // `[key: value]` has no room for a second entry.
            if let Outcome::Is(new) = change.apply(Some(Value::of(node))) {
                self.replace(node, &new.into(), site);
            }
            return Ok(());
        }
        for (at, ((key, value), child)) in pairs.iter().zip(&children).enumerate() {
            if child.dropped || is_merge(*key) {
                continue;
            }
            let text = self.document.key(key.id());
            let overridden = pairs
                .iter()
                .skip(at + 1)
                .any(|(later, _)| !is_merge(*later) && self.document.key(later.id()) == text);
            let below = change
                .child(&text)
                .filter(|_| !overridden && node.entry(&text).is_some_and(|entry| entry.merge.is_none()));
            let parent = Parent::Key(column(self.source, key.node().outer_start));
            self.value(*value, below.unwrap_or(&NOTHING), Site { parent, flow: collection.flow })?;
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
            let entries = entries.collect();
            self.insert_in_flow(&children, entries);
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
                && let Outcome::Gone { .. } = below.apply(Some(Value::of(*item)))
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
            let entries = inserts.iter().map(|item| self.style.laid_out(item, &indent)).collect();
            self.insert_in_flow(&children, entries);
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
        if !between.contains(['\n', '\r']) {
            if !written {
                let text = if block.head.is_empty() { String::new() } else { format!(" {}", block.head) };
                self.push(after_indicator, after_indicator, text);
            } else if block.head.is_empty() {
                self.push(after_indicator, old.span.end, "");
            } else {
                self.push(old.outer_start, old.span.end, block.head);
            }
            self.push_lines(old.span.end, lines);
        } else {
            if !block.head.is_empty() {
                self.push(after_indicator, after_indicator, format!(" {}", block.head));
            }
            let start = line_end(self.source, after_indicator);
            self.push(start, line_end(self.source, old.span.end), lines);
        }
    }

    fn joined(&self, lines: &[String]) -> String {
        lines.iter().map(|line| [self.style.eol, line].concat()).collect()
    }

    fn push_lines(&mut self, after: usize, lines: String) {
        if !lines.is_empty() {
            let at = line_end(self.source, after);
            self.push(at, at, lines);
        }
    }

    /// The white space the line of `offset` begins with.
    fn indentation(&self, offset: usize) -> String {
        let line = self.source.get(line_start(self.source, offset)..).unwrap_or_default();
        line.chars().take_while(|&character| character == ' ' || character == '\t').collect()
    }

    fn insert_in_block(&mut self, children: &[Child], column: usize, lines: &[String]) {
        if let Some(last) = children.iter().rfind(|child| !child.dropped)
            && !lines.is_empty()
        {
            let at = self.end_with_comments(last.end, column);
            let lines = self.joined(lines);
            self.push(at, at, lines);
        }
    }

    /// The end of the last line of an entry; comments below it that are indented deeper belong to it.
    fn end_with_comments(&self, end: usize, column: usize) -> usize {
        let mut end = line_end(self.source, end);
        let mut at = end;
        while let Some(next) = self.next_line(at) {
            at = line_end(self.source, next);
            let line = self.source.get(next..at).unwrap_or_default();
            let text = line.trim_start_matches([' ', '\t']);
            if text.is_empty() {
                continue;
            }
            if !text.starts_with('#') || line.len() - text.len() <= column {
                break;
            }
            end = at;
        }
        end
    }

    /// The start of the line after the one that ends at `end`.
    fn next_line(&self, end: usize) -> Option<usize> {
        match self.source.as_bytes().get(end..)? {
            [b'\r', b'\n', ..] => Some(end + 2),
            [b'\r' | b'\n', ..] => Some(end + 1),
            _ => None,
        }
    }

    /// Removes entries that have lines of their own, except that the first may share its line with a dash.
    fn remove_in_block(&mut self, children: &[Child], column: usize) {
        let mut rest = children;
        if let Some(first) = children.first().filter(|first| first.dropped && self.shares_line(first.start))
            && let Some(kept) = children.iter().position(|child| !child.dropped)
            && let (Some(last), Some(next)) = (children.get(kept.wrapping_sub(1)), children.get(kept))
        {
            let end = line_end(self.source, last.end);
            let between = self.source.get(end..next.start).unwrap_or_default();
            if between.trim().is_empty() {
                self.push(first.start, next.start, "");
            } else {
                // A comment stands before the next entry: it moves below the dash instead of beside it.
                let before = self.source.get(..first.start).unwrap_or_default();
                self.push(before.trim_end_matches(' ').len(), end, "");
            }
            rest = children.get(kept..).unwrap_or_default();
        }
        for child in rest.iter().filter(|child| child.dropped) {
            self.remove_lines(*child, column);
        }
    }

    fn shares_line(&self, offset: usize) -> bool {
        let before = self.source.get(line_start(self.source, offset)..offset).unwrap_or_default();
        !before.trim_start_matches('\u{feff}').trim().is_empty()
    }

    fn remove_lines(&mut self, child: Child, column: usize) {
        let start = line_start(self.source, child.start);
        let mut end = self.end_with_comments(child.end, column);
        if self.follows_kept_lines(start) {
            // Empty lines would become a part of the `|+` text before.
            while let Some(next) = self.next_line(end) {
                let line = line_end(self.source, next);
                if line == self.source.len()
                    || !self.source.get(next..line).unwrap_or_default().trim().is_empty()
                {
                    break;
                }
                end = line;
            }
        }
        // The line break before goes rather than the one after: something may be inserted at the end of the line.
        let before = self.source.get(..start).unwrap_or_default();
        let without =
            before.strip_suffix('\n').map_or(before, |rest| rest.strip_suffix('\r').unwrap_or(rest));
        let start = if without.len() < start { without.len() } else { start.max(self.first_byte()) };
        self.push(start, end, "");
    }

    /// Where the text begins: after a byte order mark.
    fn first_byte(&self) -> usize {
        self.source.len() - self.source.trim_start_matches('\u{feff}').len()
    }

    /// Whether the line before `offset` is the end of a block scalar that keeps the empty lines after it.
    fn follows_kept_lines(&self, offset: usize) -> bool {
        self.block_scalars().any(|node| {
            let text = node.span.text(self.source);
            let header = text.get(..text.find(['\n', '\r']).unwrap_or(text.len())).unwrap_or_default();
            header.contains('+') && self.next_line(line_end(self.source, node.span.end)) == Some(offset)
        })
    }

    fn remove_in_flow(&mut self, children: &[Child]) {
        let mut at = 0;
        while let Some(first) = children.get(at) {
            if !first.dropped {
                at += 1;
                continue;
            }
            let run = children.iter().skip(at).take_while(|child| child.dropped).count();
            let last = children.get(at + run - 1).unwrap_or(first);
            match (children.get(at + run), at.checked_sub(1).and_then(|before| children.get(before))) {
                (Some(next), _) => self.push(first.start, next.start, ""),
                (None, Some(before)) => self.push(before.end, last.end, ""),
                (None, None) => {}
            }
            at += run;
        }
    }

    /// The indentation of the lines that entries of a flow collection stand on.
    fn flow_indent(&self, children: &[Child]) -> String {
        let last = children.iter().rfind(|child| !child.dropped);
        last.map_or_else(String::new, |last| self.indentation(last.start))
    }

    fn insert_in_flow(&mut self, children: &[Child], entries: Vec<String>) {
        let Some(last) = children.iter().rfind(|child| !child.dropped) else { return };
        if entries.is_empty() {
            return;
        }
        let rest = self.source.get(last.end..line_end(self.source, last.end)).unwrap_or_default();
        let after_comma = rest.trim_start_matches([' ', '\t']).strip_prefix(',');
        let tail = after_comma.unwrap_or(rest).trim_start_matches([' ', '\t']);
        let ends_line = tail.is_empty() || tail.starts_with('#');
        let dropped_after = children.last().is_some_and(|child| child.dropped);
        if self.shares_line(last.start) || !ends_line {
            let text: String = entries.iter().map(|entry| [self.style.comma(), entry].concat()).collect();
            self.push(last.end, last.end, text);
            return;
        }
        let indent = self.indentation(last.start);
        let line = |entry: &String| format!("{}{indent}{entry}", self.style.eol);
        let lines: Vec<String> = entries.iter().map(line).collect();
        let text = lines.join(",");
        if dropped_after || !tail.starts_with('#') {
            self.push(last.end, last.end, format!(",{text}"));
        } else {
            let at = line_end(self.source, last.end);
            if after_comma.is_some() {
                self.push(at, at, format!("{text},"));
            } else {
                self.push(last.end, last.end, ",");
                self.push(at, at, text);
            }
        }
    }
}

fn child(first: NodeRef<'_>, last: NodeRef<'_>) -> Child {
    Child { start: first.node().indicator, end: last.node().span.end, dropped: false }
}
