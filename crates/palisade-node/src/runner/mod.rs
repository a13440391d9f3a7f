//! Running pods: from what the runtime has, through a plan, to the status.

mod admission;
pub(crate) mod allocations;
pub mod backoff;
pub mod config;
mod ending;
pub mod environment;
mod handlers;
mod hooks;
mod hosts_file;
pub mod id_ranges;
mod images;
pub mod observed;
pub mod plan;
pub mod probes;
pub mod resize;
pub mod resources;
pub mod services;
mod start;
pub mod status;
pub mod worker;
