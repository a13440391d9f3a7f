//! One file for each command.

pub mod check;
pub mod completions;
pub mod controller;
pub mod dashboard;
pub mod exceptions;
pub mod explain;
pub mod export;
pub mod install;
pub mod lsp;
pub mod man;
pub mod migrate;
pub mod node;
pub mod node_agent;
pub mod openshift;
pub mod preview;
pub mod profile;
pub mod recording;
pub mod rollout;
pub mod run;
pub mod uninstall;
pub mod up;
pub mod verify;
pub mod version;
pub mod webhook;
