//! What the tests of several crates share: a client of API servers, the recordings of real ones and their replay, and
//! the material beside a checkout. Never part of what is shipped.

#[cfg(feature = "agent")]
pub mod agent_world;
pub mod client;
pub mod command;
#[cfg(feature = "runtime")]
pub mod containerd;
#[cfg(feature = "registry")]
pub mod docker_registry;
#[cfg(feature = "runtime")]
pub mod images;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod outage_cases;
pub mod programs;
pub mod recordings;
pub mod replay;
mod shared;
mod wait;

pub use shared::{built, shared};
pub use wait::eventually;
