//! Paths into a document: `spec.containers[0].image`, and what stands there.

use std::fmt;

use crate::{Document, NodeRef, Span};

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step<'a> {
    /// Into a mapping.
    Key(&'a str),
    /// Into a list, counted from 0.
    Index(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(key: &'a str) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Writes a path as Kubernetes does: `metadata.annotations[example.com/key]`, `spec.containers[0]`.
#[derive(Clone, Copy, Debug)]
pub struct DisplayPath<'a>(pub &'a [Step<'a>]);

impl fmt::Display for DisplayPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if is_field_name(key) => write!(f, "{}{key}", if at == 0 { "" } else { "." })?,
                Step::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

fn is_field_name(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// A value that a path leads to.
#[derive(Clone, Debug)]
pub struct Found<'d> {
    /// The value, aliases followed.
    pub value: NodeRef<'d>,
    /// The value as it is written at the end of the path: differs from `value` if it is an alias.
    pub written: NodeRef<'d>,
    /// The key it belongs to; `None` for list items and the root.
    pub key: Option<Span>,
    /// How the path leads there.
    pub reached: Reached,
}

impl Found<'_> {
    /// Where the value is written.
    #[must_use]
    pub fn span(&self) -> Span {
        self.value.span()
    }
}

/// How a path leads to a value. With several detours the first one counts: it is the place where the path leaves
/// the text that belongs to it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The value is at the path.
    Directly,
    /// By this alias: others may use the same value.
    Alias(Span),
    /// By this merge key (`<<`).
    Merge(Span),
}

/// A path that leads nowhere.
#[derive(Clone, Debug)]
pub struct Missing<'d> {
    /// The deepest value that does exist: what is missing would be added to it.
    pub ancestor: Found<'d>,
    /// How many steps lead to that ancestor.
    pub depth: usize,
}

impl Document<'_> {
    /// Follows a path from the root, or returns how far it leads.
    ///
    /// ```
    /// use palisade_yaml::{Limits, Step, parse};
    ///
    /// let parsed = parse("spec:\n  hostPID: true\n", &Limits::default());
    /// let document = &parsed.documents[0];
    /// let found = document.find(&[Step::Key("spec"), Step::Key("hostPID")]).map_err(|_| "missing")?;
    /// assert_eq!(found.span().text(parsed.source()), "true");
    /// let missing = document.find(&[Step::Key("spec"), Step::Key("os"), Step::Key("name")]).unwrap_err();
    /// assert_eq!(missing.depth, 1);
    /// # Ok::<(), &str>(())
    /// ```
    pub fn find(&self, path: &[Step<'_>]) -> Result<Found<'_>, Box<Missing<'_>>> {
        let root = self.root();
        let mut found = Found { value: root, written: root, key: None, reached: Reached::Directly };
        for (depth, &step) in path.iter().enumerate() {
            let next = match step {
                Step::Key(key) => found.value.entry(key).map(|entry| {
                    let merge = entry.merge.map(|merge| Reached::Merge(merge.span()));
                    (entry.value, Some(entry.key_node.span()), merge)
                }),
                Step::Index(index) => found.value.item(index).map(|item| (item, None, None)),
            };
            let Some((written, key, merge)) = next else {
                return Err(Box::new(Missing { ancestor: found, depth }));
            };
            let value = written.target();
            let alias = (value.id() != written.id()).then(|| Reached::Alias(written.span()));
            let reached = match found.reached {
                Reached::Directly => merge.or(alias).unwrap_or(Reached::Directly),
                earlier => earlier,
            };
            found = Found { value, written, key, reached };
        }
        Ok(found)
    }
}
