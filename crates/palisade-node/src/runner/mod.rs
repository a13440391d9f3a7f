//! Running pods: from what the runtime has, through a plan, to the status.

mod admission;
pub mod backoff;
pub mod config;
mod ending;
pub mod environment;
mod handlers;
mod hooks;
mod images;
pub mod observed;
pub mod plan;
pub mod probes;
pub mod resources;
pub(crate) mod room;
mod start;
pub mod status;
pub mod worker;
