//! What `palisade check` does to a text: manifests in, findings with places out, and fixes that are verified before anybody writes them.
//!
//! Pure: no IO, no clock, no threads. The command line, the language server and the page that runs in a browser use the same functions,
//! so that they cannot disagree. Finding files, charts and overlays, and printing, are the work of `palisade-cli`.
//!
//! # How it is made
//!
//! [`judge`] parses a text ([`manifest`], [`source_map`]), evaluates every object and makes [`diagnostic`]s of what it finds;
//! [`suppression`] and [`exceptions`] are what the user accepts. [`fix`] applies edits in memory, judges the result, and has
//! [`server_side`] validate it as an API server would.

#![warn(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod diagnostic;
pub mod exceptions;
pub mod fix;
pub mod images;
pub mod json;
pub mod judge;
pub mod manifest;
pub mod server_side;
pub mod source_map;
pub mod suppression;
