//! Helm charts, rendered with the source of every byte.
//!
//! A finding in a rendered manifest helps nobody who has the chart: what can be changed is a line of a template or a key of
//! values.yaml. So the engine keeps, for every byte that it writes, the literal or the action that wrote it, the values that the
//! bytes are made of, and the conditions around them ([`Rendering::source`]).
//!
//! Crates compared: `gtmpl` and its forks have no release for years or no limits, return text without its source, and lack most
//! functions of Sprig and Helm. A `helm` on PATH returns text without its source as well, is another version on every machine, and
//! runs untrusted templates without limits.
//!
//! # How it is made
//!
//! `parse` (text to tree) → `exec` (tree, with `functions`, to [`text`](crate) with marks); `chart` reads the files of a chart and
//! computes which charts are enabled with which values; `render` puts them together. No IO: files come in as bytes. Work, output and
//! nesting are bounded by [`Limits`]; lists and maps live in one heap, so that no value is dropped recursively.

#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

mod chart;
mod error;
mod exec;
mod functions;
mod parse;
mod render;
mod text;
mod value;

pub use chart::{Chart, ChartError, MissingDependency, merged_values};
pub use error::TemplateErrorKind;
pub use exec::Limits;
pub use parse::SyntaxError;
pub use render::{
    Engine, OutputSource, RenderError, RenderedTemplate, Rendering, Target, TemplatePlace, ValuePath,
};
