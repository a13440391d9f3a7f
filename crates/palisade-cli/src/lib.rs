//! The command line of Palisade.
//!
//! It has no rules of its own: it reads manifests with their places (`palisade-yaml`), evaluates them with `palisade-model` and
//! `palisade-policy`, and prints the result as [`diagnostic::Diagnostic`]s. Every command is one file in [`commands`], with its
//! options; every output format is one in [`render`]. [`failure`] has the exit statuses.

pub mod args;
pub mod baseline;
pub mod charts;
pub mod cluster;
pub mod command_line;
pub mod commands;
pub mod config;
pub mod dashboard;
pub mod diagnostic;
pub mod exceptions;
pub mod failure;
pub mod fix;
pub mod git;
pub mod html;
pub mod identity;
pub mod images;
pub mod input;
pub mod install;
pub mod judge;
pub mod live;
pub mod lsp;
pub mod manifest;
pub mod overlays;
pub mod parallel;
pub mod preview;
pub mod render;
pub mod replace;
pub mod server_side;
pub mod service;
pub mod source_map;
pub mod suppression;
pub mod terminal;
pub mod watch;
