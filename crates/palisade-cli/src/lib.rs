//! The command line of Palisade.
//!
//! It has no rules of its own: it finds manifests, has `palisade-check` evaluate and fix them, and prints the result, which are
//! [`diagnostic::Diagnostic`]s. Every command is one file in [`commands`], with its
//! options; every output format is one in [`render`]. [`failure`] has the exit statuses.

pub use palisade_check::{diagnostic, fix, judge, manifest, server_side, source_map, suppression};

pub mod args;
pub mod baseline;
pub mod charts;
pub mod cluster;
pub mod command_line;
pub mod commands;
pub mod config;
pub mod dashboard;
pub mod exceptions;
pub mod failure;
pub mod git;
pub mod html;
pub mod identity;
pub mod images;
pub mod input;
pub mod install;
pub mod live;
pub mod lsp;
pub mod overlays;
pub mod parallel;
pub mod preview;
pub mod render;
pub mod replace;
pub mod service;
pub mod terminal;
pub mod watch;
