//! How a document is written: indentation, lists, quotes, line ends.

use crate::{
    Document, NodeRef, Resolved, ScalarStyle,
    document::{Kind, NodeId},
    lines::line_start,
};

/// The habits of a document, which new text follows.
#[derive(Clone, Debug)]
pub(super) struct Style {
    /// Line break.
    pub(super) eol: &'static str,
    /// Spaces a mapping is indented below its key.
    pub(super) step: usize,
    /// Spaces a list is indented below its key, often none.
    pub(super) list_offset: usize,
    /// Whether lists of scalars are mostly written in brackets. Without any example they are not.
    pub(super) flow_lists: bool,
    pub(super) single_quotes: bool,
    /// Whether a text of several lines may be written as a block (`|`).
    pub(super) literals: bool,
    pub(super) json: Option<Json>,
}

/// How JSON is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Json {
    /// `{"a":1}`
    Minified,
    /// `{"a": 1}` on one line.
    Spaced,
    /// One entry per line.
    Pretty {
        /// The characters of one level of indentation.
        width: usize,
        /// Whether they are tabs.
        tabs: bool,
    },
}

impl Style {
    pub(super) fn of(document: &Document<'_>) -> Self {
        let source = document.source();
        let eol = match memchr::memchr(b'\n', source.as_bytes()) {
            Some(at) if source.as_bytes().get(at.wrapping_sub(1)) == Some(&b'\r') => "\r\n",
            _ => "\n",
        };
        let mut habits = Habits::default();
        for at in 0..document.nodes.len() {
            if let Ok(id) = u32::try_from(at) {
                habits.look(document, NodeId(id));
            }
        }
        let json = habits.json(document);
        Self {
            eol,
            step: most_common(&habits.steps).unwrap_or(2),
            list_offset: most_common(&habits.list_offsets).unwrap_or(0),
            flow_lists: habits.flow_lists > habits.block_lists,
            single_quotes: habits.single_quotes > habits.double_quotes,
            literals: true,
            json,
        }
    }
}

/// Widths 0 to 8 of something, counted.
type Histogram = [usize; 9];

/// The most common width; of equals the smaller.
fn most_common(histogram: &Histogram) -> Option<usize> {
    let most = *histogram.iter().max().filter(|&&most| most > 0)?;
    histogram.iter().position(|&count| count == most)
}

#[derive(Default)]
struct Habits {
    steps: Histogram,
    list_offsets: Histogram,
    flow_lists: usize,
    block_lists: usize,
    single_quotes: usize,
    double_quotes: usize,
    other_strings: usize,
    block_collections: usize,
}

impl Habits {
    fn look(&mut self, document: &Document<'_>, id: NodeId) {
        match &document.node(id).kind {
            Kind::Scalar(scalar) => match scalar.style {
                ScalarStyle::SingleQuoted => self.single_quotes += 1,
                ScalarStyle::DoubleQuoted => self.double_quotes += 1,
                _ if matches!(scalar.resolve(), Resolved::Str(_)) => self.other_strings += 1,
                _ => {}
            },
            Kind::Sequence(items) => {
                self.block_collections += usize::from(!items.flow);
                let mut scalars =
                    document.children(*items).iter().map(|&item| &document.node(item).kind).peekable();
                if scalars.peek().is_some() && scalars.all(|kind| matches!(kind, Kind::Scalar(_))) {
                    self.flow_lists += usize::from(items.flow);
                    self.block_lists += usize::from(!items.flow);
                }
            }
            Kind::Mapping(entries) if !entries.flow => {
                self.block_collections += 1;
                for (key, value) in document.pairs(*entries) {
                    self.look_at_indentation(document, key, value);
                }
            }
            Kind::Mapping(_) | Kind::Alias(_) => {}
        }
    }

    fn look_at_indentation(&mut self, document: &Document<'_>, key: NodeId, value: NodeId) {
        let source = document.source();
        let key = column(source, document.node(key).outer_start);
        let value = document.node(value);
        let (histogram, at) = match value.kind {
            Kind::Mapping(entries) if !entries.flow => (&mut self.steps, value.span.start),
            Kind::Sequence(items) if !items.flow => (&mut self.list_offsets, value.span.start),
            _ => return,
        };
        if let Some(width) = column(source, at).checked_sub(key)
            && let Some(count) = histogram.get_mut(width)
        {
            *count += 1;
        }
    }

    /// A document in brackets whose strings are all in double quotes is JSON.
    fn json(&self, document: &Document<'_>) -> Option<Json> {
        let root = document.root().node();
        let flow = matches!(root.kind, Kind::Mapping(root) | Kind::Sequence(root) if root.flow);
        if !flow
            || self.block_collections + self.other_strings + self.single_quotes > 0
            || document.has_aliases
        {
            return None;
        }
        let source = document.source();
        let text = root.span.text(source);
        if let Some(at) = text.find(['\n', '\r']) {
            let rest = text.get(at..).unwrap_or_default().trim_start_matches(['\n', '\r']);
            let indentation = rest.len() - rest.trim_start_matches([' ', '\t']).len();
            // Without an example (`{` and `}` on two lines) two spaces are as good as any.
            let width = if rest.get(indentation..).is_some_and(|rest| rest.starts_with(['}', ']'])) {
                2
            } else {
                indentation
            };
            return Some(Json::Pretty { width, tabs: rest.starts_with('\t') });
        }
        let first = first_value(document.root());
        let spaced =
            first.is_some_and(|value| source.as_bytes().get(value.node().indicator + 1) == Some(&b' '));
        Some(if spaced || first.is_none() { Json::Spaced } else { Json::Minified })
    }
}

fn first_value(root: NodeRef<'_>) -> Option<NodeRef<'_>> {
    let mut at = root;
    loop {
        if let Some((_, value)) = at.written_pairs().into_iter().next() {
            return Some(value);
        }
        at = at.items().next()?;
    }
}

/// The column of an offset, counted in characters from 0.
pub(super) fn column(source: &str, offset: usize) -> usize {
    let before = source.get(line_start(source, offset)..offset).unwrap_or_default();
    before.trim_start_matches('\u{feff}').chars().count()
}
