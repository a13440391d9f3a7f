//! What a check found: one violation in upstream's words, and every field behind it.

use palisade_base::field_path::FieldPath;
use serde_json::Value;

/// A check that forbids the pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// Id of the check.
    pub check: &'static str,
    /// Upstream's reason.
    pub reason: &'static str,
    /// Upstream's detail; never empty.
    pub detail: String,
    /// The fields behind it, in the order of the manifest's lists.
    pub findings: Vec<Finding>,
    /// Fields that upstream reports only after the others are mended. An exception that removes every finding brings them out.
    pub masked: Vec<Finding>,
}

/// One field that is wrong or missing.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Where the field is, or should be.
    pub path: FieldPath,
    /// The container it belongs to; none for a pod-level field.
    pub container: Option<String>,
    /// The offending value as the user wrote it; none if the field is missing.
    pub value: Option<String>,
    /// What is wrong, in one lower-case phrase with the user's own names.
    pub summary: String,
    /// What is allowed.
    pub allowed: &'static str,
    /// What would make it right.
    pub remedy: Remedy,
}

/// What would make a field right.
#[derive(Debug, Clone, PartialEq)]
pub enum Remedy {
    /// Edits that a machine can make.
    Edits(Vec<Edit>),
    /// No automatic fix, and why.
    Manual(&'static str),
}

/// One edit of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// Put a value there, with all parents it needs.
    Set(FieldPath, Value),
    /// Add an element to the list there.
    Append(FieldPath, Value),
    /// Take the field or element away, and parents that are left empty.
    Remove(FieldPath),
}

impl Edit {
    /// The place that is edited.
    #[must_use]
    pub const fn path(&self) -> &FieldPath {
        match self {
            Self::Set(path, _) | Self::Append(path, _) | Self::Remove(path) => path,
        }
    }
}

impl Remedy {
    /// One value put in one place.
    #[must_use]
    pub fn set(path: FieldPath, value: impl Into<Value>) -> Self {
        Self::Edits(vec![Edit::Set(path, value.into())])
    }

    /// One field taken away.
    #[must_use]
    pub fn remove(path: FieldPath) -> Self {
        Self::Edits(vec![Edit::Remove(path)])
    }
}
