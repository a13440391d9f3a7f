//! What the tests of several crates share: a client of API servers, the recordings of real ones and their replay, and
//! the material beside a checkout. Never part of what is shipped.

pub mod client;
pub mod recordings;
pub mod replay;
mod shared;

pub use shared::shared;
