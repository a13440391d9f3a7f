//! The two patterns of an exception: which fields it is for, and which images.
//!
//! Both are narrow on purpose. In a field only the position in a list may be left open, because a position means nothing;
//! in an image only what follows a `/`, `:` or `@`, because half a name is another name.

use std::fmt;

use palisade_base::field_path::{FieldPath, PathStep};
use thiserror::Error;

/// The field of a pod, from the root of the pod: `spec.containers[*].securityContext.privileged`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPattern {
    steps: Vec<PatternStep>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternStep {
    Field(String),
    AnyIndex,
    /// A position in a list, or the key of a map: the text is the same.
    Element(String),
}

/// Why a pattern cannot be used.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum PatternError {
    /// Nothing is there.
    #[error("is empty")]
    Empty,
    /// Every field of a pod that the standards look at is in one of the two.
    #[error("must begin with \"spec.\" or \"metadata.annotations[\", from the root of the pod")]
    Root,
    /// Two dots, or one at the end.
    #[error("has an empty field name")]
    EmptyStep,
    /// A bracket without its partner, or with nothing in it.
    #[error("has an unbalanced or empty \"[]\"")]
    Bracket,
    /// Only a position may be left open.
    #[error("may contain \"*\" only as \"[*]\", for any position of a list")]
    Wildcard,
    /// `*` alone, or in the middle.
    #[error("may contain \"*\" only at the end, after \"/\", \":\" or \"@\"")]
    ImageWildcard,
}

impl FieldPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let mut steps = Vec::new();
        let mut rest = text;
        loop {
            let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            if name.is_empty() {
                return Err(PatternError::EmptyStep);
            }
            if name.contains('*') {
                return Err(PatternError::Wildcard);
            }
            steps.push(PatternStep::Field(name.to_owned()));
            rest = after;
            while let Some(inside) = rest.strip_prefix('[') {
                let (element, after) = inside.split_once(']').ok_or(PatternError::Bracket)?;
                steps.push(match element {
                    "" => return Err(PatternError::Bracket),
                    "*" => PatternStep::AnyIndex,
                    element if element.contains('*') => return Err(PatternError::Wildcard),
                    element => PatternStep::Element(element.to_owned()),
                });
                rest = after;
            }
            match rest.strip_prefix('.') {
                Some(more) => rest = more,
                None if rest.is_empty() => break,
                None => return Err(PatternError::Bracket),
            }
        }
        let field = |at: usize| match steps.get(at) {
            Some(PatternStep::Field(name)) => name.as_str(),
            _ => "",
        };
        let annotation = field(1) == "annotations"
            && steps.len() == 3
            && matches!(steps.get(2), Some(PatternStep::Element(_)));
        match field(0) {
            "spec" if steps.len() > 1 => {}
            "metadata" if annotation => {}
            _ => return Err(PatternError::Root),
        }
        Ok(Self { steps, text: text.to_owned() })
    }

    /// Whether the pattern ends with any element of a list, which only a value can distinguish.
    #[must_use]
    pub fn ends_with_any_element(&self) -> bool {
        matches!(self.steps.last(), Some(PatternStep::AnyIndex))
    }

    /// The key, if the pattern is for an annotation.
    pub(super) fn annotation(&self) -> Option<&str> {
        match self.steps.as_slice() {
            [PatternStep::Field(metadata), PatternStep::Field(_), PatternStep::Element(key)]
                if metadata == "metadata" =>
            {
                Some(key)
            }
            _ => None,
        }
    }

    /// Whether the pattern is this path of `spec`, in which `[*]` stands for every position.
    pub(super) fn is_for_any_position_of(&self, path: &str) -> bool {
        self.text == path
    }

    /// Whether the pattern is this path with some position in the place of a `[*]`.
    pub(super) fn is_for_some_position_of(&self, path: &str) -> bool {
        // swallowed: the paths of findings can be read, and what cannot is not the path of this pattern
        Self::parse(path).is_ok_and(|open| {
            open.steps.len() == self.steps.len()
                && open.steps.iter().zip(&self.steps).all(|(step, own)| match (step, own) {
                    (PatternStep::AnyIndex, PatternStep::Element(_)) => true,
                    (step, own) => step == own,
                })
        })
    }

    /// Whether the pattern is for this field. `base` is where the pod is in its object: the path of the template of a workload.
    #[must_use]
    pub fn matches(&self, base: &FieldPath, path: &FieldPath) -> bool {
        let Some(steps) = path.steps().strip_prefix(base.steps()) else { return false };
        steps.len() == self.steps.len()
            && steps.iter().zip(&self.steps).all(|(step, pattern)| match (step, pattern) {
                (PathStep::Field(name), PatternStep::Field(expected)) => name == expected,
                (PathStep::Index(_), PatternStep::AnyIndex) => true,
                (PathStep::Index(index), PatternStep::Element(expected)) => index.to_string() == *expected,
                (PathStep::Key(key), PatternStep::Element(expected)) => key == expected,
                _ => false,
            })
    }
}

impl fmt::Display for FieldPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An image, or all images of a repository, or all tags or digests of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePattern {
    text: String,
}

impl ImagePattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let fixed = text.strip_suffix('*').unwrap_or(text);
        let is_open = fixed.len() < text.len();
        let has_place = fixed.len() > 1 && fixed.ends_with(['/', ':', '@']);
        if fixed.contains('*') || (is_open && !has_place) {
            return Err(PatternError::ImageWildcard);
        }
        Ok(Self { text: text.to_owned() })
    }

    /// What stands before the `*`; none if the pattern is one image.
    pub(super) fn open_after(&self) -> Option<&str> {
        self.text.strip_suffix('*')
    }

    /// Whether the pattern is for this image, as it is written in the pod.
    #[must_use]
    pub fn matches(&self, image: &str) -> bool {
        match self.open_after() {
            None => self.text == image,
            Some(fixed) => image.strip_prefix(fixed).is_some_and(|rest| {
                // Behind `registry:` a port and a path may follow, which is another image altogether.
                !rest.is_empty() && (fixed.ends_with('/') || !rest.contains('/'))
            }),
        }
    }
}

impl fmt::Display for ImagePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use palisade_base::field_path::FieldPath;

    use super::{FieldPattern, ImagePattern, PatternError};

    #[test]
    fn matches_one_field_of_a_pod_and_of_a_template() {
        let spec = |base: &[&'static str]| FieldPath::of(base).field("spec");
        let privileged = |base: &[&'static str]| {
            spec(base).field("containers").index(3).fields(&["securityContext", "privileged"])
        };
        let template: &[&'static str] = &["spec", "template"];
        let annotation = FieldPath::of(&["metadata", "annotations"]).key("a.io/b");
        for (pattern, base, path, expected) in [
            ("spec.containers[*].securityContext.privileged", &[][..], privileged(&[]), true),
            ("spec.containers[*].securityContext.privileged", template, privileged(template), true),
            ("spec.containers[3].securityContext.privileged", &[], privileged(&[]), true),
            ("spec.containers[0].securityContext.privileged", &[], privileged(&[]), false),
            ("spec.containers[*].securityContext", &[], privileged(&[]), false),
            ("spec.initContainers[*].securityContext.privileged", &[], privileged(&[]), false),
            ("spec.containers[*].securityContext.privileged", template, privileged(&[]), false),
            ("spec.template.spec.containers[*].securityContext.privileged", &[], privileged(&[]), false),
            ("metadata.annotations[a.io/b]", &[], annotation.clone(), true),
            ("metadata.annotations[a.io/c]", &[], annotation, false),
        ] {
            let read = FieldPattern::parse(pattern).unwrap();
            assert_eq!(read.matches(&FieldPath::of(base), &path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn rejects_patterns_that_leave_more_open_than_a_position() {
        use PatternError::{Bracket, Empty, EmptyStep, Root, Wildcard};
        for (pattern, error) in [
            ("", Empty),
            ("*", Wildcard),
            ("spec", Root),
            ("spec.*", Wildcard),
            ("spec.containers[*].*", Wildcard),
            ("spec.containers*[0].image", Wildcard),
            ("spec.containers[1*].image", Wildcard),
            ("metadata.labels[a]", Root),
            ("metadata.annotations[*]", Root),
            ("status.phase", Root),
            ("spec..hostPID", EmptyStep),
            ("spec.hostPID.", EmptyStep),
            (".spec.hostPID", EmptyStep),
            ("spec.containers[].image", Bracket),
            ("spec.containers[0", Bracket),
            ("spec.containers]0[", Bracket),
            ("spec.containers[0]x", Bracket),
        ] {
            assert_eq!(FieldPattern::parse(pattern), Err(error), "{pattern:?}");
        }
    }

    #[test]
    fn matches_images_by_whole_parts() {
        for (pattern, image, expected) in [
            ("r.example/a/b:1", "r.example/a/b:1", true),
            ("r.example/a/b:1", "r.example/a/b:10", false),
            ("r.example/a/*", "r.example/a/b:1", true),
            ("r.example/a/*", "r.example/ab/c", false),
            ("r.example/a/*", "r.example/a/", false),
            ("r.example/a:*", "r.example/a:2", true),
            ("r.example/a:*", "r.example/a@sha256:00", false),
            ("r.example/a@*", "r.example/a@sha256:00", true),
            ("r.example:*", "r.example:5000/other/image", false),
        ] {
            assert_eq!(ImagePattern::parse(pattern).unwrap().matches(image), expected, "{pattern} {image}");
        }
        for pattern in ["*", "/*", "r.example/a*", "r.*/a", "r.example/*/b", "a**"] {
            assert_eq!(ImagePattern::parse(pattern), Err(PatternError::ImageWildcard), "{pattern}");
        }
    }
}
