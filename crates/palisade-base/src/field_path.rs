//! `spec.containers[0].securityContext.privileged`, as a value.
//!
//! Implements: `field.Path` of `k8s.io/apimachinery/pkg/util/validation/field`. [`FieldPath`] owns its steps and is made
//! when there is something to report; [`Path`] is its borrowed form, which costs nothing while an object is walked.

use std::{borrow::Cow, fmt};

/// One step of a [`FieldPath`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathStep {
    /// A field of an object: `.name`.
    Field(Cow<'static, str>),
    /// An element of a list: `[0]`.
    Index(usize),
    /// A key of a map of the user's own making, such as an annotation: `[key]`.
    Key(String),
}

/// Where in an object something is, from the object's root.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<PathStep>);

impl FieldPath {
    /// The object itself.
    #[must_use]
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// A path of plain fields.
    #[must_use]
    pub fn of(fields: &[&'static str]) -> Self {
        Self(fields.iter().map(|&field| PathStep::Field(Cow::Borrowed(field))).collect())
    }

    /// This path and a field below it.
    #[must_use]
    pub fn field(mut self, name: &'static str) -> Self {
        self.0.push(PathStep::Field(Cow::Borrowed(name)));
        self
    }

    /// This path and several fields below it.
    #[must_use]
    pub fn fields(mut self, names: &[&'static str]) -> Self {
        self.0.extend(names.iter().map(|&name| PathStep::Field(Cow::Borrowed(name))));
        self
    }

    /// This path and an element of the list it names.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(PathStep::Index(index));
        self
    }

    /// This path and a key of the map it names.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.push(PathStep::Key(key.into()));
        self
    }

    /// The steps from the root.
    #[must_use]
    pub fn steps(&self) -> &[PathStep] {
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
}

impl From<Vec<PathStep>> for FieldPath {
    fn from(steps: Vec<PathStep>) -> Self {
        Self(steps)
    }
}

impl From<String> for FieldPath {
    /// A path that is already written. It prints as it is; its steps are not distinguished.
    fn from(text: String) -> Self {
        if text.is_empty() { Self::root() } else { Self(vec![PathStep::Field(text.into())]) }
    }
}

impl From<&str> for FieldPath {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<&String> for FieldPath {
    fn from(text: &String) -> Self {
        text.clone().into()
    }
}

impl From<&Path<'_>> for FieldPath {
    fn from(path: &Path<'_>) -> Self {
        let below = |parent: &Path<'_>, step: PathStep| {
            let mut path = Self::from(parent);
            path.0.push(step);
            path
        };
        match *path {
            Path::Root(name) => Self(vec![PathStep::Field(name.to_owned().into())]),
            Path::Field(parent, name) => below(parent, PathStep::Field(name.to_owned().into())),
            Path::Index(parent, at) => below(parent, PathStep::Index(at)),
            Path::Key(parent, key) => below(parent, PathStep::Key(key.to_owned())),
        }
    }
}

/// A path into an object, borrowed from its parent.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    /// A field at the root.
    Root(&'a str),
    /// A field of the parent.
    Field(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
    /// A value of a map.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    /// A field below.
    #[must_use]
    pub const fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    /// An item below.
    #[must_use]
    pub const fn index(&'a self, at: usize) -> Path<'a> {
        Path::Index(self, at)
    }

    /// A map value below.
    #[must_use]
    pub const fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FieldPath::from(self).fmt(f)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Field(name) if position == 0 => f.write_str(name)?,
                PathStep::Field(name) => write!(f, ".{name}")?,
                PathStep::Index(index) => write!(f, "[{index}]")?,
                PathStep::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{FieldPath, Path};

    #[test]
    fn prints_as_upstream_does() {
        let spec = FieldPath::of(&["spec"]);
        for (path, printed) in [
            (FieldPath::root(), ""),
            (spec.clone(), "spec"),
            (spec.field("containers").index(2).field("name"), "spec.containers[2].name"),
            (FieldPath::of(&["metadata", "annotations"]).key("a.io/b~c"), "metadata.annotations[a.io/b~c]"),
        ] {
            assert_eq!(path.to_string(), printed);
        }
    }

    #[test]
    fn borrowed_and_written_paths_print_alike() {
        let spec = Path::Root("spec");
        let (list, labels) = (spec.field("containers"), spec.field("labels"));
        for (path, printed) in [
            (list.index(2).field("name"), "spec.containers[2].name"),
            (labels.key("a.io/b"), "spec.labels[a.io/b]"),
        ] {
            assert_eq!(path.to_string(), printed);
            assert_eq!(FieldPath::from(printed).to_string(), printed);
        }
    }
}
