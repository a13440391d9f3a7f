//! How does a person ask, and what do they read?
//!
//! The command line of Palisade. It has no judgement of its own: it reads manifests with their places
//! (`palisade-yaml`), asks the engine (`palisade-model`, `palisade-policy`), and draws what they answer as
//! [`diagnostic::Diagnostic`]s. Every command is one file in [`commands`], every output format one in [`render`].
//!
//! Exit status: 0 clean, 1 findings, 2 usage or unreadable input, 3 could not complete.

pub mod args;
pub mod cluster;
pub mod command_line;
pub mod commands;
pub mod config;
pub mod diagnostic;
pub mod engine;
pub mod failure;
pub mod fix;
pub mod input;
pub mod install;
pub mod judge;
pub mod live;
pub mod manifest;
pub mod metrics_endpoint;
pub mod render;
pub mod replace;
pub mod service;
pub mod source_map;
pub mod suppression;
pub mod terminal;
