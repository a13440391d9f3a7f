//! Kustomizations, built with the file and line that decided each value.
//!
//! Implements: `kustomize build` for the usual fields of a kustomization, see `docs/kustomize.md`.
//! <https://kubectl.docs.kubernetes.io/references/kustomize/kustomization/>
//!
//! A finding in a built manifest helps nobody who has the overlay: what can be changed is a line of a base or of a patch. So every
//! value keeps where it was written ([`tree`]). No IO: files come from [`Files`]. What is not supported, and what cannot be built, is an
//! error of the whole build; nothing is left out silently.
//!
//! Crates compared: none builds kustomizations. `kustomize` and `kubectl kustomize` return objects without their origins, are another
//! version on every machine, and fetch remote bases.
//!
//! # How it is made
//!
//! `load` reads kustomizations, `build` accumulates resources and applies transformers in kustomize's order, with `merge` and
//! `json_patch` for patches, `generate`, `labels`, `images` and `replace`; `names` updates references at the end; `render` is the result as text.

#![warn(clippy::disallowed_types, clippy::disallowed_methods)]
#![expect(
    clippy::unnecessary_box_returns,
    reason = "problems are rare, and every result would be as large as one"
)]

mod budget;
mod build;
mod error;
mod generate;
mod images;
mod json_patch;
mod labels;
mod load;
mod merge;
mod names;
mod object;
mod render;
mod replace;
mod select;
pub mod tree;

pub use build::{Build, build};
pub use error::{Problem, ProblemKind};
pub use json_patch::JsonPatchError;
pub use load::{
    FileProblem, Files, Inside, KUSTOMIZATION_FILES, Located, Reference, Source, Use, references,
};
pub use merge::MergeError;
pub use object::{Id, Object};
pub use render::Rendered;
