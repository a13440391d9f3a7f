//! Lines and commas: how entries are taken out of a collection and put into it.

use super::plan::{Child, Planner};
use crate::{
    ScalarStyle,
    document::{Kind, Node},
    lines::{line_end, line_start},
};

impl<'d> Planner<'d> {
    /// The first lines of a text have no line break before them, so the one after has to go.
    pub(super) fn remove_first_line_break(&mut self) {
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
    pub(super) fn keep_last_line_break(&mut self) {
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

    pub(super) fn joined(&self, lines: &[String]) -> String {
        lines.iter().map(|line| [self.style.eol, line].concat()).collect()
    }

    pub(super) fn push_lines(&mut self, after: usize, lines: String) {
        if !lines.is_empty() {
            let at = line_end(self.source, after);
            self.push(at, at, lines);
        }
    }

    /// The white space the line of `offset` begins with.
    pub(super) fn indentation(&self, offset: usize) -> String {
        let line = self.source.get(line_start(self.source, offset)..).unwrap_or_default();
        line.chars().take_while(|&character| character == ' ' || character == '\t').collect()
    }

    pub(super) fn insert_in_block(&mut self, children: &[Child], column: usize, lines: &[String]) {
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
    pub(super) fn remove_in_block(&mut self, children: &[Child], column: usize) {
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

    pub(super) fn remove_in_flow(&mut self, children: &[Child]) {
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
    pub(super) fn flow_indent(&self, children: &[Child]) -> String {
        let last = children.iter().rfind(|child| !child.dropped);
        last.map_or_else(String::new, |last| self.indentation(last.start))
    }

    pub(super) fn insert_in_flow(&mut self, children: &[Child], entries: &[String]) {
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
