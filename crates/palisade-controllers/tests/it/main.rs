//! Black-box tests of the controllers: their plans in a world of the hand, and themselves on the embedded API server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::needless_pass_by_value, reason = "values read better at the place of use")]

mod cluster;
mod counted_exceptions;
mod incremental;
mod live;
mod live_cluster;
mod live_faults;
mod live_ledger;
mod live_openshift;
mod live_rollout;
mod live_syncer;
mod nothing_breaks;
mod plain;
mod profile_publisher;
mod reports;
mod rollout;
mod scheduler;
mod workloads;
mod world;
