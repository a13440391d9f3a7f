//! Why a kustomization cannot be built.

use palisade_yaml::Span;
use thiserror::Error;

use crate::{json_patch::JsonPatchError, merge::MergeError};

/// What is wrong, and where.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The file, as it is shown.
    pub file: String,
    /// The place in a source, if it is known.
    pub at: Option<(usize, Span)>,
    /// What is wrong.
    pub kind: ProblemKind,
}

/// What is wrong with a kustomization.
#[derive(Debug, Clone, Error)]
pub enum ProblemKind {
    /// It is on another machine. The rest is built.
    #[error("the remote resource {0} is not fetched")]
    Remote(String),
    /// A field that is not supported.
    #[error("the field `{0}` is not supported")]
    NotSupported(&'static str),
    /// A plugin or another form of a field that is not supported.
    #[error("{0} is not supported")]
    FormNotSupported(&'static str),
    /// A field that kustomize does not have.
    #[error("kustomizations have no field `{0}`")]
    UnknownField(String),
    /// A field has a value of another type.
    #[error("`{0}` has a value of the wrong type")]
    WrongType(&'static str),
    /// A folder without a kustomization, or with several.
    #[error("the folder {0} has no kustomization, or more than one")]
    NoKustomization(String),
    /// A file is not there.
    #[error("{0} is not there")]
    Missing(String),
    /// A file outside of the kustomization's folder, which kustomize does not read.
    #[error("{0} is not in or below the folder of the kustomization")]
    Outside(String),
    /// A file cannot be read.
    #[error("{0} cannot be read: {1}")]
    Unreadable(String, String),
    /// A file is no YAML.
    #[error("{0}")]
    Syntax(String),
    /// A document of a resource is no object.
    #[error("{0} has a document that is not a Kubernetes object")]
    NotAnObject(String),
    /// Kustomizations that include each other.
    #[error("the kustomization {0} includes itself")]
    Cycle(String),
    /// A component where a base is expected, or the reverse.
    #[error("{0} is a {1}, and cannot be used here")]
    WrongKind(String, &'static str),
    /// The same object twice.
    #[error("{0} is there twice")]
    Duplicate(String),
    /// A patch without an object.
    #[error("no object matches the patch of {0}")]
    NoMatch(String),
    /// A patch that is no patch.
    #[error("this is neither a strategic merge patch nor a JSON patch")]
    NotAPatch,
    /// A JSON patch without a target.
    #[error("a JSON patch needs a target")]
    NoTarget,
    /// A regular expression or a selector that cannot be read.
    #[error("the selector `{0}` cannot be read")]
    Selector(String),
    /// A replacement without source or target.
    #[error("the replacement cannot be made: {0}")]
    Replacement(String),
    /// A generator without name or with a malformed source.
    #[error("the generator cannot be run: {0}")]
    Generator(String),
    /// A patch that does not merge.
    #[error("the patch cannot be applied: {0}")]
    Merge(#[from] MergeError),
    /// A JSON patch that does not apply.
    #[error("the patch cannot be applied: {0}")]
    JsonPatch(#[from] JsonPatchError),
    /// Too much to build.
    #[error(
        "the kustomization is too large: at most 20,000 objects, 2,000 inclusions, 100 inside each other, and 512 MiB are built"
    )]
    TooLarge,
}
