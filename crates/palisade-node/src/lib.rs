//! What are the runtime and the kernel told?
#![forbid(unsafe_code)]

pub mod cri;
pub mod kernel;
