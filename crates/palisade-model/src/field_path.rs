//! `spec.containers[0].securityContext.privileged`, as a value.
//!
//! Paths are made only when there is something to say about a field, so they own their steps.

use std::{borrow::Cow, fmt};

/// One step of a [`FieldPath`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// A field of an object: `.name`.
    Field(Cow<'static, str>),
    /// An element of a list: `[0]`.
    Index(usize),
    /// A key of a map of the user's own making, such as an annotation: `[key]`.
    Key(String),
}

/// Where in an object something is, from the object's root.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<Step>);

impl FieldPath {
    /// The object itself.
    #[must_use]
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// A path of plain fields.
    #[must_use]
    pub fn of(fields: &[&'static str]) -> Self {
        Self(fields.iter().map(|&field| Step::Field(Cow::Borrowed(field))).collect())
    }

    /// This path and a field below it.
    #[must_use]
    pub fn field(mut self, name: &'static str) -> Self {
        self.0.push(Step::Field(Cow::Borrowed(name)));
        self
    }

    /// This path and several fields below it.
    #[must_use]
    pub fn fields(mut self, names: &[&'static str]) -> Self {
        self.0.extend(names.iter().map(|&name| Step::Field(Cow::Borrowed(name))));
        self
    }

    /// This path and an element of the list it names.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Step::Index(index));
        self
    }

    /// This path and a key of the map it names.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.push(Step::Key(key.into()));
        self
    }

    /// The steps from the root.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The path without its last step; the root has no parent.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (_, rest) = self.0.split_last()?;
        Some(Self(rest.to_vec()))
    }

    /// Whether `other` lies at or below this path.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// RFC 6901: the path as a JSON pointer, for patches.
    #[must_use]
    pub fn to_pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.0 {
            pointer.push('/');
            match step {
                Step::Field(name) => push_escaped(&mut pointer, name),
                Step::Key(key) => push_escaped(&mut pointer, key),
                Step::Index(index) => pointer.push_str(&index.to_string()),
            }
        }
        pointer
    }
}

fn push_escaped(pointer: &mut String, token: &str) {
    for c in token.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

impl From<Vec<Step>> for FieldPath {
    fn from(steps: Vec<Step>) -> Self {
        Self(steps)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if position == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::FieldPath;

    #[test]
    fn prints_as_upstream_does_and_points_as_rfc_6901_does() {
        let spec = FieldPath::of(&["spec"]);
        for (path, printed, pointer) in [
            (FieldPath::root(), "", ""),
            (spec.clone(), "spec", "/spec"),
            (
                spec.field("containers").index(2).field("name"),
                "spec.containers[2].name",
                "/spec/containers/2/name",
            ),
            (
                FieldPath::of(&["metadata", "annotations"]).key("a.io/b~c"),
                "metadata.annotations[a.io/b~c]",
                "/metadata/annotations/a.io~1b~0c",
            ),
        ] {
            assert_eq!(path.to_string(), printed);
            assert_eq!(path.to_pointer(), pointer);
        }
    }
}
