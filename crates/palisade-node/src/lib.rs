//! What are the runtime and the kernel told?
#![forbid(unsafe_code)]

pub mod agent;
pub mod api;
pub mod cri;
pub mod events;
pub mod kernel;
pub mod logs;
pub mod node;
pub mod node_object;
pub mod pod;
pub mod profiles;
pub mod run;
pub mod runner;
pub mod verify;
pub mod volumes;
