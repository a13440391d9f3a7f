//! Black-box tests of the binary: what a person types, reads and finds on disk.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail as well")]

mod attacks;
mod bad_input;
mod charts;
mod cluster_errors;
mod command_line;
mod configuration;
mod dashboard;
mod exceptions;
mod explain;
mod export;
mod fix;
mod fixes;
mod fixtures;
mod formats;
mod generated;
mod human;
mod idle;
mod install;
mod live;
mod migrate;
mod monitoring;
mod node;
mod overlays;
mod permissions;
mod profile;
mod property;
mod repositories;
mod rollout;
mod rollout_scenario;
mod rollout_sources;
mod support;
mod suppressions;
mod uninstall;
mod up_command;
mod workloads;
